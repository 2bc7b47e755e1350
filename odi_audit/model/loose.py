"""Loose files: data files that tasks write, and that nothing refers to until they are committed.

Owns the two values that pass between the committer and the tasks. They are plain, so that they can
be sent to Spark's workers. Must never open anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ROW_GROUP_BYTES = 16 * 1024 * 1024
FILE_BYTES = 128 * 1024 * 1024
"""Sizes where the table says nothing: those of a table that is made here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseTable:
    """What a task needs of a table to write its files.

    ``storage`` opens the place of the files and may hold a secret: it is never shown.
    """

    folder: str
    schema_json: str
    spec_json: str
    prefix: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    codec: str = "zstd"
    row_group_bytes: int = ROW_GROUP_BYTES
    file_bytes: int = FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseFile:
    """One data file on disk: what the committer must know to add it.

    ``partition`` has one text for each field of the partition spec; None is null.
    """

    path: str
    rows: int
    bytes: int
    partition: tuple[str | None, ...] = ()
