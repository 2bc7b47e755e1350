"""Stamps: what the committer writes into an Iceberg snapshot's summary.

Owns the keys, their order and their reading back. Stamps stay small: metadata.json holds every
snapshot's summary and is rewritten at every commit. Must never carry a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from odi_audit.canonical import Json, JsonObject, encode
from odi_audit.ids import BatchId, JobName, RunId

FORMAT = "1"
PREFIX = "odi."
KEYS = (
    "odi.format",
    "odi.job",
    "odi.run-id",
    "odi.batch-id",
    "odi.operation",
    "odi.source",
    "odi.offsets",
    "odi.intent",
    "odi.principal",
    "odi.code",
)
"""Every stamp that a snapshot of ours must carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """The stamps of one snapshot."""

    job: JobName
    run: RunId
    batch: BatchId
    operation: str
    source: str
    offsets: Json
    intent: int
    principal: str
    code: str

    def to_summary(self) -> dict[str, str]:
        """Return the summary properties, one for each of :data:`KEYS`."""
        return {
            "odi.format": FORMAT,
            "odi.job": self.job,
            "odi.run-id": self.run,
            "odi.batch-id": self.batch,
            "odi.operation": self.operation,
            "odi.source": self.source,
            "odi.offsets": encode(self.offsets).decode(),
            "odi.intent": str(self.intent),
            "odi.principal": self.principal,
            "odi.code": self.code,
        }


def missing(summary: Mapping[str, str]) -> list[str]:
    """Return the stamps that a summary lacks, in order."""
    return [key for key in KEYS if key not in summary]


def read(summary: Mapping[str, str]) -> Stamps | None:
    """Read the stamps of a summary; None where there is not one of ours.

    Raises:
        ValueError: some stamps are there, but they are incomplete or malformed (forged).
    """
    if not any(key.startswith(PREFIX) for key in summary):
        return None
    lacking = missing(summary)
    if lacking:
        raise ValueError("stamps missing: " + ", ".join(lacking))
    if summary["odi.format"] != FORMAT:
        raise ValueError(f"stamp format {summary['odi.format']!r} is not {FORMAT}")
    return Stamps(
        job=JobName(summary["odi.job"]),
        run=RunId(summary["odi.run-id"]),
        batch=BatchId(summary["odi.batch-id"]),
        operation=summary["odi.operation"],
        source=summary["odi.source"],
        offsets=cast("JsonObject", json.loads(summary["odi.offsets"])),
        intent=int(summary["odi.intent"]),
        principal=summary["odi.principal"],
        code=summary["odi.code"],
    )
