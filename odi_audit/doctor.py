"""The doctor: looks at everything that a lake needs, and says what to do about each.

Owns the list of checks and their remedies. Must never change anything but the jar cache, and
must never stop at the first problem.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from odi_audit.clock import Clock, from_text
from odi_audit.errors import CatalogUnavailable, KeyProblem, OdiError, StorageError
from odi_audit.settings import catalog_file, catalog_spark_conf, jar_sets
from odi_audit.workspace import Workspace

DISK_FREE_BYTES_MIN = 1 << 30
"""Less than this and a compaction of a small table may not end."""
DISK_FREE_BYTES_GOOD = 5 << 30
CLOCK_SLACK = timedelta(seconds=5)
"""Between machines that share a lake."""
CLOCK_EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""Before this the product was not there: a machine that says so has lost its time."""
CATALOG_WAIT_S = 5.0


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was looked at, what was found, and what to do about it."""

    name: str
    state: State
    message: str
    remedy: str | None = None


def examine(lake: Workspace, *, clock: Clock, spark: bool) -> Iterator[Check]:
    """Yield one check after the other; an error of a part is that check's failure."""
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("python", _python),
        ("java", lambda: _java(lake)),
        ("jars", lambda: _jars(lake, fetch=spark)),
        ("disk", lambda: _disk(lake)),
        ("warehouse", lambda: _warehouse(lake)),
        ("catalog", lambda: _catalog(lake)),
        ("catalog cache", lambda: _catalog_cache(lake)),
        ("ledger", lambda: _ledger(lake)),
        ("key", lambda: _key(lake)),
        ("clock", lambda: _clock(lake, clock)),
    ]
    if spark:
        checks.append(("spark", lambda: _spark(lake)))
    for name, look in checks:
        try:
            yield look()
        except OdiError as error:
            yield Check(
                name=name,
                state=State.FAIL,
                message=f"{error.code}: {error.message}",
                remedy=error.hint,
            )


def _python() -> Check:
    found = f"Python {platform.python_version()} in {sys.prefix}"
    return Check(name="python", state=State.OK, message=found)


def _java(lake: Workspace) -> Check:
    from odi_audit.spark import java

    found = java.find(os.environ, home=lake.settings.spark.java_home)
    message = f"Java {found.version} in {found.home}"
    if found.tested:
        return Check(name="java", state=State.OK, message=message)
    return Check(
        name="java",
        state=State.WARN,
        message=f"{message} is newer than what Spark supports",
        remedy=java.INSTALL,
    )


def _jars(lake: Workspace, *, fetch: bool) -> Check:
    from odi_audit.spark import jars
    from odi_audit.spark.conf import jars_dir

    folder, sets = jars_dir(lake.settings), jar_sets(lake.settings)
    if fetch:
        jars.ensure(folder, sets)
    elif not any(path.exists() for path in jars.paths(folder, sets)):
        return Check(
            name="jars",
            state=State.WARN,
            message=f"none in {folder} yet: they are fetched when Spark first starts",
            remedy="odi-audit doctor",
        )
    wrong = jars.problems(folder, sets)
    if wrong:
        return Check(
            name="jars",
            state=State.FAIL,
            message="; ".join(wrong),
            remedy=f"remove what is wrong from {folder}, then: odi-audit doctor",
        )
    count = len(jars.needed(sets))
    return Check(
        name="jars", state=State.OK, message=f"{count} in {folder}, each with its pinned SHA-256"
    )


def _disk(lake: Workspace) -> Check:
    free = shutil.disk_usage(lake.root).free
    message = f"{free / (1 << 30):.1f} GiB free for {lake.root}"
    if free >= DISK_FREE_BYTES_GOOD:
        return Check(name="disk", state=State.OK, message=message)
    state = State.FAIL if free < DISK_FREE_BYTES_MIN else State.WARN
    return Check(name="disk", state=state, message=message, remedy="make room on that disk")


def _warehouse(lake: Workspace) -> Check:
    place = lake.settings.catalog.warehouse
    if place is None or "://" in place:
        return Check(name="warehouse", state=State.OK, message=f"{place or 'the catalog decides'}")
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
            file.write(b"can be written")
            file.flush()
    except OSError as error:
        raise StorageError(
            f"the warehouse {place} cannot be written: {error.strerror}",
            hint=f"make the folder {place}, writable for this account",
        ) from error
    return Check(name="warehouse", state=State.OK, message=f"{place} can be written")


def _catalog(lake: Workspace) -> Check:
    file = catalog_file(lake.settings)
    if file is not None:
        _try_write_lock(file)
    count = len(lake.catalog().tables())
    where = file or f"{lake.settings.catalog.type} server"
    return Check(name="catalog", state=State.OK, message=f"{where} answers, with {count} tables")


def _try_write_lock(file: Path) -> None:
    hint = f"restore {file} from a backup, or make the lake anew"
    if not file.is_file():
        raise CatalogUnavailable(f"the catalog {file} is gone", hint=hint)
    try:
        with closing(sqlite3.connect(file, timeout=CATALOG_WAIT_S)) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("SELECT count(*) FROM iceberg_tables").fetchone()
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        if "locked" in str(error) or "busy" in str(error):
            hint = "wait for the process that writes to it, or stop it"
        elif "readonly" in str(error):
            hint = f"make {file} and its folder writable for this account"
        raise CatalogUnavailable(f"the catalog {file} cannot be written: {error}", hint=hint) from (
            error
        )


def _catalog_cache(lake: Workspace) -> Check:
    key = f"spark.sql.catalog.{lake.settings.catalog.name}.cache-enabled"
    conf = catalog_spark_conf(lake.settings) | lake.settings.spark.conf
    if conf.get(key) == "false":
        return Check(name="catalog cache", state=State.OK, message=f"{key}=false")
    return Check(
        name="catalog cache",
        state=State.FAIL,
        message=f"{key} is {conf.get(key)!r}: Spark would read tables as they were",
        remedy="remove it from [catalog.properties] and [spark.conf] in odi.toml",
    )


def _ledger(lake: Workspace) -> Check:
    head = lake.ledger().head()
    return Check(
        name="ledger",
        state=State.OK,
        message=f"opens for writing, {head.size} entries, its tail agrees with its tree",
    )


def _key(lake: Workspace) -> Check:
    key = lake.signing_key()
    origin = lake.settings.ledger.origin
    if key.verifier.name != origin:
        raise KeyProblem(
            f"the signing key is of {key.verifier.name}, but ledger.origin is {origin}",
            hint="set ledger.origin to the key's name, or ledger.key_path to the right key",
        )
    where = "the environment" if lake.settings.ledger.key else str(lake.settings.ledger.key_path)
    return Check(name="key", state=State.OK, message=f"{origin}, from {where}, private")


def _clock(lake: Workspace, clock: Clock) -> Check:
    now = clock.now()
    seen = {"the start of this product": CLOCK_EARLIEST}
    ledger = lake.ledger(read_only=True)
    size = ledger.head().size
    if size:
        seen["the ledger's last entry"] = from_text(ledger.get(size - 1).time)
    file = catalog_file(lake.settings)
    if file is not None and file.exists():
        seen["the catalog's last change"] = datetime.fromtimestamp(file.stat().st_mtime, tz=UTC)
    for what, moment in seen.items():
        if now + CLOCK_SLACK < moment:
            return Check(
                name="clock",
                state=State.FAIL,
                message=f"it is {now.isoformat()} here, before {what} ({moment.isoformat()})",
                remedy="set this machine's clock: sudo timedatectl set-ntp true",
            )
    return Check(name="clock", state=State.OK, message=f"{now.isoformat(timespec='seconds')}")


def _spark(lake: Workspace) -> Check:
    from odi_audit.spark import listing

    session = lake.spark("odi-audit doctor")
    by_spark = set(listing.tables(session, lake.settings.catalog.name))
    by_reader = set(lake.catalog().tables())
    differ = sorted(str(name) for name in by_spark ^ by_reader)
    if differ:
        return Check(
            name="spark",
            state=State.FAIL,
            message=f"Spark and pyiceberg do not see the same tables: {', '.join(differ)}",
            remedy="compare odi-audit spark-conf with odi-audit config: both must name one catalog",
        )
    return Check(
        name="spark",
        state=State.OK,
        message=f"Spark {session.version} starts; it and pyiceberg see the same "
        f"{len(by_reader)} tables",
    )
