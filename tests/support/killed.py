"""A death in the middle of work, where a test has no process of its own to kill."""

from __future__ import annotations


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the product may catch it."""
