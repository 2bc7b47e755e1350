"""The last look at an event before it leaves: no secret, nothing a backend chokes on, not too big.

Owns the event as a value, its bytes, and what is left out of one that is too big. Must never let
out an event that openlineage-python's own classes would not have made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import attr
import orjson

from lineage.facets import PRODUCER, OdiTrimmedRunFacet, TrimmedFacet
from lineage.sharing import Plain, forget, made_of
from odi_audit.canonical import JsonObject, encode
from odi_audit.checks import must
from odi_audit.ids import RunId
from odi_audit.redact import is_clean, may_hold_secret, redact_text, registered

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

EVENT_BYTES_MAX = 256 * 1024
"""Backends keep every event for ever, and draw graphs from them: the ledger has the whole."""
_KEPT = frozenset({"parent", "odi_ledger", "odi_trimmed", "jobType", "dataSource", "version"})
"""Facets that are small, and without which an event has no place in the graph."""
_NAMED_MAX = 100
"""Parts left out that are named one by one; of more than these the number is told."""
_NAMED_BYTES = 300
_FRACTIONS = tuple(re.compile(before + rb"-?\d+[.eE]") for before in (rb'":', rb"\[", rb","))
"""What looks like a number that is not whole; a text that looks like one costs time, no more.

Three, for each begins with something that is found fast.
"""
_NULLS = (b":null", b"[null", b",null")
_OWN = ("https://openlineage.io/spec/", PRODUCER)
_NAMES: dict[Any, tuple[str, ...]] = {}
"""The fields of each class that was met; there are about a hundred."""
Facets: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One OpenLineage event: what it says, and which entry of the ledger says so.

    ``place`` tells the events of one entry apart. (``index``, ``place``) orders all events of a
    ledger; within a run no event may overtake another. ``body`` is ``document`` in canonical JSON
    (RFC 8785): the same ledger gives the same bytes.
    """

    index: int
    place: int
    run: RunId
    state: str
    document: RunEvent
    body: bytes

    @property
    def key(self) -> str:
        """What tells this event from every other of the same ledger, on every making."""
        return f"{self.index}.{self.place}"


def finished(document: RunEvent, *, index: int, place: int = 0) -> Event:
    """Return an event that may leave: without secrets, valid, and cut to size.

    Raises:
        Bug: it is not small without its big facets, or has no type.
    """
    body = _ordinary(document) or _cleaned(document)
    if len(body) > EVENT_BYTES_MAX:
        _trim(document, len(body), index)
        made = _made(document)
        body = canonical(made.value, fractions=made.fractions)
        must(len(body) <= EVENT_BYTES_MAX, "an event without its big facets is small", index=index)
    state = document.eventType
    must(state is not None, "every event has a type", index=index)
    assert state is not None
    return Event(
        index=index,
        place=place,
        run=RunId(document.run.runId),
        state=state.value,
        document=document,
        body=body,
    )


def canonical(value: JsonObject, *, fractions: bool | None = None) -> bytes:
    """Return the RFC 8785 bytes of a value, in a tenth of the time where nothing in it is odd.

    orjson gives the same bytes as long as there are no fractions, and no keys beyond ASCII, which
    it sorts in another order. ``fractions`` says whether there are, where it is known.
    """
    if fractions:
        return encode(value)
    try:
        body = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return encode(value)
    if not body.isascii() or (fractions is None and _has_fraction(body)):
        return encode(value)
    return body


# -- the short way and the long way ----------------------------------------------------------------


def _ordinary(document: RunEvent) -> bytes | None:
    """Return the bytes of an event in one go; None where only the long way gives them for sure.

    What is the event's own is looked at here, shared facets only at their first time.
    """
    opened: dict[int, dict[str, Any]] = {}

    def own(value: Any) -> Any:
        made = made_of(value)
        if made is None:
            fields = opened[id(value)] = _fields(value)
            return fields
        if made.secrets != registered():
            body = orjson.dumps(_fields(value), default=_fields, option=orjson.OPT_SORT_KEYS)
            made.body, made.secrets = orjson.Fragment(body), registered()
            made.ordinary = _has_nothing_odd(body)
        if not made.ordinary:
            raise TypeError
        return 0

    def whole(value: Any) -> Any:
        fields = opened.get(id(value))
        if fields is not None:
            return fields
        made = made_of(value)
        assert made is not None
        return made.body

    try:
        if not _has_nothing_odd(orjson.dumps(document, default=own)):
            return None
        return orjson.dumps(document, default=whole, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a facet that are there; orjson does not know attrs."""
    names = _names(type(value))
    if not names:
        raise TypeError(type(value).__name__)
    return {name: item for name in names if (item := getattr(value, name)) is not None}


def _has_nothing_odd(body: bytes) -> bool:
    """Say whether these are canonical bytes without a null, and plainly without a secret.

    With nothing escaped, texts stand in them as they are, so they are looked at as a whole. What
    only looks odd goes the long way, which is sure.
    """
    if not body.isascii() or b"\\" in body or _has_fraction(body):
        return False
    if b"null" in body and any(null in body for null in _NULLS):
        return False
    # The one name of a field that looks like the name of a secret.
    return not may_hold_secret(body.replace(b'"key":', b"").decode())


def _has_fraction(body: bytes) -> bool:
    return any(pattern.search(body) for pattern in _FRACTIONS)


def _cleaned(document: RunEvent) -> bytes:
    made = _made(document)
    if not _is_clean(made.texts):
        _mask(document)
        # Masked ids and times would be no event: the classes look at them once more.
        attr.validate(document)
        attr.validate(document.run)
        made = _made(document)
    return canonical(made.value, fractions=made.fractions)


# -- cleaning --------------------------------------------------------------------------------------


def _is_clean(texts: Iterable[str]) -> bool:
    """Say whether no text holds a secret or a NUL, which PostgreSQL cannot store.

    Nearly every event is clean, so its texts are looked at all at once first.
    """
    given = [text for text in texts if not text.startswith(_OWN)]
    together = "\n".join(given)
    if "\x00" in together:
        return False
    return not may_hold_secret(together) or all(map(is_clean, given))


def _mask(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.startswith(_OWN) else _masked(value)
    if isinstance(value, dict):
        return {_masked(key): _mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    if value is not None:
        for name in _names(type(value)):
            held = getattr(value, name)
            cleaned = _mask(held)
            if cleaned is not held:
                setattr(value, name, cleaned)
        forget(value)
    return value


def _masked(text: str) -> str:
    return redact_text(text.replace("\x00", "\ufffd"))


# -- cutting to size -------------------------------------------------------------------------------


def _trim(document: RunEvent, size: int, index: int) -> None:
    """Take out the biggest facets until the event is small; what went is named with its digest."""
    parts = sorted(_parts(document), key=lambda part: (-len(part[3]), part[0]))
    gone: list[TrimmedFacet] = []
    for path, facets, key, body in parts:
        if size + _NAMED_BYTES * (min(len(gone), _NAMED_MAX) + 1) <= EVENT_BYTES_MAX:
            break
        del facets[key]
        size -= len(body)
        gone.append(
            TrimmedFacet(path=path, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
        )
    runs = document.run.facets
    assert runs is not None
    runs["odi_trimmed"] = OdiTrimmedRunFacet(
        index=index,
        facets=gone[:_NAMED_MAX],
        more=len(gone) - _NAMED_MAX if len(gone) > _NAMED_MAX else None,
        producer=PRODUCER,
    )


def _parts(document: RunEvent) -> Iterator[tuple[str, Facets, str, bytes]]:
    holders: list[tuple[str, Facets | None]] = [
        ("run.facets", cast("Facets | None", document.run.facets)),
        ("job.facets", cast("Facets | None", document.job.facets)),
    ]
    for place, read in enumerate(document.inputs or []):
        holders += [
            (f"inputs.{place}.facets", cast("Facets | None", read.facets)),
            (f"inputs.{place}.inputFacets", cast("Facets | None", read.inputFacets)),
        ]
    for place, written in enumerate(document.outputs or []):
        holders += [
            (f"outputs.{place}.facets", cast("Facets | None", written.facets)),
            (f"outputs.{place}.outputFacets", cast("Facets | None", written.outputFacets)),
        ]
    for path, facets in holders:
        for key in sorted(facets or {}):
            if facets is not None and key not in _KEPT:
                yield f"{path}.{key}", facets, key, canonical(_made(facets[key]).value)


# -- attrs to JSON ---------------------------------------------------------------------------------


def _made(value: Any) -> Plain:
    """Return a value as openlineage-python's own serializer does: enums by value, no nulls."""
    reader = _Reader()
    return reader.read(reader.plain(value))


class _Reader:
    """Turns attrs objects into JSON, and keeps every text that was met on the way."""

    __slots__ = ("fractions", "texts")

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.fractions = False

    def read(self, plain: Any) -> Plain:
        return Plain(value=plain, texts=self.texts, fractions=self.fractions)

    def plain(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            self.texts.add(value)
            return value
        if kind is dict:
            self.texts.update(value)
            return {key: self.plain(item) for key, item in value.items() if item is not None}
        if kind is list:
            return [self.plain(item) for item in value if item is not None]
        names = _names(kind)
        if names:
            return self._facet(value, names)
        if isinstance(value, Enum):
            return value.value
        if kind is float:
            self.fractions = True
        elif isinstance(value, str):
            self.texts.add(value)
        return value

    def _facet(self, value: Any, names: tuple[str, ...]) -> Any:
        made = made_of(value)
        if made is None:
            return self.fields(value, names)
        held = made.plain
        if held is None:
            reader = _Reader()
            held = made.plain = reader.read(reader.fields(value, names))
        self.texts |= held.texts
        self.fractions = self.fractions or held.fractions
        return held.value

    def fields(self, value: Any, names: tuple[str, ...]) -> dict[str, Any]:
        plain = self.plain
        return {name: plain(item) for name in names if (item := getattr(value, name)) is not None}


def _names(kind: Any) -> tuple[str, ...]:
    found = _NAMES.get(kind)
    if found is None:
        made = attr.has(kind)
        found = _NAMES[kind] = tuple(field.name for field in attr.fields(kind)) if made else ()
    return found
