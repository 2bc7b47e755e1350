"""``history``: what was done to a table, refused and foreign things marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odi_audit.errors import TableNotFound, UsageError
from odi_audit.ids import JobName
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.tables import parse
from odi_audit.query.lookup import PAGE, find_named, newest, walk
from odi_audit.query.timeline import Outcome, TableEvent, timeline

if TYPE_CHECKING:
    from conftest import Bench


def told(bench: Bench, name: str = "sales.orders", **more: object) -> list[TableEvent]:
    named = find_named(bench.ledger, bench.catalog, parse(name))
    return timeline(bench.ledger, named, **more)  # type: ignore[arg-type]


def by_entry(events: list[TableEvent]) -> list[tuple[str, str]]:
    """The entries in their order; the bench's snapshots have another clock than its ledger."""
    recorded = sorted((e for e in events if e.entry is not None), key=lambda e: e.entry or 0)
    return [(event.outcome.value, event.operation) for event in recorded]


def test_every_operation_is_told_with_who_did_it(bench: Bench) -> None:
    batch = bench.land()
    bench.note(
        Kind.SCHEMA_CHANGE, operation="evolve_schema", steps=[["add", "note", "string"]],
        principal="bo",
    )  # fmt: skip
    bench.note(Kind.MAINTENANCE, operation="expire", expired=["1", "2"], principal="bo")
    events = told(bench)
    assert by_entry(events) == [("done", "append"), ("done", "evolve_schema"), ("done", "expire")]
    landed = next(event for event in events if event.batch == batch)
    assert landed.job == "sales/orders"
    assert landed.rows == 10
    assert landed.offsets == "p0 [0, 10)"
    assert landed.retained is True
    details = {event.operation: (event.principal, event.detail) for event in events}
    assert details["evolve_schema"] == ("bo", "add note string")
    assert details["expire"] == ("bo", "2 snapshots expired")


def test_what_failed_is_marked_with_its_reason(bench: Bench) -> None:
    bench.create("sales.other")
    bench.settle(bench.intend(), Kind.REFUSED, code="ODI-G03", reason="amount broken")
    bench.settle(bench.intend(), Kind.ABANDONED, reason="crashed")
    bench.settle(bench.intend(), Kind.UNKNOWN, reason="no answer")
    bench.settle(bench.intend("sales.other"), Kind.REFUSED, reason="not ours")
    bench.intend()
    events = told(bench)
    assert [(event.outcome, event.detail) for event in events] == [
        (Outcome.REFUSED, "ODI-G03: amount broken"),
        (Outcome.ABANDONED, "crashed"),
        (Outcome.UNKNOWN, "no answer"),
        (Outcome.OPEN, None),
    ]
    assert {event.principal for event in events} == {"ana"}


def test_a_doubt_that_was_settled_is_told_once(bench: Bench) -> None:
    intent = bench.intend()
    bench.settle(intent, Kind.UNKNOWN, reason="no answer")
    bench.record(intent, bench.write(bench.stamps(intent)))
    assert [event.outcome for event in told(bench)] == [Outcome.DONE]


def test_a_batch_that_a_rollback_took_out_is_undone(bench: Bench) -> None:
    batch = bench.land()
    bench.note(Kind.ROLLBACK, operation="rollback", to="77", undone=[batch])
    events = told(bench)
    assert by_entry(events) == [("undone", "append"), ("done", "rollback")]
    undone = next(event for event in events if event.outcome is Outcome.UNDONE)
    assert "rollback" in str(undone.detail)
    back = next(event for event in events if event.operation == "rollback")
    assert back.detail == f"back to snapshot 77; took out {batch}"


def test_a_replay_and_an_accepted_gap_stand_beside_their_batch(bench: Bench) -> None:
    intent = bench.intend(generation=1)
    for kind, facts in (
        (Kind.REPLAY, {"generation": 1}),
        (Kind.GAP_ACCEPTED, {"reason": "lost upstream"}),
    ):
        bench.ledger.append(
            Draft(
                kind=kind, job=intent.job, batch=intent.batch, table=bench.state().ref,
                intent=intent.index, facts=facts,
            )
        )  # fmt: skip
    bench.record(intent, bench.write(bench.stamps(intent)))
    (event,) = told(bench)
    assert event.detail == "a replay, generation 1; gap accepted: lost upstream"


def test_a_foreign_snapshot_is_marked_and_its_writer_named(bench: Bench) -> None:
    bench.land()
    snapshot = bench.write({"engine-name": "spark", "engine-version": "4", "app-id": "local-1"})
    (foreign,) = [event for event in told(bench) if event.outcome is Outcome.FOREIGN]
    assert (foreign.snapshot, foreign.rows, foreign.batch) == (snapshot, 10, None)
    assert str(foreign.writer) == "spark 4, local-1"


def test_a_foreign_snapshot_that_has_expired_is_told_from_the_ledger(bench: Bench) -> None:
    bench.note(Kind.FOREIGN, snapshot="99", operation="append", counts={"added-records": 4})
    (foreign,) = told(bench)
    assert foreign.outcome is Outcome.FOREIGN
    assert (foreign.rows, foreign.retained, foreign.time_exact) == (4, False, False)


def test_copied_stamps_do_not_make_a_snapshot_ours(bench: Bench) -> None:
    intent = bench.intend()
    stamps = bench.stamps(intent)
    bench.record(intent, bench.write(stamps))
    copy = bench.write(stamps)
    events = told(bench)
    (forged,) = [event for event in events if event.outcome is Outcome.UNRECORDED]
    assert forged.snapshot == copy
    assert "does not bear out" in str(forged.detail)
    assert len(events) == 2


def test_a_snapshot_on_its_way_is_told_as_open_only(bench: Bench) -> None:
    intent = bench.intend()
    bench.write(bench.stamps(intent))
    assert [event.outcome for event in told(bench)] == [Outcome.OPEN]


def test_a_limit_keeps_the_newest_and_bounds_are_checked(bench: Bench) -> None:
    for number in range(5):
        bench.note(Kind.MAINTENANCE, operation=f"op{number}")
    assert [event.operation for event in told(bench, limit=2)] == ["op3", "op4"]
    for limit in (0, 100_001):
        with pytest.raises(UsageError):
            told(bench, limit=limit)


def test_since_and_until_narrow(bench: Bench) -> None:
    entries = [bench.note(Kind.MAINTENANCE, operation=f"op{number}") for number in range(3)]
    found = told(bench, since=entries[1].time, until=entries[2].time)
    assert [event.operation for event in found] == ["op1"]


def test_a_renamed_and_a_dropped_table_keep_their_history(bench: Bench) -> None:
    bench.note(Kind.TABLE_CREATED, operation="create_table", format_version=2)
    bench.writer.rename_table(("sales", "orders"), ("sales", "renamed"))
    named = find_named(bench.ledger, bench.catalog, parse("sales.orders"))
    assert named.ref.name == "sales.renamed"
    assert [event.operation for event in told(bench, "sales.renamed")] == ["create_table"]
    bench.writer.drop_table(("sales", "renamed"))
    gone = find_named(bench.ledger, bench.catalog, parse("sales.orders"))
    assert gone.state is None
    assert [event.detail for event in timeline(bench.ledger, gone)] == ["format v2"]


def test_an_unknown_table_is_not_found_with_near_matches(bench: Bench) -> None:
    with pytest.raises(TableNotFound, match=r"sales\.orders"):
        told(bench, "sales.ordres")


def test_json_has_every_long_number_as_text(bench: Bench) -> None:
    bench.land()
    (event,) = told(bench)
    body = event.to_json()
    assert body["sequence_number"] == "1"
    assert body["writer"] is None
    assert body["outcome"] == "done"


def test_a_walk_yields_every_entry_once_though_many_share_a_moment(bench: Bench) -> None:
    from odi_audit.ledger.port import EntryFilter

    drafts = [Draft(kind=Kind.READ, job=JobName("a/b")) for _ in range(PAGE * 2 + 7)]
    bench.ledger.append(*drafts)  # one append, one moment
    bench.ledger.append(*drafts[:5])
    where = EntryFilter(kinds=(Kind.READ,))
    expected = list(range(len(drafts) + 5))
    assert [entry.index for entry in walk(bench.ledger, where)] == expected
    assert [entry.index for entry in walk(bench.ledger, where, stop=9)] == expected[:9]
    assert [entry.index for entry in newest(bench.ledger, where)] == expected[::-1]
