from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odi_audit.ids import JobName
from odi_audit.ledger import create_ledger
from odi_audit.model.entries import Kind
from odi_audit.model.offsets import mapping
from odi_audit.query.batches import BatchState, list_batches
from odi_audit.query.verify import verify
from odi_audit.upkeep import rebuild as module
from odi_audit.upkeep.rebuild import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Bench


@pytest.fixture
def lost(bench: Bench, tmp_path: Path) -> Iterator[Bench]:
    """The same tables, with a new and empty ledger."""
    bench.create("sales.returns")
    bench.land()
    bench.land("sales.orders", "sales.returns")
    bench.write()
    bench.land("sales.returns")
    empty = create_ledger(f"sqlite:///{tmp_path / 'new.db'}", clock=bench.clock)
    yield replace(bench, ledger=empty)
    empty.close()


def test_a_plan_changes_nothing(lost: Bench) -> None:
    plan = rebuild(lost.ledger, lost.catalog, apply=False)
    assert len(plan.recoveries) == 4
    assert not plan.applied
    assert lost.ledger.head().size == 0


def test_a_lost_ledger_comes_back_from_the_stamps(bench: Bench, lost: Bench) -> None:
    plan = rebuild(lost.ledger, lost.catalog, apply=True)
    assert plan.entries_count == 3 + 4
    assert all(entry.recovered for entry in lost.ledger.scan())
    before = {summary.batch: summary for summary in list_batches(bench.ledger)}
    after = {summary.batch: summary for summary in list_batches(lost.ledger)}
    assert before.keys() == after.keys()
    for batch, summary in after.items():
        assert summary.state is BatchState.LANDED
        assert summary.run == before[batch].run
        assert summary.offsets == before[batch].offsets
        assert set(summary.tables) == set(before[batch].tables)
    assert lost.ledger.open_intents() == []


def test_a_rebuilt_ledger_verifies_except_for_what_was_foreign_before(lost: Bench) -> None:
    rebuild(lost.ledger, lost.catalog, apply=True)
    assert [finding.code for finding in verify(lost.ledger, lost.catalog)] == ["ODI-V01"]


def test_positions_of_the_sources_come_back(bench: Bench, lost: Bench) -> None:
    rebuild(lost.ledger, lost.catalog, apply=True)
    uuid = bench.state().ref.uuid
    job = JobName("sales/orders")
    kept = bench.ledger.positions(job, uuid, "topic")
    back = lost.ledger.positions(job, uuid, "topic")
    assert kept["p0"].end == 20
    assert {name: place.end for name, place in back.items()} == {"p0": 20}


def test_a_replay_comes_back_as_one_and_does_not_turn_the_position_back(
    bench: Bench, tmp_path: Path
) -> None:
    bench.land()
    bench.land()
    replayed = bench.land(offsets=mapping("topic", {"p0": (0, 10)}), generation=1)
    assert verify(bench.ledger, bench.catalog) == []
    with closing(create_ledger(f"sqlite:///{tmp_path / 'new.db'}", clock=bench.clock)) as empty:
        rebuild(empty, bench.catalog, apply=True)
        assert verify(empty, bench.catalog) == []
        generations = {item.batch: item.generation for item in list_batches(empty)}
        assert [batch for batch, number in generations.items() if number] == [replayed]
        places = empty.positions(JobName("sales/orders"), bench.state().ref.uuid, "topic")
    assert {name: place.end for name, place in places.items()} == {"p0": 20}


def test_rebuilding_twice_changes_nothing_more(lost: Bench) -> None:
    rebuild(lost.ledger, lost.catalog, apply=True)
    size = lost.ledger.head().size
    again = rebuild(lost.ledger, lost.catalog, apply=True)
    assert again.recoveries == ()
    assert lost.ledger.head().size == size


def test_a_rebuild_that_died_between_its_two_steps_is_finished_by_the_next(
    lost: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = lost.ledger.append

    def dying(*drafts: object) -> object:
        if drafts[0].kind is Kind.LANDED:  # type: ignore[attr-defined]
            raise ConnectionError("cut")
        return append(*drafts)  # type: ignore[arg-type]

    monkeypatch.setattr(lost.ledger, "append", dying)
    with pytest.raises(ConnectionError):
        rebuild(lost.ledger, lost.catalog, apply=True)
    monkeypatch.setattr(lost.ledger, "append", append)
    assert len(lost.ledger.open_intents()) == 3
    rebuild(lost.ledger, lost.catalog, apply=True)
    assert lost.ledger.open_intents() == []
    assert lost.ledger.head().size == 3 + 4


def test_batches_over_many_transactions_are_settled_once(
    lost: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 1)
    rebuild(lost.ledger, lost.catalog, apply=True)
    assert lost.ledger.open_intents() == []
    assert [finding.code for finding in verify(lost.ledger, lost.catalog)] == ["ODI-V01"]


def test_a_lost_tail_is_recovered_onto_the_intent_that_survived(bench: Bench) -> None:
    intent = bench.intend()
    bench.write(bench.stamps(intent))
    plan = rebuild(bench.ledger, bench.catalog, apply=True)
    assert [item.intent for item in plan.recoveries] == [intent.index]
    settled = bench.ledger.settled_by(intent.index)
    assert settled is not None
    assert (settled.kind, settled.recovered) == (Kind.LANDED, True)
    assert verify(bench.ledger, bench.catalog) == []


def test_a_batch_in_flight_is_left_to_its_own_process(bench: Bench) -> None:
    bench.ledger.hold("me")
    bench.write(bench.stamps(bench.intend(owner="me")))
    plan = rebuild(bench.ledger, bench.catalog, apply=True)
    assert plan.recoveries == ()
    assert "in flight" in plan.skipped[0].reason


def test_a_history_that_had_expired_before_the_ledger_was_lost_is_no_finding(
    bench: Bench, tmp_path: Path
) -> None:
    bench.land()
    gone = bench.state().current_snapshot
    bench.land()
    assert gone is not None
    bench.table().maintenance.expire_snapshots().by_id(int(gone)).commit()
    empty = create_ledger(f"sqlite:///{tmp_path / 'new.db'}", clock=bench.clock)
    rebuild(empty, bench.catalog, apply=True)
    findings = verify(empty, bench.catalog)
    empty.close()
    assert findings == []


def test_a_refused_batch_and_broken_stamps_are_not_recovered(bench: Bench) -> None:
    refused = bench.intend()
    bench.settle(refused, Kind.REFUSED, reason="bad")
    bench.write(bench.stamps(refused))
    broken = bench.stamps(bench.intend())
    del broken["odi.source"]
    bench.write(broken)
    size = bench.ledger.head().size
    plan = rebuild(bench.ledger, bench.catalog, apply=True)
    assert plan.recoveries == ()
    assert len(plan.skipped) == 2
    assert bench.ledger.head().size == size


def test_a_batch_that_is_there_twice_is_recovered_once(bench: Bench, tmp_path: Path) -> None:
    intent = bench.intend()
    bench.write(bench.stamps(intent))
    bench.write(bench.stamps(intent))
    empty = create_ledger(f"sqlite:///{tmp_path / 'new.db'}", clock=bench.clock)
    plan = rebuild(empty, bench.catalog, apply=True)
    empty.close()
    assert len(plan.recoveries) == 1
    assert "more than once" in plan.skipped[0].reason


def test_offsets_too_big_for_a_stamp_are_kept_as_their_digest(bench: Bench, tmp_path: Path) -> None:
    stamp = '{"kind":"kafka","partitions":900,"sha256":"ab"}'
    bench.write({**bench.stamps(bench.intend()), "odi.offsets": stamp})
    empty = create_ledger(f"sqlite:///{tmp_path / 'new.db'}", clock=bench.clock)
    plan = rebuild(empty, bench.catalog, apply=True)
    assert plan.recoveries[0].to_json()["offsets_known"] is False
    landed = empty.get(1)
    empty.close()
    assert "offsets" not in landed.facts
    assert landed.facts["offsets_stamp"] == {"kind": "kafka", "partitions": 900, "sha256": "ab"}
