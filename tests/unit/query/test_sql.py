"""``sql``: the views say what the library says, and nothing else can be reached."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odi_audit.clock import SystemClock
from odi_audit.committer import records
from odi_audit.errors import CatalogUnavailable, LedgerBroken, UsageError
from odi_audit.ids import JobName, RunId
from odi_audit.ledger import create_ledger
from odi_audit.model.entries import Draft, Entry, Kind
from odi_audit.model.runs import Outcome
from odi_audit.query import sql
from odi_audit.query.batches import list_batches
from odi_audit.query.sql import SqlSession
from odi_audit.query.verify import verify
from odi_audit.query.views import VIEWS, Lake

if TYPE_CHECKING:
    from conftest import Bench

    from odi_audit.catalog.lake import LakeCatalog

ROOT = Path(__file__).parents[3]


@pytest.fixture
def session(bench: Bench) -> Iterator[SqlSession]:
    with SqlSession(Lake(ledger=bench.ledger, catalog=lambda: bench.catalog)) as made:
        yield made


@pytest.fixture(scope="module")
def shut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSession]:
    """An engine over an empty ledger, without tables: for queries that must not run."""
    folder = tmp_path_factory.mktemp("shut")
    ledger = create_ledger(f"sqlite:///{folder / 'ledger.db'}", clock=SystemClock())

    def none() -> LakeCatalog:
        raise CatalogUnavailable("there is none")

    with closing(ledger), SqlSession(Lake(ledger=ledger, catalog=none)) as made:
        yield made


def ask(session: SqlSession, query: str) -> list[tuple[object, ...]]:
    return list(session.run(query).rows())


def test_batches_are_those_of_the_library_in_every_state(bench: Bench, session: SqlSession) -> None:
    bench.create("sales.returns")
    undone = [bench.land(), bench.land("sales.orders", "sales.returns")][0]
    bench.note(Kind.ROLLBACK, operation="rollback", undone=[undone])
    part = bench.offsets()
    bench.settle(bench.intend(offsets=part), Kind.ABANDONED, reason="crashed")
    bench.land(offsets=part)
    bench.settle(bench.intend(), Kind.REFUSED, reason="bad")
    bench.settle(bench.intend(), Kind.UNKNOWN, reason="no answer")
    bench.intend()
    expected = sorted(
        (s.batch, s.job, s.state.value, list(s.tables), list(s.operations), s.rows, s.attempts,
         s.intent, datetime.fromisoformat(s.started).replace(tzinfo=None))
        for s in list_batches(bench.ledger, limit=1000)
    )  # fmt: skip
    found = ask(
        session,
        "SELECT batch, job, state, tables, operations, rows, attempts, intent, started"
        " FROM batches",
    )
    assert sorted(found) == expected
    assert len({row[2] for row in expected}) == 5


def test_entries_are_the_ledger_itself(bench: Bench, session: SqlSession) -> None:
    bench.land()
    bench.settle(bench.intend(), Kind.REFUSED, reason="bad amount")
    found = ask(session, "SELECT index, kind, batch, settles FROM entries ORDER BY index")
    expected = [(e.index, e.kind.value, e.batch, e.settles) for e in bench.ledger.scan()]
    assert found == expected
    reasons = ask(session, "SELECT facts->>'reason' FROM entries WHERE kind = 'refused'")
    assert reasons == [("bad amount",)]


def test_runs_are_told_with_their_last_word(bench: Bench, session: SqlSession) -> None:
    def begin(number: int, **more: bool) -> Entry:
        run, job = RunId(f"5f8a3f1e-0000-4000-8000-{number:012}"), JobName("sales/orders")
        draft = records.run_started(job, run, principal="ana", code="v1", owner="o", **more)
        return bench.ledger.append(draft)[0]

    opened, failed, late = begin(1, streaming=True), begin(2), begin(3)
    bench.ledger.append(
        records.run_ended(failed, Outcome.FAILED, error_code="ODI-C01", reason="it moved"),
        records.run_ended(late, Outcome.DIED, reason="gone"),
    )
    # It was taken for dead, and was not.
    bench.ledger.append(replace(records.run_ended(late, Outcome.COMPLETED), settles=False))
    found = ask(
        session,
        "SELECT run, job, outcome, error_code, reason, streaming, principal, code,"
        " ended IS NULL, ended >= started, entry FROM runs ORDER BY entry",
    )
    said = ("ana", "v1")
    job = "sales/orders"
    assert found == [
        (opened.run, job, None, None, None, True, *said, True, None, opened.index),
        (failed.run, job, "failed", "ODI-C01", "it moved", False, *said, False, True, failed.index),
        (late.run, job, "completed", None, None, False, *said, False, True, late.index),
    ]


def test_a_view_can_be_read_twice_in_one_query(bench: Bench, session: SqlSession) -> None:
    bench.land()
    joined = "SELECT count(*) FROM entries a JOIN entries b ON a.index = b.intent"
    assert ask(session, joined) == [(1,)]


def test_commits_and_offsets_say_what_landed_and_what_was_undone(
    bench: Bench, session: SqlSession
) -> None:
    first, second = bench.land(), bench.land()
    back = bench.note(Kind.ROLLBACK, operation="rollback", undone=[second])
    commits = "SELECT batch, rows, undone_by FROM commits WHERE kind = 'landed' ORDER BY entry"
    assert ask(session, commits) == [(first, 10, None), (second, 10, back.index)]
    offsets = "SELECT partition, start_number, end_place, undone_by FROM offsets ORDER BY entry"
    assert ask(session, offsets) == [("p0", 0, "10", None), ("p0", 10, "20", back.index)]


def test_snapshots_and_files_are_those_of_the_tables(bench: Bench, session: SqlSession) -> None:
    bench.land()
    foreign = bench.write({"engine-name": "flink"})
    found = ask(session, "SELECT snapshot, batch, engine, is_current FROM snapshots ORDER BY time")
    assert found[1] == (foreign, None, "flink", True)
    assert found[0][1] is not None
    files = bench.table().inspect.files()
    expected = sorted(
        zip(files["file_path"].to_pylist(), files["record_count"].to_pylist(), strict=True)
    )
    assert sorted(ask(session, "SELECT path, rows FROM files")) == expected
    assert ask(session, "SELECT DISTINCT content, partition FROM files") == [("data", "{}")]


def test_findings_are_what_verify_finds(bench: Bench, session: SqlSession) -> None:
    bench.write()
    bench.intend()
    expected = sorted((f.code, f.message) for f in verify(bench.ledger, bench.catalog))
    assert len(expected) == 2
    assert sorted(ask(session, "SELECT code, message FROM findings")) == expected


@pytest.mark.parametrize("name", list(VIEWS))
def test_every_view_has_the_columns_that_it_says(shut: SqlSession, name: str) -> None:
    described = [(row[0], row[1]) for row in ask(shut, f"DESCRIBE {name}")]
    assert described == [(column.name, column.type) for column in VIEWS[name].columns]


def test_a_catalog_that_does_not_answer_is_told_as_such(shut: SqlSession) -> None:
    with pytest.raises(CatalogUnavailable):
        ask(shut, "SELECT * FROM snapshots")


def test_the_guide_documents_every_view_and_column() -> None:
    text = (ROOT / "docs/guide/sql.md").read_text("utf-8")
    for view in VIEWS.values():
        section = re.search(rf"^## {view.name}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, view.name
        rows = re.findall(r"^\| `(\w+)` \| ([A-Z]+(?:\[\])?) \| \S", section[1], re.MULTILINE)
        assert rows == [(column.name, column.type) for column in view.columns]


ESCAPES = [
    "COPY batches TO '{out}'",
    "COPY (SELECT 1) TO '{out}' (FORMAT parquet)",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}' AS other",
    "ATTACH '{secret}' AS other (TYPE sqlite)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "PRAGMA enable_profiling = 'json'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET enable_external_access",
    "CREATE TABLE t (a INT)",
    "CREATE OR REPLACE VIEW batches AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "CREATE SECRET s (TYPE s3)",
    "INSERT INTO batches VALUES (1)",
    "UPDATE entries SET kind = 'x'",
    "DELETE FROM entries",
    "DROP VIEW entries",
    "ALTER VIEW entries RENAME TO x",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "USE memory",
    "PREPARE p AS SELECT 1",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "EXPLAIN ANALYZE CREATE TABLE t (a INT)",
    "/* c */ EXPLAIN ANALYZE CREATE TABLE t (a INT)",
    "SELECT 1; DROP VIEW entries",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM \"read_csv\"('{secret}')",
    "SELECT * FROM read_csv /* c */ ('{secret}')",
    "SELECT * FROM main.read_csv('{secret}')",
    "SELECT * FROM READ_TEXT('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM parquet_metadata('{secret}')",
    "SELECT * FROM sqlite_scan('{secret}', 't')",
    "SELECT * FROM '{secret}'",
    'SELECT * FROM "{secret}"',
    "FROM '{secret}'",
    "SELECT (SELECT max(column0) FROM read_csv('{secret}'))",
    "WITH x AS (FROM read_text('{secret}')) SELECT * FROM x",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT getenv('PATH')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('batches')",
    "SELECT * FROM json_execute_serialized_sql('x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM enable_profiling()",
    "SELECT * FROM enable_logging('QueryLog')",
    "SELECT write_log('x')",
    "SELECT * FROM arrow_scan(1::POINTER, 1::POINTER, 1::POINTER)",
    "SELECT * FROM bench",
    "SELECT * FROM ROOT",
    "",
]


@pytest.mark.parametrize("query", ESCAPES)
def test_no_query_writes_or_reaches_outside(shut: SqlSession, tmp_path: Path, query: str) -> None:
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text("kept\nto itself\n")
    text = query.replace("{secret}", str(secret)).replace("{out}", str(out))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError):
        ask(shut, text.replace("{folder}", str(tmp_path)))
    assert sorted(tmp_path.iterdir()) == before
    assert ask(shut, "SELECT count(*) FROM entries") == [(0,)]
    assert [row[0] for row in ask(shut, "SHOW TABLES")] == sorted(VIEWS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM glob('{secret}')",
        "COPY (SELECT 1) TO '{secret}.out'",
        "ATTACH '{secret}' AS other",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
    ],
)
def test_the_engine_itself_is_locked_behind_the_first_door(
    shut: SqlSession, tmp_path: Path, query: str
) -> None:
    import duckdb

    secret = tmp_path / "secret.csv"
    secret.write_text("kept\n")
    with pytest.raises(duckdb.Error):
        shut._connection.execute(query.replace("{secret}", str(secret)))


@pytest.mark.parametrize(
    "query",
    [
        "DESCRIBE batches",
        "SHOW TABLES",
        "SUMMARIZE entries",
        "EXPLAIN SELECT * FROM batches",
        "EXPLAIN ANALYZE SELECT count(*) FROM batches",
        "FROM entries",
        "VALUES (1)",
        "WITH x AS (SELECT 1 AS a) SELECT a FROM x",
        "SELECT rank() OVER (ORDER BY index), lag(index) OVER (ORDER BY index) FROM entries",
        "SELECT * FROM range(3)",
        "SELECT unnest(tables) FROM batches",
        "SELECT 'read_csv(' AS text",
        "SELECT count(*) FROM entries -- read_csv(",
        "SELECT date_trunc('day', time), list(kind) FROM entries GROUP BY 1",
        "SELECT 'ö', read FROM (SELECT 1 AS read)",
    ],
)
def test_what_reads_is_let_through(shut: SqlSession, query: str) -> None:
    shut.run(query)


def test_now_is_utc_whatever_the_zone_of_the_machine(shut: SqlSession) -> None:
    ((shown,),) = ask(shut, "SELECT now()::TIMESTAMP")
    assert isinstance(shown, datetime)
    assert abs(shown - datetime.now(UTC).replace(tzinfo=None)) < timedelta(minutes=1)
    assert ask(shut, "SELECT current_setting('TimeZone')") == [("UTC",)]


def test_bad_sql_is_told_with_its_place_marked(shut: SqlSession) -> None:
    with pytest.raises(UsageError) as parsing:
        shut.run("SELECT * FRO batches")
    assert "LINE 1: SELECT * FRO batches" in parsing.value.message
    assert "^" in parsing.value.message
    with pytest.raises(UsageError, match="batches"):
        shut.run("SELECT * FROM batchs")
    with pytest.raises(UsageError, match=r"LINE 2:\s+nope"):
        shut.run("SELECT\n  nope\nFROM entries")
    with pytest.raises(UsageError, match="parameters"):
        shut.run("SELECT * FROM entries WHERE index = ?")


def test_a_division_of_text_fails_as_usage_while_rows_are_read(
    bench: Bench, session: SqlSession
) -> None:
    bench.land()
    with pytest.raises(UsageError, match="Conversion"):
        ask(session, "SELECT CAST(kind AS INT) FROM entries")


def test_an_error_of_the_ledger_stays_what_it_is(
    bench: Bench, session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        raise LedgerBroken("entry 3 cannot be read")
        yield

    monkeypatch.setattr(bench.ledger, "scan", broken)
    with pytest.raises(LedgerBroken, match="entry 3"):
        ask(session, "SELECT * FROM entries")
    monkeypatch.undo()
    assert ask(session, "SELECT count(*) FROM entries") == [(0,)]


def test_the_ledger_is_read_no_further_than_the_rows_that_are_asked_for(
    bench: Bench, session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = [Draft(kind=Kind.READ, job=JobName("a/b")) for _ in range(500)]
    for _ in range(8):
        bench.ledger.append(*drafts)
    monkeypatch.setattr(sql, "CHUNK_ROWS", 50)
    seen = 0
    whole = bench.ledger.scan

    def counting(start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        nonlocal seen
        for entry in whole(start, stop):
            seen += 1
            yield entry

    monkeypatch.setattr(bench.ledger, "scan", counting)
    assert len(ask(session, "SELECT index FROM entries LIMIT 5")) == 5
    assert 5 <= seen < 4000


def test_a_query_over_the_ledger_alone_loads_no_iceberg_library(
    bench: Bench, tmp_path: Path
) -> None:
    bench.land()
    program = (
        "import sys\n"
        "from odi_audit.clock import SystemClock\n"
        "from odi_audit.ledger import open_ledger\n"
        "from odi_audit.query.sql import SqlSession\n"
        "from odi_audit.query.views import Lake\n"
        "ledger = open_ledger(sys.argv[1], clock=SystemClock(), read_only=True)\n"
        "with SqlSession(Lake(ledger=ledger, catalog=lambda: 1 / 0)) as session:\n"
        "    for view in ('batches', 'commits', 'offsets', 'entries'):\n"
        "        assert list(session.run(f'SELECT * FROM {view}').rows())\n"
        "print([name for name in ('pyiceberg', 'pyspark') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'ledger.db'}"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
