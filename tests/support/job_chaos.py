"""What the chaos run of jobs is made of: jobs that are killed, producers that go on, trouble.

Jobs are real processes of the command line. Producers and the database's clients know nothing of
them. Every kind of trouble counts how often it struck: trouble that did not come proves nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import psycopg
from confluent_kafka import Producer

from odi_audit.errors import Exit
from tests.support.servers.topics import QUIET

BEGIN_WAIT_S_MAX = 180
"""A cold start beside others that also start."""
KILL_AFTER_S_MAX = 8.0
LANDS_FIRST = 0.35
"""The share of starts that are let alone until a batch has landed; the rest die on their way."""
DRAIN_WAIT_S_MAX = 420
MAY_END_WITH = {Exit.CONFLICT, Exit.UNKNOWN}
"""What a supervisor starts again without a person: the next start settles it."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One spec, run as a process again and again."""

    spec: Path
    lake: Path
    env: Mapping[str, str]
    rng: random.Random
    kills: int = 0
    restarts: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """Where its processes say what they do."""
        return self.spec.with_suffix(".log")

    def torment(self, enough: Callable[[], bool], stop: threading.Event) -> None:
        """Start it, kill it at random, start it again; until there was enough of that."""
        while not enough() and not stop.is_set() and not self.problems:
            child, before = self._start("--continuous"), self._batches()
            # Some kills strike while it starts, settles and reads, some while it works on and on.
            if self.rng.random() < LANDS_FIRST:
                self._wait(child, lambda before=before: self._batches() > before)
            if self._ended(child):
                continue
            time.sleep(self.rng.uniform(0, KILL_AFTER_S_MAX))
            if self._ended(child):
                continue
            child.send_signal(signal.SIGKILL)
            child.wait()
            self.kills += 1

    def drain(self) -> None:
        """Let it read its source to the end, unharmed."""
        child = self._start("--once")
        if child.wait(DRAIN_WAIT_S_MAX) != Exit.OK:
            self.problems.append(f"--once ended with {child.returncode}: {self.tail()}")

    def tail(self) -> str:
        """Return the last words of its processes."""
        return self.log.read_text("utf-8", "replace")[-3000:] if self.log.exists() else ""

    def _ended(self, child: subprocess.Popen[bytes]) -> bool:
        status = child.poll()
        if status is None:
            return False
        if status in MAY_END_WITH:
            self.restarts += 1
        else:
            self.problems.append(f"it ended with {status} by itself: {self.tail()}")
        return True

    def _start(self, how: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable, "-m", "odi_audit.cli", "run", str(self.spec), how,
                    "--lake", str(self.lake),
                ],
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip

    def _wait(self, child: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BEGIN_WAIT_S_MAX
        while child.poll() is None and not holds() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _batches(self) -> int:
        # The ledger's own file, past the product: how many batches of this job have landed.
        name = next(
            line.removeprefix("job:").strip()
            for line in self.spec.read_text("utf-8").splitlines()
            if line.startswith("job:")
        )
        with sqlite3.connect(f"file:{self.lake / 'ledger.db'}?mode=ro", uri=True) as connection:
            question = "SELECT count(*) FROM entry_index WHERE kind = 'landed' AND job = ?"
            return int(connection.execute(question, (name,)).fetchone()[0])


class Clicks:
    """Numbered JSON events, written while the broker comes and goes."""

    def __init__(self, bootstrap: str, topic: str, encode: Callable[[int], bytes]) -> None:
        self._producer = Producer(
            {**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True,
             "linger.ms": 5, "message.timeout.ms": 300_000}
        )  # fmt: skip
        self._topic = topic
        self._encode = encode
        self._problems: list[str] = []
        self.written = 0

    def work(self, stop: threading.Event, per_s: int) -> None:
        """Write until told to stop, about so many in a second."""
        while not stop.wait(0.1):
            for _ in range(max(1, per_s // 10)):
                self._producer.produce(
                    self._topic,
                    self._encode(self.written),
                    on_delivery=lambda error, _: (
                        self._problems.append(str(error)) if error else None
                    ),
                )
                self.written += 1
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has everything."""
        left = self._producer.flush(120)
        assert not left, f"{left} records were not taken"
        assert not self._problems, self._problems[:3]


def as_json(number: int) -> bytes:
    """Write one event."""
    return json.dumps({"id": number, "page": f"/p/{number % 97}", "spent": number / 8}).encode()


def in_avro(schema: Mapping[str, Any], schema_id: int) -> Callable[[int], bytes]:
    """Return what writes one payment in the registry's wire format."""
    parsed = fastavro.parse_schema(dict(schema))

    def encode(number: int) -> bytes:
        out = BytesIO()
        out.write(struct.pack(">bI", 0, schema_id))
        fastavro.schemaless_writer(out, parsed, {"id": number, "payer": f"c{number % 31}"})
        return out.getvalue()

    return encode


class Shop:
    """Transactions on a real database: customers come, change and go."""

    MARK = -1
    """The last customer: once the topic tells of it, it tells of everything."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self._url = url
        self._rng = rng
        self.transactions = 0

    def make(self) -> None:
        """Make the table."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE customers (id int PRIMARY KEY, name text, visits int NOT NULL)"
            )

    def work(self, stop: threading.Event) -> None:
        """Commit one transaction after another until told to stop."""
        with psycopg.connect(self._url) as connection:
            while not stop.wait(0.05):
                for _ in range(self._rng.randint(1, 4)):
                    self._change(connection)
                if self._rng.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                self.transactions += 1
            connection.execute("INSERT INTO customers VALUES (%s, 'the last', 0)", (self.MARK,))
            connection.commit()

    def rows(self) -> list[tuple[object, ...]]:
        """Return what the database holds."""
        with psycopg.connect(self._url) as connection:
            return sorted(connection.execute("SELECT id, name, visits FROM customers").fetchall())

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        number, dice = self._rng.randrange(200), self._rng.random()
        if dice < 0.5:
            connection.execute(
                "INSERT INTO customers VALUES (%s, %s, 1) "
                "ON CONFLICT (id) DO UPDATE SET visits = customers.visits + 1",
                (number, f"n{self._rng.randrange(1000)}"),
            )
        elif dice < 0.75:
            name = f"m{self._rng.randrange(1000)}"
            connection.execute("UPDATE customers SET name = %s WHERE id = %s", (name, number))
        elif dice < 0.9:
            connection.execute("DELETE FROM customers WHERE id = %s", (number,))
        else:  # another key for the same row
            connection.execute(
                "UPDATE customers SET id = %s WHERE id = %s "
                "AND NOT EXISTS (SELECT 1 FROM customers WHERE id = %s)",
                (number + 200, number, number + 200),
            )


@dataclass(slots=True, kw_only=True)
class Trouble:
    """Something that goes wrong again and again while the block runs."""

    name: str
    strike: Callable[[], None]
    pause_s: float
    struck: int = 0
    problems: list[str] = field(default_factory=list)

    def work(self, stop: threading.Event) -> None:
        """Strike, wait, strike."""
        while not stop.wait(self.pause_s):
            try:
                self.strike()
            except Exception as error:  # told at the end
                self.problems.append(f"{self.name}: {type(error).__name__}: {error}"[:2000])
                return
            self.struck += 1


@contextmanager
def beside(*works: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Run works in threads while the block runs; each is told to stop at its end."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join(180)
