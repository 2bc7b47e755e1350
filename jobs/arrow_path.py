"""The Arrow path: Spark schedules the tasks, and each turns its ranges into data files itself.

Owns how a batch is cut into tasks and how their reports come together. No row passes through the
JVM. Must never commit: the files are handed to the committer, which adds them in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from jobs.formats.types import together as all_columns
from jobs.sources.kafka_read import Piece
from jobs.tasks.files import FilesWork, NewFields, Report, carry_out, remove
from odi_audit.errors import OdiError
from odi_audit.model.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_ROWS_MIN = 20_000
"""Smaller pieces are not cut further: a task has to reach the broker first."""


def pieces_of(offsets: Offsets) -> list[Piece]:
    """Return what a batch's offsets name, partition by partition."""
    pieces = []
    for name, part in offsets.ranges.items():
        topic, _, partition = name.rpartition("-")
        assert isinstance(part.start, int)
        assert isinstance(part.end, int)
        pieces.append(Piece(topic=topic, partition=int(partition), start=part.start, end=part.end))
    return pieces


def cut(pieces: Iterable[Piece], tasks: int) -> list[list[Piece]]:
    """Spread pieces over at most so many tasks, of about the same number of offsets each.

    A piece may be cut in two; the parts of it go to tasks next to each other, in order.
    """
    todo = [piece for piece in pieces if piece.start < piece.end]
    total = sum(piece.end - piece.start for piece in todo)
    size = max(PIECE_ROWS_MIN, -(-total // max(1, tasks)))
    groups: list[list[Piece]] = []
    room = 0
    for piece in todo:
        at = piece.start
        while at < piece.end:
            if room <= 0:
                groups.append([])
                room = size
            end = min(piece.end, at + room)
            # No crumbs: what is left of a piece goes with the rest of it.
            if piece.end - end < PIECE_ROWS_MIN:
                end = piece.end
            groups[-1].append(
                Piece(topic=piece.topic, partition=piece.partition, start=at, end=end)
            )
            room -= end - at
            at = end
    return groups


def write_files(spark: SparkSession, work: FilesWork, groups: Sequence[Sequence[Piece]]) -> Report:
    """Run the tasks and return what they did, together; nothing refers to their files yet.

    Where a task fails, or finds fields that its table lacks, no file is left.

    Raises:
        SourceUnavailable, SourceChanged, SourceDenied: as the first task that failed says.
    """
    if not groups:
        return Report()
    numbered = [(number, list(group)) for number, group in enumerate(groups)]
    tasks = spark.sparkContext.parallelize(numbered, len(numbered))
    answers = tasks.map(_task(work)).collect()
    whole = together(answer for answer in answers if isinstance(answer, Report))
    failed = next((answer for answer in answers if isinstance(answer, OdiError)), None)
    if failed is not None or whole.unknown or whole.wider:
        remove(work, whole)
        whole.files.clear()
    if failed is not None:
        raise failed
    return whole


def together(reports: Iterable[Report]) -> Report:
    """Add up what tasks did; the first reason stays."""
    whole = Report()
    for report in reports:
        for table, files in report.files.items():
            whole.files.setdefault(table, []).extend(files)
        for found, kept in ((report.unknown, whole.unknown), (report.wider, whole.wider)):
            for table, fields in found.items():
                kept[table] = all_columns([kept.get(table, {}), fields])
        whole.records += report.records
        whole.bytes += report.bytes
        whole.rejects += report.rejects
        whole.reason = whole.reason or report.reason
        whole.schemas.add(report.schemas.sides)
    return whole


def _task(work: FilesWork) -> Callable[[tuple[int, list[Piece]]], Report | OdiError]:
    def run(numbered: tuple[int, list[Piece]]) -> Report | OdiError:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        number, pieces = numbered
        try:
            return carry_out(work, f"{number:05}-{attempt}", pieces)
        except NewFields as found:
            return found.report
        except OdiError as error:
            # An answer, not a failure: Spark would try the task again, and wrap what it says.
            return error

    return run
