"""The other systems of the ingest benchmark: pinned jars, fetched once, as the tests' servers are.

Owns which versions are compared. Must never be needed by the product itself.
"""

from __future__ import annotations

from pathlib import Path

import pyspark

from odi_audit.settings import Settings
from odi_audit.spark.conf import jars_dir
from tests.support.servers import artifacts
from tests.support.servers.artifacts import Parts

SPARK_KAFKA = Parts(
    name="bench-spark-kafka-4.1.3",
    # The token provider of 4.1.3 was never published; that of 4.0.0 fits. So the list is flat.
    coordinates=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    sha256="fb302977ccc6719c353c20b543a0f181e2bcbfc51000c3354c27690aa2a03479",
)
ICEBERG_CONNECT = Parts(
    name="bench-iceberg-kafka-connect-1.12.0",
    coordinates=(
        "org.apache.iceberg:iceberg-kafka-connect:1.12.0",
        # What its distribution adds for files in Parquet.
        "org.apache.iceberg:iceberg-parquet:1.12.0",
    ),
    sha256="d7bdc05fab8ee2137b9ef6961fff0648f1e107ac4bf391126b4ec49fa4eaa2c0",
    without=("kafka-clients", "connect-api", "slf4j-api"),
)
FLINK = Parts(
    name="bench-flink-2.0.0",
    coordinates=(
        "org.apache.flink:flink-table-planner-loader:2.0.0",
        "org.apache.flink:flink-table-runtime:2.0.0",
        "org.apache.flink:flink-table-api-java-bridge:2.0.0",
        "org.apache.flink:flink-clients:2.0.0",
        "org.apache.flink:flink-connector-base:2.0.0",
        "org.apache.flink:flink-json:2.0.0",
        "org.apache.flink:flink-connector-kafka:4.0.1-2.0",
        "org.apache.iceberg:iceberg-flink-runtime-2.0:1.11.0",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
        "org.apache.logging.log4j:log4j-core:2.25.1",
    ),
    sha256="a48258b83e81ff5ed1292ea569f4e01ad17c88d69383e627c3b3d0d1be5f3e5c",
)


def flat(parts: Parts) -> list[Path]:
    """Return exactly the jars that are named, and nothing that they ask for."""
    return artifacts.jars(parts, deep=False)


def sqlite_jar(settings: Settings) -> Path:
    """Return the driver of the lake's catalog."""
    return next(jars_dir(settings).glob("sqlite-jdbc-*.jar"))


def hadoop_jars() -> list[Path]:
    """Return the Hadoop client that Spark brings: Iceberg opens local files through it."""
    folder = Path(pyspark.__file__).parent / "jars"
    return sorted(folder.glob("hadoop-client-*.jar"))
