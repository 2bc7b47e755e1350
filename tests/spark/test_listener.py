"""openlineage-spark beside us: same names, our runs as parents, nothing doubled, no secret out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import odi_audit as odi
from lineage.context import LedgerContext
from lineage.events import events_of
from lineage.listener import turning
from lineage.naming import DatasetName, of_location, of_paths
from lineage.sources import sources_of
from lineage.spool import Spool
from odi_audit.errors import SparkError, StorageError
from odi_audit.model.offsets import files as file_offsets
from odi_audit.workspace import Workspace
from tests.support.listening import SECRET, open_lake, reads
from tests.support.marquez import Backend

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
LATER = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Listened:
    """What the process left: its folder, its own record, the spool's events, and ours."""

    folder: Path
    told: dict[str, str]
    raw: list[dict[str, Any]]
    theirs: list[dict[str, Any]]
    ours: list[dict[str, Any]]
    spool: Spool
    position: str
    lake: Workspace

    def written_to(self, word: str) -> list[dict[str, Any]]:
        name = str(self.folder / "out" / word)
        return [event for event in self.raw if name in {item["name"] for item in event["outputs"]}]

    def our_run(self, batch: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self.ours
            if event["run"]["facets"].get("odi_batch", {}).get("batch") == self.told[batch]
        ]

    def children_of(self, run: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self.theirs
            if event["run"]["facets"]["parent"]["run"]["runId"] == run
        ]


@pytest.fixture(scope="module")
def listened(tmp_path_factory: pytest.TempPathFactory) -> Listened:
    folder = tmp_path_factory.mktemp("listened")
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.listening", str(folder)],
        cwd=ROOT, timeout=TIMEOUT_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    lake = open_lake(folder)
    ledger = lake.ledger(read_only=True)
    context = LedgerContext(ledger)
    spool = Spool(folder / "lake" / "spool", turning(context), now=lambda: LATER)
    written = [path.read_text("utf-8") for path in spool.folder.glob("*.jsonl")]
    found = spool.read(None, 10_000)
    return Listened(
        folder=folder,
        told=json.loads((folder / "told.json").read_text("utf-8")),
        raw=[json.loads(line) for text in written for line in text.splitlines()],
        theirs=[json.loads(event.body) for event in found],
        ours=[
            json.loads(event.body) for entry in ledger.scan() for event in events_of(entry, context)
        ],
        spool=spool,
        position=found[-1].position,
        lake=lake,
    )


def names(datasets: list[dict[str, Any]]) -> list[DatasetName]:
    return sorted(
        DatasetName(namespace=dataset["namespace"], name=dataset["name"]) for dataset in datasets
    )


@pytest.mark.parametrize("word", sorted(reads(Path("/in"))))
def test_files_have_the_names_that_the_listener_gives_them(listened: Listened, word: str) -> None:
    paths = reads(listened.folder / "in")[word]
    if word == "pattern":
        # Spark resolves it before anybody looks at the plan.
        paths = [str(path) for path in (listened.folder / "in" / "flat").glob("*.csv")]
    ours = of_paths(paths, files={path for path in paths if Path(path).is_file()})
    seen = listened.written_to(word)
    assert seen
    assert {tuple(names(event["inputs"])) for event in seen} == {tuple(ours)}
    assert names(seen[-1]["outputs"]) == [of_location(str(listened.folder / "out" / word))]


@pytest.mark.parametrize("word", ["files", "day", "key"])
def test_file_offsets_name_the_same_source_as_the_listener(listened: Listened, word: str) -> None:
    paths = [Path(path) for path in reads(listened.folder / "in")[word]]
    single = [file for path in paths for file in (path.iterdir() if path.is_dir() else [path])]
    named = [source.name for source in sources_of(file_offsets(single))]
    assert named == names(listened.written_to(word)[-1]["inputs"])


def test_a_single_file_goes_by_its_own_name_where_the_plan_says_so(listened: Listened) -> None:
    path = reads(listened.folder / "in")["file"][0]
    seen = names(listened.written_to("file")[-1]["inputs"])
    assert [source.name for source in sources_of(file_offsets([path]), read=seen)] == seen


def test_a_table_has_the_name_that_the_listener_gives_it(listened: Listened) -> None:
    table = of_location(str(listened.folder / "hadoop" / "db" / "t"))
    read = listened.written_to("from_table")[-1]
    assert names(read["inputs"]) == [table]
    wrote = [event for event in listened.raw if table in names(event["outputs"])]
    assert {event["job"]["name"].split(".")[1] for event in wrote} == {
        "append_data",
        "create_table",
    }


@pytest.mark.parametrize("batch", ["append", "upsert", "stream"])
def test_its_run_of_a_batch_is_a_child_of_ours(listened: Listened, batch: str) -> None:
    ours = listened.our_run(batch)
    assert [event["eventType"] for event in ours if event["eventType"] != "RUNNING"] == [
        "START",
        "COMPLETE",
    ]
    theirs = listened.children_of(ours[0]["run"]["runId"])
    assert [event["eventType"] for event in theirs] == ["START", "COMPLETE"]
    for event in theirs:
        parent = event["run"]["facets"]["parent"]
        assert parent["root"] == ours[0]["run"]["facets"]["parent"]["root"]
        assert parent["job"]["name"] == ours[0]["job"]["name"]
        assert event["outputs"] == []
    assert set(names(theirs[-1]["inputs"])) <= set(names(ours[-1]["inputs"]))


def test_what_a_run_does_beside_its_batches_is_its_child_with_its_output(
    listened: Listened,
) -> None:
    theirs = listened.children_of(listened.told["run"])
    assert [event["eventType"] for event in theirs] == ["START", "COMPLETE"]
    assert theirs[0]["job"]["namespace"] == "sales"
    assert names(theirs[1]["outputs"]) == [of_location(str(listened.folder / "out" / "side"))]


def test_a_batch_that_spark_failed_has_a_failed_child(listened: Listened) -> None:
    failed = [event for event in listened.theirs if event["eventType"] == "FAIL"]
    assert len(failed) == 1
    refused = [event for event in listened.ours if event["eventType"] in {"FAIL", "ABORT"}]
    assert failed[0]["run"]["facets"]["parent"]["run"]["runId"] == refused[0]["run"]["runId"]
    message = failed[0]["run"]["facets"]["errorMessage"]["message"]
    assert message == "Spark: USER_RAISED_EXCEPTION"


def test_no_value_of_a_row_and_no_property_passes(listened: Listened) -> None:
    assert SECRET in json.dumps(listened.raw), "it was there to be kept back"
    assert SECRET not in json.dumps(listened.theirs)
    for event in listened.theirs:
        facets = set(event["run"]["facets"])
        assert facets <= {"parent", "processing_engine", "errorMessage", "tags"}


def test_both_graphs_are_one_and_a_strict_backend_takes_all_of_it(listened: Listened) -> None:
    backend = Backend()
    for event in [*listened.ours, *listened.theirs]:
        assert backend.post(json.dumps(event).encode()) == 201
    assert set(backend.states.values()) <= {"COMPLETED", "FAILED", "ABORTED"}
    tables = {str(name) for event in listened.ours for name in names(event["outputs"])}
    assert tables
    for event in listened.theirs:
        assert not tables & {str(name) for name in names(event["outputs"])}


def test_the_file_is_in_use_no_more_and_goes(listened: Listened) -> None:
    assert len(list(listened.spool.folder.iterdir())) == 2
    assert listened.spool.read(listened.position, 10) == []
    assert len(listened.spool.forget(listened.position)) == 1
    assert list(listened.spool.folder.iterdir()) == []
    assert "bad-line" not in listened.spool.counts


def test_a_session_that_was_started_without_it_is_refused(
    lake: Workspace, jvm: SparkSession
) -> None:
    with pytest.raises(SparkError, match="without openlineage-spark") as refused:
        odi.session(lake, listener=True)
    assert "stop it first" in str(refused.value)
    assert odi.session(lake) is lake.spark()


def test_a_spool_that_cannot_be_written_is_told_before_spark_starts(
    tmp_path: Path,
) -> None:
    from odi_audit.spark import listener

    made = Workspace.init(tmp_path / "lake")
    (tmp_path / "lake" / "spool").write_text("in the way", "utf-8")
    with pytest.raises(StorageError, match="cannot be kept in"):
        listener.hold(listener.new_file(made.settings))
    made.close()
