"""The contract of the ledger's port: every implementation passes all of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from odi_audit.clock import SystemClock
from odi_audit.errors import (
    AmbiguousBatch,
    EntryNotFound,
    LedgerBroken,
    LedgerConflict,
    LedgerLocked,
    LedgerMissing,
    LedgerReadOnly,
    LedgerTooNew,
    OdiError,
    UsageError,
)
from odi_audit.ids import BatchId, JobName, batch_run_id
from odi_audit.ledger import EntryFilter, SqlLedger, merkle, schema
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.tables import TableRef
from tests.contract.ledger.places import (
    ITEMS,
    JOB,
    ORDERS,
    OTHER_JOB,
    ROOT,
    Place,
    StepClock,
    batch,
    land,
    offsets,
)


def naive_root(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, as it is written there."""
    if not leaves:
        return merkle.EMPTY_ROOT
    if len(leaves) == 1:
        return merkle.leaf_hash(leaves[0])
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return merkle.node_hash(naive_root(leaves[:split]), naive_root(leaves[split:]))


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a worker process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.contract.ledger.worker", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    )


class LedgerContract:
    """Subclasses give the fixture ``place``."""

    @pytest.fixture
    def clock(self) -> StepClock:
        return StepClock()

    @pytest.fixture
    def ledger(self, place: Place, clock: StepClock) -> Iterator[SqlLedger]:
        made = place.create(clock)
        yield made
        made.close()

    # -- appending --------------------------------------------------------------------------------

    def test_entries_get_their_index_and_time_in_order(self, ledger: SqlLedger) -> None:
        first = ledger.append(Draft(kind=Kind.READ), Draft(kind=Kind.FOREIGN))
        second = ledger.append(Draft(kind=Kind.READ, facts={"a": [1, "é"]}))
        assert [entry.index for entry in [*first, *second]] == [0, 1, 2]
        assert list(ledger.scan()) == [*first, *second]
        assert ledger.append() == []

    def test_time_never_goes_backwards_when_the_clock_does(
        self, ledger: SqlLedger, clock: StepClock
    ) -> None:
        before = ledger.append(Draft(kind=Kind.READ))[0]
        clock.moment -= timedelta(hours=1)
        after = ledger.append(Draft(kind=Kind.READ))[0]
        assert after.time == before.time

    def test_an_intent_gets_its_run_id_from_its_index(self, ledger: SqlLedger) -> None:
        ledger.append(Draft(kind=Kind.READ))
        intent = ledger.append(Draft(kind=Kind.INTENT, job=JOB, batch=batch(1)))[0]
        assert intent.run == batch_run_id(batch(1), 1)
        assert ledger.get(1) == intent

    def test_a_batch_lands_on_a_table_once(self, ledger: SqlLedger) -> None:
        _, index = land(ledger, 1)
        size = ledger.head().size
        with pytest.raises(LedgerConflict) as caught:
            ledger.append(
                Draft(kind=Kind.READ), Draft(kind=Kind.LANDED, batch=batch(1), table=ORDERS)
            )
        assert caught.value.facts["index"] == index
        assert ledger.head().size == size, "all or none"
        ledger.append(Draft(kind=Kind.LANDED, batch=batch(1), table=ITEMS))
        found = ledger.landed(batch(1), ORDERS.uuid)
        assert found is not None
        assert found.index == index
        assert ledger.landed(batch(2), ORDERS.uuid) is None

    def test_an_intent_is_settled_once(self, ledger: SqlLedger) -> None:
        intent, settled = land(ledger, 1)
        with pytest.raises(LedgerConflict) as caught:
            ledger.append(Draft(kind=Kind.ABANDONED, intent=intent, settles=True))
        assert caught.value.facts["index"] == settled
        found = ledger.settled_by(intent)
        assert found is not None
        assert found.index == settled

    def test_conflicts_within_one_append_are_found_too(self, ledger: SqlLedger) -> None:
        twice = Draft(kind=Kind.LANDED, batch=batch(1), table=ORDERS)
        with pytest.raises(LedgerConflict):
            ledger.append(twice, twice)
        intent = ledger.append(Draft(kind=Kind.INTENT, batch=batch(2)))[0].index
        closing = Draft(kind=Kind.ABANDONED, intent=intent, settles=True)
        with pytest.raises(LedgerConflict):
            ledger.append(closing, closing)
        assert ledger.head().size == 1

    @pytest.mark.parametrize(
        "draft",
        [
            Draft(kind=Kind.READ, facts={"id": 2**60}),
            Draft(kind=Kind.READ, facts={"x": float("nan")}),
            Draft(kind=Kind.READ, facts={"x": "\ud800"}),
            Draft(kind=Kind.LANDED, batch=batch(1)),
            Draft(kind=Kind.ABANDONED, settles=True),
            Draft(kind=Kind.LANDED, job=JOB, batch=batch(1), table=ORDERS, facts={"offsets": 5}),
            Draft(kind=Kind.UNDO, table=ORDERS, facts={"undone": "b-1"}),
        ],
        ids=["big-int", "nan", "surrogate", "no-table", "no-intent", "offsets", "undone"],
    )
    def test_what_cannot_be_recorded_is_refused_and_nothing_is_kept(
        self, ledger: SqlLedger, draft: Draft
    ) -> None:
        with pytest.raises(UsageError):
            ledger.append(Draft(kind=Kind.READ), draft)
        assert ledger.head().size == 0
        ledger.append(Draft(kind=Kind.READ))

    # -- finding ----------------------------------------------------------------------------------

    def test_find_narrows_by_every_field(self, ledger: SqlLedger) -> None:
        for number in range(4):
            land(ledger, number, table=ORDERS if number % 2 else ITEMS)
        land(ledger, 9, job=OTHER_JOB)
        entries = list(ledger.scan())

        def indexes(where: EntryFilter, **options: Any) -> list[int]:
            return [entry.index for entry in ledger.find(where, **options)]

        def expected(test: Any) -> list[int]:
            return [entry.index for entry in entries if test(entry)]

        assert indexes(EntryFilter()) == list(range(10))
        assert indexes(EntryFilter(job=OTHER_JOB)) == [8, 9]
        assert indexes(EntryFilter(batch=batch(2))) == [4, 5]
        assert indexes(EntryFilter(table=ORDERS.uuid)) == expected(lambda e: e.table == ORDERS)
        assert indexes(EntryFilter(kinds=(Kind.LANDED, Kind.SEAL))) == [1, 3, 5, 7, 9]
        assert indexes(EntryFilter(kinds=(Kind.INTENT,), job=JOB)) == [0, 2, 4, 6]
        assert indexes(EntryFilter(since=entries[3].time, until=entries[6].time)) == [3, 4, 5]
        assert indexes(EntryFilter(since="9999")) == []
        assert indexes(EntryFilter(), limit=2, newest_first=True) == [9, 8]
        assert indexes(EntryFilter(), limit=3) == [0, 1, 2]
        assert indexes(EntryFilter(job=JOB), limit=3, newest_first=True) == [7, 6, 5]
        assert indexes(EntryFilter(table=ITEMS.uuid), limit=1) == [1]
        several = EntryFilter(kinds=(Kind.LANDED, Kind.INTENT), job=JOB, until=entries[6].time)
        assert indexes(several, limit=3, newest_first=True) == [5, 4, 3]
        assert indexes(several, limit=0) == []
        assert indexes(EntryFilter(batch=batch(2), kinds=(Kind.LANDED,)), limit=5) == [5]

    def test_find_narrows_by_places_also_where_many_entries_share_a_moment(
        self, ledger: SqlLedger
    ) -> None:
        drafts = [Draft(kind=Kind.READ if n % 3 else Kind.SEAL, job=JOB) for n in range(30)]
        ledger.append(*drafts)
        where = EntryFilter(kinds=(Kind.READ,), job=JOB, first=7, before=20)
        found = [entry.index for entry in ledger.find(where)]
        assert found == [n for n in range(7, 20) if n % 3]
        some = [entry.index for entry in ledger.find(where, limit=4, newest_first=True)]
        assert some == found[::-1][:4]
        assert ledger.find(EntryFilter(first=30)) == []
        assert ledger.find(EntryFilter(first=9, before=9)) == []
        both = EntryFilter(first=28, since=ledger.get(0).time)
        assert [entry.index for entry in ledger.find(both, limit=9)] == [28, 29]

    def test_a_batch_is_found_by_the_beginning_of_its_id(self, ledger: SqlLedger) -> None:
        for name in ("b-aa1", "b-aa2", "b-b", "b-bcd"):
            ledger.append(*[Draft(kind=Kind.INTENT, batch=BatchId(name))] * 3)
        assert ledger.resolve_batch("b-aa1") == "b-aa1"
        assert ledger.resolve_batch("bc") == "b-bcd"
        assert ledger.resolve_batch("b") == "b-b", "a whole id is not ambiguous"
        with pytest.raises(AmbiguousBatch) as caught:
            ledger.resolve_batch("aa")
        assert caught.value.facts["batches"] == ["b-aa1", "b-aa2"]
        with pytest.raises(EntryNotFound) as missed:
            ledger.resolve_batch("zz%_")
        assert missed.value.facts["near"] == []
        ledger.append(Draft(kind=Kind.INTENT, batch=BatchId("b-12345678")))
        with pytest.raises(EntryNotFound, match="did you mean b-12345678"):
            ledger.resolve_batch("12346678")

    def test_open_intents_are_those_that_nothing_settled(self, ledger: SqlLedger) -> None:
        land(ledger, 1)
        open_one = ledger.append(Draft(kind=Kind.INTENT, job=JOB, batch=batch(2)))[0]
        land(ledger, 3)
        ledger.append(Draft(kind=Kind.UNKNOWN, job=JOB, batch=batch(2), intent=open_one.index))
        assert ledger.open_intents() == [open_one]
        assert ledger.open_intents(job=OTHER_JOB) == []
        assert ledger.open_attempts(batch(2)) == [open_one]
        again = ledger.append(Draft(kind=Kind.INTENT, job=OTHER_JOB, batch=batch(2)))[0]
        assert ledger.open_attempts(batch(2)) == [open_one, again]
        ledger.append(Draft(kind=Kind.ABANDONED, intent=open_one.index, settles=True))
        assert ledger.open_intents() == [again]
        assert ledger.open_intents() == [again], "the answer does not wear off"
        assert ledger.settled_by(again.index) is None

    def test_open_runs_are_those_without_an_end_and_each_is_ended_once(
        self, ledger: SqlLedger
    ) -> None:
        assert ledger.open_runs() == []
        first, second = ledger.append(*[Draft(kind=Kind.RUN_STARTED, job=JOB)] * 2)
        land(ledger, 1)
        assert ledger.open_runs() == [first, second]
        assert ledger.open_intents() == [], "a run is no intent"
        end = Draft(kind=Kind.RUN_ENDED, job=JOB, intent=first.index, settles=True)
        [ended] = ledger.append(end)
        assert ledger.open_runs() == [second]
        assert ledger.settled_by(first.index) == ended
        with pytest.raises(LedgerConflict, match=f"run {first.index} is settled already"):
            ledger.append(end)
        ledger.append(Draft(kind=Kind.RUN_ENDED, job=JOB, intent=second.index, settles=True))
        [third] = ledger.append(Draft(kind=Kind.RUN_STARTED, job=JOB))
        assert ledger.open_runs() == [third]
        assert ledger.open_runs() == [third], "the answer does not wear off"

    def test_open_intents_of_a_part_are_found_whatever_was_asked_before(
        self, ledger: SqlLedger
    ) -> None:
        chance, opened, spans = random.Random(4), [], []
        for number in range(40):
            if number % 7 == 3:
                opened += ledger.append(Draft(kind=Kind.INTENT, job=JOB, batch=batch(number)))
            else:
                land(ledger, number)
            size = ledger.head().size
            spans.append((chance.randrange(size), chance.randrange(size + 5)))
            for first, before in spans[-3:]:
                found = ledger.open_intents(first=first, before=before)
                assert found == [entry for entry in opened if first <= entry.index < before]
            if number % 11 == 10:
                gone = opened.pop(chance.randrange(len(opened)))
                ledger.append(Draft(kind=Kind.ABANDONED, intent=gone.index, settles=True))
            if number % 5 == 0:
                assert ledger.open_intents() == opened
        assert ledger.open_intents() == opened

    def test_positions_are_where_the_last_landed_batch_ended(self, ledger: SqlLedger) -> None:
        for number in range(3):
            land(ledger, number)
        found = ledger.positions(JOB, ORDERS.uuid, "kafka://c1")
        assert list(found) == ["orders-0", "orders-1"]
        position = found["orders-0"]
        assert (position.start, position.end, position.identity) == (20, 30, "topic-id-1")
        assert (position.batch, position.index) == (batch(2), 5)
        assert found["orders-1"].identity is None
        narrowed = ledger.positions(JOB, ORDERS.uuid, "kafka://c1", ["orders-1", "orders-7"])
        assert list(narrowed) == ["orders-1"]
        assert ledger.positions(JOB, ITEMS.uuid, "kafka://c1") == {}
        assert ledger.positions(OTHER_JOB, ORDERS.uuid, "kafka://c1") == {}
        assert ledger.positions(JOB, ORDERS.uuid, "kafka://c2") == {}

    def test_positions_keep_numbers_and_texts_apart(self, ledger: SqlLedger) -> None:
        ranges = {"a": [None, "5"], "b": [5, 6], "c": ["", ""]}
        ledger.append(
            Draft(
                kind=Kind.LANDED,
                job=JOB,
                batch=batch(1),
                table=ORDERS,
                facts={"offsets": {"kind": "mapping", "source": "s", "ranges": ranges}},
            )
        )
        found = ledger.positions(JOB, ORDERS.uuid, "s")
        assert {name: [part.start, part.end] for name, part in found.items()} == ranges

    def test_positions_of_many_partitions_come_in_one_answer(self, ledger: SqlLedger) -> None:
        ranges = {f"file-{number:04}": [None, f"digest-{number}"] for number in range(1_001)}
        ledger.append(
            Draft(
                kind=Kind.LANDED,
                job=JOB,
                batch=batch(1),
                table=ORDERS,
                facts={"offsets": {"kind": "files", "source": "s", "ranges": ranges}},
            )
        )
        assert len(ledger.positions(JOB, ORDERS.uuid, "s")) == 1_001
        assert len(ledger.positions(JOB, ORDERS.uuid, "s", [*ranges, "no"])) == 1_001

    def test_a_job_stands_where_its_last_whole_batch_ended_whichever_tables_it_fed(
        self, ledger: SqlLedger
    ) -> None:
        assert ledger.job_positions(JOB, "kafka://c1") == {}
        land(ledger, 0)
        land(ledger, 1, table=ITEMS)
        land(ledger, 2, table=ITEMS, job=OTHER_JOB)
        found = ledger.job_positions(JOB, "kafka://c1")
        assert {name: part.end for name, part in found.items()} == {"orders-0": 20, "orders-1": 2}
        assert found["orders-0"].batch == batch(1)
        assert list(ledger.job_positions(JOB, "kafka://c1", ["orders-1", "no"])) == ["orders-1"]
        assert ledger.job_positions(JOB, "kafka://c2") == {}
        assert ledger.job_sources(JOB) == ledger.job_sources(OTHER_JOB) == ["kafka://c1"]
        assert ledger.job_sources(JobName("no/body")) == []
        assert ledger.jobs() == sorted([JOB, OTHER_JOB])

    @pytest.mark.parametrize("end", [Kind.ABANDONED, Kind.LANDED])
    def test_a_batch_that_has_not_landed_on_every_table_does_not_move_its_job(
        self, ledger: SqlLedger, end: Kind
    ) -> None:
        land(ledger, 0)
        intent = ledger.append(Draft(kind=Kind.INTENT, job=JOB, batch=batch(1)))[0]

        def settle(kind: Kind, table: TableRef, *, settles: bool) -> None:
            ledger.append(
                Draft(
                    kind=kind,
                    job=JOB,
                    batch=batch(1),
                    table=table,
                    intent=intent.index,
                    settles=settles,
                    facts={"offsets": offsets(1)} if kind is Kind.LANDED else {},
                )
            )

        settle(Kind.LANDED, ORDERS, settles=False)
        assert ledger.positions(JOB, ORDERS.uuid, "kafka://c1")["orders-0"].end == 20
        assert ledger.job_positions(JOB, "kafka://c1")["orders-0"].end == 10
        settle(end, ITEMS, settles=True)
        whole = end is Kind.LANDED
        assert ledger.job_positions(JOB, "kafka://c1")["orders-0"].end == (20 if whole else 10)

    def test_undone_batches_do_not_count_for_positions(self, ledger: SqlLedger) -> None:
        for number in range(3):
            land(ledger, number)
        undo = ledger.append(
            Draft(kind=Kind.ROLLBACK, table=ORDERS, facts={"undone": [batch(2), batch(1)]})
        )[0]
        found = ledger.positions(JOB, ORDERS.uuid, "kafka://c1")
        assert found["orders-0"].batch == batch(0)
        assert ledger.undone(batch(1), ORDERS.uuid) == undo
        assert ledger.undone(batch(0), ORDERS.uuid) is None
        assert ledger.undone(batch(1), ITEMS.uuid) is None
        land(ledger, 5)
        assert ledger.positions(JOB, ORDERS.uuid, "kafka://c1")["orders-0"].batch == batch(5)

    def test_an_undo_of_what_has_not_landed_yet_undoes_nothing(self, ledger: SqlLedger) -> None:
        ledger.append(Draft(kind=Kind.UNDO, table=ORDERS, facts={"undone": [batch(1)]}))
        land(ledger, 1)
        assert ledger.undone(batch(1), ORDERS.uuid) is None
        assert "orders-0" in ledger.positions(JOB, ORDERS.uuid, "kafka://c1")

    def test_reading_gives_ranges_and_says_what_is_not_there(self, ledger: SqlLedger) -> None:
        for number in range(700):
            ledger.append(Draft(kind=Kind.READ, facts={"n": number}))
            if number == 0:
                break
        ledger.append(*[Draft(kind=Kind.READ, facts={"n": number}) for number in range(1, 1_100)])
        assert [entry.facts["n"] for entry in ledger.scan()] == list(range(1_100))
        assert [entry.index for entry in ledger.scan(510, 515)] == [510, 511, 512, 513, 514]
        assert list(ledger.scan(2_000)) == []
        for index in (-1, 1_100):
            with pytest.raises(EntryNotFound):
                ledger.get(index)

    # -- the tree ---------------------------------------------------------------------------------

    def test_the_tree_is_that_of_rfc_6962_however_entries_were_grouped(
        self, ledger: SqlLedger, place: Place
    ) -> None:
        assert ledger.head().root == merkle.EMPTY_ROOT
        for count in (1, 1, 3, 7, 16, 2, 1):
            ledger.append(*[Draft(kind=Kind.READ, facts={"of": count})] * count)
            assert ledger.head().root == naive_root(place.bodies())
        leaves, size = place.bodies(), ledger.head().size
        roots = [naive_root(leaves[:at]) for at in range(size + 1)]
        assert [ledger.root_at(at) for at in range(size + 1)] == roots
        for index in range(size):
            assert merkle.proves_inclusion(
                leaf=merkle.leaf_hash(leaves[index]),
                index=index,
                size=size,
                path=ledger.inclusion_proof(index, size),
                root=roots[size],
            )
            assert merkle.proves_consistency(
                old=index + 1,
                new=size,
                old_root=roots[index + 1],
                new_root=roots[size],
                proof=ledger.consistency_proof(index + 1, size),
            )

    def test_proofs_of_what_is_not_there_are_refused(self, ledger: SqlLedger) -> None:
        ledger.append(*[Draft(kind=Kind.READ)] * 3)
        for problem, call in [
            (LedgerBroken, lambda: ledger.root_at(4)),
            (LedgerBroken, lambda: ledger.inclusion_proof(0, 4)),
            (UsageError, lambda: ledger.inclusion_proof(3, 3)),
            (UsageError, lambda: ledger.consistency_proof(0, 3)),
        ]:
            with pytest.raises(problem):
                call()

    # -- opening ----------------------------------------------------------------------------------

    def test_a_ledger_opens_again_with_all_it_had(self, ledger: SqlLedger, place: Place) -> None:
        land(ledger, 1)
        head = ledger.head()
        ledger.close()
        again = place.open()
        assert again.head() == head
        again.close()
        same = place.create()
        assert same.head() == head, "making what is there changes nothing"
        same.close()

    def test_a_reader_reads_and_cannot_write(self, ledger: SqlLedger, place: Place) -> None:
        land(ledger, 1)
        reader = place.open(read_only=True)
        assert reader.head() == ledger.head()
        with pytest.raises(LedgerReadOnly):
            reader.append(Draft(kind=Kind.READ))
        with pytest.raises(LedgerReadOnly):
            reader.rebuild_projections()
        land(ledger, 2)
        assert reader.head() == ledger.head(), "a reader sees what others write"
        reader.close()

    def test_no_ledger_is_not_an_empty_ledger(self, place: Place) -> None:
        for read_only in (False, True):
            with pytest.raises(LedgerMissing):
                place.open(read_only=read_only)

    def test_a_newer_format_is_left_alone(self, ledger: SqlLedger, place: Place) -> None:
        land(ledger, 1)
        ledger.close()
        place.attack("INSERT INTO migrations VALUES (99, 'from the future', 'x')")
        for options in ({}, {"read_only": True}, {"create": True}):
            with pytest.raises(LedgerTooNew) as caught:
                place.open(**options)
            assert caught.value.facts["found"] == 99

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE entries SET body = leaf WHERE idx = 5",
            "UPDATE entries SET leaf = body WHERE idx = 5",
            (
                "UPDATE nodes SET hash = (SELECT leaf FROM entries WHERE idx = 0)"
                " WHERE level = 1 AND idx = 2"
            ),
            "DELETE FROM nodes WHERE level = 1 AND idx = 2",
            "DELETE FROM entries WHERE idx = 5",
            "DELETE FROM entries WHERE idx >= 4",
            "DELETE FROM entry_index WHERE idx = 5",
            "INSERT INTO entries SELECT 6, body, leaf FROM entries WHERE idx = 5",
            "INSERT INTO entries SELECT 70, body, leaf FROM entries WHERE idx = 5",
        ],
    )
    def test_a_broken_tail_is_noticed_at_opening(
        self, ledger: SqlLedger, place: Place, damage: str
    ) -> None:
        for number in range(3):
            land(ledger, number)
        ledger.close()
        place.attack(damage)
        with pytest.raises(LedgerBroken) as caught:
            place.open()
        assert caught.value.hint == "odi-audit ledger verify"
        place.open(check_tail=False, read_only=True).close()

    def test_appending_to_a_tail_that_was_cut_meanwhile_is_refused(
        self, ledger: SqlLedger, place: Place
    ) -> None:
        for number in range(3):
            land(ledger, number)
        place.attack("DELETE FROM entries WHERE idx = 5", "DELETE FROM entry_index WHERE idx = 5")
        with pytest.raises(LedgerBroken):
            ledger.append(Draft(kind=Kind.READ))

    def test_a_slip_of_the_hand_cannot_change_entries(
        self, ledger: SqlLedger, place: Place
    ) -> None:
        land(ledger, 1)
        before = place.bodies()
        for statement in (
            "UPDATE entries SET body = leaf",
            "DELETE FROM entries",
            "DELETE FROM nodes",
            "UPDATE nodes SET level = 9",
        ):
            with pytest.raises(OdiError), ledger.database.writing() as session:
                session.run(statement)
        assert place.bodies() == before

    def test_a_migration_is_applied_once_and_whole(self, ledger: SqlLedger, place: Place) -> None:
        land(ledger, 1)
        good = schema.Migration(
            version=2, name="more", common=("CREATE TABLE more (x {int})",), only={}
        )
        bad = schema.Migration(
            version=3, name="bad", common=("CREATE TABLE worse (x {int})", "NONSENSE"), only={}
        )
        with pytest.raises(OdiError):
            schema.migrate(ledger.database, SystemClock(), (*schema.MIGRATIONS, good, bad))
        versions = "SELECT version FROM migrations ORDER BY version"
        assert place.look(versions) == [(1,)], "nothing of it is left"
        for _ in range(2):
            schema.migrate(ledger.database, SystemClock(), (*schema.MIGRATIONS, good))
        assert place.look(versions) == [(1,), (2,)]
        assert place.look("SELECT count(*) FROM more") == [(0,)]
        ledger.close()
        with pytest.raises(LedgerTooNew):
            place.open()

    def test_projections_can_be_made_again_from_the_entries(
        self, ledger: SqlLedger, place: Place
    ) -> None:
        for number in range(4):
            land(ledger, number)
        ledger.append(Draft(kind=Kind.UNDO, table=ORDERS, facts={"undone": [batch(3)]}))
        tables = ("entry_index", "landed", "settled", "positions", "undone")
        before = {table: sorted(place.look(f"SELECT * FROM {table}"), key=repr) for table in tables}
        assert all(before.values())
        place.attack(*[f"DELETE FROM {table}" for table in tables])
        assert ledger.rebuild_projections() == 9
        assert before == {
            table: sorted(place.look(f"SELECT * FROM {table}"), key=repr) for table in tables
        }
        land(ledger, 8)

    # -- several at once --------------------------------------------------------------------------

    def test_several_processes_can_make_and_write_one_ledger(self, place: Place) -> None:
        makers = [started("create", place.url) for _ in range(3)]
        assert [maker.wait(60) for maker in makers] == [0, 0, 0]
        writers = [started("append", place.url, name, "40") for name in ("a", "b", "c", "d")]
        assert [writer.wait(120) for writer in writers] == [0] * 4
        ledger = place.open()
        entries = list(ledger.scan())
        assert [entry.index for entry in entries] == list(range(4 * 40 * 2))
        assert [entry.time for entry in entries] == sorted(entry.time for entry in entries)
        for name in "abcd":
            mine = [entry.facts["n"] for entry in entries if entry.facts.get("who") == name]
            assert mine == list(range(40)), "each one's order is kept"
        for before, after in zip(entries[::2], entries[1::2], strict=True):
            assert (before.kind, after.kind) == (Kind.INTENT, Kind.READ), "transactions are whole"
        assert ledger.head().root == naive_root(place.bodies())
        ledger.close()

    def test_of_many_processes_one_lands_the_batch(self, ledger: SqlLedger, place: Place) -> None:
        workers = [started("land", place.url) for _ in range(6)]
        for worker in workers:
            assert worker.stdin
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = sorted(worker.communicate(timeout=60)[0].strip() for worker in workers)
        assert answers == ["ODI-L06"] * 5 + ["landed"]

    def test_threads_share_one_ledger(self, ledger: SqlLedger, place: Place) -> None:
        def work(name: int) -> None:
            for number in range(15):
                ledger.append(Draft(kind=Kind.READ, facts={"who": name, "n": number}))
                assert ledger.head().size > number

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert ledger.head().size == 60
        assert ledger.head().root == naive_root(place.bodies())

    def test_a_ledger_that_is_held_too_long_says_so(self, ledger: SqlLedger, place: Place) -> None:
        other = place.open(busy_timeout_s=0.2)
        with ledger.database.writing():
            with pytest.raises(LedgerLocked):
                other.append(Draft(kind=Kind.READ))
            assert other.head().size == 0, "readers are never held off"
        other.append(Draft(kind=Kind.READ))
        other.close()

    def test_a_view_does_not_move_while_others_write(self, ledger: SqlLedger, place: Place) -> None:
        other = place.open()
        with ledger.database.reading() as session:
            count = "SELECT count(*) FROM entries"
            before = session.rows(count)
            other.append(Draft(kind=Kind.READ))
            assert session.rows(count) == before
        assert ledger.head().size == 1
        other.close()

    # -- liveness ---------------------------------------------------------------------------------

    def test_an_owner_is_alive_until_it_lets_go(self, ledger: SqlLedger, place: Place) -> None:
        other = place.open()
        assert not ledger.is_alive("host/1/é")
        ledger.hold("host/1/é")
        ledger.hold("host/1/é")
        assert ledger.is_alive("host/1/é"), "also when the owner itself asks"
        assert other.is_alive("host/1/é")
        assert not other.is_alive("host/2")
        with pytest.raises(LedgerLocked):
            other.hold("host/1/é")
        ledger.hold("host/3")
        ledger.release("host/1/é")
        ledger.release("host/1/é")
        assert not other.is_alive("host/1/é")
        other.hold("host/1/é")
        assert other.is_alive("host/3")
        ledger.close()
        assert not other.is_alive("host/3")
        other.close()

    def test_an_owner_that_was_killed_is_dead(self, ledger: SqlLedger, place: Place) -> None:
        worker = started("hold", place.url, "worker")
        assert worker.stdout
        assert worker.stdout.readline() == "holding\n"
        assert ledger.is_alive("worker")
        worker.send_signal(signal.SIGKILL)
        worker.wait(30)
        self.wait_for_death(ledger, "worker")
        worker.communicate()

    def test_a_fork_does_not_keep_its_dead_parent_alive(
        self, ledger: SqlLedger, place: Place
    ) -> None:
        worker = started("hold-fork", place.url, "worker")
        assert worker.stdout
        child = int(worker.stdout.readline())
        try:
            assert ledger.is_alive("worker")
            worker.send_signal(signal.SIGKILL)
            worker.wait(30)
            os.kill(child, 0)
            self.wait_for_death(ledger, "worker")
        finally:
            os.kill(child, signal.SIGKILL)
            worker.communicate()

    def wait_for_death(self, ledger: SqlLedger, owner: str) -> None:
        deadline = SystemClock().now() + timedelta(seconds=20)
        while ledger.is_alive(owner):
            assert SystemClock().now() < deadline, "the lock outlived its process"

    def test_a_ledger_is_not_carried_over_a_fork(self, ledger: SqlLedger) -> None:
        child = os.fork()
        if child == 0:
            try:
                ledger.append(Draft(kind=Kind.READ))
            except OdiError as problem:
                os._exit(7 if problem.code == "ODI-L07" else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        ledger.append(Draft(kind=Kind.READ))
