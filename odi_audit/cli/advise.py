"""``odi-audit advise``: what a job's commit interval costs, and which one to take.

Owns the options and the page for people. Must never change a spec.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import escape
from odi_audit.errors import LakeNotFound

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.advice import Advice, Cost, Rates
    from jobs.spec.model import JobSpec

SCHEMA = "odi.advise/1"
COLUMNS = ("every", "files/day", "file size", "snapshots/day", "rows visible after",
           "metadata", "metadata/day", "to compact/day", "")  # fmt: skip


def command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The job's YAML file.")],
    tasks: Annotated[int | None, typer.Option("--tasks", help="Tasks that write at once.")] = None,
    rows_per_second: Annotated[
        float | None, typer.Option("--rows-per-second", help="Rows that come, all tables.")
    ] = None,
    row_bytes: Annotated[
        float | None, typer.Option("--row-bytes", help="Bytes of a row in the files.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the source how much comes.")
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show files, snapshots, freshness and compaction by commit interval; recommend one."""
    from jobs.advice import advise
    from jobs.spec import load_spec

    job = load_spec(spec, os.environ)
    rates = _rates(
        job,
        lake,
        offline=offline,
        tasks=tasks,
        rows_per_s=rows_per_second,
        row_bytes=row_bytes,
    )
    found = advise(job, rates)
    render.answer(
        SCHEMA, found.to_json(), as_json=as_json, human=lambda console: _show(console, found)
    )


def _rates(
    job: JobSpec,
    lake: Path | None,
    *,
    offline: bool,
    tasks: int | None,
    rows_per_s: float | None,
    row_bytes: float | None,
) -> Rates:
    from jobs.advice import rates_of
    from jobs.sources.rates import rows_per_second
    from odi_audit.workspace import Workspace

    source = None if offline or rows_per_s is not None else lambda: rows_per_second(job)
    try:
        workspace = Workspace.find(lake)
    except LakeNotFound:
        if lake is not None:
            raise
        return rates_of(
            job, source_rows_per_s=source, tasks=tasks, rows_per_s=rows_per_s, row_bytes=row_bytes
        )
    with workspace:
        return rates_of(
            job,
            ledger=workspace.ledger(read_only=True),
            source_rows_per_s=source,
            tasks=tasks,
            rows_per_s=rows_per_s,
            row_bytes=row_bytes,
        )


def _show(console: Console, found: Advice) -> None:
    for line in found.rates.basis:
        console.print(f"from: {escape(line)}", soft_wrap=True)
    console.print()
    costs = sorted({found.chosen.every_s: found.chosen} | {c.every_s: c for c in found.costs})
    by = {found.chosen.every_s: found.chosen} | {cost.every_s: cost for cost in found.costs}
    rows = [_row(by[every], chosen=every == found.chosen.every_s) for every in costs]
    console.print(render.table(None, COLUMNS, rows))
    console.print()
    for line in found.tells:
        console.print(escape(line), soft_wrap=True)


def _row(cost: Cost, *, chosen: bool) -> tuple[str, ...]:
    marks = [*(["the spec's"] if chosen else []), *(["advised"] if cost.recommended else [])]
    return (
        str(timedelta(seconds=cost.every_s)),
        f"{cost.files:,}",
        _size(cost.file_bytes),
        f"{cost.snapshots:,}",
        f"{cost.freshness_s:.0f} s",
        _size(cost.metadata_bytes),
        _size(cost.metadata_written_bytes),
        _size(cost.compaction_bytes) if cost.compaction_bytes else "nothing",
        "; ".join([*marks, *cost.notes]),
    )


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
