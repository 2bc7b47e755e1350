"""Terms of an upsert: when a row of the batch may change a row of the table, and how.

Owns the value and its form in the ledger. In every text ``t`` is the row of the table and ``s``
that of the batch. Must never hold a value of a row: what is here stays in the ledger for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from odi_audit.canonical import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Conditions and assignments in SQL; what is left out is as in a plain upsert.

    ``match``: which rows meet, in place of equal keys; ``key`` then only tells the batch's rows
    apart. ``update_when``: rows that met are changed, or deleted, only where it holds.
    ``update_set``: the only columns that an update sets. ``keep``: columns that keep the table's
    value where their condition holds. ``insert_when``: rows that met none are added only where it
    holds. ``gone_when``: rows of the table that met none and for which it holds are deleted, or
    get what ``gone_set`` says.
    """

    match: str | None = None
    update_when: str | None = None
    update_set: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, str] = field(default_factory=dict)
    insert_when: str | None = None
    gone_when: str | None = None
    gone_set: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether this is a plain upsert."""
        return not self.to_json()

    def conditions(self) -> tuple[str, ...]:
        """Return the conditions that decide which rows are written."""
        given = (self.match, self.update_when, self.insert_when, self.gone_when)
        return tuple(text for text in given if text is not None)

    def texts(self) -> Iterator[str]:
        """Yield every piece of SQL."""
        yield from self.conditions()
        for assigned in (self.update_set, self.keep, self.gone_set):
            yield from assigned.values()

    def to_json(self) -> dict[str, Json]:
        """Return what tells these terms from others: nothing for a plain upsert."""
        body: dict[str, Json] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value:
                body[item.name] = dict(value) if isinstance(value, Mapping) else value
        return body


PLAIN = Terms()
