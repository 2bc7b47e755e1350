"""The jar cache: pinned, checked, atomic, shared, and silent once it is full."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odi_audit.errors import JarError
from odi_audit.spark import jars

BODY = b"the bytes of a jar"


def jar(body: bytes = BODY, name: str = "thing") -> jars.Jar:
    return jars.Jar(
        group="org.example",
        artifact=name,
        version="1.0",
        size_bytes=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        sets=("core",),
    )


@pytest.fixture(autouse=True)
def _two_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "pinned", lambda: (jar(), jar(b"other", "second")))


class Source:
    """Gives out bytes, and counts how often it is asked."""

    def __init__(self, bodies: dict[str, bytes] | None = None) -> None:
        self.bodies = bodies or {"thing": BODY, "second": b"other"}
        self.asked: list[str] = []

    def __call__(self, wanted: jars.Jar, scratch: Path) -> Path:
        self.asked.append(wanted.artifact)
        place = scratch / "deep" / wanted.file_name
        place.parent.mkdir(parents=True)
        place.write_bytes(self.bodies[wanted.artifact])
        return place


def never(wanted: jars.Jar, scratch: Path) -> Path:
    raise AssertionError(f"fetched {wanted} though it is there")


def test_jars_are_fetched_once_and_used_without_a_network_afterwards(tmp_path: Path) -> None:
    source = Source()
    paths = jars.ensure(tmp_path / "jars", ["core"], fetch=source)
    assert [path.read_bytes() for path in paths] == [BODY, b"other"]
    assert jars.ensure(tmp_path / "jars", ["core"], fetch=never) == paths
    assert source.asked == ["thing", "second"]


def test_nothing_of_a_fetch_is_left_beside_the_jars(tmp_path: Path) -> None:
    jars.ensure(tmp_path, ["core"], fetch=Source())
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "thing-1.0.jar",
        "thing-1.0.jar.checked",
        "second-1.0.jar",
        "second-1.0.jar.checked",
        ".lock",
    }


def test_a_wrong_digest_is_an_error_and_the_file_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(JarError) as caught:
        jars.ensure(tmp_path, ["core"], fetch=Source({"thing": b"evil", "second": b"other"}))
    assert caught.value.facts["expected"] == jar().sha256
    assert not list(tmp_path.glob("*.jar"))
    assert not list(tmp_path.glob(".fetch-*"))


@pytest.mark.parametrize("body", [b"the bytes of A jar", b"short", b""])
def test_a_jar_that_changed_in_the_cache_is_found_and_removed(tmp_path: Path, body: bytes) -> None:
    path = jars.ensure(tmp_path, ["core"], fetch=Source())[0]
    path.write_bytes(body)
    assert jars.problems(tmp_path, ["core"])
    with pytest.raises(JarError, match="not the pinned"):
        jars.ensure(tmp_path, ["core"], fetch=never)
    assert not path.exists()
    assert jars.ensure(tmp_path, ["core"], fetch=Source())[0].read_bytes() == BODY


def test_a_jar_put_there_by_hand_is_taken_after_its_digest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0.jar").write_bytes(BODY)
    (tmp_path / "second-1.0.jar").write_bytes(b"other")
    jars.ensure(tmp_path, ["core"], fetch=never)
    assert (tmp_path / "thing-1.0.jar.checked").exists()


def test_a_copy_elsewhere_on_the_machine_is_copied_and_not_moved(tmp_path: Path) -> None:
    mine = tmp_path / "m2"
    mine.mkdir()
    for name, body in (("thing", BODY), ("second", b"other")):
        (mine / f"{name}.jar").write_bytes(body)
    jars.ensure(
        tmp_path / "jars", ["core"], fetch=lambda wanted, _: mine / f"{wanted.artifact}.jar"
    )
    assert (mine / "thing.jar").read_bytes() == BODY


@pytest.mark.parametrize("kind", [OSError, RuntimeError, ValueError])
def test_a_failed_fetch_names_the_jar_and_leaves_nothing(
    tmp_path: Path, kind: Callable[[str], Exception]
) -> None:
    def fetch(wanted: jars.Jar, scratch: Path) -> Path:
        raise kind("no route")

    with pytest.raises(JarError, match=r"org\.example:thing:1\.0 could not be fetched.*no route"):
        jars.ensure(tmp_path, ["core"], fetch=fetch)
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


def test_two_at_once_fetch_each_jar_once(tmp_path: Path) -> None:
    source = Source()
    failures: list[Exception] = []
    start = threading.Barrier(4)

    def work() -> None:
        try:
            start.wait(timeout=10)
            jars.ensure(tmp_path, ["core"], fetch=source)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not failures
    assert sorted(source.asked) == ["second", "thing"]


def test_a_folder_that_cannot_be_made_says_which_variable_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JarError, match="cannot be used") as caught:
        jars.ensure(tmp_path / "file" / "jars", ["core"], fetch=never)
    assert "ODI_JARS_DIR" in str(caught.value.hint)


def test_an_unknown_set_is_an_error() -> None:
    with pytest.raises(JarError, match="kafkka"):
        jars.needed(["core", "kafkka"])
