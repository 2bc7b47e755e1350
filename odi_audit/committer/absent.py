"""A table that is not under its name: what became of the last one that had it, by the ledger.

Owns what is said of that where somebody wanted to write to it, drop it or rename it. Must never
guess: where no entry tells of it, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from odi_audit.errors import TableNotFound
from odi_audit.ledger.port import EntryFilter, Ledger
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.names import NAMING, last_about, leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """How the last table of a name left it; ``last`` is the newest entry that names the table."""

    entry: Entry
    last: Entry

    @property
    def renamed(self) -> bool:
        """Whether it has another name, and was not dropped."""
        return self.entry.kind is Kind.TABLE_RENAMED

    @property
    def name_now(self) -> str:
        """The name that it has, or had when it was dropped."""
        assert self.last.table is not None
        return self.last.table.name

    def said(self) -> str:
        """Return who did it and when, in a few words."""
        entry = self.entry
        done = f"renamed it to {entry.facts['to_name']}" if self.renamed else "dropped it"
        moved_on = self.renamed and self.name_now != entry.facts["to_name"]
        since = f", and it is {self.name_now} by now" if moved_on else ""
        return f"batch {entry.batch} of {entry.job} {done}, {entry.time}{since}"


def left(ledger: Ledger, name: str) -> Left | None:
    """Return how the last table of a name left it; None where no entry tells of it."""
    named = ledger.find(EntryFilter(kinds=NAMING))
    found = next((entry for entry in reversed(named) if leaves(entry, name)), None)
    if found is None or found.table is None:
        return None
    return Left(entry=found, last=last_about(found, named))


def refuse_if_renamed(ledger: Ledger, name: str) -> None:
    """Refuse to make a table that was to be there already, and lives under another name.

    A job that makes its table where it is missing would begin a second one, from its start.

    Raises:
        TableNotFound: with the name that the table has now.
    """
    renames = ledger.find(EntryFilter(kinds=(Kind.TABLE_RENAMED,)))
    # Tables that are made may be many, renames are few: mostly that is all that is read.
    gone = left(ledger, name) if any(leaves(entry, name) for entry in renames) else None
    if gone is not None and gone.renamed and gone.last.kind is not Kind.TABLE_DROPPED:
        raise TableNotFound(
            f"table {name} is not there, and was not made anew: {gone.said()}",
            hint=f"write to {gone.name_now}; if a new table is meant, make it first: "
            f'run.create_table("{name}", …) without if_not_exists',
            table=name,
            batch=gone.entry.batch,
            name_now=gone.name_now,
        )


@contextmanager
def telling_of_renames(ledger: Ledger) -> Iterator[None]:
    """Let an error that a table is not there say what it was renamed to.

    Raises:
        TableNotFound: as inside; a hint to make the table would make another one.
    """
    try:
        yield
    except TableNotFound as missing:
        name = str(missing.facts.get("table"))
        gone = left(ledger, name)
        if gone is None or not gone.renamed:
            raise
        raise TableNotFound(
            f"there is no table {name}: {gone.said()}",
            hint=f"write to {gone.name_now}; odi-audit history {gone.name_now}",
            table=name,
            batch=gone.entry.batch,
        ) from missing
