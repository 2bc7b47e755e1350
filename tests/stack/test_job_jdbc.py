"""A job over a real PostgreSQL: rows by a watermark, late ones found, none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import odi_audit as odi
from jobs.runner.frame_job import FrameJob
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Done, Ran
from jobs.sources.base import NO_CHOICES, Choices, Limits
from jobs.sources.jdbc import JdbcFeed
from jobs.spec import parse_spec
from odi_audit.errors import NotSupported, SourceChanged, SourceDenied, SourceNotFound
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.stack.postgres import PostgresServer, running_postgres
from tests.support.independent import Eyes
from tests.support.killed import Killed

if TYPE_CHECKING:
    from pathlib import Path


SPEC = """
version: 1
job: shop/orders
source:
  type: jdbc
  url: jdbc:postgresql://{host}:{port}/{database}
  user: {user}
  password: ${{PASSWORD}}
  table: {table}
  watermark: {{column: {column}{overlap}}}
target: {{table: shop.orders, {target}}}
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


class Shop:
    """A database with one table, and the job that reads it."""

    def __init__(self, server: PostgresServer, lake: Workspace) -> None:
        self.server, self.lake = server, lake
        self.database = server.new_database()
        self.user, self.password = server.new_login()
        self.sql = server.admin(self.database)
        self.sql.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, name text, at timestamptz, day date, "
            "local timestamp, doc jsonb)"
        )
        self.sql.execute(f"GRANT SELECT ON orders TO {self.user}")

    def put(self, *rows: tuple[int, str, str | None]) -> None:
        for number, name, at in rows:
            self.sql.execute(
                "INSERT INTO orders (id, name, at, day, local) VALUES "
                "(%s, %s, %s, %s::timestamptz::date, %s::timestamp) ON CONFLICT (id) DO UPDATE "
                "SET name = excluded.name, at = excluded.at",
                (number, name, at, at, at),
            )

    def text(self, **more: str) -> str:
        given = {
            "host": self.server.host, "port": str(self.server.port), "database": self.database,
            "user": self.user, "table": "orders", "column": "at", "overlap": ", overlap: 1h",
            "target": "mode: upsert, key: id",
        }  # fmt: skip
        return SPEC.format(**(given | more))

    def run(
        self,
        text: str | None = None,
        *,
        rows: int = 10_000,
        choices: Choices = NO_CHOICES,
        password: str | None = None,
        reach: Callable[[str], None] | None = None,
        tell: Callable[[Done], None] = lambda _done: None,
    ) -> Ran:
        secret = self.password if password is None else password
        spec = parse_spec(text or self.text(), {"PASSWORD": secret})
        more: dict[str, Any] = {} if reach is None else {"reach": reach}
        with odi.run(spec.job, lake=self.lake, **more) as run:
            worker = FrameJob(spec, JdbcFeed(spec))
            return run_job(
                run, worker, Limits(rows=rows), until=Until(drained=True), choices=choices,
                tell=tell,
            )  # fmt: skip

    def same(self) -> bool:
        held = Eyes.on(self.lake.root).rows("shop.orders", columns=("id", "name", "at"))
        there = self.sql.execute("SELECT id, name, at FROM orders WHERE at IS NOT NULL").fetchall()
        return _plain(held) == _plain(there)


def _plain(rows: Iterable[Sequence[Any]]) -> list[tuple[int, str, float]]:
    return sorted((number, name, at.timestamp()) for number, name, at in rows)


@pytest.fixture
def shop(postgres: PostgresServer, lake: Workspace) -> Shop:
    return Shop(postgres, lake)


def test_rows_are_found_by_watermark_late_ones_inside_the_overlap_and_none_is_written_twice(
    shop: Shop, tmp_path: Path
) -> None:
    # Many rows share a value, and a batch is smaller than they are.
    shop.put(*[(n, "a", "2026-11-01 08:00:00+00") for n in range(7)], (7, "b", None))
    shop.put(*[(n, "c", f"2026-11-01 09:00:0{n % 2}.00000{n % 3}+00") for n in range(10, 20)])
    told: list[Done] = []
    ran = shop.run(rows=4, tell=told.append)
    assert ran.batches >= 3
    assert shop.same()
    assert "1 rows of" in told[0].plan.news[0]
    assert shop.run().batches == 0
    # A transaction that began before the others and is committed after they were read.
    with psycopg.connect(shop.server.url(shop.database)) as slow:
        slow.execute("INSERT INTO orders VALUES (90, 'late', '2026-11-01 08:30:00+00')")
        shop.put((30, "new", "2026-11-01 09:10:00+00"))
        assert shop.run().records == 1, "rows that are as they were are not written again"
        slow.commit()
    shop.put((19, "same time, other name", "2026-11-01 09:10:00+00"))
    ran = shop.run()
    assert ran.records == 2
    assert shop.same()
    # And once more with nothing newer: the overlap alone is read, as often as something is late.
    for number in (91, 92):
        shop.put((number, "later", "2026-11-01 08:40:00+00"))
        assert shop.run().records == 1
    assert shop.same()
    assert shop.run().batches == 0
    assert not verify(shop.lake.ledger(), shop.lake.catalog())
    assert not continuity(shop.lake.ledger()).events
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert shop.password.encode() not in written


def test_kills_at_any_point_lose_no_row_and_bring_none_twice(shop: Shop) -> None:
    kills = 0
    for turn in range(6):
        base = turn * 10
        shop.put(*[(base + n, f"t{turn}", f"2026-11-01 0{turn}:00:00+00") for n in range(3)])
        shop.put((0, f"changed in {turn}", f"2026-11-01 0{turn}:30:00+00"))
        left = [3 + 2 * turn if turn < 5 else 10**9]

        def reach(_point: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        try:
            shop.run(reach=reach)
        except Killed:
            kills += 1
    assert kills >= 2, "no fault fired"
    assert shop.same()
    assert not continuity(shop.lake.ledger()).events


def test_appended_rows_with_the_greatest_value_wait_for_a_greater_one(shop: Shop) -> None:
    text = shop.text(column="id", overlap="", target="mode: append")
    shop.put(*[(n, "a", "2026-11-01 08:00:00+00") for n in range(1, 4)])
    assert shop.run(text).records == 2
    shop.put((4, "b", "2026-11-01 08:00:00+00"))
    assert shop.run(text).records == 1
    held = Eyes.on(shop.lake.root).rows("shop.orders", columns=("id",))
    assert sorted(int(str(row[0])) for row in held) == [1, 2, 3]
    for column in ("day", "local"):
        other = shop.text(column=column, overlap="", target="mode: append")
        renamed = other.replace("job: shop/orders", f"job: shop/{column}").replace(
            "shop.orders", f"shop.by_{column}"
        )
        shop.put((4, "b", "2026-11-02 08:00:00+00"))
        shop.sql.execute("UPDATE orders SET day = '2026-11-02', local = '2026-11-02' WHERE id = 4")
        assert shop.run(renamed).records == 3


def test_what_cannot_be_read_as_asked_is_told_and_nothing_of_the_password(
    shop: Shop, postgres: PostgresServer
) -> None:
    shop.put((1, "a", "2026-11-01 08:00:00+00"), (2, "b", "2026-11-01 10:00:00+00"))
    shop.run()
    shop.sql.execute("DELETE FROM orders WHERE id = 2")
    with pytest.raises(SourceChanged, match=r"greatest is 2026-11-01T08:00:00\.000000Z now"):
        shop.run()
    shop.put((1, "restored", "2026-11-01 07:00:00+00"))
    shop.run(choices=Choices(generation=1))
    assert ("1", "restored") in [
        (str(row[0]), row[1]) for row in Eyes.on(shop.lake.root).rows("shop.orders")
    ]
    assert shop.run().batches == 0, "the position went back with the database"
    with pytest.raises(SourceNotFound, match="no_such"):
        shop.run(shop.text(table="no_such"))
    with pytest.raises(NotSupported, match="is of type string"):
        shop.run(shop.text(column="name", overlap=""))
    with pytest.raises(SourceDenied) as denied:
        shop.run(password="a wrong secret")
    assert "a wrong secret" not in str(denied.value)
    other = Shop(postgres, shop.lake)
    other.put((1, "a", "2026-11-01 08:00:00+00"))
    with pytest.raises(SourceChanged, match="watermarks of one database mean nothing in another"):
        other.run()
