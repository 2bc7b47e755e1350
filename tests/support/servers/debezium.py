"""PostgreSQL with its log read by Debezium into Kafka."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.stack.postgres import PostgresServer, running_postgres
from tests.support.servers.connect import Connect

_GUARD = Path(__file__).parent / "guard.py"
OPTIONS = ("wal_level = logical", "max_replication_slots = 20", "max_wal_senders = 20")


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A PostgreSQL server and the worker that reads its log."""

    server: PostgresServer
    connect: Connect

    def capture(self, name: str, database: str, tables: str, **options: str) -> None:
        """Start reading tables (``public.orders,public.items``) into topics ``name.schema.table``.

        ``options`` are settings of the connector, with ``_`` for ``.``.
        """
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": "postgres",
            "database.password": self.server.password,
            "database.dbname": database,
            "topic.prefix": name,
            "table.include.list": tables,
            "slot.name": f"odi_{name}",
            "publication.name": f"odi_{name}",
            "publication.autocreate.mode": "filtered",
            "decimal.handling.mode": "string",
            "provide.transaction.metadata": "true",
            "skipped.operations": "none",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        self.connect.add(name, config)


@contextlib.contextmanager
def running_database() -> Iterator[PostgresServer]:
    """Start a PostgreSQL whose log can be read; it goes when the tests go."""
    with running_postgres(*OPTIONS) as server:
        guard = subprocess.Popen(
            [
                sys.executable, "-S", "-E", str(_GUARD), str(server.folder), "--postmaster",
                str(server.folder / "data"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield server
        finally:
            guard.communicate(b"T", timeout=10)
