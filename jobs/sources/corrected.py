"""What a correction changed: the window before and after it, counted row by row.

Owns the comparison of the two snapshots around a batch that replaced rows. Rows are matched by the
contract's key; where it names none, every row of the window counts as removed, and every new one as
added. Must never show a row's values: ``odi-audit diff`` does that for who asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_audit import logs
from odi_audit.model.tables import parse
from odi_audit.query.diff import diff

if TYPE_CHECKING:
    from jobs.runner.outcome import Done
    from jobs.spec.model import JobSpec
    from odi_audit.committer.run import Run

log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """How many rows came, went, and changed; ``command`` shows them."""

    added: int
    removed: int
    changed: int
    command: str


def tell(run: Run, spec: JobSpec, done: Done) -> Corrected | None:
    """Say in the log what a batch changed in its table; None where there was nothing before it."""
    found = corrected(run, spec, done)
    if found is not None:
        log.info(
            "rows were replaced",
            table=spec.target.table,
            batch=done.receipt.batch,
            added=found.added,
            removed=found.removed,
            changed=found.changed,
            next=found.command,
        )
    return found


def corrected(run: Run, spec: JobSpec, done: Done) -> Corrected | None:
    """Compare a table as it was before a batch with what the batch made of it."""
    assert spec.target.table is not None
    name = parse(spec.target.table)
    state = run.parts.catalog().load(name)
    landing = next((it for it in done.receipt.landings if it.table.uuid == state.ref.uuid), None)
    after = (
        None if landing is None or landing.snapshot is None else state.snapshot(landing.snapshot)
    )
    if after is None or after.parent is None or state.snapshot(after.parent) is None:
        return None
    key = spec.contract.key
    made = diff(run.parts.ledger, run.parts.catalog(), name, after.parent, after.id, key=key)
    told = "" if not key else f" --key {','.join(key)}"
    return Corrected(
        added=made.added,
        removed=made.removed,
        changed=made.changed,
        command=f"odi-audit diff {name} {after.parent} {after.id}{told}",
    )
