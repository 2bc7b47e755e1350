"""Faults on PostgreSQL: answers lost on a real wire, outages, and a random run with kills.

Catalog and ledger are on one real server. The catalog is reached through a wire that the tests
cut in the moment of the commit; the ledger is reached directly.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odi_audit.errors import OutcomeUnknown
from odi_audit.workspace import Choices, Workspace
from tests.crash.soak import Soak
from tests.stack.postgres import PostgresServer, running_postgres
from tests.support.cases import rows
from tests.support.checker import Place, kinds, read_ledger
from tests.support.children import Nursery
from tests.support.joining import address, on
from tests.support.proxy import Cut, Wire, wire
from tests.support.scene import Scene
from tests.support.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS_MAX, MINUTES_MAX = 24, 3
SWAP = b"UPDATE iceberg_tables"
"""How the JDBC catalog's compare-and-swap begins."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def stage(
    jvm: SparkSession,
    server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Scene]]:
    """Make a scene on PostgreSQL, its catalog reached by the port given."""
    monkeypatch.setenv("ODI_CATALOG__PASSWORD", server.password)
    monkeypatch.setenv("ODI_LEDGER__PASSWORD", server.password)
    opened: list[Scene] = []

    def make(port: int = server.port) -> Scene:
        database = server.new_database()
        catalog = f"postgresql://postgres@{server.host}:{port}/{database}"
        ledger = f"postgresql://postgres@{server.host}:{server.port}/{database}"
        choices = Choices(catalog_type="postgresql", catalog_uri=catalog, ledger_url=ledger)
        lake = Workspace.init(tmp_path / "lake", choices=choices)
        direct = server.url(database)
        place = Place(
            catalog=direct.replace("postgresql:", "postgresql+psycopg:"),
            ledger=direct,
            warehouse=str(lake.root / "warehouse"),
        )
        children = Nursery(lake=lake.root, folder=tmp_path / "children", joins=address(jvm))
        made = Scene(lake=lake, spark=on(jvm, lake), children=children, place=place)
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.children.end()
        made.lake.close()


@pytest.fixture
def line(server: PostgresServer) -> Iterator[Wire]:
    with wire(server.host, server.port, SWAP) as made:
        yield made


def ready(scene: Scene) -> dict[str, Work]:
    """Make a table with some rows; return what can be done to it next."""
    first, following = rows(0, 10, "a"), rows(10, 20, "b")
    job, name, offsets = "chaos/job", "c.table", ("src", 10, 20)
    scene.do(Work(job=job, op="create_table", table=name))
    scene.do(Work(job=job, op="append", table=name, rows=first, offsets=("src", 0, 10)))
    return {
        "append": Work(job=job, op="append", table=name, rows=following, offsets=offsets),
        "upsert": Work(job=job, op="upsert", table=name, rows=following, offsets=offsets),
    }


@pytest.mark.parametrize("op", ["append", "upsert"])
@pytest.mark.parametrize("lost", [Cut.ANSWER, Cut.REQUEST], ids=["answer", "request"])
def test_a_commit_over_a_wire_that_breaks_lands_once(
    stage: Callable[..., Scene], line: Wire, op: str, lost: Cut
) -> None:
    scene = stage(line.port)
    work = ready(scene)[op]
    line.cut = lost
    receipt = scene.do(work)
    assert line.fired == 1
    assert receipt.fresh
    assert kinds(read_ledger(scene.place.ledger), receipt.batch) == ["intent", "staged", "landed"]
    assert scene.do_again(work).fresh is False
    assert scene.problems() == []


@pytest.mark.parametrize("lost", [Cut.ANSWER, Cut.REQUEST], ids=["answer", "request"])
def test_a_commit_that_begins_an_outage_is_unknown_until_the_catalog_is_back(
    stage: Callable[..., Scene], line: Wire, lost: Cut
) -> None:
    scene = stage(line.port)
    work = ready(scene)["append"]
    line.stays_down, line.cut = True, lost
    with pytest.raises(OutcomeUnknown) as caught:
        scene.do_again(work)
    assert line.fired == 1
    batch = str(caught.value.facts["batch"])
    assert kinds(read_ledger(scene.place.ledger), batch) == ["intent", "staged", "unknown"]
    before = sorted(scene.state[work.table].values())
    scene.counted(work)
    landed = sorted(scene.state[work.table].values())
    assert scene.rows(work.table) == (landed if lost is Cut.ANSWER else before)
    line.down = False
    scene.lake.close()  # the process that did not know is gone
    assert scene.do_again(work).fresh is False
    assert scene.problems() == []


@pytest.mark.timeout(1200)
def test_random_work_with_kills_on_postgresql_keeps_every_promise(
    stage: Callable[..., Scene],
) -> None:
    """Set TEST_SOAK_SEED to ask for the same things again."""
    scene = stage()
    ran = Soak(
        lake=scene.lake,
        spark=scene.spark,
        children=scene.children,
        place=scene.place,
        seed=int(os.environ.get("TEST_SOAK_SEED", random.SystemRandom().randrange(10**9))),
        own_jvm_share=0.1,
    )
    ran.run(steps=STEPS_MAX, minutes=MINUTES_MAX)
    assert ran.kills > 0
