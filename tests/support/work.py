"""Pieces of work for fault tests: what a run is asked to do, and what the rows must be afterwards.

Owns the description of one operation (it goes to a child process as JSON), the call of the product
that it stands for, and a model in plain Python that says which rows it leaves. The model knows
nothing of the product.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import odi_audit as odi

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.model.offsets import Offsets
    from odi_audit.model.receipts import Receipt

COLUMNS = "id bigint NOT NULL, part int, v string"
Row: TypeAlias = tuple[int, int, str]
Rows: TypeAlias = dict[int, Row]
"""The rows of a table by their id, which is unique in everything that these tests write."""
State: TypeAlias = dict[str, Rows]
"""The rows of every table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A condition that SQL and Python read alike: a partition, and every so-manyth id of it."""

    part: int
    every: int = 1
    rest: int = 0

    def sql(self) -> str:
        whole = f"part = {self.part}"
        return whole if self.every == 1 else f"{whole} AND id % {self.every} = {self.rest}"

    def holds(self, row: Row) -> bool:
        return row[1] == self.part and row[0] % self.every == self.rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operation of one job. ``offsets`` is (source, start, end), ``once`` a key."""

    job: str
    op: str
    table: str
    rows: tuple[Row, ...] = ()
    where: Where | None = None
    value: str = ""
    offsets: tuple[str, int, int] | None = None
    once: str | None = None
    second_table: str = ""
    to_snapshot: str = ""

    def to_text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Work:
        body = json.loads(text)
        body["rows"] = tuple((row[0], row[1], row[2]) for row in body["rows"])
        body["where"] = None if body["where"] is None else Where(**body["where"])
        body["offsets"] = None if body["offsets"] is None else tuple(body["offsets"])
        return cls(**body)


def carry_out(run: Run, work: Work) -> Receipt:
    """Ask the product to do it."""
    offsets = _offsets(work)
    match work.op:
        case "append":
            return run.append(frame(run.spark, work.rows), work.table, offsets=offsets)
        case "upsert":
            rows = frame(run.spark, work.rows)
            return run.upsert(rows, work.table, key=["id"], offsets=offsets)
        case "overwrite_partitions":
            rows = frame(run.spark, work.rows)
            return run.overwrite_partitions(rows, work.table, offsets=offsets)
        case "delete":
            assert work.where is not None
            return run.delete(work.table, where=work.where.sql(), offsets=offsets)
        case "update":
            assert work.where is not None
            setting = {"v": f"'{work.value}'"}
            return run.update(work.table, where=work.where.sql(), set=setting, offsets=offsets)
        case "compact":
            return run.compact(work.table, options={"rewrite-all": "true"}, offsets=offsets)
        case "batch":
            rows = frame(run.spark, work.rows)
            with run.batch(offsets=offsets) as batch:
                batch.append(rows, work.table).upsert(rows, work.second_table, key=["id"])
            assert batch.receipt is not None
            return batch.receipt
        case _:
            return _without_snapshot(run, work)


def _without_snapshot(run: Run, work: Work) -> Receipt:
    match work.op:
        case "create_table":
            return run.create_table(
                work.table, COLUMNS, partitioned_by=["part"], if_not_exists=True
            )
        case "evolve_schema":
            return run.evolve_schema(work.table, add={"note": "string"})
        case "rollback":
            return run.rollback(work.table, to_snapshot=work.to_snapshot)
        case "expire":
            return run.expire(work.table, older_than=datetime.now(UTC) + timedelta(minutes=1))
        case "drop_table":
            return run.drop_table(work.table)
        case "rename_table":
            return run.rename_table(work.table, to=work.second_table)
    raise ValueError(work.op)


def after(state: Mapping[str, Rows], work: Work) -> State:
    """Return the rows of every table after the work was done once."""
    made: State = {name: dict(rows) for name, rows in state.items()}
    rows = made.setdefault(work.table, {})
    given = {row[0]: row for row in work.rows}
    match work.op:
        case "append":
            assert not rows.keys() & given.keys(), "the model's ids are unique"
            rows |= given
        case "upsert":
            rows |= given
        case "overwrite_partitions":
            replaced = {row[1] for row in work.rows}
            kept = {key: row for key, row in rows.items() if row[1] not in replaced}
            made[work.table] = kept | given
        case "delete":
            assert work.where is not None
            made[work.table] = {k: row for k, row in rows.items() if not work.where.holds(row)}
        case "update":
            assert work.where is not None
            rows |= {
                key: (row[0], row[1], work.value)
                for key, row in rows.items()
                if work.where.holds(row)
            }
        case "batch":
            assert not rows.keys() & given.keys(), "the model's ids are unique"
            rows |= given
            made[work.second_table] = made.get(work.second_table, {}) | given
        case "drop_table":
            del made[work.table]
        case "rename_table":
            made[work.second_table] = made.pop(work.table)
        case _:
            pass
    return made


def frame(spark: SparkSession, rows: tuple[Row, ...]) -> DataFrame:
    """Return rows as a data frame; a VALUES list needs no Python worker."""
    if not rows:
        return spark.sql("SELECT CAST(1 AS bigint) id, CAST(1 AS int) part, '' v LIMIT 0")
    values = ", ".join(f"({key}, {part}, '{text}')" for key, part, text in rows)
    return spark.sql(
        f"SELECT CAST(id AS bigint) id, CAST(part AS int) part, v FROM VALUES {values} "
        "AS given(id, part, v)"
    )


def _offsets(work: Work) -> Offsets | None:
    if work.once is not None:
        return odi.once(work.once)
    if work.offsets is None:
        return None
    source, start, end = work.offsets
    return odi.mapping(source, {"p": (start, end)})
