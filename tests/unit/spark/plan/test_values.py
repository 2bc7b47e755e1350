"""The algebra of edges: steps become one, parts become a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odi_audit.spark.plan.tree import type_text
from odi_audit.spark.plan.values import (
    AGGREGATION,
    CONDITIONAL,
    FILTER,
    GROUP_BY,
    IDENTITY,
    INDIRECT,
    JOIN,
    MASKING,
    SORT,
    TRANSFORMATION,
    WINDOW,
    Kind,
    Origin,
    joined,
    stepped,
)

KINDS = [
    IDENTITY,
    TRANSFORMATION,
    MASKING,
    AGGREGATION,
    CONDITIONAL,
    FILTER,
    GROUP_BY,
    JOIN,
    SORT,
    WINDOW,
]
kinds = st.sampled_from(KINDS)


@given(kinds, kinds, kinds)
def test_it_does_not_matter_where_a_way_is_cut_in_two(first: Kind, then: Kind, last: Kind) -> None:
    assert last.after(then).after(first) == last.after(then.after(first))


@given(kinds)
def test_identity_changes_nothing(kind: Kind) -> None:
    assert kind.after(IDENTITY) == kind
    assert IDENTITY.after(kind) == kind


@given(kinds, kinds)
def test_once_indirect_or_masked_always_so(outer: Kind, inner: Kind) -> None:
    made = outer.after(inner)
    assert (made.type == INDIRECT) == (INDIRECT in (outer.type, inner.type))
    assert made.masking == (outer.masking or inner.masking)


def test_the_step_nearest_to_the_output_names_an_indirect_way() -> None:
    assert FILTER.after(GROUP_BY) == FILTER
    assert TRANSFORMATION.after(AGGREGATION) == AGGREGATION


edges = st.dictionaries(
    st.builds(Origin, st.integers(0, 2), st.sampled_from("ab")),
    st.frozensets(kinds, min_size=1),
    max_size=4,
)


@given(edges, edges, kinds)
def test_edges_joined_and_then_stepped_are_edges_stepped_and_then_joined(
    left: dict[Origin, frozenset[Kind]], right: dict[Origin, frozenset[Kind]], kind: Kind
) -> None:
    assert stepped(joined([left, right]), kind) == joined(
        [stepped(left, kind), stepped(right, kind)]
    )
    assert joined([left, right]) == joined([right, left])


@pytest.mark.parametrize(
    ("given_type", "text"),
    [
        ("long", "bigint"),
        ("decimal(10,2)", "decimal(10,2)"),
        ({"type": "array", "elementType": "integer", "containsNull": True}, "array<int>"),
        (
            {"type": "map", "keyType": "string", "valueType": "short", "valueContainsNull": True},
            "map<string,smallint>",
        ),
        (
            {"type": "struct", "fields": [{"name": "a", "type": "byte"}]},
            "struct<a:tinyint>",
        ),
        (None, "unknown"),
    ],
)
def test_types_are_written_as_sql_writes_them(given_type: object, text: str) -> None:
    assert type_text(given_type) == text  # type: ignore[arg-type]
