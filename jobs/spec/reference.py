"""The reference of specs, as it stands in the guide: one table per part, made from the models.

Owns the tables between the two marks. Must never hold words about a key: those are the models'.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from jobs.spec import model, sources
from jobs.spec.schema import default_of

FILE = Path(__file__).parents[2] / "docs" / "guide" / "jobs.md"
BEGIN, END = "<!-- reference: begin -->\n", "<!-- reference: end -->\n"
PARTS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The top", model.JobSpec),
    ("`source` with `type: kafka`", sources.KafkaSource),
    ("`source.start` of Kafka, and `bootstrap.hand_over`", sources.KafkaStart),
    ("`source.value` and `source.key`", sources.KafkaFormat),
    ("`source` with `type: files`", sources.FilesSource),
    ("`source` with `type: jdbc`", sources.JdbcSource),
    ("`source.watermark`", sources.Watermark),
    ("`source` with `type: iceberg`", sources.IcebergSource),
    ("`source.start` of a table", sources.TableStart),
    ("`registry`", model.Registry),
    ("`batch`", model.Batch),
    ("`transform`", model.Transform),
    ("`target`", model.Target),
    ("`target.route`", model.Route),
    ("`target.raw`", model.Raw),
    ("`target.history`", model.HistoryColumns),
    ("`contract`", model.Contract),
    ("`dead_letter`", model.DeadLetter),
    ("`bootstrap`", model.Bootstrap),
)


def reference() -> str:
    """Return the tables."""
    return "\n".join(line for title, part in PARTS for line in _table(title, part))


def updated(text: str) -> str:
    """Return the guide with its tables made anew."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{reference()}\n{END}{tail}"


def _table(title: str, part: type[BaseModel]) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"{(part.__doc__ or '').strip().splitlines()[0]}\n"
    yield "| key | default | |"
    yield "|---|---|---|"
    for name, field in part.model_fields.items():
        default = "**needed**" if field.is_required() else _default(part, name)
        yield f"| `{field.alias or name}` | {default} | {_words(part, name)} |"
    yield ""


def _words(part: type[BaseModel], name: str) -> str:
    field = part.model_fields[name]
    schema = part.model_json_schema(by_alias=False)["properties"][name]
    options: list[str] = schema.get("enum") or next(
        (one["enum"] for one in schema.get("anyOf", []) if "enum" in one), []
    )
    told = (field.description or "").replace("|", "\\|")
    unnamed = [option for option in options if f"`{option}`" not in told]
    if not unnamed:
        return told
    return f"{told} One of {', '.join(f'`{option}`' for option in options)}."


def _default(part: type[BaseModel], name: str) -> str:
    default = default_of(part, name)
    if default is None:
        return "see below" if isinstance(part.model_fields[name].default, BaseModel) else ""
    return f"`{json.dumps(default).strip(chr(34))}`"


if __name__ == "__main__":
    FILE.write_text(updated(FILE.read_text("utf-8")), "utf-8")
