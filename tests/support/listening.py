"""A process of its own, with openlineage-spark beside us; the test reads what that left.

``python -m tests.support.listening FOLDER``: makes a lake there, works on it through the committer
and past it, and leaves ``told.json``: what each piece of work read, wrote and was.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import odi_audit as odi
from odi_audit.errors import OdiError
from odi_audit.workspace import Workspace

COLUMNS = "id bigint, name string"
SECRET = "hunter2-of-a-row"
HADOOP = {
    "spark.sql.catalog.hd": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.hd.type": "hadoop",
}


def main(folder: Path) -> None:
    Workspace.init(folder / "lake")
    lake = open_lake(folder)
    told: dict[str, Any] = {}
    spark = odi.session(lake, listener=True)
    write_files(folder / "in")
    for word, paths in reads(folder / "in").items():
        frame = spark.read.csv(paths, header=True, schema=COLUMNS)
        frame.write.parquet(str(folder / "out" / word))
    spark.sql(f"CREATE TABLE hd.db.t ({COLUMNS}) USING iceberg")
    spark.range(3).selectExpr("id", "'x' AS name").writeTo("hd.db.t").append()
    spark.table("hd.db.t").write.parquet(str(folder / "out" / "from_table"))
    files = sorted(str(path) for path in (folder / "in" / "flat").iterdir())
    flat = spark.read.csv(str(folder / "in" / "flat"), header=True, schema=COLUMNS)
    with odi.run("sales/imports", lake=lake) as run:
        told["run"] = run.run_id
        run.create_table("sales.orders", COLUMNS)
        told["append"] = run.append(flat, "sales.orders", offsets=odi.files(files)).batch
        one = spark.read.csv(str(folder / "in" / "one"), header=True, schema=COLUMNS)
        told["upsert"] = run.upsert(
            one, "sales.orders", key=["id"], offsets=odi.files([folder / "in" / "one" / "e.csv"])
        ).batch
        run.update("sales.orders", where=f"name = '{SECRET}'", set={"name": "'y'"})
        flat.filter(f"name <> '{SECRET}'").write.parquet(str(folder / "out" / "side"))
        broken = flat.selectExpr("id", f"CAST(raise_error('{SECRET}') AS string) AS name")
        with contextlib.suppress(OdiError):
            run.append(broken, "sales.orders", offsets=odi.once("broken"))
    sink = odi.sink("sales/stream", table="sales.orders", lake=lake)
    query = (
        spark.readStream.schema(COLUMNS)
        .csv(str(folder / "in" / "flat"))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sink.last is not None
    told["stream"] = sink.last.batch
    spark.stop()
    (folder / "told.json").write_text(json.dumps(told), "utf-8")


def open_lake(folder: Path) -> Workspace:
    conf = HADOOP | {"spark.sql.catalog.hd.warehouse": str(folder / "hadoop")}
    overrides = {
        "spark.master": "local[2]",
        "spark.driver_memory": "1g",
        "spark.shuffle_partitions": "2",
        "spark.conf": json.dumps(conf),
        "log.level": "error",
    }
    return Workspace.find(folder / "lake", overrides=overrides)


def write_files(folder: Path) -> None:
    for place in (
        "flat/a.csv",
        "flat/b.csv",
        "one/e.csv",
        "days/2026-11-16/c.csv",
        "keys/day=1/d.csv",
    ):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"id,name\n1,{SECRET}\n{len(place)},b\n", "utf-8")


def reads(folder: Path) -> dict[str, list[str]]:
    """What is read, by the word of where it is written to."""
    flat = folder / "flat"
    return {
        "folder": [str(flat)],
        "file": [str(flat / "a.csv")],
        "files": [str(flat / "a.csv"), str(flat / "b.csv")],
        "pattern": [str(flat / "*.csv")],
        "day": [str(folder / "days" / "2026-11-16")],
        "key": [str(folder / "keys" / "day=1")],
        "folders": [str(flat), str(folder / "keys" / "day=1")],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
