"""Rules between keys: what cannot be told from one value alone.

Owns the order in which they are told. Each is a function of the plain values, so that it speaks
up even while other keys are wrong. Must never repeat what a single value's own check says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobs.spec.document import Value
from jobs.spec.problems import Path, did_you_mean, listed
from jobs.spec.rules_source import FORMATS_WITH_COLUMNS, source_rules
from jobs.spec.rules_target import KEYED, target_rules
from jobs.spec.view import Complaint, View

KEPT_PREFIX = "_"
KEY_COLUMN = "_key"


def complaints(root: Mapping[str, Value]) -> list[Complaint]:
    """Return every rule that does not hold."""
    view = View(root)
    found = [*source_rules(view), *target_rules(view)]
    for rule in (_transform, _contract, _registry, _tables, _bootstrap, _engine, _columns):
        found += rule(view)
    return found


def _transform(view: View) -> Iterator[Complaint]:
    for path in (("transform",), ("bootstrap", "transform")):
        if not isinstance(view.get(*path), dict):
            continue
        given = [key for key in ("sql", "python") if view.has(*path, key)]
        if len(given) != 1:
            yield Complaint(path, "give one of sql and python")


def _contract(view: View) -> Iterator[Complaint]:
    if view.text("contract", "on_violation") == "dead_letter" and not view.has("dead_letter"):
        yield Complaint(
            ("contract", "on_violation"),
            "dead_letter puts rows into a table: name it, dead_letter: {table: …}",
        )


def _registry(view: View) -> Iterator[Complaint]:
    avro = [side for side in ("value", "key") if view.text("source", side, "format") == "avro"]
    if view.text("source", "type") == "kafka" and avro and not view.has("registry"):
        yield Complaint(
            ("source", avro[0], "format"), "avro needs the schema registry: registry: {url: …}"
        )
    if view.has("registry") and not avro and view.text("source", "type") is not None:
        yield Complaint(("registry",), "nothing uses it: only avro of a kafka source does")


def _tables(view: View) -> Iterator[Complaint]:
    """No table may have two parts: rows of one would be read as rows of the other."""
    seen: dict[str, str] = {}
    source = view.text("source", "table") if view.text("source", "type") == "iceberg" else None
    if source and view.text("target", "mode") not in {"replace", "replace_partitions"}:
        seen[source.lower()] = "the source"
    for path, what in (
        (("target", "table"), "the target"),
        (("target", "raw", "table"), "the raw table"),
        (("dead_letter", "table"), "the dead-letter table"),
    ):
        name = view.text(*path)
        if name is None:
            continue
        if name.lower() in seen:
            yield Complaint(path, f"{name} is {seen[name.lower()]} already; name another table")
        seen.setdefault(name.lower(), what)


def _bootstrap(view: View) -> Iterator[Complaint]:
    if not view.has("bootstrap"):
        return
    kind = view.text("source", "type")
    if kind not in {"kafka", None}:
        yield Complaint(("bootstrap",), f"history is handed over to kafka, not to {kind}")
    if view.has("source", "start"):
        yield Complaint(
            ("source", "start"), "bootstrap.hand_over says where the source begins: leave this out"
        )
    if view.has("target", "route"):
        yield Complaint(("bootstrap",), "history goes into one table: not with target.route")
    hand_over = ("bootstrap", "hand_over")
    if isinstance(view.get(*hand_over), str):
        yield Complaint(
            hand_over, "write the exact place: {offsets: {topic: {0: 10}}} or {timestamp: …}"
        )


def arrow_obstacles(view: View) -> list[str]:
    """Return why the Arrow path cannot take a job; nothing where it can."""
    reasons = []
    if view.text("source", "type") not in {"kafka", None}:
        reasons.append("the source is not kafka")
    if view.text("target", "mode") not in {"append", None}:
        reasons.append(f"target.mode is {view.text('target', 'mode')}")
    if view.text("source", "envelope") == "debezium":
        reasons.append("source.envelope is debezium")
    reasons += [
        f"{name} is given"
        for name, path in (
            ("transform", ("transform",)),
            ("target.raw", ("target", "raw")),
        )
        if view.has(*path)
    ]
    if view.text("target", "route", "by") == "field":
        reasons.append("target.route is by field")
    checks = any(view.has("contract", name) for name in ("key", "required", "rules"))
    if checks and view.text("contract", "on_violation") == "dead_letter":
        reasons.append("contract.on_violation is dead_letter")
    return reasons


def _engine(view: View) -> Iterator[Complaint]:
    reasons = arrow_obstacles(view) if view.text("engine") == "arrow" else []
    if reasons:
        told = f"arrow appends topics to tables as they are, but {listed(reasons)}"
        yield Complaint(("engine",), f"{told}; write auto or spark")


def _columns(view: View) -> Iterator[Complaint]:
    """Columns that other keys name must be among those of the source, where these are listed."""
    if view.has("transform") or view.has("target", "route"):
        return
    kind = view.text("source", "type")
    path: Path = ("source", "value", "columns") if kind == "kafka" else ("source", "columns")
    listed_columns = view.columns(*map(str, path))
    if listed_columns is None:
        return
    if kind == "kafka" and view.text("source", "value", "format") not in FORMATS_WITH_COLUMNS:
        return
    kept = [KEPT_PREFIX + name for name in view.names("source", "keep")]
    key = view.columns("source", "key", "columns")
    form = view.text("source", "key", "format")
    plain = form is not None and view.text("source", "envelope") != "debezium"
    if plain and key is None and form in FORMATS_WITH_COLUMNS:
        return  # the fields of keys are columns too, and only the records show them
    known = {name.lower() for name in (*listed_columns.names, *kept)}
    known |= {name.lower() for name in (() if key is None else key.names)}
    known |= {KEY_COLUMN} if plain else set()
    for place, name in _named(view):
        if name.split(".")[0].strip("`").lower() not in known:
            yield Complaint(
                place,
                f"column {name} is not among the source's columns"
                + did_you_mean(name, listed_columns.names),
            )


def _named(view: View) -> Iterator[tuple[Path, str]]:
    plain: tuple[tuple[str, ...], ...] = (
        ("target", "key"),
        ("target", "order_by"),
        ("contract", "key"),
        ("contract", "required"),
        ("source", "watermark", "column"),
    )
    for path in plain:
        if path == ("target", "key") and view.text("target", "mode") not in KEYED:
            continue
        given = view.get(*path)
        for index, name in enumerate(view.names(*path)):
            if path != ("target", "key") or name != "from_event":
                yield ((*path, index) if isinstance(given, list) else path), name
    yield from view.partition_columns("target", "partition_by")
