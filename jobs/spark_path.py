"""Spark's path: records decoded in tasks become a data frame, for queries and MERGE.

Owns the data source by which tasks hand Arrow batches to Spark. Nothing is read before the frame is
used; whoever uses it more than once keeps it. Must never write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from jobs.sources.kafka_read import Piece
from jobs.tasks import rows as task
from jobs.tasks.facts import SPARK_TYPES
from jobs.tasks.rows import AROUND, RowsWork

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NAME = "odi_batch"


def frame(
    spark: SparkSession, work: RowsWork, groups: Sequence[Sequence[Piece]], columns: StructType
) -> DataFrame:
    """Return a batch's records as a frame: the decoded columns, then those around each row."""
    whole = StructType(
        [StructField(item.name, item.dataType, nullable=True) for item in columns.fields]
    )
    for name in work.facts:
        whole = whole.add(name, SPARK_TYPES[name])
    for name, kind in AROUND.items():
        whole = whole.add(name, kind)
    spark.dataSource.register(_source(work, [list(group) for group in groups], whole))
    return spark.read.format(NAME).load()


def _source(work: RowsWork, groups: list[list[Piece]], columns: StructType) -> type[DataSource]:
    # Made anew for each batch: what a task is told travels inside the class, never as an option,
    # because options are shown in plans.
    class Part(InputPartition):
        def __init__(self, number: int) -> None:
            self.number = number

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [Part(number) for number in range(len(groups))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            assert isinstance(partition, Part)
            yield from task.batches(work, groups[partition.number])

    class Batch(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - its signature
            return Reader()

    return Batch
