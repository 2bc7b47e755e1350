"""The Merkle tree of RFC 6962: hashes, growth, proofs, and their pure checks.

Owns which stored nodes a root or a proof is made of. A node ``(level, index)`` is the complete
subtree over entries ``[index << level, (index + 1) << level)``; level 0 holds the leaves. Must
never touch a database: readers are given as arguments, and no function reads more than a
logarithm of the tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

NodeId: TypeAlias = tuple[int, int]
"""Level and index of a complete subtree."""
ReadNodes: TypeAlias = Callable[[Sequence[NodeId]], Mapping[NodeId, bytes]]
"""Looks up stored nodes; raises if one is not there."""


@dataclass(frozen=True, slots=True)
class Node:
    """A complete subtree and its hash."""

    level: int
    index: int
    hash: bytes


def leaf_hash(data: bytes) -> bytes:
    """Hash the bytes of one entry."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two children into their parent."""
    return hashlib.sha256(b"\x01" + left + right).digest()


# -- growing ------------------------------------------------------------------------------------


def frontier(size: int) -> list[NodeId]:
    """Return the complete subtrees that a tree of ``size`` is made of, left to right."""
    return _cover(0, size)


class Growth:
    """The right edge of a tree: takes leaves, gives back the subtrees that they complete."""

    def __init__(self, size: int, edge: Sequence[bytes]) -> None:
        """Start from a tree of ``size`` whose :func:`frontier` hashes to ``edge``."""
        if len(edge) != size.bit_count():
            raise ValueError(f"a tree of {size} has an edge of {size.bit_count()}, not {len(edge)}")
        self.size = size
        self._edge = list(edge)

    def add(self, leaf: bytes) -> list[Node]:
        """Add one leaf; return the nodes above level 0 that are complete with it."""
        made: list[Node] = []
        index, level, current = self.size, 0, leaf
        while index & 1:
            current = node_hash(self._edge.pop(), current)
            index >>= 1
            level += 1
            made.append(Node(level, index, current))
        self._edge.append(current)
        self.size += 1
        return made

    def root(self) -> bytes:
        """Return the root of the tree as it is now."""
        return fold(self._edge)


def fold(hashes: Sequence[bytes]) -> bytes:
    """Return the root over complete subtrees of falling size, given left to right."""
    if not hashes:
        return EMPTY_ROOT
    current = hashes[-1]
    for left in reversed(hashes[:-1]):
        current = node_hash(left, current)
    return current


def node_count(size: int) -> int:
    """Return how many nodes above level 0 a tree of ``size`` has stored."""
    return size - size.bit_count()


# -- roots and proofs ----------------------------------------------------------------------------


def root(size: int, read: ReadNodes) -> bytes:
    """Return the root of the first ``size`` entries."""
    return _folded([_cover(0, size)], read)[0]


def inclusion(index: int, size: int, read: ReadNodes) -> list[bytes]:
    """Return the path that proves entry ``index`` in the tree of ``size``, leaf side first.

    Raises:
        ValueError: the tree has no such entry.
    """
    if not 0 <= index < size:
        raise ValueError(f"no entry {index} in a tree of {size}")
    ranges: list[list[NodeId]] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            ranges.append(_cover(middle, high))
            high = middle
        else:
            ranges.append(_cover(low, middle))
            low = middle
    return _folded(reversed(ranges), read)


def consistency(old: int, new: int, read: ReadNodes) -> list[bytes]:
    """Return the proof that the tree of ``old`` is the beginning of the tree of ``new``.

    Raises:
        ValueError: ``old`` is zero (every tree continues the empty one) or over ``new``.
    """
    if not 0 < old <= new:
        raise ValueError(f"no consistency proof from {old} to {new}")
    ranges: list[list[NodeId]] = []
    low, high, whole = 0, new, True
    while old != high:
        middle = low + _split(high - low)
        if old <= middle:
            ranges.append(_cover(middle, high))
            high = middle
        else:
            ranges.append(_cover(low, middle))
            low, whole = middle, False
    if not whole:
        ranges.append(_cover(low, high))
    return _folded(reversed(ranges), read)


# -- checks: pure, for anyone who holds a proof ---------------------------------------------------


def proves_inclusion(
    *, leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes
) -> bool:
    """Say whether ``path`` leads from the leaf at ``index`` to the root of the tree of ``size``."""
    if not 0 <= index < size:
        return False
    low, high = 0, size
    right_side: list[bool] = []
    while high - low > 1:
        middle = low + _split(high - low)
        right_side.append(index >= middle)
        low, high = (middle, high) if index >= middle else (low, middle)
    if len(path) != len(right_side):
        return False
    current = leaf
    for sibling, is_right in zip(path, reversed(right_side), strict=True):
        current = node_hash(sibling, current) if is_right else node_hash(current, sibling)
    return current == root


def proves_consistency(
    *, old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Say whether ``proof`` shows that the newer tree only added to the older one."""
    if not 0 < old <= new:
        return False
    if old == new:
        return not proof and old_root == new_root
    low, high = 0, new
    went_right: list[bool] = []
    while old != high:
        middle = low + _split(high - low)
        went_right.append(old > middle)
        low, high = (middle, high) if old > middle else (low, middle)
    rest = list(proof)
    if low == 0:
        seed = old_root
    elif rest:
        seed = rest.pop(0)
    else:
        return False
    if len(rest) != len(went_right):
        return False
    old_hash = new_hash = seed
    for sibling, right in zip(rest, reversed(went_right), strict=True):
        if right:
            old_hash = node_hash(sibling, old_hash)
            new_hash = node_hash(sibling, new_hash)
        else:
            new_hash = node_hash(new_hash, sibling)
    return old_hash == old_root and new_hash == new_root


# -- helpers -----------------------------------------------------------------------------------


def _split(count: int) -> int:
    """Return the largest power of two below ``count`` (RFC 6962's k)."""
    return 1 << ((count - 1).bit_length() - 1)


def _cover(low: int, high: int) -> list[NodeId]:
    """Return the complete subtrees that make up ``[low, high)``, left to right."""
    found: list[NodeId] = []
    while low < high:
        level = (high - low).bit_length() - 1
        if low:
            level = min(level, (low & -low).bit_length() - 1)
        found.append((level, low >> level))
        low += 1 << level
    return found


def _folded(ranges: Iterable[list[NodeId]], read: ReadNodes) -> list[bytes]:
    """Fold each range to its hash, with one read for all of them."""
    wanted = list(ranges)
    nodes = read([node for part in wanted for node in part])
    return [fold([nodes[node] for node in part]) for part in wanted]
