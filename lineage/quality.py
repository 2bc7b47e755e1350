"""What the gate checked, as assertions and metrics.

Owns the step from a contract and its counts to OpenLineage's data-quality facets. Must never say
that a rule held when nobody looked: a rule without a count has no assertion.
"""

from __future__ import annotations

from openlineage.client.generated.data_quality_assertions_dataset import (
    Assertion,
    DataQualityAssertionsDatasetFacet,
)
from openlineage.client.generated.data_quality_metrics_dataset import (
    ColumnMetrics,
    DataQualityMetricsDatasetFacet,
)

from lineage import facts
from lineage.facets import PRODUCER
from odi_audit.canonical import JsonObject

_REQUIRED, _RULE = "required:", "rule:"


def assertions(
    operation: JsonObject, counts: JsonObject, *, promised: int | None = None
) -> DataQualityAssertionsDatasetFacet | None:
    """Return what was checked of a batch's rows and what came out; None where nothing was."""
    arguments = facts.obj(operation, "arguments")
    contract = facts.obj(arguments, "contract")
    key = facts.texts(contract, "key") or facts.texts(arguments, "key")
    made = [*_key(key, counts), *_required(counts), *_rules(contract, counts)]
    rows = facts.number(counts, "rows")
    if promised is not None and rows is not None:
        made.append(
            _one("row_count", success=rows == promised, expected=str(promised), actual=str(rows))
        )
    return None if not made else DataQualityAssertionsDatasetFacet(made, producer=PRODUCER)


def broken(operation: JsonObject, refused: JsonObject) -> DataQualityAssertionsDatasetFacet | None:
    """Return what a refused batch broke, as far as its refusal says."""
    found = facts.obj(refused, "found")
    counts = {
        key: value
        for key in ("null_keys", "duplicate_keys")
        if (value := found.get(key)) is not None
    }
    arguments = facts.obj(operation, "arguments")
    contract = facts.obj(arguments, "contract")
    key = facts.texts(contract, "key") or facts.texts(arguments, "key")
    made = _key(key, counts)
    names = facts.texts(found, "rules")
    rules = facts.obj(contract, "rules")
    for name in names:
        condition = facts.text(rules, name)
        made.append(
            _one("not_null", success=False, column=name)
            if condition is None
            else _one("custom_sql", success=False, name=name, content=condition, contentType="sql")
        )
    promised, staged = facts.number(found, "promised"), facts.number(found, "staged")
    if promised is not None and staged is not None:
        made.append(_one("row_count", success=False, expected=str(promised), actual=str(staged)))
    return None if not made else DataQualityAssertionsDatasetFacet(made, producer=PRODUCER)


def metrics(
    counts: JsonObject, landed: JsonObject, committed_at: str | None
) -> DataQualityMetricsDatasetFacet | None:
    """Return the gate's numbers of the rows that a batch brought."""
    rows = facts.number(counts, "rows")
    columns = {
        name.removeprefix(_REQUIRED): ColumnMetrics(
            nullCount=facts.number(counts, name), quantiles=None
        )
        for name in sorted(counts)
        if name.startswith(_REQUIRED)
    }
    if rows is None and not columns:
        return None
    return DataQualityMetricsDatasetFacet(
        columnMetrics=columns,
        rowCount=facts.number(landed, "added-records") if rows is None else rows,
        bytes=facts.number(landed, "added-files-size"),
        fileCount=facts.number(landed, "added-data-files"),
        lastUpdated=committed_at,
        producer=PRODUCER,
    )


def _key(key: list[str], counts: JsonObject) -> list[Assertion]:
    nulls, twice = facts.number(counts, "null_keys"), facts.number(counts, "duplicate_keys")
    column = key[0] if len(key) == 1 else None
    name = ", ".join(key) or None
    made: list[Assertion] = []
    if nulls is not None:
        made.append(
            _one("not_null", success=nulls == 0, column=column, name=name, actual=str(nulls))
        )
    if twice is not None:
        made.append(_one("unique", success=twice == 0, column=column, name=name, actual=str(twice)))
    return made


def _required(counts: JsonObject) -> list[Assertion]:
    return [
        _one("not_null", success=value == 0, column=name.removeprefix(_REQUIRED), actual=str(value))
        for name, value in sorted(counts.items())
        if name.startswith(_REQUIRED)
    ]


def _rules(contract: JsonObject, counts: JsonObject) -> list[Assertion]:
    rules = facts.obj(contract, "rules")
    return [
        _one(
            "custom_sql",
            success=value == 0,
            name=name.removeprefix(_RULE),
            content=facts.text(rules, name.removeprefix(_RULE)),
            contentType="sql",
            actual=str(value),
        )
        for name, value in sorted(counts.items())
        if name.startswith(_RULE)
    ]


def _one(assertion: str, *, success: bool, **about: str | None) -> Assertion:
    expected = about.pop("expected", "0" if "actual" in about else None)
    return Assertion(
        assertion=assertion,
        success=success,
        severity="error",
        expected=expected,
        column=about.get("column"),
        name=about.get("name"),
        actual=about.get("actual"),
        content=about.get("content"),
        contentType=about.get("contentType") if about.get("content") else None,
        params=None,
    )
