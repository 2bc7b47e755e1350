"""The independent checker: reads tables with pyiceberg and the ledger with plain SQL, and judges.

It shares no code with the product: what the product believes of a lake has no say here. It knows
the promises (a batch is in a table once, every snapshot is stamped, every landing is recorded
once, nothing is left open, offsets have no gap and no overlap) and looks whether they were kept.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlparse

import psycopg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

STAMPS = {
    f"odi.{name}"
    for name in (
        "format", "job", "run-id", "batch-id", "operation", "source", "offsets", "intent",
        "principal", "code",
    )
}  # fmt: skip
ORDERED = {"kafka", "lsn", "watermark", "stream", "mapping"}
TAKEN_OUT = {"rollback", "undo"}
NAMING = {"table-created", "table-renamed"}
Entry: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a lake's catalog and ledger are; passwords are in the URLs."""

    catalog: str
    ledger: str
    warehouse: str

    @classmethod
    def embedded(cls, root: Path) -> Place:
        return cls(
            catalog=f"sqlite:///{root / 'catalog.db'}",
            ledger=str(root / "ledger.db"),
            warehouse=str(root / "warehouse"),
        )


@dataclass(slots=True, kw_only=True)
class Checker:
    """One look at a lake. ``problems`` holds a sentence for each broken promise."""

    place: Place
    problems: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def load(self, name: str) -> Table:
        catalog = SqlCatalog("lake", uri=self.place.catalog, warehouse=self.place.warehouse)
        return catalog.load_table(name)

    def uuid(self, name: str) -> str | None:
        """Return which table has a name; None where there is none."""
        try:
            return str(self.load(name).metadata.table_uuid)
        except NoSuchTableError:
            return None

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of main, sorted; as many columns as the tests' tables start with."""
        found = self.load(name).scan(selected_fields=("id", "part", "v")).to_arrow().to_pylist()
        return sorted((row["id"], row["part"], row["v"]) for row in found)

    def judge(self, expected: Mapping[str, Mapping[int, tuple[Any, ...]]]) -> list[str]:
        """Check the whole ledger, and these tables with the rows that they must have."""
        self.entries = read_ledger(self.place.ledger)
        self._ledger_is_whole()
        self._nothing_is_open()
        self._runs_are_told()
        self._landed_once()
        for name, rows in expected.items():
            self._table(name, [rows[key] for key in sorted(rows)])
        return self.problems

    # -- the ledger by itself ------------------------------------------------------------------

    def _ledger_is_whole(self) -> None:
        for number, entry in enumerate(self.entries):
            if entry["index"] != number:
                self._broken(f"entry {number} says that it is entry {entry['index']}")
            if entry["_leaf"] != hashlib.sha256(b"\0" + entry["_body"]).digest():
                self._broken(f"entry {number} is not the leaf that the tree was built of")

    def _nothing_is_open(self) -> None:
        settled = Counter(entry["intent"] for entry in self.entries if entry.get("settles"))
        for entry in self.entries:
            if entry["kind"] == "intent" and settled[entry["index"]] != 1:
                self._broken(f"intent {entry['index']} was settled {settled[entry['index']]} times")

    def _runs_are_told(self) -> None:
        """Every attempt is in a run that had begun, and every run has one end."""
        begun: dict[str, int] = {}
        ends = Counter(
            entry["intent"]
            for entry in self.entries
            if entry["kind"] == "run-ended" and entry.get("settles")
        )
        for entry in self.entries:
            if entry["kind"] == "run-started":
                begun[entry["run"]] = entry["index"]
            elif entry["kind"] == "intent" and entry["facts"]["parent_run"] not in begun:
                self._broken(f"intent {entry['index']} is in a run that had not begun")
        for run, index in begun.items():
            if ends[index] != 1:
                self._broken(f"run {run} was ended {ends[index]} times")

    def _landed_once(self) -> None:
        landed = Counter(
            (entry["batch"], entry["table"]["uuid"])
            for entry in self.entries
            if entry["kind"] == "landed"
        )
        for (batch, _), count in landed.items():
            if count != 1:
                self._broken(f"batch {batch} is recorded {count} times as landed on one table")

    # -- a table against the ledger ----------------------------------------------------------------

    def _table(self, name: str, expected: list[tuple[Any, ...]]) -> None:
        table = self.load(name)
        history = _history(table)
        uuid = str(table.metadata.table_uuid)
        found = self.rows(name)
        if found != expected:
            more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
            self._broken(f"{name}: rows too many {dict(more)}, rows missing {dict(less)}")
        self._stamped(name, history)
        self._recorded(name, uuid, table, history)
        self._offsets_continue(name, uuid, history)
        self._numbers_add_up(name, table, history, len(found))
        self._files_are_there(name, table)

    def _stamped(self, name: str, history: list[Snapshot]) -> None:
        batches: Counter[str] = Counter()
        for snapshot in history:
            summary = _summary(snapshot)
            lacking = STAMPS - summary.keys()
            if lacking:
                self._broken(f"{name}: snapshot {snapshot.snapshot_id} lacks {sorted(lacking)}")
                continue
            batches[summary["odi.batch-id"]] += 1
            intent = self.entries[int(summary["odi.intent"])]
            if intent["kind"] != "intent" or intent["batch"] != summary["odi.batch-id"]:
                self._broken(f"{name}: snapshot {snapshot.snapshot_id} names a wrong intent")
        for batch, count in batches.items():
            if count > 1:
                self._broken(f"{name}: batch {batch} is {count} times in main's history")

    def _recorded(self, name: str, uuid: str, table: Table, history: list[Snapshot]) -> None:
        landed = {e["facts"]["snapshot"]: e for e in self._of(uuid) if e["kind"] == "landed"}
        on_main = {str(snapshot.snapshot_id) for snapshot in history}
        gone = self._taken_out(uuid)
        for snapshot in history:
            entry = landed.get(str(snapshot.snapshot_id))
            if entry is None:
                self._broken(f"{name}: snapshot {snapshot.snapshot_id} has no landed entry")
            elif (
                entry["batch"] != _summary(snapshot).get("odi.batch-id")
                or entry["facts"]["sequence_number"] != snapshot.sequence_number
            ):
                self._broken(f"{name}: the landed entry of {snapshot.snapshot_id} is not its own")
        for identity, entry in landed.items():
            if identity not in on_main | gone:
                self._broken(f"{name}: {entry['batch']} is landed, but {identity} is not on main")
        created = [entry for entry in self._of(uuid) if entry["kind"] == "table-created"]
        if len(created) != 1:
            self._broken(f"{name}: {len(created)} entries say that it was created")
        named = [entry for entry in self._of(uuid) if entry["kind"] in NAMING]
        if named and named[-1]["table"]["name"] != name:
            self._broken(f"{name}: by the ledger its name is {named[-1]['table']['name']}")

    def _taken_out(self, uuid: str) -> set[str]:
        gone: set[str] = set()
        for entry in self._of(uuid):
            if entry["kind"] in TAKEN_OUT:
                gone |= {str(item) for item in entry["facts"]["removed_snapshots"]}
            elif entry["kind"] == "maintenance":
                gone |= {str(item) for item in entry["facts"].get("expired", [])}
        return gone

    def _offsets_continue(self, name: str, uuid: str, history: list[Snapshot]) -> None:
        on_main = {str(snapshot.snapshot_id) for snapshot in history}
        ends: dict[tuple[str, str, str], Any] = {}
        landed = [
            entry
            for entry in self._of(uuid)
            if entry["kind"] == "landed" and entry["facts"]["snapshot"] in on_main
        ]
        for entry in sorted(landed, key=lambda item: int(item["facts"]["sequence_number"])):
            offsets = entry["facts"]["offsets"]
            if offsets["kind"] not in ORDERED or entry["facts"]["generation"]:
                continue
            for part, (start, end) in offsets["ranges"].items():
                key = (entry["job"], offsets["source"], part)
                if key in ends and ends[key] != start:
                    self._broken(f"{name}: {key} went from {ends[key]} to {start}")
                ends[key] = end

    def _numbers_add_up(self, name: str, table: Table, history: list[Snapshot], count: int) -> None:
        if not history:
            return
        newest = _summary(history[0])
        live = int(newest["total-records"]) - int(newest.get("total-position-deletes", 0))
        if live != count:
            self._broken(f"{name}: the newest summary speaks of {live} rows, {count} are there")
        ranges = sorted(
            (snapshot.first_row_id, snapshot.first_row_id + (snapshot.added_rows or 0))
            for snapshot in history
            if snapshot.first_row_id is not None
        )
        for (_, end), (start, _) in itertools.pairwise(ranges):
            if start < end:
                self._broken(f"{name}: two snapshots gave out the row id {start}")

    def _files_are_there(self, name: str, table: Table) -> None:
        """Every file that any kept snapshot needs, branches included."""
        for snapshot in table.metadata.snapshots:
            paths = [snapshot.manifest_list]
            for manifest in snapshot.manifests(table.io):
                paths.append(manifest.manifest_path)
                paths += [
                    entry.data_file.file_path
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                ]
            for path in paths:
                if not Path(unquote(urlparse(path).path)).exists():
                    self._broken(f"{name}: snapshot {snapshot.snapshot_id} needs {path}")

    def _of(self, uuid: str) -> list[Entry]:
        return [e for e in self.entries if e.get("table", {}).get("uuid") == uuid]

    def _broken(self, what: str) -> None:
        self.problems.append(what)


def judge(place: Place, expected: Mapping[str, Mapping[int, tuple[Any, ...]]]) -> list[str]:
    """Return every broken promise of a lake, given the rows that its tables must have."""
    return Checker(place=place).judge(expected)


def read_ledger(where: str) -> list[Entry]:
    """Return every entry as it is stored, in the order of the index column."""
    query = "SELECT body, leaf FROM {} ORDER BY idx"
    stored: list[tuple[Any, ...]]
    if where.startswith("postgresql:"):
        with psycopg.connect(where) as server:
            stored = server.execute(query.format("odi_ledger.entries")).fetchall()
    else:
        with closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as file:
            stored = file.execute(query.format("entries")).fetchall()
    return [
        {**json.loads(bytes(body)), "_body": bytes(body), "_leaf": bytes(leaf)}
        for body, leaf in stored
    ]


def kinds(entries: list[Entry], batch: str) -> list[str]:
    """Return the kinds of what was recorded of a batch, in order."""
    return [entry["kind"] for entry in entries if entry.get("batch") == batch]


def by_kind(entries: list[Entry]) -> Mapping[str, list[Entry]]:
    """Group entries by kind."""
    grouped: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        grouped[entry["kind"]].append(entry)
    return grouped


def _history(table: Table) -> list[Snapshot]:
    """Main's snapshots, newest first."""
    chain = []
    current = table.current_snapshot()
    while current is not None:
        chain.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else table.snapshot_by_id(parent)
    return chain


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return dict(snapshot.summary.additional_properties) if snapshot.summary else {}
