"""A database table as a source of a job: rows by a watermark column, read up to a fixed place.

Owns which rows come next. A batch ends at the greatest watermark that there was when it was
planned, so the same plan reads the same rows as long as the database keeps them. Where rows are
found by key, the last value is read again together with the overlap, for rows that share it or
were committed late; those that the table has already are left out. Where they are appended, rows
with the greatest value wait until there is a greater one. A reading that others take over from ends
at the greatest watermark that it found first. Must never keep a position.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from jobs.sources.base import Choices, Lag, Limits, Plan
from jobs.sources.jdbc_asking import Database, Standing
from jobs.sources.jdbc_marks import Mark, MarkKind, Marks, kind_of
from odi_audit import logs
from odi_audit.errors import NotSupported, SourceChanged, UsageError
from odi_audit.model.offsets import OffsetKind, Offsets, Range
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from jobs.spec.model import JobSpec
    from jobs.spec.sources import JdbcSource
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable

log = logs.get_logger(__name__)

KEYED = frozenset({"upsert", "mirror", "history"})
LATE_S_MIN = 30.0
"""How often the overlap alone is looked at, at most: it is compared with the table."""
LATE = "overlap"
"""What is added to the column's name for the number of times that the overlap was read alone."""
_OTHERS = ("file://", "kafka://", "table:")
_TURN = "__odi_turn"


class JdbcFeed:
    """The rows of one spec."""

    changes = False

    def __init__(
        self, spec: JobSpec, *, source: JdbcSource | None = None, closed: bool = False
    ) -> None:
        """``closed``: what comes from now on is read elsewhere, so this reading has an end."""
        given = source or spec.source
        assert given.type == "jdbc"
        self._spec = spec
        self._jdbc: JdbcSource = given
        self._database = Database(given)
        self._keyed = spec.target.mode in KEYED
        self._closed = closed
        self._last: Mark | None = None
        self._marks: Marks | None = None
        self._looked = float("-inf")

    def prepare(self, run: Run) -> None:
        """Reach the database, and see that its watermark can be one.

        Raises:
            SourceUnavailable, SourceDenied, SourceNotFound: it could not be asked.
            NotSupported: the watermark is of a type without a common order.
        """
        schema = self._database.connect(run)
        if self._spec.target.provenance == "row":
            raise NotSupported(
                "target.provenance: row: rows of a database have no offset",
                hint="write provenance: batch; the watermark is a column of the row",
            )
        self._marks = Marks(kind=self._kind(schema), dialect=self._database.dialect)
        self._marks.back(0, self._jdbc.watermark.overlap)

    def identity(self) -> str:
        """Return the name under which the ledger keeps how far the table was read."""
        return self._database.name

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
        """Return the rows behind the position, up to the greatest watermark that there is now.

        Raises:
            SourceChanged: watermarks went back, or the job has read from another database.
        """
        last = positions.get(self._database.column)
        others = [name for name in elsewhere if not name.startswith(_OTHERS)]
        moved = last is None and bool(others)
        if moved and not choices.generation:
            raise self._elsewhere(others)
        start = self._start(last)
        found = self._database.standing(run, self._known(), start=self._lower(start), end=None)
        news = self._news(found)
        again = last is not None and self._went_back(run, found, last, choices)
        if again:
            start = self._given_start()
            found = self._database.standing(run, self._known(), start=start, end=None)
        end = self._end(found, start)
        if end is None:
            return self._late(run, positions, limits, news=news, waited_s=waited_s)
        rows = self._database.standing(run, self._known(), start=start, end=end).rows
        if rows < limits.rows and waited_s < limits.seconds:
            return None
        cut = self._cut(run, start, end, rows, limits)
        return self._planned(
            start=None if again or (last is None and start is None) else start,
            end=cut,
            rows=min(rows, limits.rows) if cut != end else rows,
            more=cut != end,
            identity=self._identity_of(last, choices, again=again),
            generation=choices.generation if again or moved else 0,
            news=news,
        )

    def columns(self, run: Run, plan: Plan) -> dict[str, str]:  # noqa: ARG002 - its signature
        """Return the columns that the spec names, or the database's."""
        if self._jdbc.columns is not None:
            return {column.name: column.definition for column in self._jdbc.columns.items}
        schema = self._database.connect(run)
        return {item.name: item.dataType.simpleString() for item in schema.fields}

    def frame(self, run: Run, plan: Plan, table: LiveTable | None) -> DataFrame:
        """Return the rows of a plan, each key once, and none that the table has as it is."""
        marks = self._known()
        part = plan.offsets.ranges[self._database.column]
        start = None if part.start is None else marks.mark(part.start)
        end = marks.mark(part.end)
        upper = None if self._takes_the_rest(start, end) else end
        rows = self._typed(self._database.rows(run, marks, start=self._lower(start), end=upper))
        if not self._keyed:
            return rows
        target = self._spec.target
        if target.mode == "upsert" and not target.order_by and isinstance(target.key, tuple):
            rows = self._newest(rows, target.key)
        if table is None or start is None:
            return rows
        held = run.spark.table(table.name.sql(table.catalog))
        return _unless_held(rows, held)

    def lag(self, run: Run, positions: Mapping[str, Position]) -> Lag:
        """Return the rows behind the position."""
        last = positions.get(self._database.column)
        start = self._start(last)
        found = self._database.standing(run, self._known(), start=start, end=self._last)
        return Lag(rows={self._database.column: found.rows})

    # -- the range ----------------------------------------------------------------------------

    def _start(self, last: Position | None) -> Mark | None:
        return self._given_start() if last is None else self._known().mark(last.end)

    def _given_start(self) -> Mark | None:
        given = self._jdbc.watermark.start
        return None if given is None else self._known().mark(given)

    def _lower(self, start: Mark | None) -> Mark | None:
        """Return where reading begins: with the last value again, and the overlap before it."""
        if start is None or not self._keyed or start == self._given_start():
            return start
        return self._known().back(start - 1, self._jdbc.watermark.overlap)

    def _end(self, found: Standing, start: Mark | None) -> Mark | None:
        """Return where the batch ends, exclusive; None where there is nothing new."""
        if found.greatest is None:
            return None
        whole = self._keyed or self._closed
        end = found.greatest + 1 if whole else found.greatest
        if self._closed:
            # A database that is changed all the time would never be read to its end.
            self._last = end if self._last is None else self._last
            end = min(end, self._last)
        if start is not None and end <= start:
            return None
        if not whole and found.least == found.greatest and start is None:
            return None
        return end

    def _takes_the_rest(self, start: Mark | None, end: Mark) -> bool:
        """Say whether a batch is the last one, and takes what moved behind the end meanwhile.

        Whoever takes over has the changes of those rows, but a change need not hold all of a row.
        """
        return self._keyed and self._last is not None and start != end >= self._last

    def _cut(self, run: Run, start: Mark | None, end: Mark, rows: int, limits: Limits) -> Mark:
        """Return where a batch of so many rows ends: behind a value, never in the middle of one."""
        if rows <= limits.rows:
            return end
        marks = self._known()
        at = self._database.nth(run, marks, start=start, end=end, number=limits.rows)
        before = self._database.standing(run, marks, start=start, end=at).rows
        return at if before else min(at + 1, end)

    def _late(
        self,
        run: Run,
        positions: Mapping[str, Position],
        limits: Limits,
        *,
        news: tuple[str, ...],
        waited_s: float,
    ) -> Plan | None:
        """Plan the overlap alone, where it holds rows that the table has not, or not as they are.

        With a transform between nobody can tell: late rows then come with the next new one.
        """
        now = time.monotonic()
        last, name = positions.get(self._database.column), self._spec.target.table
        again_s = max(limits.seconds, LATE_S_MIN)
        due = waited_s == float("inf") or (
            waited_s >= limits.seconds and now - self._looked >= again_s
        )
        if last is None or not self._keyed or name is None or not due:
            return None
        self._looked = now
        if self._spec.transform is not None:
            return None
        from jobs.runner.tables import live

        table = live(run, name)
        if table is None:
            return None
        end = self._known().mark(last.end)
        made = self._planned(
            start=end,
            end=end,
            rows=0,
            identity=last.identity or self._known().kind.value,
            news=news,
        )
        count = self.frame(run, made, table).count()
        if not count:
            return None
        key = f"{self._database.column} {LATE}"
        before = int(positions[key].end) if key in positions else 0
        counted = {**made.offsets.ranges, key: Range(before, before + 1)}
        told = f"{count} rows of the overlap came late or changed without a newer watermark"
        return replace(
            made, offsets=replace(made.offsets, ranges=counted), rows=count, news=(*news, told)
        )

    def _planned(
        self,
        *,
        start: Mark | None,
        end: Mark,
        rows: int,
        identity: str,
        more: bool = False,
        generation: int = 0,
        news: tuple[str, ...] = (),
    ) -> Plan:
        marks, column = self._known(), self._database.column
        first = None if start is None else marks.place(start)
        return Plan(
            offsets=Offsets(
                kind=OffsetKind.WATERMARK,
                source=self.identity(),
                ranges={column: Range(first, marks.place(end))},
                identity={column: identity},
            ),
            rows=rows,
            more=more,
            generation=generation,
            news=news,
        )

    # -- what stops the job, and what is told --------------------------------------------------

    def _went_back(self, run: Run, found: Standing, last: Position, choices: Choices) -> bool:
        marks = self._known()
        kind = (last.identity or marks.kind.value).partition(" ")[0]
        if kind != marks.kind.value:
            raise SourceChanged(
                f"{self.identity()}: column {self._database.column} was a {kind} in batch "
                f"{last.batch} and is a {marks.kind.value}",
                hint="read it under a new job name",
            )
        read = marks.mark(last.end) - 1
        greatest = found.greatest
        if greatest is None:
            # Nothing from the overlap on: is there anything before it?
            greatest = self._database.standing(run, marks, start=None, end=None).greatest
        if greatest is None or greatest >= read - (0 if self._keyed or self._closed else -1):
            return False
        if self._closed and self._keyed:
            return False  # what became of them since is read elsewhere
        if choices.generation:
            return True
        raise SourceChanged(
            f"{self.identity()} was read up to {self._database.column} = {marks.place(read)} in "
            f"batch {last.batch}, but its greatest is {marks.place(greatest)} now: the database "
            "was restored, or its newest rows were deleted; new rows may come below what was read",
            hint="to read the table again from its beginning, pass --generation 1 (or higher); "
            "to go on, bring the rows back",
            source=self.identity(),
        )

    def _identity_of(self, last: Position | None, choices: Choices, *, again: bool) -> str:
        kind = self._known().kind.value
        if again:
            return f"{kind} generation {choices.generation}"
        return kind if last is None or last.identity is None else last.identity

    def _elsewhere(self, others: Sequence[str]) -> SourceChanged:
        return SourceChanged(
            f"the job has read from {', '.join(sorted(others)[:5])}, and not from "
            f"{self.identity()}: watermarks of one database mean nothing in another",
            hint="correct source.url; to read this one from its beginning on purpose, pass "
            "--generation 1 (or higher)",
            source=self.identity(),
        )

    def _news(self, found: Standing) -> tuple[str, ...]:
        if not found.nulls:
            return ()
        told = (
            f"{found.nulls} rows of {self.identity()} have no {self._database.column}: "
            "they are never read"
        )
        log.warning("rows without a watermark", source=self.identity(), rows=found.nulls)
        return (told,)

    # -- rows ---------------------------------------------------------------------------------

    def _kind(self, schema: StructType) -> MarkKind:
        column = self._database.column
        found = {item.name.lower(): item.dataType.simpleString() for item in schema.fields}
        if column.lower() not in found:
            raise UsageError(
                f"{self.identity()} has no column {column}, which source.watermark names",
                hint=f"it has {', '.join(schema.names)}",
            )
        return kind_of(found[column.lower()], column)

    def _known(self) -> Marks:
        assert self._marks is not None, "prepare comes first"
        return self._marks

    def _typed(self, rows: DataFrame) -> DataFrame:
        if self._jdbc.columns is None:
            return rows
        return rows.select(
            *[F.col(quote(it.name)).cast(it.type).alias(it.name) for it in self._jdbc.columns.items]
        )

    def _newest(self, rows: DataFrame, key: Sequence[str]) -> DataFrame:
        window = Window.partitionBy(*[F.col(quote(name)) for name in key]).orderBy(
            F.col(quote(self._database.column)).desc()
        )
        turned = rows.withColumn(_TURN, F.row_number().over(window))
        return turned.filter(F.col(_TURN) == 1).drop(_TURN)


def _unless_held(rows: DataFrame, held: DataFrame) -> DataFrame:
    """Leave out rows that a table has exactly as they are."""
    known = {name.lower(): name for name in held.columns}
    if any(name.lower() not in known for name in rows.columns):
        return rows  # a column is new: every row has something that the table lacks
    left, right = rows.alias("odi_new"), held.alias("odi_held")
    same = [
        F.col(f"odi_new.{quote(item.name)}").eqNullSafe(
            F.col(f"odi_held.{quote(known[item.name.lower()])}")
        )
        for item in rows.schema.fields
        if item.dataType.typeName() not in {"map", "variant"}
    ]
    whole = same[0]
    for part in same[1:]:
        whole = whole & part
    return left.join(right, whole, "left_anti")
