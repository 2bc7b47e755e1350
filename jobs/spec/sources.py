"""Sources of a spec: Kafka, files, JDBC, another Iceberg table.

Owns the keys of each kind and their defaults. Rules between keys are in :mod:`jobs.spec.rules`.
Must never connect to anything.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal, TypeAlias, Union

from pydantic import AfterValidator, BeforeValidator, Field

from jobs.spec.fields import (
    ColumnName,
    ColumnSet,
    Duration,
    Moment,
    Names,
    Options,
    Part,
    Regex,
    Secret,
    Table,
    Text,
    one_or_many,
    within,
)
from odi_audit.urls import split_login

Kept: TypeAlias = Literal["topic", "partition", "offset", "timestamp", "key", "headers"]
Partition: TypeAlias = Annotated[int, Field(ge=0, le=2**31 - 1)]
Offset: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
_NO_TIME = timedelta(0)
_SERVER = re.compile(r"(?:[A-Za-z0-9_+]+://)?(?:\[[0-9A-Fa-f:]+\]|[^\s:/@]+):\d{1,5}")


def at_word(given: object) -> object:
    """Take ``earliest`` for ``{at: earliest}``."""
    return {"at": given} if isinstance(given, str) else given


def _servers(given: object) -> object:
    if isinstance(given, str):
        return [one.strip() for one in given.split(",") if one.strip()]
    return given


def _server(value: str) -> str:
    if not _SERVER.fullmatch(value):
        raise ValueError(f"found {value!r}; write host:port")
    return value


def _no_login(value: str) -> str:
    # The address is shown and recorded; a login in it would be too.
    if split_login(value.removeprefix("jdbc:")).password or re.search(
        r"[?&;](?:password|pwd)=", value, re.IGNORECASE
    ):
        raise ValueError("holds a password; write user and password under keys of their own")
    return value


def _jdbc(value: str) -> str:
    if not value.startswith("jdbc:"):
        raise ValueError("write a JDBC address such as jdbc:postgresql://host:5432/shop")
    return _no_login(value)


Url: TypeAlias = Annotated[Text, AfterValidator(_no_login)]


class KafkaStart(Part):
    """Where reading begins when the ledger has no position yet."""

    at: Literal["earliest", "latest"] | None = Field(None, description="An end of the topic.")
    timestamp: Moment | None = Field(
        None, description="The first record of this time or later, per partition."
    )
    offsets: dict[str, dict[Partition, Offset]] | None = Field(
        None, description="Topic, partition, and the first offset to read."
    )


class KafkaFormat(Part):
    """How the bytes of a record are read."""

    format: Literal["json", "avro", "text", "raw"] = Field(
        description="`avro` is the registry's wire format; `text` is one column of text; "
        "`raw` keeps the bytes."
    )
    columns: ColumnSet | None = Field(
        None, description="Columns and types; left out: the registry's, or what the records show."
    )


class KafkaSource(Part):
    """Topics of a Kafka cluster."""

    type: Literal["kafka"] = Field(description="This kind of source.")
    servers: Annotated[
        tuple[Annotated[Text, AfterValidator(_server)], ...],
        BeforeValidator(_servers),
        Field(min_length=1, max_length=100),
    ] = Field(description="Brokers to begin with, `host:port`; a list, or with commas.")
    topics: Names = Field((), description="Topics by name.")
    pattern: Regex | None = Field(
        None, description="Topics by a regular expression; new ones join without a restart."
    )
    start: Annotated[KafkaStart, BeforeValidator(at_word)] = Field(
        KafkaStart(at="earliest"),
        description="`earliest`, `latest`, a timestamp or offsets; only until the ledger has a "
        "position.",
    )
    value: KafkaFormat = Field(description="How a record's value is read.")
    key: KafkaFormat | None = Field(
        None,
        description="How a record's key is read; left out: it is not. `json`, `avro`: its fields "
        "are columns beside the value's, or one column `_key`; `text`, `raw`: column `_key`. Of "
        "change events it tells rows apart.",
    )
    envelope: Literal["none", "debezium"] = Field(
        "none", description="`debezium`: records are changes of a source table."
    )
    keep: Annotated[tuple[Kept, ...], BeforeValidator(one_or_many)] = Field(
        (), description="Facts of the record as columns, each with `_` in front."
    )
    options: Options = Field(
        {}, description="Settings of the Kafka client, such as `security.protocol`."
    )


class FilesSource(Part):
    """Files that arrive in a folder; each is read once."""

    type: Literal["files"] = Field(description="This kind of source.")
    path: Text = Field(
        description="A folder, or a pattern of files such as `inbox/*.csv`; relative to the spec."
    )
    format: Literal["csv", "json", "parquet", "avro"] = Field(
        description="`json` is one object per line."
    )
    columns: ColumnSet | None = Field(
        None, description="Columns and types; left out: what the files show."
    )
    settle: Annotated[Duration, within(_NO_TIME, timedelta(days=1))] = Field(
        timedelta(seconds=10),
        description="A file that changed this recently is left alone: it may be half written.",
    )
    options: Options = Field(
        {},
        description="Of CSV: `delimiter`, `quote`, `escape`, `header`, `nullValue`, `encoding`.",
    )


class Watermark(Part):
    """The column by which new and changed rows of a database table are found."""

    column: ColumnName = Field(description="A column that only grows, such as `updated_at`.")
    overlap: Annotated[Duration, within(_NO_TIME, timedelta(days=30))] = Field(
        _NO_TIME,
        description="Read this much again for rows that were committed late; needs a key.",
    )
    start: Text | None = Field(None, description="The first value to read; left out: the least.")


class JdbcSource(Part):
    """A table or query of a database, read by a watermark."""

    type: Literal["jdbc"] = Field(description="This kind of source.")
    url: Annotated[Text, AfterValidator(_jdbc)] = Field(
        description="`jdbc:postgresql://host:5432/shop`, without a login."
    )
    user: Text | None = Field(None, description="The database's user.")
    password: Secret | None = Field(None, description="Its password, as `${NAME}`.")
    table: Text | None = Field(None, description="The table to read, in the database's words.")
    query: Text | None = Field(None, description="A query to read in its place.")
    watermark: Watermark = Field(description="How new rows are found.")
    columns: ColumnSet | None = Field(
        None, description="Columns and types; left out: the database's."
    )
    fetch_rows: int = Field(
        10_000, ge=1, le=1_000_000, description="Rows per round trip to the database."
    )
    options: Options = Field({}, description="Further settings of Spark's JDBC reader.")


class TableStart(Part):
    """Where reading a table begins when the ledger has no position yet."""

    at: Literal["earliest", "latest"] | None = Field(
        None, description="`earliest`: every row there is; `latest`: only what comes."
    )
    snapshot: Annotated[str, Field(pattern=r"^\d{1,19}$")] | None = Field(
        None, description="What came after this snapshot; its id in quotes."
    )
    tag: Text | None = Field(None, description="What came after this tag.")
    batch: Annotated[str, Field(pattern=r"^b-[0-9a-f]{4,32}$")] | None = Field(
        None, description="What came after this batch."
    )
    timestamp: Moment | None = Field(None, description="What came after this time.")


class IcebergSource(Part):
    """Another table of the lake, for tables that are made of it."""

    type: Literal["iceberg"] = Field(description="This kind of source.")
    table: Table = Field(description="The table to read.")
    read: Literal["changes", "appends", "rows"] = Field(
        "changes",
        description="`changes`: inserts, updates and deletes since the position; `appends`: new "
        "rows only, anything else stops the job; `rows`: all rows that match, each time.",
    )
    start: Annotated[TableStart, BeforeValidator(at_word)] = Field(
        TableStart(at="earliest"), description="Only until the ledger has a position."
    )
    where: Text | None = Field(None, description="A condition on the rows, in SQL.")
    consumer: Text | None = Field(
        None, description="The name under which the reading is on record; left out: the job's."
    )


Source: TypeAlias = Annotated[
    Union[KafkaSource, FilesSource, JdbcSource, IcebergSource], Field(discriminator="type")
]
HistorySource: TypeAlias = Annotated[
    Union[FilesSource, JdbcSource, IcebergSource], Field(discriminator="type")
]
