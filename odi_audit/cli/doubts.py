"""What an answer lacks: doubts about the ledger that it rests on, and data files that are gone.

Owns the quick look at the ledger that commands take, and how all of this is told. Doubts are told
before the answer. Must never stop a command: the answer is given all the same, with exit status 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odi_audit.cli import render
from odi_audit.cli.render import escape
from odi_audit.errors import KeyProblem
from odi_audit.query.trust import check_heads

if TYPE_CHECKING:
    from odi_audit.ledger.note import VerifierKey
    from odi_audit.model.findings import Finding
    from odi_audit.workspace import Workspace


def tell_doubts(workspace: Workspace) -> list[Finding]:
    """Compare the ledger with its newest signed heads; tell what does not fit, and return it."""
    from odi_audit.ledger.verify import heads_in

    found = check_heads(
        workspace.ledger(read_only=True),
        verifiers=_keys(workspace),
        heads=heads_in(workspace.heads_dir),
    )
    tell(found)
    return found


def tell(doubts: Sequence[Finding]) -> None:
    """Tell doubts about the ledger, each with what to do next."""
    for doubt in doubts:
        text = f"{doubt.code}: the ledger is in doubt: {doubt.message}\n  next: {doubt.hint}"
        render.stderr().print(escape(text), soft_wrap=True)


def tell_missing(paths: Iterable[str], untold: int = 0) -> None:
    """Name the data files that are gone, and say how many rows cannot be told because of them."""
    for path in paths:
        render.stderr().print(
            escape(f"gone: {path}; its rows are not in the answer"), soft_wrap=True
        )
    if untold:
        render.stderr().print(
            f"{untold:,} rows are left out: a file that is gone may hold what they were, or became."
        )


def _keys(workspace: Workspace) -> list[VerifierKey]:
    """Return the lake's public keys; none where this reader has been given none."""
    from odi_audit.ledger import note

    path = note.public_path(workspace.settings.ledger.key_path)
    try:
        return note.read_verifiers(path) if path.exists() else []
    except KeyProblem:
        return []
