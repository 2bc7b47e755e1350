"""Walks over the ledger, against a plain list of its entries."""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from odi_audit.errors import TableNotFound
from odi_audit.ids import BatchId, JobName
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.tables import parse
from odi_audit.query import lookup
from odi_audit.query.dropped import load_table
from odi_audit.query.lookup import (
    find_named,
    first_since,
    newest,
    source_name,
    walk,
    with_open,
)
from odi_audit.query.timeline import timeline

if TYPE_CHECKING:
    from conftest import Bench

    from odi_audit.ledger.port import Ledger

JOB = JobName("a/b")


def fill(bench: Bench, count: int, seed: int) -> list[Entry]:
    """Record intents, some of which are never settled, and reads between them."""
    chance = random.Random(seed)
    for number in range(count):
        kind = chance.choice([Kind.READ, Kind.REFUSED, None, Kind.INTENT])
        batch = BatchId(f"b-{number}")
        if kind is Kind.READ:
            bench.ledger.append(Draft(kind=Kind.READ, job=JOB))
            continue
        (intent,) = bench.ledger.append(Draft(kind=Kind.INTENT, job=JOB, batch=batch))
        if kind is not Kind.INTENT:
            bench.ledger.append(
                Draft(kind=Kind.REFUSED, job=JOB, batch=batch, intent=intent.index, settles=True)
            )
    return list(bench.ledger.scan())


@pytest.mark.parametrize("page", [3, 10, 1000])
def test_walks_and_open_intents_are_those_of_a_plain_list(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(lookup, "PAGE", page)
    monkeypatch.setattr(lookup, "FIRST_PAGE", page)
    entries = fill(bench, 60, seed=page)
    refused = [entry for entry in entries if entry.kind is Kind.REFUSED]
    where = EntryFilter(kinds=(Kind.REFUSED,))
    assert list(walk(bench.ledger, where)) == refused
    assert list(newest(bench.ledger, where)) == refused[::-1]
    settled = {entry.intent for entry in refused}
    still = [e for e in entries if e.kind is Kind.INTENT and e.index not in settled]
    for first in (0, 17, len(entries)):
        expected = sorted([*refused, *(e for e in still if e.index >= first)], key=index)[::-1]
        found = with_open(bench.ledger, newest(bench.ledger, where), first=first)
        assert list(found) == expected
    assert list(with_open(bench.ledger, iter(()))) == still[::-1]


def index(entry: Entry) -> int:
    return entry.index


def test_the_first_entry_since_a_moment_is_found(bench: Bench) -> None:
    entries = fill(bench, 9, seed=1)
    assert first_since(bench.ledger, None) == 0
    assert first_since(bench.ledger, entries[4].time) == 4
    assert first_since(bench.ledger, "9999") == len(entries)


def test_a_short_answer_looks_at_few_intents(bench: Bench) -> None:
    fill(bench, 900, seed=2)
    watching = Watching(bench.ledger)
    found = with_open(watching, newest(bench.ledger, EntryFilter(kinds=(Kind.READ,))))  # type: ignore[arg-type]
    assert len(list(islice(found, 5))) == 5
    assert watching.lowest > 0, "only as far back as the entries were taken"


class Watching:
    """A ledger that remembers how far back its open intents were looked for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.lowest = 1 << 60

    def open_intents(
        self, *, job: JobName | None = None, first: int = 0, before: int | None = None
    ) -> list[Entry]:
        self.lowest = min(self.lowest, first)
        return self._ledger.open_intents(job=job, first=first, before=before)


def test_a_name_means_the_table_that_has_it_and_else_the_last_that_had_it(bench: Bench) -> None:
    name = parse("sales.orders")
    bench.land()
    first = bench.state().ref
    dropped = bench.note(Kind.TABLE_DROPPED, operation="drop_table")
    bench.writer.drop_table(name.parts)
    gone = find_named(bench.ledger, bench.catalog, name)
    assert (gone.ref, gone.state, gone.dropped, gone.earlier) == (first, None, dropped, ())
    bench.create()
    again = find_named(bench.ledger, bench.catalog, name)
    assert again.ref == bench.state().ref != first
    assert (again.dropped, again.earlier) == (None, (dropped,))
    events = timeline(bench.ledger, again)
    assert [event.batch for event in events] == [], "what was done to the old one is not its story"
    with pytest.raises(TableNotFound):
        find_named(bench.ledger, bench.catalog, parse("sales.never"))


def renamed(bench: Bench, name: str, to: str) -> Entry:
    """Rename a table, and record it as the committer does."""
    bench.writer.create_namespace_if_not_exists(parse(to).namespace)
    bench.writer.rename_table(parse(name).parts, parse(to).parts)
    return bench.note(
        Kind.TABLE_RENAMED, to, operation="rename_table", from_name=name, to_name=to,
        principal="ana",
    )  # fmt: skip


def test_a_renamed_table_is_found_by_every_name_that_it_had(bench: Bench) -> None:
    bench.land()
    ref = bench.state().ref
    first = renamed(bench, "sales.orders", "sales.second")
    second = renamed(bench, "sales.second", "archive.third")
    for name in ("sales.orders", "sales.second", "archive.third"):
        found = find_named(bench.ledger, bench.catalog, parse(name))
        assert (found.ref.uuid, found.ref.name) == (ref.uuid, "archive.third")
        assert (found.dropped, found.earlier) == (None, ())
        operations = sorted(event.operation for event in timeline(bench.ledger, found))
        assert operations == ["append", "rename_table", "rename_table"]
    assert source_name(bench.ledger, bench.state("archive.third").ref) == "sales.orders"
    with pytest.raises(TableNotFound, match=r"sales\.orders is archive\.third now") as told:
        load_table(bench.ledger, bench.catalog, parse("sales.orders"))
    assert (told.value.facts["batch"], told.value.hint) == (
        first.batch, "odi-audit history archive.third",
    )  # fmt: skip
    with pytest.raises(TableNotFound, match=str(second.batch)):
        load_table(bench.ledger, bench.catalog, parse("sales.second"))


def test_a_table_that_takes_the_name_of_a_renamed_one_is_another_one(bench: Bench) -> None:
    bench.land()
    moved = renamed(bench, "sales.orders", "sales.moved")
    bench.create()
    again = find_named(bench.ledger, bench.catalog, parse("sales.orders"))
    assert again.ref == bench.state().ref
    assert (again.dropped, again.earlier) == (None, (moved,))
    assert timeline(bench.ledger, again) == []
    assert source_name(bench.ledger, again.ref) == "sales.orders"
    # The renamed one is dropped under its new name: under the old one it is still known, by that.
    bench.writer.drop_table(("sales", "orders"))
    dropped = bench.note(Kind.TABLE_DROPPED, "sales.moved", operation="drop_table")
    bench.writer.drop_table(("sales", "moved"))
    for name in ("sales.orders", "sales.moved"):
        gone = find_named(bench.ledger, bench.catalog, parse(name))
        assert (gone.state, gone.dropped, gone.ref.uuid) == (
            None, dropped, moved.table.uuid if moved.table else None,
        )  # fmt: skip
        with pytest.raises(TableNotFound, match=f"dropped by batch {dropped.batch}"):
            load_table(bench.ledger, bench.catalog, parse(name))
