"""Avro's schemas: what a field of a record is, as its writer said it.

Owns the reading of a schema document into a tree of types without names to look up, and the column
that each type becomes where a table is made or gets a column. Must never look at a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from jobs.formats.decoded import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

Document: TypeAlias = "str | list[Any] | dict[str, Any]"
"""A schema, or a part of one, as JSON."""
TYPES_MAX = 20_000
"""Types in one schema, each counted as often as it is used."""
DIGITS_MAX = 38
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
INSTANTS = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}
LOCALS = {f"local-{name}": unit for name, unit in INSTANTS.items()}
TIMES = {"time-millis": "ms", "time-micros": "us"}
_ON: Mapping[str, frozenset[str]] = {
    "decimal": frozenset({"bytes", "fixed"}),
    "uuid": frozenset({"string", "fixed"}),
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    **dict.fromkeys(["time-micros", *INSTANTS, *LOCALS], frozenset({"long"})),
}
"""Which logical type means something on which type; others are ignored, as the format says."""
NAMED = frozenset({"record", "error", "enum", "fixed"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AvroType:
    """A type, with everything that it refers to inside.

    ``optional`` is a union of null and one other, which stands in ``items``; ``union`` is any other
    union. ``null_at`` is the place of null in either, -1 where it has none. ``connect`` is what
    Kafka Connect's converter noted.
    """

    kind: str
    name: str | None = None
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[tuple[str, AvroType], ...] = ()
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    null_at: int = -1
    connect: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name it as messages do."""
        if self.kind == "optional":
            return str(self.items)
        return self.kind if self.logical is None else f"{self.kind} ({self.logical})"


def read_schema(document: Document, references: Sequence[Document] = ()) -> AvroType:
    """Read a schema; ``references`` are those whose names it uses, each after what it needs itself.

    Raises:
        Unreadable: it is no Avro schema, or one that no table can hold.
    """
    names: dict[str, tuple[dict[str, Any], str]] = {}
    for other in [*references, document]:
        _collect(other, "", names)
    try:
        return _Reader(names).read(document, "", ())
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise Unreadable(f"the schema is not one of Avro: {problem!r}") from problem


def natural(kind: AvroType) -> pa.DataType:
    """Return the Arrow type in which every value of a type is read, unchanged."""
    import pyarrow as pa

    if kind.kind == "optional":
        assert kind.items is not None
        return natural(kind.items)
    if kind.logical is not None:
        return _natural_logical(kind)
    if kind.kind == "record":
        return pa.struct([(name, natural(inner)) for name, inner in kind.fields])
    if kind.kind == "array":
        assert kind.items is not None
        return pa.list_(natural(kind.items))
    if kind.kind == "map":
        assert kind.items is not None
        return pa.map_(pa.string(), natural(kind.items))
    if kind.kind == "union":
        return promoted(kind) or pa.struct(
            [(name, natural(inner)) for name, inner in members(kind)]
        )
    return {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "enum": pa.string(),
    }.get(kind.kind, pa.binary())


def suggested(kind: AvroType) -> pa.DataType | None:
    """Return the type of a column that holds every value of a type; None for null alone.

    Times of day become texts and nanoseconds numbers: Spark has no types for them.
    """
    import pyarrow as pa

    if kind.kind == "optional":
        assert kind.items is not None
        return suggested(kind.items)
    if kind.kind == "null":
        return None
    if kind.logical == "decimal":
        return pa.decimal128(min(kind.precision, DIGITS_MAX), kind.scale)
    if kind.logical in TIMES:
        return pa.string()
    if kind.logical in {"timestamp-nanos", "local-timestamp-nanos"}:
        return pa.int64()
    if kind.logical in INSTANTS or kind.logical in LOCALS:
        return pa.timestamp("us", tz="UTC" if kind.logical in INSTANTS else None)
    if kind.kind in {"array", "map"}:
        assert kind.items is not None
        inner = suggested(kind.items) or pa.string()
        return pa.list_(inner) if kind.kind == "array" else pa.map_(pa.string(), inner)
    if kind.kind == "record" or (kind.kind == "union" and promoted(kind) is None):
        parts = kind.fields if kind.kind == "record" else members(kind)
        found = [(name, suggested(inner)) for name, inner in parts]
        return pa.struct([(name, made) for name, made in found if made is not None])
    return natural(kind)


def members(union: AvroType) -> tuple[tuple[str, AvroType], ...]:
    """Return the branches of a union as fields of a struct, of which one is set."""
    kept = [inner for place, inner in enumerate(union.branches) if place != union.null_at]
    return tuple((f"member{number}", inner) for number, inner in enumerate(kept))


def promoted(union: AvroType) -> pa.DataType | None:
    """Return the one type that holds every branch of a union; None where there is none."""
    import pyarrow as pa

    kinds = {inner.kind for _, inner in members(union)}
    if any(inner.logical for _, inner in members(union)):
        return None
    if kinds <= {"int", "long"}:
        return pa.int64()
    return pa.float64() if kinds <= {"float", "double"} else None


def _natural_logical(kind: AvroType) -> pa.DataType:
    import pyarrow as pa

    if kind.logical == "decimal":
        return pa.decimal128(DIGITS_MAX, kind.scale)
    if kind.logical == "date":
        return pa.date32()
    if kind.logical in TIMES:
        return pa.time32("ms") if TIMES[kind.logical] == "ms" else pa.time64("us")
    if kind.logical in INSTANTS:
        return pa.timestamp(INSTANTS[kind.logical], tz="UTC")
    if kind.logical in LOCALS:
        return pa.timestamp(LOCALS[kind.logical])
    return pa.string()


class _Reader:
    """Reads one schema: follows names, and stops at what would never end."""

    def __init__(self, names: Mapping[str, tuple[dict[str, Any], str]]) -> None:
        self._names = names
        self._left = TYPES_MAX

    def read(self, given: Document, space: str, inside: tuple[str, ...]) -> AvroType:
        self._left -= 1
        if self._left < 0:
            raise Unreadable(f"the schema has more than {TYPES_MAX} types")
        if isinstance(given, list):
            return self._union([self.read(item, space, inside) for item in given])
        if isinstance(given, str):
            if given in PRIMITIVES:
                return AvroType(kind=given)
            return self._named(given, space, inside)
        kind = given["type"]
        if not isinstance(kind, str) or kind not in PRIMITIVES | NAMED | {"array", "map"}:
            return self.read(kind, space, inside)
        if kind in NAMED:
            return self._defined(given, space, inside)
        connect = {name: given[name] for name in given if name.startswith("connect.")}
        if kind in {"array", "map"}:
            inner = self.read(given["items" if kind == "array" else "values"], space, inside)
            return AvroType(kind=kind, items=inner, connect=connect)
        return AvroType(kind=kind, connect=connect, **_logical(given, kind))

    def _named(self, name: str, space: str, inside: tuple[str, ...]) -> AvroType:
        found = next((full for full in _candidates(name, space) if full in self._names), None)
        if found is None:
            raise Unreadable(f"the schema uses {name}, and does not say what it is")
        definition, outer = self._names[found]
        return self._defined(definition, outer, inside)

    def _defined(self, given: dict[str, Any], space: str, inside: tuple[str, ...]) -> AvroType:
        full, own = _full_name(given, space)
        connect = {name: given[name] for name in given if name.startswith("connect.")}
        if given["type"] == "enum":
            symbols = tuple(str(symbol) for symbol in given["symbols"])
            return AvroType(kind="enum", name=full, symbols=symbols, connect=connect)
        if given["type"] == "fixed":
            return AvroType(
                kind="fixed",
                name=full,
                size=int(given["size"]),
                connect=connect,
                **_logical(given, "fixed"),
            )
        if full in inside:
            raise Unreadable(f"the schema's {full} holds itself: no table can hold that")
        fields = tuple(
            (str(item["name"]), self.read(item["type"], own, (*inside, full)))
            for item in given["fields"]
        )
        return AvroType(kind="record", name=full, fields=fields, connect=connect)

    @staticmethod
    def _union(branches: list[AvroType]) -> AvroType:
        null_at = next((at for at, item in enumerate(branches) if item.kind == "null"), -1)
        if null_at >= 0 and len(branches) == 2:
            return AvroType(kind="optional", items=branches[1 - null_at], null_at=null_at)
        return AvroType(kind="union", branches=tuple(branches), null_at=null_at)


def _logical(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the logical type of a definition where it is one that holds for its type."""
    logical = given.get("logicalType")
    if not isinstance(logical, str) or kind not in _ON.get(logical, ()):
        return {}
    if logical == "uuid" and kind == "fixed" and given["size"] != 16:
        return {}
    if logical != "decimal":
        return {"logical": logical}
    precision, scale = int(given["precision"]), int(given.get("scale", 0))
    # A logical type that breaks its own rules is ignored, as the format says.
    if not 0 <= scale <= precision or precision < 1 or scale > DIGITS_MAX:
        return {}
    return {"logical": logical, "precision": precision, "scale": scale}


def _collect(given: Document, space: str, names: dict[str, tuple[dict[str, Any], str]]) -> None:
    """Note the definitions of a document, each with the namespace that it stands in."""
    for definition, outer in _definitions(given, space):
        names.setdefault(_full_name(definition, outer)[0], (definition, outer))


def _definitions(given: object, space: str) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(given, list):
        for item in given:
            yield from _definitions(item, space)
    if not isinstance(given, dict):
        return
    inner = space
    if given.get("type") in NAMED and "name" in given:
        yield given, space
        inner = _full_name(given, space)[1]
    for item in given.get("fields") or ():
        if isinstance(item, dict):
            yield from _definitions(item.get("type"), inner)
    for part in ("type", "items", "values"):
        yield from _definitions(given.get(part), inner)


def _full_name(given: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a definition, and the namespace that holds inside of it."""
    name = str(given["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    own = str(given.get("namespace", space) or "")
    return (f"{own}.{name}" if own else name), own


def _candidates(name: str, space: str) -> Sequence[str]:
    return (name,) if "." in name or not space else (f"{space}.{name}", name)
