"""The stored tree: reading nodes, the head, and the cheap check of the tail.

Owns how tree nodes are laid out in tables (leaves beside their entries, the rest in ``nodes``).
Must never read more than a logarithm of the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from odi_audit.errors import LedgerBroken
from odi_audit.ledger import merkle
from odi_audit.ledger.database import Database, Session, octets
from odi_audit.ledger.port import TreeHead
from odi_audit.ledger.reading import decode

_VERIFY = "odi-audit ledger verify"


def size(session: Session) -> int:
    """Return how many entries there are."""
    last = session.rows("SELECT max(idx) FROM entries")[0][0]
    return 0 if last is None else cast("int", last) + 1


def head(session: Session) -> TreeHead:
    """Return the size and the root of the stored tree."""
    count = size(session)
    return TreeHead(size=count, root=merkle.root(count, reader(session)))


def reader(session: Session) -> merkle.ReadNodes:
    """Return the look-up of stored nodes that proofs and roots are made with."""

    def read(wanted: Sequence[merkle.NodeId]) -> Mapping[merkle.NodeId, bytes]:
        return nodes(session, wanted)

    return read


def nodes(session: Session, wanted: Sequence[merkle.NodeId]) -> dict[merkle.NodeId, bytes]:
    """Return stored nodes.

    Raises:
        LedgerBroken: one of them is not there.
    """
    found: dict[merkle.NodeId, bytes] = {}
    leaves = [index for level, index in wanted if level == 0]
    inner = [node for node in wanted if node[0] > 0]
    if leaves:
        marks = ", ".join("?" * len(leaves))
        for index, leaf in session.rows(
            f"SELECT idx, leaf FROM entries WHERE idx IN ({marks})",  # noqa: S608  marks only
            leaves,
        ):
            found[(0, cast("int", index))] = octets(leaf)
    if inner:
        either = " OR ".join(["(level = ? AND idx = ?)"] * len(inner))
        for level, index, value in session.rows(
            f"SELECT level, idx, hash FROM nodes WHERE {either}",  # noqa: S608  marks only
            [part for node in inner for part in node],
        ):
            found[(cast("int", level), cast("int", index))] = octets(value)
    for node in wanted:
        if node not in found:
            raise LedgerBroken(
                f"the ledger's tree has no node at level {node[0]}, index {node[1]}",
                hint=_VERIFY,
                level=node[0],
                index=node[1],
            )
    return found


def check_tail(database: Database) -> None:
    """Check that the last entry agrees with its leaf, its nodes and its projection.

    Raises:
        LedgerBroken: it does not: the tail was cut, altered, or written by something else.
    """
    with database.reading() as session:
        last = session.rows("SELECT idx, body, leaf FROM entries ORDER BY idx DESC LIMIT 1")
        beyond = session.rows(
            "SELECT (SELECT max(idx) FROM nodes WHERE level = 1),"
            " (SELECT max(idx) FROM entry_index)"
        )[0]
        count = 0
        if last:
            index = cast("int", last[0][0])
            count = index + 1
            _check_last(session, database.shown, index, octets(last[0][1]), octets(last[0][2]))
    if beyond != (count // 2 - 1 if count > 1 else None, count - 1 if count else None):
        raise _broken(database.shown, count - 1, "its tree or its index has another length")


def _check_last(session: Session, shown: str, index: int, body: bytes, leaf: bytes) -> None:
    if merkle.leaf_hash(body) != leaf:
        raise _broken(shown, index, "its bytes do not hash to its leaf")
    decode(body, index, shown)
    before, after = merkle.frontier(index), merkle.frontier(index + 1)
    stored = nodes(session, [*before, *after])
    growth = merkle.Growth(index, [stored[node] for node in before])
    growth.add(leaf)
    if growth.root() != merkle.fold([stored[node] for node in after]):
        raise _broken(shown, index, "the nodes above it do not fit it")


def _broken(shown: str, index: int, reason: str) -> LedgerBroken:
    return LedgerBroken(
        f"ledger {shown}: the last entry, {index}, is damaged: {reason}",
        hint=_VERIFY,
        index=index,
    )
