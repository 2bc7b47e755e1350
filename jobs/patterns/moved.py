"""Rows under a new key whose change leaves out values: those that they had under the old key.

Owns the way back over all changes of key in a batch, and what becomes of a change whose values are
nowhere to be found: it is put aside (docs/adr/0023-values-of-moved-rows.md). Needed only for
batches that have such rows. Must never take a value from a row that was deleted in between, nor
leave Debezium's mark in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.formats.debezium_envelope import OLD_KEY, OP, ORDER, UNAVAILABLE
from jobs.patterns.changes import hidden, hideable, tie_breakers
from jobs.patterns.names import END, is_own
from jobs.patterns.names import ORDER as ROW_ORDER
from jobs.tasks.rows import REASON
from odi_audit.errors import CountMismatch
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession, WindowSpec

    from jobs.patterns.survey import Survey, Truncate
    from odi_audit.spark.live import LiveTable

MODES = frozenset({"mirror", "history"})
"""Modes whose tables hold rows; a log of changes keeps each as it was sent."""
LOST = (
    "values that the change leaves out are not known: neither the table nor the batch has the row "
    "as it was before"
)
ROUNDS_MAX = 32
"""Each round doubles the changes of key that are followed back: more than a batch can have."""
_PROBE, _CUT, _CHANGE, _STATE = 0, 1, 2, 3
_KIND, _PLACE, _TURN, _START = "__odi_kind", "__odi_log", "__odi_turn", "__odi_start"
_WHO, _NEW, _HELD, _LEFT = "__odi_who", "__odi_new", "__odi_held", "__odi_left"
_AT, _NEXT, _NEXT_AT = "__odi_node", "__odi_next", "__odi_next_at"
_STALE, _LATER = "__odi_stale", "__odi_later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is known besides the batch: the table as it is, and where the source was emptied.

    ``versions``: the table has every version of a row, and the batch is to give it more.
    """

    table: str
    held: DataFrame
    key: tuple[str, ...]
    truncates: tuple[Truncate, ...] = ()
    versions: bool = False

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        table: LiveTable,
        *,
        key: tuple[str, ...],
        survey: Survey,
        versions: bool,
    ) -> Self:
        """Return what a table knows of a batch's rows."""
        return cls(
            table=table.ref.name,
            held=spark.table(table.name.sql(table.catalog)),
            key=key,
            truncates=survey.truncates,
            versions=versions,
        )


def old_rows(rows: DataFrame) -> DataFrame:
    """Return, for each moved row that lacks values, its old key: in the form of a delete."""
    own = StructType([item for item in rows.schema.fields if is_own(item.name)])
    told = F.col(OLD_KEY) if OLD_KEY in rows.columns else F.lit(None).cast("string")
    found = rows.filter(_moved() & told.isNotNull()).withColumn(_HELD, F.from_json(told, own))
    columns = {item.name: F.col(f"{_HELD}.{quote(item.name)}") for item in own.fields}
    changed = columns | {OP: F.lit("d"), UNAVAILABLE: F.lit(None).cast("array<string>")}
    return found.withColumns(changed).drop(_HELD)


def settled(
    rows: DataFrame,
    old: DataFrame,
    past: Past,
    *,
    keep: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Return the changes with all values filled in; one that still lacks some has a reason.

    What the table knows already, or what another change of the batch makes up for, is left out
    where it lacks values. ``old`` has the old keys (:func:`old_rows`).

    Raises:
        CountMismatch: a row's key was changed more often than is followed back.
    """
    columns = hideable(rows, past.key)
    whole = keep(_in_turn(_together(rows, old, past, columns), past.key, columns))
    nodes = _followed(_nodes(whole, columns), columns)
    return _judged(_filled(whole, nodes, columns), past).select(
        *[F.col(quote(name)) for name in rows.columns if name != REASON], F.col(REASON)
    )


# -- all that is known of the rows, in the order of the log ----------------------------------------


def _together(rows: DataFrame, old: DataFrame, past: Past, columns: Sequence[str]) -> DataFrame:
    """Return changes, what the table has of their rows, and a probe under each old key."""
    ties = [name for name in tie_breakers(rows) if name in old.columns]
    names = [F.col(quote(name)) for name in past.key]
    news = rows.filter(_moved()).select(
        F.col(ORDER), *ties, F.struct(*_renamed(past.key)).alias(_NEW)
    )
    probes = (
        old.select(*names, ORDER, *ties)
        .join(news, [ORDER, *ties])
        .dropDuplicates([ORDER, *past.key])
        .withColumn(_KIND, F.lit(_PROBE))
    )
    lacking = rows.filter(_lacks()).select(*names)
    keys = lacking.unionByName(probes.select(*names)).distinct()
    parts = [rows.withColumn(_KIND, F.lit(_CHANGE)), probes, *_table(keys, past, columns)]
    if past.truncates:
        cuts = rows.sparkSession.createDataFrame(
            [(item.order,) for item in past.truncates], f"{ORDER} string"
        )
        parts.append(_cuts(keys.crossJoin(F.broadcast(cuts))))
    made = parts[0].withColumn(_HELD, F.lit(False))
    for part in parts[1:]:
        made = made.unionByName(part, allowMissingColumns=True)
    # Within one place of the log the row is still there: its delete is a part of the move.
    place = F.regexp_replace(F.col(ORDER), r"\.[0-9a-f]+$", "")
    who = F.struct(*_renamed(past.key))
    return made.withColumns({_PLACE: place, _WHO: who, _HELD: F.coalesce(_HELD, F.lit(False))})


def _table(keys: DataFrame, past: Past, columns: Sequence[str]) -> list[DataFrame]:
    """Return the states of rows that the table has, and where its versions ended."""
    known = {name.lower() for name in past.held.columns}
    held = past.held.join(keys, list(past.key), "left_semi")
    names = [F.col(quote(name)) for name in past.key]
    values = [F.col(quote(name)) for name in columns if name.lower() in known]
    order = F.coalesce(F.col(ROW_ORDER), F.lit("")).alias(ORDER)
    states = held.select(*names, *values, order).withColumns(
        {_KIND: F.lit(_STATE), _HELD: F.lit(True)}
    )
    if not past.versions:
        return [states]
    ends = held.filter(F.col(END).isNotNull()).select(*names, F.col(END).alias(ORDER))
    return [states, _cuts(ends).withColumn(_HELD, F.lit(True))]


def _cuts(ends: DataFrame) -> DataFrame:
    return ends.withColumns({_KIND: F.lit(_CUT), OP: F.lit("d")})


def _in_turn(made: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Say of each value which one the row had last, and with which change that row began."""
    keys = [F.col(quote(name)) for name in key]
    ties = [F.col(name) for name in tie_breakers(made)]
    turns = Window.partitionBy(*keys).orderBy(
        F.col(_PLACE), F.col(_KIND) != _PROBE, F.col(ORDER), F.col(_KIND), *ties
    )
    so_far = turns.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    made = made.withColumn(_TURN, F.row_number().over(turns))
    change, state = F.col(_KIND) == _CHANGE, F.col(_KIND) == _STATE
    created = change & F.col(OP).isin("c", "r")
    begins = created | state | (F.col(_KIND) == _CUT) | (change & (F.col(OP) == "d"))
    head = F.struct(F.col(_TURN).alias("n"), F.when(created, F.col(ORDER)).alias("order"))
    said = state | (change & (F.col(OP) != "d"))
    newest = F.max(F.when(F.col(_HELD), F.col(ORDER))).over(Window.partitionBy(*keys))
    made = made.withColumns(
        {
            _START: _last(F.when(begins, head), so_far),
            _STALE: F.coalesce(newest >= F.col(ORDER), F.lit(False)),
        }
    )
    since = F.coalesce(F.col(_START)["n"], F.lit(0))
    known: dict[str, Column] = {}
    for place, name in enumerate(columns):
        value = F.struct(F.col(_TURN).alias("n"), F.col(quote(name)).alias("v"))
        last = _last(F.when(said & ~F.expr(hidden(name)), value), so_far)
        known[_known(place)] = F.when(last["n"] >= since, F.struct(last["v"].alias("v")))
    return made.withColumns(known)


def _last(value: Column, window: WindowSpec) -> Column:
    return F.last(value, ignorenulls=True).over(window)


# -- from each new key to the old one, and on ------------------------------------------------------


def _nodes(whole: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return each move: what the old row had, and for the rest the move that the old row came by.

    That is known of a row which began in the batch, under yet another key.
    """
    head = F.col(_START)["order"]
    return (
        whole.filter(F.col(_KIND) == _PROBE)
        .select(
            F.col(_NEW),
            F.col(ORDER).alias(_AT),
            F.when(head.isNotNull(), F.col(_WHO)).alias(_NEXT),
            head.alias(_NEXT_AT),
            *[F.col(_known(place)) for place in range(len(columns))],
        )
        .dropDuplicates([_NEW, _AT])
    )


def _followed(nodes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Follow moves back until each has all that can be found; each round goes twice as far."""
    values = [_known(place) for place in range(len(columns))]
    for _ in range(ROUNDS_MAX):
        # Joined with itself, a plan that is not cut would double in each round.
        nodes = nodes.localCheckpoint()
        if nodes.filter(F.col(_NEXT).isNotNull()).isEmpty():
            return nodes
        names = (_NEW, _AT, _NEXT, _NEXT_AT, *values)
        back = nodes.select(*[F.col(name).alias(f"{name}_b") for name in names])
        match = (F.col(_NEXT) == F.col(f"{_NEW}_b")) & (F.col(_NEXT_AT) == F.col(f"{_AT}_b"))
        nodes = nodes.join(back, match, "left").select(
            _NEW,
            _AT,
            F.col(f"{_NEXT}_b").alias(_NEXT),
            F.col(f"{_NEXT_AT}_b").alias(_NEXT_AT),
            *[F.coalesce(name, f"{name}_b").alias(name) for name in values],
        )
    raise CountMismatch(
        f"the key of a row was changed more than 2^{ROUNDS_MAX} times in one batch",
        hint="make batches smaller: batch.rows",
    )


def _filled(whole: DataFrame, nodes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the changes with what was found; ``_LEFT`` says that a change still lacks values."""
    values = [_known(place) for place in range(len(columns))]
    found = nodes.select(
        F.col(_NEW).alias(_NEXT), _AT, *[F.col(name).alias(f"{name}_b") for name in values]
    )
    match = (F.col(_WHO) == F.col(_NEXT)) & (F.col(_START)["order"] == F.col(_AT))
    joined = whole.filter(F.col(_KIND) == _CHANGE).join(found, match, "left")
    made: dict[str, Column] = {}
    left: Column = F.lit(False)
    for name, known in zip(columns, values, strict=True):
        missing, value = F.expr(hidden(name)), F.coalesce(known, f"{known}_b")
        made[name] = F.when(missing & value.isNotNull(), value["v"]).otherwise(F.col(quote(name)))
        left = left | (missing & value.isNull())
    # Columns with names such as a.b must not be read as fields.
    kept = [name for name in joined.columns if name not in made]
    return joined.select(
        *[F.col(quote(name)) for name in kept if name not in {UNAVAILABLE, _LEFT}],
        *[column.alias(name) for name, column in made.items()],
        F.lit(None).cast("array<string>").alias(UNAVAILABLE),
        left.alias(_LEFT),
    )


def _judged(made: DataFrame, past: Past) -> DataFrame:
    """Give a reason to each change that is needed and lacks values; leave out what is not."""
    needed = ~F.col(_STALE)
    if not past.versions:
        # Of a mirror's changes only the last of each row counts.
        keys = [F.col(quote(name)) for name in past.key]
        after = Window.partitionBy(*keys).orderBy(_TURN).rowsBetween(1, Window.unboundedFollowing)
        later = F.coalesce(F.max(~F.col(_LEFT)).over(after), F.lit(False))
        made = made.withColumn(_LATER, later)
        needed = needed & ~F.col(_LATER)
        if past.truncates:
            needed = needed & (F.col(ORDER) > past.truncates[-1].order)
    reason = F.when(F.col(_LEFT), F.lit(LOST))
    return made.filter(~F.col(_LEFT) | needed).withColumn(REASON, reason)


def _renamed(key: Sequence[str]) -> list[Column]:
    return [F.col(quote(name)).alias(f"k{place}") for place, name in enumerate(key)]


def _known(place: int) -> str:
    return f"__odi_known_{place}"


def _lacks() -> Column:
    return F.size(UNAVAILABLE) > 0


def _moved() -> Column:
    return _lacks() & F.col(OP).isin("c", "r")
