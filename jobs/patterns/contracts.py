"""Contracts on Spark's path: which rows break them, and what of them holds for changes.

Owns the reason that a row put aside is given, and the rule that a delete is no row: of it only the
key is known. Must never decide whether a batch is refused: that is the gate's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from jobs.formats.debezium_envelope import OP
from jobs.patterns.names import is_own
from jobs.tasks.rows import OFFSET, PARTITION, REASON
from odi_audit.model.contract import Contract
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from jobs.spec.model import JobSpec

NO_ROW = f"{OP} IN ('d', 't')"
"""Holds for a change that brings no row."""
_TWICE = "__odi_twice"


def contract_of(spec: JobSpec, *, changes: bool, besides: str | None = None) -> Contract:
    """Return the contract that the gate checks.

    Of changes only those that bring a row have to keep it; ``besides`` is a condition for further
    rows that are none. A merge takes the newest of rows that share a key: there no key is checked.
    """
    given = spec.contract
    excused = " OR ".join([*([NO_ROW] if changes else []), *([besides] if besides else [])])
    keyed = spec.target.mode in {"upsert", "mirror", "history"}
    key = () if keyed else given.key
    if not excused:
        return Contract(key=key, required=given.required, rules=given.rules)
    rules = {name: f"{excused} OR ({rule})" for name, rule in given.rules.items()}
    rules |= {
        f"{name} is not null": f"{excused} OR {quote(name)} IS NOT NULL" for name in given.required
    }
    return Contract(key=key, rules=rules)


def puts_aside(spec: JobSpec) -> bool:
    """Say whether rows that break the contract are dead letters."""
    given = spec.contract
    return given.on_violation == "dead_letter" and bool(given.key or given.required or given.rules)


def judged(rows: DataFrame, spec: JobSpec, *, changes: bool) -> DataFrame:
    """Return rows with the reason why each breaks the contract; null where it does not."""
    given = spec.contract
    reason: Column = F.lit(None).cast("string")
    for name, rule in reversed(given.rules.items()):
        # As in a CHECK constraint: what cannot be told passes.
        broken = ~F.coalesce(F.expr(rule), F.lit(True))
        reason = F.when(broken, F.lit(f"rule {name} is broken: {rule}")).otherwise(reason)
    if given.key and not changes and spec.target.mode not in {"upsert", "history"}:
        rows = rows.withColumn(_TWICE, F.row_number().over(_first_of_key(rows, given.key)) > 1)
        shared = f"another row of the batch has the same {', '.join(given.key)}"
        reason = F.when(F.col(_TWICE), F.lit(shared)).otherwise(reason)
    for name in reversed((*given.required, *given.key)):
        told = f"column {name} is required, and is null"
        reason = F.when(F.col(quote(name)).isNull(), F.lit(told)).otherwise(reason)
    if changes:
        reason = F.when(F.expr(NO_ROW), F.lit(None).cast("string")).otherwise(reason)
    return rows.withColumn(REASON, reason).drop(_TWICE)


def _first_of_key(rows: DataFrame, key: tuple[str, ...]):  # type: ignore[no-untyped-def]
    # The same row stays on every try: by its place in the source, or by all that it holds.
    places = [name for name in (PARTITION, OFFSET) if name in rows.columns]
    own = [F.col(quote(name)) for name in rows.columns if is_own(name)]
    by = [F.col(name) for name in places] or [F.to_json(F.struct(*own))]
    return Window.partitionBy(*[F.col(quote(name)) for name in key]).orderBy(*by)
