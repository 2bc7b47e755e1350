"""A bounded part of the soak, with a seed of today; ``make soak`` runs it for long."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.crash import soak

if TYPE_CHECKING:
    from tests.support.scene import Scene

STEPS_MAX, MINUTES_MAX = 18, 1.5


@pytest.mark.timeout(900)
def test_random_work_with_kills_and_concurrent_writers_keeps_every_promise(scene: Scene) -> None:
    """Set TEST_SOAK_SEED to ask for the same things again."""
    seed = int(os.environ.get("TEST_SOAK_SEED", random.SystemRandom().randrange(10**9)))
    ran = soak.Soak(
        lake=scene.lake,
        spark=scene.spark,
        children=scene.children,
        place=scene.place,
        seed=seed,
    )
    ran.run(steps=STEPS_MAX, minutes=MINUTES_MAX)
    assert ran.kills > 0, f"seed {seed} killed nobody"


@pytest.mark.soak
def test_a_long_soak_keeps_every_promise() -> None:
    assert soak.main(["--minutes", os.environ.get("TEST_SOAK_MINUTES", "30")]) == 0
