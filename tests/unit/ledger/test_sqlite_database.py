"""What only a ledger in a file can meet: modes, full disks, removed files, odd URLs."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from odi_audit.clock import SystemClock
from odi_audit.errors import (
    ConfigError,
    LedgerMissing,
    LedgerUnavailable,
    OdiError,
)
from odi_audit.ledger import create_ledger, open_ledger
from odi_audit.ledger.verify import verify
from odi_audit.model.entries import Draft, Kind

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can enter, as pytest's own cannot be."""
    made = Path(tempfile.mkdtemp(prefix="odi-ledger-"))
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/ledger.db"


def in_child(work: Callable[[], None], *, user: int | None = None) -> str:
    """Run in a forked process, as another user if told; return the error's code or ``ok``."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "ok"
        try:
            if user is not None and os.geteuid() == 0:
                os.setgid(user)
                os.setuid(user)
            work()
        except OdiError as problem:
            answer = problem.code
        except BaseException as problem:
            answer = repr(problem)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as stream:
        return stream.read()


def made(folder: Path, entries: int = 3) -> None:
    with closing(create_ledger(url(folder), clock=SystemClock())) as ledger:
        ledger.append(*[Draft(kind=Kind.READ)] * entries)


def test_commits_are_on_the_disk_before_they_are_answered_for(folder: Path) -> None:
    with closing(create_ledger(url(folder), clock=SystemClock())) as ledger:
        assert ledger.database.rows("PRAGMA journal_mode") == [("wal",)]
        assert ledger.database.rows("PRAGMA synchronous") == [(2,)], "FULL"


def test_a_file_that_this_user_cannot_write_is_read_only(folder: Path) -> None:
    made(folder)
    (folder / "ledger.db").chmod(0o444)

    def write() -> None:
        open_ledger(url(folder), clock=SystemClock()).append(Draft(kind=Kind.READ))

    assert in_child(write, user=NOBODY) == "ODI-L02"


def test_a_copy_on_a_disk_that_cannot_be_written_can_be_read(folder: Path) -> None:
    made(folder)
    (folder / "ledger.db").chmod(0o444)
    folder.chmod(0o555)

    def read() -> None:
        ledger = open_ledger(url(folder), clock=SystemClock(), read_only=True)
        assert ledger.head().size == 3
        assert verify(ledger, verifiers=[]).findings == ()

    assert in_child(read, user=NOBODY) == "ok"


def test_a_full_disk_loses_nothing_and_says_so(folder: Path) -> None:
    made(folder)
    limit = (folder / "ledger.db").stat().st_size + 200_000

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        ledger = open_ledger(url(folder), clock=SystemClock())
        while True:
            ledger.append(Draft(kind=Kind.READ, facts={"x": "y" * 20_000}))

    assert in_child(fill) == "ODI-L07"
    with closing(open_ledger(url(folder), clock=SystemClock())) as ledger:
        assert ledger.head().size > 3, "what was answered for is there"
        assert verify(ledger, verifiers=[]).findings == ()
        ledger.append(Draft(kind=Kind.READ))


def test_sqlite_saying_full_is_told_as_no_space(folder: Path) -> None:
    with closing(create_ledger(url(folder), clock=SystemClock())) as ledger:
        pages = ledger.database.rows("PRAGMA page_count")[0][0]
        ledger.database.run(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerUnavailable, match="no space"):
            ledger.append(Draft(kind=Kind.READ, facts={"x": "y" * 100_000}))
        ledger.database.run("PRAGMA max_page_count = 100000")
        ledger.append(Draft(kind=Kind.READ))


def test_a_ledger_removed_or_replaced_while_open_is_not_written_into_the_void(
    folder: Path,
) -> None:
    with closing(create_ledger(url(folder), clock=SystemClock())) as ledger:
        ledger.append(Draft(kind=Kind.READ))
        (folder / "ledger.db").rename(folder / "away.db")
        with pytest.raises(LedgerMissing, match="removed or replaced"):
            ledger.append(Draft(kind=Kind.READ))
        (folder / "ledger.db").write_bytes(b"")
        with pytest.raises(LedgerMissing):
            ledger.append(Draft(kind=Kind.READ))


def test_other_files_and_folders_are_not_ledgers(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "ledger.db")) as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(LedgerMissing, match="holds no ledger"):
        open_ledger(url(folder), clock=SystemClock())
    (folder / "dir.db").mkdir()
    for name in ("dir.db", "no/such.db"):
        with pytest.raises(LedgerMissing):
            create_ledger(f"sqlite:///{folder}/{name}", clock=SystemClock())


def test_an_interrupted_making_is_finished_by_the_next(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "ledger.db")) as started:
        started.execute("PRAGMA journal_mode = WAL")
    with closing(create_ledger(url(folder), clock=SystemClock())) as ledger:
        ledger.append(Draft(kind=Kind.READ))


@pytest.mark.parametrize("slashes", ["sqlite://", "sqlite:///", "sqlite:////"])
def test_a_path_may_be_written_with_any_number_of_slashes(folder: Path, slashes: str) -> None:
    path = str(folder / "ledger.db").lstrip("/")
    text = f"{slashes}/{path}".replace("sqlite:///////", "sqlite:////")
    create_ledger(text, clock=SystemClock()).close()
    assert (folder / "ledger.db").is_file()


@pytest.mark.parametrize(
    "text", ["", "ledger.db", "sqlite:ledger.db", "mysql://u:s3cret@h/d", "sqlite://rel.db"]
)
def test_an_unknown_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_ledger(text, clock=SystemClock())
    assert "s3cret" not in str(caught.value)


def test_dead_owners_files_are_swept_after_a_day(folder: Path) -> None:
    with closing(create_ledger(url(folder), clock=SystemClock())) as ledger:
        ledger.hold("alive")
        live = folder / "ledger.db.live"
        (live / "dead").touch()
        for name in ("dead", "alive"):
            os.utime(live / name, (0, 0))
        (live / "young").touch()
        ledger.hold("second")
        assert sorted(path.name for path in live.iterdir()) == ["alive", "second", "young"]
        assert ledger.is_alive("alive")
        assert not ledger.is_alive("young")


def test_an_owner_of_any_name_can_be_held(folder: Path) -> None:
    with closing(create_ledger(url(folder), clock=SystemClock())) as ledger:
        for owner in ("", ".", "..", "a/../b", "x" * 1000, "é☃"):
            assert not ledger.is_alive(owner)
            ledger.hold(owner)
            assert ledger.is_alive(owner)
    assert not list((folder / "ledger.db.live").iterdir())
