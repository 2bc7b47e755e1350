"""A task that turns ranges of a source into data files of a table, in Arrow from end to end.

Owns the loop of one task: read, decode, write rows and dead letters, report. Must never leave a
file behind that it does not report: an error removes what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.formats.types import spark_type, together
from jobs.sources.kafka_read import Piece, read
from jobs.tasks import facts
from jobs.tasks.dead_letters import Origin, letters
from jobs.tasks.decoders import Format, SchemasSeen
from jobs.tasks.records import Records
from odi_audit.catalog.data_files import DataFileWriter, arrow_schema_of, remove_files
from odi_audit.model.loose import LooseFile, LooseTable

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.decoded import Decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the records of a topic go: the table's name, its files, and the decoder."""

    table: str
    loose: LooseTable
    format: Format
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWork:
    """What every task of a batch is told. ``options`` may hold a secret: it is never shown."""

    bootstrap: str
    routes: Mapping[str, Route]
    origin: Origin
    dead: LooseTable | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    uncommitted: bool = False


@dataclass(slots=True, kw_only=True)
class Report:
    """What a task did: files by table (None: dead letters), counts, and how a table is too small.

    ``unknown`` are fields that a table lacks, ``wider`` columns that are too narrow, by table.
    """

    files: dict[str | None, list[LooseFile]] = field(default_factory=dict)
    unknown: dict[str, dict[str, str]] = field(default_factory=dict)
    wider: dict[str, dict[str, str]] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0
    rejects: int = 0
    reason: str | None = None
    schemas: SchemasSeen = field(default_factory=SchemasSeen)
    """The ids of schemas, in their registry, under which records were written."""


def carry_out(work: FilesWork, task: str, pieces: Sequence[Piece]) -> Report:
    """Read the pieces and write their files.

    Where a field is unknown to its table, nothing of the task is kept: the table is changed first,
    and the batch is read again.
    """
    report = Report()
    with ExitStack() as stack:
        tables = _Tables(work, task, stack, report)
        # Table after table: of many, only one is open at a time.
        in_turn = sorted(pieces, key=lambda piece: work.routes[piece.topic].table)
        for records in _records(work, in_turn):
            tables.take(records)
        if report.unknown or report.wider:
            # The block's error path removes what was written.
            raise NewFields(report)
        tables.close()
    return report


class NewFields(Exception):
    """Records hold fields that their table lacks."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report


class _Tables:
    """The open writers of a task, by table."""

    def __init__(self, work: FilesWork, task: str, stack: ExitStack, report: Report) -> None:
        self._work = work
        self._task = task
        self._stack = stack
        self._report = report
        self._routes: dict[str, _Route] = {}
        self._writers: dict[str, DataFileWriter] = {}
        self._dead: DataFileWriter | None = None
        self._dead_schema: pa.Schema | None = None

    def take(self, records: Records) -> None:
        route = self._route(records.topic)
        made = route.decoder.decode(records)
        report = self._report
        report.records += len(records)
        report.bytes += sum(map(len, filter(None, records.values)))
        for found, kept in ((made.unknown, report.unknown), (made.wider, report.wider)):
            if found:
                fields = {name: spark_type(kind) for name, kind in found.items()}
                kept[route.table] = together([kept.get(route.table, {}), fields])
        report.schemas.take(records.topic, made)
        if report.unknown or report.wider:
            return  # nothing of this attempt stays; the rest is only looked through
        if made.rejects:
            self._bury(records, made, route.table)
        if made.rows.num_rows:
            route.writer.write(route.with_facts(made, records))

    def close(self) -> None:
        for table, writer in self._writers.items():
            self._report.files[table] = writer.close()
        if self._dead is not None:
            self._report.files[None] = self._dead.close()

    def _close_all(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _route(self, topic: str) -> _Route:
        if topic not in self._routes:
            given = self._work.routes[topic]
            # One for each table, whichever topics feed it: it numbers the files.
            if given.table not in self._writers:
                self._close_all()
                writer = self._stack.enter_context(DataFileWriter(given.loose, self._task))
                self._writers[given.table] = writer
            self._routes[topic] = _Route(given, self._writers[given.table])
        return self._routes[topic]

    def _bury(self, records: Records, made: Decoded, table: str) -> None:
        report = self._report
        report.rejects += len(made.rejects)
        report.reason = report.reason or made.rejects[0].reason
        if self._work.dead is None:
            return  # the driver refuses the batch for them
        if self._dead is None:
            self._dead = self._stack.enter_context(DataFileWriter(self._work.dead, self._task))
            self._dead_schema = arrow_schema_of(self._work.dead)
        origin = self._work.origin
        rows = letters(records, made.rejects, origin, table=table, schema=self._dead_schema)
        self._dead.write(rows)


class _Route:
    """One topic's decoder and writer."""

    def __init__(self, given: Route, writer: DataFileWriter) -> None:
        import pyarrow as pa

        self.table = given.table
        self.writer = writer
        self._facts = given.facts
        whole = arrow_schema_of(given.loose)
        read = pa.schema([item for item in whole if item.name not in given.facts])
        self.decoder = given.format.decoder(read)

    def with_facts(self, made: Decoded, records: Records) -> pa.Table:
        rows = made.rows
        for name, column in zip(
            self._facts, facts.columns(self._facts, records, made.places), strict=True
        ):
            rows = rows.append_column(name, column)
        return rows


def _records(work: FilesWork, pieces: Sequence[Piece]) -> Iterator[Records]:
    read_all = read(work.bootstrap, work.options, list(pieces), uncommitted=work.uncommitted)
    for piece, messages in read_all:
        yield Records(topic=piece.topic, partition=piece.partition, messages=messages)


def remove(work: FilesWork, report: Report) -> None:
    """Remove files that a task has reported and that no batch will refer to."""
    for table, files in report.files.items():
        loose = work.dead if table is None else _loose_of(work, table)
        if loose is not None:
            remove_files(loose, [file.path for file in files])


def _loose_of(work: FilesWork, table: str) -> LooseTable | None:
    return next((item.loose for item in work.routes.values() if item.table == table), None)
