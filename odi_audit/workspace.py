"""The workspace: a folder that is a lake, and the parts that its settings name.

Owns finding and making the folder, and wiring settings to catalog, ledger, key and Spark. Parts
are opened when first asked for, so that a command pays only for what it uses. Must never decide
anything about a batch.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import tomllib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from odi_audit import logs
from odi_audit.clock import Clock, SystemClock
from odi_audit.errors import ConfigError, LakeExists, LakeNotFound, StorageError
from odi_audit.settings import FILE_NAME, SQLITE, Loaded, Settings, catalog_file, ledger_url, load
from odi_audit.urls import split_login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.catalog import LakeCatalog
    from odi_audit.ledger.note import SigningKey
    from odi_audit.ledger.port import Ledger

CatalogType = Literal["sqlite", "postgresql", "rest"]
LAKE_VARIABLE = "ODI_LAKE"
HEADS = "heads"
DRAFT_NAME = ".odi.toml.draft"
"""Settings of a lake that is being made; becomes ``odi.toml`` when everything else is there."""

_CATALOG_SCHEMA = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL,
    table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000),
    previous_metadata_location VARCHAR(1000),
    iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255),
    property_value VARCHAR(1000),
    PRIMARY KEY (catalog_name, namespace, property_key)
);
"""
"""Iceberg's JDBC catalog, schema V1: the columns that both Spark and pyiceberg expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What ``init`` lets one choose; everything else is edited in ``odi.toml`` afterwards."""

    catalog_type: CatalogType = "sqlite"
    catalog_uri: str | None = None
    warehouse: str | None = None
    ledger_url: str = "sqlite:///ledger.db"


class Workspace:
    """A lake's folder with its settings; catalog, ledger and Spark are opened on first use."""

    def __init__(self, root: Path, loaded: Loaded, *, clock: Clock | None = None) -> None:
        self.root = root
        self.settings: Settings = loaded.settings
        self.origins: Mapping[str, str] = loaded.origins
        self._clock: Clock = clock or SystemClock()
        self._ledgers: dict[bool, Ledger] = {}
        self._catalog: LakeCatalog | None = None
        self._spark: SparkSession | None = None
        logs.configure(self.settings.log.format, self.settings.log.level)

    @classmethod
    def find(
        cls,
        lake: Path | None = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        overrides: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> Workspace:
        """Return the workspace named by ``lake``, else by ``ODI_LAKE``, else found upwards.

        Raises:
            LakeNotFound: there is none; ``odi-audit init`` makes one.
            ConfigError: its settings are wrong.
        """
        env = os.environ if env is None else env
        root = find_root(lake, env=env, cwd=cwd or Path.cwd())
        return cls(root, load(root, env, overrides), clock=clock)

    @classmethod
    def init(
        cls,
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        choices: Choices | None = None,
        token: str | None = None,
        clock: Clock | None = None,
    ) -> Workspace:
        """Make a workspace in ``folder``: settings, catalog, ledger, key, warehouse, heads.

        ``odi.toml`` comes last: an ``init`` that was cut short can be run again, and keeps what
        it made. ``token`` tells lakes of the same name apart in signed heads.

        Raises:
            LakeExists: the folder has an ``odi.toml`` already.
            ConfigError: the choices are wrong, or hold a password.
            StorageError: the folder cannot be written.
        """
        env = os.environ if env is None else env
        root = folder.resolve()
        path = root / FILE_NAME
        if path.exists():
            raise LakeExists(
                f"{root} is a lake already: it has {FILE_NAME}",
                hint=f"odi-audit doctor --lake {root}",
                root=str(root),
            )
        lake = name or _slug(root.name)
        draft = root / DRAFT_NAME
        origin = f"odi-audit.local/{_slug(lake)}-{token or secrets.token_hex(4)}"
        text = _toml(lake, _drafted_origin(draft) or origin, choices or Choices())
        try:
            root.mkdir(parents=True, exist_ok=True)
            draft.write_text(text, "utf-8")
            cls(root, load(root, env, file_name=DRAFT_NAME), clock=clock)._make_parts()
            draft.replace(path)
            return cls(root, load(root, env), clock=clock)
        except OSError as error:
            raise StorageError(
                f"a lake cannot be made in {root}: {error.strerror or error}",
                hint="choose a folder that can be written: odi-audit init DIR",
            ) from error

    @property
    def heads_dir(self) -> Path:
        """Where signed heads are written to, and looked for by ``ledger verify``."""
        return self.root / HEADS

    @property
    def clock(self) -> Clock:
        """The clock that the parts are given."""
        return self._clock

    def ledger(self, read_only: bool = False) -> Ledger:
        """Return the ledger; the same object on each call.

        Raises:
            LedgerMissing, LedgerTooNew, LedgerBroken, LedgerUnavailable: no ledger, no write.
        """
        if read_only not in self._ledgers:
            from odi_audit.ledger import open_ledger

            self._ledgers[read_only] = open_ledger(
                ledger_url(self.settings),
                clock=self._clock,
                read_only=read_only,
                busy_timeout_s=self.settings.ledger.busy_timeout_s,
            )
        return self._ledgers[read_only]

    def signing_key(self) -> SigningKey:
        """Return the key that heads are signed with, from the environment or its file.

        Raises:
            KeyProblem: it is missing, malformed, or open to other users.
        """
        from odi_audit.ledger.note import parse_signing_key, read_key

        ledger = self.settings.ledger
        if ledger.key is not None:
            return parse_signing_key(ledger.key.get_secret_value())
        return read_key(ledger.key_path)

    def catalog(self) -> LakeCatalog:
        """Return the catalog as the reader sees it, without a JVM; the same object each time.

        Raises:
            CatalogUnavailable: it does not answer, or is gone.
        """
        if self._catalog is None:
            from odi_audit.catalog import open_catalog

            self._catalog = open_catalog(self.settings)
        return self._catalog

    def spark(self, app_name: str = "odi-audit", *, listener: bool = False) -> SparkSession:
        """Return a Spark session on this lake: the one given to :meth:`use_spark`, or its own.

        With ``listener``, or where the setting ``spark.listener`` says so, it has openlineage-spark
        beside us, whose events wait in the lake's spool folder for the relay.

        Raises:
            JavaMissing, JarError, SparkError: what Spark needs is not there.
            StorageError: the spool folder cannot be written.
        """
        listening = listener or self.settings.spark.listener
        if self._spark is None:
            from odi_audit.spark.session import session

            return session(self.settings, app_name=app_name, listening=listening)
        if listener:
            from odi_audit.spark.session import check_listens

            check_listens(self._spark)
        return self._spark

    def use_spark(self, session: SparkSession) -> None:
        """Have this workspace use a session that somebody else made.

        Raises:
            SparkError: it is not on this lake's catalog; what it lacks is in the message.
        """
        from odi_audit.spark.session import check_fits

        check_fits(session, self.settings)
        self._spark = session

    def spark_conf(self, *, listener: bool = False) -> dict[str, str]:
        """Return the conf of such a session, for ``spark-submit``; secrets are in it.

        With ``listener`` it names a spool file of its own: each process needs another.
        """
        from odi_audit.spark.conf import spark_conf
        from odi_audit.spark.listener import new_file

        listening = listener or self.settings.spark.listener
        return spark_conf(self.settings, spool=new_file(self.settings) if listening else None)

    def close(self) -> None:
        """Close what was opened, Spark excepted: others may use its session."""
        for opened in self._ledgers.values():
            opened.close()
        self._ledgers.clear()
        self._catalog = None

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_parts(self) -> None:
        from odi_audit.ledger import create_ledger
        from odi_audit.ledger.note import signing_key, write_key

        if self.settings.catalog.warehouse and "://" not in self.settings.catalog.warehouse:
            Path(self.settings.catalog.warehouse).mkdir(parents=True, exist_ok=True)
        self.heads_dir.mkdir(exist_ok=True)
        file = catalog_file(self.settings)
        if file is not None:
            make_catalog_file(file)
        if self.settings.ledger.key is None and not self.settings.ledger.key_path.exists():
            key = signing_key(self.settings.ledger.origin, secrets.token_bytes(32))
            write_key(self.settings.ledger.key_path, key)
        create_ledger(ledger_url(self.settings), clock=self._clock).close()


def find_root(lake: Path | None, *, env: Mapping[str, str], cwd: Path) -> Path:
    """Return the folder of the workspace, without loading it.

    Raises:
        LakeNotFound: the named folder has no ``odi.toml``, or none was found upwards.
    """
    named = lake or (Path(env[LAKE_VARIABLE]) if env.get(LAKE_VARIABLE) else None)
    if named is not None:
        root = (cwd / named.expanduser()).resolve()
        if not (root / FILE_NAME).is_file():
            raise LakeNotFound(
                f"no lake in {root}: it has no {FILE_NAME}", hint=f"odi-audit init {root}"
            )
        return root
    start = cwd.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise LakeNotFound(
        f"no lake here: no {FILE_NAME} in {start} or above it",
        hint="odi-audit init my-lake, or name one with --lake DIR or ODI_LAKE",
    )


def make_catalog_file(path: Path) -> None:
    """Make the SQLite catalog that Spark and pyiceberg share; keeps what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        # Readers do not block the committer, nor it them.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(_CATALOG_SCHEMA)


def _drafted_origin(draft: Path) -> str | None:
    # The key that an earlier, cut-short init made bears this name: it must stay.
    try:
        return str(tomllib.loads(draft.read_text("utf-8"))["ledger"]["origin"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "lake"


def _toml(name: str, origin: str, choices: Choices) -> str:
    _check_written(name, origin, choices)
    server = choices.catalog_type != "sqlite"
    uri = choices.catalog_uri or ("" if server else "catalog.db")
    warehouse = choices.warehouse or (None if choices.catalog_type == "rest" else "warehouse")
    return f"""\
# A lake of odi-audit. Paths are relative to this folder.
# `odi-audit config` shows every value and where it comes from; ODI_<SECTION>__<KEY> in the
# environment wins over this file. Keep passwords there, not here.

[lake]
name = {_quoted(name)}

[catalog]
type = {_quoted(choices.catalog_type)}  # sqlite, postgresql (uri = postgresql://host/db) or rest
name = "lake"  # the catalog's name in Spark SQL: lake.sales.orders
uri = {_quoted(uri)}
{"" if warehouse is None else f"warehouse = {_quoted(warehouse)}"}

[ledger]
url = {_quoted(choices.ledger_url)}  # or postgresql://host/db
origin = {_quoted(origin)}  # the name in signed heads: never change it
key_path = "keys/ledger.key"

[spark]
master = "local[*]"
driver_memory = "2g"

[log]
format = "auto"  # readable on a terminal, JSON elsewhere
level = "info"
"""


def _check_written(name: str, origin: str, choices: Choices) -> None:
    if choices.catalog_type != "sqlite" and not choices.catalog_uri:
        raise ConfigError(
            f"a {choices.catalog_type} catalog needs its address",
            hint="odi-audit init --catalog-uri postgresql://host/db, or https://host for rest",
        )
    for url in (choices.catalog_uri or "", choices.ledger_url):
        if "://" in url and not url.startswith(SQLITE) and split_login(url).password:
            raise ConfigError(
                "a password would be written into odi.toml",
                hint="leave it out of the URL and set ODI_CATALOG__PASSWORD or "
                "ODI_LEDGER__PASSWORD in the environment",
            )
    for value in (name, origin, choices.catalog_uri or "", choices.ledger_url):
        if any(ord(char) < ord(" ") for char in value):
            raise ConfigError(f"{value!r} holds a control character")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
