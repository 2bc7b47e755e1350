"""Data frames on their way into a table: compared with its schema, watched while written.

Owns the difference between two schemas, the deduplication of an upsert's source, and the numbers
that are observed while Spark writes (Spark's ``Observation``), so that the gate needs no second
pass. Must never write, and must never run a job unless a batch has already been refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
)

from odi_audit.model.contract import Contract
from odi_audit.model.tables import quote

DELETE_COLUMN = "__odi_delete"
_NUMBER = "__odi_number"
_RANK = "__odi_rank"
_WIDENS: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType),
    ShortType: (IntegerType, LongType),
    IntegerType: (LongType,),
    FloatType: (DoubleType,),
}
"""Types that fit into another without loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A frame that is ready to be written, and what is counted while it is."""

    frame: DataFrame
    watched: DataFrame
    observation: Observation | None
    metrics: tuple[str, ...] = ()

    def counts(self) -> dict[str, int] | None:
        """Return what was observed; call it after the write, or it waits for one.

        None where Spark ran a plan without the counting in it, as it does when it finds at run
        time that there are no rows.
        """
        if self.observation is None:
            return {}
        java = self.observation._jo
        if java is None or java.getRow().schema() is None:
            return None
        return {name: int(value or 0) for name, value in self.observation.get.items()}


def differences(frame: StructType, table: StructType, control: Sequence[str] = ()) -> list[str]:
    """Say how a frame's columns differ from the table's: one line each, none when they fit.

    ``control`` columns steer an upsert and need not be in the table.
    """
    given = {field.name.lower(): field for field in frame.fields}
    wanted = {field.name.lower(): field for field in table.fields}
    steering = {name.lower() for name in control}
    lines = [
        f"missing   {field.name} {field.dataType.simpleString()}"
        for name, field in wanted.items()
        if name not in given
    ]
    lines += [
        f"extra     {field.name} {field.dataType.simpleString()}"
        for name, field in given.items()
        if name not in wanted and name not in steering
    ]
    lines += [
        f"wrong     {field.name}: table has {wanted[name].dataType.simpleString()}, "
        f"batch has {field.dataType.simpleString()}"
        for name, field in given.items()
        if name in wanted and not fits(field.dataType, wanted[name].dataType)
    ]
    if len(given) != len(frame.fields):
        lines.append("ambiguous two columns of the batch have the same name")
    return lines


def fits(given: DataType, wanted: DataType) -> bool:
    """Say whether values of one type can be stored as another without loss."""
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return not differences(given, wanted)
    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        return (
            given.scale <= wanted.scale
            and given.precision - given.scale <= wanted.precision - wanted.scale
        )
    if type(wanted) in _WIDENS.get(type(given), ()):
        return True
    return given.simpleString() == wanted.simpleString()


def mentioned(frame: StructType, expressions: Sequence[str]) -> list[str]:
    """Return the frame's columns whose names stand in any of the expressions."""
    words = {word.lower() for text in expressions for word in re.findall(r"\w+", text)}
    return [field.name for field in frame.fields if field.name.lower() in words]


def for_append(frame: DataFrame, contract: Contract, observation: str) -> Prepared:
    """Watch an append's rows; a batch without a contract is written as it is, unwatched."""
    if contract.empty:
        return Prepared(frame=frame, watched=frame, observation=None)
    watched = frame
    metrics = _contract_metrics(contract)
    if contract.key:
        watched = watched.withColumn(_NUMBER, F.row_number().over(_by(contract.key, ())))
        metrics["duplicate_keys"] = F.count_if(F.col(_NUMBER) > 1)
    observed = Observation(observation)
    ready = watched.observe(observed, *[value.alias(name) for name, value in metrics.items()])
    return Prepared(
        frame=ready.drop(_NUMBER) if contract.key else ready,
        watched=watched,
        observation=observed,
        metrics=tuple(metrics),
    )


def for_files(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    contract: Contract,
    observation: str,
) -> Prepared | None:
    """Count a contract's breaches in files that are written already; None where there is none.

    Only the columns that the contract names are read.
    """
    if contract.empty or not paths:
        return None
    rows = spark.read.schema(schema).parquet(*paths)
    prepared = for_append(rows, contract, observation)
    prepared.frame.write.format("noop").mode("overwrite").save()
    return prepared


def for_merge(
    frame: DataFrame,
    *,
    key: Sequence[str],
    order_by: Sequence[str],
    delete_when: str | None,
    contract: Contract,
    observation: str,
    watch_keys: bool,
) -> Prepared:
    """Keep the newest row of each key, and watch for null keys and for keys with no newest row.

    ``watch_keys=False`` leaves the window and its shuffle out, for a batch whose keys are checked
    in its staged files.
    """
    if not watch_keys:
        return for_append(frame, replace(contract, key=()), observation)
    window = _by(tuple(key), tuple(order_by))
    ranked = frame.withColumn(_NUMBER, F.row_number().over(window)).withColumn(
        _RANK, F.rank().over(window)
    )
    if delete_when is not None:
        ranked = ranked.withColumn(DELETE_COLUMN, F.coalesce(F.expr(delete_when), F.lit(False)))
    metrics = _contract_metrics(contract)
    metrics["rows"] = F.count(F.lit(1))
    metrics["null_keys"] = F.count_if(_any_null(key))
    metrics["duplicate_keys"] = F.count_if(_tied())
    metrics["superseded"] = F.count_if(F.col(_NUMBER) > 1)
    observed = Observation(observation)
    ready = ranked.observe(observed, *[value.alias(name) for name, value in metrics.items()])
    # Rows with a null key are counted, and then left out of the write: the gate refuses the batch
    # for them, with samples, where Spark would only say that some column is null.
    kept = ready.filter((F.col(_NUMBER) == 1) & ~_any_null(key))
    return Prepared(
        frame=kept.drop(_NUMBER, _RANK),
        watched=ranked,
        observation=observed,
        metrics=tuple(metrics),
    )


def key_samples(prepared: Prepared, key: Sequence[str], limit: int) -> list[str]:
    """Return some offending keys, as JSON; runs a job, so only for a batch that is refused."""
    columns = prepared.watched.columns
    tied = _tied() if _RANK in columns else F.col(_NUMBER) > 1
    bad = tied | _any_null(key) if _NUMBER in columns else _any_null(key)
    shown = F.to_json(
        F.struct(*[F.col(quote(name)) for name in key]), {"ignoreNullFields": "false"}
    )
    return [
        str(row[0]) for row in prepared.watched.filter(bad).select(shown).limit(limit).collect()
    ]


def bad_keys(frame: DataFrame, key: Sequence[str], limit: int) -> tuple[int, int, list[str]]:
    """Count null keys and rows too many for their key; for a batch that is refused."""
    columns = [F.col(quote(name)) for name in key]
    missing = _any_null(key)
    grouped = frame.groupBy(*columns).agg(F.count(F.lit(1)).alias(_NUMBER))
    wrong = grouped.filter(missing | (F.col(_NUMBER) > 1))
    nulls, twice = wrong.agg(
        F.coalesce(F.sum(F.when(missing, F.col(_NUMBER))), F.lit(0)),
        F.coalesce(F.sum(F.when(~missing, F.col(_NUMBER) - 1)), F.lit(0)),
    ).collect()[0]
    shown = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    return (
        int(nulls),
        int(twice),
        [str(row[0]) for row in wrong.select(shown).limit(limit).collect()],
    )


def row_samples(prepared: Prepared, condition: str, limit: int) -> list[str]:
    """Return some rows that break a rule, as JSON; for a batch that is refused."""
    hidden = {_NUMBER, _RANK, DELETE_COLUMN}
    visible = [F.col(quote(name)) for name in prepared.watched.columns if name not in hidden]
    broken = prepared.watched.filter(~F.expr(condition)).select(F.to_json(F.struct(*visible)))
    return [str(row[0]) for row in broken.limit(limit).collect()]


def _contract_metrics(contract: Contract) -> dict[str, Column]:
    metrics = {
        f"rule:{name}": F.count_if(~F.expr(condition)) for name, condition in contract.rules.items()
    }
    metrics |= {
        f"required:{name}": F.count_if(F.col(quote(name)).isNull()) for name in contract.required
    }
    if contract.key:
        metrics["null_keys"] = F.count_if(_any_null(contract.key))
    return metrics


def _any_null(columns: Sequence[str]) -> Column:
    condition = F.lit(False)
    for name in columns:
        condition = condition | F.col(quote(name)).isNull()
    return condition


def _tied() -> Column:
    return (F.col(_RANK) == 1) & (F.col(_NUMBER) > 1)


def _by(key: tuple[str, ...], order_by: tuple[str, ...]):  # type: ignore[no-untyped-def]
    window = Window.partitionBy(*[F.col(quote(name)) for name in key])
    if not order_by:
        return window.orderBy(F.lit(1))
    return window.orderBy(*[F.col(quote(name)).desc_nulls_last() for name in order_by])
