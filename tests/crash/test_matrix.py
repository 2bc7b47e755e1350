"""The crash matrix: every operation that makes snapshots, killed at every point of its road.

Each case kills a real process, starts the job again in another one, and lets the independent
checker compare rows, stamps and ledger with what must be there. ``tests/stack`` runs the same
matrix with a JVM for each child, killed together with it.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cases import CASES, NOT_YET_GATED, WITHOUT_SNAPSHOT, case
from tests.support.checker import kinds, read_ledger

if TYPE_CHECKING:
    from tests.support.scene import Scene

ENDS = {
    "planned": ["intent", "staged", "landed"],
    "intended": ["intent", "abandoned", "intent", "staged", "landed"],
    "staged": ["intent", "abandoned", "intent", "staged", "landed"],
    "gated": ["intent", "staged", "landed"],
    "published:0": ["intent", "staged", "landed"],
    "recorded:0": ["intent", "staged", "landed"],
}
"""What the ledger must say of a batch over one table, by the point at which it was killed."""
LEFT_ELSEWHERE = WITHOUT_SNAPSHOT | {"update"}
"""An update takes the road of a delete; DDL, rollback and expiry have a file of their own."""


@pytest.mark.parametrize(("op", "point"), [item for item in CASES if item[0] not in LEFT_ELSEWHERE])
def test_a_batch_that_was_killed_lands_once_when_its_job_is_started_again(
    scene: Scene, op: str, point: str
) -> None:
    made = case(op, point)
    for work in made.before:
        scene.do(work)
    before = {name: sorted(scene.state.get(name, {}).values()) for name in made.tables}
    dead = scene.children.start(made.killed, kill_at=point)
    assert dead.wait() == -signal.SIGKILL, dead.said()
    assert dead.fired == point
    scene.counted(made.killed)
    for number, name in enumerate(made.tables):
        published = f"published:{number}" in dead.road
        wanted = sorted(scene.state[name].values()) if published else before[name]
        assert scene.rows(name) == wanted, "a batch is seen whole or not at all"
    receipt = scene.do_again(made.killed)
    assert receipt.fresh == (point in NOT_YET_GATED)
    assert scene.problems(*made.tables) == []
    if op != "two_tables":
        assert kinds(read_ledger(scene.place.ledger), receipt.batch) == ENDS[point]
