"""The mode of a target: which operation brings the rows of a batch into its table.

Owns the match from a spec's mode to the batch's operation. Must never commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from jobs.formats import debezium_envelope as envelope
from jobs.patterns import names
from jobs.patterns.contracts import contract_of
from jobs.patterns.history import CLOSES, Versions, history
from jobs.patterns.mirror import mirror
from jobs.patterns.names import trimmed
from jobs.patterns.replacing import replace
from odi_audit.errors import NotSupported
from odi_audit.model.merges import PLAIN, Terms
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.patterns.survey import Survey
    from jobs.spec.model import JobSpec
    from odi_audit.committer.batch import BatchBuilder
    from odi_audit.model.shares import Share
    from odi_audit.spark.live import LiveTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Rows on their way into a table: one operation of a batch.

    ``keep`` keeps rows in memory until the batch is done.
    """

    rows: DataFrame
    table: LiveTable
    survey: Survey
    share: Share
    keep: Callable[[DataFrame], DataFrame]
    key: tuple[str, ...] = ()
    changes: bool = False


def write(batch: BatchBuilder, load: Load, spec: JobSpec) -> None:
    """Add to a batch the operation that the spec's mode asks for."""
    target, name = spec.target, load.table.ref.name
    contract = contract_of(spec, changes=load.changes)
    match target.mode:
        case "append":
            rows = trimmed(_logged(load) if load.changes else load.rows)
            if load.changes:
                contract = contract_of(spec, changes=False, besides=f"{names.OP} IN ('d', 't')")
            batch.append(rows, name, contract=contract, share=load.share)
        case "upsert":
            order = target.order_by
            batch.upsert(
                trimmed(load.rows),
                name,
                key=load.key,
                order_by=order,
                delete_when=target.delete_when,
                terms=_newest(load, order),
                contract=contract,
                share=load.share,
            )
        case "mirror":
            if not load.changes:
                raise NotSupported(f"a mirror of {name} needs a source that gives changes")
            mirror(
                batch, load.rows, name, key=load.key, survey=load.survey, contract=contract,
                share=load.share,
            )  # fmt: skip
        case "history":
            how = Versions(
                key=load.key,
                names=target.history,
                order=(names.ORDER,) if load.changes else target.order_by,
                changes=load.changes,
            )
            held = load.rows.sparkSession.table(load.table.name.sql(load.table.catalog))
            contract = contract_of(spec, changes=False, besides=CLOSES)
            history(
                batch, load.rows, name, held=held, how=how, survey=load.survey,
                contract=contract, share=load.share, keep=load.keep,
            )  # fmt: skip
        case "replace":
            assert target.where is not None
            replace(
                batch, trimmed(load.rows), load.table, where=target.where, contract=contract,
                share=load.share,
            )  # fmt: skip
        case "replace_partitions":
            rows = trimmed(load.rows)
            batch.overwrite_partitions(rows, name, contract=contract, share=load.share)


def _logged(load: Load) -> DataFrame:
    """Return changes as rows of a log: each says what it did, where it lies, and when it was."""
    return load.rows.withColumns(
        {
            names.OP: F.col(envelope.OP),
            names.ORDER: F.col(envelope.ORDER),
            names.TIME: F.col(envelope.TIME),
        }
    )


def _newest(load: Load, order: Sequence[str]) -> Terms:
    """Return terms under which a row that comes late does not undo a newer one."""
    held = {field.name.lower() for field in load.table.schema.fields}
    if not order or not all(name.lower() in held for name in order):
        return PLAIN
    unknown = " OR ".join(f"t.{quote(name)} IS NULL" for name in order)
    given, known = (", ".join(f"{side}.{quote(name)}" for name in order) for side in ("s", "t"))
    return Terms(update_when=f"{unknown} OR struct({given}) >= struct({known})")
