"""What the documents say exists: commands, options, make targets, links, code."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import odi_audit
from jobs.files import _parser
from jobs.spec import parse_spec
from odi_audit.cli.app import COMMANDS, load_command
from odi_audit.committer.batch import BatchBuilder
from odi_audit.committer.run import Run
from tests.support import patterns

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [ROOT / "README.md", ROOT / "docs/guide/ten-minutes.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`(odi-audit [a-z][^`]*)`")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(path.read_text("utf-8")) if kind == language]


def commands(path: Path) -> list[list[str]]:
    """Every call of the command line that a document shows or names, as words."""
    text = path.read_text("utf-8")
    shown = [line for _, body in FENCE.findall(text) for line in body.splitlines()]
    lines = [line.removeprefix("$ ") for line in shown] + NAMED.findall(text)
    calls = [re.split(r" \|\| | #", line)[0] for line in lines if line.startswith("odi-audit ")]
    return [shlex.split(call)[1:] for call in calls]


def resolve(words: list[str]) -> tuple[Any, list[str]]:
    """Find the command that words name; groups take one word more."""
    assert words[0] in COMMANDS, words
    command, rest = load_command(words[0]), words[1:]
    while hasattr(command, "commands"):
        if command.invoke_without_command and (not rest or rest[0].startswith("--")):
            break
        assert rest, f"{words} names a group only"
        if "show" in command.commands and rest[0] not in command.commands:
            rest = ["show", *rest]  # a table in place of a command
        assert rest[0] in command.commands, words
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


@pytest.mark.parametrize("path", GUIDES, ids=relative)
def test_every_command_in_the_guides_exists_with_its_options(path: Path) -> None:
    found = [words for words in commands(path) if words[0] != "--help"]
    assert len(found) > 5
    for words in found:
        command, rest = resolve(words)
        known = {option for parameter in command.params for option in parameter.opts}
        options = {word.split("=")[0] for word in rest if word.startswith("--")}
        assert options <= known | {"--help"}, words


@pytest.mark.parametrize("page", patterns.PAGES)
def test_every_command_on_a_page_about_a_pattern_exists_and_some_are_run(page: str) -> None:
    found = patterns.commands_on(page)
    assert set(found) - set(patterns.LEFT_OUT), "no command of the page is run"
    for words in map(patterns.words_of, found):
        command, rest = resolve(words)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known, words
    shown = patterns.spec_on(page)
    assert patterns.ready_spec_of(page) or shown, "nothing that they are run on"
    assert shown is None or parse_spec(shown, {"SHOP_PASSWORD": "secret"}).job


def test_what_is_left_out_of_the_running_is_on_a_page() -> None:
    shown = {command for page in patterns.PAGES for command in patterns.commands_on(page)}
    assert set(patterns.LEFT_OUT) <= shown


def test_the_readme_lists_every_command() -> None:
    rows = re.findall(r"^\| `odi-audit ([a-z -]+)` \|", GUIDES[0].read_text("utf-8"), re.MULTILINE)
    expected: set[str] = set()
    for name in COMMANDS:
        command = load_command(name)
        inner = getattr(command, "commands", None)
        expected |= {f"{name} {sub}" for sub in inner} if inner else {name}
        expected |= {name} if inner and command.invoke_without_command else set()
    assert set(rows) == expected
    assert len(rows) == len(expected)


@pytest.mark.parametrize("path", GUIDES, ids=relative)
def test_every_make_target_in_the_guides_exists(path: Path) -> None:
    targets = re.findall(r"^make ([a-z-]+)", "\n".join(blocks(path, "sh")), re.MULTILINE)
    assert targets
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_options_of_the_main_job_are_those_that_the_guide_uses() -> None:
    calls = [
        re.split(r" \|\| ", line)[0]
        for body in blocks(GUIDES[1], "sh")
        for line in body.splitlines()
        if line.startswith("python -m jobs.files")
    ]
    assert len(calls) >= 3
    for call in calls:
        given = _parser().parse_args(shlex.split(call)[3:])
        assert given.job == "sales/orders_import"


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_every_link_leads_to_a_file(path: Path) -> None:
    for target in LINK.findall(FENCE.sub("", path.read_text("utf-8"))):
        if "://" not in target and not target.startswith("#"):
            assert (path.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("path", GUIDES, ids=relative)
def test_the_python_in_the_guides_names_what_there_is(path: Path) -> None:
    owners: dict[str, Any] = {"odi": odi_audit, "run": Run}
    named: list[str] = []
    for body in blocks(path, "python"):
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = owners.get(node.value.id)
                if owner is not None:
                    assert hasattr(owner, node.attr), f"{node.value.id}.{node.attr}"
                    named.append(node.attr)
    assert {"run", "files", "Contract", "append"} <= set(named)


def test_the_operations_that_the_readme_names_are_methods_of_a_run() -> None:
    text = GUIDES[0].read_text("utf-8")
    sentence = text[text.index("`upsert`, ") : text.index(" alike;")]
    names = re.findall(r"`([a-z_]+)`", sentence)
    assert len(names) == 12
    assert all(hasattr(Run, name) for name in names)
    assert hasattr(BatchBuilder, "upsert")


def test_every_decision_is_in_the_list_and_has_its_parts() -> None:
    folder = ROOT / "docs/adr"
    pages = sorted(path for path in folder.glob("0*.md"))
    listed = LINK.findall((folder / "README.md").read_text("utf-8"))
    assert listed == [path.name for path in pages]
    for number, page in enumerate(pages, start=1):
        text = page.read_text("utf-8")
        assert text.startswith(f"# {number:04} ")
        assert page.name.startswith(f"{number:04}-")
        for part in ("**Decided.**", "Why", "**Rejected", "**Cost.**"):
            assert part in text, (page.name, part)


def test_every_decision_that_the_code_cites_is_written_down() -> None:
    written = {path.name[:4] for path in (ROOT / "docs/adr").glob("0*.md")}
    cited: set[str] = set()
    for package in ("odi_audit", "jobs", "lineage", "benchmarks"):
        for path in (ROOT / package).rglob("*.py"):
            cited |= set(re.findall(r"docs/adr/(\d{4})", path.read_text("utf-8")))
    assert cited
    assert cited <= written


def test_every_folder_and_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.[a-z]+)?)`", text))
    assert len(named) > 15
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "odi_audit" / name).exists(), name
