"""Rolling forward: publish what a dead process had staged and the gate had passed.

Owns the one part of reconcile that needs Spark. The staged files are taken as they are; nothing
is written again. Must never roll forward anything but an append onto a table that has moved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from odi_audit import logs
from odi_audit.committer.parts import Parts
from odi_audit.committer.publishing import check_since
from odi_audit.committer.reconcile import Part, staged_snapshot
from odi_audit.errors import CommitConflict
from odi_audit.ids import SnapshotId
from odi_audit.model import tables
from odi_audit.model.entries import Entry
from odi_audit.model.stamps import Stamps, read
from odi_audit.spark import publish
from odi_audit.spark.failures import translated
from odi_audit.spark.jvm import Jvm
from odi_audit.spark.live import LiveTable, load
from odi_audit.spark.publish import Swap, SwapUnknown
from odi_audit.spark.stage import Stage, TableMoved

log = logs.get_logger(__name__)


def roll_forward(parts: Parts, opened: Entry, part: Part) -> Part:
    """Publish one table's staged part; afterwards its snapshot is in main.

    Raises:
        CommitConflict: the table moved, and the change cannot be put on the new head.
        Refused: a copy of the job has landed some of the same offsets meanwhile.
        CatalogUnavailable: nobody can look; leave the intent open.
    """
    if not part.missing:
        return part
    snapshot = staged_snapshot(part)
    stamps = read(snapshot.summary)
    assert stamps is not None
    jvm = Jvm(parts.spark())
    assert part.document is not None
    for _ in range(parts.settings.limits.stage_attempts_max):
        table = load(jvm, parts.settings.catalog.name, tables.parse(part.table.name))
        if table.ref.uuid != part.table.uuid:
            raise CommitConflict(
                f"another table has taken the name {part.table.name}; {opened.batch} is not for it"
            )
        there = table.find(stamps.batch)
        if there is not None:
            return replace(part, landed=there)
        try:
            stage = _stage(parts, opened, table, stamps, part)
            swap = publish.publish(stage)
        except (SwapUnknown, TableMoved):
            continue
        if swap is Swap.DONE:
            landed = stage.snapshot()
            assert landed is not None
            log.info("rolled forward", batch=opened.batch, table=part.table.name)
            return replace(part, landed=landed)
    raise CommitConflict(f"{part.table.name} kept moving; {opened.batch} was not rolled forward")


def _stage(parts: Parts, opened: Entry, table: LiveTable, stamps: Stamps, part: Part) -> Stage:
    assert part.document is not None
    stage = Stage(table, stamps)
    with translated(f"roll forward of {stamps.batch} on {part.table.name}"):
        if table.metadata_location == part.document["base_metadata"]:
            stage.adopt(staged_snapshot(part))
        elif part.operation == "append":
            _check_continues(parts, opened, table, part)
            stage.readd(staged_snapshot(part))
        else:
            raise CommitConflict(
                f"{part.table.name} has moved since {part.operation} was staged on it"
            )
    return stage


def _check_continues(parts: Parts, opened: Entry, table: LiveTable, part: Part) -> None:
    # The gate compared the offsets with what had landed before the base; this is what came since.
    assert part.document is not None
    base = cast("SnapshotId | None", part.document["base"])
    check_since(parts.ledger, opened, part.table, table.since(base))
