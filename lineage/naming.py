"""OpenLineage names of datasets, as lineage uses them.

Owns nothing: the functions are in ``odi_audit.model.naming``, because the committer names what a
plan reads before lineage ever sees it, and both must say the same.
"""

from __future__ import annotations

from odi_audit.model.naming import (
    LOCAL,
    NAMESPACE_LENGTH_MAX,
    UNPLACED,
    DatasetName,
    accepted,
    of_database,
    of_file,
    of_location,
    of_paths,
    of_source,
    of_topic,
    trimmed,
)

__all__ = [
    "LOCAL",
    "NAMESPACE_LENGTH_MAX",
    "UNPLACED",
    "DatasetName",
    "accepted",
    "of_database",
    "of_file",
    "of_location",
    "of_paths",
    "of_source",
    "of_topic",
    "trimmed",
]
