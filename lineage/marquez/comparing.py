"""What is different between the ledger and Marquez, one run and one job at a time.

Owns what counts as different, and what would mend it. Must never change anything on either side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lineage.marquez.expected import Expected, RunFacts
from lineage.marquez.names import Name, can_be_asked_for, listed
from lineage.marquez.server import Edges, HeldRun, Marquez
from odi_audit.errors import Fact
from odi_audit.model.findings import Finding

FINDINGS_MAX = 1_000
"""Findings that are named one by one; of more than these the number is told, by code."""
EXTRA_MAX = 100_000
"""Runs of others under our jobs' names that are looked at again; more are counted as they come."""
_PAGE = 500
REPAIR = "odi-audit lineage check --repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """How the relay to this server stands, where there is one.

    ``delivered_to`` is the index of the first entry of which it has not sent everything: what is
    missing from there on is on its way. Events of the runs in ``parked`` were refused by the
    server and wait for a decision; those of ``dropped`` somebody decided not to send, and why.
    """

    delivered_to: int | None = None
    parked: frozenset[str] = frozenset()
    dropped: Mapping[str, str] = field(default_factory=dict)

    def leaves(self, run: str) -> bool:
        """Say whether a run is the relay's, and not ours to send again."""
        return run in self.parked or run in self.dropped


@dataclass(slots=True, kw_only=True)
class Found:
    """What was found so far."""

    relay: Relayed = field(default_factory=Relayed)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    extra: dict[str, Name] = field(default_factory=dict)
    """Runs of our jobs that the ledger did not know when it was read."""

    def add(
        self,
        code: str,
        subject: str,
        message: str,
        *,
        mendable: bool = True,
        facts: Mapping[str, Fact] | None = None,
    ) -> None:
        """Keep a finding; it is counted in any case. What was dropped on purpose is none."""
        reason = self.relay.dropped.get(subject)
        if reason is not None:
            self.note(code, subject, f"{message} (an event of it was dropped: {reason})")
            return
        self.counts[code] += 1
        if len(self.findings) < FINDINGS_MAX:
            hint = REPAIR if mendable else None
            if subject in self.relay.parked:
                hint = f"odi-audit relay retry {subject}"
            self.findings.append(
                Finding(code=code, subject=subject, message=message, hint=hint, facts=facts or {})
            )

    def stranger(self, run: str, job: Name) -> None:
        """Keep a run that the ledger does not know, until it was read to its end."""
        if len(self.extra) < EXTRA_MAX:
            self.extra[run] = job
        elif run not in self.extra:
            self.counts["run-extra"] += 1

    def note(self, code: str, subject: str, message: str) -> None:
        """Keep what is worth knowing, and no difference that anybody should act upon."""
        if len(self.notes) < FINDINGS_MAX:
            self.notes.append(Finding(code=code, subject=subject, message=message))


def compare_job(
    server: Marquez,
    expected: Expected,
    job: Name,
    found: Found,
    *,
    streaming: bool,
    is_whole: bool,
) -> None:
    """Compare a job, all its runs and its edges.

    ``is_whole`` says that the whole ledger was read: then a run that it does not know is foreign.
    """
    strangers: set[str] = set()
    total, is_there = 0, False
    for page in server.runs(job):
        is_there, total = True, max(total, page.total)
        for held in page.runs:
            known = expected.run(held.run)
            if known is None:
                strangers.add(held.run)
                if is_whole and not expected.is_parent(held.run):
                    found.stranger(held.run, job)
                continue
            expected.saw(held.run)
            compare_run(known, held, expected, found)
        if not is_whole and not expected.unseen(job, "", 1):
            break
    if not is_there:
        found.add("job-missing", _shown(job), f"Marquez has no job {_shown(job)}")
    is_complete = expected.seen_count(job) + len(strangers) >= total
    _missing(server, expected, job, found, ask=is_there and not is_complete)
    if is_there:
        _compare_edges(server, expected, job, found, streaming=streaming, is_whole=is_whole)


def _missing(server: Marquez, expected: Expected, job: Name, found: Found, *, ask: bool) -> None:
    """Name the runs that no page had. Pages may leave one out: then it is asked for by its id."""
    after = ""
    while runs := expected.unseen(job, after, _PAGE):
        for known in runs:
            after = known.run
            held = server.run(known.run) if ask else None
            if held is not None:
                expected.saw(known.run)
                compare_run(known, held, expected, found)
                continue
            expected.judge(known.run, "all")
            found.add(
                "run-missing",
                known.run,
                f"Marquez has no run {known.run} of {_shown(job)}; by the ledger it is"
                f" {known.state}",
                facts={"job": _shown(job), "expected": known.state, "index": known.last},
            )


def compare_run(known: RunFacts, held: HeldRun, expected: Expected, found: Found) -> None:
    """Compare one run: its state, and the datasets that it read and wrote."""
    if known.state is None or not known.wanted:
        return
    subject, job = known.run, _shown(known.job)
    facts: dict[str, Fact] = {"job": job, "expected": known.state, "found": held.state}
    if held.index is None:
        # Marquez made it from the parent facet of another, and gave it that one's state.
        expected.judge(known.run, "all")
        found.add(
            "event-missing",
            subject,
            f"run {subject} of {job} has none of its own events in Marquez; by the ledger it is"
            f" {known.state}",
            facts=facts,
        )
        return
    if held.state not in {known.state, *known.later}:
        # An open run that Marquez takes for ended was ended by an event that is not ours.
        mendable = not known.is_open or known.first != known.last
        if mendable:
            expected.judge(known.run, "last")
        found.add(
            "state",
            subject,
            f"run {subject} of {job} is {held.state} in Marquez; by the ledger it is {known.state}",
            mendable=mendable,
            facts=facts,
        )
    elif known.is_open and known.last is not None and not known.later and _lags(held, known.last):
        expected.judge(known.run, "last")
        found.add(
            "event-missing",
            subject,
            f"run {subject} of {job} lacks its newest event, of entry {known.last}",
            facts={**facts, "index": known.last},
        )
    if known.started and held.started_at is None:
        _start_missing(known, expected, found)
    _compare_datasets(known, held, expected, found)


def _start_missing(known: RunFacts, expected: Expected, found: Found) -> None:
    job = _shown(known.job)
    if known.is_open and not known.later:
        expected.judge(known.run, "all")
        message = f"run {known.run} of {job} lacks its START"
        found.add("event-missing", known.run, message, facts={"job": job, "index": known.first})
        return
    found.note(
        "start-missing",
        known.run,
        f"run {known.run} of {job} has no start time in Marquez: its START never came, and is not"
        " sent after its end, which would put the run back to RUNNING",
    )


def _compare_datasets(known: RunFacts, held: HeldRun, expected: Expected, found: Found) -> None:
    subject, job = known.run, _shown(known.job)
    outputs = {expected.primary(name): snapshot for name, snapshot in held.outputs.items()}
    inputs = {expected.primary(name) for name in held.inputs}
    wanted_inputs = {expected.primary(name) for name in known.inputs}
    wanted = {expected.primary(name): snapshot for name, snapshot in known.outputs.items()}
    for code, verb, names in (
        ("version-missing", "wrote", wanted.keys() - outputs.keys()),
        ("input-missing", "read", wanted_inputs - inputs),
    ):
        for name in sorted(names):
            expected.judge(known.run, "all" if known.is_open else "last")
            found.add(
                code,
                subject,
                f"run {subject} of {job} {verb} {_shown(name)}; Marquez does not know of it",
                facts={"job": job, "dataset": _shown(name), "snapshot": wanted.get(name)},
            )
    for name in sorted(wanted.keys() & outputs.keys()):
        if wanted[name] is not None and outputs[name] not in {None, wanted[name]}:
            expected.judge(known.run, "last")
            found.add(
                "version-different",
                subject,
                f"run {subject} of {job} made snapshot {wanted[name]} of {_shown(name)}; in"
                f" Marquez it is {outputs[name]}",
                facts={"job": job, "dataset": _shown(name), "snapshot": wanted[name]},
            )
    if known.later:
        return
    for code, verb, names in (
        ("version-extra", "wrote", outputs.keys() - wanted.keys()),
        ("input-extra", "read", inputs - wanted_inputs),
    ):
        for name in sorted(names):
            found.add(
                code,
                subject,
                f"in Marquez run {subject} of {job} {verb} {_shown(name)}; the ledger says nothing"
                " of it",
                mendable=False,
                facts={"job": job, "dataset": _shown(name)},
            )


def _compare_edges(
    server: Marquez,
    expected: Expected,
    job: Name,
    found: Found,
    *,
    streaming: bool,
    is_whole: bool,
) -> None:
    """Compare a job's edges in the graph with those of its run that ended last."""
    last = expected.last_settled(job)
    if last is None:
        return
    if not can_be_asked_for(job):
        found.note("not-asked", _shown(job), f"the graph cannot be asked for a job {_shown(job)}")
        return
    graph = server.graph(job) or Edges(inputs=frozenset(), outputs=frozenset())
    for kind, held, own in (
        ("inputs", graph.inputs, last.inputs),
        ("outputs", graph.outputs, frozenset(last.outputs)),
    ):
        drawn = {listed(expected.primary(name)) for name in held}
        gone = {name for name in own if listed(expected.primary(name)) not in drawn}
        if gone and streaming and _has_version_with(server, expected, job, kind, gone):
            found.note(
                "stream-edge",
                _shown(job),
                f"Marquez has the {kind} of the streaming job {_shown(job)}, but draws them no"
                " more: it does so for every stream after its first batch",
            )
        elif gone:
            _edges_missing(expected, last, kind, gone, found)
        if not is_whole:
            continue
        ever = {listed(expected.primary(name)) for name in expected.edges(job, kind)}
        for name in sorted(drawn - ever):
            found.add(
                "edge-extra",
                _shown(job),
                f"in Marquez {_shown(job)} has {_shown(name)} among its {kind}; no run of the"
                " ledger had",
                mendable=False,
                facts={"job": _shown(job), "dataset": _shown(name), "kind": kind},
            )


def _has_version_with(
    server: Marquez, expected: Expected, job: Name, kind: str, names: set[Name]
) -> bool:
    version = server.job(job)
    held = frozenset[Name]()
    if version is not None:
        held = version.inputs if kind == "inputs" else version.outputs
    kept = {listed(expected.primary(name)) for name in held}
    return all(listed(expected.primary(name)) in kept for name in names)


def _edges_missing(
    expected: Expected, last: RunFacts, kind: str, names: set[Name], found: Found
) -> None:
    job = last.job
    expected.judge(last.run, "last")
    for name in sorted(names):
        found.add(
            "edge-missing",
            _shown(job),
            f"Marquez does not draw {_shown(name)} among the {kind} of {_shown(job)}",
            facts={"job": _shown(job), "dataset": _shown(name), "kind": kind, "run": last.run},
        )


def compare_columns(server: Marquez, expected: Expected, dataset: Name, found: Found) -> None:
    """Compare the edges between columns that lead to a dataset."""
    wanted = expected.columns(dataset)
    if not wanted:
        return
    if not can_be_asked_for(dataset):
        found.note("not-asked", _shown(dataset), f"the graph cannot be asked for {_shown(dataset)}")
        return
    held = {
        (column, expected.primary(source), name) for column, source, name in server.columns(dataset)
    }
    for edge in wanted:
        if (edge.column, expected.primary(edge.source), edge.field) in held:
            continue
        run = expected.run(edge.run)
        if run is None or run.later:
            continue
        expected.judge(edge.run, "last")
        source = f"{_shown(edge.source)}.{edge.field}"
        found.add(
            "column-missing",
            _shown(dataset),
            f"Marquez does not know that {edge.column} of {_shown(dataset)} comes from {source}",
            facts={"column": edge.column, "source": source, "run": edge.run},
        )


def explain_extra(expected: Expected, found: Found) -> None:
    """Name the runs that are not in the ledger, now that it was read to its end."""
    for run, job in found.extra.items():
        if expected.run(run) is None and not expected.is_parent(run):
            found.add(
                "run-extra",
                run,
                f"Marquez has a run {run} of {_shown(job)}; the ledger does not know it",
                mendable=False,
                facts={"job": _shown(job)},
            )


def _lags(held: HeldRun, last: int) -> bool:
    return held.index is not None and held.index < last


def _shown(name: Name) -> str:
    return f"{name[0]}/{name[1]}" if not name[1].startswith("/") else f"{name[0]}:{name[1]}"
