"""What fed an old version: only batches whose rows were in it, and in what those had read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from lineage.graph.answer import Question, ask
from lineage.graph.ask import find, point
from lineage.graph.build import sides_as_of
from lineage.graph.model import NodeKind
from lineage.graph.texts import dot
from odi_audit.committer import records
from odi_audit.errors import AmbiguousBatch, EntryNotFound
from odi_audit.ids import JobName, TableUuid
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.offsets import mapping, once, table_state
from odi_audit.model.tables import TableRef
from tests.unit.lineage.conftest import (
    NOWHERE,
    ORDERS,
    History,
    snapshot_facts,
    work,
)
from tests.unit.lineage.graph.many import columns, quiet_history, table


def write(
    told: History,
    source: str,
    *,
    word: str = "append",
    to: TableRef = ORDERS,
    total: int | None = None,
    added: int = 10,
) -> Entry:
    part = mapping(source, {"p": (0, 1)})
    opened = told.intend(work(word, to), job=JobName(f"in/{source}"), offsets=part)
    counts = {"added-records": added, "total-records": 100 if total is None else total}
    return told.land(opened, to, word, counts=counts)


def made_from(told: History, target: TableRef, *inputs: TableRef) -> Entry:
    job = JobName(f"mart/{target.name.partition('.')[2]}")
    opened = told.intend(
        work("append", target), job=job, offsets=once("x"), columns=columns(*inputs)
    )
    return told.land(opened, target)


def sources(told: History, text: str = ORDERS.name, as_of: str | None = None) -> set[str]:
    found = ask(told.ledger, Question(text=text, as_of=as_of), moment=lambda given: given)
    return {node.name for node in found.nodes.values() if node.kind is NodeKind.SOURCE}


def snapshot(entry: Entry) -> str:
    return str(entry.facts["snapshot"])


def test_only_what_was_recorded_by_then_counts(history: History) -> None:
    first, second = write(history, "a"), write(history, "b")
    assert sources(history, as_of=snapshot(first)) == {"a"}
    assert sources(history, as_of=snapshot(second)) == {"a", "b"}
    assert sources(history, as_of=first.time) == {"a"}
    assert sources(history, as_of=str(second.batch)) == {"a", "b"}
    assert sources(history) == {"a", "b"}


def test_after_an_overwrite_of_everything_what_was_before_feeds_no_more(history: History) -> None:
    write(history, "a")
    write(history, "b", word="overwrite", total=10)
    last = write(history, "c", total=20)
    assert sources(history, as_of=snapshot(last)) == {"b", "c"}
    assert sources(history) == {"a", "b", "c"}


def test_an_overwrite_of_a_part_leaves_the_rest(history: History) -> None:
    write(history, "a")
    last = write(history, "b", word="overwrite_partitions", total=50)
    assert sources(history, as_of=snapshot(last)) == {"a", "b"}


def test_an_upsert_that_rewrote_every_file_carries_older_rows_along(history: History) -> None:
    write(history, "a")
    last = write(history, "b", word="upsert", total=10, added=10)
    assert sources(history, as_of=snapshot(last)) == {"a", "b"}


def test_after_a_delete_of_everything_nothing_feeds(history: History) -> None:
    write(history, "a")
    state = table_state(ORDERS.name, None, {})
    opened = history.intend(work("delete", where="true"), offsets=state)
    gone = history.land(
        opened, operation="delete", counts={"deleted-records": 10, "total-records": 0}
    )
    assert sources(history, as_of=snapshot(gone)) == set()


def dropped(told: History, ref: TableRef = ORDERS) -> Entry:
    last = {"head": None, "metadata_location": "m", "totals": {}}
    state = table_state(ref.name, None, {"n": ref.uuid})
    opened = told.intend(work("drop_table", ref, purge=False), offsets=state, **last)
    return told.settle(records.dropped(opened, ref))


def created(told: History, ref: TableRef) -> Entry:
    opened = told.intend(work("create_table", NOWHERE), offsets=once(ref.uuid))
    return told.effect(opened, Kind.TABLE_CREATED, ref, operation="create_table")


def test_a_dropped_table_was_fed_until_then_and_what_was_made_of_it_still_is(
    history: History,
) -> None:
    raw, mart = table(1, "raw"), table(2, "mart")
    last = write(history, "a", to=raw)
    made_from(history, mart, raw)
    gone = dropped(history, raw)
    later = write(history, "b", to=mart)
    assert sources(history, raw.name, as_of=snapshot(last)) == {"a"}
    assert sources(history, raw.name, as_of=gone.time) == set()
    assert sources(history, mart.name, as_of=snapshot(later)) == {"a", "b"}
    found = ask(history.ledger, Question(text=mart.name), moment=lambda given: given)
    marks = {node.name: node.about.dropped for node in found.nodes.values() if node.about}
    assert marks[mart.name] is None
    assert marks[raw.name] is not None and marks[raw.name].batch == gone.batch
    assert f"{raw.name} (dropped)" in "\n".join(dot(found))


def test_two_tables_of_one_name_are_told_apart_by_the_moment(history: History) -> None:
    newer = replace(ORDERS, uuid=TableUuid("0d1e2f3a-0000-4000-8000-000000000009"))
    created(history, ORDERS)
    first = write(history, "a")
    gone = dropped(history)
    second = created(history, newer)
    last = write(history, "b", to=newer)
    assert sources(history, as_of=first.time) == {"a"}
    assert sources(history, as_of=snapshot(first)) == {"a"}
    assert sources(history, as_of=str(first.batch)) == {"a"}
    assert sources(history, as_of=gone.time) == set()
    assert sources(history, as_of=second.time) == set()
    assert sources(history, as_of=snapshot(last)) == {"b"}
    assert sources(history) == {"b"}
    with pytest.raises(EntryNotFound):
        sources(history, as_of="12345")


def rolled_back(told: History, *undone: Entry, kind: Kind = Kind.ROLLBACK) -> Entry:
    opened = told.intend(work("rollback"), offsets=table_state(ORDERS.name, None, {"n": 1}))
    batches = [str(entry.batch) for entry in undone]
    return told.effect(
        opened,
        kind,
        operation="rollback",
        undone=batches,
        removed_snapshots=[snapshot(entry) for entry in undone],
        to="1",
    )


@pytest.mark.parametrize("kind", [Kind.ROLLBACK, Kind.UNDO])
def test_what_was_taken_out_again_feeds_only_the_versions_before(
    history: History, kind: Kind
) -> None:
    write(history, "a")
    wrong = write(history, "b")
    rolled_back(history, wrong, kind=kind)
    last = write(history, "c")
    assert sources(history, as_of=snapshot(last)) == {"a", "c"}
    # The version that was taken back is answered for as it was.
    assert sources(history, as_of=snapshot(wrong)) == {"a", "b"}


def test_an_input_counts_as_it_stood_when_it_was_read(history: History) -> None:
    raw, mart = table(1, "raw"), table(2, "mart")
    write(history, "a", to=raw)
    made = made_from(history, mart, raw)
    write(history, "b", to=raw)
    # "b" came into raw after mart had read it: it is in raw, and not in mart.
    later = write(history, "z", to=table(3, "other"))
    assert sources(history, mart.name, as_of=later.time) == {"a"}
    assert sources(history, raw.name, as_of=later.time) == {"a", "b"}
    assert sources(history, mart.name) == {"a", "b"}
    assert sources(history, mart.name, as_of=snapshot(made)) == {"a"}


def test_an_input_that_was_overwritten_after_it_was_read_still_fed(history: History) -> None:
    raw, mart = table(1, "raw"), table(2, "mart")
    write(history, "a", to=raw)
    made_from(history, mart, raw)
    write(history, "b", to=raw, word="overwrite", total=10)
    last = made_from(history, mart, raw)
    assert sources(history, mart.name, as_of=snapshot(last)) == {"a", "b"}
    assert sources(history, raw.name, as_of=last.time) == {"b"}


def test_a_foreign_snapshot_counts_from_when_it_was_made(history: History) -> None:
    write(history, "a")
    history.foreign([snapshot_facts("77", **{"engine-name": "flink"})])
    last = write(history, "b")

    def foreign(as_of: str) -> list[str]:
        asked = Question(text=ORDERS.name, as_of=as_of)
        found = ask(history.ledger, asked, moment=lambda given: given)
        return [node.name for node in found.nodes.values() if node.kind is NodeKind.FOREIGN]

    # Its facts say that it was made at 2026-11-01T00:00:00Z, before every entry.
    assert foreign(snapshot(last)) == [f"flink.{ORDERS.name}"]
    assert foreign("77") == [f"flink.{ORDERS.name}"]


def test_a_plan_that_is_named_by_its_index_says_which_snapshots_were_read(
    history: History,
) -> None:
    raw, mart = table(1, "raw"), table(2, "mart")
    first = write(history, "a", to=raw)
    told = made_from(history, mart, raw)
    write(history, "b", to=raw)
    opened = history.intend(work("append", mart), offsets=once("again"))
    operations = opened.facts["operations"]
    assert isinstance(operations, list) and isinstance(operations[0], dict)
    operations[0] |= {"column_lineage_at": told.intent, "column_lineage_read": [snapshot(first)]}
    facts = {**opened.facts, "operations": operations}
    again = history.add(
        Draft(kind=Kind.INTENT, job=opened.job, batch=opened.batch, table=mart, facts=facts)
    )
    last = history.land(again, mart)
    # Read when "b" was in raw already, and as of the snapshot before it.
    assert sources(history, mart.name, as_of=snapshot(last)) == {"a"}


def test_a_table_that_was_not_there_yet_is_said_not_to_be(history: History) -> None:
    first = write(history, "a", to=table(1, "raw"))
    write(history, "b")
    with pytest.raises(EntryNotFound, match="nothing is on record of table"):
        sources(history, as_of=first.time)


def test_an_append_of_no_rows_feeds_nothing(history: History) -> None:
    write(history, "a", added=0)
    last = write(history, "b")
    assert sources(history, as_of=snapshot(last)) == {"b"}


def test_what_is_not_on_record_is_said_not_to_be(history: History) -> None:
    entry = write(history, "a")
    asked = find(history.ledger, ORDERS.name)
    for text in ("123", "b-ffff"):
        with pytest.raises(EntryNotFound):
            point(history.ledger, asked.table, text, lambda given: given)
    other = write(history, "b", to=table(1, "raw"))
    with pytest.raises(EntryNotFound, match="has not landed on table"):
        point(history.ledger, asked.table, str(other.batch), lambda given: given)
    with pytest.raises(AmbiguousBatch):
        point(history.ledger, asked.table, "b-", lambda given: given)
    assert entry.index


# -- against a plain record of what lies in every table ---------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_random_histories_are_answered_as_a_plain_record_of_rows_says(
    tmp_path: Path, seed: int
) -> None:
    """The oracle keeps every version of every table: who wrote it, and which sources are in it."""
    chance = random.Random(seed)
    told = quiet_history(tmp_path)
    tables = [table(number, "lake") for number in range(4)]
    versions: dict[str, list[tuple[Entry, set[str]]]] = {item.name: [] for item in tables}
    moments: list[tuple[str, TableRef, set[str]]] = []
    for number in range(60):
        ref = chance.choice(tables)
        held, roll = versions[ref.name], chance.random()
        before = held[-1][1] if held else set()
        if roll < 0.15 and held:
            cut = chance.randrange(len(held))
            undone = [str(entry.batch) for entry, _ in held[cut:]]
            opened = told.intend(
                work("rollback", ref), offsets=table_state(ref.name, None, {"n": number})
            )
            told.effect(opened, Kind.ROLLBACK, ref, operation="rollback", undone=undone)
            del held[cut:]
        elif roll < 0.55:
            word = "overwrite" if chance.random() < 0.25 else "append"
            total = 10 if word == "overwrite" else 99
            entry = write(told, f"s{number}", to=ref, word=word, total=total)
            held.append((entry, {f"s{number}"} | (set() if word == "overwrite" else before)))
        else:
            other = chance.choice([item for item in tables if item != ref])
            seen = versions[other.name][-1][1] if versions[other.name] else set()
            held.append((made_from(told, ref, other), before | seen))
        last = told.ledger.get(told.ledger.head().size - 1)
        moments.append((last.time, ref, held[-1][1] if held else set()))
    for time, ref, expected in chance.sample(moments, 20):
        found = find(told.ledger, ref.name)
        at = point(told.ledger, found.table, time, lambda given: given)
        sides = sides_as_of(told.ledger, found.table.uuid, at)
        up = {node.name for node in sides.up.nodes.values() if node.kind is NodeKind.SOURCE}
        assert up == expected, (time, ref.name)
    told.ledger.close()
