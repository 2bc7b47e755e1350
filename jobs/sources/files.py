"""Files as a source of a job: a folder or pattern of CSV, JSON Lines, Parquet or Avro.

Owns which files come next, oldest first, and the rule that a file that was read stays as it was:
one that changed stops the job. A file is known by path, size and digest. Must never keep a
position: the ledger has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.formats.fitted import joined
from jobs.formats.types import spark_type
from jobs.patterns import names
from jobs.sources.base import Choices, Lag, Limits, Plan
from jobs.sources.files_folder import Content, Folder, Status
from jobs.spec.fields import revealed
from jobs.tasks import file_rows
from jobs.tasks.file_rows import FilePiece, FilesWork
from odi_audit import logs
from odi_audit.errors import SourceChanged, UsageError
from odi_audit.model.naming import of_location
from odi_audit.model.offsets import OffsetKind, Offsets, Range
from odi_audit.model.provenance import OFFSET, PARTITION
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from jobs.runner.tables import Growth
    from jobs.spec.model import JobSpec
    from jobs.spec.sources import FilesSource
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Position
    from odi_audit.spark.live import LiveTable

log = logs.get_logger(__name__)

SAMPLE_ROWS = 1_000
SAMPLE_FILES = 10
"""By which the columns of a new table are found, where the spec names none."""
SHOWN_MAX = 5
TRUST_S = 1.0
"""A file whose status is older than the intent of its batch by this is as it was then."""


class FilesFeed:
    """The files of one spec."""

    changes = False

    def __init__(
        self,
        spec: JobSpec,
        *,
        folder: Path,
        source: FilesSource | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        given = source or spec.source
        assert given.type == "files"
        self._spec = spec
        self._files: FilesSource = given
        self._options = revealed(given.options)
        if given.format == "csv":
            from jobs.formats.csv_rows import csv_options

            csv_options(self._options)
        elif self._options:
            raise UsageError(
                f"source.options: {', '.join(self._options)}: {given.format} has no options here"
            )
        self._folder = Folder(
            given.path, base=folder, form=given.format, settle_s=given.settle.total_seconds()
        )
        self._now = now
        self._learnt: tuple[object, dict[str, str]] = (None, {})

    def prepare(self, run: Run) -> None:  # noqa: ARG002 - the protocol's signature
        """Look at the folder once."""
        self._folder.look(self._now())

    def identity(self) -> str:
        """Return the name under which the ledger keeps what was read."""
        return self._folder.source

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
        """Return the oldest files that were not read yet, or None while none is due.

        Raises:
            SourceChanged: a file is not what it was when it was read, or all files are elsewhere.
        """
        listing = self._folder.look(self._now())
        new, changed = self._sorted(run, listing.finished, positions)
        if changed and not choices.generation:
            raise self._changed(changed, positions)
        moved = self._moved(positions, elsewhere)
        if moved and new and not choices.generation:
            raise self._elsewhere(moved)
        if listing.young and not (new or changed):
            log.info("files are left alone until they settle", files=listing.young)
        queue = changed or new
        if not queue or not (changed or self._due(queue, limits, waited_s)):
            return None
        taken, more = self._taken(queue, limits)
        if not taken:
            return None
        return Plan(
            offsets=Offsets(
                kind=OffsetKind.FILES,
                source=self.identity(),
                ranges={path: Range(None, content.place) for path, content in taken.items()},
            ),
            rows=sum(content.rows for content in taken.values()),
            more=more or bool(changed and new),
            generation=choices.generation if changed or moved else 0,
            news=tuple(f"{path} changed and is read again" for path in taken if changed),
        )

    def columns(self, run: Run, plan: Plan) -> dict[str, str]:  # noqa: ARG002 - as above
        """Return the columns that the spec names, or those that the plan's files show."""
        return self._decoded(plan)

    def frame(self, run: Run, plan: Plan, table: LiveTable | None) -> DataFrame:
        """Return the rows of the plan's files: the same rows whenever it is asked."""
        from pyspark.sql.pandas.types import to_arrow_schema

        from jobs.spark_path import arrow_frame, whole_schema

        columns = self._columns_of(plan, table)
        facts = (PARTITION, OFFSET) if self._spec.target.provenance == "row" else ()
        work = FilesWork(
            format=self._files.format,
            schema=to_arrow_schema(columns).serialize().to_pybytes(),
            options=self._options,
            facts=facts,
            strict=self._spec.target.evolve == "strict",
        )
        pieces = _pieces(plan.offsets)
        tasks = min(len(pieces), run.spark.sparkContext.defaultParallelism)
        made = arrow_frame(
            run.spark,
            whole_schema(columns, facts),
            _spread(pieces, tasks),
            lambda part: file_rows.batches(work, part),
        )
        _remember(made, pieces)
        return made

    def learn(self, plan: Plan, growth: Growth) -> None:
        """Decode a plan's records into more columns, where no table says which there are."""
        known = self._decoded(plan) | dict(growth.add) | dict(growth.widen)
        self._learnt = (plan.offsets, known)

    def lag(self, run: Run, positions: Mapping[str, Position]) -> Lag:  # noqa: ARG002
        """Return the records of the files that were not read yet, and the age of the oldest.

        A file that is settling counts as one: nobody knows yet what it will hold.
        """
        now = self._now()
        listing = self._folder.look(now)
        new = [item for item in listing.finished if item.path not in positions]
        rows = {item.path: found.rows for item in new if (found := self._folder.content(item))}
        if listing.young:
            rows["files that are settling"] = listing.young
        oldest = min((item.modified_ns for item in new), default=None)
        return Lag(rows=rows, seconds=None if oldest is None else max(0.0, now - oldest / 1e9))

    # -- what is new, and what is not what it was ---------------------------------------------

    def _sorted(
        self, run: Run, found: Sequence[Status], positions: Mapping[str, Position]
    ) -> tuple[list[Status], list[Status]]:
        new: list[Status] = []
        changed: list[Status] = []
        times: dict[int, float] = {}
        for item in found:
            last = positions.get(item.path)
            if last is None:
                new.append(item)
            elif not self._as_it_was(run, item, last, times):
                changed.append(item)
        return new, changed

    def _as_it_was(self, run: Run, item: Status, last: Position, times: dict[int, float]) -> bool:
        if str(last.end).partition(":")[0] != str(item.size):
            return False
        if self._folder.known(item) is None:
            if last.index not in times:
                times[last.index] = _intended_s(run, last.index)
            if item.changed_ns / 1e9 < times[last.index] - TRUST_S:
                return True
        content = self._folder.content(item)
        return content is None or content.place == last.end

    def _due(self, queue: Sequence[Status], limits: Limits, waited_s: float) -> bool:
        full = len(queue) >= self._spec.batch.files or (
            limits.bytes is not None and sum(item.size for item in queue) >= limits.bytes
        )
        if full or waited_s >= limits.seconds:
            return True
        known = [self._folder.known(item) for item in queue]
        return sum(found.rows for found in known if found is not None) >= limits.rows

    def _taken(self, queue: Sequence[Status], limits: Limits) -> tuple[dict[str, Content], bool]:
        """Take files up to the limits; a file is never split, so one alone may be larger."""
        taken: dict[str, Content] = {}
        size = rows = 0
        for item in queue:
            over = limits.bytes is not None and size + item.size > limits.bytes
            if taken and (over or len(taken) >= self._spec.batch.files):
                return taken, True
            content = self._folder.content(item)
            if content is None:
                continue  # it changes right now: next time
            if taken and rows + content.rows > limits.rows:
                return taken, True
            taken[item.path] = content
            size, rows = size + item.size, rows + content.rows
        return taken, False

    def _changed(
        self, changed: Sequence[Status], positions: Mapping[str, Position]
    ) -> SourceChanged:
        told = [
            f"{item.path} was {positions[item.path].end} in batch {positions[item.path].batch}, "
            f"is {found.place if (found := self._folder.content(item)) else item.size}"
            for item in changed[:SHOWN_MAX]
        ]
        more = f" and {len(changed) - SHOWN_MAX} more" if len(changed) > SHOWN_MAX else ""
        return SourceChanged(
            f"{len(changed)} files changed after they were read: {'; '.join(told)}{more}",
            hint="put the file back as it was and give the new content a new name; or read it "
            "again on purpose with --generation 1 (or higher): rows that it brought before stay, "
            "unless the job finds them by key",
            source=self.identity(),
            files=[item.path for item in changed[:SHOWN_MAX]],
        )

    def _moved(self, positions: Mapping[str, Position], elsewhere: Sequence[str]) -> list[str]:
        if positions:
            return []
        return sorted(name for name in elsewhere if name.startswith("file://"))

    def _elsewhere(self, moved: Sequence[str]) -> SourceChanged:
        return SourceChanged(
            f"the job has read files from {', '.join(moved[:SHOWN_MAX])}, and none from "
            f"{self.identity()}: files that were moved would be read a second time",
            hint="put the folder back, or correct source.path; to read the files that are there "
            "from the beginning on purpose, pass --generation 1 (or higher)",
            source=self.identity(),
            elsewhere=list(moved[:SHOWN_MAX]),
        )

    # -- columns ------------------------------------------------------------------------------

    def _columns_of(self, plan: Plan, table: LiveTable | None) -> StructType:
        from pyspark.sql.types import StructType

        if table is None:
            found = self._decoded(plan).items()
            made = StructType.fromDDL(", ".join(f"{quote(name)} {kind}" for name, kind in found))
            assert isinstance(made, StructType)
            return made
        hidden = {PARTITION, OFFSET, *names.added(self._spec.target, changes=self.changes)}
        return StructType([item for item in table.schema.fields if item.name not in hidden])

    def _decoded(self, plan: Plan) -> dict[str, str]:
        offsets, learnt = self._learnt
        if offsets == plan.offsets:
            return learnt
        if self._files.columns is not None:
            return {column.name: column.definition for column in self._files.columns.items}
        found = self._seen(plan)
        if not found:
            raise UsageError(
                f"no record of {', '.join(list(plan.offsets.ranges)[:SHOWN_MAX])} shows what the "
                "columns are",
                hint="name them in the spec: source.columns",
            )
        self._learnt = (plan.offsets, found)
        return found

    def _seen(self, plan: Plan) -> dict[str, str]:
        import pyarrow as pa

        empty = pa.schema([])
        work = FilesWork(
            format=self._files.format,
            schema=empty.serialize().to_pybytes(),
            options=self._options,
            rows_max=SAMPLE_ROWS,
        )
        found: dict[str, pa.DataType] = {}
        for _, made in file_rows.decoded(work, _pieces(plan.offsets)[:SAMPLE_FILES], empty):
            for name, kind in made.unknown.items():
                wanted = joined(found.get(name), kind)
                if wanted is not None:
                    found[name] = wanted
        return {name: spark_type(kind) for name, kind in found.items()}


def _intended_s(run: Run, index: int) -> float:
    """Return when the batch was begun whose landing is this entry: it was read after that."""
    ledger = run.parts.ledger
    entry = ledger.get(index)
    begun = entry if entry.intent is None else ledger.get(entry.intent)
    return datetime.fromisoformat(begun.time).timestamp()


def _remember(made: DataFrame, pieces: Sequence[FilePiece]) -> None:
    # Spark sees rows of a data source of ours: it cannot tell the folders behind them.
    from odi_audit.spark.plan import origins
    from odi_audit.spark.plan.values import Dataset

    named = [of_location(name) for name in sorted({str(Path(p.path).parent) for p in pieces})]
    datasets = [Dataset(namespace=it.namespace, name=it.name, kind="FILE") for it in named]
    output = made._jdf.queryExecution().analyzed().output()
    origins.remember(int(output.apply(0).exprId().id()), tuple(datasets))


def _pieces(offsets: Offsets) -> list[FilePiece]:
    return [FilePiece(path=path, content=str(part.end)) for path, part in offsets.ranges.items()]


def _spread(pieces: Sequence[FilePiece], tasks: int) -> list[list[FilePiece]]:
    """Deal files to tasks so that each has about as many bytes."""
    groups: list[list[FilePiece]] = [[] for _ in range(max(1, tasks))]
    sizes = [0] * len(groups)
    for piece in sorted(pieces, key=lambda item: (-_size(item), item.path)):
        least = sizes.index(min(sizes))
        groups[least].append(piece)
        sizes[least] += _size(piece)
    return groups


def _size(piece: FilePiece) -> int:
    return int(piece.content.partition(":")[0])
