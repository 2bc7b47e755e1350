"""Loose files: data files written by tasks, described for them and added to a staged change.

Owns the way from a table to what a task needs of it, and from a file on disk to Iceberg's
description of it. Column statistics are read from each file's own footer by Iceberg itself. Must
never commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from odi_audit.model.loose import FILE_BYTES, ROW_GROUP_BYTES, LooseFile, LooseTable
from odi_audit.spark.jvm import JavaObject
from odi_audit.spark.live import LiveTable

_CODEC = "write.parquet.compression-codec"
_ROW_GROUP = "write.parquet.row-group-size-bytes"
_FILE_SIZE = "write.target-file-size-bytes"
_MARK = "odi"


def loose_table(target: LiveTable, label: str) -> LooseTable:
    """Describe a table for tasks that write its files; ``label`` is part of the files' names."""
    jvm = target.jvm
    folder = str(target.java.locationProvider().newDataLocation(_MARK)).removesuffix(f"/{_MARK}")
    return LooseTable(
        folder=folder,
        schema_json=str(jvm.iceberg.SchemaParser.toJson(target.base.schema())),
        spec_json=str(jvm.iceberg.PartitionSpecParser.toJson(target.base.spec())),
        prefix=f"{label}-{secrets.token_hex(4)}",
        codec=target.property(_CODEC) or "zstd",
        row_group_bytes=int(target.property(_ROW_GROUP) or ROW_GROUP_BYTES),
        file_bytes=int(target.property(_FILE_SIZE) or FILE_BYTES),
    )


def described(target: LiveTable, table: JavaObject, files: Sequence[LooseFile]) -> list[JavaObject]:
    """Return Iceberg's description of each file, with the statistics of its columns."""
    # Each name of a package is a call into the JVM: they are looked up once, not for each file.
    iceberg = target.jvm.iceberg
    builders, footers = iceberg.DataFiles, iceberg.parquet.ParquetUtil
    spec, io = table.spec(), table.io()
    config = iceberg.MetricsConfig.forTable(table)
    made = []
    for file in files:
        builder = (
            builders.builder(spec)
            .withPath(file.path)
            .withFileSizeInBytes(file.bytes)
            .withFormat("PARQUET")
            .withMetrics(footers.fileMetrics(io.newInputFile(file.path), config))
        )
        if file.partition:
            builder = builder.withPartitionValues(list(file.partition))
        made.append(builder.build())
    return made
