"""Our own facets: what the ledger knows and OpenLineage has no facet for.

Owns their classes and where their schemas are (``lineage/schemas``). A facet's version is in its
schema's name; a field that changes its meaning gets a new version. Must never hold a number that
JSON readers would round: snapshot ids and sequence numbers are texts.
"""

from __future__ import annotations

from functools import lru_cache

import attr
from openlineage.client.generated.base import OutputDatasetFacet, RunFacet
from openlineage.client.generated.dataset_type_dataset import DatasetTypeDatasetFacet
from openlineage.client.generated.datasource_dataset import DatasourceDatasetFacet

from lineage.sharing import shared

PRODUCER = "urn:odi-audit:lineage"
"""Who made the event. It names no release: an upgrade must not change the bytes of old events."""
INTEGRATION = "ODI-AUDIT"
_SCHEMAS = "urn:odi-audit:lineage:schemas"


def schema_url(name: str) -> str:
    """Return the ``_schemaURL`` of one of our facets; the file is ``lineage/schemas/<name>``."""
    return f"{_SCHEMAS}:{name}-1-0-0.json#/$defs/{name}"


@lru_cache(maxsize=1_000)
def data_source(namespace: str) -> DatasourceDatasetFacet:
    """Return the facet that names a dataset's source; made once for each."""
    return shared(DatasourceDatasetFacet(name=namespace, uri=namespace, producer=PRODUCER))


@lru_cache(maxsize=100)
def dataset_type(word: str) -> DatasetTypeDatasetFacet:
    """Return the facet that says what a dataset is; made once for each word."""
    return shared(DatasetTypeDatasetFacet(datasetType=word, producer=PRODUCER))


@attr.define(kw_only=True)
class BatchOperation:
    """What a batch does, or did, to one table."""

    operation: str
    table: str
    tableUuid: str | None = None  # noqa: N815
    landed: bool | None = None


@attr.define(kw_only=True)
class OdiBatchRunFacet(RunFacet):
    """The batch that a run is an attempt at."""

    batch: str
    job: str
    state: str
    operations: list[BatchOperation]
    generation: int | None = None
    principal: str | None = None
    code: str | None = None
    host: str | None = None
    errorCode: str | None = None  # noqa: N815
    acceptedGaps: list[str] | None = None  # noqa: N815
    undone: list[str] | None = None
    expiredSnapshots: list[str] | None = None  # noqa: N815
    recovered: bool | None = None
    reconciled: bool | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("OdiBatchRunFacet")


@attr.define(kw_only=True)
class OdiRunRunFacet(RunFacet):
    """One execution of a job: who ran what, and how it ended."""

    outcome: str | None = None
    errorCode: str | None = None  # noqa: N815
    principal: str | None = None
    code: str | None = None
    host: str | None = None
    spec: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("OdiRunRunFacet")


@attr.define(kw_only=True)
class OffsetRange:
    """One partition's part; no ``start`` means from the beginning."""

    partition: str
    start: str | int | None = None
    end: str | int | None = None
    identity: str | None = None


@attr.define(kw_only=True)
class OdiOffsetsRunFacet(RunFacet):
    """Which part of the source a batch holds: start inclusive, end exclusive."""

    kind: str
    source: str
    ranges: list[OffsetRange]
    rows: int | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("OdiOffsetsRunFacet")


@attr.define(kw_only=True)
class OdiLedgerRunFacet(RunFacet):
    """Where in the ledger an event comes from, and how that can be proved.

    ``leaf`` is the RFC 6962 leaf hash of the entry in hex: an inclusion proof starts with it.
    """

    index: int
    kind: str
    time: str
    leaf: str
    intent: int | None = None
    proof: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("OdiLedgerRunFacet")


@attr.define(kw_only=True)
class OdiReadRunFacet(RunFacet):
    """What a consumer confirmed to have read."""

    consumer: str
    mode: str | None = None
    fromSnapshot: str | None = None  # noqa: N815
    toSnapshot: str | None = None  # noqa: N815
    rows: int | None = None
    columns: list[str] | None = None
    where: str | None = None
    principal: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("OdiReadRunFacet")


@attr.define(kw_only=True)
class TrimmedFacet:
    """A part of an event that was left out: where it stood, how big it was, and its digest."""

    path: str
    bytes: int
    sha256: str


@attr.define(kw_only=True)
class OdiTrimmedRunFacet(RunFacet):
    """What was left out to keep the event small; the ledger's entry has all of it."""

    index: int
    facets: list[TrimmedFacet]
    more: int | None = None

    @staticmethod
    def _get_schema() -> str:
        return schema_url("OdiTrimmedRunFacet")


@attr.define(kw_only=True)
class CommitMetrics:
    """The numbers of a commit, by the names that Iceberg's own report gives them."""

    addedDataFiles: int | None = None  # noqa: N815
    removedDataFiles: int | None = None  # noqa: N815
    addedDeleteFiles: int | None = None  # noqa: N815
    removedDeleteFiles: int | None = None  # noqa: N815
    addedDVs: int | None = None  # noqa: N815
    removedDVs: int | None = None  # noqa: N815
    addedRecords: int | None = None  # noqa: N815
    removedRecords: int | None = None  # noqa: N815
    totalRecords: int | None = None  # noqa: N815
    addedFilesSizeInBytes: int | None = None  # noqa: N815
    removedFilesSizeInBytes: int | None = None  # noqa: N815
    addedPositionalDeletes: int | None = None  # noqa: N815
    removedPositionalDeletes: int | None = None  # noqa: N815


@attr.define(kw_only=True)
class IcebergCommitReportOutputDatasetFacet(OutputDatasetFacet):
    """A commit as openlineage-spark reports it, but with its ids as texts: nothing is rounded."""

    snapshotId: str  # noqa: N815
    sequenceNumber: str | None = None  # noqa: N815
    firstRowId: str | None = None  # noqa: N815
    operation: str | None = None
    committedAt: str | None = None  # noqa: N815
    commitMetrics: CommitMetrics | None = None  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return schema_url("IcebergCommitReportOutputDatasetFacet")
