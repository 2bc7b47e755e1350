"""The scene of a fault test: a lake, the children that are killed on it, and what must be there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import odi_audit as odi
from odi_audit.workspace import Workspace
from tests.support.checker import Checker, Place, judge
from tests.support.children import Nursery
from tests.support.work import State, Work, after, carry_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.model.receipts import Receipt


@dataclass(slots=True, kw_only=True)
class Scene:
    """One lake, its children, and the rows that it must have: the model of what was done."""

    lake: Workspace
    spark: SparkSession
    children: Nursery
    place: Place
    state: State = field(default_factory=dict)

    def do(self, work: Work) -> Receipt:
        """Do a piece of work in this process, in a run of its own, which reconciles first."""
        receipt = self.do_again(work)
        self.state = after(self.state, work)
        return receipt

    def do_again(self, work: Work) -> Receipt:
        """Do work that the model has counted already."""
        with odi.run(work.job, lake=self.lake, spark=self.spark) as run:
            return carry_out(run, work)

    def reconcile(self) -> None:
        """Start a run that does nothing: it settles what the dead have left."""
        with odi.run("crash/reconcile", lake=self.lake, spark=self.spark):
            pass

    def counted(self, work: Work) -> None:
        """Tell the model of work that somebody else does."""
        self.state = after(self.state, work)

    def rows(self, table: str) -> list[tuple[int, int, str]]:
        """Return the rows of a table, as the checker reads them."""
        return Checker(place=self.place).rows(table)

    def uuid(self, table: str) -> str | None:
        """Return which table has a name, as the checker finds it; None where there is none."""
        return Checker(place=self.place).uuid(table)

    def problems(self, *tables: str) -> list[str]:
        """Return what the checker finds wrong with the ledger and with these tables."""
        return judge(self.place, {name: self.state[name] for name in tables or self.state})
