"""Makes a random history of one table on real Spark, and keeps the record of it.

Seeded: the same seed asks for the same operations in the same order. Every operation of the
committer, plain SQL past it, expiry, rollback, and changes of schema, partitions and format.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import odi_audit as odi
from tests.support.independent import Eyes
from tests.support.record import Record, Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.model.offsets import Offsets
    from odi_audit.workspace import Workspace

TABLE = "story.things"
KEYS = 48
PARTS = 3
OPERATIONS: Mapping[str, int] = {
    "append": 5,
    "upsert": 5,
    "update": 3,
    "delete": 3,
    "overwrite": 2,
    "compact": 3,
    "rollback": 1,
    "expire": 1,
    "add_column": 1,
    "rename_column": 1,
    "evolve_partitions": 1,
    "foreign_insert": 1,
    "foreign_update": 1,
    "foreign_delete": 1,
    "foreign_compact": 1,
}


@dataclass(slots=True, kw_only=True)
class Historian:
    """One table's random history. ``columns`` maps a column's lasting name to its present one."""

    lake: Workspace
    spark: SparkSession
    run: Run
    random: random.Random
    format_version: int = 3
    upgrade_at: int | None = None
    record: Record = field(default_factory=Record)
    columns: dict[str, str] = field(default_factory=lambda: {"v": "v"})
    done: list[str] = field(default_factory=list)
    bucketed: bool = False
    expired: bool = False
    place: int = 0
    marks: int = 0

    def start(self) -> None:
        """Create the table."""
        self.run.create_table(
            TABLE,
            "id bigint NOT NULL, part string, v string",
            partitioned_by=["part"],
            properties={"format-version": str(self.format_version)},
        )

    def tell(self, steps: int) -> None:
        """Carry out random operations; every kind that can happen is tried once first."""
        kinds = list(OPERATIONS)
        self.random.shuffle(kinds)
        first = ["append", "upsert", *kinds]
        for number in range(steps):
            if number == self.upgrade_at:
                self.spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ('format-version' = '3')")
                self.done.append("upgrade")
            weights = list(OPERATIONS.values())
            kind = first[number] if number < len(first) else ""
            kind = kind or self.random.choices(list(OPERATIONS), weights)[0]
            step: Callable[[], None] = getattr(self, f"_{kind}")
            self.done.append(kind)
            step()
            self._remember()

    @property
    def sql(self) -> str:
        """The table's name in plain Spark SQL."""
        return f"{self.lake.settings.catalog.name}.{TABLE}"

    @property
    def head(self) -> str | None:
        """Main's snapshot."""
        metadata = Eyes.on(self.lake.root).metadata(TABLE)
        current = metadata.get("current-snapshot-id")
        return None if current in (None, -1) else str(current)

    # -- through the committer --------------------------------------------------------------------

    def _append(self) -> None:
        keys = self._absent(6)
        rows = {key: self._values(key) for key in keys}
        done = self.run.append(self._frame(rows), TABLE, offsets=self._offsets())
        self.record.insert(done.batch, rows)

    def _upsert(self) -> None:
        keys = self.random.sample(range(KEYS), 8)
        rows = {key: self._values(key) for key in keys}
        done = self.run.upsert(self._frame(rows), TABLE, key=["id"], offsets=self._offsets())
        self.record.upsert(done.batch, rows)

    def _update(self) -> None:
        below, mark = self.random.randrange(KEYS), self._mark()
        name = self.columns["v"]
        done = self.run.update(TABLE, where=f"id < {below} AND id % 3 = 0", set={name: f"'{mark}'"})
        self.record.update(
            done.batch, lambda life: life.key < below and life.key % 3 == 0, {"v": mark}
        )

    def _delete(self) -> None:
        chosen = self.random.sample(range(KEYS), 6)
        done = self.run.delete(TABLE, where=f"id IN ({', '.join(map(str, chosen))})")
        self.record.delete(done.batch, lambda life: life.key in chosen)

    def _overwrite(self) -> None:
        part = self.random.randrange(PARTS)
        rows = {key: self._values(key) for key in range(KEYS) if key % PARTS == part and key % 4}
        done = self.run.overwrite(
            self._frame(rows), TABLE, where=f"part = 'p{part}'", offsets=self._offsets()
        )
        self.record.delete(done.batch, lambda life: life.key % PARTS == part)
        self.record.insert(done.batch, rows)

    def _compact(self) -> None:
        self.run.compact(TABLE, options={"rewrite-all": "true"})

    def _rollback(self) -> None:
        retained = [str(item["snapshot-id"]) for item in Eyes.on(self.lake.root).history(TABLE)]
        choices = [name for name in retained[1:6] if name in self.record.at]
        if choices:
            target = self.random.choice(choices)
            self.run.rollback(TABLE, to_snapshot=target)
            self.record.back_to(target)

    def _expire(self) -> None:
        self.run.expire(TABLE, older_than=datetime.now(UTC), retain_last=4)
        self.expired = True

    def _add_column(self) -> None:
        name = f"extra_{len(self.columns)}"
        self.run.evolve_schema(TABLE, add={name: "string"})
        self.columns[name] = name

    def _rename_column(self) -> None:
        lasting = self.random.choice(list(self.columns))
        new = f"{lasting}_{self._mark()}"
        self.run.evolve_schema(TABLE, rename={self.columns[lasting]: new})
        self.columns[lasting] = new

    # -- past the committer -----------------------------------------------------------------------

    def _evolve_partitions(self) -> None:
        if not self.bucketed:
            self.spark.sql(f"ALTER TABLE {self.sql} ADD PARTITION FIELD bucket(2, id)")
            self.bucketed = True

    def _foreign_insert(self) -> None:
        rows = {key: self._values(key) for key in self._absent(3)}
        if rows:
            self._frame(rows).writeTo(self.sql).append()
            self.record.insert(self._foreign(), rows)

    def _foreign_update(self) -> None:
        mark, name = self._mark(), self.columns["v"]
        if self._sql(f"UPDATE {self.sql} SET `{name}` = '{mark}' WHERE id % 5 = 1"):
            self.record.update(self._foreign(), lambda life: life.key % 5 == 1, {"v": mark})

    def _foreign_delete(self) -> None:
        chosen = self.random.randrange(7)
        if self._sql(f"DELETE FROM {self.sql} WHERE id % 7 = {chosen}"):
            self.record.delete(self._foreign(), lambda life: life.key % 7 == chosen)

    def _foreign_compact(self) -> None:
        catalog = self.lake.settings.catalog.name
        self.spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{TABLE}', "
            "options => map('rewrite-all', 'true'))"
        )

    def _sql(self, statement: str) -> bool:
        """Run plain SQL; say whether it made a snapshot."""
        before = self.head
        self.spark.sql(statement)
        return self.head != before

    def _foreign(self) -> str:
        return f"foreign:{self.head}"

    # -- helpers ----------------------------------------------------------------------------------

    def _remember(self) -> None:
        head = self.head
        if head is not None:
            self.record.snapshot(head)

    def _absent(self, count: int) -> list[int]:
        absent = [key for key in range(KEYS) if key not in self.record.now.live]
        return self.random.sample(absent, min(count, len(absent)))

    def _values(self, key: int) -> Values:
        values: dict[str, object] = {name: self._mark() for name in self.columns}
        return {"id": key, "part": f"p{key % PARTS}", **values}

    def _mark(self) -> str:
        self.marks += 1
        return f"m{self.marks}"

    def _offsets(self) -> Offsets:
        # Not ranges: those would have to go back with a rollback.
        self.place += 1
        return odi.once(f"part {self.place}", source="things")

    def _frame(self, rows: Mapping[int, Values]) -> DataFrame:
        names = ["id", "part", *self.columns]
        shown = ["id", "part", *self.columns.values()]
        schema = ", ".join(f"`{name}` {'bigint' if name == 'id' else 'string'}" for name in shown)
        data = [tuple(values[name] for name in names) for values in rows.values()]
        return self.spark.createDataFrame(data, schema).coalesce(1)
