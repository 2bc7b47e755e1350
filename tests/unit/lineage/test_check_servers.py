"""`lineage check` against servers that are slow, broken, or none; names and keys."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from lineage.marquez.check import Report, check
from lineage.marquez.names import can_be_asked_for
from lineage.marquez.server import Marquez, base_url
from odi_audit.errors import BackendUnavailable, UsageError
from odi_audit.ids import JobName
from tests.support.marquez import Fault, Receiver
from tests.unit.lineage.check_bench import ask, codes, give, marquez, runs, small
from tests.unit.lineage.conftest import History, work

__all__ = ["ask", "marquez"]


def test_a_server_that_is_not_there_is_said_clearly(history: History) -> None:
    with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:9 cannot be reached"):
        check(history.ledger, Marquez("http://127.0.0.1:9"))


def test_a_server_that_fails_in_the_middle_is_said_clearly(
    history: History, marquez: Receiver
) -> None:
    give(marquez, small(history).events)
    marquez.hook = lambda request: Fault(status=500) if "/runs" in request.path else None
    with pytest.raises(BackendUnavailable, match="answered 500"):
        check(history.ledger, Marquez(marquez.url))
    assert marquez.fired


def test_a_server_that_is_busy_for_a_moment_is_asked_again(
    history: History, marquez: Receiver
) -> None:
    give(marquez, small(history).events)
    left = [1]
    marquez.hook = lambda request: Fault(status=503) if left and left.pop() else None
    assert codes(check(history.ledger, Marquez(marquez.url))) == {}
    assert marquez.fired


def test_a_server_that_is_too_slow_is_said_clearly(history: History, marquez: Receiver) -> None:
    give(marquez, small(history).events)
    marquez.hook = lambda request: Fault(stall_s=1) if "/runs" in request.path else None
    with pytest.raises(BackendUnavailable, match=r"0\.2 s|cannot be reached"):
        check(history.ledger, Marquez(marquez.url, timeout_s=0.2))


def test_what_is_no_marquez_is_said_clearly(history: History, marquez: Receiver) -> None:
    with pytest.raises(BackendUnavailable, match="does not answer as Marquez"):
        check(history.ledger, Marquez(marquez.url + "/elsewhere"))


def test_an_event_that_the_server_refuses_is_named_and_the_rest_is_sent(
    history: History, marquez: Receiver, ask: Callable[..., Report]
) -> None:
    small(history)
    first = runs(history)[0]
    marquez.hook = lambda request: Fault(status=422) if request.run == first else None
    report = ask(history, repair=True)
    assert codes(report) == {"run-missing": 1}
    assert report.repaired is not None
    assert [(event.run, event.status) for event in report.repaired.refused] == [(first, 422)]


def test_a_key_is_sent_and_never_shown(history: History, marquez: Receiver) -> None:
    marquez.api_key = "sesame-7f3a"
    with pytest.raises(BackendUnavailable) as refused:
        check(history.ledger, Marquez(marquez.url, api_key="wrong-key-12345"))
    assert "wrong-key" not in str(refused.value) + repr(refused.value.__dict__)
    assert "401" in str(refused.value)
    report = check(small(history).ledger, Marquez(marquez.url, api_key="sesame-7f3a"), repair=True)
    assert codes(report) == {}
    assert "sesame" not in json.dumps(report.to_json())
    # marquez-python would have kept the key for every server that this process talks to.
    from marquez_client import client

    assert "Authorization" not in client._HEADERS


@pytest.mark.parametrize(
    "given", ["http://m:5000", "http://m:5000/", "http://m:5000/api/v1", "http://m:5000/api/v1/lineage"]
)  # fmt: skip
def test_an_address_is_taken_in_any_of_its_forms(given: str) -> None:
    assert base_url(given) == "http://m:5000"


@pytest.mark.parametrize("given", ["m:5000", "ftp://m", "", "http://ana:secret@m:5000"])
def test_what_is_no_address_is_refused_without_showing_a_login(given: str) -> None:
    with pytest.raises(UsageError) as refused:
        base_url(given)
    assert "secret" not in str(refused.value)


def test_names_that_the_graph_cannot_be_asked_for_are_known() -> None:
    assert can_be_asked_for(("sales", "orders.append.sales.orders"))
    assert not can_be_asked_for(("sales", "2fast"))
    assert not can_be_asked_for(("odi", "queue:a"))


def test_long_names_are_asked_for(history: History, marquez: Receiver) -> None:
    history.land(history.intend(work("append"), job=JobName("sales/" + "x" * 300)))
    give(marquez, history.events)
    assert codes(check(history.ledger, Marquez(marquez.url))) == {}
