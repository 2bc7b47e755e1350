"""Spark's daemon of Python workers, which has what tasks import in memory before it forks them.

Owns that list. Without it each new worker takes two seconds of a core to import, and Spark ends a
worker that was idle for a minute: so would every batch of a job that commits once a minute. Must
never start a thread: it would not live on in the workers.

    spark.python.daemon.module=jobs.tasks.daemon
"""

from __future__ import annotations

import contextlib
import importlib

from pyspark.daemon import manager

LOADED = (
    "pyarrow.compute",
    "pyarrow.json",
    "pyarrow.parquet",
    "pyiceberg.io.pyarrow",
    "pyiceberg.partitioning",
    "confluent_kafka",
    "jobs.arrow_path",
)


def load() -> None:
    """Import it all; what is not installed here is not needed by any task either."""
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    load()
    manager()  # type: ignore[no-untyped-call]
