"""From entries to tallies: who read what and wrote what, newest entry first.

Owns the step from an attempt at a batch to the edges that it stands for. Must never count a table
as written before its entry says so, and must never hold more than the attempts in flight and the
newest runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lineage import runs
from lineage.graph.feeding import Feeding
from lineage.graph.inputs import Input, Inputs, Kept, Plan, snapshot_read
from lineage.graph.lean import Lean, LeanOperation, is_there, offsets_of, tables_of
from lineage.graph.model import NodeKind, Via, job_id, table_id
from lineage.graph.operations import REWRITES, UPKEEP, changed, engine_of, rows_of
from lineage.graph.tally import (
    LANDED,
    DatasetTally,
    JobTally,
    ReadTally,
    Seen,
    TableTally,
    WriteTally,
)
from odi_audit.model.entries import EFFECTS, Kind

RUNS_KEPT_MAX = 20_000
"""Runs whose reads and writes are held against each other; runs that far apart do not overlap."""
_EFFECTS = frozenset(kind.value for kind in EFFECTS)
_ENDS = frozenset({Kind.REFUSED.value, Kind.ABANDONED.value, Kind.UNKNOWN.value})
_SILENT = frozenset(
    kind.value
    for kind in (
        Kind.RUN_STARTED,
        Kind.RUN_ENDED,
        Kind.STAGED,
        Kind.ALIVE,
        Kind.SEAL,
        Kind.REPLAY,
        Kind.GAP_ACCEPTED,
    )
)
_INTENT = Kind.INTENT.value
_UNKNOWN_JOB = "odi/unknown"


Planned: TypeAlias = tuple[LeanOperation, Plan | None]


@dataclass(slots=True)
class _Attempt:
    """What came after an intent, met before it."""

    state: str | None = None
    effects: list[tuple[Lean, bool, bool]] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    """What a run read and wrote, as far as it has been met."""

    reads: list[tuple[Lean, set[str]]] = field(default_factory=list)
    writes: set[str] = field(default_factory=set)

    def earlier(self, index: int, job: str) -> list[Lean]:
        """Return the reads begun before an intent and confirmed after it, each once for a job."""
        # Intents only get older from here on: a read that began later is not met again.
        self.reads = [item for item in self.reads if (item[0].facts.began or 0) <= index]
        found = [read for read, jobs in self.reads if job not in jobs]
        for _, jobs in self.reads:
            jobs.add(job)
        return found


class Collector:
    """One reading of a ledger. Without ``feeding`` everything that was recorded counts."""

    def __init__(self, inputs: Inputs, feeding: Feeding | None = None) -> None:
        self.jobs: dict[str, JobTally] = {}
        self.tables: dict[str, TableTally] = {}
        self.datasets: dict[str, DatasetTally] = {}
        self.reads: dict[tuple[str, str], ReadTally] = {}
        self.writes: dict[tuple[str, str], WriteTally] = {}
        self.linked: set[tuple[str, str]] = set()
        self._inputs = inputs
        self._feeding = feeding
        self._attempts: dict[int, _Attempt] = {}
        self._undone: set[tuple[str | None, str]] = set()
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._names: Kept[tuple[str, tuple[tuple[str, str], ...]], str] = Kept()

    def add(self, entry: Lean) -> None:
        """Take in the next older entry."""
        kind = entry.kind
        if kind in _SILENT:
            return
        if kind == _INTENT:
            self._intent(entry, self._attempts.pop(entry.index, None))
        elif kind in _EFFECTS:
            self._effect(entry)
        elif kind in _ENDS and entry.intent is not None:
            attempt = self._attempts.setdefault(entry.intent, _Attempt())
            if attempt.state is None:
                attempt.state = kind
            elif attempt.state == "publishing" and kind == Kind.ABANDONED:
                # Given up by reconcile, and published after all.
                attempt.state = LANDED
        elif kind == Kind.READ:
            self._read(entry)
        elif kind == Kind.FOREIGN and entry.table is not None:
            self._foreign(entry)

    def end(self) -> None:
        """Take in effects whose intents are lost."""
        for attempt in self._attempts.values():
            for effect, counts, undone in attempt.effects:
                self._alone(effect, counts=counts, undone=undone)
        self._attempts.clear()

    # -- entries ---------------------------------------------------------------------------------

    def _effect(self, entry: Lean) -> None:
        if entry.table is None:
            return
        counts = self._feeding is None or self._feeding.counts(entry)
        uuid = entry.table.uuid
        undone = (entry.batch, uuid) in self._undone
        self._undone.discard((entry.batch, uuid))
        if entry.facts.undone:
            self._undone.update((batch, uuid) for batch in entry.facts.undone)
        table = self._table(uuid, entry.table.name, entry.facts.location)
        if entry.kind == Kind.TABLE_DROPPED and table.dropped is None and not table.tally.runs:
            # Newest first: what comes after its drop was done to a table that was put back.
            table.dropped = entry
        if table.snapshot is None and counts:
            table.snapshot = entry.facts.snapshot or entry.facts.to
        if entry.intent is None:
            self._alone(entry, counts=counts, undone=undone)
            return
        attempt = self._attempts.setdefault(entry.intent, _Attempt())
        attempt.effects.append((entry, counts, undone))
        if attempt.state is None:
            attempt.state = LANDED if entry.settles else "publishing"

    def _intent(self, entry: Lean, met: _Attempt | None) -> None:
        attempt = _Attempt() if met is None else met
        written = {
            effect.table.uuid: (effect, undone)
            for effect, counts, undone in attempt.effects
            if counts and effect.table is not None
        }
        if self._feeding is not None and not written:
            return
        self._locate(entry, written)
        operations = entry.facts.operations or [
            LeanOperation(op=effect.facts.operation or effect.kind, table=effect.table.name)
            for effect, _, _ in attempt.effects
            if effect.table is not None
        ]
        for item in operations:
            if item.table_uuid in written and item.table:
                # A rename is recorded under the new name; its intent has the old one.
                self.tables[item.table_uuid].names.add(item.table)
        job = self._job(entry.job, operations)
        tally = self.jobs[job]
        tally.streaming = tally.streaming or is_there(entry.facts.stream)
        rows: int | None = None
        for effect, _ in written.values():
            count = rows_of(effect)
            rows = rows if count is None else count + (rows or 0)
        seen = (entry, attempt.state or "open", rows)
        tally.tally.add(seen)
        planned = [(item, self._inputs.plan(item, entry)) for item in operations]
        for uuid, (effect, undone) in written.items():
            self._write(job, uuid, effect, undone=undone, planned=planned)
        if self._feeding is not None:
            planned = [pair for pair in planned if pair[0].table_uuid in written]
        self._reads_of(job, entry, planned, seen)

    def _alone(self, entry: Lean, *, counts: bool, undone: bool) -> None:
        """An effect whose intent is lost is a run of its own."""
        if not counts or entry.table is None:
            return
        made = LeanOperation(
            op=entry.facts.operation or entry.kind,
            table=entry.table.name,
            table_uuid=entry.table.uuid,
        )
        job = self._job(entry.job, [made])
        mark = (entry, LANDED, rows_of(entry))
        self.jobs[job].tally.add(mark)
        self._write(job, entry.table.uuid, entry, undone=undone, planned=[(made, None)])
        self._reads_of(job, entry, [(made, None)], mark)

    def _read(self, entry: Lean) -> None:
        if entry.table is None:
            return
        uuid = entry.table.uuid
        self._table(uuid, entry.table.name, None)
        if entry.job is not None and entry.run is not None:
            run = self._run(entry.run)
            run.reads.append((entry, set(run.writes)))
            for writer in sorted(run.writes):
                self._read_by_run(entry, writer)
        consumer = entry.facts.consumer or "unknown"
        named = runs.JobRef(namespace="consumers", name=consumer)
        if entry.job is not None:
            named = runs.child(runs.job_ref(entry.job), [("read", entry.table.name)])
        key = job_id(named.namespace, named.name)
        if key not in self.jobs:
            self.jobs[key] = JobTally(
                kind=NodeKind.CONSUMER,
                namespace=named.namespace,
                name=named.name,
                job=entry.job,
                operation="read",
                upkeep=False,
            )
        mark = (entry, LANDED, entry.facts.rows)
        self.jobs[key].tally.add(mark)
        self._edge(table_id(uuid), key, mark, Via.READ)

    def _foreign(self, entry: Lean) -> None:
        assert entry.table is not None
        if self._feeding is not None and not self._feeding.counts(entry):
            return
        engine = engine_of(entry)
        name = f"{engine}.{entry.table.name}"
        key = job_id("foreign", name)
        if key not in self.jobs:
            self.jobs[key] = JobTally(
                kind=NodeKind.FOREIGN,
                namespace="foreign",
                name=name,
                job=None,
                operation=entry.facts.operation or "foreign",
                upkeep=False,
            )
        table = self._table(entry.table.uuid, entry.table.name, None)
        table.snapshot = table.snapshot or entry.facts.snapshot
        mark = (entry, LANDED, rows_of(entry))
        self.jobs[key].tally.add(mark)
        self._write(key, entry.table.uuid, entry, undone=False, planned=[])

    # -- edges -----------------------------------------------------------------------------------

    def _write(
        self,
        job: str,
        uuid: str,
        effect: Lean,
        *,
        undone: bool,
        planned: Sequence[Planned],
    ) -> None:
        held = self.writes.setdefault((job, uuid), WriteTally())
        mark = (effect, "undone" if undone else LANDED, rows_of(effect))
        held.tally.add(mark)
        # Rows that upkeep writes again are not more rows.
        self.tables[uuid].tally.add((effect, mark[1], None) if self.jobs[job].upkeep else mark)
        own = [pair for pair in planned if pair[0].table_uuid == uuid] or planned[:1]
        operation, plan = own[0] if own else (None, None)
        told = None if operation is None or plan is not None else changed(operation)
        held.columns(plan, effect.time, told)

    def _reads_of(self, job: str, entry: Lean, planned: Sequence[Planned], mark: Seen) -> None:
        found: dict[str, tuple[Input, str | None]] = {}
        names = frozenset(
            read.name
            for _, plan in planned
            for read in (() if plan is None else plan.inputs)
            if read.name is not None
        )
        for source in self._inputs.sources(offsets_of(entry), names):
            found[self._node(source)] = (source, source.snapshot)
        for operation, plan in planned:
            for place, read in enumerate(() if plan is None else plan.inputs):
                if read.name is not None and read.name.name:
                    found.setdefault(
                        self._node(read), (read, snapshot_read(operation, place, read))
                    )
            if operation.op in REWRITES and operation.table_uuid:
                itself = Input(
                    via=Via.ITSELF,
                    kind=NodeKind.TABLE,
                    name=None,
                    uuid=operation.table_uuid,
                    table=operation.table,
                    node=table_id(operation.table_uuid),
                )
                found.setdefault(self._node(itself), (itself, None))
        for node, (read, snapshot) in found.items():
            self._edge(node, job, mark, read.via)
            if self._feeding is not None and read.uuid is not None and read.via is not Via.ITSELF:
                self._feeding.read(read.uuid, snapshot)
        parent = entry.facts.parent_run
        if parent is not None and not self.jobs[job].upkeep:
            run = self._run(parent)
            run.writes.add(job)
            for earlier in run.earlier(entry.index, job):
                self._read_by_run(earlier, job)

    def _read_by_run(self, read: Lean, job: str) -> None:
        """A run that read a table and then wrote: what it wrote may rest on what it read."""
        assert read.table is not None
        node = table_id(read.table.uuid)
        if read.job is not None:
            leaf = runs.child(runs.job_ref(read.job), [("read", read.table.name)])
            self.linked.add((node, job_id(leaf.namespace, leaf.name)))
        self._edge(node, job, (read, LANDED, read.facts.rows), Via.RUN)
        if self._feeding is not None:
            self._feeding.read(read.table.uuid, read.facts.to_snapshot)

    def _edge(self, node: str, job: str, mark: Seen, via: Via) -> None:
        held = self.reads.get((node, job))
        if held is None:
            held = self.reads[node, job] = ReadTally()
        held.via.add(via)
        (held.by_run if via is Via.RUN else held.tally).add(mark)

    # -- nodes -----------------------------------------------------------------------------------

    def _job(self, job: str | None, operations: Sequence[LeanOperation]) -> str:
        words = tuple((item.op or "unknown", item.table or "unknown") for item in operations)
        words = words or (("unknown", "unknown"),)
        known = self._names.get((job or "", words))
        if known is not None:
            return known
        named = runs.child(runs.job_ref(job or _UNKNOWN_JOB), words)
        key = job_id(named.namespace, named.name)
        operation = words[0][0] if len({word for word, _ in words}) == 1 else "batch"
        if key not in self.jobs:
            self.jobs[key] = JobTally(
                kind=NodeKind.JOB,
                namespace=named.namespace,
                name=named.name,
                job=job,
                operation=operation,
                upkeep=all(word in UPKEEP for word, _ in words),
            )
        return self._names.put((job or "", words), key)

    def _node(self, read: Input) -> str:
        if read.uuid is None:
            if read.node not in self.datasets:
                assert read.name is not None
                self.datasets[read.node] = DatasetTally(read.kind, read.name)
        elif read.uuid not in self.tables or read.via is not Via.ITSELF:
            shown = read.table or (read.name.name if read.name is not None else "unknown")
            table = self._table(read.uuid, shown, None, guessed=read.via is Via.OFFSETS)
            table.named = table.named or read.name
        return read.node

    def _table(
        self, uuid: str, name: str, location: str | None, *, guessed: bool = False
    ) -> TableTally:
        held = self.tables.get(uuid)
        if held is None:
            held = self.tables[uuid] = TableTally(name=name, guessed=guessed)
        elif held.guessed and not guessed:
            held.name, held.guessed = name, False
        held.names.add(name)
        held.location = held.location or location
        return held

    def _locate(self, intent: Lean, written: Iterable[str]) -> None:
        if all(self.tables[uuid].location is not None for uuid in written):
            return
        for told in tables_of(intent):
            held = self.tables.get(told.table_uuid)
            if held is not None and held.location is None:
                held.location = told.location

    def _run(self, run: str) -> _Run:
        held = self._runs.get(run)
        if held is None:
            held = self._runs[run] = _Run()
            if len(self._runs) > RUNS_KEPT_MAX:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(run)
        return held
