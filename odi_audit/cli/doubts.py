"""Doubts about the ledger, told before the answer that rests on it.

Owns the quick look that commands take, and how it is told. Must never stop a command: the answer
is given all the same, with exit status 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from odi_audit.cli import render
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
    for finding in found:
        text = f"{finding.code}: the ledger is in doubt: {finding.message}\n  next: {finding.hint}"
        render.stderr().print(escape(text), soft_wrap=True)
    return found


def _keys(workspace: Workspace) -> list[VerifierKey]:
    from odi_audit.ledger import note

    path = note.public_path(workspace.settings.ledger.key_path)
    try:
        return note.read_verifiers(path) if path.exists() else []
    except KeyProblem:
        return []
