"""Rules between the keys of a source.

Owns what each kind of source needs. Must never connect to anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.spec import words
from jobs.spec.problems import Path, did_you_mean, listed
from jobs.spec.view import Complaint, View

FORMATS_WITH_COLUMNS = frozenset({"json", "avro"})


def source_rules(view: View) -> Iterator[Complaint]:
    """Return the rules of the source, and of the one that history comes from, that do not hold."""
    yield from _of_kind(view, ("source",))
    if view.text("source", "type") in {"kafka", None}:
        yield from _starts(view, ("bootstrap", "hand_over"))
    yield from _of_kind(view, ("bootstrap", "from"))
    cut = view.get("batch", "cut_at_transactions")
    if cut in {True, "true"} and view.text("source", "envelope") != "debezium":
        yield Complaint(
            ("batch", "cut_at_transactions"),
            "only change events tell transactions: needs source.envelope: debezium",
        )


def _of_kind(view: View, path: tuple[str, ...]) -> Iterator[Complaint]:
    kind = view.text(*path, "type")
    if kind == "kafka":
        yield from _kafka(view, path)
    elif kind == "jdbc":
        yield from _jdbc(view, path)
    elif kind == "iceberg":
        yield from _iceberg(view, path)


def _kafka(view: View, path: tuple[str, ...]) -> Iterator[Complaint]:
    given = [key for key in ("topics", "pattern") if view.has(*path, key)]
    if len(given) == 2:
        yield Complaint((*path, "pattern"), "give topics or pattern, not both")
    elif not given or (given == ["topics"] and view.get(*path, "topics") == []):
        yield Complaint((*path, "topics"), "missing; name topics, or give a pattern")
    yield from _starts(view, (*path, "start"))
    for side in ("value", "key"):
        form = view.text(*path, side, "format")
        if form in {"raw", "text"} and view.has(*path, side, "columns"):
            yield Complaint(
                (*path, side, "columns"), f"format {form} is one column: leave columns out"
            )
    if (
        view.has(*path, "key")
        and "key" in view.names(*path, "keep")
        and view.text(*path, "envelope") != "debezium"
    ):
        yield Complaint(
            (*path, "keep"),
            "source.key makes columns of the key already; for its bytes write key: {format: raw}",
        )
    envelope, form = view.text(*path, "envelope"), view.text(*path, "value", "format")
    if envelope == "debezium" and form in {"raw", "text"}:
        yield Complaint(
            (*path, "value", "format"),
            f"an envelope cannot be read from {form}; write json or avro",
        )


def _starts(view: View, path: tuple[str, ...]) -> Iterator[Complaint]:
    if not isinstance(view.get(*path), dict):
        return
    given = [key for key in ("at", "timestamp", "offsets") if view.has(*path, key)]
    if len(given) != 1:
        yield Complaint(path, "give one of earliest, latest, {timestamp: …}, {offsets: …}")
    offsets, topics = view.get(*path, "offsets"), view.names("source", "topics")
    if isinstance(offsets, dict) and topics:
        for topic in offsets:
            if topic not in topics:
                place: Path = (*path, "offsets", topic)
                yield Complaint(
                    place, "no such topic in source.topics" + did_you_mean(topic, topics)
                )


def _jdbc(view: View, path: tuple[str, ...]) -> Iterator[Complaint]:
    given = [key for key in ("table", "query") if view.has(*path, key)]
    if len(given) != 1:
        place: Path = (*path, "query") if given else path
        yield Complaint(place, "give one of table and query")
    if view.has(*path, "password") and not view.has(*path, "user"):
        yield Complaint((*path, "password"), "a password without a user")
    overlap = view.text(*path, "watermark", "overlap")
    mode = view.text("target", "mode") or "append"
    if path == ("source",) and overlap and _longer_than_nothing(overlap) and mode == "append":
        yield Complaint(
            (*path, "watermark", "overlap"),
            "rows of the overlap are read twice, and append would keep both: "
            "write target.mode: upsert with a key",
        )


def _longer_than_nothing(overlap: str) -> bool:
    try:
        return bool(words.duration(overlap))
    except ValueError:
        return False


def _iceberg(view: View, path: tuple[str, ...]) -> Iterator[Complaint]:
    start = (*path, "start")
    if isinstance(view.get(*start), dict):
        ways = ("at", "snapshot", "tag", "batch", "timestamp")
        if sum(view.has(*start, way) for way in ways) != 1:
            yield Complaint(start, f"give one of earliest, latest, {listed(ways[1:])}")
    read = view.text(*path, "read") or "changes"
    if read == "rows" and view.has(*start):
        yield Complaint(start, "read: rows takes all rows each time and has no beginning")
    mode = view.text("target", "mode") or "append"
    if path == ("source",) and read == "changes" and mode == "append" and not view.has("transform"):
        yield Complaint(
            (*path, "read"),
            "changes hold updates and deletes, which append would keep as rows: write read: "
            "appends, or target.mode: mirror, or choose rows in a transform",
        )
