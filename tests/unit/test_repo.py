"""The repository itself: what its files must and must never hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
LINES_MAX = 400
FUNCTION_LINES_MAX = 60
PACKAGES = ("odi_audit", "jobs", "lineage", "benchmarks")


def tracked() -> list[Path]:
    """Every file that is or would be in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        try:
            found.append((path, path.read_text("utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def modules() -> list[Path]:
    return [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]


# Put together here, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "repo1" + ".maven",
    "repo" + ".maven",
    "maven" + "-central",
    "search.maven" + ".org",
    "proxy.golang" + ".org",
    "registry.npmjs" + ".org",
    "docker" + ".io/",
]
MACHINE_PATHS = [
    "/tmp" + "/venv",
    "/tmp" + "/x/",
    "/work" + "/main",
    "/work" + "/shared",
    "/root" + "/",
    "/home" + "/",
]
CONFLICT = re.compile(r"^(<{7}|>{7}|={7}$)", re.MULTILINE)


@pytest.mark.parametrize("word", [*REGISTRY_HOSTS, *MACHINE_PATHS])
def test_no_file_names_a_registry_or_a_path_of_one_machine(word: str) -> None:
    found = [str(path.relative_to(ROOT)) for path, text in texts() if word in text]
    assert found == []


def test_no_file_holds_a_conflict_marker() -> None:
    assert [str(path) for path, text in texts() if CONFLICT.search(text)] == []


def test_no_file_holds_a_private_key() -> None:
    key = re.compile("PRIVATE" + r"\+KEY\+[^+\s]+\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44,}")
    assert [str(path) for path, text in texts() if key.search(text)] == []


def test_every_module_says_what_it_owns() -> None:
    without = [
        str(path.relative_to(ROOT))
        for path in modules()
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert without == []


def test_no_module_is_longer_than_a_person_reads_at_once() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in modules()
        if (count := path.read_text("utf-8").count("\n")) > LINES_MAX
    }
    assert long == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = length
    assert long == {}


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt"])
def test_every_locked_requirement_is_exact_and_hashed(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text("utf-8")
    assert "://" not in text
    assert "--index-url" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) > 30
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==", entry), entry[:60]
        assert "--hash=sha256:" in entry, entry[:60]


def _normal(name: str) -> str:
    # A package's name as the index compares it: `ruamel.yaml` is `ruamel-yaml`.
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def names(lines: list[str]) -> set[str]:
        return {_normal(re.split(r"[\[<>=!~ ;]", line)[0]) for line in lines}

    def locked(name: str) -> set[str]:
        text = (ROOT / "requirements" / name).read_text("utf-8")
        return {_normal(match) for match in re.findall(r"^([A-Za-z0-9._-]+)", text, re.MULTILINE)}

    runtime = names(project["dependencies"])
    assert runtime <= locked("runtime.txt")
    assert runtime | names(project["optional-dependencies"]["dev"]) <= locked("dev.txt")


def test_the_compose_file_is_valid() -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "check_jsonschema",
            "--builtin-schema", "vendor.compose-spec", str(ROOT / "docker-compose.yml"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_service_has_a_pinned_image_a_health_check_and_loopback_ports() -> None:
    compose = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text("utf-8"))
    services = compose["services"]
    assert set(services) == {
        "postgres", "kafka", "connect", "registry", "objects", "catalog", "spark",
        "marquez", "marquez-web", "marquez-db",
    }  # fmt: skip
    tag = r"v?\d+\.\d+(\.\d+)*[A-Za-z0-9.-]*|RELEASE\.\d{4}-\d\d-\d\dT[0-9-]+Z"
    published: list[str] = []
    for name, service in services.items():
        assert re.fullmatch(rf"[a-z0-9/._-]+:({tag})", service["image"]), name
        assert "healthcheck" in service, name
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}, (name, needed)
        published += service.get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published), "a port is free once"


def test_no_password_of_the_compose_file_is_more_than_a_default() -> None:
    compose = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text("utf-8"))
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            if "PASSWORD" in key or "SECRET" in key:
                assert re.fullmatch(r"\$\{[A-Z_0-9]+:-[a-z-]+\}", value), (name, key)


def test_the_license_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_has_a_section_on_the_audit_format() -> None:
    assert "### Audit format" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize(
    "target",
    ["demo", "test", "test-stack", "soak", "bench", "lint", "types", "layers", "lock", "clean"],
)
def test_make_has_its_targets(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_ci_calls_both_test_targets() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    lines = script.read_text("utf-8").splitlines()
    assert lines.index("make test") < lines.index("make test-stack")
