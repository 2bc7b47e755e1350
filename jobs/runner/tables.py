"""Tables of a job: made at the first batch, changed when records bring more than they hold.

Owns the way from a spec's words to ``create_table`` and ``evolve_schema``. Must never change a
table past the committer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.spec.words import matches
from jobs.tasks.dead_letters import COLUMNS as DEAD_COLUMNS
from odi_audit import logs
from odi_audit.errors import NotSupported, TableNotFound, UsageError
from odi_audit.model.tables import parse, quote
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import LiveTable, find, load

if TYPE_CHECKING:
    from jobs.spec.model import Target
    from odi_audit.committer.run import Run
    from odi_audit.ids import BatchId

log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a table must learn before records fit: new columns, and wider types."""

    add: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.add or self.widen)


def live(run: Run, table: str, *, expected: bool = False) -> LiveTable | None:
    """Return a table as it is now; None where it is not there.

    ``expected``: it was there a moment ago, so it need not be asked for before it is loaded.
    """
    jvm, catalog = Jvm(run.spark), run.parts.settings.catalog.name
    if not expected:
        return find(jvm, catalog, parse(table))
    try:
        return load(jvm, catalog, parse(table))
    except TableNotFound:
        return None


def make(run: Run, table: str, columns: Mapping[str, str], target: Target) -> LiveTable:
    """Make a table that is not there.

    Raises:
        NotSupported: the spec does not let the job make tables.
    """
    found = live(run, table)
    if found is not None:
        return found
    if not target.create:
        raise NotSupported(
            f"table {table} is not there, and the spec says create: false",
            hint="make it, or let the job make it",
        )
    names = {name.lower() for name in columns}
    terms = [term for term in target.partition_by if term.column.split(".")[0].lower() in names]
    run.create_table(
        table,
        ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items()),
        partitioned_by=[term.sql for term in terms],
        properties={
            "write.target-file-size-bytes": str(target.file_size),
            "write.distribution-mode": target.distribution,
            **target.properties,
        },
        provenance=target.provenance,
        if_not_exists=True,
    )
    made = live(run, table, expected=True)
    assert made is not None
    return made


def make_dead_letters(run: Run, table: str) -> LiveTable:
    """Make the table for records that are no rows."""
    found = live(run, table)
    if found is None:
        run.create_table(table, DEAD_COLUMNS, if_not_exists=True)
        found = live(run, table)
    assert found is not None
    return found


def grow(run: Run, table: str, growth: Growth, batch: BatchId | None = None) -> None:
    """Add columns and widen types; each change is in the ledger before the batch that needs it."""
    log.info("table grows", table=table, add=dict(growth.add), widen=dict(growth.widen))
    run.evolve_schema(table, add=dict(growth.add), widen=dict(growth.widen), for_batch=batch)


def check_allowed(table: str, allow: tuple[str, ...]) -> None:
    """Refuse a table that no pattern of the spec allows.

    Raises:
        UsageError: with the patterns.
    """
    if not any(matches(table, pattern) for pattern in allow):
        raise UsageError(
            f"table {table} is not on the list of the spec: {', '.join(allow)}",
            hint="add it to target.route.allow, or take the topic out",
            table=table,
        )
