"""What Marquez must hold, by the ledger: folded from its events into a file that is thrown away.

Owns that file: a row for each run, so that memory does not grow with the ledger. Must never ask a
backend anything.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineage.leaving import Event
from lineage.marquez.names import Name, job_of, parent_of
from odi_audit.checks import must

ENDS = {"COMPLETE": "COMPLETED", "FAIL": "FAILED", "ABORT": "ABORTED"}
_SCHEMA = """
CREATE TABLE run (
    run TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    job TEXT NOT NULL,
    state TEXT,
    started INTEGER NOT NULL DEFAULT 0,
    first INTEGER NOT NULL,
    last INTEGER,
    settled INTEGER,
    inputs TEXT NOT NULL DEFAULT '[]',
    outputs TEXT NOT NULL DEFAULT '[]',
    later TEXT NOT NULL DEFAULT '[]',
    wanted INTEGER NOT NULL DEFAULT 0,
    seen INTEGER NOT NULL DEFAULT 0,
    verdict TEXT
) WITHOUT ROWID;
CREATE INDEX run_by_job ON run (namespace, job, settled);
CREATE TABLE place (run TEXT, idx INTEGER, PRIMARY KEY (run, idx)) WITHOUT ROWID;
CREATE TABLE job (
    namespace TEXT, job TEXT, streaming INTEGER NOT NULL, PRIMARY KEY (namespace, job)
) WITHOUT ROWID;
CREATE TABLE parent (run TEXT PRIMARY KEY, namespace TEXT, job TEXT) WITHOUT ROWID;
CREATE TABLE edge (
    namespace TEXT, job TEXT, kind TEXT, d_namespace TEXT, d_name TEXT, run TEXT, idx INTEGER,
    PRIMARY KEY (namespace, job, kind, d_namespace, d_name)
) WITHOUT ROWID;
CREATE TABLE symlink (namespace TEXT, name TEXT, p_namespace TEXT, p_name TEXT,
    PRIMARY KEY (namespace, name)) WITHOUT ROWID;
CREATE TABLE col (
    namespace TEXT, name TEXT, col TEXT, i_namespace TEXT, i_name TEXT, field TEXT, run TEXT,
    PRIMARY KEY (namespace, name, col, i_namespace, i_name, field)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run as the ledger has it. ``state`` is None where nothing of it was delivered yet.

    ``later`` are the states into which events put it that are still on their way.
    """

    run: str
    job: Name
    state: str | None
    started: bool
    first: int
    last: int | None
    inputs: frozenset[Name]
    outputs: Mapping[Name, str | None]
    later: frozenset[str]
    wanted: bool

    @property
    def is_open(self) -> bool:
        """Say whether the ledger has no end of it."""
        return self.state == "RUNNING"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEdge:
    """A field of a dataset that feeds a column; ``run`` is the last that said so."""

    column: str
    source: Name
    field: str
    run: str


class Expected:
    """The file; a context, at whose end it is gone."""

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "expected.db", isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
        self._db.execute("BEGIN")

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    # -- folding -----------------------------------------------------------------------------------

    def add(self, event: Event, *, wanted: bool, pending: bool = False) -> None:
        """Fold an event in, in ledger order. A pending one is known of, but not expected yet."""
        document: dict[str, Any] = json.loads(event.body)
        run, job = str(event.run), job_of(document)
        kept = self._db.execute("SELECT * FROM run WHERE run = ?", (run,)).fetchone()
        if kept is None:
            self._db.execute(
                "INSERT INTO run (run, namespace, job, first) VALUES (?, ?, ?, ?)",
                (run, *job, event.index),
            )
        if wanted:
            self._db.execute("UPDATE run SET wanted = 1 WHERE run = ?", (run,))
        state = ENDS.get(event.state, "RUNNING")
        self._add_places(event, document, job)
        if pending:
            later = sorted({state, *(() if kept is None else json.loads(kept[10]))})
            self._db.execute("UPDATE run SET later = ? WHERE run = ?", (json.dumps(later), run))
            return
        ended = event.state in ENDS
        before_in = [] if kept is None else json.loads(kept[8])
        before_out = [] if kept is None else json.loads(kept[9])
        inputs = {*map(tuple, before_in), *map(_name, document.get("inputs") or [])}
        outputs = {(item[0], item[1]): item[2] for item in before_out}
        outputs |= {_name(item): _snapshot(item) for item in document.get("outputs") or []}
        self._db.execute(
            "UPDATE run SET state = ?, started = max(started, ?), last = ?, inputs = ?,"
            " outputs = ?, settled = coalesce(?, settled) WHERE run = ?",
            (
                state,
                event.state == "START",
                event.index,
                json.dumps(sorted(inputs)),
                json.dumps([[*name, snapshot] for name, snapshot in outputs.items()]),
                event.index if ended else None,
                run,
            ),
        )
        if ended:
            self._add_edges(event, document, job)

    def _add_places(self, event: Event, document: dict[str, Any], job: Name) -> None:
        add = "INSERT OR IGNORE INTO place VALUES (?, ?)"
        self._db.execute(add, (str(event.run), event.index))
        kind = (document["job"].get("facets") or {}).get("jobType") or {}
        streaming = kind.get("processingType") == "STREAMING"
        self._db.execute("INSERT OR REPLACE INTO job VALUES (?, ?, ?)", (*job, streaming))
        parent = parent_of(document)
        if parent is not None:
            held = document["run"]["facets"]["parent"]["run"]["runId"]
            self._db.execute("INSERT OR IGNORE INTO parent VALUES (?, ?, ?)", (held, *parent))
        for item in [*(document.get("inputs") or []), *(document.get("outputs") or [])]:
            for other in ((item.get("facets") or {}).get("symlinks") or {}).get("identifiers", []):
                self._db.execute(
                    "INSERT OR IGNORE INTO symlink VALUES (?, ?, ?, ?)",
                    (other["namespace"], other["name"], *_name(item)),
                )

    def _add_edges(self, event: Event, document: dict[str, Any], job: Name) -> None:
        run = str(event.run)
        for kind in ("inputs", "outputs"):
            for item in document.get(kind) or []:
                self._db.execute(
                    "INSERT OR REPLACE INTO edge VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*job, kind, *_name(item), run, event.index),
                )
        fields = {_name(item): _fields(item) for item in document.get("inputs") or []}
        for item in document.get("outputs") or []:
            told = ((item.get("facets") or {}).get("columnLineage") or {}).get("fields") or {}
            own = _fields(item)
            for column, sources in told.items():
                for source in sources["inputFields"]:
                    name = (str(source["namespace"]), str(source["name"]))
                    # Marquez draws an edge where it has the schema of both ends, else none.
                    if column in own and source["field"] in fields.get(name, ()):
                        self._db.execute(
                            "INSERT OR REPLACE INTO col VALUES (?, ?, ?, ?, ?, ?, ?)",
                            (*_name(item), column, *name, source["field"], run),
                        )

    # -- asking ------------------------------------------------------------------------------------

    def run(self, run: str) -> RunFacts | None:
        """Return what the ledger says of a run."""
        row = self._db.execute("SELECT * FROM run WHERE run = ?", (run,)).fetchone()
        return None if row is None else _facts(row)

    def is_parent(self, run: str) -> bool:
        """Say whether a run is known as the parent of another."""
        found = self._db.execute("SELECT 1 FROM parent WHERE run = ?", (run,)).fetchone()
        return found is not None

    def count(self) -> tuple[int, int]:
        """Return how many runs are compared, and how many of them have events on their way."""
        row = self._db.execute(
            "SELECT count(*), coalesce(sum(later != '[]'), 0) FROM run WHERE wanted = 1"
        ).fetchone()
        return int(row[0]), int(row[1])

    def jobs(self) -> list[tuple[Name, bool]]:
        """Return the jobs that have runs to compare, and whether each is a stream's."""
        rows = self._db.execute(
            "SELECT namespace, job, streaming FROM job WHERE EXISTS (SELECT 1 FROM run WHERE"
            " run.namespace = job.namespace AND run.job = job.job AND wanted = 1"
            " AND state IS NOT NULL)"
        )
        return [((row[0], row[1]), bool(row[2])) for row in rows.fetchall()]

    def unseen(self, job: Name, after: str, limit: int) -> list[RunFacts]:
        """Return runs of a job that no page of the backend had, by their id."""
        rows = self._db.execute(
            "SELECT * FROM run WHERE namespace = ? AND job = ? AND seen = 0 AND wanted = 1"
            " AND state IS NOT NULL AND run > ? ORDER BY run LIMIT ?",
            (*job, after, limit),
        )
        return [_facts(row) for row in rows.fetchall()]

    def last_settled(self, job: Name) -> RunFacts | None:
        """Return the run of a job that ended last, unless another may have moved its edges since.

        A run that is open, or has events on their way, takes the job's edges away until it ends.
        """
        moving = self._db.execute(
            "SELECT 1 FROM run WHERE namespace = ? AND job = ?"
            " AND (state = 'RUNNING' OR later != '[]') LIMIT 1",
            job,
        ).fetchone()
        row = self._db.execute(
            "SELECT * FROM run WHERE namespace = ? AND job = ? AND settled IS NOT NULL"
            " ORDER BY settled DESC LIMIT 1",
            job,
        ).fetchone()
        return None if moving is not None or row is None else _facts(row)

    def edges(self, job: Name, kind: str) -> set[Name]:
        """Return every dataset that ended runs of a job ever read or wrote."""
        rows = self._db.execute(
            "SELECT d_namespace, d_name FROM edge WHERE namespace = ? AND job = ? AND kind = ?",
            (*job, kind),
        )
        return {(row[0], row[1]) for row in rows.fetchall()}

    def primary(self, name: Name) -> Name:
        """Return the name under which events name a dataset, for another name that it has."""
        row = self._db.execute(
            "SELECT p_namespace, p_name FROM symlink WHERE namespace = ? AND name = ?", name
        ).fetchone()
        return name if row is None else (row[0], row[1])

    def column_datasets(self) -> list[Name]:
        """Return the datasets of which column lineage is expected."""
        rows = self._db.execute("SELECT DISTINCT namespace, name FROM col").fetchall()
        return [(row[0], row[1]) for row in rows]

    def columns(self, dataset: Name) -> list[ColumnEdge]:
        """Return the edges between columns that lead to a dataset."""
        rows = self._db.execute(
            "SELECT col, i_namespace, i_name, field, col.run FROM col JOIN run USING (run)"
            " WHERE col.namespace = ? AND col.name = ? AND wanted = 1",
            dataset,
        )
        return [
            ColumnEdge(column=row[0], source=(row[1], row[2]), field=row[3], run=row[4])
            for row in rows.fetchall()
        ]

    # -- verdicts ----------------------------------------------------------------------------------

    def saw(self, run: str) -> None:
        """Remember that the backend has a run."""
        self._db.execute("UPDATE run SET seen = 1 WHERE run = ?", (run,))

    def seen_count(self, job: Name) -> int:
        """Return how many runs of a job the backend was seen to have."""
        row = self._db.execute(
            "SELECT count(*) FROM run WHERE namespace = ? AND job = ? AND seen = 1", job
        ).fetchone()
        return int(row[0])

    def judge(self, run: str, verdict: str) -> None:
        """Remember what is to be sent again of a run; ``all`` is more than ``last``."""
        must(verdict in {"all", "last"}, "there are two verdicts", verdict=verdict)
        self._db.execute(
            "UPDATE run SET verdict = ? WHERE run = ? AND verdict IS NOT 'all'", (verdict, run)
        )

    def judged(self) -> Iterator[tuple[RunFacts, str]]:
        """Yield the runs that have a verdict, the oldest first."""
        rows = self._db.execute(
            "SELECT run, verdict FROM run WHERE verdict IS NOT NULL ORDER BY first, run"
        )
        for run, verdict in rows:
            found = self.run(run)
            if found is not None:
                yield found, str(verdict)

    def judged_count(self) -> int:
        """Return how many runs have a verdict."""
        row = self._db.execute("SELECT count(*) FROM run WHERE verdict IS NOT NULL").fetchone()
        return int(row[0])

    def places(self, run: str) -> list[int]:
        """Return the indexes of the entries that a run's events are of."""
        rows = self._db.execute("SELECT idx FROM place WHERE run = ? ORDER BY idx", (run,))
        return [int(row[0]) for row in rows.fetchall()]

    def newest_of(self, run: str) -> set[str]:
        """Return the runs that must come last, once a run was sent again.

        Marquez shows a job's edges, and a dataset's newest version, by who came last.
        """
        rows = self._db.execute(
            "SELECT DISTINCT newest.run FROM edge AS own JOIN edge AS newest"
            " ON newest.kind = 'outputs' AND own.d_namespace = newest.d_namespace"
            " AND own.d_name = newest.d_name AND newest.idx = (SELECT max(idx) FROM edge AS any"
            "   WHERE any.kind = 'outputs' AND any.d_namespace = own.d_namespace"
            "   AND any.d_name = own.d_name)"
            " JOIN run ON run.run = ? AND own.namespace = run.namespace AND own.job = run.job"
            " AND own.kind = 'outputs'",
            (run,),
        ).fetchall()
        found = {str(row[0]) for row in rows}
        held = self.run(run)
        last = None if held is None else self.last_settled(held.job)
        return found | (set() if last is None else {last.run})


def _facts(row: Any) -> RunFacts:
    return RunFacts(
        run=row[0],
        job=(row[1], row[2]),
        state=row[3],
        started=bool(row[4]),
        first=row[5],
        last=row[6],
        inputs=frozenset((item[0], item[1]) for item in json.loads(row[8])),
        outputs={(item[0], item[1]): item[2] for item in json.loads(row[9])},
        later=frozenset(json.loads(row[10])),
        wanted=bool(row[11]),
    )


def _name(item: Mapping[str, Any]) -> Name:
    return str(item["namespace"]), str(item["name"])


def _snapshot(item: Mapping[str, Any]) -> str | None:
    report = (item.get("outputFacets") or {}).get("icebergCommitReport") or {}
    found = report.get("snapshotId")
    return None if found is None else str(found)


def _fields(item: Mapping[str, Any]) -> set[str]:
    schema = (item.get("facets") or {}).get("schema") or {}
    return {str(field["name"]) for field in schema.get("fields") or []}
