"""The listener's conf: a file, never the network, beside whatever else a session is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odi_audit.spark import listener
from odi_audit.spark.conf import spark_conf
from odi_audit.workspace import Workspace

RUN = "0b6a3b1e-0000-4000-8000-00000000000a"


@pytest.fixture
def lake(make_lake: Callable[..., Workspace]) -> Workspace:
    return make_lake()


def test_a_session_is_told_nothing_of_it_unless_asked(lake: Workspace) -> None:
    conf = lake.spark_conf()
    assert not any("openlineage" in f"{key} {value}".lower() for key, value in conf.items())


def test_it_writes_to_a_new_file_of_the_spool_each_time(lake: Workspace) -> None:
    places = {
        lake.spark_conf(listener=True)["spark.openlineage.transport.location"] for _ in range(3)
    }
    assert len(places) == 3
    assert {Path(place).parent for place in places} == {lake.root / "spool"}
    assert {Path(place).suffix for place in places} == {".jsonl"}
    assert not (lake.root / "spool").exists(), "printing a conf makes nothing"
    assert lake.spark_conf(listener=True)["spark.openlineage.transport.type"] == "file"


def test_a_setting_asks_for_it_too(lake: Workspace) -> None:
    asked = Workspace.find(lake.root, overrides={"spark.listener": "true"})
    assert asked.spark_conf()[listener.LISTENERS] == listener.LISTENER
    asked.close()


def test_own_listeners_and_jars_of_a_session_stay(lake: Workspace) -> None:
    conf = '{"spark.extraListeners": "a.B,c.D", "spark.jars": "/own.jar"}'
    own = Workspace.find(lake.root, overrides={"spark.conf": conf})
    made = own.spark_conf(listener=True)
    assert made[listener.LISTENERS] == f"a.B,c.D,{listener.LISTENER}"
    first, second = made["spark.jars"].split(",")
    assert first == "/own.jar"
    assert Path(second).name.startswith("openlineage-spark")
    own.close()


@pytest.mark.parametrize(
    ("env", "root"),
    [
        ({}, None),
        ({"OPENLINEAGE_PARENT_ID": f"air/flow.daily/{RUN}"}, ("air", "flow.daily", RUN)),
        (
            {
                "OPENLINEAGE_PARENT_ID": f"air/flow.daily/{RUN}",
                "OPENLINEAGE_ROOT_PARENT_ID": f"top/all/{RUN.upper()}",
            },
            ("top", "all", RUN),
        ),
        ({"OPENLINEAGE_PARENT_ID": "nonsense"}, None),
    ],
)
def test_the_schedulers_run_is_its_root(
    lake: Workspace, env: dict[str, str], root: tuple[str, str, str] | None
) -> None:
    made = listener.listener_conf(lake.settings, Path("/f.jsonl"), env)
    prefix = "spark.openlineage.rootParent"
    told = [made.get(f"{prefix}{key}") for key in ("JobNamespace", "JobName", "RunId")]
    assert told == (list(root) if root else [None, None, None])


def test_marking_without_spark_is_nothing_at_all(run_python: Callable[[str], str]) -> None:
    code = (
        "import sys\nfrom odi_audit.spark.listener import marked\n"
        "with marked('intent:1'):\n    pass\nprint('pyspark' in sys.modules)"
    )
    assert run_python(code).strip() == "False"


def test_the_conf_is_the_same_apart_from_the_listener(lake: Workspace) -> None:
    plain = spark_conf(lake.settings)
    made = spark_conf(lake.settings, spool=Path("/f.jsonl"))
    changed = {key for key in made if made[key] != plain.get(key)}
    assert changed >= {"spark.jars", listener.LISTENERS}
    assert all(
        key.startswith("spark.openlineage.") or key in {"spark.jars", listener.LISTENERS}
        for key in changed
    )
    assert plain.keys() <= made.keys()
