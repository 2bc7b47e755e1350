"""``odi-audit relay`` as people and machines call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineage.relay.operate import new_holder
from lineage.relay.state_open import open_state
from odi_audit.cli.app import run
from odi_audit.settings import ledger_url
from odi_audit.workspace import Workspace
from tests.support.marquez import Fault, Receiver, receiver
from tests.support.relaying import events_in, fill, judge


class Place:
    """A lake with batches, its settings, and the command line."""

    def __init__(self, lake: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
        self.lake = lake
        self._capsys = capsys
        fill(lake.ledger(), range(6))

    def configure(self, text: str) -> None:
        path = self.lake.root / "odi.toml"
        before = path.read_text("utf-8").partition("[lineage]")[0]
        path.write_text(f"{before}\n[lineage]\n{text}\n", "utf-8")

    def ask(self, *args: str) -> tuple[int, Any]:
        """Run with --json; return the exit status and the data or the error's."""
        self._capsys.readouterr()
        status = run(["relay", *args, "--lake", str(self.lake.root), "--json"])
        said = self._capsys.readouterr()
        body = json.loads(said.out.splitlines()[-1] if said.out else said.err.splitlines()[-1])
        if status == 0 or said.out:
            assert body["schema"].startswith("odi.relay"), body
        return status, body["data"]

    def tell(self, *args: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status = run(["relay", *args, "--lake", str(self.lake.root)])
        said = self._capsys.readouterr()
        return status, said.out, said.err


@pytest.fixture
def place(make_lake: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(make_lake(), capsys)


@pytest.fixture
def backend(place: Place) -> Any:
    with receiver() as made:
        place.configure(
            f'transport = "http"\nurl = "{made.url}"\nsettle_s = 0.05\nretry_s_max = 0.02'
        )
        yield made


def one(data: Any) -> Any:
    assert len(data["destinations"]) == 1
    return data["destinations"][0]


def test_without_a_transport_nothing_is_sent_and_that_is_said(place: Place) -> None:
    status, error = place.ask()
    assert status == 3
    assert "no transport is set" in error["message"]
    status, data = place.ask("status")
    assert (status, data["transport"], data["destinations"]) == (0, "none", [])
    assert "sent nowhere" in place.tell("status")[1]
    assert not (place.lake.root / "relay.db").exists()


def test_once_sends_everything_and_status_shows_it(place: Place, backend: Receiver) -> None:
    status, data = place.ask("--once")
    assert status == 0
    assert data["outcomes"] == [
        {
            "destination": "default", "sent": 18, "left": 0, "dead_letters": 0, "stopped": None,
            "error": None,
        }
    ]  # fmt: skip
    taken = [(one.index, one.run, one.state) for one in backend.arrivals if one.taken]
    judge(events_in(place.lake.ledger()), taken, backend.states)
    status, data = place.ask("status")
    shown = one(data)
    assert status == 0
    assert (shown["sent"], shown["dead_letters"], shown["lease"]) == (18, 0, None)
    assert shown["sources"] == [
        {
            "source": "ledger", "position": "18", "head": "18", "lag_entries": 0, "lag_s": None,
            "oldest_at": None,
        }
    ]  # fmt: skip
    fill(place.lake.ledger(), range(6, 8))
    waiting = one(place.ask("status")[1])["sources"][0]
    assert waiting["lag_entries"] == 6
    assert waiting["lag_s"] >= 0


def test_dead_letters_are_shown_retried_and_dropped(place: Place, backend: Receiver) -> None:
    runs = [str(item.run) for item in place.lake.ledger().scan() if item.kind.value == "intent"]
    bad = set(runs[:2])
    backend.hook = lambda ask: Fault(status=422) if ask.run in bad else None
    assert place.ask()[0] == 1
    status, data = place.ask("status")
    shown = one(data)
    assert (status, shown["dead_letters"], shown["held_runs"]) == (1, 6, 2)
    assert shown["letters"][0]["event"] == "0.0"
    assert "422" in shown["letters"][0]["reason"]
    assert "dead letters of 2 runs" in place.tell("status")[1]
    bad.remove(runs[0])
    status, data = place.ask("retry", "0.0")
    assert [item["event"] for item in data["asked"]] == ["0.0", "1.0", "2.0"]
    assert (status, data["outcomes"][0]["dead_letters"]) == (1, 3)
    assert backend.states[runs[0]] == "COMPLETED"
    status, data = place.ask("drop", runs[1][:8], "--reason", "of no use")
    assert (status, len(data["dropped"])) == (0, 3)
    shown = one(place.ask("status")[1])
    assert shown["dead_letters"] == 0
    assert {item["reason"] for item in shown["dropped"]} == {"of no use"}
    assert all(item["who"] for item in shown["dropped"])
    assert place.ask("--once")[0] == 0
    assert runs[1] not in backend.states


def test_an_unknown_letter_has_near_matches(place: Place, backend: Receiver) -> None:
    backend.hook = lambda _: Fault(status=422)
    place.ask()
    status, error = place.ask("drop", "0.9", "--reason", "x")
    assert status == 4
    assert "did you mean" in error["message"]
    assert place.ask("drop", "0.0", "--reason", " ")[0] == 2
    assert place.ask("retry")[0] == 2
    assert place.ask("retry", "0.0", "--all")[0] == 2


def test_a_destination_that_turns_us_away_is_a_wrong_setting(
    place: Place, backend: Receiver
) -> None:
    backend.api_key = "right-key"
    status, out, err = place.tell("--once")
    assert status == 3
    assert "ODI-R03" in err
    assert "turns us away" in err
    shown = one(place.ask("status")[1])
    assert shown["stopped"].startswith("401")
    assert out == ""


def test_another_relay_at_work_is_a_conflict(place: Place, backend: Receiver) -> None:
    store = open_state(ledger_url(place.lake.settings))
    assert store is not None
    place.ask("--once")
    lease = store.acquire("default", new_holder(), "2026-01-01", "2999-01-01")
    status, error = place.ask("--once")
    assert status == 6
    assert lease.holder in error["message"]
    assert one(place.ask("status")[1])["lease"]["holder"] == lease.holder
    store.release(lease)
    store.close()


def test_history_is_sent_again_to_a_new_backend(place: Place, backend: Receiver) -> None:
    assert place.ask("--once")[0] == 0
    with receiver() as second:
        status, data = place.ask("rebuild", "--from", "start", "--url", second.url)
        assert (status, data["outcomes"][0]["sent"]) == (0, 18)
        taken = [(one.index, one.run, one.state) for one in second.arrivals if one.taken]
        judge(events_in(place.lake.ledger()), taken, second.states)
        status, error = place.ask("rebuild", "--from", "start", "--url", second.url)
        assert status == 3
        assert "only the ends of runs" in error["message"]


def test_to_the_same_backend_only_the_ends_of_runs_go_again(
    place: Place, backend: Receiver
) -> None:
    assert place.ask("--once")[0] == 0
    assert place.ask("rebuild", "--from", "start")[0] == 3
    before = len(backend.arrivals)
    status, data = place.ask("rebuild", "--from", "start", "--yes")
    assert (status, data["outcomes"][0]["sent"]) == (0, 6)
    assert {one.state for one in backend.arrivals[before:]} <= {"COMPLETE", "FAIL", "ABORT"}
    assert [item["name"] for item in place.ask("status")[1]["destinations"]] == ["default"]
    status, data = place.ask("rebuild", "--from", "9", "--to", "12", "--yes")
    assert data["outcomes"][0]["sent"] == 1


def test_a_destination_that_moved_is_not_taken_for_the_old_one(
    place: Place, backend: Receiver
) -> None:
    assert place.ask("--once")[0] == 0
    with receiver() as second:
        place.configure(f'transport = "http"\nurl = "{second.url}"\nsettle_s = 0.05')
        status, error = place.ask("--once")
        assert status == 3
        assert "was http://" in error["message"]
        assert one(place.ask("status")[1])["moved_from"].startswith(backend.url)
        assert second.arrivals == []
        assert place.ask("rebuild", "--from", "start")[0] == 0
        fill(place.lake.ledger(), range(6, 8))
        assert place.ask("--once")[1]["outcomes"][0]["sent"] == 6
        assert len(second.states) == 8


def test_each_destination_of_several_goes_its_own_way(place: Place, tmp_path: Path) -> None:
    with receiver(api_key="k-123456") as backend:
        backend.hook = lambda _: Fault(status=503)
        place.configure(
            'transport = "composite"\nretry_s_max = 0.01\nsettle_s = 0.05\n'
            'api_keys = { marquez = "k-123456" }\n'
            f'[lineage.destinations.marquez]\ntransport = "http"\nurl = "{backend.url}"\n'
            '[lineage.destinations.archive]\ntransport = "file"\nfile = "events.jsonl"\n'
        )
        status, data = place.ask("--once")
        assert status == 1
        left = {item["destination"]: item["left"] for item in data["outcomes"]}
        assert left == {"archive": 0, "marquez": 18}
        lines = (place.lake.root / "events.jsonl").read_bytes().splitlines()
        assert len(lines) == 18
        backend.hook = None
        assert place.ask("--once", "--destination", "marquez")[0] == 0
        assert len(backend.states) == 6
        assert place.ask("--once", "--destination", "nope")[0] == 3


def test_the_console_gets_events_only_where_it_is_asked_for(place: Place) -> None:
    place.configure('transport = "console"')
    status, out, err = place.tell("--once")
    assert status == 0
    assert len([json.loads(line)["run"] for line in out.splitlines()]) == 18
    assert "18 events sent" in err


def test_contradicting_options_are_refused(place: Place, backend: Receiver) -> None:
    assert place.ask("--once", "--follow")[0] == 2
    assert place.ask("rebuild", "--from", "yesterday")[0] == 2
