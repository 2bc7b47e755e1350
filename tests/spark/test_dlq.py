"""Dead letters are listed with their reasons, and brought back once when they fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import odi_audit as odi
from jobs.dlq import ALL, State, Which, list_letters
from jobs.dlq_replay import Replay, carry_out, plan_replay
from jobs.runner.tables import make_dead_letters
from jobs.spec import parse_spec
from odi_audit.cli.app import run as cli
from odi_audit.errors import NotSupported, OffsetOverlap, UsageError
from odi_audit.model.offsets import kafka
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes

SPEC = """
version: 1
job: shop/clicks
source:
  type: kafka
  servers: localhost:1
  topics: [clicks]
  keep: [offset]
  value: {format: json}
target: {table: shop.clicks}
contract:
  rules: {n is small: n < 100}
  on_violation: dead_letter
dead_letter: {table: shop.dead}
"""
LETTERS = [
    b'{"id": 0, "n": "x"}',
    b'{"id": 1, "n": 1}',
    b'{"id": 2, "d": 123456.78}',
    b'{"id": 3, "extra": "new"}',
    b'{"id": 4, "n": 1000}',
    b"broken",
]
OFFSET = 100
COLUMNS = "id bigint NOT NULL, n int, d decimal(5,2), _offset bigint"


def put_aside(lake: Workspace, values: list[bytes], *, table: str = "shop.clicks") -> str:
    """Land a batch that puts records aside, as both paths do; return its id."""
    with odi.run("shop/clicks", lake=lake) as run:
        run.create_table("shop.clicks", COLUMNS, if_not_exists=True)
        shape = make_dead_letters(run, "shop.dead").schema
        end = OFFSET + len(values)
        batch = run.batch(offsets=kafka({"clicks": {0: (OFFSET, end)}}, bootstrap="b:1"))
        rows: list[tuple[Any, ...]] = [
            ("shop/clicks", "b-0123", "kafka://b", "clicks-0", OFFSET + place, None,
             f"reason {place} of '{place}'", table, None, value, [])
            for place, value in enumerate(values)
        ]  # fmt: skip
        batch.append(run.spark.createDataFrame(rows, shape), "shop.dead")
        return batch.commit().batch


def planned(lake: Workspace, which: Which = ALL, text: str = SPEC) -> Replay:
    spec = parse_spec(text, {})
    return plan_replay(lake.ledger(), lake.catalog(), spec, which=which, spark=lake.spark())


def replayed(lake: Workspace, plan: Replay) -> Replay:
    with odi.run("shop/clicks", lake=lake) as run:
        return carry_out(run, plan, parse_spec(SPEC, {}))


def test_letters_that_fit_by_now_become_rows_once_and_the_others_stay(lake: Workspace) -> None:
    put_aside(lake, LETTERS)
    before = lake.ledger().head().size
    plan = planned(lake)
    (table,) = plan.tables
    assert [letter.offset - OFFSET for letter in table.fits] == [1, 2, 3]
    assert table.growth.add == {"extra": "string"}
    assert table.growth.widen == {"d": "decimal(18,2)"}
    assert [why.split(":")[0] for why in table.still.values()] == [
        "Column(/n) changed from number to string", "the record is no JSON object",
        "rule n is small is broken",
    ]  # fmt: skip
    assert lake.ledger().head().size == before, "a plan changes nothing"
    done = replayed(lake, plan)
    assert done.tables[0].landed is not None
    rows = Eyes.on(lake.root).table("shop.clicks").scan().to_arrow().to_pylist()
    assert sorted(
        (row["id"], row["n"], row["d"] and float(row["d"]), row["extra"], row["_offset"])
        for row in rows
    ) == [(1, 1, None, None, 101), (2, None, 123456.78, None, 102), (3, None, None, "new", 103)]
    listing = list_letters(lake.ledger(), lake.catalog())
    assert (listing.open, listing.replayed) == (3, 3)
    assert {letter.replayed_by for letter in listing.letters} == {None, table.batch}
    assert len(Eyes.on(lake.root).rows("shop.dead")) == len(LETTERS), "letters are never changed"
    assert not any(table.fits for table in planned(lake).tables)
    assert not verify(lake.ledger(), lake.catalog())


def test_a_letter_is_brought_back_once_also_in_other_company(lake: Workspace) -> None:
    put_aside(lake, LETTERS)
    plan = planned(lake)
    (table,) = plan.tables
    first = replace(plan, tables=(replace(table, fits=table.fits[:2]),))
    replayed(lake, first)
    again = replayed(lake, first)
    assert again.tables[0].landed is not None
    assert not again.tables[0].landed.fresh
    with pytest.raises(OffsetOverlap):
        replayed(lake, plan)
    assert len(Eyes.on(lake.root).rows("shop.clicks")) == 2
    assert not verify(lake.ledger(), lake.catalog())


def test_letters_whose_replay_was_rolled_back_are_open_again(lake: Workspace) -> None:
    with odi.run("shop/clicks", lake=lake) as run:
        run.create_table("shop.clicks", COLUMNS)
        rows = run.spark.createDataFrame([(9, 9, None, 9)], COLUMNS.replace(" NOT NULL", ""))
        start = run.append(rows, "shop.clicks", offsets=odi.once("start"))
    put_aside(lake, [b'{"id": 1}'])
    done = replayed(lake, planned(lake))
    assert not planned(lake).tables
    with odi.run("shop/clicks", lake=lake) as run:
        run.rollback("shop.clicks", to_batch=start.batch)
    plan = planned(lake)
    assert [table.generation for table in plan.tables] == [1]
    assert plan.tables[0].batch != done.tables[0].batch
    replayed(lake, plan)
    assert [row[0] for row in Eyes.on(lake.root).rows("shop.clicks")] == [1, 9]
    assert not verify(lake.ledger(), lake.catalog())


def test_the_commands_show_filter_and_replay(
    lake: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = put_aside(lake, [*LETTERS, b'{"id": 7}'])
    put_aside_elsewhere = Which(table="shop.gone")
    assert list_letters(lake.ledger(), lake.catalog(), which=put_aside_elsewhere).open == 0
    where = ["--lake", str(lake.root), "--json"]

    def answer(*args: str) -> Any:
        assert cli([*args, *where]) == 0
        return json.loads(capsys.readouterr().out)["data"]

    assert answer("dlq", "list", "--limit", "2")["cut"] is True
    found = answer("dlq", "list", "shop.dead", "--reason", "REASON 3", "--values")
    assert [letter["offset"] for letter in found["letters"]] == ["103"]
    assert found["letters"][0]["batch"] == "b-0123"
    assert found["reasons"] == [{"reason": "reason … of …", "open": 1, "replayed": 0}]
    assert answer("dlq", "list", "--job", "shop/other")["open"] == 0
    assert answer("dlq", "list", "--state", State.REPLAYED)["open"] == 0
    assert cli(["dlq", "list", "shop.clicks", *where]) == 2
    assert batch


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda text: text.replace("dead_letter: {table: shop.dead}", ""), UsageError),
        (lambda text: text + "transform: SELECT * FROM batch\n", NotSupported),
        (
            lambda text: text.replace(
                "{table: shop.clicks}", "{table: t.c, mode: upsert, key: id}"
            ),
            NotSupported,
        ),
    ],
)
def test_a_job_whose_letters_cannot_come_back_one_by_one_says_so(
    lake: Workspace, change: Callable[[str], str], error: type[Exception]
) -> None:
    text = change(SPEC).replace("  on_violation: dead_letter\n", "")
    with pytest.raises(error):
        planned(lake, text=text)
