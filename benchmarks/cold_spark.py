"""The other side of a cold trace: one PySpark process that finds a row and the batches behind it.

Owns what a careful user of plain Spark would write: the row with its lineage columns in one
query, and the snapshots' own numbers and stamps for the batches. Must never import the library:
its start is part of what is measured.

    python -m benchmarks.cold_spark CONF_FILE TABLE ID
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    """Print the batch that a row was born in and the one that changed it last."""
    conf_file, table, wanted = sys.argv[1:]
    builder = SparkSession.builder.appName("cold-trace")
    for key, value in json.loads(Path(conf_file).read_text()).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    row = spark.sql(
        "SELECT *, _row_id, _last_updated_sequence_number, _file, _pos "
        f"FROM {table} WHERE id = {int(wanted)}"
    ).collect()[0]
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    found = gateway.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, table
    )
    born = changed = None
    for snapshot in found.snapshots():
        batch = dict(snapshot.summary()).get("odi.batch-id")
        first, added = snapshot.firstRowId(), snapshot.addedRows()
        if first is not None and first <= row["_row_id"] < first + (added or 0):
            born = batch
        if snapshot.sequenceNumber() == row["_last_updated_sequence_number"]:
            changed = batch
    print(json.dumps({"birth": born, "last_change": changed}))
    spark.stop()


if __name__ == "__main__":
    main()
