"""Spark's path: records decoded in tasks become a data frame, for queries and MERGE.

Owns the data source by which tasks hand Arrow batches to Spark. Nothing is read before the frame is
used; whoever uses it more than once keeps it. Must never write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import DataType, StructField, StructType

from jobs.sources.kafka_read import Piece
from jobs.tasks import rows as task
from jobs.tasks.facts import SPARK_TYPES
from jobs.tasks.rows import AROUND, RowsWork

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NAME = "odi_batch"
Part = TypeVar("Part")


def frame(
    spark: SparkSession, work: RowsWork, groups: Sequence[Sequence[Piece]], columns: StructType
) -> DataFrame:
    """Return a batch's records as a frame: the decoded columns, then those around each row."""
    # Without any range there is still a task: its note says that nothing was read.
    parts = [list(group) for group in groups] or [[]]
    whole = whole_schema(columns, work.facts)
    return arrow_frame(spark, whole, parts, lambda group: task.batches(work, group))


def whole_schema(columns: StructType, facts: Sequence[str]) -> StructType:
    """Return the columns of a frame of records: decoded ones, facts, and those around each row."""
    more = {**{name: SPARK_TYPES[name] for name in facts}, **AROUND}
    return StructType(
        [StructField(item.name, item.dataType, nullable=True) for item in columns.fields]
        + [StructField(name, DataType.fromDDL(kind)) for name, kind in more.items()]
    )


def arrow_frame(
    spark: SparkSession,
    columns: StructType,
    parts: Sequence[Part],
    read: Callable[[Part], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Return a frame of what tasks read, one task for each part.

    What a task is told travels inside the data source's class, which is made anew for each batch,
    and never as an option, because options are shown in plans.
    """
    spark.dataSource.register(_source(columns, list(parts), read))
    return spark.read.format(NAME).load()


def _source(
    columns: StructType, parts: list[Part], read: Callable[[Part], Iterator[pa.RecordBatch]]
) -> type[DataSource]:
    class Numbered(InputPartition):
        def __init__(self, number: int) -> None:
            self.number = number

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [Numbered(number) for number in range(len(parts))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            assert isinstance(partition, Numbered)
            yield from read(parts[partition.number])

    class Batch(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - its signature
            return Reader()

    return Batch
