"""The soak: seeded random operations, real kills and concurrent writers, judged at the end.

``python -m tests.crash.soak --minutes 30 [--seed S] [--own-jvm PERCENT]``. Three jobs write to two
tables, each job to rows of its own, so that the rows which must be there do not depend on who was
faster. Every process may be killed at any point of the road or at any moment; its job is started
again until it is done. A failure prints the seed and the step; the same seed asks the same things
in the same order (how processes interleave is up to the machine).
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import odi_audit as odi
from odi_audit.workspace import Workspace
from tests.support.checker import Place, judge
from tests.support.children import Child, Nursery, nursery
from tests.support.joining import address, on
from tests.support.work import Row, State, Where, Work, after, carry_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = (0, 1, 2)
TABLES = ("soak.raw", "soak.curated")
POINTS = ("planned", "intended", "staged", "gated", "published:0", "recorded:0")
ROAD_OF_TWO = (*POINTS, "published:1", "recorded:1")
OPERATIONS = (
    "append", "append", "append", "upsert", "upsert", "overwrite_partitions", "delete", "update",
    "batch", "compact",
)  # fmt: skip
KILLED_SHARE, KILLED_AT_A_MOMENT_SHARE, PAIR_SHARE = 0.5, 0.3, 0.4
TRIES_MAX = 3
"""After so many killed tries the job is let through: a soak must get on."""
MOMENT_S_MAX = 1.2
"""A warm piece of work takes about a second from the start of its run."""
CHECK_EVERY = 15
MAY_BE_TOLD = {"", "CommitConflict"}
"""A writer that is overtaken too often is told so, and starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What happens to one try: nothing, a kill at a point, or a kill after some time."""

    kill_at: str | None = None
    after_s: float | None = None
    own_jvm: bool = False


class Broken(AssertionError):
    """The checker, or a child's end, says that a promise was broken."""


@dataclass(slots=True, kw_only=True)
class Soak:
    """One lake under random work. ``state`` is what its tables must hold."""

    lake: Workspace
    spark: SparkSession
    children: Nursery
    place: Place
    seed: int
    own_jvm_share: float = 0.0
    state: State = field(default_factory=dict)
    positions: dict[tuple[int, str], int] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=lambda: {job: job for job in JOBS})
    steps: int = 0
    kills: int = 0

    def run(self, *, steps: int | None = None, minutes: float | None = None) -> None:
        """Go on for so many steps, or so long; raises Broken at the first broken promise."""
        rng = random.Random(self.seed)
        print(f"soak: seed {self.seed}", flush=True)
        until = None if minutes is None else time.monotonic() + minutes * 60
        for table in TABLES:
            self._here(Work(job="soak/setup", op="create_table", table=table))
        while (steps is None or self.steps < steps) and (until is None or time.monotonic() < until):
            self.steps += 1
            self._step(rng)
            if self.steps % CHECK_EVERY == 0:
                self.check()
        self.check()
        print(f"soak: seed {self.seed}, {self.steps} steps, {self.kills} kills, no broken promise")

    def check(self) -> None:
        """Settle what the dead left, and let the checker look."""
        with odi.run("soak/setup", lake=self.lake, spark=self.spark):
            pass
        problems = judge(self.place, self.state)
        if problems:
            raise Broken(f"seed {self.seed}, after step {self.steps}: " + "; ".join(problems))

    # -- one step ----------------------------------------------------------------------------------

    def _step(self, rng: random.Random) -> None:
        jobs = rng.sample(JOBS, 2 if rng.random() < PAIR_SHARE else 1)
        table = rng.choice(TABLES)
        todo = [self._work(rng, job, table) for job in jobs]
        for number in range(TRIES_MAX):
            fates = [self._fate(rng, work) for work in todo]
            ended = self._children(todo, fates)
            left = [work for work, done in zip(todo, ended, strict=True) if not done]
            print(
                f"  step {self.steps}.{number}: "
                + ", ".join(
                    f"{work.job} {work.op} {_told(fate)}{'' if done else ' ✗'}"
                    for work, fate, done in zip(todo, fates, ended, strict=True)
                ),
                flush=True,
            )
            for work, done in zip(todo, ended, strict=True):
                if done:
                    self.state = after(self.state, work)
            todo = left
            if not todo:
                return
        for work in todo:
            self._here(work)

    def _children(self, todo: Sequence[Work], fates: Sequence[Fate]) -> list[bool]:
        started = [
            self.children.start(work, kill_at=fate.kill_at, own_jvm=fate.own_jvm)
            for work, fate in zip(todo, fates, strict=True)
        ]
        for child, fate in zip(started, fates, strict=True):
            if fate.after_s is not None:
                child.wait_for("started")
                time.sleep(fate.after_s)
                child.kill()
        return [
            self._ended(work, child, fate)
            for work, child, fate in zip(todo, started, fates, strict=True)
        ]

    def _ended(self, work: Work, child: Child, fate: Fate) -> bool:
        status = child.wait()
        result = child.result
        if result is not None and result["kind"] in MAY_BE_TOLD:
            # A moment may come too late: then the work was done before it.
            return result["kind"] == ""
        if result is None and status < 0 and (child.fired or fate.after_s is not None):
            self.kills += 1
            return False
        raise Broken(
            f"seed {self.seed}, step {self.steps}: {work.job} {work.op} ended with {status}, "
            f"{result}\n{child.said()}"
        )

    def _here(self, work: Work) -> None:
        with odi.run(work.job, lake=self.lake, spark=self.spark) as run:
            carry_out(run, work)
        self.state = after(self.state, work)

    # -- chance ----------------------------------------------------------------------------------

    def _fate(self, rng: random.Random, work: Work) -> Fate:
        dice, point, moment, own = (rng.random() for _ in range(4))
        if self.steps == 1 and not self.kills:
            return Fate(kill_at="gated")  # so that no soak, however short, is without a kill
        if dice >= KILLED_SHARE:
            return Fate()
        alone = own < self.own_jvm_share
        if dice < KILLED_SHARE * KILLED_AT_A_MOMENT_SHARE:
            return Fate(after_s=moment * MOMENT_S_MAX * (6 if alone else 1), own_jvm=alone)
        points = ROAD_OF_TWO if work.op == "batch" else POINTS
        return Fate(kill_at=points[int(point * len(points))], own_jvm=alone)

    def _work(self, rng: random.Random, job: int, table: str) -> Work:
        op = rng.choice(OPERATIONS)
        name, once = f"soak/job{job}", f"step {self.steps}" if rng.random() < 0.5 else None
        every = rng.choice((1, 2, 3))
        where = Where(part=job, every=every, rest=rng.randrange(every))
        count, text = rng.randrange(0, 12), f"s{self.steps}"
        if op in {"delete", "update", "compact"}:
            return Work(job=name, op=op, table=table, where=where, value=text, once=once)
        rows = self._new_rows(job, count, text)
        if op == "upsert":
            mine = [row for row in self.state[table].values() if row[1] == job]
            changed = rng.sample(sorted(mine), min(len(mine), 5))
            rows += tuple((row[0], job, f"{text} again") for row in changed)
        second = next(name for name in TABLES if name != table)
        source = "both" if op == "batch" else table
        start = self.positions.get((job, source), 0)
        self.positions[job, source] = start + len(rows) + 1
        return Work(
            job=name, op=op, table=table, second_table=second, rows=rows,
            offsets=(source, start, start + len(rows) + 1),
        )  # fmt: skip

    def _new_rows(self, job: int, count: int, text: str) -> tuple[Row, ...]:
        start = self.ids[job]
        self.ids[job] += count * len(JOBS)
        return tuple((start + n * len(JOBS), job, text) for n in range(count))


def _told(fate: Fate) -> str:
    own = " with its JVM" if fate.own_jvm else ""
    if fate.kill_at is not None:
        return f"killed at {fate.kill_at}{own}"
    return f"killed after {fate.after_s:.2f} s{own}" if fate.after_s is not None else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak a lake of its own in a temporary folder, which is kept when something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--own-jvm", type=int, default=10, metavar="PERCENT")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    root = Path(tempfile.mkdtemp(prefix="odi-soak-"))
    Workspace.init(root / "lake").close()
    overrides = {"log.level": "warning", "spark.master": "local[2]"}
    with Workspace.find(root / "lake", overrides=overrides) as lake:
        spark = lake.spark("odi-audit soak")
        with nursery(lake.root, root / "children", joins=address(spark)) as children:
            soak = Soak(
                lake=lake,
                spark=on(spark, lake),
                children=children,
                place=Place.embedded(lake.root),
                seed=seed,
                own_jvm_share=given.own_jvm / 100,
            )
            try:
                soak.run(minutes=given.minutes)
            except Broken as broken:
                print(f"soak: {broken}\nsoak: the lake is in {root}", file=sys.stderr)
                return 1
            finally:
                spark.stop()
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
