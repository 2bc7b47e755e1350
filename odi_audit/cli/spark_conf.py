"""``odi-audit spark-conf``: what ``spark-submit`` must be given to work on this lake."""

from __future__ import annotations

from typing import Annotated, cast

import typer
from rich.console import Console

from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import answer
from odi_audit.redact import redact
from odi_audit.workspace import Workspace


def command(
    lake: LakeOption = None,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Print passwords, for a file that is kept safe.")
    ] = False,
    listener: Annotated[
        bool,
        typer.Option(
            "--listener",
            help="With openlineage-spark beside us. Each process needs a conf of its own.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the Spark conf of this lake, as spark-defaults.conf lines or JSON."""
    conf = Workspace.find(lake).spark_conf(listener=listener)
    if not show_secrets:
        conf = cast("dict[str, str]", redact(conf))

    def human(console: Console) -> None:
        for key, value in sorted(conf.items()):
            console.print(f"{key} {value}", soft_wrap=True, markup=False)

    answer("odi.spark-conf/1", dict(sorted(conf.items())), as_json=as_json, human=human)
