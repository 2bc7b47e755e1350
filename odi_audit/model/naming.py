"""OpenLineage names of datasets: the (namespace, name) pair by which graphs join.

Owns the one way in which a table, a topic or a file is named. The names follow OpenLineage's
naming rules and were made to equal those of openlineage-spark, which names a table by its location
and not by its catalog: with other names the graph would split in two. Must never reach anything:
every function is pure, and none looks whether the dataset is there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from odi_audit.errors import UsageError

LOCAL = "file"
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)$", re.DOTALL)
_SERVER = re.compile(r"^(?:\w+://)?(\[[^\]]+\]|[^:/\[\]]+):(\d+)$")
_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
"""Schemes whose names are keys without a leading slash; S3's several schemes mean one store."""
_DATABASES = {"postgres": "postgres", "postgresql": "postgres", "mysql": "mysql"}
_PORTS = {"postgres": 5432, "mysql": 3306}
_PORT = re.compile(r":\d+$")
_DATES = (
    re.compile(r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"),
    re.compile(r"(?P<d>[0-9]{2})\.(?P<m>[0-9]{2})\.(?P<y>[0-9]{4})"),
    re.compile(r"(?P<y>[0-9]{4})(?P<m>[0-9]{2})(?P<d>[0-9]{2})"),
)
_MONTH = re.compile(r"^[0-9]{4}(?:0[1-9]|1[0-2])$")
UNPLACED = "odi"
"""The namespace of what has a name but no place: sources that only their job knows."""
NAMESPACE_LENGTH_MAX = 1024
_REFUSED = re.compile(r"[^A-Za-z0-9:;=/_.@+-]")


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


def of_paths(paths: Iterable[str], *, files: Container[str] = ()) -> list[DatasetName]:
    """Name what was read together, by the paths that a reader was given.

    As openlineage-spark does: one path is what it is, be it a folder or a file; of several, those
    that are ``files`` count as their folder. Folders of partitions are named by what they divide.

    Raises:
        UsageError: a path is relative, or names no bucket.
    """
    given = list(dict.fromkeys(paths))
    if len(given) > 1:
        given = [posixpath.dirname(path) if path in files else path for path in given]
    return sorted({trimmed(of_location(path)) for path in given})


def trimmed(named: DatasetName) -> DatasetName:
    """Return the dataset that a folder is a partition of: ``/in/day=1`` is a part of ``/in``.

    Folders that are ``key=value``, a date or a month are partitions, also over several levels
    (``/in/2026/11/16``). openlineage-spark cuts the same.
    """
    parts = named.name.split("/")
    while (count := _partition_parts(parts)) > 0:
        del parts[-count:]
    return DatasetName(namespace=named.namespace, name="/".join(parts))


def _partition_parts(parts: Sequence[str]) -> int:
    """Return how many of the last parts name a partition."""
    depth = len(parts) - (1 if parts[0] == "" else 0)
    last = parts[-1]
    if depth > 1 and (last.count("=") == 1 or _is_date(last) or _is_month(last)):
        return 1
    if depth > 2 and _MONTH.match("".join(parts[-2:])):
        return 2
    if depth > 3 and _is_day("".join(parts[-3:])):
        return 3
    return 0


def _is_date(text: str) -> bool:
    """Say whether a folder is named by a date, with or without a time."""
    for form in _DATES:
        for match in form.finditer(text):
            if _is_day("".join(match[key] for key in ("y", "m", "d"))):
                rest = text.replace(match[0], "", 1).replace("T", "", 1).replace("Z", "", 1)
                return re.sub(r"[\s:.\-\d]", "", rest) == ""
    return False


def _is_month(text: str) -> bool:
    return _MONTH.match(text.replace("-", "", 1) if text[4:5] == "-" else text) is not None


def _is_day(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{8}", text):
        return False
    try:
        date(int(text[:4]), int(text[4:6]), int(text[6:]))
    except ValueError:
        return False
    return True


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


def of_database(url: str, table: str | None = None) -> DatasetName:
    """Name a database by its URL, JDBC or not, and a table in it where one is given.

    ``jdbc:postgresql://h/shop`` with ``public.orders`` is (``postgres://h:5432``,
    ``shop.public.orders``). A login and the parameters of the URL are never part of a name.

    Raises:
        UsageError: the URL names no host.
    """
    match = _SCHEME.match(url.removeprefix("jdbc:"))
    if match is None or not match[2]:
        raise UsageError(f"database URL {_without_login(url)!r} names no host")
    scheme = _DATABASES.get(match[1].lower(), match[1].lower())
    host = match[2].rpartition("@")[2]
    port = _PORTS.get(scheme)
    if port is not None and _PORT.search(host) is None:
        host = f"{host}:{port}"
    path = re.split(r"[?#;]", match[3], maxsplit=1)[0].strip("/")
    return DatasetName(
        namespace=f"{scheme}://{host}", name=".".join(part for part in (path, table) if part)
    )


def of_source(text: str) -> DatasetName | None:
    """Name what a batch's offsets call their source; None where that names no dataset.

    A location, a database's URL and ``kafka://host:port/topic`` are named as everywhere. A bare
    word that only its job understands is kept under the namespace ``odi``, so that the graph has
    a node for it which nothing else can be taken for.
    """
    match = _SCHEME.match(text)
    try:
        if match is None:
            named = (
                of_location(text)
                if text.startswith("/")
                else DatasetName(namespace=UNPLACED, name=text)
            )
        elif match[1].lower() in _DATABASES or text.startswith("jdbc:"):
            named = of_database(text)
        elif match[2] is None and match[1].lower() != LOCAL:
            named = DatasetName(namespace=UNPLACED, name=text)
        elif match[1].lower() == "kafka":
            named = DatasetName(namespace=f"kafka://{match[2]}", name=match[3].strip("/"))
        else:
            named = of_location(_without_login(text))
    except UsageError:
        named = DatasetName(namespace=UNPLACED, name=_without_login(text))
    return named if named.name else None


def accepted(namespace: str) -> str:
    """Return a namespace with what Marquez refuses in one (400) replaced by an underscore."""
    return _REFUSED.sub("_", namespace)[:NAMESPACE_LENGTH_MAX] or "_"


def _without_login(url: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]*@", "", url)
