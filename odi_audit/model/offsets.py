"""Offsets: which part of a source a batch holds, in one shape for every kind of source.

Owns the kinds (Kafka, files, LSN, watermark, stream, mapping, once, table), their JSON form and
the rule that says whether one batch continues another. Ranges are half-open: start inclusive,
end exclusive. Must never reach the source itself, except that ``files`` reads the files named.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias, cast

from odi_audit.canonical import Json, JsonObject, digest, encode
from odi_audit.errors import UsageError

Place: TypeAlias = str | int
"""A place in a source: an offset, an LSN, a watermark, or the digest of a file."""

_LSN = re.compile(r"^([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})$")
_LOGIN = re.compile(r"^(?:\w+://)?(?:[^@]*@)?")
PARTITIONS_MAX = 100_000
"""A batch over more partitions than this is a mistake in the caller, not a batch."""
STAMP_BYTES_MAX = 4096
"""Above this the stamp holds a digest: metadata.json is rewritten at every commit."""


class OffsetKind(StrEnum):
    """How the places of a source relate to each other."""

    KAFKA = "kafka"
    FILES = "files"
    LSN = "lsn"
    WATERMARK = "watermark"
    STREAM = "stream"
    MAPPING = "mapping"
    ONCE = "once"
    TABLE = "table"

    @property
    def ordered(self) -> bool:
        """Whether a batch must start where the last one ended."""
        return self in {
            OffsetKind.KAFKA,
            OffsetKind.LSN,
            OffsetKind.WATERMARK,
            OffsetKind.STREAM,
            OffsetKind.MAPPING,
        }


@dataclass(frozen=True, slots=True)
class Range:
    """One partition's part: ``start`` inclusive (None: from the beginning), ``end`` exclusive."""

    start: Place | None
    end: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """A batch's part of one source.

    ``identity`` maps a partition to the identity of what it belongs to (for Kafka the topic id),
    so that a recreated topic is told from the old one. ``rows`` is the number of rows that the
    source promises, where it can. ``servers`` says where the source was reached, for its name in
    lineage only: it may change from batch to batch and is no part of what the source is.
    """

    kind: OffsetKind
    source: str
    ranges: Mapping[str, Range]
    identity: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    servers: str | None = None

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise UsageError("offsets need the name of their source")
        if len(self.ranges) > PARTITIONS_MAX:
            raise UsageError(
                f"offsets of {self.source} name {len(self.ranges)} partitions, "
                f"at most {PARTITIONS_MAX} are allowed in one batch"
            )
        for partition, part in self.ranges.items():
            if isinstance(part.start, int) and isinstance(part.end, int) and part.end < part.start:
                raise UsageError(
                    f"offsets of {self.source}, partition {partition}: "
                    f"end {part.end} is before start {part.start}"
                )

    def only(self, partitions: Iterable[str]) -> Offsets:
        """Return these partitions' part of it; it promises no count of rows any more.

        Raises:
            UsageError: a partition is named that is not there.
        """
        wanted = sorted(set(partitions))
        strange = [name for name in wanted if name not in self.ranges]
        if strange:
            raise UsageError(f"offsets of {self.source} have no partition {', '.join(strange[:5])}")
        return replace(
            self,
            ranges={name: self.ranges[name] for name in wanted},
            identity={name: self.identity[name] for name in wanted if name in self.identity},
            rows=self.rows if len(wanted) == len(self.ranges) else None,
        )

    def start(self) -> Json:
        """The start places, for the batch id."""
        return {partition: part.start for partition, part in self.ranges.items()}

    def end(self) -> Json:
        """The end places with their identities, for the batch id."""
        return {
            partition: [part.end, self.identity.get(partition)]
            for partition, part in self.ranges.items()
        }

    def to_json(self) -> JsonObject:
        """Return the form that the ledger keeps."""
        body: dict[str, Json] = {
            "kind": self.kind.value,
            "source": self.source,
            "ranges": {name: [part.start, part.end] for name, part in self.ranges.items()},
        }
        if self.identity:
            body["identity"] = dict(self.identity)
        if self.rows is not None:
            body["rows"] = self.rows
        if self.servers is not None:
            body["servers"] = self.servers
        return body

    def to_stamp(self, *, generation: int = 0) -> Json:
        """Return the form that the snapshot's summary keeps: whole, or a digest when too big."""
        body = self.to_json()
        slim: dict[str, Json] = {key: value for key, value in body.items() if key != "source"}
        if len(encode(slim)) > STAMP_BYTES_MAX:
            slim = {
                "kind": self.kind.value,
                "partitions": len(self.ranges),
                "sha256": digest(body),
            }
        if generation:
            slim["generation"] = generation
        return slim


def offsets_from_json(body: JsonObject) -> Offsets:
    """Read what :meth:`Offsets.to_json` wrote."""
    ranges = cast("Mapping[str, list[Place]]", body["ranges"])
    return Offsets(
        kind=OffsetKind(cast("str", body["kind"])),
        source=cast("str", body["source"]),
        ranges={name: Range(start=pair[0], end=pair[1]) for name, pair in ranges.items()},
        identity=cast("Mapping[str, str]", body.get("identity", {})),
        rows=cast("int | None", body.get("rows")),
        servers=cast("str | None", body.get("servers")),
    )


def is_after(one: Place, other: Place) -> bool:
    """Say whether a place lies behind another: numbers as numbers, LSNs as such, else as text."""
    if isinstance(one, int) and isinstance(other, int):
        return one > other
    left, right = _LSN.match(str(one)), _LSN.match(str(other))
    if left and right:
        return _lsn(left) > _lsn(right)
    return str(one) > str(other)


def _lsn(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1], 16), int(match[2], 16)


# -- the kinds, as a caller writes them ---------------------------------------------------------


def kafka(
    topics: Mapping[str, Mapping[int, tuple[int, int]]],
    *,
    bootstrap: str,
    cluster_id: str | None = None,
    topic_ids: Mapping[str, str] | None = None,
    exact_count: bool = False,
) -> Offsets:
    """Name a part of Kafka topics: ``{"orders": {0: (100, 250)}}``.

    With the id of the cluster the source is the same by whichever of its servers it is reached,
    and another cluster behind the same name is another source; the first server is kept for the
    name in lineage. ``exact_count`` promises as many rows as offsets (no compaction, no
    transactions).
    """
    ranges: dict[str, Range] = {}
    identity: dict[str, str] = {}
    for topic, partitions in topics.items():
        for partition, (start, end) in partitions.items():
            name = f"{topic}-{partition}"
            ranges[name] = Range(start, end)
            if topic_ids and topic in topic_ids:
                identity[name] = topic_ids[topic]
    promised = sum(int(part.end) - int(part.start or 0) for part in ranges.values())
    first = bootstrap.split(",", maxsplit=1)[0].strip()
    return Offsets(
        kind=OffsetKind.KAFKA,
        source=f"kafka://{cluster_id or first}",
        ranges=ranges,
        identity=identity,
        rows=promised if exact_count else None,
        servers=_LOGIN.sub("", first) if cluster_id else None,
    )


def files(paths: Iterable[str | Path], *, source: str | None = None) -> Offsets:
    """Name local files by path, size and SHA-256 digest; reads each once to digest it.

    Raises:
        UsageError: no file is named, or one cannot be read.
    """
    ranges: dict[str, Range] = {}
    folder = ""
    for item in paths:
        path = Path(item).resolve()
        try:
            with path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            size = path.stat().st_size
        except OSError as problem:
            raise UsageError(
                f"file {path} cannot be read: {problem.strerror}", path=str(path)
            ) from problem
        ranges[str(path)] = Range(None, f"{size}:{content}")
        folder = folder or str(path.parent)
    if not ranges:
        raise UsageError("files() was given no file: a batch needs at least one")
    return Offsets(kind=OffsetKind.FILES, source=source or f"file://{folder}", ranges=ranges)


def lsn(database: str, start: str | None, end: str) -> Offsets:
    """Name a part of a database's log, as ``0/16B3748`` (PostgreSQL) or ``file:position``."""
    return Offsets(kind=OffsetKind.LSN, source=database, ranges={"lsn": Range(start, end)})


def watermark(source: str, column: str, start: Place | None, end: Place) -> Offsets:
    """Name the rows of a source whose ``column`` is in ``[start, end)``."""
    return Offsets(kind=OffsetKind.WATERMARK, source=source, ranges={column: Range(start, end)})


def mapping(source: str, ranges: Mapping[str, tuple[Place | None, Place]]) -> Offsets:
    """Name a part of any source by the caller's own places."""
    return Offsets(
        kind=OffsetKind.MAPPING,
        source=source,
        ranges={name: Range(start, end) for name, (start, end) in ranges.items()},
    )


def stream(source: str, ranges: Mapping[str, tuple[Place | None, Place]]) -> Offsets:
    """Name a micro-batch of a Spark stream by its sources' own offset documents."""
    return Offsets(
        kind=OffsetKind.STREAM,
        source=source,
        ranges={name: Range(start, end) for name, (start, end) in ranges.items()},
    )


def once(key: str, *, source: str = "caller") -> Offsets:
    """Name work by the caller's own key: the same key is the same work, and lands once."""
    if not key.strip():
        raise UsageError("once() needs a key that names the work")
    return Offsets(kind=OffsetKind.ONCE, source=source, ranges={key: Range(None, "done")})


def table_state(name: str, snapshot: str | None, work: JsonObject) -> Offsets:
    """Name work that a table does on itself: this operation, on this state of it."""
    return Offsets(
        kind=OffsetKind.TABLE,
        source=f"table:{name}",
        ranges={digest(work)[:16]: Range(None, snapshot or "empty")},
    )
