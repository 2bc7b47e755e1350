"""The conf of Spark for a lake, as plain strings.

Owns every key that is set, also for ``spark-submit``. Must never import pyspark: printing the
conf starts nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from odi_audit.errors import SparkError
from odi_audit.settings import Settings, catalog_spark_conf, jar_sets
from odi_audit.spark import jars
from odi_audit.spark.listener import JAR_SET, with_listener

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
LOCAL_SHUFFLE_PARTITIONS = 8
"""Enough for the cores of a laptop; Spark's 200 would cost more than most batches themselves."""
PYTHON_DAEMON = "jobs.tasks.daemon"
"""Forks Python workers that need not import anything first."""
TABLE_DEFAULTS = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.target-file-size-bytes": "134217728",
    "write.parquet.row-group-size-bytes": "16777216",
    "write.distribution-mode": "hash",
    "write.wap.enabled": "true",
}
"""Properties of a new table; ``create_table`` may set others.

Row groups smaller than files: their statistics let a trace skip most of a large, compacted file.
"""


def spark_conf(settings: Settings, *, spool: Path | None = None) -> dict[str, str]:
    """Return the conf of a session for this lake; secrets are in it: mask before showing.

    With ``spool`` openlineage-spark listens, and writes its events to that file.
    """
    name = settings.catalog.name
    local = settings.spark.master.startswith("local")
    conf = {
        "spark.master": settings.spark.master,
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.jars": ",".join(
            str(path) for path in jars.paths(jars_dir(settings), jar_sets(settings))
        ),
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(settings.lake.root / ".spark" / "warehouse"),
        "spark.driver.extraJavaOptions": _java_options(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **catalog_spark_conf(settings),
        **{
            f"spark.sql.catalog.{name}.table-default.{key}": value
            for key, value in TABLE_DEFAULTS.items()
        },
    }
    if local:
        # Bound to loopback: a laptop's host name often resolves to nothing, or to the world.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Only here: workers have our Python, so they have the module too (docs/adr/0017).
        conf["spark.python.daemon.module"] = PYTHON_DAEMON
    partitions = settings.spark.shuffle_partitions or (LOCAL_SHUFFLE_PARTITIONS if local else None)
    if partitions is not None:
        conf["spark.sql.shuffle.partitions"] = str(partitions)
    conf |= settings.spark.conf
    if spool is None:
        return conf
    listening = jars.paths(jars_dir(settings), [JAR_SET])
    return with_listener(conf, settings, file=spool, jars=listening, env=os.environ)


def jars_dir(settings: Settings) -> Path:
    """Return the folder of the jars, which loading the settings has filled in."""
    if settings.spark.jars_dir is None:
        raise SparkError("spark.jars_dir is not set", hint="load the settings with settings.load")
    return settings.spark.jars_dir


def _java_options() -> str:
    # A URI, so that a space in the path does not split the option.
    log4j = (Path(__file__).parent / "log4j2.properties").resolve().as_uri()
    return f"-Dlog4j2.configurationFile={log4j}"
