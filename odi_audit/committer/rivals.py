"""Writers of a table and whoever drops it: which of the two gives way.

Owns the rule, which rests on the ledger's one order. Both record their intent first and look at
the other open ones after, so that of two the later one always sees the earlier one: a writer gives
way to a drop that was recorded before it, a drop to every writer that it sees. Must never wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from odi_audit.canonical import JsonObject
from odi_audit.errors import CommitConflict
from odi_audit.ids import TableUuid
from odi_audit.ledger.port import Ledger
from odi_audit.model.entries import Entry

DROP = "drop_table"
"""The operation that takes a table out of the catalog."""


def refuse_if_dropping(ledger: Ledger, opened: Entry, intents: Iterable[Entry]) -> None:
    """Refuse a batch on a table that an earlier intent is about to drop.

    A dead process drops nothing any more; what it did drop, loading the table shows.

    Raises:
        CommitConflict: a live process is dropping one of its tables; nothing was written.
    """
    tables = set(_tables(opened))
    for other in intents:
        if other.index >= opened.index or not _drops(other) or not tables & set(_tables(other)):
            continue
        if ledger.is_alive(str(other.facts.get("owner", ""))):
            name = _operations(other)[0]["table"]
            raise CommitConflict(
                f"batch {opened.batch} was not written: {name} is being dropped by batch "
                f"{other.batch} of {other.job}",
                hint=f"odi-audit batch {other.batch}",
                table=str(name),
                batch=other.batch,
            )


def refuse_if_written(opened: Entry, intents: Iterable[Entry]) -> None:
    """Refuse to drop a table that any other open intent is about, whether its process lives or not.

    What a dead one has published and not recorded, only the table can tell.

    Raises:
        CommitConflict: one is open; nothing was dropped.
    """
    tables = set(_tables(opened))
    for other in intents:
        if other.index != opened.index and tables & set(_tables(other)):
            raise CommitConflict(
                f"{_operations(opened)[0]['table']} was not dropped: batch {other.batch} of "
                f"{other.job} is under way on it since {other.time}",
                hint="wait until it is done; if its process has died: "
                f"odi-audit reconcile --batch {other.batch} --apply",
                batch=other.batch,
            )


def _drops(intent: Entry) -> bool:
    return any(item["op"] == DROP for item in _operations(intent))


def _tables(intent: Entry) -> list[TableUuid]:
    # A table that is to be made has no uuid yet.
    found = [TableUuid(str(item.get("table_uuid") or "")) for item in _operations(intent)]
    return [uuid for uuid in found if uuid]


def _operations(intent: Entry) -> Sequence[JsonObject]:
    return cast("Sequence[JsonObject]", intent.facts.get("operations") or [])
