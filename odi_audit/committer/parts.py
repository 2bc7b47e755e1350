"""What the committer is given: ledger, catalog, Spark, settings, clock, and who is running it.

Owns the bundle, nothing else. Spark is a function, so that what needs no JVM starts none. Must
never open anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odi_audit.clock import Clock
from odi_audit.errors import CatalogUnavailable
from odi_audit.ledger.port import Ledger
from odi_audit.settings import Settings, catalog_file

if TYPE_CHECKING:
    from odi_audit.catalog import LakeCatalog
    from odi_audit.spark.types import SparkSession


def check_catalog(settings: Settings) -> None:
    """See that an embedded catalog's file is still there, before anything relies on it.

    SQLite would make an empty file in its place, or go on writing into one that was removed.

    Raises:
        CatalogUnavailable: it is gone; nothing was published.
    """
    path = catalog_file(settings)
    if path is not None and not path.is_file():
        raise CatalogUnavailable(
            f"the catalog file {path} is not there",
            hint="put it back from a copy, then: odi-audit doctor",
            path=str(path),
        )


def nowhere(_point: str) -> None:
    """Be reached, and do nothing: the road of every run that is not a fault test."""


def nobody() -> None:
    """Take leave of nobody."""


def alone() -> Callable[[], None]:
    """Start nothing beside a run."""
    return nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that a commit touches.

    ``owner`` is held in the ledger for as long as the process lives. ``reach`` is called at each
    named point of the road; fault tests put a kill there. ``beside`` is called when a run starts,
    and what it returns when the run ends: a companion may work beside it. ``about`` is what the
    job's document says of itself (``owner``, ``description``, ``spec``), for the record.
    """

    ledger: Ledger
    catalog: Callable[[], LakeCatalog]
    spark: Callable[[], SparkSession]
    settings: Settings
    clock: Clock
    owner: str
    principal: str
    code: str
    reach: Callable[[str], None] = nowhere
    beside: Callable[[], Callable[[], None]] = alone
    about: Mapping[str, str] = field(default_factory=dict)
