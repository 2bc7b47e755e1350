"""The main job without Spark: which files it takes, and what it refuses before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.files import FILES_PER_BATCH_MAX, FilesJob, list_files, main
from odi_audit.errors import UsageError


def test_finished_csv_files_are_taken_by_name(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "_c.csv", ".d.csv", "e.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder.csv").mkdir()
    assert [path.name for path in list_files(tmp_path)] == ["a.csv", "b.csv"]


def test_a_folder_without_files_or_no_folder_at_all_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \.csv file"):
        list_files(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        list_files(tmp_path / "missing")


@pytest.mark.parametrize("count", [0, -1, FILES_PER_BATCH_MAX + 1])
def test_a_batch_has_a_bounded_number_of_files(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError):
        FilesJob(job="a/b", folder=tmp_path, table="a.b", files_per_batch=count)


def test_an_error_is_one_message_and_an_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--folder", str(tmp_path), "--table", "a.b", "--job", "a/b"]
    assert main([*arguments, "--lake", str(tmp_path / "none")]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("ODI-S02")
    assert "next: odi-audit init" in told.err
