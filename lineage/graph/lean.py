"""Entries as the graph reads them: newest first, and no more of each than the graph needs.

Owns the quick reading. A graph looks at the whole ledger, and most of an entry (schemas, counts,
the staged document) says nothing to it: only the fields below are made into values, in about a
tenth of the time. Must never drop an entry for a fact of an unexpected form: that fact is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from odi_audit.ledger.port import Ledger, StoredEntry
from odi_audit.ledger.reading import decode

CHUNK = 2_000
"""Entries held at a time."""
ABSENT = msgspec.Raw()
"""A part that is kept unread, and is not there."""
Progress: TypeAlias = Callable[[int, int], None]


class LeanOffsets(msgspec.Struct, frozen=True, gc=False):
    """Which part of a source; places stay unread."""

    kind: str = ""
    source: str = ""
    ranges: dict[str, msgspec.Raw] = {}


class LeanOperation(msgspec.Struct, frozen=True, gc=False):
    """One operation of an intent."""

    op: str = ""
    table: str = ""
    table_uuid: str = ""
    arguments: msgspec.Raw = ABSENT
    column_lineage: msgspec.Raw = ABSENT
    column_lineage_at: int | None = None
    column_lineage_read: list[str | None] = []


class LeanTable(msgspec.Struct, frozen=True, gc=False):
    """What an intent says of a table that is there already."""

    table_uuid: str = ""
    location: str | None = None


class LeanRef(msgspec.Struct, frozen=True, gc=False):
    """A table's identity and name."""

    uuid: str = ""
    name: str = ""


class LeanFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts of any kind of entry, those that the graph rests on."""

    operations: list[LeanOperation] = []
    offsets: msgspec.Raw = ABSENT
    tables: msgspec.Raw = ABSENT
    parent_run: str | None = None
    stream: msgspec.Raw = ABSENT
    principal: str | None = None
    operation: str | None = None
    snapshot: str | None = None
    to: str | None = None
    counts: dict[str, int] = {}
    location: str | None = None
    undone: list[str] = []
    removed_snapshots: list[str] = []
    consumer: str | None = None
    began: int | None = None
    to_snapshot: str | None = None
    rows: int | None = None
    columns: list[str] | None = None
    engine: msgspec.Raw = ABSENT
    committed_at: str | None = None


class Lean(msgspec.Struct, frozen=True, gc=False):
    """One entry."""

    index: int
    time: str
    kind: str
    facts: LeanFacts
    job: str | None = None
    run: str | None = None
    batch: str | None = None
    table: LeanRef | None = None
    intent: int | None = None
    settles: bool = False


_READ = msgspec.json.Decoder(Lean)
_FACTS = msgspec.json.Decoder(LeanFacts)
_OFFSETS = msgspec.json.Decoder(LeanOffsets)
_TABLES = msgspec.json.Decoder(list[LeanTable])


def newest_first(ledger: Ledger, until: int, progress: Progress | None = None) -> Iterator[Lean]:
    """Yield the entries before index ``until``, the newest first, in bounded memory.

    Raises:
        LedgerBroken: an entry cannot be read, or stands at another place than it says.
    """
    for high in range(until, 0, -CHUNK):
        low = max(0, high - CHUNK)
        for stored in reversed(list(ledger.stored(low, high))):
            yield lean(stored)
        if progress is not None:
            progress(until - low, until)


def lean(stored: StoredEntry) -> Lean:
    """Return one entry.

    Raises:
        LedgerBroken: it cannot be read, or stands at another place than it says.
    """
    try:
        made = _READ.decode(stored.body)
    except msgspec.MsgspecError:
        made = _lenient(stored)
    if made.index != stored.index:
        decode(stored.body, stored.index)
    return made


def offsets_of(entry: Lean) -> LeanOffsets | None:
    """Return which part of a source an entry names; read when asked for, as few entries are."""
    try:
        return _OFFSETS.decode(entry.facts.offsets) if is_there(entry.facts.offsets) else None
    except msgspec.MsgspecError:
        return None


def tables_of(entry: Lean) -> list[LeanTable]:
    """Return what an intent says of the tables that were there; read when asked for."""
    try:
        return _TABLES.decode(entry.facts.tables) if is_there(entry.facts.tables) else []
    except msgspec.MsgspecError:
        return []


def is_there(part: msgspec.Raw) -> bool:
    """Say whether an unread part is in the entry, and more than ``null``."""
    return part is not ABSENT and bytes(part) not in {b"", b"null"}


def _lenient(stored: StoredEntry) -> Lean:
    """Read an entry of which a fact has another form than ours, without that fact."""
    body = dict(decode(stored.body, stored.index).to_json())
    facts = body.pop("facts")
    assert isinstance(facts, dict)
    kept = {}
    for name in LeanFacts.__struct_fields__:
        if name in facts:
            try:
                _FACTS.decode(msgspec.json.encode({name: facts[name]}))
            except msgspec.ValidationError:
                continue
            kept[name] = facts[name]
    # Raw parts are kept as bytes, so the entry is written and read once more.
    return _READ.decode(msgspec.json.encode({**body, "facts": kept}))
