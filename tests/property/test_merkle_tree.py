from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from odi_audit.ledger import merkle

leaf_lists = st.lists(st.binary(max_size=8), max_size=80)


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """RFC 6962, section 2.1, as it is written there."""
    if not leaves:
        return merkle.EMPTY_ROOT
    if len(leaves) == 1:
        return merkle.leaf_hash(leaves[0])
    split = largest_power_below(len(leaves))
    return merkle.node_hash(naive_root(leaves[:split]), naive_root(leaves[split:]))


def naive_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """RFC 6962, section 2.1.1."""
    if len(leaves) == 1:
        return []
    split = largest_power_below(len(leaves))
    if index < split:
        return [*naive_path(index, leaves[:split]), naive_root(leaves[split:])]
    return [*naive_path(index - split, leaves[split:]), naive_root(leaves[:split])]


def naive_consistency(old: int, leaves: Sequence[bytes], *, whole: bool = True) -> list[bytes]:
    """RFC 6962, section 2.1.2."""
    if old == len(leaves):
        return [] if whole else [naive_root(leaves)]
    split = largest_power_below(len(leaves))
    if old <= split:
        return [*naive_consistency(old, leaves[:split], whole=whole), naive_root(leaves[split:])]
    return [
        *naive_consistency(old - split, leaves[split:], whole=False),
        naive_root(leaves[:split]),
    ]


def largest_power_below(count: int) -> int:
    power = 1
    while power * 2 < count:
        power *= 2
    return power


class Stored:
    """Every node of a tree, and a count of those that were read."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.nodes: dict[merkle.NodeId, bytes] = {}
        self.reads = 0
        growth = merkle.Growth(0, [])
        for index, leaf in enumerate(leaves):
            self.nodes[(0, index)] = merkle.leaf_hash(leaf)
            for node in growth.add(merkle.leaf_hash(leaf)):
                assert (node.level, node.index) not in self.nodes, "a node is written once"
                self.nodes[(node.level, node.index)] = node.hash
        self.root = growth.root()

    def read(self, wanted: Sequence[merkle.NodeId]) -> Mapping[merkle.NodeId, bytes]:
        self.reads += len(wanted)
        return {node: self.nodes[node] for node in wanted}


@given(leaf_lists)
def test_the_root_is_that_of_the_rfc(leaves: list[bytes]) -> None:
    stored = Stored(leaves)
    assert stored.root == naive_root(leaves) == merkle.root(len(leaves), stored.read)
    assert len(stored.nodes) == len(leaves) + merkle.node_count(len(leaves))


@given(leaf_lists, st.data())
def test_growth_can_be_taken_up_anywhere(leaves: list[bytes], data: st.DataObject) -> None:
    stored = Stored(leaves)
    at = data.draw(st.integers(0, len(leaves)))
    growth = merkle.Growth(at, [stored.nodes[node] for node in merkle.frontier(at)])
    for leaf in leaves[at:]:
        growth.add(merkle.leaf_hash(leaf))
    assert growth.root() == stored.root


@given(leaf_lists.filter(bool), st.data())
def test_inclusion_proofs_are_those_of_the_rfc_and_hold(
    leaves: list[bytes], data: st.DataObject
) -> None:
    stored = Stored(leaves)
    size = data.draw(st.integers(1, len(leaves)))
    index = data.draw(st.integers(0, size - 1))
    path = merkle.inclusion(index, size, stored.read)
    assert path == naive_path(index, leaves[:size])
    root = naive_root(leaves[:size])
    leaf = merkle.leaf_hash(leaves[index])
    assert merkle.proves_inclusion(leaf=leaf, index=index, size=size, path=path, root=root)
    for wrong in _damaged(path):
        assert not merkle.proves_inclusion(leaf=leaf, index=index, size=size, path=wrong, root=root)
    other = merkle.leaf_hash(leaves[index] + b"x")
    assert not merkle.proves_inclusion(leaf=other, index=index, size=size, path=path, root=root)
    assert not merkle.proves_inclusion(leaf=leaf, index=size, size=size, path=path, root=root)
    assert not merkle.proves_inclusion(leaf=leaf, index=-1, size=size, path=path, root=root)


@given(leaf_lists.filter(bool), st.data())
def test_consistency_proofs_are_those_of_the_rfc_and_hold(
    leaves: list[bytes], data: st.DataObject
) -> None:
    stored = Stored(leaves)
    new = data.draw(st.integers(1, len(leaves)))
    old = data.draw(st.integers(1, new))
    proof = merkle.consistency(old, new, stored.read)
    assert proof == naive_consistency(old, leaves[:new])
    roots = {"old_root": naive_root(leaves[:old]), "new_root": naive_root(leaves[:new])}
    assert merkle.proves_consistency(old=old, new=new, proof=proof, **roots)
    for wrong in _damaged(proof):
        assert not merkle.proves_consistency(old=old, new=new, proof=wrong, **roots)
    forged = roots | {"old_root": merkle.leaf_hash(b"another past")}
    assert not merkle.proves_consistency(old=old, new=new, proof=proof, **forged)
    assert not merkle.proves_consistency(old=new + 1, new=new, proof=proof, **roots)


@given(st.integers(1, 2**40), st.data())
def test_proofs_of_huge_trees_read_a_handful_of_nodes(size: int, data: st.DataObject) -> None:
    reads: list[merkle.NodeId] = []

    def read(wanted: Sequence[merkle.NodeId]) -> Mapping[merkle.NodeId, bytes]:
        reads.extend(wanted)
        return dict.fromkeys(wanted, bytes(32))

    index = data.draw(st.integers(0, size - 1))
    path = merkle.inclusion(index, size, read)
    assert len(path) <= size.bit_length()
    assert len(reads) <= 2 * size.bit_length()
    for level, at in reads:
        assert (at + 1) << level <= size, "only complete subtrees are stored"


def _damaged(path: list[bytes]) -> list[list[bytes]]:
    """Return the path one shorter, one longer, reversed, and with each step altered."""
    made = [[*path, bytes(32)], [bytes(32), *path]]
    if path:
        made += [path[1:], path[:-1]]
        made += [[*path[:at], bytes(32), *path[at + 1 :]] for at in range(len(path))]
    return made
