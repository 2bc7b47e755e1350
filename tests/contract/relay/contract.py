"""What every implementation of the relay's state must do; run over both engines."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pytest

from lineage.relay.sources import LEDGER, Item
from lineage.relay.state import Changes, Doubt, Lease, Letter, Stand
from lineage.relay.state_sql import SqlState
from odi_audit.errors import RelayHeld
from odi_audit.ids import RunId

NOW, LATER, MUCH_LATER = (f"2026-11-16T08:0{minute}:00.000000Z" for minute in (0, 1, 2))
RUN, OTHER = RunId("run-1"), RunId("run-2")


class StatePlace(ABC):
    """Where a state under test lies; ``open`` is another connection each time."""

    @abstractmethod
    def open(self) -> SqlState: ...


def item(key: str, run: RunId = RUN, state: str = "START") -> Item:
    return Item(source=LEDGER, key=key, run=run, state=state, body=b"{}")


def letter(key: str, stand: Stand = Stand.PARKED, run: RunId = RUN, tries: int = 1) -> Letter:
    return Letter(
        source=LEDGER, key=key, run=run, state="START", stand=stand, reason="422 no", status=422,
        tries=tries, first_at=NOW, last_at=NOW,
    )  # fmt: skip


@pytest.fixture
def state(place: StatePlace) -> SqlState:
    made = place.open()
    made.begin("m", "http://m", {})
    return made


@pytest.fixture
def lease(state: SqlState) -> Lease:
    return state.acquire("m", "me", NOW, LATER)


class StateContract:
    """Subclasses give the fixture ``place``."""

    def test_a_destination_is_remembered_with_its_address(
        self, place: StatePlace, state: SqlState
    ) -> None:
        state.begin("n", "http://n", {LEDGER: "7"})
        other = place.open()
        assert [(one.name, one.address) for one in other.destinations()] == [
            ("m", "http://m"), ("n", "http://n"),
        ]  # fmt: skip
        assert other.positions("n") == {LEDGER: "7"}
        assert other.positions("m") == {}
        assert other.facts("nobody") is None

    def test_what_is_written_is_seen_by_others_at_once(
        self, place: StatePlace, state: SqlState, lease: Lease
    ) -> None:
        state.write(lease, Changes(sending=[item("0.0"), item("1.0", OTHER)], at=NOW))
        state.write(
            lease,
            Changes(settled=[item("0.0")], passed={LEDGER: ("1", ("0.0",))}, sent=1, at=NOW),
        )
        other = place.open()
        assert other.positions("m") == {LEDGER: "1"}
        assert [(mark.key, mark.run, mark.settled) for mark in other.marks("m")] == [
            ("1.0", OTHER, False)
        ]
        facts = other.facts("m")
        assert facts is not None
        assert (facts.sent, facts.sent_at) == (1, NOW)

    def test_an_event_above_the_position_is_kept_as_settled(
        self, state: SqlState, lease: Lease
    ) -> None:
        state.write(lease, Changes(sending=[item("1.0")]))
        state.write(lease, Changes(settled=[item("1.0")]))
        assert [(mark.key, mark.settled) for mark in state.marks("m")] == [("1.0", True)]
        state.write(lease, Changes(passed={LEDGER: ("2", ("0.0", "1.0"))}))
        assert state.marks("m") == []

    def test_the_lease_is_one_holders_at_a_time(
        self, place: StatePlace, state: SqlState, lease: Lease
    ) -> None:
        other = place.open()
        with pytest.raises(RelayHeld, match="me sends"):
            other.acquire("m", "you", NOW, LATER)
        assert other.lease("m") == lease
        state.release(lease)
        assert other.lease("m") is None
        assert other.acquire("m", "you", NOW, LATER).token == lease.token + 1

    def test_leases_of_two_destinations_are_apart(
        self, place: StatePlace, state: SqlState, lease: Lease
    ) -> None:
        state.begin("n", "http://n", {})
        assert place.open().acquire("n", "you", NOW, LATER).holder == "you"
        state.renew(lease, MUCH_LATER)

    def test_a_lease_that_ran_out_is_taken_over_and_its_old_holder_fenced(
        self, place: StatePlace, state: SqlState, lease: Lease
    ) -> None:
        state.write(lease, Changes(passed={LEDGER: ("1", ())}))
        other = place.open()
        taken = other.acquire("m", "you", LATER, MUCH_LATER)
        for write in (
            lambda: state.write(lease, Changes(passed={LEDGER: ("9", ())})),
            lambda: state.renew(lease, MUCH_LATER),
        ):
            with pytest.raises(RelayHeld, match="taken over"):
                write()
        state.release(lease)
        assert other.positions("m") == {LEDGER: "1"}
        other.write(taken, Changes(passed={LEDGER: ("2", ())}))
        assert state.positions("m") == {LEDGER: "2"}
        assert state.lease("m") == taken

    def test_a_dead_holder_is_replaced_at_once(
        self, place: StatePlace, state: SqlState, lease: Lease
    ) -> None:
        assert lease.until == LATER
        state.close()
        assert place.open().acquire("m", "you", NOW, LATER).token == lease.token + 1

    def test_letters_come_back_in_the_order_in_which_they_were_parked(
        self, state: SqlState, lease: Lease
    ) -> None:
        state.write(lease, Changes(letters=[letter("9.0"), letter("10.0", Stand.HELD)]))
        state.write(lease, Changes(letters=[letter("3.0", run=OTHER)]))
        state.write(lease, Changes(letters=[letter("9.0", tries=2)]))
        found = state.letters("m")
        assert [(one.key, one.stand, one.tries) for one in found] == [
            ("9.0", Stand.PARKED, 2), ("10.0", Stand.HELD, 1), ("3.0", Stand.PARKED, 1),
        ]  # fmt: skip
        assert found[0].reason == "422 no"
        assert found[0].status == 422
        assert state.letter_counts("m") == {RUN: 2, OTHER: 1}
        assert len(state.letters("m", limit=2)) == 2
        state.write(lease, Changes(letters_gone=[item("9.0")]))
        assert [one.key for one in state.letters("m")] == ["10.0", "3.0"]

    def test_a_retry_is_ordered_without_the_lease(
        self, place: StatePlace, state: SqlState, lease: Lease
    ) -> None:
        state.write(lease, Changes(letters=[letter("1.0"), letter("2.0", Stand.HELD)]))
        other = place.open()
        assert other.ask_retry("m", [(LEDGER, "1.0"), (LEDGER, "7.0")]) == 1
        assert [one.key for one in state.letters("m", stand=Stand.RETRY)] == ["1.0"]
        facts = state.facts("m")
        assert facts is not None
        assert facts.orders == 1

    def test_dropping_the_parked_one_lets_those_behind_it_go(
        self, place: StatePlace, state: SqlState, lease: Lease
    ) -> None:
        parked = [letter("1.0"), letter("2.0", Stand.HELD), letter("3.0", run=OTHER)]
        state.write(lease, Changes(letters=parked))
        done = place.open().drop("m", [(LEDGER, "1.0")], reason="useless", who="ana", at=LATER)
        assert done == 1
        assert [(one.key, one.stand) for one in state.letters("m")] == [
            ("2.0", Stand.RETRY), ("3.0", Stand.PARKED),
        ]  # fmt: skip
        gone = state.dropped("m", 10)
        assert [(one.key, one.refusal, one.reason, one.who, one.at) for one in gone] == [
            ("1.0", "422 no", "useless", "ana", LATER)
        ]

    def test_dropping_one_that_is_held_leaves_the_others_as_they_are(
        self, state: SqlState, lease: Lease
    ) -> None:
        held = [letter("1.0"), letter("2.0", Stand.HELD), letter("4.0", Stand.HELD)]
        state.write(lease, Changes(letters=held))
        assert state.drop("m", [(LEDGER, "2.0")], reason="r", who="w", at=NOW) == 1
        assert [(one.key, one.stand) for one in state.letters("m")] == [
            ("1.0", Stand.PARKED), ("4.0", Stand.HELD),
        ]  # fmt: skip

    def test_doubts_are_kept_one_for_each_run(self, state: SqlState, lease: Lease) -> None:
        first = Doubt(run=RUN, source=LEDGER, key="1.0", since=NOW)
        state.write(lease, Changes(doubts=[first]))
        ended = Doubt(run=RUN, source=LEDGER, key="1.0", since=NOW, echo="3.0", due_at=LATER)
        state.write(lease, Changes(doubts=[ended]))
        assert state.doubts("m") == [ended]
        state.write(lease, Changes(doubts_gone=[RUN]))
        assert state.doubts("m") == []

    def test_a_stop_is_shown_until_the_destination_answers_again(
        self, state: SqlState, lease: Lease
    ) -> None:
        state.write(lease, Changes(stopped="401", error="401", at=NOW))
        facts = state.facts("m")
        assert facts is not None
        assert (facts.stopped, facts.error, facts.error_at) == ("401", "401", NOW)
        state.write(lease, Changes(going=True, at=LATER))
        facts = state.facts("m")
        assert facts is not None
        assert (facts.stopped, facts.error) == (None, "401")

    def test_beginning_anew_forgets_all_but_what_was_dropped(
        self, state: SqlState, lease: Lease
    ) -> None:
        state.write(lease, Changes(letters=[letter("1.0")], sending=[item("2.0")]))
        state.drop("m", [(LEDGER, "1.0")], reason="r", who="w", at=NOW)
        state.begin("m", "http://elsewhere", {LEDGER: "0"})
        assert state.marks("m") == []
        assert state.letters("m") == []
        assert len(state.dropped("m", 10)) == 1
        state.forget("m")
        assert state.destinations() == []

    def test_a_hundred_rounds_leave_nothing_behind_but_the_position(
        self, state: SqlState, lease: Lease
    ) -> None:
        for number in range(100):
            key = f"{number}.0"
            state.write(lease, Changes(sending=[item(key)]))
            state.write(
                lease, Changes(settled=[item(key)], passed={LEDGER: (str(number + 1), (key,))})
            )
        assert state.marks("m") == []
        assert state.positions("m") == {LEDGER: "100"}
