"""Writers of a table and whoever drops or renames it: which of the two gives way.

Owns the rule, which rests on the ledger's one order. Both record their intent first and look at
the other open ones after, so that of two the later one always sees the earlier one: a writer gives
way to a drop or a rename that was recorded before it, and these to every intent that they see.
Must never wait.
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
RENAME = "rename_table"
"""The operation that gives a table another name."""
_DONE = {DROP: "dropped", RENAME: "renamed"}
"""Operations after which nobody finds the table under its name, and what they do to it."""


def refuse_if_leaving(ledger: Ledger, opened: Entry, intents: Iterable[Entry]) -> None:
    """Refuse a batch on a table that an earlier intent is about to drop or to rename.

    A dead process does neither any more; what it did, loading the table shows.

    Raises:
        CommitConflict: a live process takes one of its tables away; nothing was written.
    """
    tables = set(_tables(opened))
    for other in intents:
        done = _done_by(other)
        if other.index >= opened.index or done is None or not tables & set(_tables(other)):
            continue
        if ledger.is_alive(str(other.facts.get("owner", ""))):
            name = _operations(other)[0]["table"]
            raise CommitConflict(
                f"batch {opened.batch} was not written: {name} is being {done} by batch "
                f"{other.batch} of {other.job}",
                hint=f"odi-audit batch {other.batch}",
                table=str(name),
                batch=other.batch,
            )


def refuse_if_in_use(opened: Entry, intents: Iterable[Entry]) -> None:
    """Refuse to take away a table that any other open intent is about, of a live process or not.

    What a dead one has published and not recorded, only the table can tell.

    Raises:
        CommitConflict: one is open; nothing was done.
    """
    for other in intents:
        if other.index != opened.index and _meet(opened, other):
            raise CommitConflict(
                f"{_operations(opened)[0]['table']} was not {_done_by(opened)}: batch "
                f"{other.batch} of {other.job} is under way on it since {other.time}",
                hint="wait until it is done; if its process has died: "
                f"odi-audit reconcile --batch {other.batch} --apply",
                batch=other.batch,
            )


def refuse_if_leaves(name: str, intents: Iterable[Entry]) -> None:
    """Refuse to say what became of a table that is gone while an open intent was to take it away.

    Raises:
        CommitConflict: there is one; how far it has come, settling it will show.
    """
    for other in intents:
        done = _done_by(other)
        if done is not None and str(_operations(other)[0]["table"]) == name:
            raise CommitConflict(
                f"{name} is not there: it is being {done} by batch {other.batch} of {other.job}, "
                "which has not been settled",
                hint=f"odi-audit reconcile --batch {other.batch} --apply",
                batch=other.batch,
            )


def _meet(opened: Entry, other: Entry) -> bool:
    if set(_tables(opened)) & set(_tables(other)):
        return True
    # A table that is being made has no uuid yet: its maker will look for it under its name.
    made = {str(item["table"]) for item in _operations(other) if not item.get("table_uuid")}
    return not made.isdisjoint(str(item["table"]) for item in _operations(opened))


def _done_by(intent: Entry) -> str | None:
    found = (_DONE.get(str(item["op"])) for item in _operations(intent))
    return next((done for done in found if done is not None), None)


def _tables(intent: Entry) -> list[TableUuid]:
    # A table that is to be made has no uuid yet.
    found = [TableUuid(str(item.get("table_uuid") or "")) for item in _operations(intent)]
    return [uuid for uuid in found if uuid]


def _operations(intent: Entry) -> Sequence[JsonObject]:
    return cast("Sequence[JsonObject]", intent.facts.get("operations") or [])
