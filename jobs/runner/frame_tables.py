"""Tables of a job on Spark's path: made with their key, and found again.

Owns where the key of a table's rows comes from: the spec, or the events themselves, which the table
then remembers. Must never change a table that is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jobs.patterns import names
from jobs.runner import tables
from jobs.runner.frame_feeds import TellsKey
from jobs.spec.model import FROM_EVENT
from odi_audit.errors import NotSupported, UsageError
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind

if TYPE_CHECKING:
    from jobs.runner.feeds import Feed
    from jobs.runner.frame_legs import Leg
    from jobs.spec.model import JobSpec
    from odi_audit.committer.run import Run
    from odi_audit.spark.live import LiveTable

LOOKED_AT_MAX = 10
"""Of what landed last: some of it may be dead letters only."""


def make(
    run: Run, spec: JobSpec, feed: Feed, leg: Leg, *, name: str, columns: Mapping[str, str]
) -> LiveTable:
    """Make a leg's table; one whose key the events tell remembers it."""
    target = spec.target
    if target.key == FROM_EVENT:
        key = ",".join(_event_key(feed, leg))
        properties = {**target.properties, names.KEY_PROPERTY: key}
        target = target.model_copy(update={"properties": properties})
    return tables.make(run, name, columns, target)


def key_of(spec: JobSpec, feed: Feed, leg: Leg, table: LiveTable) -> tuple[str, ...]:
    """Return the columns by which a table's rows are told apart."""
    key = spec.target.key
    if key != FROM_EVENT:
        return tuple(key)
    kept = table.property(names.KEY_PROPERTY)
    return tuple(kept.split(",")) if kept else _event_key(feed, leg)


def last_table(run: Run, spec: JobSpec) -> LiveTable | None:
    """Return the table of rows on which the job's last batch landed, if it is still there."""
    dead = None if spec.dead_letter is None else spec.dead_letter.table
    where = EntryFilter(kinds=(Kind.LANDED,), job=run.job)
    for entry in run.parts.ledger.find(where, limit=LOOKED_AT_MAX, newest_first=True):
        if entry.table is not None and entry.table.name != dead:
            return tables.live(run, entry.table.name)
    return None


def _event_key(feed: Feed, leg: Leg) -> tuple[str, ...]:
    if not isinstance(feed, TellsKey):
        raise NotSupported("target.key: from_event needs a source of change events")
    found = feed.event_key(leg.plan)
    if not found:
        raise UsageError(
            "no record of the batch tells by which columns rows are told apart",
            hint="name them in the spec: target.key",
        )
    return found
