"""The Spark session: one function makes it ready.

Owns its start: Java, jars, conf. Must never change a session that somebody else made: such a
session is used as it is, or refused with what it lacks.
"""

from __future__ import annotations

import logging
import os
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odi_audit.errors import SparkError
from odi_audit.settings import Settings, catalog_spark_conf, jar_sets
from odi_audit.spark import jars, java, listener
from odi_audit.spark.conf import EXTENSIONS, TABLE_DEFAULTS, jars_dir, spark_conf

__all__ = [
    "EXTENSIONS",
    "TABLE_DEFAULTS",
    "check_fits",
    "check_listens",
    "session",
    "session_in",
    "spark_conf",
]

_QUIET_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark prints each analysis error as one huge JSON line there, before raising it."""


def session(settings: Settings, *, app_name: str, listening: bool = False) -> SparkSession:
    """Return a session on this lake: the active one if it fits, else a new one.

    With ``listening`` openlineage-spark is loaded, and keeps its events in the lake's spool folder.

    Raises:
        JavaMissing, JarError: install or fetch what the message names.
        SparkError: Spark did not start, or the active session has another catalog or no listener:
            stop it, or start it with the conf that ``odi-audit spark-conf`` prints.
        StorageError: the spool folder cannot be written.
    """
    _quiet_python_loggers()
    active = SparkSession.getActiveSession()
    if active is not None:
        check_fits(active, settings)
        if listening:
            check_listens(active)
        return active
    found = java.find(os.environ, home=settings.spark.java_home)
    jars.ensure(
        jars_dir(settings), [*jar_sets(settings), *([listener.JAR_SET] if listening else [])]
    )
    spool = listener.new_file(settings) if listening else None
    if spool is not None:
        listener.hold(spool)
    os.environ["JAVA_HOME"] = str(found.home)
    if settings.spark.master.startswith("local"):
        # Spark would take the first python3 on the PATH for its workers, which may be another.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for key, value in spark_conf(settings, spool=spool).items():
        builder = builder.config(key, value)
    try:
        made = builder.getOrCreate()
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        raise SparkError(
            f"Spark did not start with {found.home}: {type(error).__name__}: {error}",
            hint="odi-audit doctor",
            java_home=str(found.home),
        ) from error
    check_fits(made, settings)
    if listening:
        check_listens(made)
        listener.put_apart(made.sparkContext)
    return made


def session_in(running: SparkSession, settings: Settings) -> SparkSession:
    """Return a new session on this lake in a JVM that runs already, for another lake or none.

    The given session stays as it is. Its JVM must have the jars and the extensions.

    Raises:
        SparkError: it has not; start it with the conf that ``odi-audit spark-conf`` prints.
    """
    made = running.newSession()
    for key, value in spark_conf(settings).items():
        if key.startswith("spark.sql.catalog.") or key == "spark.sql.session.timeZone":
            made.conf.set(key, value)
    check_fits(made, settings)
    return made


def check_fits(active: SparkSession, settings: Settings) -> None:
    """Refuse a session that lacks this lake's catalog, or names another by its name.

    Raises:
        SparkError: the keys that are missing or different are in the message.
    """
    wanted = catalog_spark_conf(settings) | {"spark.sql.extensions": EXTENSIONS}
    lacking = [
        key
        for key, value in sorted(wanted.items())
        if (found := active.conf.get(key, None)) != value
        and not (key == "spark.sql.extensions" and EXTENSIONS in (found or ""))
    ]
    if lacking:
        raise SparkError(
            f"the active Spark session is not one for the lake at {settings.lake.root}: "
            f"it lacks or differs in {', '.join(lacking)}",
            hint="stop it first, or start it with what odi-audit spark-conf prints",
            lacking=lacking,
        )


def check_listens(active: SparkSession) -> None:
    """Refuse a session without the listener: it is loaded when Spark starts, and not later.

    Raises:
        SparkError: it was started without.
    """
    if not listener.is_on(active.sparkContext):
        raise SparkError(
            "the active Spark session was started without openlineage-spark's listener",
            hint="stop it first, and ask for odi.session(listener=True) before anything else; or "
            "start it with what odi-audit spark-conf --listener prints",
        )


def _quiet_python_loggers() -> None:
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
