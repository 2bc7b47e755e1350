"""Operations as the graph sees them: which change values, which carry them along.

Owns the words. Must never count what an operation writes again as new.
"""

from __future__ import annotations

import msgspec

from lineage.graph.lean import Lean, LeanOperation, is_there

REWRITES = frozenset({"update", "delete", "compact"})
"""Operations whose rows come from the table itself, as in the events."""
UPKEEP = frozenset(
    {"compact", "create_table", "drop_table", "evolve_schema", "expire", "maintenance", "rollback"}
    | {"rename_table", "schema-change", "table-created", "table-dropped", "table-renamed"}
)
"""Operations that change no value: shown only where everything is asked for."""
_CARRIES = frozenset({"compact", "delete", "expire", "rollback"})
"""Operations after which each value that is there was there before."""


def rows_of(effect: Lean) -> int | None:
    """Return how many rows an effect wrote."""
    counts = effect.facts.counts
    return counts.get("added-records", counts.get("rows"))


def changed(operation: LeanOperation) -> list[str] | None:
    """Return which columns an operation touches, where that can be told without a plan."""
    if operation.op in _CARRIES or operation.op in UPKEEP:
        return []
    if operation.op != "update" or not is_there(operation.arguments):
        return None
    arguments = msgspec.json.decode(operation.arguments)
    assignments = arguments.get("set") if isinstance(arguments, dict) else None
    return sorted(assignments) if isinstance(assignments, dict) else None


def engine_of(entry: Lean) -> str:
    """Return which engine says that it made a foreign snapshot."""
    engine = msgspec.json.decode(entry.facts.engine) if is_there(entry.facts.engine) else None
    return engine if isinstance(engine, str) and engine else "unknown"
