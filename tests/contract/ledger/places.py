"""Where a ledger under test lies, and what an attacker with full access to it can do."""

from __future__ import annotations

import json
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from odi_audit.canonical import encode
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.ledger import SqlLedger, create_ledger, merkle, note, open_ledger
from odi_audit.ledger.projection import COLUMNS, project
from odi_audit.model.entries import Draft, Kind, entry_from_json
from odi_audit.model.tables import TableRef

ORDERS = TableRef(uuid=TableUuid("11111111-aaaa"), name="sales.orders")
ITEMS = TableRef(uuid=TableUuid("22222222-bbbb"), name="sales.items")
JOB = JobName("sales/orders_import")
OTHER_JOB = JobName("sales/items_import")
KEY = note.signing_key("example.org/lake", bytes(range(32)))
ROOT = Path(__file__).parents[3]


class StepClock:
    """A clock that goes one second forward each time it is asked, or where it is put."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


def batch(number: int) -> BatchId:
    return BatchId(f"b-{number:032x}")


def offsets(number: int, *, source: str = "kafka://c1") -> dict[str, Any]:
    """Return the offsets of the n-th batch of two Kafka partitions."""
    return {
        "kind": "kafka",
        "source": source,
        "ranges": {"orders-0": [number * 10, number * 10 + 10], "orders-1": [number, number + 1]},
        "identity": {"orders-0": "topic-id-1"},
    }


def land(
    ledger: SqlLedger, number: int, *, table: TableRef = ORDERS, job: JobName = JOB
) -> tuple[int, int]:
    """Record an intent and its landing; return both indexes."""
    intent = ledger.append(Draft(kind=Kind.INTENT, job=job, batch=batch(number)))[0]
    landed = ledger.append(
        Draft(
            kind=Kind.LANDED,
            job=job,
            run=intent.run,
            batch=batch(number),
            table=table,
            intent=intent.index,
            settles=True,
            facts={"offsets": offsets(number), "snapshot": str(2**62 + number), "note": "é ☃ \x01"},
        )
    )[0]
    return intent.index, landed.index


class Place(ABC):
    """A ledger's database, seen by its owner and by an attacker."""

    url: str
    engine: str

    def create(self, clock: Any = None) -> SqlLedger:
        return create_ledger(self.url, clock=clock or StepClock())

    def open(self, clock: Any = None, **options: Any) -> SqlLedger:
        return open_ledger(self.url, clock=clock or StepClock(), **options)

    @abstractmethod
    def copy(self) -> Place:
        """Return an independent copy."""

    @abstractmethod
    def attack(self, *statements: tuple[str, Sequence[Any]] | str) -> None:
        """Run SQL past every trigger."""

    @abstractmethod
    def look(self, sql: str) -> list[tuple[Any, ...]]:
        """Read past the product."""

    def bodies(self) -> list[bytes]:
        return [bytes(row[0]) for row in self.look("SELECT body FROM entries ORDER BY idx")]

    def rewrite(self, bodies: Sequence[bytes]) -> None:
        """Replace the whole ledger by a perfectly consistent one of other entries."""
        growth = merkle.Growth(0, [])
        statements: list[tuple[str, Sequence[Any]] | str] = [
            f"DELETE FROM {table}" for table in ("entries", "nodes", *COLUMNS)
        ]
        for index, body in enumerate(bodies):
            leaf = merkle.leaf_hash(body)
            statements.append(("INSERT INTO entries VALUES (?, ?, ?)", (index, body, leaf)))
            statements += [
                ("INSERT INTO nodes VALUES (?, ?, ?)", (node.level, node.index, node.hash))
                for node in growth.add(leaf)
            ]
            for table, rows in project(entry_from_json(json.loads(body))).items():
                marks = ", ".join("?" * len(COLUMNS[table]))
                statements += [
                    (f"INSERT INTO {table} ({', '.join(COLUMNS[table])}) VALUES ({marks})", row)
                    for row in rows
                ]
        self.attack(*statements)


def renumbered(bodies: Sequence[bytes]) -> list[bytes]:
    """Return entries with indexes that fit their places, as a careful forger would."""
    return [encode(json.loads(body) | {"index": index}) for index, body in enumerate(bodies)]


class SqlitePlace(Place):
    engine = "sqlite"

    def __init__(self, folder: Path, name: str = "ledger.db") -> None:
        self.path = folder / name
        self.url = f"sqlite:///{self.path}"
        self._copies = 0

    def copy(self) -> SqlitePlace:
        self._copies += 1
        made = SqlitePlace(self.path.parent, f"copy{self._copies}-{self.path.name}")
        with closing(sqlite3.connect(self.path)) as mine:
            mine.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(self.path, made.path)
        return made

    def attack(self, *statements: tuple[str, Sequence[Any]] | str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("BEGIN")
            triggers = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            for item in statements:
                sql, params = (item, ()) if isinstance(item, str) else item
                connection.execute(sql, params)
            for _, text in triggers:
                connection.execute(text)
            connection.execute("COMMIT")

    def look(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql).fetchall()
