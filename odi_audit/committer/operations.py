"""Operations: what a batch does to a table, as values.

Owns the arguments of each operation, their checks, and the description (``work``) by which the
same work is recognised on a retry. Must never run anything: ``staging`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import UsageError
from odi_audit.model import provenance
from odi_audit.model.contract import Contract
from odi_audit.model.merges import PLAIN, Terms
from odi_audit.model.offsets import Offsets
from odi_audit.model.shares import WHOLE, Follows, Share
from odi_audit.model.tables import TableName

if TYPE_CHECKING:
    from odi_audit.model.loose import LooseFile, LooseTable
    from odi_audit.spark.live import LiveTable
    from odi_audit.spark.types import DataFrame

NO_CONTRACT = Contract()


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Add rows."""

    table: TableName
    frame: DataFrame
    contract: Contract = NO_CONTRACT
    share: Share = WHOLE
    name: str = field(default="append", init=False)

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work, apart from the rows."""
        return _contract(self.contract)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles:
    """Add rows that tasks write into data files themselves, past Spark's row by row path.

    ``write`` is called once the intent is recorded. It leaves files that nothing refers to, and
    returns them; it may be called again if the table moves before it has begun.
    """

    table: TableName
    write: Callable[[LooseTable], Sequence[LooseFile]]
    contract: Contract = NO_CONTRACT
    share: Share = WHOLE
    name: str = field(default="append", init=False)

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work, apart from the rows."""
        return _contract(self.contract)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """Insert or update rows by key; the newest by ``order_by`` wins; some may delete."""

    table: TableName
    frame: DataFrame
    key: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    delete_when: str | None = None
    terms: Terms = PLAIN
    contract: Contract = NO_CONTRACT
    share: Share = WHOLE
    name: str = field(default="upsert", init=False)

    def __post_init__(self) -> None:
        if not self.key:
            raise UsageError(f"upsert into {self.table} needs key=: the columns that name a row")
        if self.contract.key and set(self.contract.key) != set(self.key):
            raise UsageError(
                f"upsert into {self.table} has key={', '.join(self.key)}, but its contract names "
                f"{', '.join(self.contract.key)}: only one of them can tell its rows apart"
            )

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work, apart from the rows."""
        return {
            "key": list(self.key),
            "order_by": list(self.order_by),
            "delete_when": self.delete_when,
            **({} if self.terms.empty else {"terms": self.terms.to_json()}),
            **_contract(self.contract),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwritePartitions:
    """Replace the partitions that the rows fall into."""

    table: TableName
    frame: DataFrame
    contract: Contract = NO_CONTRACT
    share: Share = WHOLE
    name: str = field(default="overwrite_partitions", init=False)

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work, apart from the rows."""
        return _contract(self.contract)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Replace the rows that match a condition."""

    table: TableName
    frame: DataFrame
    where: str
    contract: Contract = NO_CONTRACT
    share: Share = WHOLE
    name: str = field(default="overwrite", init=False)

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work, apart from the rows."""
        return {"where": self.where, **_contract(self.contract)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Set columns in the rows that match."""

    table: TableName
    where: str
    assignments: Mapping[str, str]
    name: str = field(default="update", init=False)

    def __post_init__(self) -> None:
        if not self.assignments:
            raise UsageError(f"update of {self.table} needs set=: which columns get which value")

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work."""
        return {"where": self.where, "set": dict(self.assignments)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete the rows that match."""

    table: TableName
    where: str
    name: str = field(default="delete", init=False)

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work."""
        return {"where": self.where}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Rewrite small files into large ones."""

    table: TableName
    where: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default="compact", init=False)

    def arguments(self) -> dict[str, Json]:
        """Return what tells this work from other work."""
        return {"where": self.where, "options": dict(self.options)}


FrameOperation: TypeAlias = Append | Upsert | OverwritePartitions | Overwrite
RowOperation: TypeAlias = FrameOperation | AppendFiles
"""Operations that bring rows from outside."""
Operation: TypeAlias = RowOperation | Update | Delete | Compact


def work(operation: Operation) -> JsonObject:
    """Describe an operation: equal descriptions are the same work on the same offsets."""
    return {"op": operation.name, "table": str(operation.table), **operation.arguments()}


def with_provenance(operation: Operation, target: LiveTable, offsets: Offsets) -> Operation:
    """Return an operation that also checks its rows' source records, where the table keeps them."""
    keeps = target.property(provenance.PROPERTY) == provenance.ROW
    if not keeps or not isinstance(operation, RowOperation):
        return operation
    contract, rule = operation.contract, provenance.rule(offsets)
    return replace(
        operation,
        contract=replace(
            contract,
            required=tuple(
                dict.fromkeys((*contract.required, provenance.PARTITION, provenance.OFFSET))
            ),
            rules={**contract.rules, **({} if rule is None else {provenance.RULE: rule})},
        ),
    )


def share_for(operation: Operation) -> Share:
    """Return which part of the batch's offsets an operation takes."""
    return operation.share if isinstance(operation, RowOperation) else WHOLE


def is_side(operation: Operation) -> bool:
    """Say whether an operation is on a side table: left out of a batch that has no row for it."""
    return share_for(operation).follows is Follows.NOTHING


def takes_rows(operation: Operation) -> bool:
    """Say whether an operation brings rows from outside, which need offsets."""
    return isinstance(operation, RowOperation)


def _contract(contract: Contract) -> dict[str, Json]:
    return {} if contract.empty else {"contract": contract.to_json()}
