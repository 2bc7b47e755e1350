"""The crash matrix: every operation, every point of its road, and what each case starts from."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.work import Row, Where, Work

ONE_TABLE = ("planned", "intended", "staged", "gated", "published:0", "recorded:0")
TWO_TABLES = (*ONE_TABLE, "published:1", "recorded:1")
CREATED = ("planned", "intended", "published:0", "recorded:0")
CHANGED = ("planned", "intended", "staged", "published:0", "recorded:0")
POINTS = {
    "append": ONE_TABLE,
    "upsert": ONE_TABLE,
    "overwrite": ONE_TABLE,
    "delete_rows": ONE_TABLE,
    "delete_files": ONE_TABLE,
    "update": ONE_TABLE,
    "compact": ONE_TABLE,
    "two_tables": TWO_TABLES,
    "create_table": CREATED,
    "evolve_schema": CHANGED,
    "rollback": CHANGED,
    "expire": CREATED,
    "drop_table": CHANGED,
    "rename_table": CHANGED,
}
CASES = [(op, point) for op, points in POINTS.items() for point in points]
WITHOUT_SNAPSHOT = {
    "create_table", "evolve_schema", "rollback", "expire", "drop_table", "rename_table",
}  # fmt: skip
NOT_YET_GATED = {"planned", "intended", "staged"}
"""Killed here, a batch is done anew by the next run; killed later, it had landed or rolls on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is done beforehand, by a job that lives, and what is killed."""

    before: tuple[Work, ...]
    killed: Work
    tables: tuple[str, ...]


def rows(start: int, end: int, text: str) -> tuple[Row, ...]:
    """Return rows of two partitions."""
    return tuple((key, key % 2, f"{text}-{key}") for key in range(start, end))


def case(op: str, point: str, namespace: str = "m") -> Case:
    """Return a case of the matrix, on tables and with a job of its own."""
    word = f"{op}_{point.replace(':', '_')}"
    name, other, job = f"{namespace}.{word}", f"{namespace}.{word}_curated", f"crash/{word}"
    if op == "create_table":
        return Case(before=(), killed=Work(job=job, op=op, table=name), tables=(name,))
    before = [
        Work(job=job, op="create_table", table=name),
        Work(job=job, op="append", table=name, rows=rows(0, 10, "a"), offsets=("src", 0, 10)),
    ]
    tables: tuple[str, ...] = (name,)
    if op in {"compact", "rollback", "expire"}:
        more = rows(10, 20, "b")
        before.append(Work(job=job, op="append", table=name, rows=more, offsets=("src", 10, 20)))
    if op == "two_tables":
        tables = (name, other)
        before.append(Work(job=job, op="create_table", table=other))
    if op == "rename_table":
        tables = (name, other)
    return Case(before=tuple(before), killed=_killed(op, name, other, job), tables=tables)


def _killed(op: str, name: str, other: str, job: str) -> Work:
    following = ("src", 10, 20)
    match op:
        case "append":
            given = rows(10, 20, "new")
            return Work(job=job, op=op, table=name, rows=given, offsets=following)
        case "upsert":
            given = rows(5, 15, "new")
            return Work(job=job, op=op, table=name, rows=given, offsets=following)
        case "overwrite":
            given = tuple(row for row in rows(20, 30, "new") if row[1] == 1)
            overwrite = "overwrite_partitions"
            return Work(job=job, op=overwrite, table=name, rows=given, offsets=following)
        case "delete_rows":
            some = Where(part=0, every=4, rest=2)
            return Work(job=job, op="delete", table=name, where=some, once="some rows")
        case "delete_files":
            whole = Where(part=0)
            return Work(job=job, op="delete", table=name, where=whole, once="whole files")
        case "update":
            some = Where(part=1, every=3, rest=1)
            return Work(job=job, op=op, table=name, where=some, value="changed", once="update")
        case "compact":
            return Work(job=job, op=op, table=name, once="compact")
        case "two_tables":
            given = rows(10, 20, "new")
            return Work(
                job=job, op="batch", table=name, second_table=other, rows=given, offsets=following
            )
        case "rename_table":
            return Work(job=job, op=op, table=name, second_table=other)
        case "evolve_schema" | "rollback" | "expire" | "drop_table":
            return Work(job=job, op=op, table=name)
    raise ValueError(op)
