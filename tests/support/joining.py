"""One JVM for many Python processes: a child joins the Spark of the process that started it.

A JVM takes ten seconds to start, a Python process one. What a fault test kills is the Python
process, which holds everything that the committer knows; the JVM that outlives it is a zombie
like those of real life. Tests in ``tests/stack`` give every child a JVM of its own and kill both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.workspace import Workspace

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""PySpark's own variables, by which it finds a JVM that runs already."""


def address(spark: SparkSession) -> dict[str, str]:
    """Return the environment by which a child finds this process's JVM."""
    gateway: Any = spark.sparkContext._gateway
    parameters = gateway.gateway_parameters
    return {PORT: str(parameters.port), SECRET: str(parameters.auth_token)}


def on(running: SparkSession, lake: Workspace) -> SparkSession:
    """Return a session on a lake, in a JVM that may have sessions on others."""
    from odi_audit.spark.session import session_in

    made = session_in(running, lake.settings)
    # Spark makes a session's catalog at its first use, with the conf of whichever session is the
    # active one: use it once while that is this one.
    made.sql(f"SHOW NAMESPACES IN {lake.settings.catalog.name}").collect()
    return made


def join() -> SparkSession:
    """Return a new session in the JVM that the environment names."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    assert PORT in os.environ
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    sql = gateway.jvm.org.apache.spark.sql.classic.SparkSession
    running = sql.getDefaultSession().get()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext
    context = SparkContext(
        gateway=gateway,
        jsc=java.fromSparkContext(running.sparkContext()),
        conf=SparkConf(_jconf=running.sparkContext().conf()),
    )
    return SparkSession(context, running.newSession())
