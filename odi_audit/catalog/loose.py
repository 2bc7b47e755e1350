"""A table as tasks would need it to write its files, read without a JVM.

Owns the way from a table's metadata to :class:`~odi_audit.model.loose.LooseTable`, for questions
that are asked before Spark runs: could files of this table be written in tasks? Must never be what
files are written by: the committer describes the table itself, as it is then.
"""

from __future__ import annotations

from odi_audit.catalog.state import TableState
from odi_audit.model.loose import LooseTable


def loose_view(state: TableState) -> LooseTable:
    """Describe a table by its metadata alone."""
    return LooseTable(
        folder=f"{state.location}/data",
        schema_json=state.handle.schema().model_dump_json(),
        spec_json=state.handle.spec().model_dump_json(),
        prefix="",
    )
