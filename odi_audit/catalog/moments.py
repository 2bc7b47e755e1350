"""Moments of a table: the snapshot that an id, a tag, a branch or a time stands for.

Owns what people write after ``--as-of``. A time is answered by the snapshot log, so that a
rollback counts as what it was: main stood elsewhere then. Must never take the nearest snapshot
where the log no longer shows which one it was, and reads nothing but the state that it is given.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime

from odi_audit import clock
from odi_audit.catalog.state import MAIN, LogEntry, SnapshotInfo, TableState, head
from odi_audit.errors import EntryNotFound
from odi_audit.ids import SnapshotId

NEAR_MATCHES_MAX = 3
NAMES_SHOWN_MAX = 10
"""A table may have thousands of tags; a message names the last of them."""


def resolve(state: TableState, text: str) -> SnapshotInfo:
    """Return the snapshot that ``text`` names.

    A tag or branch of that very name comes first, then a snapshot id, then a time: a date or a
    date with a time, as ISO 8601 writes them, in UTC unless an offset is given. A date means its
    first moment. The snapshot of a time is the one that main stood at then.

    Raises:
        EntryNotFound: nothing has that name, or what would show the moment has expired; the
            message says what there is.
    """
    asked = text.strip()
    if asked in state.refs or asked == MAIN:
        return _at(state, asked, head(state, asked))
    if asked.isascii() and asked.isdigit():
        return _at(state, asked, SnapshotId(asked))
    moment = _moment(asked)
    if moment is None:
        raise _nothing(state, asked)
    return _at_time(state, asked, moment)


def _at(state: TableState, asked: str, snapshot: SnapshotId | None) -> SnapshotInfo:
    if snapshot is None:
        raise EntryNotFound(
            f"table {state.ref.name} has no snapshot yet: {asked} stands for nothing",
            hint=f"odi-audit batches --table {state.ref.name}",
            table=state.ref.name,
        )
    info = state.snapshot(snapshot)
    if info is None:
        raise EntryNotFound(
            f"table {state.ref.name} has no snapshot {snapshot}: it has expired or never was; "
            f"{_what_there_is(state)}",
            hint=f"odi-audit batches --table {state.ref.name}",
            snapshot=snapshot,
            table=state.ref.name,
        )
    return info


def _at_time(state: TableState, asked: str, moment: datetime) -> SnapshotInfo:
    # The last that fits, not the latest time: the log is in the order in which main moved.
    found: LogEntry | None = None
    for entry in state.snapshot_log:
        if clock.from_text(entry.time) <= moment:
            found = entry
    if found is None:
        raise EntryNotFound(
            f"table {state.ref.name} does not show where main stood at {asked}: "
            f"{_what_there_is(state)}",
            hint=f"odi-audit batches --table {state.ref.name}",
            table=state.ref.name,
            oldest=_oldest(state),
        )
    return _at(state, asked, found.snapshot)


def _moment(text: str) -> datetime | None:
    # Python also reads 20261101 and week dates; what has no dash after the year is a name here.
    if len(text) < len("2026-11-01") or text[4] != "-" or not text[:4].isdigit():
        return None
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        return None
    return made.replace(tzinfo=UTC) if made.tzinfo is None else made.astimezone(UTC)


def _nothing(state: TableState, asked: str) -> EntryNotFound:
    near = difflib.get_close_matches(asked, list(state.refs), n=NEAR_MATCHES_MAX)
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    return EntryNotFound(
        f"table {state.ref.name} has no snapshot, tag or branch {asked!r}, and it is no time "
        f"(2026-11-01 or 2026-11-01T12:00){meant}; {_what_there_is(state)}",
        hint=f"odi-audit batches --table {state.ref.name}",
        table=state.ref.name,
        near=near,
    )


def _what_there_is(state: TableState) -> str:
    tags = [name for name, ref in state.refs.items() if ref.kind == "tag"]
    shown = ", ".join(sorted(tags)[-NAMES_SHOWN_MAX:])
    more = f" and {len(tags) - NAMES_SHOWN_MAX} more" if len(tags) > NAMES_SHOWN_MAX else ""
    named = f"its tags are {shown}{more}" if tags else "it has no tags"
    oldest = _oldest(state)
    return f"{named}, and its log of main " + (f"starts at {oldest}" if oldest else "is empty")


def _oldest(state: TableState) -> str | None:
    return state.snapshot_log[0].time if state.snapshot_log else None
