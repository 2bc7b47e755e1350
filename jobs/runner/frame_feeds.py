"""What some feeds of Spark's path can do beyond the common words of :mod:`jobs.runner.feeds`.

Owns these protocols; a job asks whether its feed has one. Must never know a kind of source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from jobs.runner.outcome import Done
    from jobs.runner.tables import Growth
    from jobs.sources.base import Plan


@runtime_checkable
class Learns(Protocol):
    """A feed whose records say more than it knew when it was asked for them."""

    def learn(self, plan: Plan, growth: Growth) -> None:
        """Give these columns too, when the plan is asked for again."""
        ...


@runtime_checkable
class TellsKey(Protocol):
    """A feed whose records say by which columns rows are told apart."""

    def event_key(self, plan: Plan) -> tuple[str, ...]:
        """Return them; none where the records of the plan do not tell."""
        ...


@runtime_checkable
class Marks(Protocol):
    """A feed of which some topics tell where a batch may end, and have no rows."""

    def marks(self, plan: Plan) -> frozenset[str]:
        """Return these topics of a plan."""
        ...


@runtime_checkable
class Hears(Protocol):
    """A feed that wants to know what became of a batch."""

    def landed(self, done: Done) -> None:
        """Take note of a batch that has landed."""
        ...
