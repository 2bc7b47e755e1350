"""What events may look up: nothing later than their entry, and little of it in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage import context as contexts
from lineage.context import LedgerContext
from lineage.leaving import canonical
from odi_audit.canonical import encode
from odi_audit.model.entries import Draft, Kind
from tests.unit.lineage.conftest import LINES, ORDERS, History, work

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=1 - 2**53, max_value=2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, VALUES))
def test_the_fast_way_to_canonical_json_gives_the_same_bytes(value: dict[str, object]) -> None:
    assert canonical(value) == encode(value)  # type: ignore[arg-type]


def test_nothing_later_than_an_entry_is_seen(history: History) -> None:
    first = history.intend(work("append"))
    landed = history.land(first)
    again = history.land(history.intend(work("append")))
    context = LedgerContext(history.ledger)

    def seen(until: int) -> list[int]:
        found = context.effects(ORDERS.uuid, until, Kind.LANDED, limit=5)
        return [entry.index for entry in found]

    assert seen(first.index) == []
    assert seen(landed.index) == [landed.index]
    assert seen(again.index) == [again.index, landed.index]
    assert context.effects(LINES.uuid, again.index, Kind.LANDED, limit=5) == []
    assert [entry.index for entry in context.attempt(first, first.index)] == [first.index]
    assert context.entry(999) is None


def test_entries_of_one_moment_are_told_apart_by_their_index(history: History) -> None:
    drafts = [Draft(kind=Kind.FOREIGN, table=ORDERS, facts={"snapshot": str(n)}) for n in range(3)]
    entries = history.ledger.append(*drafts)
    assert len({entry.time for entry in entries}) == 1
    context = LedgerContext(history.ledger)
    for entry in entries:
        found = context.effects(ORDERS.uuid, entry.index, Kind.FOREIGN, limit=5)
        assert found[0] == entry


def test_the_context_keeps_a_bounded_number_of_entries(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "ENTRIES_KEPT_MAX", 3)
    for _ in range(6):
        history.intend(work("append"))
    context = LedgerContext(history.ledger)
    for entry in history.ledger.scan():
        context.remember(entry)
        assert context.entry(entry.index) == entry
    assert len(context._kept) == 3


@pytest.mark.parametrize("skipped", [None, 0, 1, 3])
def test_a_walk_in_order_knows_an_attempt_as_the_ledger_does(
    history: History, skipped: int | None
) -> None:
    intents = [history.intend(work("append")) for _ in range(3)]
    for intent in reversed(intents):
        history.land(intent)
    asked, walked = LedgerContext(history.ledger), LedgerContext(history.ledger)
    for entry in history.ledger.scan():
        if entry.index == skipped:
            continue
        walked.remember(entry)
        for intent in intents:
            for until in (entry.index - 1, entry.index, 99):
                assert walked.attempt(intent, until) == asked.attempt(intent, until)
