"""Operations as values: what they refuse, and by what the same work is known again."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from odi_audit.canonical import digest
from odi_audit.committer.operations import (
    Append,
    Compact,
    Delete,
    Operation,
    Overwrite,
    OverwritePartitions,
    Update,
    Upsert,
    takes_rows,
    work,
)
from odi_audit.errors import UsageError
from odi_audit.model.contract import RULES_MAX, Contract
from odi_audit.model.tables import parse
from odi_audit.spark.stage import Merge, merge_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = parse("sales.orders")
ROWS = cast("DataFrame", object())
"""An operation as a value never looks into its rows."""

EVERY: list[Operation] = [
    Append(table=T, frame=ROWS),
    Append(table=T, frame=ROWS, contract=Contract(key=("id",))),
    Append(table=parse("sales.other"), frame=ROWS),
    Upsert(table=T, frame=ROWS, key=("id",)),
    Upsert(table=T, frame=ROWS, key=("id",), order_by=("at",)),
    Upsert(table=T, frame=ROWS, key=("id",), delete_when="op = 'd'"),
    OverwritePartitions(table=T, frame=ROWS),
    Overwrite(table=T, frame=ROWS, where="id = 1"),
    Overwrite(table=T, frame=ROWS, where="id = 2"),
    Update(table=T, where="id = 1", assignments={"v": "1"}),
    Update(table=T, where="id = 1", assignments={"v": "2"}),
    Delete(table=T, where="id = 1"),
    Compact(table=T),
    Compact(table=T, where="id = 1"),
    Compact(table=T, options={"rewrite-all": "true"}),
]


def test_different_work_has_different_descriptions_and_the_same_work_the_same() -> None:
    digests = [digest(work(operation)) for operation in EVERY]
    assert len(set(digests)) == len(EVERY)
    again = Append(table=T, frame=cast("DataFrame", object()))
    assert digest(work(again)) == digests[0], "rows are known by their offsets, not by the frame"


def test_only_what_brings_rows_from_outside_needs_offsets() -> None:
    assert [takes_rows(operation) for operation in EVERY] == [True] * 9 + [False] * 6


def test_an_operation_without_its_arguments_is_refused() -> None:
    with pytest.raises(UsageError, match="key="):
        Upsert(table=T, frame=ROWS, key=())
    with pytest.raises(UsageError, match="set="):
        Update(table=T, where="true", assignments={})
    with pytest.raises(UsageError, match="only one of them"):
        Upsert(table=T, frame=ROWS, key=("id",), contract=Contract(key=("other",)))
    assert Upsert(table=T, frame=ROWS, key=("a", "b"), contract=Contract(key=("b", "a")))


def test_a_contract_has_names_conditions_and_a_limit() -> None:
    assert Contract().empty
    assert not Contract(required=("id",)).empty
    for rules in ({"": "x"}, {"x": " "}, {f"r{n}": "true" for n in range(RULES_MAX + 1)}):
        with pytest.raises(UsageError):
            Contract(rules=rules)
    assert Contract(key=("a",), rules={"r": "a > 0"}).to_json() == {
        "key": ["a"],
        "required": [],
        "rules": {"r": "a > 0"},
    }


def test_the_merge_statement_deletes_only_where_it_was_asked_to() -> None:
    assert merge_statement(Merge(key=("`a`", "`b`"), delete_column=None)) == (
        "MERGE INTO target AS t USING source AS s ON t.`a` = s.`a` AND t.`b` = s.`b` "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert "WHEN MATCHED AND s.gone THEN DELETE" in merge_statement(
        Merge(key=("`a`",), delete_column="gone")
    )
