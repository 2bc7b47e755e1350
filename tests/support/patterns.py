"""The pages on patterns: their commands, which are run, and the specs that these are run on.

Owns what is left out of the running, each with the reason. Must never leave out a command only
because it fails.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/guide/patterns"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
LEFT_OUT = {
    "odi-audit run SPEC --once": "the page's spec has been run; once more it would find nothing",
    "odi-audit run SPEC --replay 1": "reads a source a second time, on purpose",
    "odi-audit dlq replay jobs/ready/13-contract.yaml --reason currency --apply": "commits a batch",
}
"""Commands that change state, as a page writes them, and why each is not run."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"`(odi-audit [a-z][^`]*)`")
_ROW = re.compile(
    r"^\| \[[^\]]+\]\(([a-z-]+)\.md\) \| (?:`([0-9a-z-]+)\.yaml`|its page's) \|", re.MULTILINE
)


def text_of(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text("utf-8")


def commands_on(page: str) -> list[str]:
    """Return every command that a page shows or names, once, as one line."""
    text = text_of(page)
    shown = [line for _, body in _FENCE.findall(text) for line in body.splitlines()]
    lines = [line for line in shown if line.startswith("odi-audit ")]
    lines += [" ".join(found.split()) for found in _NAMED.findall(_FENCE.sub("", text))]
    return list(dict.fromkeys(lines))


def words_of(command: str) -> list[str]:
    return shlex.split(command)[1:]


def spec_on(page: str) -> str | None:
    """Return the whole spec that a page shows, if it does."""
    found = [body for kind, body in _FENCE.findall(text_of(page)) if kind == "yaml"]
    return next((body for body in found if body.startswith("version:")), None)


def ready_spec_of(page: str) -> str | None:
    """Return the ready spec of a page by the list of pages; None: the page has its own.

    Raises:
        KeyError: the page is not on the list.
    """
    listed = {name: spec or None for name, spec in _ROW.findall(text_of("README"))}
    return "01-append" if page == "README" else listed[page]
