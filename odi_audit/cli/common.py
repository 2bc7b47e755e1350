"""What every command shares: the options that find the lake and choose the output.

Owns option spelling. Must never open anything at import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

LakeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--lake", envvar="ODI_LAKE", help="Workspace folder (else: found upwards)."),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the answer as JSON for machines.")
]
