"""odi-audit: every write to an Iceberg table recorded, published once, findable from any row.

Owns the public names, and nothing else. Importing it starts no JVM and opens no file.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _installed
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odi_audit.api import run as run
    from odi_audit.api import session as session
    from odi_audit.api import sink as sink
    from odi_audit.errors import OdiError as OdiError
    from odi_audit.errors import OutcomeUnknown as OutcomeUnknown
    from odi_audit.errors import Refused as Refused
    from odi_audit.model.contract import Contract as Contract
    from odi_audit.model.offsets import files as files
    from odi_audit.model.offsets import kafka as kafka
    from odi_audit.model.offsets import lsn as lsn
    from odi_audit.model.offsets import mapping as mapping
    from odi_audit.model.offsets import once as once
    from odi_audit.model.offsets import watermark as watermark
    from odi_audit.model.receipts import Receipt as Receipt
    from odi_audit.reading import read_changes as read_changes
    from odi_audit.reading import read_stable as read_stable
    from odi_audit.spark.provenance import with_source as with_source
    from odi_audit.workspace import Workspace as Workspace

_HOME = {
    "Contract": "odi_audit.model.contract",
    "OdiError": "odi_audit.errors",
    "OutcomeUnknown": "odi_audit.errors",
    "Receipt": "odi_audit.model.receipts",
    "Refused": "odi_audit.errors",
    "Workspace": "odi_audit.workspace",
    "files": "odi_audit.model.offsets",
    "kafka": "odi_audit.model.offsets",
    "lsn": "odi_audit.model.offsets",
    "mapping": "odi_audit.model.offsets",
    "once": "odi_audit.model.offsets",
    "read_changes": "odi_audit.reading",
    "read_stable": "odi_audit.reading",
    "run": "odi_audit.api",
    "session": "odi_audit.api",
    "sink": "odi_audit.api",
    "watermark": "odi_audit.model.offsets",
    "with_source": "odi_audit.spark.provenance",
}
"""Where each public name lives; looked up on first use, so that start-up stays fast."""

__all__ = [
    "Contract",
    "OdiError",
    "OutcomeUnknown",
    "Receipt",
    "Refused",
    "Workspace",
    "files",
    "kafka",
    "lsn",
    "mapping",
    "once",
    "read_changes",
    "read_stable",
    "run",
    "session",
    "sink",
    "watermark",
    "with_source",
]


def version() -> str:
    """Return the installed version of the product."""
    try:
        return _installed("odi-audit")
    except PackageNotFoundError:
        return "0+unknown"


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
