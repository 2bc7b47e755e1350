"""Names of what was read together: by folder, by file, and by what a partition divides."""

from __future__ import annotations

import pytest

from lineage.naming import DatasetName, of_location, of_paths, trimmed
from lineage.sources import sources_of
from odi_audit.errors import UsageError
from odi_audit.model.offsets import OffsetKind, Offsets, Range


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/in", "/in"),
        ("/in/orders", "/in/orders"),
        ("/in/day=1", "/in"),
        ("/in/year=2026/month=11", "/in"),
        ("/in/a=b=c", "/in/a=b=c"),
        ("/in/2026-11-16", "/in"),
        ("/in/20261116", "/in"),
        ("/in/16.11.2026", "/in"),
        ("/in/2026-11-16T14:00:00Z", "/in"),
        ("/in/20261116143000", "/in"),
        ("/in/2026-13-40", "/in/2026-13-40"),
        ("/in/orders-2026-11-16", "/in/orders-2026-11-16"),
        ("/in/2026-11-16.csv", "/in/2026-11-16.csv"),
        ("/in/202611", "/in"),
        ("/in/2026-11", "/in"),
        ("/in/202613", "/in/202613"),
        ("/in/2026", "/in/2026"),
        ("/in/2026/11", "/in"),
        ("/in/2026/11/16", "/in"),
        ("/in/2026/11/16/day=1", "/in"),
        ("/2026-11-16", "/2026-11-16"),
        ("/2026/11", "/2026/11"),
    ],
)
def test_a_partition_is_named_by_what_it_divides(location: str, name: str) -> None:
    assert trimmed(of_location(location)).name == name


def test_an_object_store_is_cut_alike() -> None:
    named = trimmed(of_location("s3a://bucket/in/day=1"))
    assert named == DatasetName(namespace="s3://bucket", name="in")


def test_one_path_is_what_it_is_and_files_of_several_are_their_folder() -> None:
    files = {"/in/a.csv", "/in/b.csv"}
    assert [named.name for named in of_paths(["/in/a.csv"], files=files)] == ["/in/a.csv"]
    assert [named.name for named in of_paths(["/in"])] == ["/in"]
    assert [named.name for named in of_paths(sorted(files), files=files)] == ["/in"]
    several = ["/in/a.csv", "/more", "/in/day=1"]
    assert [named.name for named in of_paths(several, files=files)] == ["/in", "/more"]
    with pytest.raises(UsageError):
        of_paths(["in/a.csv"])


def offsets(*paths: str) -> Offsets:
    return Offsets(
        kind=OffsetKind.FILES,
        source="file:///in",
        ranges={path: Range(None, "10:aa") for path in paths},
    )


@pytest.mark.parametrize(
    ("paths", "read", "names"),
    [
        (["/in/a.csv"], [], ["/in"]),
        (["/in/a.csv"], ["/in/a.csv"], ["/in/a.csv"]),
        (["/in/a.csv", "/in/b.csv"], ["/in"], ["/in"]),
        (["/in/day=1/a.csv", "/in/day=2/a.csv"], [], ["/in"]),
        (["/in/x/a.csv", "/in/y/b.csv"], ["/in"], ["/in"]),
        (["/in/x/a.csv", "/in/y/b.csv"], ["/in", "/in/y"], ["/in", "/in/y"]),
        (["/in/a.csv"], ["/inner", "/other"], ["/in"]),
        (["/a.csv"], [], ["/"]),
    ],
)
def test_files_go_by_the_name_of_what_the_plan_read(
    paths: list[str], read: list[str], names: list[str]
) -> None:
    found = sources_of(offsets(*paths), [of_location(path) for path in read])
    assert [source.name.name for source in found] == names
    assert sum(source.files or 0 for source in found) == len(paths)
