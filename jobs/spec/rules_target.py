"""Rules between the keys of a target.

Owns what each mode needs and what it does not take. Must never look at a table.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.spec import words
from jobs.spec.problems import listed
from jobs.spec.view import Complaint, View

KEYED = frozenset({"upsert", "mirror", "history"})
"""Modes that find the row that a record belongs to."""
REPLACING = frozenset({"replace", "replace_partitions"})


def target_rules(view: View) -> Iterator[Complaint]:
    """Return the rules of the target that do not hold."""
    if not isinstance(view.get("target"), dict):
        return
    mode = view.text("target", "mode") or "append"
    yield from _where_to(view)
    yield from _route(view)
    yield from _keys(view, mode)
    yield from _changes(view, mode)
    yield from _only_with(view, mode)


def _where_to(view: View) -> Iterator[Complaint]:
    given = [key for key in ("table", "route") if view.has("target", key)]
    if len(given) == 2:
        yield Complaint(("target", "route"), "give table or route, not both")
    elif not given:
        yield Complaint(("target", "table"), "missing; name a table, or many by route")
    if view.has("target", "raw") and view.has("target", "route"):
        yield Complaint(("target", "raw"), "a raw table goes with one table, not with route")


def _route(view: View) -> Iterator[Complaint]:
    by = view.text("target", "route", "by")
    if by == "field" and not view.has("target", "route", "field"):
        yield Complaint(("target", "route", "field"), "missing; by: field needs the column's name")
    if by == "topic":
        if view.has("target", "route", "field"):
            yield Complaint(("target", "route", "field"), "is for by: field")
        kind = view.text("source", "type")
        if kind not in {"kafka", None}:
            yield Complaint(("target", "route", "by"), f"{kind} has no topics; write by: field")
    template = view.text("target", "route", "table")
    if template is None or by not in {"topic", "field"}:
        return
    if f"{{{by}}}" not in template:
        yield Complaint(("target", "route", "table"), f"by: {by} needs {{{by}}} in the name")
        return
    allow = view.names("target", "route", "allow")
    # A place that stands for a name: some allowed pattern must take at least one such name.
    if allow and not any(_can_match(template, f"{{{by}}}", pattern) for pattern in allow):
        yield Complaint(
            ("target", "route", "allow"),
            f"no table that {template} makes is allowed by {listed(allow)}",
        )


def _can_match(template: str, place: str, pattern: str) -> bool:
    head, _, tail = template.partition(place)
    if words.matches(head + "x" + tail, pattern):
        return True
    # The pattern may ask for more letters than one: take what it says in the place.
    inner = pattern.removeprefix(head).removesuffix(tail or "\0")
    return pattern.startswith(head) and words.matches(
        head + inner.replace("*", "x").replace("?", "x") + tail, pattern
    )


def _keys(view: View, mode: str) -> Iterator[Complaint]:
    key = view.get("target", "key")
    if mode in KEYED and not key:
        debezium = view.text("source", "envelope") == "debezium"
        more = ", or from_event" if debezium else ""
        yield Complaint(
            ("target", "key"), f"missing; {mode} needs the columns that identify a row{more}"
        )
    if mode not in KEYED and key:
        yield Complaint(
            ("target", "key"),
            f"{mode} finds no rows by key; contract.key checks that no two rows share one",
        )
    if key == "from_event" and view.text("source", "envelope") != "debezium":
        yield Complaint(("target", "key"), "from_event needs source.envelope: debezium")
    ordered = view.has("target", "order_by")
    if mode == "mirror" and ordered:
        yield Complaint(
            ("target", "order_by"), "a mirror keeps the source's own order: leave this out"
        )
    elif mode not in KEYED and ordered:
        yield Complaint(
            ("target", "order_by"), f"{mode} has no use for it: only upsert and history"
        )
    elif mode == "history" and not ordered and not _changes_come_ordered(view):
        yield Complaint(
            ("target", "order_by"), "missing; history needs the columns that tell what is newer"
        )


def _changes_come_ordered(view: View) -> bool:
    if view.text("source", "type") == "iceberg":
        return (view.text("source", "read") or "changes") == "changes"
    return view.text("source", "envelope") == "debezium"


def _changes(view: View, mode: str) -> Iterator[Complaint]:
    if mode == "mirror" and view.has("source", "type") and not _changes_come_ordered(view):
        yield Complaint(
            ("target", "mode"),
            "a mirror needs changes: source.envelope: debezium, or an iceberg source with "
            "read: changes; for rows with a key write upsert",
        )
    if mode == "upsert" and view.text("source", "envelope") == "debezium":
        yield Complaint(
            ("target", "mode"),
            "upsert knows nothing of the source's deletes; write mirror, or history",
        )


def _only_with(view: View, mode: str) -> Iterator[Complaint]:
    only = (
        ("where", {"replace"}),
        ("delete_when", {"upsert"}),
        ("history", {"history"}),
        ("raw", KEYED),
    )
    for key, modes in only:
        if view.has("target", key) and mode not in modes:
            yield Complaint(
                ("target", key), f"goes with mode {listed(sorted(modes))}, found {mode}"
            )
    if mode == "replace" and not view.has("target", "where"):
        yield Complaint(("target", "where"), "missing; replace needs to know which rows")
    if mode == "replace_partitions" and not view.get("target", "partition_by"):
        yield Complaint(
            ("target", "partition_by"), "missing; replace_partitions needs partitions to replace"
        )
    if mode in REPLACING and view.has("target", "route"):
        yield Complaint(("target", "mode"), f"{mode} replaces rows of one table: not with route")
