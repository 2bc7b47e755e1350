"""``odi-audit init``: make a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from odi_audit.cli.common import JsonOption
from odi_audit.cli.render import answer
from odi_audit.settings import shown
from odi_audit.workspace import CatalogType, Choices, Workspace


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where.")] = Path(),
    name: Annotated[str | None, typer.Option(help="The lake's name (else: the folder's).")] = None,
    catalog: Annotated[CatalogType, typer.Option(help="The kind of catalog.")] = "sqlite",
    catalog_uri: Annotated[
        str | None, typer.Option(help="Its address, for a server: no password in it.")
    ] = None,
    warehouse: Annotated[
        str | None, typer.Option(help="Where tables are kept: a folder, or s3://bucket/path.")
    ] = None,
    ledger_url: Annotated[
        str, typer.Option(help="Where the ledger is: sqlite:///FILE or postgresql://HOST/DB.")
    ] = "sqlite:///ledger.db",
    as_json: JsonOption = False,
) -> None:
    """Make a lake in DIR (default: here): settings, catalog, ledger, key, warehouse."""
    choices = Choices(
        catalog_type=catalog,
        catalog_uri=catalog_uri,
        warehouse=warehouse,
        ledger_url=ledger_url,
    )
    with Workspace.init(folder, name=name, choices=choices) as made:
        settings = shown(made.settings)
        places = {
            "root": str(made.root),
            "settings": str(made.root / "odi.toml"),
            "catalog": str(settings["catalog.uri"]),
            "warehouse": str(settings["catalog.warehouse"]),
            "ledger": str(settings["ledger.url"]),
            "key": str(settings["ledger.key_path"]),
            "heads": str(made.heads_dir),
            "origin": str(settings["ledger.origin"]),
        }

    def human(console: Console) -> None:
        console.print(f"A lake is ready in {places['root']}", soft_wrap=True)
        for what in ("settings", "catalog", "warehouse", "ledger", "key"):
            console.print(f"  {what:<10} {places[what]}", soft_wrap=True)
        console.print(f"  next: odi-audit doctor --lake {places['root']}", soft_wrap=True)

    answer("odi.init/1", places, as_json=as_json, human=human)
