"""What a spec means, in a few lines: for ``jobs check`` and for reviews.

Owns the words, and the advice that is no error. Must never connect to anything, and never show a
secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from jobs.spec.document import Value
from jobs.spec.load import spec_digest, to_document
from jobs.spec.model import JobSpec
from jobs.spec.rules import arrow_obstacles
from jobs.spec.sources import FilesSource, IcebergSource, JdbcSource, KafkaSource
from jobs.spec.view import View
from jobs.spec.words import show_duration, show_size
from odi_audit.canonical import Json, JsonObject
from odi_audit.redact import redact_text

DAY = timedelta(days=1)
USUAL_LEAST = timedelta(minutes=1)
"""Commits more often than this make more files and snapshots than most tables bear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """A spec as it was understood."""

    job: str
    digest: str
    lines: tuple[tuple[str, str], ...]
    tables: tuple[tuple[str, str], ...]
    engine: str
    engine_why: tuple[str, ...]
    snapshots_per_day_max: int
    notes: tuple[str, ...]
    spec: JsonObject

    def to_json(self) -> JsonObject:
        """Return the form for machines."""
        return {
            "job": self.job,
            "digest": self.digest,
            "tables": [{"role": role, "name": name} for role, name in self.tables],
            "engine": {"chosen": self.engine, "why": list(self.engine_why)},
            "snapshots_per_day_max": self.snapshots_per_day_max,
            "notes": list(self.notes),
            "spec": self.spec,
        }


def understand(spec: JobSpec) -> Understood:
    """Say what a spec means."""
    engine, why = _engine(spec)
    per_day = int(DAY / spec.batch.every)
    return Understood(
        job=spec.job,
        digest=spec_digest(spec),
        lines=tuple(_lines(spec, engine, why)),
        tables=tuple(_tables(spec)),
        engine=engine,
        engine_why=tuple(why),
        snapshots_per_day_max=per_day,
        notes=tuple(_notes(spec, per_day)),
        spec=to_document(spec, defaults=True),
    )


def _lines(spec: JobSpec, engine: str, why: list[str]) -> Iterator[tuple[str, str]]:
    yield "job", spec.job + (f", owned by {spec.owner}" if spec.owner else "")
    if spec.description:
        yield "", spec.description
    if spec.bootstrap is not None:
        yield "first", _source(spec.bootstrap.source) + ", once; then hands over to:"
    yield "from", _source(spec.source)
    if spec.registry is not None:
        yield "registry", f"{redact_text(spec.registry.url)}, {spec.registry.compatibility} wanted"
    if spec.transform is not None:
        yield "transform", spec.transform.python or " ".join((spec.transform.sql or "").split())
    yield from _tables(spec)
    yield "mode", _mode(spec)
    yield "batch", _batch(spec)
    contract = spec.contract
    if contract.key or contract.required or contract.rules:
        yield "contract", _contract(spec)
    yield "engine", engine + (f" ({', '.join(why)})" if why else "")


def _source(source: KafkaSource | FilesSource | JdbcSource | IcebergSource) -> str:
    if isinstance(source, KafkaSource):
        what = f"topics like {source.pattern}" if source.pattern else ", ".join(source.topics)
        envelope = ", Debezium changes" if source.envelope == "debezium" else ""
        if source.key is not None and source.envelope == "none":
            envelope = f", keys as {source.key.format}"
        return f"Kafka {', '.join(source.servers)}: {what} as {source.value.format}{envelope}"
    if isinstance(source, FilesSource):
        return f"{source.format} files {source.path}, settled for {show_duration(source.settle)}"
    if isinstance(source, JdbcSource):
        overlap = show_duration(source.watermark.overlap)
        what = source.table or "a query"
        return f"{redact_text(source.url)}: {what} by {source.watermark.column}, overlap {overlap}"
    where = f" where {source.where}" if source.where else ""
    return f"{source.read} of table {source.table}{where}"


def _tables(spec: JobSpec) -> Iterator[tuple[str, str]]:
    target = spec.target
    if target.route is not None:
        yield "into", f"{target.route.table} (allowed: {', '.join(target.route.allow)})"
    elif target.table is not None:
        yield "into", target.table
    if target.raw is not None:
        yield "raw", target.raw.table
    if spec.dead_letter is not None:
        yield "dead letters", spec.dead_letter.table


def _mode(spec: JobSpec) -> str:
    target = spec.target
    text = str(target.mode)
    if target.key:
        text += " by " + (target.key if isinstance(target.key, str) else ", ".join(target.key))
    if target.order_by:
        text += f", newest by {', '.join(target.order_by)}"
    if target.where:
        text += f" where {target.where}"
    if target.partition_by:
        text += f", partitioned by {', '.join(term.sql for term in target.partition_by)}"
    return text + f"; {target.evolve}, provenance by {target.provenance}"


def _batch(spec: JobSpec) -> str:
    batch = spec.batch
    by_files = isinstance(spec.source, FilesSource)
    count = f"{batch.files:,} files" if by_files else f"{batch.rows:,} rows"
    text = f"every {show_duration(batch.every)}, or {count}, or {show_size(batch.bytes)}"
    return text + (", cut at transactions" if batch.cut_at_transactions else "")


def _contract(spec: JobSpec) -> str:
    contract = spec.contract
    parts = [f"unique {', '.join(contract.key)}"] if contract.key else []
    parts += [f"never null {', '.join(contract.required)}"] if contract.required else []
    parts += [f"{name}: {condition}" for name, condition in contract.rules.items()]
    return "; ".join(parts) + f"; else {contract.on_violation}"


def _engine(spec: JobSpec) -> tuple[str, list[str]]:
    root: dict[str, Value] = dict(_values(to_document(spec)))
    obstacles = arrow_obstacles(View(root))
    if spec.engine == "spark":
        return "spark", ["the spec says so"]
    return ("spark", obstacles) if obstacles else ("arrow", [])


def _values(document: JsonObject) -> Iterator[tuple[str, Value]]:
    for key, value in document.items():
        yield key, _value(value)


def _value(value: Json) -> Value:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, dict):
        return dict(_values(value))
    return [_value(one) for one in value] if isinstance(value, list) else None


def _notes(spec: JobSpec, per_day: int) -> Iterator[str]:
    if spec.batch.every < USUAL_LEAST:
        yield (
            f"batch.every: {show_duration(spec.batch.every)} makes up to {per_day:,} snapshots a "
            "day; 1m to 5m is usual"
        )
    if spec.registry is not None and spec.registry.compatibility != "FULL_TRANSITIVE":
        yield (
            f"registry.compatibility: under {spec.registry.compatibility} a schema may come that "
            "the table cannot take; FULL_TRANSITIVE is recommended"
        )
    if isinstance(spec.source, KafkaSource) and spec.source.start.at == "latest":
        yield "source.start: latest leaves out every record from before the first run"
    if spec.batch.cut_at_transactions:
        yield "batch.cut_at_transactions: Debezium needs provide.transaction.metadata=true"
    if spec.dead_letter is None and not isinstance(spec.source, IcebergSource):
        yield "dead_letter: without one, a record that cannot be read stops the job"
    if spec.target.mode == "append" and not spec.target.partition_by:
        yield "target.partition_by: not partitioned; by event time is usual, such as days(ts)"
    if spec.owner is None:
        yield "owner: nobody is named whom to ask"
