"""A ledger on the real PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import sql

from odi_audit.ledger.postgresql import SCHEMA
from tests.contract.ledger.places import Place
from tests.stack.postgres import PostgresServer


class PostgresPlace(Place):
    engine = "postgresql"

    def __init__(self, server: PostgresServer, database: str | None = None) -> None:
        self.server = server
        self.database = database or server.new_database()
        self.url = server.url(self.database)

    def copy(self) -> PostgresPlace:
        name = f"{self.database}_copy"
        with self.server.admin() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(self.database)
                )
            )
        return PostgresPlace(self.server, name)

    def attack(self, *statements: tuple[str, Sequence[Any]] | str) -> None:
        with self.server.admin(self.database) as connection, connection.transaction():
            connection.execute(f"SET LOCAL search_path = {SCHEMA}".encode())
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute("ALTER TABLE entries DROP CONSTRAINT IF EXISTS entries_idx_check")
            for item in statements:
                text, params = (item, None) if isinstance(item, str) else item
                connection.execute(text.replace("?", "%s").encode(), params)

    def look(self, text: str) -> list[tuple[Any, ...]]:
        with self.server.admin(self.database) as connection:
            connection.execute(f"SET search_path = {SCHEMA}".encode())
            return connection.execute(text.encode()).fetchall()
