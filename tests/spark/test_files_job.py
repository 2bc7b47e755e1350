"""The main job on a real Spark: each file once, whatever happens between two starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.files import FilesJob, load_files
from odi_audit.errors import OdiError, RuleBroken, SourceChanged, WriteFailed
from odi_audit.workspace import Workspace

HEADER = "order_id,customer,status,amount,updated_at"


class Cut(Exception):
    """The run ends here, as if somebody had pulled the plug."""


def arrive(folder: Path, name: str, *rows: str, header: str = HEADER) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return path


def order(number: int, amount: str = "1.50", status: str = "placed", hour: int = 8) -> str:
    return f"{number},Curie,{status},{amount},2026-11-01 {hour:02}:00:00"


def ids(lake: Workspace, table: str = "sales.orders") -> list[int]:
    found = lake.spark().sql(f"SELECT order_id FROM lake.{table} ORDER BY 1").collect()
    return [row[0] for row in found]


def test_each_file_lands_once_however_often_the_job_starts(lake: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    spec = FilesJob(job="sales/import", folder=folder, table="sales.orders", files_per_batch=2)
    for number in range(3):
        arrive(folder, f"{number}.csv", order(number))
    first = load_files(spec, lake)
    assert [len(files) for files, _ in first.batches] == [2, 1]
    # A file that sorts first must not shift the others into batches that look new.
    arrive(folder, "-1.csv", order(9))
    second = load_files(spec, lake)
    assert [path.name for path in second.known] == ["0.csv", "1.csv", "2.csv"]
    assert [[path.name for path in files] for files, _ in second.batches] == [["-1.csv"]]
    assert load_files(spec, lake).batches == ()
    assert ids(lake) == [0, 1, 2, 9]


def test_odd_names_of_folders_and_files_are_read_as_they_are(
    lake: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "in [1] {a,b} 100% 'ä"
    spec = FilesJob(job="sales/import", folder=folder, table="sales.orders", files_per_batch=9)
    for number, name in enumerate(["a b.csv", "c*.csv", "d?e%20.csv", "f\\g.csv"]):
        arrive(folder, name, order(number))
    load_files(spec, lake)
    assert ids(lake) == [0, 1, 2, 3]


def test_a_run_that_is_cut_short_is_simply_started_again(lake: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    spec = FilesJob(job="sales/import", folder=folder, table="sales.orders")
    for number in range(2):
        arrive(folder, f"{number}.csv", order(number))
    reached: list[str] = []

    def cut(point: str) -> None:
        reached.append(point)
        if point == "gated":
            raise Cut

    with pytest.raises(Cut):
        load_files(spec, lake, reach=cut)
    assert reached[-1] == "gated"
    assert ids(lake) == []
    # The next start is in another process: this one's hold on its intents ends with its ledger.
    lake.close()
    done = load_files(spec, lake)
    assert [path.name for path in done.known] == ["0.csv"]
    assert len(done.batches) == 1
    assert ids(lake) == [0, 1]


def test_changes_are_upserted_and_deletions_delete(lake: Workspace, tmp_path: Path) -> None:
    orders, changes = tmp_path / "orders", tmp_path / "changes"
    arrive(orders, "1.csv", order(1), order(2), order(3))
    arrive(
        changes,
        "1.csv",
        order(1, "7.00", "shipped", 9),
        order(1, "8.00", "returned", 10),
        order(2, status="withdrawn"),
        order(4),
    )
    load_files(FilesJob(job="sales/import", folder=orders, table="sales.orders"), lake)
    spec = FilesJob(
        job="sales/changes",
        folder=changes,
        table="sales.orders",
        key=("order_id",),
        order_by=("updated_at",),
        delete_when="status = 'withdrawn'",
    )
    ((_, receipt),) = load_files(spec, lake).batches
    assert receipt.landing.operation == "upsert"
    assert ids(lake) == [1, 3, 4]
    status = lake.spark().sql("SELECT status FROM lake.sales.orders WHERE order_id = 1").first()
    assert status is not None
    assert status[0] == "returned"


def test_a_file_that_changed_after_it_was_read_is_refused(lake: Workspace, tmp_path: Path) -> None:
    spec = FilesJob(job="sales/import", folder=tmp_path / "in", table="sales.orders")
    arrive(spec.folder, "1.csv", order(1))
    load_files(spec, lake)
    arrive(spec.folder, "1.csv", order(1), order(2))
    with pytest.raises(SourceChanged, match=r"1\.csv"):
        load_files(spec, lake)
    assert ids(lake) == [1]


@pytest.mark.parametrize(
    ("rows", "header", "kind"),
    [
        ([order(1, "-1.00")], HEADER, RuleBroken),
        (["1,Curie,placed,not-a-number,2026-11-01 08:00:00"], HEADER, WriteFailed),
        ([order(1)], "id,customer,status,amount,updated_at", OdiError),
    ],
    ids=["a broken rule", "a value of another type", "another header"],
)
def test_a_bad_file_stops_the_job_and_nothing_of_it_is_seen(
    lake: Workspace, tmp_path: Path, rows: list[str], header: str, kind: type[OdiError]
) -> None:
    spec = FilesJob(job="sales/import", folder=tmp_path / "in", table="sales.orders")
    arrive(spec.folder, "1.csv", order(7))
    arrive(spec.folder, "2.csv", *rows, header=header)
    arrive(spec.folder, "3.csv", order(8))
    with pytest.raises(kind):
        load_files(spec, lake)
    assert ids(lake) == [7]
    recorded = b"".join(entry.to_bytes() for entry in lake.ledger().scan())
    assert b"Curie" not in recorded
    assert b"not-a-number" not in recorded
    # The gap in the folder is closed by a right file; the job goes on from there.
    arrive(spec.folder, "2.csv", order(1))
    load_files(spec, lake)
    assert ids(lake) == [1, 7, 8]
