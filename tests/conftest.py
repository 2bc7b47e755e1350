"""What every tier shares: a clean environment, lakes in temporary folders, one JVM per process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odi_audit import redact
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT_VARIABLES = {"ODI_JARS_DIR"}
"""Where the jars are cached may be chosen for a whole test run."""


@pytest.fixture(autouse=True, scope="session")
def _clean_environment() -> None:
    """No setting of the person who runs the tests may change what they test."""
    for name in list(os.environ):
        if name.startswith("ODI_") and name not in KEPT_VARIABLES:
            del os.environ[name]


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that one test registered must not mask a word in the next."""
    monkeypatch.setattr(redact, "_registered", set())


class SteppingClock:
    """A clock that moves on by one second whenever it is asked."""

    def __init__(self, start: datetime | None = None) -> None:
        self._next = start or datetime(2026, 11, 16, 7, 0, tzinfo=UTC)

    def now(self) -> datetime:
        self._next += timedelta(seconds=1)
        return self._next


@pytest.fixture
def stepping_clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def make_lake(tmp_path: Path) -> Iterator[Callable[..., Workspace]]:
    """Make lakes below the test's folder; closed at its end."""
    made: list[Workspace] = []

    def make(name: str = "lake") -> Workspace:
        lake = Workspace.init(tmp_path / name, token="00000001")
        made.append(lake)
        return lake

    yield make
    for lake in made:
        lake.close()


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark of this test process, started on a lake of its own.

    Other lakes get their session with ``odi_audit.spark.session.session_in(jvm, settings)``.
    """
    from odi_audit.spark import jars
    from odi_audit.spark.conf import jars_dir

    root = tmp_path_factory.mktemp("jvm") / "lake"
    with Workspace.init(root) as made:
        paths = jars.ensure(jars_dir(made.settings), ["core", "postgresql"])
    conf = json.dumps({"spark.jars": ",".join(map(str, paths))})
    lake = Workspace.find(root, overrides={"spark.master": "local[2]", "spark.conf": conf})
    session = lake.spark("odi-audit tests")
    yield session
    session.stop()
