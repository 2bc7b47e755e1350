"""A lake for the fault tests of one file, in the JVM of this test process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from odi_audit.workspace import Workspace
from tests.support.checker import Place
from tests.support.children import nursery
from tests.support.joining import address, on
from tests.support.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def scene(jvm: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("crash")
    with Workspace.init(root / "lake") as lake:
        place = Place.embedded(lake.root)
        with nursery(lake.root, root / "children", joins=address(jvm)) as children:
            yield Scene(lake=lake, spark=on(jvm, lake), children=children, place=place)
