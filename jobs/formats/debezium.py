"""Debezium's change events as rows: each a change to one row of the source's table.

Owns the step from envelopes to rows and control columns, many at once and column by column, and
the front end for JSON, with and without schemas. Tombstones, transaction markers and messages are
neither rows nor rejects: they change no row. Must never take a record down with another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jobs.formats.debezium_envelope import (
    CONTROL,
    NO_SOURCE,
    UNAVAILABLE_VALUE,
    Envelope,
    control_fields,
    micros_of,
    order_of,
)
from jobs.formats.debezium_json import ANY, Fields, JsonFront, inferred
from jobs.formats.debezium_moved import old_key
from jobs.formats.debezium_types import (
    BAD_VALUE,
    Maker,
    maker,
    widened,
)
from jobs.formats.debezium_wires import suggested
from jobs.formats.decoded import REASON_LENGTH_MAX, Decoded, Reject, Unreadable
from jobs.formats.types import is_bytes, is_list, is_text

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.json_rows import Times
    from jobs.tasks.records import Records

Row = Mapping[str, Any]
_WHOLE = frozenset({"c", "u", "r"})
"""Operations whose events hold the row as it is afterwards."""
_IN_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


class Front(Protocol):
    """Reads the bytes of a record: what it says, and the types of the fields of its rows."""

    def change(self, data: bytes) -> tuple[Envelope, Fields]:
        """Read a value: the envelope, and the types of ``after``."""
        ...

    def key(self, data: bytes) -> tuple[Row, Fields]:
        """Read a key."""
        ...


class DebeziumDecoder:
    """Decodes change events into the columns of a table, and control columns behind them.

    ``key`` names the columns that identify a row; empty: those of the event's own key. Of a delete
    only they are filled in, from the event's key, for the rest of ``before`` may be invented. With
    ``strict`` a field that the table lacks makes a reject; without, it is reported. Control columns
    in ``schema`` itself are passed over: they are there in any case.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        key: Sequence[str] = (),
        times: Times = "text",
        strict: bool = False,
        front: Front | None = None,
    ) -> None:
        import pyarrow as pa

        own = [item for item in schema if item.name not in CONTROL]
        self._schema: pa.Schema = pa.schema(own)
        self._key = tuple(key)
        self._times = times
        self._strict = strict
        self._front: Front = front or JsonFront()
        self._known = frozenset(self._schema.names)
        nullable = [item.with_nullable(nullable=True) for item in own]
        self.schema: pa.Schema = pa.schema([*nullable, *control_fields()])
        """What the decoded rows look like."""
        self._makers: dict[int, tuple[Fields, dict[str, Maker | None]]] = {}

    def decode(self, records: Records) -> Decoded:
        """Decode a chunk of records."""
        import pyarrow as pa

        rejects: list[Reject] = []
        groups = self._sorted_out(records, rejects)
        lacking = _Lacking()
        tables: list[pa.Table] = []
        places: list[int] = []
        for group in groups:
            table, kept = self._rows(group, records, rejects, lacking)
            tables.append(table)
            places += kept
        rows = pa.concat_tables(tables) if tables else self.schema.empty_table()
        if len(tables) > 1:
            by_place = sorted(range(len(places)), key=places.__getitem__)
            rows = rows.take(pa.array(by_place, pa.int64()))
            places.sort()
        return Decoded(
            rows=rows,
            places=tuple(places),
            rejects=tuple(sorted(rejects, key=lambda item: item.place)),
            unknown=lacking.unknown,
            wider={} if self._strict else lacking.wider,
        )

    # -- from records to changes -------------------------------------------------------------------

    def _sorted_out(self, records: Records, rejects: list[Reject]) -> Iterable[_Group]:
        """Read the envelopes; put together what has the same fields."""
        read, groups = self._front.change, dict[tuple[int, bool], _Group]()
        fits, group = (-1, False), _Group(fields=ANY, whole=False)
        for place, value in enumerate(records.values):
            if value is None:
                continue  # a tombstone: it follows a delete
            try:
                event, fields = read(value)
                op: Any = event.op
                whole = op in _WHOLE
                if whole:
                    row = event.after
                elif op == "d":
                    row, fields = self._deleted(records.keys[place])
                elif op == "t":
                    row, fields = {}, ANY
                elif op == "m" or (op is None and event.is_mark):
                    continue
                else:
                    row = None
                if type(row) is not dict:
                    raise Unreadable(_no_row(op))
                source = event.source
                if source is None:
                    raise Unreadable(NO_SOURCE)
                order = order_of(op, source, event.transaction)
                micros = micros_of(source)
            except (Unreadable, TypeError, KeyError, ValueError, AttributeError) as problem:
                rejects.append(_reject(place, problem))
                continue
            if fits != (id(fields), whole):
                fits = (id(fields), whole)
                group = groups.setdefault(fits, _Group(fields=fields, whole=whole))
            group.places.append(place)
            group.ops.append(op)
            group.orders.append(order)
            group.micros.append(micros)
            group.rows.append(row)
        return groups.values()

    def _deleted(self, key: bytes | None) -> tuple[Row, Fields]:
        """Return what is sure of a deleted row: its key."""
        if key is None:
            raise Unreadable(
                "a delete without a key: which of the values in before are true is not known"
            )
        row, fields = self._front.key(key)
        lacking = [name for name in self._key if row.get(name) is None]
        if lacking:
            raise Unreadable(f"a delete whose key has no {', '.join(lacking)}")
        return row, fields

    # -- from changes to columns -------------------------------------------------------------------

    def _rows(
        self, group: _Group, records: Records, rejects: list[Reject], lacking: _Lacking
    ) -> tuple[pa.Table, list[int]]:
        import pyarrow as pa

        bad: dict[int, str] = {}
        missing = _unknown(group, self._known)
        if missing and self._strict:
            for place, row in enumerate(group.rows):
                extra = next((name for name in row if name in missing), None)
                if extra is not None:
                    bad[place] = f"field {extra} is no column of the table"
        elif missing:
            for name, kind in missing.items():
                lacking.unknown.setdefault(name, kind)
        hidden: dict[int, list[str]] = {}
        makers = self._makers_for(group.fields)
        columns = [
            self._column(item, makers[item.name], group, _Notes(hidden, bad, lacking))
            for item in self._schema
        ]
        columns += [
            pa.array(group.ops, pa.string()),
            pa.array(group.orders, pa.string()),
            pa.array(group.micros, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array([hidden.get(place) for place in range(len(group.rows))], pa.list_(pa.string()))
            if hidden
            else pa.nulls(len(group.rows), pa.list_(pa.string())),
            self._old_keys(group, records, hidden),
        ]
        table = pa.table(columns, schema=self.schema)
        if not bad:
            return table, group.places
        rejects += [
            Reject(place=group.places[place], reason=reason[:REASON_LENGTH_MAX])
            for place, reason in bad.items()
        ]
        kept = [place for place in range(len(group.rows)) if place not in bad]
        return table.take(pa.array(kept, pa.int64())), [group.places[place] for place in kept]

    def _old_keys(
        self, group: _Group, records: Records, hidden: Mapping[int, list[str]]
    ) -> pa.Array:
        """Return what new rows that lack values were before their key was changed."""
        import pyarrow as pa

        moved = [place for place in hidden if group.ops[place] == "c"]
        if not moved:
            return pa.nulls(len(group.rows), pa.string())
        told: list[str | None] = [None] * len(group.rows)
        for place in moved:
            told[place] = old_key(
                records, group.places[place], self._front, self._schema, self._times
            )
        return pa.array(told, pa.string())

    def _column(self, item: pa.Field, make: Maker | None, group: _Group, notes: _Notes) -> pa.Array:
        import pyarrow as pa

        name = item.name
        if make is None:
            made = pa.nulls(len(group.rows), item.type)
        else:
            values: list[Any] = [row.get(name) for row in group.rows]
            if group.whole:
                _hide(values, item, notes.hidden)
            try:
                made = make(values)
            except BAD_VALUE:
                made = self._one_by_one(values, make, item, group, notes)
        if group.whole and made.null_count and (not item.nullable or name in self._key):
            for place in _nulls(made):
                if name not in notes.hidden.get(place, ()):
                    notes.bad.setdefault(place, f"column {name} is required, and is null")
        return made

    def _one_by_one(
        self, values: list[Any], make: Maker, item: pa.Field, group: _Group, notes: _Notes
    ) -> pa.Array:
        """Make a column of those values that fit, and say of the others why not."""
        kept, misfits = list(values), []
        for place, value in enumerate(values):
            if value is None:
                continue
            try:
                make([value])
            except BAD_VALUE as problem:
                notes.bad.setdefault(place, f"column {item.name}: {problem}")
                kept[place] = None
                misfits.append(value)
        wider = widened(item.type, group.fields.types.get(item.name), self._times, misfits)
        if wider is not None:
            notes.lacking.wider[item.name] = wider
        return make(kept)

    def _makers_for(self, fields: Fields) -> dict[str, Maker | None]:
        found = self._makers.get(id(fields))
        if found is not None:
            return found[1]
        made = {
            item.name: maker(item.type, fields.types.get(item.name), self._times)
            if fields is ANY or item.name in fields.types
            else None
            for item in self._schema
        }
        # The fields are kept too: an id is only good while its object lives.
        self._makers[id(fields)] = (fields, made)
        return made


def event_key(keys: Iterable[bytes | None], front: Front | None = None) -> tuple[str, ...]:
    """Return the columns by which events themselves tell rows apart; none where no key says so."""
    front = front or JsonFront()
    for key in keys:
        if key is None:
            continue
        try:
            row, _ = front.key(key)
        except Unreadable:
            continue
        return tuple(row)
    return ()


@dataclass(slots=True, kw_only=True)
class _Group:
    """Changes whose rows have the same fields; ``whole``: with all of them."""

    fields: Fields
    whole: bool
    places: list[int] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    micros: list[int | None] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class _Lacking:
    """What the table lacks for these records: columns, and room in them."""

    unknown: dict[str, pa.DataType] = field(default_factory=dict)
    wider: dict[str, pa.DataType] = field(default_factory=dict)


@dataclass(slots=True)
class _Notes:
    """What is noted of a group's changes, by their place in it."""

    hidden: dict[int, list[str]]
    bad: dict[int, str]
    lacking: _Lacking


def _unknown(group: _Group, known: frozenset[str]) -> dict[str, pa.DataType]:
    """Return the fields that the table lacks, with the types of their columns."""
    if group.fields is not ANY:
        return {
            name: suggested(wire) for name, wire in group.fields.types.items() if name not in known
        }
    names: dict[str, None] = {}
    for shape in dict.fromkeys(map(tuple, group.rows)):
        names |= dict.fromkeys(name for name in shape if name not in known)
    found = {name: inferred(row.get(name) for row in group.rows) for name in names}
    return {name: kind for name, kind in found.items() if kind is not None}


def _stand_ins(kind: pa.DataType) -> tuple[Any, ...]:
    """Return what Debezium puts in place of a value that it was not sent.

    Only values that the database may store apart are ever left out.
    """
    from pyarrow import types

    if is_text(kind) or types.is_decimal(kind):
        return (UNAVAILABLE_VALUE,)
    if is_bytes(kind):
        return (_IN_BASE64, UNAVAILABLE_VALUE.encode())
    if is_list(kind):
        return ([UNAVAILABLE_VALUE],)
    if types.is_map(kind):
        return ({UNAVAILABLE_VALUE: UNAVAILABLE_VALUE},)
    return ()


def _hide(values: list[Any], item: pa.Field, hidden: dict[int, list[str]]) -> None:
    """Note the values that were not sent; a text stays as it is, others become null."""
    stand_ins = _stand_ins(item.type)
    if not any(stand_in in values for stand_in in stand_ins):
        return
    for place, value in enumerate(values):
        if value in stand_ins:
            hidden.setdefault(place, []).append(item.name)
            values[place] = UNAVAILABLE_VALUE if is_text(item.type) else None


def _nulls(column: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    return [int(place) for place in pc.indices_nonzero(pc.is_null(column)).to_pylist()]


def _no_row(op: object) -> str:
    if op is None:
        return "the record is no change event of Debezium: it has no op"
    if op in _WHOLE:
        return f"the event ({op}) has no row in after"
    return f"operation {op!r} is not known"


def _reject(place: int, problem: Exception) -> Reject:
    reason = str(problem) if isinstance(problem, Unreadable) else f"the event is broken: {problem}"
    return Reject(place=place, reason=reason[:REASON_LENGTH_MAX])
