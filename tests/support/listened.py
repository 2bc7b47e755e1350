"""A process of its own: every plan through our reader, and written under openlineage-spark.

``python -m tests.support.listened FOLDER JAR…`` leaves ``ours.json`` and ``events.jsonl`` there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from odi_audit.canonical import JsonObject
from odi_audit.model.tables import parse
from odi_audit.spark.conf import EXTENSIONS
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import load
from odi_audit.spark.plan import of_change, of_frame, of_rows
from tests.support import plans


def session(folder: Path, jars: list[str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log4j = (Path(plans.__file__).parents[2] / "odi_audit/spark/log4j2.properties").as_uri()
    conf = {
        "spark.master": "local[2]",
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "spark"),
        "spark.sql.catalog.hd": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.hd.type": "hadoop",
        "spark.sql.catalog.hd.warehouse": str(folder / "lake"),
        "spark.sql.catalog.hd.cache-enabled": "false",
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": str(folder / "events.jsonl"),
        "spark.openlineage.columnLineage.datasetLineageEnabled": "true",
    }
    builder = SparkSession.builder.appName("listened")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def writes(spark: SparkSession, names: dict[str, str]) -> dict[str, JsonObject]:
    """Statements that change a table which is there; each on a table of its own."""
    made = {}
    for name in ("append", "merge", "update", "delete"):
        table = f"hd.db.out_{name}"
        spark.sql(f"CREATE TABLE {table} (id bigint, name string, rank bigint) USING iceberg")
        spark.sql(f"INSERT INTO {table} SELECT id, 'x', 1 FROM range(3)")
        target = load(Jvm(spark), "hd", parse(f"db.out_{name}"))
        statement = plans.WRITTEN.format(**names)
        source = spark.sql(statement)
        if name == "append":
            made[name] = of_rows(source, target)
            source.writeTo(table).append()
        elif name == "merge":
            made[name] = of_rows(source, target, key=["id"])
            spark.sql(
                f"MERGE INTO {table} t USING ({statement}) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        elif name == "update":
            changed = {"name": "concat(name, 'y')", "rank": "id"}
            made[name] = of_change(target, where="rank > 0", assignments=changed)
            spark.sql(f"UPDATE {table} SET name = concat(name, 'y'), rank = id WHERE rank > 0")
        else:
            made[name] = of_change(target, where="id = 1")
            spark.sql(f"DELETE FROM {table} WHERE id = 1")
    return made


def main(folder: Path, jars: list[str]) -> None:
    spark = session(folder, jars)
    names = {name: f"hd.db.{name}" for name in plans.TABLES} | {"files": str(folder / "files")}
    for name, columns in plans.TABLES.items():
        spark.sql(f"CREATE TABLE {names[name]} ({columns}) USING iceberg")
        spark.sql(plans.ROWS[name]).writeTo(names[name]).append()
    spark.table(names["cust"]).write.parquet(names["files"])
    ours = {}
    for name in [*plans.SQL, *plans.FRAMES]:
        frame = plans.frame_of(spark, name, names)
        ours[name] = of_frame(frame)
        frame.writeTo(f"hd.db.out_{name}").create()
    ours |= writes(spark, names)
    (folder / "ours.json").write_text(json.dumps(ours))
    # The listener empties its queue when Spark stops.
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
