"""A mirror: the table holds what the source's table holds, row by row.

Owns which change of a row wins, also against what the table has: the newest by the source's log
(docs/adr/0016-cdc-order.md). A change that came late or again is left out. Must never take a value
from a deleted row's image: only its key is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.formats.debezium_envelope import OP, UNAVAILABLE
from jobs.formats.debezium_envelope import ORDER as CHANGE_ORDER
from jobs.patterns.changes import filled_in, hidden, hideable, known_or_stop, tie_breakers
from jobs.patterns.names import ORDER, trimmed
from odi_audit.model.merges import Terms
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.patterns.survey import Survey
    from odi_audit.committer.batch import BatchBuilder
    from odi_audit.model.contract import Contract
    from odi_audit.model.shares import Share

DELETED = f"{OP} = 'd'"


def mirror(
    batch: BatchBuilder,
    rows: DataFrame,
    table: str,
    *,
    key: Sequence[str],
    survey: Survey,
    contract: Contract,
    share: Share,
) -> None:
    """Add to a batch what brings a mirror up to date."""
    changes = rows.filter(F.col(OP) != "t")
    older = None
    if survey.truncates:
        last = survey.truncates[-1].order
        older = f"{quote(ORDER)} IS NULL OR {quote(ORDER)} < '{last}'"
        # What a truncate follows is gone with it.
        changes = changes.filter(F.col(CHANGE_ORDER) > last)
        if changes.isEmpty():
            batch.delete(table, where=older)
            return
    if survey.hidden:
        changes = filled_in(changes, key)
    changes = changes.withColumn(ORDER, F.col(CHANGE_ORDER))
    kept = hideable(changes, key) if survey.hidden else []
    steering = (OP, *tie_breakers(changes), *([UNAVAILABLE] if kept else []))
    batch.upsert(
        trimmed(changes, *steering),
        table,
        key=key,
        order_by=(ORDER, *tie_breakers(changes)),
        delete_when=DELETED,
        terms=Terms(
            update_when=f"t.{ORDER} IS NULL OR s.{ORDER} >= t.{ORDER}",
            keep={name: hidden(name, "s.") for name in kept},
            insert_when=known_or_stop(kept, "s.") if kept else None,
            gone_when=None if older is None else older.replace(quote(ORDER), f"t.{ORDER}"),
        ),
        contract=contract,
        share=share,
    )
