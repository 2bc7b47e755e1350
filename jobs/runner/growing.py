"""A batch that does not fit its tables yet: they grow, and the batch is tried again.

Owns the signal from inside a batch, and how often a batch may ask for more. Must never let a table
grow where the spec is strict: there the decoder makes rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from jobs.runner.tables import Growth, grow
from odi_audit.committer.run import Run
from odi_audit.errors import CommitConflict, OdiError, Retry
from odi_audit.ids import BatchId

GROW_MAX = 5
"""Each try may find fields that the last one did not read far enough to see."""

Made = TypeVar("Made")


class TableTooSmall(OdiError):
    """Records hold fields that a table lacks, or values that a column is too narrow for."""

    code = "ODI-I04"
    retry = Retry.SAFE

    def __init__(self, growth: Mapping[str, Growth]) -> None:
        told = "; ".join(
            f"{table}: " + ", ".join([*item.add, *item.widen]) for table, item in growth.items()
        )
        super().__init__(
            f"the tables are changed before this batch can be written: {told}",
            hint="nothing: the job does it, and tries again",
        )
        self.growth = dict(growth)


def until_it_fits(
    run: Run, attempt: Callable[[], Made], *, batch: BatchId | None = None
) -> tuple[Made, tuple[str, ...]]:
    """Try a batch, and change its tables as long as it asks for that; return what changed.

    ``batch`` is its id: the history of a table then says which batch brought a column.

    Raises:
        CommitConflict: the tables were changed several times, and it still asks for more.
    """
    grown: list[str] = []
    for _ in range(GROW_MAX):
        try:
            return attempt(), tuple(dict.fromkeys(grown))
        except TableTooSmall as small:
            for table, growth in small.growth.items():
                if growth:
                    grow(run, table, growth, batch)
                    grown.append(table)
    raise CommitConflict(
        f"the tables {', '.join(dict.fromkeys(grown))} were changed {GROW_MAX} times for one "
        "batch, and it still does not fit",
        hint="look at the records: odi-audit jobs check SPEC",
    )
