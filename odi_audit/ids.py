"""Ids: what they are made of, and how they look.

Owns the NewTypes and the one function that derives a batch id. Must never put anything volatile
(time, pid, run, application) into a batch id: the same work has the same id on every try.
"""

from __future__ import annotations

import re
import uuid
from typing import NewType

from odi_audit.canonical import Json, digest
from odi_audit.errors import UsageError

BatchId = NewType("BatchId", str)
RunId = NewType("RunId", str)
SnapshotId = NewType("SnapshotId", str)
"""An Iceberg snapshot id, as a decimal string: JSON numbers lose its last digits."""
TableUuid = NewType("TableUuid", str)
JobName = NewType("JobName", str)

BATCH_HEX_LENGTH = 32
"""128 bits of SHA-256: no collision by chance in any ledger that can be stored."""

_RUN_NAMESPACE = uuid.UUID("6f64692d-6175-4469-b420-72756e2d6964")
_JOB = re.compile(r"^[^\s/]+(?:/[^\s/]+)+$")
_JOB_LENGTH_MAX = 200


def batch_id(*, job: JobName, source: str, start: Json, end: Json, generation: int) -> BatchId:
    """Derive the id of a batch from the work that it is."""
    body: Json = {
        "end": end,
        "generation": generation,
        "job": job,
        "source": source,
        "start": start,
    }
    return BatchId("b-" + digest(body)[:BATCH_HEX_LENGTH])


def batch_run_id(batch: BatchId, attempt: int) -> RunId:
    """Derive the OpenLineage run id of one attempt at a batch (its intent's index)."""
    return RunId(str(uuid.uuid5(_RUN_NAMESPACE, f"{batch}/{attempt}")))


def new_run_id() -> RunId:
    """Return the id of a new execution of a job; batches derive theirs from the ledger."""
    return RunId(str(uuid.uuid4()))


def job_name(text: str) -> JobName:
    """Check a job's name, ``namespace/name``.

    Raises:
        UsageError: it has no namespace, has spaces, or is too long.
    """
    if len(text) > _JOB_LENGTH_MAX or not _JOB.match(text):
        raise UsageError(
            f"job name {text[:_JOB_LENGTH_MAX]!r} is not of the form namespace/name "
            f"(no spaces, at most {_JOB_LENGTH_MAX} characters)",
            hint='name it like odi.run("sales/orders_import")',
        )
    return JobName(text)
