"""The page of ``odi-audit jobs check``: what a job would do now, for people.

Owns the words. Must never decide anything: it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odi_audit.cli import render
from odi_audit.cli.render import escape

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.sources.base import Plan
    from jobs.status.checking import Checked, TableLook

PARTITIONS_SHOWN = 10


def show_would(console: Console, checked: Checked) -> None:
    """Show the path, the batch, the tables and the cost."""
    console.print()
    rows = [(name, escape(text)) for name, text in _lines(checked)]
    page = render.table(None, ("", ""), rows)
    page.show_header = False
    console.print(page)
    for look in checked.tables:
        _table(console, look)
    if checked.stopped is not None:
        error = checked.stopped
        console.print(escape(f"the source would stop it: {error.code}: {error.message}"))
        if error.hint:
            console.print(escape(f"  next: {error.hint}"), soft_wrap=True)
    console.print("Nothing was written.")


def _lines(checked: Checked) -> Iterator[tuple[str, str]]:
    yield "path", f"{checked.way.path} ({checked.way.why})"
    if checked.first is not None:
        yield "first", checked.first
    begun = "goes on from its position" if checked.begun else "begins: the ledger has no position"
    yield "source", f"{checked.source}; the job {begun}"
    if checked.waiting is not None:
        yield "waiting", f"{checked.waiting:,} rows"
    if checked.stopped is None:
        yield "next batch", _plan(checked.plan)
    for weak in checked.weak:
        yield "registry", str(weak)
    cost, best = checked.advice.chosen, checked.advice.recommended
    day = f"{cost.commits:,} commits, {cost.snapshots:,} snapshots and {cost.files:,} files a day"
    yield "interval", f"{cost.every_s:,} s: {day}, rows visible after {cost.freshness_s:,.0f} s"
    if best.every_s != cost.every_s:
        yield "", f"advised: {best.every_s:,} s (odi-audit advise SPEC)"
    for line in checked.advice.rates.basis:
        yield "", f"from: {line}"


def _plan(plan: Plan | None) -> str:
    if plan is None:
        return "none: there is nothing new"
    ranges = list(plan.offsets.ranges.items())
    told = ", ".join(
        f"{name} {'' if part.start is None else part.start}…{part.end}"
        for name, part in ranges[:PARTITIONS_SHOWN]
    )
    rest = f" and {len(ranges) - PARTITIONS_SHOWN} more" if len(ranges) > PARTITIONS_SHOWN else ""
    after = "; more follow at once" if plan.more else ""
    return f"{plan.rows:,} rows at most: {told}{rest}{after}"


def _table(console: Console, look: TableLook) -> None:
    by = f", partitioned by {', '.join(look.partitioning)}" if look.partitioning else ""
    console.print(
        escape(f"{look.name} {'is there' if look.there else 'would be made'}{by}"), soft_wrap=True
    )
    sample = look.sample
    changes = {} if sample is None else {**sample.add}
    for name, kind in look.columns.items():
        wider = None if sample is None else sample.widen.get(name)
        told = f"  {name} {kind}" + (f"  → {wider}" if wider else "")
        console.print(escape(told), soft_wrap=True)
    for name, kind in changes.items():
        console.print(escape(f"  + {name} {kind}"), soft_wrap=True)
    if look.note is not None:
        console.print(escape(f"  {look.note}"), soft_wrap=True)
    if sample is not None and sample.records:
        bad = f", {sample.rejects:,} cannot be read ({sample.reason})" if sample.rejects else ""
        console.print(escape(f"  sample: {sample.records:,} records{bad}"), soft_wrap=True)
