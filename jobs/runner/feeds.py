"""What feeds a job on Spark's path: a source as the runner sees it, whatever kind it is.

Owns the words between a job that writes frames and the sources that give them. Must never know a
kind of source. A feed keeps no position: the ledger has it, so a restart is another plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.sources.base import Choices, Lag, Limits, Plan
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable


class Feed(Protocol):
    """Rows of a source in batches, as frames.

    ``changes`` says that its rows are changes of keyed rows: a frame then has the columns of
    :data:`jobs.formats.debezium_envelope.NEEDED` behind the table's own. A frame may also have
    columns of :data:`jobs.tasks.rows.AROUND`: where ``REASON`` is set the record is a dead letter,
    where ``NEWS`` is set it is a note about fields that the table lacks, and neither is a row.
    """

    changes: bool

    def prepare(self, run: Run) -> None:
        """Reach the source, and check what can be checked before the first batch.

        Raises:
            SourceUnavailable, SourceDenied, SourceNotFound: it could not be asked.
        """
        ...

    def identity(self) -> str:
        """Return the name under which the ledger keeps positions; after :meth:`prepare`."""
        ...

    def plan(
        self,
        run: Run,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        choices: Choices,
        elsewhere: Sequence[str] = (),
        waited_s: float = float("inf"),
    ) -> Plan | None:
        """Return the next batch, or None while none is due.

        Raises:
            Refused: the source is not what the positions say; the message names the choices.
        """
        ...

    def columns(self, run: Run, plan: Plan) -> dict[str, str]:
        """Return the columns of the rows, with types in Spark's words, to make a table of."""
        ...

    def frame(self, run: Run, plan: Plan, table: LiveTable | None) -> DataFrame:
        """Return the rows of a plan: the same rows whenever it is asked.

        ``table`` is where they go, as it is now; None where something stands between, such as a
        transform.
        """
        ...

    def lag(self, run: Run, positions: Mapping[str, Position]) -> Lag:
        """Return how far the positions are behind the source now."""
        ...
