"""What the events of an entry may look up: other entries of the same ledger, and nothing else.

Owns the small interface and its implementation over a ledger. Every answer is "as of" an index: an
entry that came later is never seen, so the events of an entry are the same whenever they are made.
Must never keep more than a bounded number of entries in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from odi_audit.errors import EntryNotFound
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import EFFECTS, Entry, Kind
from odi_audit.model.tables import TableRef

ENTRIES_KEPT_MAX = 2_000
"""Intents, and entries that hold a schema, are asked for again and again; they are small."""
ATTEMPTS_KEPT_MAX = 500
"""Attempts whose entries stay at hand: more than are ever open at once, and a few hundred KB."""
EFFECTS_MAX = 200
"""How many changes of one table are looked through for a schema: more is a table gone wrong."""


class Context(Protocol):
    """What :func:`lineage.events.events_of` may ask; all of it from the ledger."""

    def entry(self, index: int) -> Entry | None:
        """Return an entry; None where there is none."""
        ...

    def attempt(self, intent: Entry, until: int) -> Sequence[Entry]:
        """Return what was recorded of an attempt at a batch, in order, up to and with ``until``."""
        ...

    def is_settled(self, index: int, *, before: int) -> bool:
        """Say whether an intent was settled, or a run ended, before another entry."""
        ...

    def effects(self, table: TableUuid, until: int, *kinds: Kind, limit: int) -> Sequence[Entry]:
        """Return the newest entries of these kinds about a table at or before ``until``."""
        ...

    def name_before(self, table: TableUuid, index: int) -> str | None:
        """Return the name that a table had at the last change of it before ``index``."""
        ...


class LedgerContext:
    """The context over a real ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[int, Entry] = OrderedDict()
        self._attempts: OrderedDict[int, list[Entry]] = OrderedDict()
        self._last = -1
        self._names: OrderedDict[TableUuid, tuple[int, str | None, str]] = OrderedDict()

    def remember(self, entry: Entry) -> None:
        """Keep an entry that was read anyway, so that it need not be read again.

        Whoever walks the ledger in order calls this for each entry: then what was recorded of an
        attempt is known without asking for it.
        """
        self._keep(entry)
        if entry.index != self._last + 1:
            # Something in between was not seen: no attempt is known to be whole.
            self._attempts.clear()
            self._names.clear()
        if entry.kind in EFFECTS and entry.table is not None:
            self._named(entry.index, entry.table)
        self._last = entry.index
        if entry.kind is Kind.INTENT:
            self._attempts[entry.index] = [entry]
            while len(self._attempts) > ATTEMPTS_KEPT_MAX:
                self._attempts.popitem(last=False)
        elif entry.intent is not None and entry.intent in self._attempts:
            self._attempts[entry.intent].append(entry)

    def entry(self, index: int) -> Entry | None:
        """Return an entry; None where there is none."""
        found = self._kept.get(index)
        if found is None:
            try:
                found = self._ledger.get(index)
            except EntryNotFound:
                return None
        self._keep(found)
        return found

    def attempt(self, intent: Entry, until: int) -> Sequence[Entry]:
        """Return what was recorded of an attempt at a batch, in order, up to and with ``until``."""
        if intent.batch is None:
            return [intent]
        seen = self._attempts.get(intent.index)
        if seen is not None and until <= self._last:
            return [entry for entry in seen if entry.index <= until]
        return [
            entry
            for entry in self._ledger.batch_entries(intent.batch)
            if entry.index <= until and intent.index in {entry.index, entry.intent}
        ]

    def is_settled(self, index: int, *, before: int) -> bool:
        """Say whether an intent was settled, or a run ended, before another entry."""
        settling = self._ledger.settled_by(index)
        return settling is not None and settling.index < before

    def effects(self, table: TableUuid, until: int, *kinds: Kind, limit: int) -> Sequence[Entry]:
        """Return the newest entries of these kinds about a table at or before ``until``."""
        if not table:
            return []
        where = EntryFilter(kinds=kinds, table=table, before=until + 1)
        return self._ledger.find(where, limit=limit, newest_first=True)

    def name_before(self, table: TableUuid, index: int) -> str | None:
        """Return the name that a table had at the last change of it before ``index``."""
        known = self._names.get(table)
        if known is not None and known[0] == index and known[1] is not None:
            return known[1]
        found = [
            entry
            for entry in self.effects(table, index, *EFFECTS, limit=2)
            if entry.index < index and entry.table is not None
        ]
        return found[0].table.name if found and found[0].table is not None else None

    def _named(self, index: int, table: TableRef) -> None:
        before = self._names.pop(table.uuid, None)
        self._names[table.uuid] = (index, None if before is None else before[2], table.name)
        while len(self._names) > ATTEMPTS_KEPT_MAX:
            self._names.popitem(last=False)

    def _keep(self, entry: Entry) -> None:
        self._kept[entry.index] = entry
        self._kept.move_to_end(entry.index)
        while len(self._kept) > ENTRIES_KEPT_MAX:
            self._kept.popitem(last=False)
