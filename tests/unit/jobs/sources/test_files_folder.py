"""A folder as it is now: which files are finished, in which order, and what is in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.sources.files_folder import Folder
from odi_audit.errors import NotSupported, SourceNotFound

NOW = 2_000_000_000.0


def put(path: Path, text: str = "a\n", age_s: float = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (NOW - age_s, NOW - age_s))
    return path


def names(folder: Folder) -> list[str]:
    return [Path(item.path).name for item in folder.look(NOW).finished]


def test_files_come_oldest_first_and_unfinished_ones_are_left_alone(tmp_path: Path) -> None:
    inbox = tmp_path / "in box"
    for name, age in (("b.csv", 50), ("a.csv", 50), ("z.csv", 70), ("young.csv", 5)):
        put(inbox / name, age_s=age)
    for name in (".hidden", "_temporary", "c.tmp", "d.PART", "e.csv.crdownload", "f.inprogress"):
        put(inbox / name)
    put(inbox / "deeper" / "g.csv")
    folder = Folder("in box", base=tmp_path, form="csv", settle_s=10)
    assert names(folder) == ["z.csv", "a.csv", "b.csv"]
    assert folder.look(NOW).young == 1
    assert folder.source == f"file://{inbox}"


def test_a_pattern_reaches_below_its_folder_and_two_names_of_one_file_are_one_file(
    tmp_path: Path,
) -> None:
    first = put(tmp_path / "in" / "2026" / "a.csv")
    put(tmp_path / "in" / "_old" / "b.csv")
    put(tmp_path / "in" / "2026" / "c.json")
    (tmp_path / "in" / "2026" / "again.csv").symlink_to(first)
    folder = Folder("in/**/*.csv", base=tmp_path, form="csv", settle_s=0)
    assert names(folder) == ["a.csv"]
    assert folder.source == f"file://{tmp_path / 'in'}"
    assert names(Folder("in/2026/a.csv", base=tmp_path, form="csv", settle_s=0)) == ["a.csv"]


def test_content_is_read_once_while_a_file_stays_as_it_is(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "1\n2\n3")
    folder = Folder(".", base=tmp_path, form="csv", settle_s=0)
    (before,) = folder.look(NOW).finished
    content = folder.content(before)
    assert content is not None
    assert (content.place.partition(":")[0], content.rows) == ("5", 3)
    assert folder.known(before) is content
    path.write_text("1\n2\n4")
    (after,) = folder.look(NOW + 10**9).finished
    assert folder.known(after) is None
    assert folder.content(before) is None, "it is not the file that was listed"
    changed = folder.content(after)
    assert changed is not None
    assert changed.place != content.place
    path.unlink()
    assert folder.content(after) == changed, "what was read stays known until the next look"
    assert folder.look(NOW).finished == ()


def test_places_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    for path in ("none", "none/*.csv"):
        with pytest.raises(SourceNotFound, match="there is no folder"):
            Folder(path, base=tmp_path, form="csv", settle_s=0).look(NOW)
    with pytest.raises(NotSupported, match="not by s3"):
        Folder("s3://bucket/in", base=tmp_path, form="csv", settle_s=0)
