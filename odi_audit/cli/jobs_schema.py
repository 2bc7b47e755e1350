"""``odi-audit jobs schema``: the JSON schema of specs, for editors.

Owns nothing but the call. Without ``--json`` the answer is the schema itself, as it is published:
editors take it as it stands. Must never change it.
"""

from __future__ import annotations

import sys

from odi_audit.cli.common import JsonOption


def schema_command(as_json: JsonOption = False) -> None:
    """Print the JSON schema of specs: odi-audit jobs schema > job-1.json."""
    from jobs.spec.schema import json_schema, schema_text
    from odi_audit.cli.render import answer

    answer(
        "odi.jobs.schema/1",
        json_schema(),
        as_json=as_json,
        human=lambda _console: _write(schema_text()),
    )


def _write(text: str) -> None:
    sys.stdout.write(text)
