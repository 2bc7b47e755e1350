"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odi_audit.errors import JavaMissing
from odi_audit.spark import java

ROOT = Path(__file__).parents[3]


def fake(folder: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java of that version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026' >&2\n")
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(
    ("text", "major"),
    [("17.0.15", 17), ("1.8.0_392", 8), ("21-ea", 21), ("25", 25), ("nonsense", None)],
)
def test_versions_of_every_age_are_read(text: str, major: int | None) -> None:
    assert java.parse_version(text) == major


def test_a_supported_java_is_taken_before_a_newer_one_named_first(tmp_path: Path) -> None:
    newer = fake(tmp_path / "a-25", "25.0.1")
    supported = fake(tmp_path / "b-17", "17.0.15")
    env = {"JAVA_HOME": str(newer), "PATH": ""}
    found = java.find(env, folders=[f"{tmp_path}/*"])
    assert (found.home, found.version, found.tested) == (supported, 17, True)


def test_java_home_wins_over_the_path_which_wins_over_folders(tmp_path: Path) -> None:
    home = fake(tmp_path / "home", "21.0.1")
    on_path = fake(tmp_path / "on-path", "17.0.1")
    fake(tmp_path / "jvm" / "x", "17.0.2")
    folders = [f"{tmp_path}/jvm/*"]
    path = str(on_path / "bin")
    assert java.find({"JAVA_HOME": str(home), "PATH": path}, folders=folders).home == home
    assert java.find({"PATH": path}, folders=folders).home == on_path
    assert java.find({}, folders=folders).home == tmp_path / "jvm" / "x"


def test_a_newer_java_is_taken_where_nothing_else_is(tmp_path: Path) -> None:
    home = fake(tmp_path / "25", "25")
    found = java.find({"JAVA_HOME": str(home)}, folders=[])
    assert (found.version, found.tested) == (25, False)


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = fake(tmp_path / "x", "17.0.9", release=False)
    assert java.find({"JAVA_HOME": str(home)}, folders=[]).version == 17


def test_only_an_old_java_is_an_error_that_names_it_and_what_to_install(tmp_path: Path) -> None:
    home = fake(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissing) as caught:
        java.find({"JAVA_HOME": str(home)}, folders=[])
    assert f"Java 11 in {home}" in caught.value.message
    for system in ("Debian/Ubuntu", "macOS", "Windows", "JAVA_HOME"):
        assert system in str(caught.value.hint)
    assert caught.value.exit_status == 3


def test_the_setting_is_taken_or_refused_but_never_passed_over(tmp_path: Path) -> None:
    good = fake(tmp_path / "good", "17")
    env = {"JAVA_HOME": str(good)}
    with pytest.raises(JavaMissing, match=r"spark\.java_home"):
        java.find(env, home=tmp_path / "missing", folders=[])
    with pytest.raises(JavaMissing, match=r"spark\.java_home"):
        java.find(env, home=fake(tmp_path / "old", "11"), folders=[])


def test_make_can_ask_for_java_with_nothing_installed_but_python() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "odi_audit.spark.java"],
        cwd=ROOT,
        env={"PATH": "/nowhere", "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 3}
    assert "Java" in done.stderr
    assert "Traceback" not in done.stderr
