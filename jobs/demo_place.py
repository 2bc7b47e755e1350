"""The demo's folder and the files of orders that arrive in it.

Owns what a demo lake looks like, so that the next demo may take its place. Must never delete a
folder that is not a demo lake, nor one in which somebody keeps something else. The orders are
made up, and the same on every machine.
"""

from __future__ import annotations

import csv
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

from odi_audit.errors import LakeExists, StorageError

MARKER = ".odi-demo"
MARKER_TEXT = "A lake of the odi-audit demo: the next demo deletes this folder and makes it anew.\n"
_OURS = frozenset(
    (MARKER, ".spark", "heads", "inbox", "keys", "lineage.html", "odi.toml", "out", "spool",
     "warehouse")
)  # fmt: skip
_OURS_BEGIN = (".odi.toml.draft", "catalog.db", "ledger.db", "relay.db")
"""What the demo, and the commands that it proposes, leave in the folder; the rest is not ours."""

COLUMNS = ("order_id", "customer", "status", "amount", "updated_at")
ORDERS_PER_FILE = 400
FIRST_ORDER = 1001
FIRST_DAY = datetime(2026, 11, 1, 8, 0, tzinfo=UTC)
CHANGED_COUNT = 60
WITHDRAWN_COUNT = 5
ADDED_COUNT = 10
FIRST_ADDED = 9001
TRACED_ORDER = FIRST_ORDER + 41
"""The order that the story follows: it arrives on the first day and is changed later."""
WRONG_ORDER = FIRST_ORDER + 3 * ORDERS_PER_FILE + 7
"""An order of the fourth day whose file has lost the decimal point of its amount."""
WRONG_AMOUNT_MIN = 5_000
"""More than any order that is right."""
_CUSTOMERS = ("Aalto", "Brontë", "Curie", "Díaz", "Eco", "Franklin", "Gauß", "Hopper")
_SEED = 20261101

Order: TypeAlias = tuple[int, str, str, Decimal, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are in a demo lake."""

    root: Path

    @property
    def orders(self) -> Path:
        """Where files of new orders arrive."""
        return self.root / "inbox" / "orders"

    @property
    def changes(self) -> Path:
        """Where files of changed orders arrive."""
        return self.root / "inbox" / "changes"

    @property
    def out(self) -> Path:
        """Where proofs and exports go."""
        return self.root / "out"


def clear(root: Path) -> None:
    """Make way for a new demo lake; afterwards the folder is there, empty but for the marker.

    Raises:
        LakeExists: the folder is not a demo lake, or holds something that no demo made.
        StorageError: it cannot be deleted or made.
    """
    if root.is_symlink() or (root.exists() and not root.is_dir()):
        raise LakeExists(
            f"{root} is not a folder, so the demo cannot be made there",
            hint="odi-audit demo --dir another-folder",
        )
    there = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    marker = root / MARKER
    if there and not (marker.is_file() and marker.read_bytes() == MARKER_TEXT.encode()):
        raise LakeExists(
            f"{root} is not empty and is no demo lake: nothing in it was touched",
            hint="odi-audit demo --dir another-folder",
        )
    others = [name for name in there if name not in _OURS and not name.startswith(_OURS_BEGIN)]
    if others:
        raise LakeExists(
            f"{root} is a demo lake, but also holds {', '.join(others)}, which no demo made: "
            "nothing in it was touched",
            hint="move that away, or: odi-audit demo --dir another-folder",
        )
    try:
        if there:
            shutil.rmtree(root)
        root.mkdir(parents=True, exist_ok=True)
        marker.write_text(MARKER_TEXT, "utf-8")
    except OSError as problem:
        raise StorageError(
            f"a demo lake cannot be made in {root}: {problem.strerror}",
            hint="odi-audit demo --dir another-folder",
        ) from problem


def write_orders(place: Place, day: int) -> Path:
    """Let the file of one day's new orders arrive (day 0 is the first)."""
    moment = FIRST_DAY + timedelta(days=day)
    first = FIRST_ORDER + day * ORDERS_PER_FILE
    rows = [_order(order, moment) for order in range(first, first + ORDERS_PER_FILE)]
    return _arrive(place.orders / f"orders-{moment:%Y-%m-%d}.csv", rows)


def write_changes(place: Place) -> Path:
    """Let a file of changes arrive: orders shipped, some withdrawn, some that are new."""
    moment = FIRST_DAY + timedelta(days=2, hours=9)
    chosen = random.Random(_SEED).sample(
        range(FIRST_ORDER + 42, FIRST_ORDER + 3 * ORDERS_PER_FILE),
        CHANGED_COUNT - 1 + WITHDRAWN_COUNT,
    )
    shipped = sorted([TRACED_ORDER, *chosen[WITHDRAWN_COUNT:]])
    rows = [_order(order, moment, status="shipped") for order in shipped]
    rows += [_order(order, moment, status="withdrawn") for order in chosen[:WITHDRAWN_COUNT]]
    rows += [_order(FIRST_ADDED + number, moment) for number in range(ADDED_COUNT)]
    return _arrive(place.changes / f"changes-{moment:%Y-%m-%d}.csv", rows)


def _order(order: int, moment: datetime, *, status: str = "placed") -> Order:
    made = random.Random(_SEED + order)
    customer = made.choice(_CUSTOMERS)
    cents = Decimal(made.randrange(500, 50_000))
    return (
        order,
        customer,
        status,
        cents if order == WRONG_ORDER else cents / 100,
        f"{moment + timedelta(seconds=order % ORDERS_PER_FILE):%Y-%m-%d %H:%M:%S}",
    )


def _arrive(path: Path, rows: Iterable[Order]) -> Path:
    """Write a file under a name that no job reads, and give it its own when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name("_" + path.name)
    with unfinished.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return unfinished.replace(path)


WRONG_CUSTOMER = _order(WRONG_ORDER, FIRST_DAY)[1]
"""Whose order it is."""
