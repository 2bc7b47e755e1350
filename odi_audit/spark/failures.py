"""Spark's and Iceberg's errors, in the product's words.

Owns the translation of what the JVM raises while a batch is staged. Must never hide the cause:
the original stays as ``__cause__``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from odi_audit.errors import (
    BadKeys,
    CatalogUnavailable,
    NotSupported,
    OdiError,
    RuleBroken,
    SchemaMismatch,
    StorageError,
    UsageError,
    WriteFailed,
)
from odi_audit.redact import redact
from odi_audit.spark.jvm import JVM_ERRORS, causes, first_line

_NULL_FIELD = re.compile(r"non-nullable field:\s*(\S+)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]{3,80})\]")
"""How Spark names the condition of an error, such as CAST_INVALID_INPUT."""
MESSAGE_LENGTH_MAX = 600
"""Spark prints whole plans into its messages; this much is enough to know what to do."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what the JVM raises inside into one of our errors; ``what`` says what was tried."""
    try:
        yield
    except (*JVM_ERRORS, PySparkException) as error:
        translated_error = _error(what, error)
        translated_error.record = _record(what, error)
        raise translated_error from error


def _record(what: str, error: Exception) -> str:
    # Spark quotes the value that it could not cast or parse; the ledger keeps the condition only.
    chain = causes(error)
    text = " | ".join(cause.message for cause in chain) or str(error)
    condition = _CONDITION.search(text)
    kind = chain[-1].kind.rsplit(".", 1)[-1] if chain else type(error).__name__
    return f"{what}: {kind}" + ("" if condition is None else f" [{condition[1]}]")


def _error(what: str, error: Exception) -> OdiError:
    text = str(redact(" | ".join(cause.message for cause in causes(error)) or str(error)))
    short = str(redact(first_line(error)))[:MESSAGE_LENGTH_MAX]
    kinds = {cause.kind.rsplit(".", 1)[-1] for cause in causes(error)}
    if "NOT_NULL_ASSERT_VIOLATION" in text or "Null value appeared in non-nullable" in text:
        column = _NULL_FIELD.search(text)
        named = "a column" if column is None else f"column {column[1]}"
        return RuleBroken(
            f"{what}: {named} that the table requires is null in some row",
            hint="filter or fill the nulls, then start the job again",
        )
    if "MERGE_CARDINALITY_VIOLATION" in text:
        return BadKeys(f"{what}: several rows of the batch have the key of one row of the table")
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return StorageError(
            f"{what}: the disk is full; main is as it was",
            hint="make room, then start the job again",
        )
    if "SQLITE_BUSY" in text or "database is locked" in text or "SQLException" in " ".join(kinds):
        return CatalogUnavailable(
            f"{what}: the catalog did not answer: {short}", hint="odi-audit doctor"
        )
    if "ParseException" in kinds:
        return UsageError(f"{what}: not valid SQL: {text.strip()[:MESSAGE_LENGTH_MAX]}")
    if "INCOMPATIBLE_DATA_FOR_TABLE" in text:
        return SchemaMismatch(f"{what}: {text[:MESSAGE_LENGTH_MAX]}")
    if "AnalysisException" in kinds or "ExtendedAnalysisException" in kinds:
        return UsageError(f"{what}: {text[:MESSAGE_LENGTH_MAX]}")
    if "Cannot delete file where some, but not all, rows match" in text:
        return NotSupported(
            f"{what}: the condition matches some rows of a data file and not others, and an "
            "overwrite replaces whole files",
            hint="name whole partitions in where=, or run.delete the rows and run.append the new",
        )
    if "UnsupportedOperationException" in kinds:
        return NotSupported(f"{what}: {short}")
    return WriteFailed(
        f"{what} could not be written: {short}",
        hint="the batch was not published: see the cause, then start the job again",
    )
