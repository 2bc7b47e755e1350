"""One attempt at a batch, as far as an entry of the ledger can know it.

Owns what is gathered from the intent, the entries after it and nothing that came later. Must never
count a table as written before its landed entry says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lineage import columns, facts, quality, runs
from lineage.context import Context
from lineage.facets import PRODUCER, BatchOperation, OdiBatchRunFacet
from lineage.naming import DatasetName
from lineage.outputs import head_of, table_input
from lineage.sharing import OPEN_MAX, Once, shared
from lineage.sources import input_dataset, offsets_facet, sources_of
from lineage.tables import view
from odi_audit.canonical import JsonObject
from odi_audit.ids import RunId, TableUuid
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.model.tables import TableRef

if TYPE_CHECKING:
    from openlineage.client.generated.base import InputDataset, RunFacet

_REWRITES = frozenset({"update", "delete", "compact"})
"""Operations whose rows come from the table itself."""
_STATES = {
    Kind.INTENT: "intended",
    Kind.STAGED: "staged",
    Kind.UNKNOWN: "unknown",
    Kind.REFUSED: "refused",
    Kind.ABANDONED: "abandoned",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of the attempt by its two words."""

    operation: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What had been recorded of an attempt when an entry was."""

    intent: Entry | None
    run: RunId
    job: str | None
    entries: Sequence[Entry]
    described: Sequence[JsonObject]
    effects: Sequence[Entry]
    staged: JsonObject
    settled_before: bool

    @property
    def operations(self) -> list[Operation]:
        """What the attempt does to which table."""
        return [
            Operation(
                operation=facts.text(item, "op") or "unknown",
                table=facts.text(item, "table") or "unknown",
            )
            for item in self.described
        ] or [Operation(operation="unknown", table="unknown")]

    @property
    def description(self) -> str:
        """One line about the job, for people: its own, where it has one."""
        about = {} if self.intent is None else facts.obj(self.intent.facts, "about")
        own = facts.text(about, "description")
        if own is not None:
            return own
        done = ", ".join(f"{item.operation} on {item.table}" for item in self.operations)
        return f"{done}; each run is one attempt at one batch."

    def facet(self, entry: Entry, state: str) -> OdiBatchRunFacet:
        """Return the attempt as our own facet."""
        about = (self.intent or entry).facts
        landed = {effect.table.uuid for effect in self.effects if effect.table is not None}
        gaps = [
            gap
            for item in self.entries
            if item.kind is Kind.GAP_ACCEPTED and (gap := facts.text(item.facts, "reason"))
        ]
        ended = _STATES.get(entry.kind, "landed" if state == "COMPLETE" else "publishing")
        if entry.kind is Kind.ALIVE:
            ended = _STATES[Kind.STAGED if self.staged else Kind.INTENT]
        return OdiBatchRunFacet(
            batch=entry.batch or "",
            job=entry.job or self.job or "",
            state=ended,
            operations=[
                BatchOperation(
                    operation=item.operation,
                    table=item.table,
                    tableUuid=facts.text(described, "table_uuid"),
                    landed=True if facts.text(described, "table_uuid") in landed else None,
                )
                for item, described in zip(self.operations, self.described, strict=False)
            ],
            generation=facts.number(about, "generation"),
            principal=facts.text(about, "principal"),
            code=facts.text(about, "code"),
            host=facts.text(about, "host"),
            errorCode=facts.text(entry.facts, "code") if entry.kind is Kind.REFUSED else None,
            acceptedGaps=gaps or None,
            undone=facts.texts(entry.facts, "undone") or None,
            expiredSnapshots=facts.texts(entry.facts, "expired") or None,
            recovered=True if entry.recovered else None,
            reconciled=True if facts.flag(entry.facts, "reconciled") else None,
            producer=PRODUCER,
        )

    def run_facets(self, entry: Entry) -> dict[str, RunFacet]:
        """Return the facets of the run that do not change on its way."""
        about = self.intent or entry
        # The start and the end of an attempt tell the same of its intent.
        made = dict(_of_intents.get((about.facts,), None, lambda: _of_intent(about)))
        tags = {}
        if facts.number(about.facts, "generation"):
            tags["replay"] = str(about.facts["generation"])
        if entry.recovered:
            tags["recovered"] = "true"
        if "stream" in about.facts:
            tags["stream"] = "true"
        if tags:
            made["tags"] = runs.tags_facet(tags)
        return made

    def inputs(self, entry: Entry, context: Context) -> list[InputDataset]:
        """Return what the attempt reads: its source, what its columns rest on, its own table."""
        about = self.intent or entry
        offsets = facts.offsets(about)
        planned = [
            [] if held is None else columns.inputs(held, context, entry.index)
            for held in (columns.column_lineage(item, about, context) for item in self.described)
        ]
        read = {
            DatasetName(namespace=dataset.namespace, name=dataset.name)
            for datasets in planned
            for dataset in datasets
        }
        found: dict[tuple[str, str], InputDataset] = {}
        for source in [] if offsets is None else sources_of(offsets, read):
            dataset = input_dataset(source, read=entry.kind is not Kind.INTENT)
            found[dataset.namespace, dataset.name] = dataset
        for described, datasets in zip(self.described, planned, strict=True):
            for dataset in datasets:
                key = (dataset.namespace, dataset.name)
                if key in found:
                    # The part that was read is the source's; the schema is the plan's.
                    dataset.inputFacets = found[key].inputFacets
                    dataset.facets = {**(found[key].facets or {}), **(dataset.facets or {})}
                found[key] = dataset
            if facts.text(described, "op") in _REWRITES:
                table = view(_ref(described), context, entry.index, intent=about)
                dataset = table_input(table, head_of(about))
                found.setdefault((dataset.namespace, dataset.name), dataset)
        if entry.kind is Kind.REFUSED and len(self.described) == 1:
            broken = quality.broken(self.described[0], entry.facts)
            for dataset in found.values() if broken is not None else ():
                assert dataset.inputFacets is not None and broken is not None
                dataset.inputFacets["dataQualityAssertions"] = broken
        return [found[key] for key in sorted(found)]


_of_intents: Once[dict[str, RunFacet]] = Once(OPEN_MAX)


def _of_intent(intent: Entry) -> dict[str, RunFacet]:
    offsets = facts.offsets(intent)
    made: dict[str, RunFacet] = dict(runs.intent_facets(intent, offsets))
    if offsets is not None:
        made["odi_offsets"] = offsets_facet(offsets)
    return {name: shared(facet) for name, facet in made.items()}


def attempt_of(entry: Entry, context: Context) -> Attempt:
    """Gather the attempt that an entry belongs to, as it stood when the entry was recorded."""
    intent = entry if entry.kind is Kind.INTENT else None
    if intent is None and entry.intent is not None:
        intent = context.entry(entry.intent)
        if intent is not None and intent.kind is not Kind.INTENT:
            intent = None
    entries: Sequence[Entry] = [entry]
    if intent is not None and entry is not intent:
        entries = context.attempt(intent, entry.index)
    described = [] if intent is None else facts.objects(intent.facts, "operations")
    effects = [item for item in entries if item.kind in EFFECTS and item.table is not None]
    if not described and entry.table is not None:
        word = facts.text(entry.facts, "operation") or entry.kind.value
        described = [{"op": word, "table": entry.table.name, "table_uuid": entry.table.uuid}]
    run = (None if intent is None else intent.run) or entry.run
    if run is None or not runs.is_run_id(run):
        run = runs.made_run_id(entry.kind.value, entry.index, entry.batch or "")
    return Attempt(
        intent=intent,
        run=run,
        job=None if intent is None else intent.job,
        entries=entries,
        described=described,
        effects=effects,
        staged=_staged(entries),
        settled_before=any(item.settles and item.index < entry.index for item in entries),
    )


def _staged(entries: Sequence[Entry]) -> JsonObject:
    """Return the gate's record of each table, by its uuid."""
    return {
        str(item.get("table_uuid")): item
        for entry in entries
        if entry.kind is Kind.STAGED
        for item in facts.objects(entry.facts, "tables")
    }


def _ref(described: JsonObject) -> TableRef:
    return TableRef(
        uuid=TableUuid(cast("str", described.get("table_uuid") or "")),
        name=facts.text(described, "table") or "unknown",
    )
