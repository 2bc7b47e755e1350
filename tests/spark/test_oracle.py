"""The oracle: random histories, and every answer compared with a record kept in plain Python."""

from __future__ import annotations

import itertools
import os
import random
import secrets
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.model.tables import parse
from odi_audit.query.diff import diff
from odi_audit.query.gone import gone_rows
from odi_audit.query.impact import impact
from odi_audit.query.origin import Confidence, Origin
from odi_audit.query.trace import trace
from odi_audit.query.versions import row_history
from tests.support.historian import TABLE, Historian
from tests.support.independent import Eyes
from tests.support.record import Life, Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from odi_audit.committer.run import Run
    from odi_audit.workspace import Workspace

STEPS = 26
SEED = 20261116
"""The history that `make test` asks about; `make soak` asks about others each time."""
SOAK_ROUNDS = 20
DIFFS = 4
NAME = parse(TABLE)
SURE = {Confidence.EXACT, Confidence.FILE}


KINDS = {"v3": (3, None), "v2": (2, None), "upgraded": (2, 12)}
"""The format that a table begins with, and the step at which it is upgraded."""


@pytest.fixture
def started(lake: Workspace, spark: SparkSession) -> Iterator[Run]:
    with odi.run("story/things", lake=lake, spark=spark) as run:
        yield run


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_answer_about_a_random_history_is_what_the_record_says(
    started: Run, lake: Workspace, kind: str
) -> None:
    seed = int(os.environ.get("TEST_ORACLE_SEED") or SEED)
    check_all(history_of(started, lake, kind, seed), lake)


@pytest.mark.soak
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("round_", range(SOAK_ROUNDS))
def test_every_answer_about_many_random_histories_is_what_the_record_says(
    started: Run, lake: Workspace, kind: str, round_: int
) -> None:
    seed = secrets.randbelow(2**32)
    check_all(history_of(started, lake, kind, seed), lake)


def history_of(run: Run, lake: Workspace, kind: str, seed: int) -> Historian:
    """Make a random history; what it was, and its seed, are in the output of a failed test."""
    format_version, upgrade_at = KINDS[kind]
    print(f"TEST_ORACLE_SEED={seed}")
    made = Historian(
        lake=lake,
        spark=lake.spark(),
        run=run,
        random=random.Random(seed),
        format_version=format_version,
        upgrade_at=upgrade_at,
    )
    made.start()
    made.tell(STEPS)
    print(f"{kind}: {', '.join(made.done)}")
    return made


def check_all(historian: Historian, lake: Workspace) -> None:
    """Ask everything."""
    check_rows(historian)
    check_trace(historian, lake)
    check_histories(historian, lake)
    check_gone(historian, lake)
    check_diffs(historian, lake)
    check_impact(historian, lake)


def check_rows(historian: Historian) -> None:
    """The table holds what the record says: else the record itself would be wrong."""
    names = ["id", "part", *historian.columns.values()]
    found = Eyes.on(historian.lake.root).rows(TABLE, columns=names)
    expected = [
        tuple(life.values.get(name) for name in ("id", "part", *historian.columns))
        for life in historian.record.now.live.values()
    ]
    assert found == sorted(expected, key=str)


def check_trace(historian: Historian, lake: Workspace) -> None:
    rows = trace(lake.ledger(), lake.catalog(), NAME, limit=1000)
    live = historian.record.now.live
    assert sorted(key_of(row.values) for row in rows) == sorted(live)
    seen: Counter[Confidence] = Counter()
    for row in rows:
        life = live[key_of(row.values)]
        for origin, truth in ((row.birth, life.birth), (row.last_change, life.last_change)):
            seen[origin.confidence] += 1
            check_origin(origin, truth, f"row {life.key}")
        if historian.format_version == 3:
            notes = {row.birth.note, row.last_change.note}
            assert row.birth.confidence is row.last_change.confidence is Confidence.EXACT, notes
    print({kind.value: count for kind, count in seen.items()})


def check_histories(historian: Historian, lake: Workspace) -> None:
    """Versions are the newest of the record's, in order; all of them where it says so."""
    for history in row_history(lake.ledger(), lake.catalog(), NAME, limit=1000):
        newest = history.versions[0]
        life = historian.record.now.live[key_of(newest.values)]
        truth = list(reversed(life.versions))
        if historian.format_version == 3:
            assert history.complete or historian.expired, history.note
            assert history.complete == (len(history.versions) == len(truth)), history.note
        for found, version in zip(history.versions, truth, strict=False):
            check_origin(found.origin, version.writer, f"a version of row {life.key}")
            if found.origin.confidence is Confidence.EXACT:
                assert dict(found.values) == shown(historian, version.values)


def check_gone(historian: Historian, lake: Workspace) -> None:
    """Every row that died between two kept snapshots is found, with who took it away."""
    found = gone_rows(lake.ledger(), lake.catalog(), NAME, limit=10_000)
    if historian.format_version != 3:
        for row in found.rows:
            # Without ids a row that was changed cannot be told from one that was replaced.
            same = [life for life in lives(historian) if life.key == key_of(row.values)]
            writers = {version.writer for life in same for version in life.versions}
            writers |= {str(life.deleted_by) for life in same}
            if row.deleted_by.confidence in SURE and not row.rolled_back:
                assert label(row.deleted_by) in writers
        return
    told = Counter(
        (key_of(row.values), label(row.birth), label(row.last_change), label(row.deleted_by))
        for row in found.rows
        if not row.rolled_back
    )
    kept = [str(item["snapshot-id"]) for item in Eyes.on(lake.root).history(TABLE)]
    moments = [historian.record.at[name] for name in reversed(kept) if name in historian.record.at]
    expected: Counter[tuple[int, str, str, str]] = Counter()
    for older, newer in itertools.pairwise(moments):
        dead = {(life.key, life.birth): life.deleted_by for life in newer.gone}
        for key, life in older.live.items():
            now = newer.live.get(key)
            if now is None or now.birth != life.birth:
                by = dead[key, life.birth]
                expected[key, life.birth, life.last_change, str(by)] += 1
    assert told == expected


def check_diffs(historian: Historian, lake: Workspace) -> None:
    kept = [str(item["snapshot-id"]) for item in Eyes.on(lake.root).history(TABLE)]
    for _ in range(DIFFS):
        first, second = (historian.random.choice(kept) for _ in range(2))
        before, after = (historian.record.at[name].live for name in (first, second))
        both = before.keys() & after.keys()
        found = diff(lake.ledger(), lake.catalog(), NAME, first, second, key=["id"], limit=1000)
        differing = {key for key in both if filled(before[key].values) != filled(after[key].values)}
        assert (found.added, found.removed, found.changed) == (
            len(after.keys() - both),
            len(before.keys() - both),
            len(differing),
        )
        samples = {(row.change, key_of(row.values)) for row in found.samples}
        assert {key for change, key in samples if change == "changed"} == differing
        if historian.format_version == 3:
            check_diff_by_id(historian, lake, first, second)


def check_diff_by_id(historian: Historian, lake: Workspace, first: str, second: str) -> None:
    """Without a key rows are the same by their ids: one that came back is another row."""
    before, after = (
        {(life.key, life.birth): life for life in historian.record.at[name].live.values()}
        for name in (first, second)
    )
    both = before.keys() & after.keys()
    found = diff(lake.ledger(), lake.catalog(), NAME, first, second)
    assert (found.added, found.removed, found.changed) == (
        len(after.keys() - both),
        len(before.keys() - both),
        sum(filled(before[one].values) != filled(after[one].values) for one in both),
    )


def check_impact(historian: Historian, lake: Workspace) -> None:
    """Of each batch that is still in the table: how many rows live, were changed, are gone."""
    if historian.format_version != 3:
        return
    everybody = lives(historian)
    for batch in sorted({v.writer for life in everybody for v in life.versions}):
        if batch.startswith("foreign:"):
            continue
        (table,) = impact(lake.ledger(), lake.catalog(), batch).tables
        written = [life for life in everybody if batch in {v.writer for v in life.versions}]
        living = [life for life in written if life.deleted_by is None]
        fate = table.fate
        changed = Counter(life.last_change for life in living if life.last_change != batch)
        ours = {name: n for name, n in changed.items() if not name.startswith("foreign:")}
        assert fate.live == sum(life.last_change == batch for life in living), fate
        assert fate.confidence is Confidence.EXACT or historian.expired, fate
        if fate.changed is not None:
            assert fate.changed == changed.total(), fate
            told = {item.batch: item.rows for item in fate.changed_by if item.batch is not None}
            assert told == ours, fate
        if fate.confidence is Confidence.EXACT:
            assert fate.written == len(written), fate
            assert fate.gone == len(written) - len(living), fate


def check_origin(origin: Origin, truth: str, where: str) -> None:
    """An answer is the truth, or a set that holds it, or says that it does not know."""
    if origin.confidence in SURE:
        assert label(origin) == truth, where
    if origin.confidence is Confidence.CANDIDATES and not truth.startswith("foreign:"):
        complete = len(origin.candidates) == origin.candidates_count
        assert truth in origin.candidates or not complete, where


def lives(historian: Historian) -> list[Life]:
    """Every row that main has held, as main is now."""
    return [*historian.record.now.live.values(), *historian.record.now.gone]


def label(origin: Origin) -> str:
    return origin.batch or f"foreign:{origin.snapshot}"


def key_of(values: Mapping[str, object]) -> int:
    return int(str(values["id"]))


def shown(historian: Historian, values: Values) -> dict[str, object]:
    """Return a version's values under the names that the columns have now."""
    names = {"id": "id", "part": "part", **historian.columns}
    return {name: values.get(lasting) for lasting, name in names.items()}


def filled(values: Values) -> dict[str, object]:
    """Return values without those that are null: a column that came later is null before."""
    return {name: value for name, value in values.items() if value is not None}
