"""Trust: a quick look at whether the ledger can be believed, for answers that rest on it.

Owns the cheap part of verification: the newest signed heads against the tree, and the very entries
that an answer was made of against their leaves. Reads a logarithm of the ledger for each. Must
never be taken for ``ledger verify``, which recomputes everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odi_audit.errors import KeyProblem, LedgerBroken, ProofInvalid
from odi_audit.ledger import merkle
from odi_audit.ledger.port import EntryFilter, Ledger, TreeHead
from odi_audit.model.entries import Kind
from odi_audit.model.findings import Finding

if TYPE_CHECKING:
    from odi_audit.ledger.note import VerifierKey
    from odi_audit.ledger.verify import HeadFile

VERIFY = "odi-audit ledger verify"


def check_heads(
    ledger: Ledger, *, verifiers: Sequence[VerifierKey], heads: Sequence[HeadFile]
) -> list[Finding]:
    """Compare the tree with the newest seal in it and with the largest of the heads given."""
    if not verifiers:
        return []
    from odi_audit.ledger import note
    from odi_audit.ledger.seal import seal_text

    signed = [(head.name, head.text) for head in heads[-1:]]
    findings: list[Finding] = []
    for entry in ledger.find(EntryFilter(kinds=(Kind.SEAL,)), limit=1, newest_first=True):
        try:
            signed.append((f"seal {entry.index}", seal_text(entry)))
        except ProofInvalid as problem:
            findings.append(_finding("ODI-T08", f"seal {entry.index}", problem.message))
    for name, text in signed:
        try:
            head = note.open_head(text, verifiers)
        except (ProofInvalid, KeyProblem) as problem:
            code = "ODI-T08" if name.startswith("seal ") else "ODI-T09"
            findings.append(_finding(code, name, problem.message))
            continue
        findings.extend(_compare(ledger, name, head))
    return findings


def check_entries(ledger: Ledger, indexes: Iterable[int]) -> list[Finding]:
    """Compare entries with their leaves, and the leaves with the tree."""
    findings: list[Finding] = []
    tree: TreeHead | None = None
    for index in indexes:
        subject = f"entry {index}"
        try:
            tree = ledger.head() if tree is None else tree
            body = next((raw.body for raw in ledger.stored(index, index + 1)), b"")
            path = ledger.inclusion_proof(index, tree.size)
        except (LedgerBroken, ValueError) as problem:
            findings.append(_finding("ODI-T06", subject, str(problem)))
            continue
        leaf = merkle.leaf_hash(body)
        if not merkle.proves_inclusion(
            leaf=leaf, index=index, size=tree.size, path=path, root=tree.root
        ):
            findings.append(
                _finding("ODI-T01", subject, f"entry {index} is not the one that was recorded")
            )
    return findings


def _compare(ledger: Ledger, name: str, head: TreeHead) -> list[Finding]:
    size = ledger.head().size
    if head.size > size:
        message = f"a head of {head.size} entries was signed, and the ledger has {size}"
        return [_finding("ODI-T10", name, f"{message}: its tail was cut off")]
    try:
        same = ledger.root_at(head.size) == head.root
    except LedgerBroken as problem:
        return [_finding("ODI-T06", name, problem.message)]
    if same:
        return []
    return [
        _finding("ODI-T11", name, f"the first {head.size} entries are not those that were signed")
    ]


def _finding(code: str, subject: str, message: str) -> Finding:
    return Finding(code=code, subject=subject, message=message, hint=VERIFY)
