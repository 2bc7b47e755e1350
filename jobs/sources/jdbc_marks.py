"""Watermarks: the values of a column by which new rows of a database table are found.

Owns which types they may have, their text in the ledger (the order of the texts is that of the
values), and their form in the database's SQL. Must never lose a digit of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from odi_audit.errors import NotSupported, UsageError
from odi_audit.model.offsets import Place

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Mark: TypeAlias = int
"""A value as a number: itself, days, or microseconds since 1970."""


class MarkKind(StrEnum):
    """The types that a watermark may have."""

    NUMBER = "number"
    DATE = "date"
    TIME = "timestamp"
    LOCAL_TIME = "timestamp_ntz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The watermarks of one column: their kind, and the dialect in which they are written."""

    kind: MarkKind
    dialect: str

    def place(self, mark: Mark) -> Place:
        """Return a value as the ledger keeps it; later values are later in the texts' order."""
        match self.kind:
            case MarkKind.NUMBER:
                return mark
            case MarkKind.DATE:
                return (EPOCH.date() + timedelta(days=mark)).isoformat()
            case _:
                text = (EPOCH + timedelta(microseconds=mark)).strftime("%Y-%m-%dT%H:%M:%S.%f")
                return text + ("Z" if self.kind is MarkKind.TIME else "")

    def mark(self, place: Place) -> Mark:
        """Read what :meth:`place` wrote, or what a spec gives as the start.

        Raises:
            UsageError: it is no value of this kind.
        """
        try:
            match self.kind:
                case MarkKind.NUMBER:
                    return int(place)
                case MarkKind.DATE:
                    return (date.fromisoformat(str(place)) - EPOCH.date()).days
                case _:
                    found = datetime.fromisoformat(str(place))
                    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
                    return (aware - EPOCH) // timedelta(microseconds=1)
        except ValueError as error:
            raise UsageError(
                f"watermark {place!r} is no {self.kind.value}: {error}",
                hint="write source.watermark.start as the column has it",
            ) from error

    def back(self, mark: Mark, overlap: timedelta) -> Mark:
        """Return the value that lies an overlap before another."""
        if not overlap:
            return mark
        if self.kind is MarkKind.NUMBER:
            raise NotSupported(
                "source.watermark.overlap is a time, and the watermark is a number",
                hint="leave the overlap out, or take a column with a time",
            )
        unit = timedelta(days=1) if self.kind is MarkKind.DATE else timedelta(microseconds=1)
        return mark - -(-overlap // unit)

    def sql(self, mark: Mark) -> str:
        """Return a value as the database's SQL writes it."""
        if self.kind is MarkKind.NUMBER:
            return str(mark)
        text = str(self.place(mark)).removesuffix("Z").replace("T", " ")
        if self.kind is MarkKind.DATE:
            return f"DATE '{text}'"
        if self.kind is MarkKind.LOCAL_TIME:
            return f"TIMESTAMP '{text}'"
        # The moment itself, whatever time zone the connection has.
        if self.dialect == "postgresql":
            return f"TIMESTAMP WITH TIME ZONE '{text}+00:00'"
        if self.dialect == "sqlserver":
            return f"CAST('{text} +00:00' AS datetimeoffset)"
        return f"TIMESTAMP '{text}+00:00'"


def kind_of(spark_type: str, column: str) -> MarkKind:
    """Return the kind of a column by its type in Spark's words.

    Raises:
        NotSupported: its values have no order that is the same everywhere.
    """
    if spark_type in {"tinyint", "smallint", "int", "bigint"} or spark_type.endswith(",0)"):
        return MarkKind.NUMBER
    kinds = {"date": MarkKind.DATE, "timestamp": MarkKind.TIME}
    kinds["timestamp_ntz"] = MarkKind.LOCAL_TIME
    if spark_type not in kinds:
        raise NotSupported(
            f"source.watermark.column {column} is of type {spark_type}: only whole numbers, dates "
            "and times have an order that is the same in the database and here",
            hint="take such a column, or make one in source.query",
        )
    return kinds[spark_type]
