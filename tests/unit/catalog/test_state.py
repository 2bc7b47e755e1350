from __future__ import annotations

import subprocess
import sys
from typing import cast

from pyiceberg.table import Table

from odi_audit.catalog import RefInfo, SnapshotInfo, TableState, ancestors, head, history
from odi_audit.ids import SnapshotId, TableUuid
from odi_audit.model.tables import TableRef, parse


def snapshot(number: int, parent: int | None) -> SnapshotInfo:
    return SnapshotInfo(
        id=SnapshotId(str(number)),
        parent=None if parent is None else SnapshotId(str(parent)),
        sequence_number=number,
        time="2026-11-16T00:00:00.000000Z",
        operation="append",
        summary={},
        first_row_id=None,
        added_rows=None,
        schema_id=0,
        manifest_list="",
    )


def table(*snapshots: SnapshotInfo, current: int | None = None, **refs: int) -> TableState:
    return TableState(
        ref=TableRef(uuid=TableUuid("u"), name="a.b"),
        name=parse("a.b"),
        location="",
        metadata_location="",
        format_version=3,
        properties={},
        columns=(),
        schema_id=0,
        schemas={},
        spec_id=0,
        specs={},
        current_snapshot=None if current is None else SnapshotId(str(current)),
        last_sequence_number=9,
        snapshots=snapshots,
        refs={
            name: RefInfo(snapshot=SnapshotId(str(number)), kind="branch")
            for name, number in refs.items()
        },
        snapshot_log=(),
        handle=cast("Table", None),
    )


def ids(found: object) -> list[str]:
    return [info.id for info in cast("tuple[SnapshotInfo, ...]", found)]


def test_history_follows_parents_and_leaves_branches_out() -> None:
    state = table(snapshot(1, None), snapshot(2, 1), snapshot(3, 1), current=2, main=2, odi_x=3)
    assert ids(history(state)) == ["2", "1"]
    assert ids(history(state, "odi_x")) == ["3", "1"]
    assert history(state, "nothing") == ()


def test_history_ends_where_a_parent_has_expired() -> None:
    state = table(snapshot(5, 4), snapshot(6, 5), current=6)
    assert ids(history(state)) == ["6", "5"]


def test_a_circle_of_parents_is_walked_once() -> None:
    state = table(snapshot(1, 2), snapshot(2, 1), current=2)
    assert ids(ancestors(state, SnapshotId("2"))) == ["2", "1"]


def test_a_table_without_snapshots_has_no_head() -> None:
    state = table()
    assert head(state) is None
    assert history(state) == ()


def test_importing_the_catalog_package_loads_no_iceberg_library() -> None:
    code = "import sys, odi_audit.catalog; sys.exit('pyiceberg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
