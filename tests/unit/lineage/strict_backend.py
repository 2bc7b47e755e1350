"""The strict backend under its first name; it lives in ``tests.support.marquez``."""

from __future__ import annotations

from tests.support.marquez import Backend as StrictBackend

__all__ = ["StrictBackend"]
