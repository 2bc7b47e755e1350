"""Random records of random schemas, written and read by fastavro, must come out the same."""

from __future__ import annotations

import io
import random
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from jobs.formats.avro_rows import AvroDecoder
from jobs.formats.avro_schema import AvroType, members, promoted, read_schema, suggested

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "int", "logicalType": "nobody-knows-it"},
]


class Maker:
    """Makes schemas and values from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0

    def name(self) -> str:
        self.number += 1
        return f"n{self.number}"

    def schema(self, depth: int = 0, *, nothing: bool = True) -> Any:
        pick = self.random.random()
        if depth >= 3 or pick < 0.45:
            return self.random.choice((PLAIN if nothing else PLAIN[1:]) + LOGICAL)
        if pick < 0.5:
            return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "Cé"[:1]]}
        if pick < 0.55:
            return {"type": "fixed", "name": self.name(), "size": self.random.randrange(1, 20)}
        if pick < 0.57:
            return {"type": "fixed", "name": self.name(), "size": 9, "logicalType": "decimal",
                    "precision": 20, "scale": 3}  # fmt: skip
        if pick < 0.67:
            # fastavro would read items of no bytes for ever where a broken count says so.
            return {"type": "array", "items": self.schema(depth + 1, nothing=False)}
        if pick < 0.75:
            return {"type": "map", "values": self.schema(depth + 1)}
        if pick < 0.85:
            return self.record(depth + 1)
        if pick < 0.95:
            inner = self.random.choice([item for item in PLAIN + LOGICAL if item != "null"])
            return self.random.choice([["null", inner], [inner, "null"]])
        return self.random.choice(
            [["int", "string"], ["null", "long", "bytes", "boolean"], ["null", "float", "double"]]
        )

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [
            {"name": self.name(), "type": self.schema(depth)}
            for _ in range(self.random.randrange(1, 6))
        ]
        fields.append({"name": "last", "type": "long"})
        return {"type": "record", "name": self.name(), "fields": fields}

    def value(self, kind: AvroType) -> Any:  # noqa: C901, PLR0912 - one line for each type
        draw = self.random
        match kind.kind:
            case "null":
                return None
            case "boolean":
                return draw.random() < 0.5
            case "int" | "long":
                return self._number(kind)
            case "float" | "double":
                return draw.choice([0.0, -1.5, 2.0 ** draw.randrange(-100, 100)])
            case "string" if kind.logical == "uuid":
                return str(uuid.UUID(int=draw.getrandbits(128)))
            case "string":
                return draw.choice(["", "x", "Zürich – ☃", "long " * 30])
            case "bytes" | "fixed" if kind.logical == "decimal":
                digits = draw.randrange(1, kind.precision + 1)
                number = draw.randrange(-(10**digits) + 1, 10**digits)
                size = kind.size or (number.bit_length() // 8 + 1 + draw.choice([0, 0, 2]))
                return number.to_bytes(size, "big", signed=True)
            case "bytes":
                return draw.randbytes(draw.choice([0, 1, 7, 200]))
            case "fixed":
                return draw.randbytes(kind.size)
            case "enum":
                return draw.choice(kind.symbols)
            case "array":
                return [self.value(kind.items) for _ in range(draw.choice([0, 0, 1, 2, 9]))]
            case "map":
                return {f"k{key}": self.value(kind.items) for key in range(draw.choice([0, 1, 3]))}
            case "record":
                return {name: self.value(inner) for name, inner in kind.fields}
            case "optional":
                return None if draw.random() < 0.3 else self.value(kind.items)
            case _:
                branch = draw.randrange(len(kind.branches))
                return branch, self.value(kind.branches[branch])

    def _number(self, kind: AvroType) -> int:
        draw = self.random
        if kind.logical in {"time-millis", "time-micros"}:
            return draw.randrange(86_400_000)
        if kind.logical == "date":
            return draw.randrange(-100_000, 100_000)
        if kind.logical is not None and "timestamp" in kind.logical:
            return draw.randrange(-(10**12), 10**12)
        bits = draw.randrange(1, 32 if kind.kind == "int" else 64)
        return draw.choice([0, -1, 2**bits - 1, -(2**bits), draw.randrange(2**bits)])


def plain(document: Any) -> Any:
    """Return a schema without logical types: fastavro then takes and gives what is on the wire."""
    if isinstance(document, list):
        return [plain(item) for item in document]
    if isinstance(document, dict):
        return {key: plain(item) for key, item in document.items() if key != "logicalType"}
    return document


def on_the_wire(kind: AvroType, value: Any) -> Any:
    """Return a value as fastavro takes it: a union's branch by its name."""
    match kind.kind:
        case "record":
            return {name: on_the_wire(inner, value[name]) for name, inner in kind.fields}
        case "array":
            return [on_the_wire(kind.items, item) for item in value]
        case "map":
            return {key: on_the_wire(kind.items, item) for key, item in value.items()}
        case "optional":
            return None if value is None else on_the_wire(kind.items, value)
        case "union":
            branch, inner = value
            kind_name = kind.branches[branch].kind
            return None if kind_name == "null" else (kind_name, inner)
        case _:
            return value


def expected(kind: AvroType, value: Any) -> Any:  # noqa: C901, PLR0912 - one line for each type
    """Return a value as the column of its suggested type shows it."""
    if value is None:
        return None
    match kind.kind:
        case "record":
            return {
                name: expected(inner, value[name])
                for name, inner in kind.fields
                if suggested(inner) is not None
            }
        case "array":
            return [expected(kind.items, item) for item in value]
        case "map":
            return [(key, expected(kind.items, item)) for key, item in value.items()]
        case "optional":
            return expected(kind.items, value)
        case "union":
            branch, inner = value
            if branch == kind.null_at:
                return None
            if promoted(kind) is not None:
                return inner
            chosen = kind.branches[branch]
            return {name: inner if item is chosen else None for name, item in members(kind)}
    match kind.logical:
        case "decimal":
            number = int.from_bytes(value, "big", signed=True)
            return (
                Decimal(number).scaleb(-kind.scale)
                if number.bit_length() < 90
                else Decimal(f"{number}e-{kind.scale}")
            )
        case "date":
            return date(1970, 1, 1) + timedelta(days=value)
        case "time-millis":
            return clock(value * 1000)
        case "time-micros":
            return clock(value)
        case "timestamp-millis":
            return EPOCH + timedelta(milliseconds=value)
        case "timestamp-micros":
            return EPOCH + timedelta(microseconds=value)
        case "local-timestamp-micros":
            return EPOCH.replace(tzinfo=None) + timedelta(microseconds=value)
    return value


def clock(micros: int) -> str:
    made = (EPOCH + timedelta(microseconds=micros)).time()
    return time.isoformat(made, timespec="microseconds")


@pytest.mark.parametrize("seed", range(40))
def test_records_come_out_as_they_went_in(seed: int) -> None:
    maker = Maker(seed)
    document = maker.record()
    kind = read_schema(document)
    parsed = fastavro.parse_schema(plain(document))
    rows = [maker.value(kind) for _ in range(maker.random.choice([1, 2, 40]))]
    wire = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, on_the_wire(kind, row))
        wire.append(b"\0" + (7).to_bytes(4, "big") + out.getvalue())
    columns = [(name, suggested(inner)) for name, inner in kind.fields]
    schema = pa.schema([(name, made) for name, made in columns if made is not None])
    made = AvroDecoder(schema, lambda _: kind).decode(wire)
    assert made.rejects == ()
    assert (made.unknown, made.wider, made.schemas) == ({}, {}, (7,))
    made.rows.validate(full=True)
    assert made.rows.to_pylist() == [expected(kind, row) for row in rows]


@pytest.mark.parametrize("seed", range(25))
def test_a_broken_record_is_never_another_row_and_breaks_no_other(seed: int) -> None:
    maker = Maker(1000 + seed)
    document = maker.record()
    kind = read_schema(document)
    parsed = fastavro.parse_schema(plain(document))
    wire = []
    for _ in range(20):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, on_the_wire(kind, maker.value(kind)))
        wire.append(b"\0\0\0\0\7" + out.getvalue())
    columns = [(name, suggested(inner)) for name, inner in kind.fields]
    schema = pa.schema([(name, made) for name, made in columns if made is not None])
    whole = AvroDecoder(schema, lambda _: kind).decode(wire).rows.to_pylist()
    spoilt = list(wire)
    for place in range(0, 20, 3):
        spoilt[place] = _spoilt(maker.random, wire[place])
    made = AvroDecoder(schema, lambda _: kind).decode(spoilt)
    assert sorted([*made.places, *(item.place for item in made.rejects)]) == list(range(20))
    made.rows.validate(full=True)
    rows = dict(zip(made.places, made.rows.to_pylist(), strict=True))
    for place in range(20):
        if place % 3:
            assert rows[place] == whole[place]
            continue
        try:
            source = io.BytesIO(spoilt[place][5:])
            fastavro.schemaless_reader(source, parsed, None)
            sound = not source.read()
        except Exception:
            sound = False
        if not sound:
            assert place not in rows


def _spoilt(draw: random.Random, value: bytes) -> bytes:
    body = bytearray(value)
    match draw.randrange(3):
        case 0:
            del body[draw.randrange(5, len(body) + 1) :]
            body += b"" if len(body) < len(value) else b"\0"
        case 1:
            body += draw.randbytes(3)
        case _ if len(body) > 5:
            body[draw.randrange(5, len(body))] ^= 1 << draw.randrange(8)
    return bytes(body)
