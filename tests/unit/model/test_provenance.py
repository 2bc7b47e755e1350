"""The rule that rows' source records agree with their batch's offsets."""

from __future__ import annotations

import pytest

from odi_audit.model import offsets
from odi_audit.model.provenance import PARTITIONS_CHECKED_MAX, holds, rule


def test_the_rule_names_each_partition_with_its_range() -> None:
    made = rule(offsets.mapping("s", {"p0": (0, 10), "it's": (None, "x")}))
    assert made == (
        "CASE `_source_partition` WHEN 'p0' THEN `_source_offset` >= 0 AND `_source_offset` < 10 "
        "WHEN 'it\\'s' THEN `_source_offset` >= 0 ELSE false END"
    )


def test_offsets_without_partitions_that_a_row_could_name_have_no_rule() -> None:
    assert rule(offsets.once("a")) is None
    many = {f"p{n}": (0, 1) for n in range(PARTITIONS_CHECKED_MAX + 1)}
    assert rule(offsets.mapping("s", many)) is None


@pytest.mark.parametrize(
    ("partition", "offset", "expected"),
    [("p0", 0, True), ("p0", 9, True), ("p0", 10, False), ("p1", 5, False), ("f", 99, True)],
)
def test_a_record_is_held_by_the_half_open_range_of_its_partition(
    partition: str, offset: int, expected: bool
) -> None:
    given = offsets.mapping("s", {"p0": (0, 10), "f": (None, "digest")})
    assert holds(given, partition, offset) is expected
