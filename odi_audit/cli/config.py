"""``odi-audit config``: every setting, its value, and where the value comes from."""

from __future__ import annotations

import json
from typing import Annotated, cast

import typer
from rich.console import Console

from odi_audit.canonical import Json
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.render import answer, table
from odi_audit.settings import known_keys, shown
from odi_audit.settings_layers import env_name
from odi_audit.workspace import Workspace


def command(
    lake: LakeOption = None,
    keys: Annotated[bool, typer.Option("--keys", help="Only list the keys there are.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show every setting with its origin, secrets masked."""
    if keys:
        names = {key: env_name(key) for key in sorted(known_keys().all)}
        answer(
            "odi.config.keys/1",
            names,
            as_json=as_json,
            human=lambda console: console.print(table(None, ("key", "variable"), names.items())),
        )
        return
    found = Workspace.find(lake)
    values = cast("dict[str, Json]", shown(found.settings))
    data = [
        {"key": key, "value": value, "origin": found.origins[key]} for key, value in values.items()
    ]

    def human(console: Console) -> None:
        rows = [(key, _text(value), found.origins[key]) for key, value in values.items()]
        console.print(table(f"Settings of {found.root}", ("key", "value", "origin"), rows))

    answer(
        "odi.config/1", {"root": str(found.root), "settings": data}, as_json=as_json, human=human
    )


def _text(value: Json) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
