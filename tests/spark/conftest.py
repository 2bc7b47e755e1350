"""What the Spark tier shares: a lake in the test's folder, bound to the one JVM of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from odi_audit.spark.session import session_in
from odi_audit.workspace import Workspace
from tests.support.demo import Demo, tell_demo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(make_lake: Callable[..., Workspace], jvm: SparkSession) -> Workspace:
    """A new, empty lake whose session lives in the shared JVM."""
    made = make_lake()
    made.use_spark(session_in(jvm, made.settings))
    return made


@pytest.fixture
def spark(lake: Workspace) -> SparkSession:
    """The session of :func:`lake`."""
    return lake.spark()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo, told once for all who look at what it leaves; none of them may change its lake."""
    return tell_demo(tmp_path_factory.mktemp("a reader's folder"))


@pytest.fixture
def relimited(lake: Workspace, spark: SparkSession) -> Callable[..., Workspace]:
    """Open the same lake once more with other settings, on the same session."""

    def open_again(**overrides: str) -> Workspace:
        changed = {key.replace("__", "."): value for key, value in overrides.items()}
        made = Workspace.find(lake.root, overrides=changed)
        made.use_spark(spark)
        return made

    return open_again
