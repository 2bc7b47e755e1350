"""``odi-audit version``: the versions of the parts that decide what is written."""

from __future__ import annotations

import platform
from importlib import metadata

from rich.console import Console

from odi_audit.cli.common import JsonOption
from odi_audit.cli.render import answer, table

PARTS = ("odi-audit", "pyspark", "pyiceberg", "pyarrow", "openlineage-python", "structlog")


def command(as_json: JsonOption = False) -> None:
    """Print the versions of the parts."""
    versions = {"python": platform.python_version()} | {part: _version(part) for part in PARTS}

    def human(console: Console) -> None:
        rows = [(part, version or "not installed") for part, version in versions.items()]
        console.print(table(None, ("part", "version"), rows))

    answer("odi.version/1", versions, as_json=as_json, human=human)


def _version(part: str) -> str | None:
    try:
        return metadata.version(part)
    except metadata.PackageNotFoundError:
        return None
