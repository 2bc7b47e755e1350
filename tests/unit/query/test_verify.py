from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from odi_audit.errors import Exit, TableNotFound
from odi_audit.model.entries import Kind
from odi_audit.model.tables import TableName, parse
from odi_audit.query.verify import examine, verify

if TYPE_CHECKING:
    from conftest import Bench

    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.catalog.state import TableState


def codes(bench: Bench) -> list[str]:
    return [finding.code for finding in verify(bench.ledger, bench.catalog)]


def test_a_lake_that_only_the_committer_wrote_is_clean(bench: Bench) -> None:
    bench.create("sales.returns")
    bench.land()
    bench.land("sales.orders", "sales.returns")
    result = examine(bench.ledger, bench.catalog)
    assert result.findings == ()
    assert result.notes == ()
    assert result.snapshots_count == 3
    assert set(result.tables) == {"sales.orders", "sales.returns"}


def test_an_empty_lake_is_clean(bench: Bench) -> None:
    assert codes(bench) == []


def test_a_snapshot_without_stamps_is_foreign(bench: Bench) -> None:
    bench.land()
    snapshot = bench.write()
    bench.land()
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V01"
    assert finding.subject == "sales.orders"
    assert finding.facts["snapshot"] == snapshot
    assert finding.facts["recorded"] is None


def test_a_foreign_snapshot_that_was_recorded_is_still_named_with_its_entry(bench: Bench) -> None:
    snapshot = bench.write()
    entry = bench.note(Kind.FOREIGN, snapshot=snapshot, operation="append")
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V01"
    assert finding.facts["recorded"] == entry.index


def test_incomplete_stamps_are_broken(bench: Bench) -> None:
    stamps = bench.stamps(bench.intend())
    del stamps["odi.principal"]
    bench.write(stamps)
    assert "ODI-V02" in codes(bench)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("odi.batch-id", "b-00000000000000000000000000000000"),
        ("odi.job", "sales/other"),
        ("odi.run-id", "6f64692d-6175-4469-b420-000000000000"),
        ("odi.principal", "mallory"),
        ("odi.code", "v2"),
        ("odi.source", "elsewhere"),
        ("odi.offsets", '{"kind":"mapping","ranges":{"p0":[0,11]}}'),
        ("odi.intent", "4711"),
    ],
)
def test_a_stamp_that_says_other_than_the_ledger_is_forged(
    bench: Bench, key: str, value: str
) -> None:
    intent = bench.intend()
    snapshot = bench.write({**bench.stamps(intent), key: value})
    bench.record(intent, snapshot, source="topic")
    assert "ODI-V03" in codes(bench)


def test_stamps_copied_to_another_table_are_forged(bench: Bench) -> None:
    bench.create("sales.copy")
    intent = bench.intend()
    bench.record(intent, bench.write(bench.stamps(intent)))
    bench.write(bench.stamps(intent), "sales.copy")
    (finding,) = verify(bench.ledger, bench.catalog)
    assert (finding.code, finding.subject) == ("ODI-V03", "sales.copy")
    assert "not about this table" in finding.message


def test_a_landed_entry_that_names_another_snapshot_does_not_bear_out_the_stamps(
    bench: Bench,
) -> None:
    bench.land()
    first = bench.state().current_snapshot
    assert first is not None
    intent = bench.intend()
    bench.write(bench.stamps(intent))
    bench.record(intent, first)
    assert codes(bench) == ["ODI-V03"]


def test_a_changed_sequence_number_in_the_record_is_found(bench: Bench) -> None:
    intent = bench.intend()
    bench.record(intent, bench.write(bench.stamps(intent)), sequence_number=9)
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V03"
    assert "sequence_number is 1 in the table, recorded 9" in finding.message


def test_a_batch_that_is_in_the_history_twice_is_found(bench: Bench) -> None:
    intent = bench.intend()
    bench.record(intent, bench.write(bench.stamps(intent)))
    bench.write(bench.stamps(intent))
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V06"
    assert len(finding.facts["snapshots"]) == 2  # type: ignore[arg-type]


def test_a_snapshot_that_expired_past_the_ledger_is_missed(bench: Bench) -> None:
    bench.land()
    gone = bench.state().current_snapshot
    bench.land()
    assert gone is not None
    bench.table().maintenance.expire_snapshots().by_id(int(gone)).commit()
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V04"
    assert finding.facts["snapshot"] == gone


def test_a_snapshot_whose_expiry_is_recorded_is_not_missed(bench: Bench) -> None:
    bench.land()
    gone = bench.state().current_snapshot
    bench.land()
    assert gone is not None
    bench.table().maintenance.expire_snapshots().by_id(int(gone)).commit()
    bench.note(Kind.MAINTENANCE, operation="expire", expired=[gone])
    assert codes(bench) == []


def test_main_moved_back_without_a_record_is_found(bench: Bench) -> None:
    bench.land()
    first = bench.state().current_snapshot
    lost = bench.land()
    assert first is not None
    bench.table().manage_snapshots().rollback_to_snapshot(int(first)).commit()
    findings = verify(bench.ledger, bench.catalog)
    assert {finding.code for finding in findings} == {"ODI-V04", "ODI-V05"}
    assert any(finding.facts.get("batch") == lost for finding in findings)


def test_a_recorded_rollback_is_clean(bench: Bench) -> None:
    bench.land()
    first = bench.state().current_snapshot
    undone = bench.land()
    second = bench.state().current_snapshot
    assert first is not None
    bench.table().manage_snapshots().rollback_to_snapshot(int(first)).commit()
    bench.note(
        Kind.ROLLBACK, **{"operation": "rollback", "from": second, "to": first, "undone": [undone]}
    )
    assert codes(bench) == []
    bench.land()
    assert codes(bench) == []


def test_a_rollback_that_was_recorded_after_a_crash_is_clean_too(bench: Bench) -> None:
    bench.land()
    first = bench.state().current_snapshot
    undone = bench.land()
    second = bench.state().current_snapshot
    assert first is not None
    bench.table().manage_snapshots().rollback_to_snapshot(int(first)).commit()
    bench.note(
        Kind.ROLLBACK, operation="rollback", to=first, removed_snapshots=[second], undone=[undone]
    )
    assert codes(bench) == []


def test_a_batch_named_as_undone_before_it_landed_is_not_undone(bench: Bench) -> None:
    intent = bench.intend()
    bench.note(Kind.ROLLBACK, operation="rollback", undone=[intent.batch])
    bench.record(intent, bench.write(bench.stamps(intent)))
    assert codes(bench) == []


def test_a_rolled_back_snapshot_that_is_in_main_again_is_found(bench: Bench) -> None:
    bench.land()
    first = bench.state().current_snapshot
    undone = bench.land()
    second = bench.state().current_snapshot
    assert first is not None and second is not None
    table = bench.table()
    table.manage_snapshots().rollback_to_snapshot(int(first)).commit()
    bench.note(
        Kind.ROLLBACK, **{"operation": "rollback", "from": second, "to": first, "undone": [undone]}
    )
    bench.table().manage_snapshots().set_current_snapshot(int(second)).commit()
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V05"
    assert "in it again" in finding.message


def test_an_open_intent_of_a_dead_process_is_a_finding(bench: Bench) -> None:
    intent = bench.intend()
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V07"
    assert finding.hint == f"odi-audit reconcile --batch {intent.batch}"


def test_an_open_intent_whose_snapshot_is_in_main_says_so(bench: Bench) -> None:
    bench.write(bench.stamps(bench.intend()))
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V07"
    assert finding.facts["stamped_in"] == ["sales.orders"]


def test_an_open_intent_of_a_living_process_is_only_a_note(bench: Bench) -> None:
    bench.ledger.hold("me")
    bench.intend(owner="me")
    result = examine(bench.ledger, bench.catalog)
    assert result.findings == ()
    assert [note.facts["alive"] for note in result.notes] == [True]


def test_an_unknown_outcome_is_a_finding_until_it_is_settled(bench: Bench) -> None:
    intent = bench.intend()
    bench.settle(intent, Kind.UNKNOWN, reason="the catalog hung up")
    (finding,) = verify(bench.ledger, bench.catalog)
    assert finding.code == "ODI-V08"
    assert "the catalog hung up" in finding.message
    bench.settle(intent, Kind.ABANDONED, reason="not in main")
    assert codes(bench) == []


def test_a_refused_batch_that_is_in_main_all_the_same_is_found(bench: Bench) -> None:
    intent = bench.intend()
    bench.settle(intent, Kind.REFUSED, reason="bad rows")
    bench.write(bench.stamps(intent))
    assert codes(bench) == ["ODI-V09"]


def test_a_table_that_was_dropped_past_the_ledger_is_named(bench: Bench) -> None:
    bench.create("sales.gone")
    bench.land("sales.gone")
    bench.writer.drop_table(("sales", "gone"))
    (finding,) = verify(bench.ledger, bench.catalog)
    assert (finding.code, finding.subject) == ("ODI-V10", "sales.gone")


def test_a_table_whose_drop_is_on_record_is_no_finding_and_a_namesake_is_no_drop(
    bench: Bench,
) -> None:
    bench.create("sales.gone")
    bench.land("sales.gone")
    dropped = bench.note(Kind.TABLE_DROPPED, "sales.gone", operation="drop_table", purge=False)
    bench.writer.drop_table(("sales", "gone"))
    assert codes(bench) == []
    with pytest.raises(TableNotFound, match="dropped by batch") as gone:
        examine(bench.ledger, bench.catalog, [parse("sales.gone")])
    assert gone.value.facts["batch"] == dropped.batch
    assert gone.value.exit_status is Exit.NOT_FOUND
    # Another table of the name has a history of its own, and may not vanish unseen either.
    bench.create("sales.gone")
    bench.land("sales.gone")
    assert codes(bench) == []
    bench.writer.drop_table(("sales", "gone"))
    assert codes(bench) == ["ODI-V10"]


def test_a_table_that_is_just_being_dropped_is_told_by_its_intent_alone(bench: Bench) -> None:
    bench.create("sales.gone")
    bench.land("sales.gone")
    bench.intend("sales.gone", op="drop_table")
    bench.writer.drop_table(("sales", "gone"))
    assert codes(bench) == ["ODI-V07"]


def rename(bench: Bench, former: str, to: str) -> None:
    """Record that a table was renamed."""
    bench.note(
        Kind.TABLE_RENAMED, to, operation="rename_table", from_name=former, to_name=to
    )  # fmt: skip


def test_a_table_that_was_renamed_past_the_ledger_is_named_until_a_rename_is_on_record(
    bench: Bench,
) -> None:
    bench.land()
    bench.writer.rename_table(("sales", "orders"), ("sales", "moved"))
    (finding,) = verify(bench.ledger, bench.catalog)
    assert (finding.code, finding.subject) == ("ODI-V12", "sales.moved")
    assert finding.facts["name_by_ledger"] == "sales.orders"
    bench.writer.rename_table(("sales", "moved"), ("sales", "orders"))
    rename(bench, "sales.moved", "sales.orders")
    assert codes(bench) == []
    # Of one that has its name from here, what is written under another name changes nothing.
    bench.writer.rename_table(("sales", "orders"), ("sales", "moved"))
    bench.land("sales.moved")
    assert codes(bench) == ["ODI-V12"]


def test_a_renamed_table_is_clean_under_its_new_name_and_told_under_the_old_one(
    bench: Bench,
) -> None:
    bench.land()
    bench.writer.rename_table(("sales", "orders"), ("sales", "moved"))
    rename(bench, "sales.orders", "sales.moved")
    bench.land("sales.moved")
    assert codes(bench) == []
    with pytest.raises(TableNotFound, match=r"sales\.orders is sales\.moved now"):
        examine(bench.ledger, bench.catalog, [parse("sales.orders")])


def test_a_table_that_is_renamed_while_the_tables_are_read_is_not_missing(bench: Bench) -> None:
    bench.land()
    bench.create("sales.other")

    class Moving:
        """The catalog, in which a table is renamed between the listing and the loading."""

        def tables(self) -> list[TableName]:
            names = bench.catalog.tables()
            if parse("sales.orders") in names:
                bench.writer.rename_table(("sales", "orders"), ("sales", "zz_moved"))
                rename(bench, "sales.orders", "sales.zz_moved")
            return names

        def load(self, name: TableName) -> TableState:
            return bench.catalog.load(name)

    result = examine(bench.ledger, cast("LakeCatalog", Moving()))
    assert result.findings == ()
    assert result.tables == ("sales.other", "sales.zz_moved")


def test_a_table_that_is_just_being_renamed_is_told_by_its_intent_alone(bench: Bench) -> None:
    bench.land()
    bench.intend(op="rename_table")
    bench.writer.drop_table(("sales", "orders"))
    assert codes(bench) == ["ODI-V07"]


def test_a_dropped_table_that_is_back_is_named(bench: Bench) -> None:
    bench.land()
    bench.note(Kind.TABLE_DROPPED, operation="drop_table")
    (finding,) = verify(bench.ledger, bench.catalog)
    assert (finding.code, finding.subject) == ("ODI-V11", "sales.orders")


def test_only_the_named_tables_are_looked_at(bench: Bench) -> None:
    bench.create("sales.other")
    bench.write(name="sales.other")
    bench.intend("sales.other")
    assert verify(bench.ledger, bench.catalog, [parse("sales.orders")]) == []
    with pytest.raises(TableNotFound):
        verify(bench.ledger, bench.catalog, [parse("sales.nothing")])


def test_a_landing_recorded_while_tables_are_read_is_no_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = bench.catalog.load
    raced: list[str] = []

    def racing(name: object) -> object:
        state = load(name)  # type: ignore[arg-type]
        if not raced:
            raced.append("landed between the two reads")
            monkeypatch.setattr(bench.catalog, "load", load)
            bench.land()
        return state

    bench.land()
    monkeypatch.setattr(bench.catalog, "load", racing)
    assert verify(bench.ledger, bench.catalog) == []
    assert raced
