"""Facets that are made once: the same bytes as made anew, and no way round the last look."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lineage import leaving, sharing
from lineage.context import LedgerContext
from lineage.events import events_of
from odi_audit import redact
from tests.unit.lineage.conftest import COLUMNS, History, Told, work

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

SECRET = "hunter2-and-more"


def test_events_are_the_same_whether_their_facets_were_made_before_or_not(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = told.history.ledger
    shared = [
        event.body
        for context in [LedgerContext(ledger)]
        for entry in ledger.scan()
        for event in events_of(entry, context)
    ]
    monkeypatch.setattr(sharing.Once, "get", lambda _self, _documents, _about, make: make())
    monkeypatch.setattr(leaving, "made_of", lambda _facet: None)
    anew = [
        event.body
        for context in [LedgerContext(ledger)]
        for entry in ledger.scan()
        for event in events_of(entry, context)
    ]
    assert len(anew) > 50
    assert shared == anew


def test_the_short_way_and_the_long_way_give_the_same_bytes(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, short = told.history.ledger, leaving._ordinary
    ways: list[bool] = []

    def both(document: RunEvent) -> bytes | None:
        body = short(document)
        ways.append(body is not None)
        if body is not None:
            assert body == leaving._cleaned(document)
        return body

    monkeypatch.setattr(leaving, "_ordinary", both)
    context = LedgerContext(ledger)
    made = [event for entry in ledger.scan() for event in events_of(entry, context)]
    assert len(made) == len(ways) > 50
    assert 20 < sum(ways) < len(ways), "there are events of both kinds"


@pytest.mark.parametrize(
    "odd", ['{"a":1.5}', '{"a":[1e7]}', '{"a":null}', '{"a":[1,null]}', '{"a":"é"}', '{"a":"\\n"}',
            '{"a":"password=hunter2"}', '{"a":"postgres://me:pass@host/db"}']
)  # fmt: skip
def test_what_is_odd_goes_the_long_way(odd: str) -> None:
    assert not leaving._has_nothing_odd(odd.encode())
    assert leaving._has_nothing_odd(b'{"key":"a","nullCount":3,"t":"2026-11-18T04:00:00.5Z"}')


def test_a_secret_that_is_known_only_later_does_not_pass_in_a_shared_facet(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = json.loads(json.dumps(COLUMNS))
    columns["inputs"][0]["fields"] = [[SECRET, "binary"]]
    opened = history.intend(work("append"), columns=columns)
    assert SECRET in history.events[-1].body.decode()
    monkeypatch.setattr(redact, "_registered", {SECRET})
    for _ in range(2):
        (event,) = events_of(opened, history.context)
        assert SECRET not in event.body.decode()
        assert redact.MASK in event.body.decode()


def test_what_is_remembered_is_bounded_and_never_of_another_document() -> None:
    once: sharing.Once[str] = sharing.Once(10)
    for number in range(100):
        document = {"number": number}
        assert once.get((document,), None, lambda number=number: str(number)) == str(number)
        assert once.get((document,), None, lambda: "made again") == str(number)
    assert len(once._made) <= 10
