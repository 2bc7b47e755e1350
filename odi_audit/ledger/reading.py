"""Finding entries: every query of the ledger, by its indexes.

Owns the SQL that reads entries and projections. Must never scan the ledger where an index can
answer, and must never write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import cast

from odi_audit.errors import AmbiguousBatch, EntryNotFound, LedgerBroken
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.ledger.database import Session, SqlValue, octets
from odi_audit.ledger.port import EntryFilter, Position, StoredEntry
from odi_audit.ledger.projection import place_from_text
from odi_audit.model.entries import Entry, Kind, entry_from_json
from odi_audit.model.offsets import Place

CHUNK_ENTRIES = 1_000
"""Entries read at a time: memory stays bounded, and no lock is kept between chunks."""
_NAMED_MAX = 5
"""Batches named when a prefix fits several."""
_NEAR_DIGITS = 4
"""First digits that a batch must share with a mistyped one to be named."""
_PARTS_AT_ONCE = 400
"""Partitions asked for in one statement: below SQLite's limit of parameters."""
_BATCH_PREFIX = "b-"
_READ_JSON = json.JSONDecoder().raw_decode
_WHOLE = (
    " AND EXISTS (SELECT 1 FROM entry_index l JOIN settled s ON s.intent = l.intent"
    " JOIN entry_index e ON e.idx = s.idx WHERE l.idx = q.idx AND e.kind = 'landed')"
)
"""Only batches that have landed on every table of theirs: the last landing settles the intent."""


def decode(body: bytes, index: int, where: str = "here") -> Entry:
    """Read a stored entry.

    Raises:
        LedgerBroken: the bytes are no entry, or are the entry of another place.
    """
    try:
        # Not json.loads: it would guess the encoding anew for each entry.
        text = body.decode("utf-8", "surrogatepass")
        value, end = _READ_JSON(text)
        if end != len(text):
            raise ValueError("more bytes follow the entry")
        entry = entry_from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise LedgerBroken(
            f"entry {index} of the ledger {where} cannot be read: {problem}",
            hint="odi-audit ledger verify",
            index=index,
        ) from problem
    if entry.index != index:
        raise LedgerBroken(
            f"entry {index} of the ledger {where} says that it is entry {entry.index}",
            hint="odi-audit ledger verify",
            index=index,
        )
    return entry


def stored(session: Session, start: int, stop: int) -> Iterator[StoredEntry]:
    """Yield raw entries in order."""
    low = start
    while low < stop:
        high = min(low + CHUNK_ENTRIES, stop)
        for index, body, leaf in session.rows(
            "SELECT idx, body, leaf FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx",
            (low, high),
        ):
            yield StoredEntry(index=cast("int", index), body=octets(body), leaf=octets(leaf))
        low = high


def scan(session: Session, start: int, stop: int, where: str) -> Iterator[Entry]:
    """Yield entries in order."""
    for low in range(start, stop, CHUNK_ENTRIES):
        for index, body in session.rows(
            "SELECT idx, body FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx",
            (low, min(low + CHUNK_ENTRIES, stop)),
        ):
            yield decode(octets(body), cast("int", index), where)


def get(session: Session, index: int) -> Entry:
    """Return one entry. Raises EntryNotFound."""
    found = session.rows("SELECT idx, body FROM entries WHERE idx = ?", (index,))
    if not found:
        raise EntryNotFound(f"the ledger has no entry {index}", index=index)
    return _entries(found)[0]


def find(
    session: Session, where: EntryFilter, limit: int | None, newest_first: bool
) -> list[Entry]:
    """Return the entries that match, by index."""
    order = "ORDER BY idx DESC" if newest_first else "ORDER BY idx"
    narrowed, values = _narrowed(session, where)
    kinds = where.kinds
    if not kinds and limit is not None and (where.job or where.table):
        kinds = tuple(Kind)
    if kinds and limit is not None:
        # One walk along an index for each kind, each as short as the limit, however rare the kind.
        each = " AND ".join([*narrowed, "kind = ?"])
        chosen = " UNION ALL ".join(
            f"SELECT idx FROM (SELECT idx FROM entry_index WHERE {each} {order} LIMIT ?) a{at}"  # noqa: S608  marks
            for at in range(len(kinds))
        )
        params = [value for kind in kinds for value in (*values, kind.value, limit)]
    else:
        if kinds:
            narrowed.append(f"kind IN ({', '.join('?' * len(kinds))})")
        params = [*values, *(kind.value for kind in kinds)]
        chosen = "SELECT idx FROM entry_index"
        chosen += f" WHERE {' AND '.join(narrowed)}" if narrowed else ""
    if limit is not None:
        params.append(limit)
    return _entries(
        session.rows(
            f"SELECT e.idx, e.body FROM (SELECT idx FROM ({chosen}) k {order}"  # noqa: S608  marks
            f"{'' if limit is None else ' LIMIT ?'}) m"
            f" JOIN entries e ON e.idx = m.idx {order.replace('idx', 'e.idx')}",
            params,
        )
    )


def _narrowed(session: Session, where: EntryFilter) -> tuple[list[str], list[SqlValue]]:
    """Return the conditions of a filter, its kinds aside, and their parameters."""
    named = {"job": where.job, "batch": where.batch, "table_uuid": where.table}
    parts = [f"{column} = ?" for column, value in named.items() if value is not None]
    values: list[SqlValue] = [value for value in named.values() if value is not None]
    for bound, sign in ((where.since, ">="), (where.until, "<")):
        if bound is not None:
            # Times never go backwards, so a time is a place: looked up once, by its own index.
            parts.append(f"idx {sign} ?")
            values.append(_first_at(session, bound))
    for index, sign in ((where.first, ">="), (where.before, "<")):
        if index is not None:
            parts.append(f"idx {sign} ?")
            values.append(index)
    return parts, values


def batch_entries(session: Session, batch: BatchId) -> list[Entry]:
    """Return everything recorded about a batch, in order."""
    return find(session, EntryFilter(batch=batch), None, newest_first=False)


def resolve_batch(session: Session, prefix: str) -> BatchId:
    """Complete a batch id from its first characters."""
    text = prefix if prefix.startswith(_BATCH_PREFIX) else _BATCH_PREFIX + prefix
    low: SqlValue = text
    found: list[str] = []
    while len(found) <= _NAMED_MAX:
        # One step for each batch, not for each of its entries.
        sign = ">" if found else ">="
        row = session.rows(
            f"SELECT min(batch) FROM entry_index WHERE batch {sign} ?",  # noqa: S608  sign only
            (low,),
        )[0]
        if not isinstance(row[0], str) or not row[0].startswith(text):
            break
        found.append(row[0])
        low = row[0]
    if not found:
        near = _near_batches(session, text)
        tail = f"; did you mean {' or '.join(near)}?" if near else ""
        raise EntryNotFound(
            f"no batch of the ledger begins with {text!r}{tail}",
            hint="odi-audit batches",
            prefix=text,
            near=near,
        )
    if len(found) > 1 and text not in found:
        more = " and more" if len(found) > _NAMED_MAX else ""
        raise AmbiguousBatch(
            f"{text!r} fits more than one batch: {', '.join(found[:_NAMED_MAX])}{more}",
            hint="give more characters of the batch's id",
            batches=found[:_NAMED_MAX],
        )
    return BatchId(text if text in found else found[0])


def _near_batches(session: Session, text: str) -> list[str]:
    """Return the batches before and after a text in order, if they begin much like it."""
    before = session.rows("SELECT max(batch) FROM entry_index WHERE batch < ?", (text,))[0][0]
    after = session.rows("SELECT min(batch) FROM entry_index WHERE batch > ?", (text,))[0][0]
    start = text[: len(_BATCH_PREFIX) + _NEAR_DIGITS]
    near = [found for found in (before, after) if isinstance(found, str)]
    return [found for found in near if found.startswith(start) and len(start) < len(text)]


def landed(session: Session, batch: BatchId, table: TableUuid) -> Entry | None:
    """Return the one landed record of a batch on a table."""
    return _one(
        session,
        "SELECT e.idx, e.body FROM landed l JOIN entries e ON e.idx = l.idx"
        " WHERE l.batch = ? AND l.table_uuid = ?",
        (batch, table),
    )


def settled_by(session: Session, intent: int) -> Entry | None:
    """Return the entry that settled an intent."""
    return _one(
        session,
        "SELECT e.idx, e.body FROM settled s JOIN entries e ON e.idx = s.idx WHERE s.intent = ?",
        (intent,),
    )


def undone(session: Session, batch: BatchId, table: TableUuid) -> Entry | None:
    """Return the first entry that took a batch out of a table again, after it had landed."""
    return _one(
        session,
        "SELECT e.idx, e.body FROM undone u JOIN entries e ON e.idx = u.idx"
        " WHERE u.batch = ? AND u.table_uuid = ? AND EXISTS (SELECT 1 FROM landed l"
        " WHERE l.batch = u.batch AND l.table_uuid = u.table_uuid AND l.idx < u.idx)"
        " ORDER BY u.idx LIMIT 1",
        (batch, table),
    )


def unsettled(session: Session, kind: Kind, first: int, before: int) -> list[Entry]:
    """Return entries of a kind, from ``first`` to before ``before``, that nothing has settled."""
    return _entries(
        session.rows(
            "SELECT e.idx, e.body FROM entry_index i JOIN entries e ON e.idx = i.idx"
            " WHERE i.kind = ? AND i.idx >= ? AND i.idx < ?"
            " AND NOT EXISTS (SELECT 1 FROM settled s WHERE s.intent = i.idx) ORDER BY i.idx",
            (kind.value, first, before),
        )
    )


def open_attempts(session: Session, batch: BatchId) -> list[Entry]:
    """Return the unsettled intents of one batch, in order."""
    return _entries(
        session.rows(
            "SELECT e.idx, e.body FROM entry_index i JOIN entries e ON e.idx = i.idx"
            " WHERE i.batch = ? AND i.kind = ?"
            " AND NOT EXISTS (SELECT 1 FROM settled s WHERE s.intent = i.idx) ORDER BY i.idx",
            (batch, Kind.INTENT.value),
        )
    )


def positions(
    session: Session,
    job: JobName,
    table: TableUuid,
    source: str,
    partitions: Sequence[str] | None,
    *,
    whole_batches_only: bool = False,
) -> dict[str, Position]:
    """Return where the last landed batches, undone ones aside, left each partition."""
    key = (job, table, source)
    whole = _WHOLE if whole_batches_only else ""
    names = _partitions(session, key) if partitions is None else list(dict.fromkeys(partitions))
    found: dict[str, Position] = {}
    for at in range(0, len(names), _PARTS_AT_ONCE):
        some = names[at : at + _PARTS_AT_ONCE]
        listed = " UNION ALL ".join(["SELECT CAST(? AS TEXT) AS part"] * len(some))
        rows = session.rows(
            "SELECT p.part, p.start_place, p.end_place, p.identity, p.batch, p.idx FROM "  # noqa: S608  marks only
            "(SELECT n.part AS part, (SELECT q.idx FROM positions q WHERE q.job = ?"
            " AND q.table_uuid = ? AND q.source = ? AND q.part = n.part AND NOT EXISTS"
            " (SELECT 1 FROM undone u WHERE u.batch = q.batch AND u.table_uuid = q.table_uuid"
            f" AND u.idx > q.idx){whole} ORDER BY q.idx DESC LIMIT 1) AS idx"
            f" FROM ({listed}) n) w JOIN positions p ON p.idx = w.idx AND p.part = w.part",
            (*key, *some),
        )
        for part, start, end, identity, batch, index in rows:
            found[cast("str", part)] = Position(
                partition=cast("str", part),
                start=place_from_text(cast("str", start)),
                end=cast("Place", place_from_text(cast("str", end))),
                identity=cast("str | None", identity),
                batch=BatchId(cast("str", batch)),
                index=cast("int", index),
            )
    return {name: found[name] for name in sorted(found)}


def job_positions(
    session: Session, job: JobName, source: str, partitions: Sequence[str] | None
) -> dict[str, Position]:
    """Return where a job's last whole batches left each partition, whichever tables they fed.

    A batch is whole once every table of it has landed.
    """
    asked = None if partitions is None else set(partitions)
    last: dict[str, Position] = {}
    for table in _tables(session, job):
        found = positions(session, job, table, source, None, whole_batches_only=True)
        for part, position in found.items():
            newer = part not in last or last[part].index < position.index
            if newer and (asked is None or part in asked):
                last[part] = position
    return {part: last[part] for part in sorted(last)}


def job_sources(session: Session, job: JobName) -> list[str]:
    """Return the sources under which a job has positions."""
    found: set[str] = set()
    for table in _tables(session, job):
        last = ""
        while True:
            row = session.rows(
                "SELECT min(source) FROM positions WHERE job = ? AND table_uuid = ? AND source > ?",
                (job, table, last),
            )[0][0]
            if row is None:
                break
            last = cast("str", row)
            found.add(last)
    return sorted(found)


def jobs(session: Session) -> list[JobName]:
    """List every job by skipping from one to the next in the index."""
    rows = session.rows(
        "WITH RECURSIVE names(job) AS ("
        "SELECT min(job) FROM entry_index WHERE job IS NOT NULL UNION ALL "
        "SELECT (SELECT min(job) FROM entry_index WHERE job > names.job) "
        "FROM names WHERE names.job IS NOT NULL"
        ") SELECT job FROM names WHERE job IS NOT NULL",
        (),
    )
    return [JobName(cast("str", row[0])) for row in rows]


def _tables(session: Session, job: JobName) -> list[TableUuid]:
    """List the tables that a job has landed on by skipping from one to the next in the index."""
    rows = session.rows(
        "WITH RECURSIVE names(uuid) AS ("
        "SELECT min(table_uuid) FROM positions WHERE job = ? UNION ALL "
        "SELECT (SELECT min(table_uuid) FROM positions WHERE job = ? AND table_uuid > names.uuid) "
        "FROM names WHERE names.uuid IS NOT NULL"
        ") SELECT uuid FROM names WHERE uuid IS NOT NULL",
        (job, job),
    )
    return [TableUuid(cast("str", row[0])) for row in rows]


def _partitions(session: Session, key: tuple[str, str, str]) -> list[str]:
    """List the partitions of a source by skipping from one to the next in the index."""
    same = "job = ? AND table_uuid = ? AND source = ?"
    rows = session.rows(
        "WITH RECURSIVE names(part) AS ("  # noqa: S608  constants only
        f"SELECT min(part) FROM positions WHERE {same} UNION ALL "
        f"SELECT (SELECT min(part) FROM positions WHERE {same} AND part > names.part) "
        "FROM names WHERE names.part IS NOT NULL"
        ") SELECT part FROM names WHERE part IS NOT NULL",
        (*key, *key),
    )
    return [cast("str", row[0]) for row in rows]


def _first_at(session: Session, moment: str) -> int:
    """Return the index of the first entry at or after a moment; past the end if there is none."""
    found = session.rows(
        "SELECT idx FROM entry_index WHERE time >= ? ORDER BY time, idx LIMIT 1", (moment,)
    )
    if found:
        return cast("int", found[0][0])
    last = session.rows("SELECT max(idx) FROM entry_index")[0][0]
    return 0 if last is None else cast("int", last) + 1


def _one(session: Session, sql: str, params: Sequence[SqlValue]) -> Entry | None:
    found = session.rows(sql, params)
    return _entries(found)[0] if found else None


def _entries(rows: Sequence[tuple[SqlValue, ...]]) -> list[Entry]:
    return [decode(octets(body), cast("int", index)) for index, body in rows]
