"""The oracle: random histories, and every answer compared with a record kept in plain Python."""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.model.tables import parse
from odi_audit.query.trace import Confidence, Origin, trace
from tests.support.historian import TABLE, Historian
from tests.support.independent import Eyes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from odi_audit.workspace import Workspace

STEPS = 26
NAME = parse(TABLE)


@pytest.fixture(params=["v3", "v2", "upgraded"])
def historian(
    request: pytest.FixtureRequest, lake: Workspace, spark: SparkSession
) -> Iterator[Historian]:
    seed = int(os.environ.get("TEST_ORACLE_SEED") or secrets.randbelow(2**32))
    print(f"TEST_ORACLE_SEED={seed}")
    with odi.run("story/things", lake=lake, spark=spark) as run:
        made = Historian(
            lake=lake,
            spark=spark,
            run=run,
            random=random.Random(seed),
            format_version=3 if request.param == "v3" else 2,
            upgrade_at=12 if request.param == "upgraded" else None,
        )
        made.start()
        made.tell(STEPS)
        print(f"{request.param}: {', '.join(made.done)}")
        yield made


def test_every_answer_about_a_random_history_is_what_the_record_says(
    historian: Historian, lake: Workspace
) -> None:
    check_rows(historian)
    check_trace(historian, lake)


def check_rows(historian: Historian) -> None:
    """The table holds what the record says: else the record itself would be wrong."""
    names = ["id", "part", *historian.columns.values()]
    found = Eyes.on(historian.lake.root).rows(TABLE, columns=names)
    expected = [
        tuple(life.values.get(name) for name in ("id", "part", *historian.columns))
        for life in historian.record.now.live.values()
    ]
    assert found == sorted(expected, key=str)


def check_trace(historian: Historian, lake: Workspace) -> None:
    rows = trace(lake.ledger(), lake.catalog(), NAME, limit=1000)
    live = historian.record.now.live
    assert sorted(int(str(row.values["id"])) for row in rows) == sorted(live)
    seen: Counter[Confidence] = Counter()
    for row in rows:
        life = live[int(str(row.values["id"]))]
        for origin, truth in ((row.birth, life.birth), (row.last_change, life.last_change)):
            seen[origin.confidence] += 1
            check_origin(origin, truth, f"row {life.key}")
        if historian.format_version == 3:
            notes = {row.birth.note, row.last_change.note}
            assert row.birth.confidence is row.last_change.confidence is Confidence.EXACT, notes
    print(dict(seen))


def check_origin(origin: Origin, truth: str, where: str) -> None:
    """An answer is the truth, or a set that holds it, or says that it does not know."""
    if origin.confidence in {Confidence.EXACT, Confidence.FILE}:
        assert label(origin) == truth, where


def label(origin: Origin) -> str:
    return origin.batch or f"foreign:{origin.snapshot}"
