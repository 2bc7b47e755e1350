"""Checks of our own reasoning: what must hold if the code is right.

Owns the one way to say so. Must never be used on a user's input: that has errors of its own.
"""

from __future__ import annotations

from odi_audit.errors import OdiError


class Bug(OdiError):
    """Something that cannot be, was: the code is wrong, and stops before it does harm."""


def must(condition: bool, what: str, **facts: str | int | float | bool | None) -> None:
    """Stop unless the condition holds; ``what`` is the sentence that must be true.

    Raises:
        Bug: it is not.
    """
    if not condition:
        bug = Bug(f"expected that {what}", hint="report this, with the facts shown")
        bug.facts.update(facts)
        raise bug
