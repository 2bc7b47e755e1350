"""The check: what the ledger says against what Marquez holds, and on request sent again.

Owns the order of things: read the ledger, look at each job, then at what was unclear; repair; look
again. Must never take for missing what a relay has yet to send.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lineage import facts
from lineage.context import LedgerContext
from lineage.events import events_of
from lineage.marquez.comparing import Found, Relayed, compare_columns, compare_job, explain_extra
from lineage.marquez.expected import Expected
from lineage.marquez.repairing import Repaired, send_again
from lineage.marquez.server import Marquez
from odi_audit.canonical import JsonObject
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry
from odi_audit.model.findings import Finding
from odi_audit.model.tables import TableRef

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which part of the ledger is compared.

    ``first`` is the index to begin with.
    """

    first: int = 0
    table: TableRef | None = None
    relay: Relayed = field(default_factory=Relayed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was compared, and how the two differ. ``counts`` has all findings, by code."""

    marquez: str
    first: int
    entries_count: int
    jobs_count: int
    runs_count: int
    pending_runs_count: int
    findings: list[Finding]
    counts: Mapping[str, int]
    notes: list[Finding]
    repaired: Repaired | None = None

    @property
    def findings_count(self) -> int:
        """How many differences there are; more than ``findings`` names, if there are very many."""
        return sum(self.counts.values())

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "marquez": self.marquez,
            "first": self.first,
            "entries_count": self.entries_count,
            "jobs_count": self.jobs_count,
            "runs_count": self.runs_count,
            "pending_runs_count": self.pending_runs_count,
            "findings_count": self.findings_count,
            "counts": dict(self.counts),
            "findings": [finding.to_json() for finding in self.findings],
            "notes": [note.to_json() for note in self.notes],
            "repaired": None if self.repaired is None else self.repaired.to_json(),
        }


def check(
    ledger: Ledger,
    server: Marquez,
    question: Question | None = None,
    *,
    repair: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Compare; with ``repair``, send what is missing or wrong again, and compare once more.

    Raises:
        BackendUnavailable: the server cannot be asked, or stopped answering. What was sent again
            until then is there; the check can be run again at any time.
    """
    question = question or Question()
    tell = progress or _nothing
    server.ping()
    report, repaired = _compare(ledger, server, question, repair=repair, tell=tell)
    if repaired is None:
        return report
    again, _ = _compare(ledger, server, question, repair=False, tell=tell)
    return replace(again, repaired=repaired)


def _compare(
    ledger: Ledger, server: Marquez, question: Question, *, repair: bool, tell: Progress
) -> tuple[Report, Repaired | None]:
    with tempfile.TemporaryDirectory(prefix="odi-check-") as folder:
        expected, context = Expected(Path(folder)), LedgerContext(ledger)
        found = Found(relay=question.relay)
        try:
            head = ledger.head().size
            _fold(ledger, context, expected, question, stop=head, tell=tell)
            jobs = expected.jobs()
            for done, (job, streaming) in enumerate(jobs):
                tell(done, len(jobs))
                is_whole = question.first == 0
                compare_job(server, expected, job, found, streaming=streaming, is_whole=is_whole)
            for dataset in expected.column_datasets():
                compare_columns(server, expected, dataset, found)
            runs, pending = expected.count()
            # What was recorded while we looked may be there already.
            late = replace(question, first=head, relay=Relayed(delivered_to=head))
            _fold(ledger, context, expected, late, stop=ledger.head().size, tell=_nothing)
            explain_extra(expected, found)
            repaired = None
            if repair and found.counts:
                repaired = send_again(ledger, server, expected, question.relay, tell)
        finally:
            expected.close()
    report = Report(
        marquez=server.url,
        first=question.first,
        entries_count=max(0, head - question.first),
        jobs_count=len(jobs),
        runs_count=runs,
        pending_runs_count=pending,
        findings=found.findings,
        counts=dict(sorted(found.counts.items())),
        notes=found.notes,
    )
    return report, repaired


def _fold(
    ledger: Ledger,
    context: LedgerContext,
    expected: Expected,
    question: Question,
    *,
    stop: int,
    tell: Progress,
) -> None:
    border = question.relay.delivered_to
    for entry in ledger.scan(question.first, stop):
        tell(entry.index - question.first, stop - question.first)
        context.remember(entry)
        wanted = question.table is None or _is_about(entry, question.table)
        for event in events_of(entry, context):
            pending = border is not None and entry.index >= border
            expected.add(event, wanted=wanted, pending=pending)


def _is_about(entry: Entry, table: TableRef) -> bool:
    held = entry.table
    if held is not None and (held.uuid or held.name) == (table.uuid if held.uuid else table.name):
        return True
    return any(
        facts.text(item, "table") == table.name or facts.text(item, "table_uuid") == table.uuid
        for item in facts.objects(entry.facts, "operations")
    )


def _nothing(done: int, total: int) -> None:
    """Progress that nobody watches."""
