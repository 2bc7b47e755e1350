"""A real PostgreSQL for tests: its own folder and port, loopback only, gone at the end."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

SUPERUSER = "postgres"
START_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running server; every login needs its password."""

    host: str
    port: int
    password: str
    folder: Path

    def url(self, database: str, *, user: str = SUPERUSER, password: str | None = None) -> str:
        """Return the URL of a database for a user."""
        secret = self.password if password is None else password
        return f"postgresql://{user}:{secret}@{self.host}:{self.port}/{database}"

    def admin(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """Connect as the superuser, past everything under test."""
        return psycopg.connect(self.url(database), autocommit=True)

    def new_database(self) -> str:
        """Make an empty database and return its name."""
        name = f"t_{secrets.token_hex(6)}"
        with self.admin() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def new_login(self, *, createrole: bool = False) -> tuple[str, str]:
        """Make a login role without privileges and return its name and password."""
        name, password = f"u_{secrets.token_hex(6)}", secrets.token_hex(12)
        with self.admin() as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} {}").format(
                    sql.Identifier(name),
                    sql.Literal(password),
                    sql.SQL("CREATEROLE" if createrole else "NOCREATEROLE"),
                )
            )
        return name, password

    def stop(self, mode: str = "fast") -> None:
        """Stop the server (``immediate`` is a crash)."""
        _run(self.folder, "pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def start(self) -> None:
        """Start the server on its port."""
        options = (
            f"-p {self.port} -c listen_addresses={self.host} "
            f"-c unix_socket_directories={self.folder} -c max_connections=500 -c fsync=off"
        )
        _run(
            self.folder, "pg_ctl", "-D", str(self.folder / "data"), "-l",
            str(self.folder / "log"), "-o", options, "-w", "-t", str(START_TIMEOUT_S), "start",
        )  # fmt: skip


@contextlib.contextmanager
def running_postgres(*options: str) -> Iterator[PostgresServer]:
    """Start a server and stop it at the end. ``options`` are lines of postgresql.conf."""
    folder = Path(tempfile.mkdtemp(prefix="odi-pg-"))
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
        server = PostgresServer(
            host="127.0.0.1", port=_free_port(), password=secrets.token_hex(12), folder=folder
        )
        secret = folder / "password"
        secret.write_text(server.password, encoding="utf-8")
        secret.chmod(0o644)
        _run(
            folder, "initdb", "-D", str(folder / "data"), "-U", SUPERUSER, "-E", "UTF8",
            "--locale=C", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync",
        )  # fmt: skip
        secret.unlink()
        with (folder / "data" / "postgresql.conf").open("a", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in options)
        server.start()
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, program: str, *arguments: str) -> None:
    """Run a PostgreSQL program as a user that is not root; the server refuses root."""
    found = shutil.which(program) or _debian(program)
    user = "postgres" if os.geteuid() == 0 else None
    # Output goes to a file: a server that inherits a pipe keeps it open for ever.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [found, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            user=user,
            group=user,
            extra_groups=[] if user else None,
            timeout=START_TIMEOUT_S * 2,
            check=False,
        )
        if done.returncode:
            output.seek(0)
            told = output.read().decode("utf-8", "replace")
            raise RuntimeError(f"{program} failed ({done.returncode}): {told}")


def _debian(program: str) -> str:
    """Find a program where Debian keeps it, which is on nobody's path."""
    for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), reverse=True):
        return str(path)
    raise RuntimeError(f"{program} is not installed: apt install postgresql")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
