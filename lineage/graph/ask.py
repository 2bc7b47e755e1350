"""What people ask a graph for: a table or a column by its name, at a moment, from the ledger alone.

Owns the reading of ``TABLE[.COLUMN]`` and of ``--as-of``. A table is found under every name that
the ledger ever gave it, the newest first. Must never take the nearest moment where the one that
was named is not on record.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lineage.graph.build import Point
from lineage.graph.lean import newest_first
from lineage.graph.model import Graph
from odi_audit.errors import EntryNotFound, TableNotFound
from odi_audit.ids import SnapshotId, TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.model.names import NAMING, comes_to, leaves
from odi_audit.model.tables import TableRef

NEAR_MATCHES_MAX = 3
PAGE = 1_000
_BATCH_PREFIX = "b-"
_NAMING = EntryFilter(kinds=NAMING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A table, and a column of it where one is named."""

    table: TableRef
    column: str | None


def find(ledger: Ledger, text: str, graph: Graph | None = None) -> Asked:
    """Return what ``TABLE[.COLUMN]`` names; the longest name that is a table's is the table.

    ``graph`` is that of the whole ledger, where it is at hand.

    Raises:
        TableNotFound: the ledger knows no such table; near matches are in the message.
    """
    parts = text.split(".")
    wanted = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    # Tables made here are on record by one entry each; only for others the whole ledger is read.
    known = _created(ledger) if graph is None else _drawn(graph)
    found = _first(known, wanted)
    if found is None and graph is None:
        known = _all(ledger)
        found = _first(known, wanted)
    if found is None:
        near = difflib.get_close_matches(text, sorted(known), NEAR_MATCHES_MAX, cutoff=0.7)
        tail = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TableNotFound(
            f"the ledger knows no table {text}{tail}", hint="odi-audit batches", near=near
        )
    name, uuid = found
    rest = text[len(name) + 1 :]
    return Asked(table=TableRef(uuid=uuid, name=name), column=rest or None)


def find_at(
    ledger: Ledger, text: str, as_of: str, moment: Callable[[str], str]
) -> tuple[Asked, Point]:
    """Return what ``TABLE[.COLUMN]`` named at a moment, and the moment.

    A name that was left, by a drop or a rename, and taken again is that of two tables: the newest
    of those that the moment can be of is meant.

    Raises:
        TableNotFound, EntryNotFound, AmbiguousBatch, UsageError: as :func:`find`, :func:`point`.
    """
    asked = find(ledger, text)
    earlier = _namesakes(ledger, asked.table)
    if not earlier:
        return asked, point(ledger, asked.table, as_of, moment)
    refused: EntryNotFound | None = None
    for table, since in earlier:
        try:
            at = point(ledger, table, as_of, moment)
        except EntryNotFound as error:
            refused = refused or error
            continue
        if at.until > since:
            return replace(asked, table=table), at
    if refused is not None:
        raise refused
    return asked, point(ledger, asked.table, as_of, moment)


def _namesakes(ledger: Ledger, table: TableRef) -> list[tuple[TableRef, int]]:
    """Return the tables of a name with where each begins, newest first; none if there is but one.

    Of a table that was not made here only what went before it is known.
    """
    began: dict[TableUuid, int] = {}
    ended: dict[TableUuid, int] = {}
    for entry in ledger.find(_NAMING):
        if entry.table is not None and comes_to(entry, table.name):
            began[entry.table.uuid] = entry.index
        elif entry.table is not None and leaves(entry, table.name):
            ended[entry.table.uuid] = entry.index
    others = {uuid for uuid in (*began, *ended) if uuid != table.uuid}
    if not others:
        return []
    began.setdefault(table.uuid, max(ended.get(uuid, 0) for uuid in others))
    pairs = [
        (TableRef(uuid=uuid, name=table.name), began.get(uuid, 0)) for uuid in (*others, table.uuid)
    ]
    return sorted(pairs, key=lambda pair: -pair[1])


def point(ledger: Ledger, table: TableRef, text: str, moment: Callable[[str], str]) -> Point:
    """Return the moment that ``text`` means: a batch, a snapshot id, or what ``moment`` reads.

    Raises:
        EntryNotFound: no such batch or snapshot of this table is on record.
        AmbiguousBatch: the batch's first characters fit more than one.
        UsageError: it is none of the forms.
    """
    asked = text.strip()
    if asked.startswith(_BATCH_PREFIX):
        batch = ledger.resolve_batch(asked)
        found = ledger.landed(batch, table.uuid)
        if found is None:
            raise EntryNotFound(
                f"batch {batch} has not landed on table {table.name}",
                hint=f"odi-audit batches --table {table.name}",
                batch=batch,
            )
        return Point(until=found.index + 1, time=found.time, asked=text)
    if asked.isascii() and asked.isdigit():
        return _at_snapshot(ledger, table, SnapshotId(asked))
    time = moment(asked)
    later = ledger.find(EntryFilter(since=time), limit=1)
    until = later[0].index if later else ledger.head().size
    while until < ledger.head().size and ledger.get(until).time == time:
        until += 1
    return Point(until=until, time=time, asked=text)


def near_columns(column: str, known: Iterable[str]) -> list[str]:
    """Return the names that are most like a column's."""
    folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(column.casefold(), list(folded), NEAR_MATCHES_MAX, cutoff=0.5)
    return [folded[name] for name in found]


def _at_snapshot(ledger: Ledger, table: TableRef, snapshot: SnapshotId) -> Point:
    kinds = (*EFFECTS, Kind.FOREIGN)
    before: int | None = None
    while True:
        where = EntryFilter(kinds=kinds, table=table.uuid, before=before)
        page = ledger.find(where, limit=PAGE, newest_first=True)
        for entry in page:
            if entry.facts.get("snapshot") == snapshot:
                return _point_of(ledger, entry, str(snapshot))
        if len(page) < PAGE:
            break
        before = page[-1].index
    raise EntryNotFound(
        f"the ledger has no snapshot {snapshot} of table {table.name}",
        hint=f"odi-audit history {table.name}",
        snapshot=snapshot,
        table=table.name,
    )


def _point_of(ledger: Ledger, entry: Entry, asked: str) -> Point:
    if entry.kind is not Kind.FOREIGN:
        return Point(until=entry.index + 1, time=entry.time, asked=asked)
    # Recorded when somebody noticed it: its place is where it was made.
    made = str(entry.facts.get("committed_at") or entry.time)
    later = ledger.find(EntryFilter(since=made), limit=1)
    return Point(
        until=later[0].index if later else ledger.head().size,
        time=made,
        asked=asked,
    )


def _created(ledger: Ledger) -> dict[str, TableUuid]:
    """Return the tables that were made here and not dropped since, by the names that they have."""
    found: dict[str, TableUuid] = {}
    names: dict[TableUuid, str] = {}
    for entry in ledger.find(_NAMING):
        if entry.table is None:
            continue
        uuid, left = entry.table.uuid, names.pop(entry.table.uuid, None)
        if left is not None and found.get(left) == uuid:
            # Another one may have that name by now, made past us: the whole ledger tells.
            del found[left]
        if comes_to(entry, entry.table.name):
            found[entry.table.name], names[uuid] = uuid, entry.table.name
    return found


def _drawn(graph: Graph) -> dict[str, TableUuid]:
    found: dict[str, TableUuid] = {}
    tables = [node for node in graph.nodes.values() if node.uuid is not None]
    for node in tables:
        earlier = () if node.about is None else node.about.earlier_names
        found |= {name: TableUuid(node.uuid or "") for name in earlier}
    # A name that a table has now is that table's, whoever had it before; of two, the newer one's.
    tables.sort(key=lambda node: -1 if node.share.last is None else node.share.last.entry)
    return found | {node.name: TableUuid(node.uuid or "") for node in tables}


def _all(ledger: Ledger) -> dict[str, TableUuid]:
    found: dict[str, TableUuid] = {}
    for entry in newest_first(ledger, ledger.head().size):
        if entry.table is not None and entry.table.uuid:
            found.setdefault(entry.table.name, TableUuid(entry.table.uuid))
    return found


def _first(known: dict[str, TableUuid], wanted: Iterable[str]) -> tuple[str, TableUuid] | None:
    return next(((name, known[name]) for name in wanted if name in known), None)
