"""The pages of ``odi-audit trace`` for people: rows, their versions, and rows that are gone.

Owns their words. Must never print a value as markup, nor leave out the confidence of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape

from odi_audit.canonical import Json
from odi_audit.query import facts
from odi_audit.query.gone import Gone, GoneRow
from odi_audit.query.horizon import Horizon
from odi_audit.query.origin import Origin
from odi_audit.query.trace import RowTrace
from odi_audit.query.versions import Histories, RowHistory, RowVersion

_ABSENT = "null"


def row(console: Console, found: RowTrace) -> None:
    """Show one row that is there."""
    _values(console, found.values)
    number = "none" if found.row_id is None else str(found.row_id)
    _line(console, f"  row id {number}, at {found.position} of {found.file}")
    _origin(console, "born in", found.birth)
    if found.last_change == found.birth:
        console.print("  not changed since")
    else:
        _origin(console, "last changed by", found.last_change)
    record = found.source_record
    if record is not None:
        by = "of an earlier change" if record.brought_by is None else _what(record.brought_by)
        _line(console, f"  source record {record.partition} at {record.offset}, {by}")
    console.print()


def histories(console: Console, found: Histories) -> None:
    """Show the versions of each row, newest first."""
    if not found.rows:
        console.print("No row matches.")
    for history in found.rows:
        _history(console, history)


def gone(console: Console, found: Gone) -> None:
    """Show the rows that are gone, and how far back was looked."""
    if not found.rows:
        console.print("No row that matches is gone, as far as the snapshots show.")
    for item in found.rows:
        _gone(console, item)
    _horizon(console, found.horizon)


def _history(console: Console, history: RowHistory) -> None:
    number = "none" if history.row_id is None else str(history.row_id)
    count = len(history.versions)
    known = f"{count} version{'' if count == 1 else 's'}"
    console.print(f"[bold]row id {number}: {known}{'' if history.complete else ' known'}[/bold]")
    for place, version in enumerate(history.versions):
        _version(console, version, first=history.complete and place == count - 1)
    if history.note:
        _line(console, f"  {history.note}")
    console.print()


def _version(console: Console, version: RowVersion, *, first: bool) -> None:
    origin = version.origin
    when = f", {origin.time}" if origin.time else ""
    verb = "born in" if first else "written by"
    _line(console, f"  {verb} {_what(origin)} ({origin.confidence.value}){when}")
    about = ", ".join(filter(None, (origin.job, origin.operation, origin.principal)))
    if about:
        _line(console, f"      {about}")
    if version.changes is None or first:
        _line(console, f"      {_shown(version.values)}")
    elif not version.changes:
        console.print("      written again with the same values")
    for change in version.changes or ():
        _line(console, f"      {change.column}: {_text(change.before)} → {_text(change.after)}")
    if origin.note:
        _line(console, f"      {origin.note}")


def _gone(console: Console, item: GoneRow) -> None:
    _values(console, item.values)
    number = "none" if item.row_id is None else str(item.row_id)
    _line(
        console,
        f"  row id {number}, last seen in snapshot {item.last_seen} ({item.last_seen_time})",
    )
    _origin(console, "rolled back by" if item.rolled_back else "deleted by", item.deleted_by)
    _origin(console, "born in", item.birth)
    if item.last_change == item.birth:
        console.print("  not changed before")
    else:
        _origin(console, "last changed by", item.last_change)
    if item.note:
        _line(console, f"  {item.note}")
    console.print()


def _horizon(console: Console, horizon: Horizon) -> None:
    if horizon.snapshot is None:
        return
    if horizon.complete:
        console.print(f"Every snapshot since the first ({horizon.time}) is kept.")
        return
    _line(
        console,
        f"Looked back to {horizon.time}; what would show older deletions has expired.",
    )
    if not horizon.takings:
        console.print("The ledger has no batch on record that took rows out before.")
        return
    _line(console, f"The ledger knows of {horizon.takings_count} that took rows out up to then:")
    for taking in horizon.takings:
        unit = "row" if taking.rows == 1 else "rows"
        rows = "" if taking.rows is None else f", {taking.rows} {unit}"
        where = "" if taking.where is None else f", where {taking.where}"
        _line(
            console,
            f"  {taking.time}  batch {taking.batch}  {taking.job}  {taking.operation}{rows}{where}",
        )


def _origin(console: Console, label: str, origin: Origin) -> None:
    _line(console, f"  {label} {_what(origin)} ({origin.confidence.value})")
    lines = {
        "job": origin.job,
        "run": origin.run,
        "operation": origin.operation,
        "source": origin.source,
        "offsets": facts.describe_offsets(origin.offsets),
        "schemas": facts.describe_schemas(origin.source_facts),
        "snapshot": origin.snapshot,
        "time": origin.time,
        "principal": origin.principal,
        "code": origin.code,
        "note": origin.note,
    }
    for name, value in lines.items():
        if value:
            _line(console, f"      {name:<10}{value}")
    for batch in origin.candidates:
        _line(console, f"      candidate {batch}")
    more = origin.candidates_count - len(origin.candidates)
    if more > 0:
        console.print(f"      and {more} more")


def _what(origin: Origin) -> str:
    if origin.batch is not None:
        return f"batch {origin.batch}"
    if origin.candidates_count:
        return f"one of {origin.candidates_count} batches"
    return "unknown" if origin.snapshot is None else "a write without a batch"


def _values(console: Console, values: Mapping[str, Json]) -> None:
    console.print(f"[bold]{escape(_shown(values))}[/bold]", soft_wrap=True)


def _shown(values: Mapping[str, Json]) -> str:
    return ", ".join(f"{name} = {_text(value)}" for name, value in values.items())


def _text(value: Json) -> str:
    return _ABSENT if value is None else str(value)


def _line(console: Console, text: str) -> None:
    console.print(escape(text), soft_wrap=True)
