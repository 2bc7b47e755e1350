"""OpenLineage names of datasets: the (namespace, name) pair by which graphs join.

Owns the one way in which a table, a topic or a file is named. The names follow OpenLineage's
naming rules and were made to equal those of openlineage-spark, which names a table by its location
and not by its catalog: with other names the graph would split in two. Must never reach anything:
every function is pure, and none looks whether the dataset is there.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from odi_audit.errors import UsageError

LOCAL = "file"
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)$", re.DOTALL)
_SERVER = re.compile(r"^(?:\w+://)?(\[[^\]]+\]|[^:/\[\]]+):(\d+)$")
_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
"""Schemes whose names are keys without a leading slash; S3's several schemes mean one store."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DatasetName:
    """What OpenLineage calls a dataset."""

    namespace: str
    name: str


def of_location(location: str) -> DatasetName:
    """Name a table, or any folder or file, by where it lies.

    ``/lake/sales/orders`` and ``file:///lake/sales/orders`` are (``file``, ``/lake/sales/orders``);
    ``s3a://bucket/sales/orders`` is (``s3://bucket``, ``sales/orders``); any other scheme keeps its
    authority in the namespace and its path as the name. As in Hadoop, a location is not
    percent-decoded.

    Raises:
        UsageError: the location is empty, relative, or names no bucket.
    """
    match = _SCHEME.match(location)
    scheme, authority, path = (
        (match[1].lower(), match[2] or "", match[3]) if match else (LOCAL, "", location)
    )
    if scheme in _OBJECT_STORES:
        if not authority:
            raise UsageError(f"location {location!r} names no bucket")
        return DatasetName(
            namespace=f"{_OBJECT_STORES[scheme]}://{authority}", name=path.strip("/") or "/"
        )
    if not path.startswith("/"):
        raise UsageError(
            f"location {location!r} is not absolute", hint="name it from the root, like /lake/sales"
        )
    namespace = LOCAL if scheme == LOCAL else f"{scheme}://{authority}"
    return DatasetName(namespace=namespace, name="/" + path.strip("/"))


def of_file(path: str) -> DatasetName:
    """Name a local file by its absolute path, as the ledger's file offsets have it.

    Raises:
        UsageError: the path is relative.
    """
    if not posixpath.isabs(path):
        raise UsageError(f"file {path!r} has no absolute path, so its name would not be one")
    return DatasetName(namespace=LOCAL, name=path)


def of_topic(bootstrap: str, topic: str) -> DatasetName:
    """Name a Kafka topic by the first of its bootstrap servers.

    Two lists that begin with different servers of one cluster give different names: that is the
    rule of the naming scheme, so jobs on one cluster should write the list alike.

    Raises:
        UsageError: the first server is not ``host:port``, or the topic has no name.
    """
    first = bootstrap.split(",", maxsplit=1)[0].strip()
    match = _SERVER.match(first)
    if match is None:
        raise UsageError(f"bootstrap server {first!r} is not of the form host:port")
    if not topic:
        raise UsageError("a topic needs a name")
    return DatasetName(namespace=f"kafka://{match[1]}:{match[2]}", name=topic)
