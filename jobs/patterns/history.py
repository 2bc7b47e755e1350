"""History: every version of a row, with the time from which and until which it held (SCD2).

Owns how changes become versions. A version begins with a change and ends with the next one of the
same row; a delete or a truncate ends it, too. A change that leaves a row as it was makes none, and
one that came late or again is left out (docs/adr/0016-cdc-order.md). Must never change a version
that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from jobs.formats.debezium_envelope import OP, TIME
from jobs.formats.debezium_envelope import ORDER as CHANGE_ORDER
from jobs.patterns.changes import filled_in, hideable, known_or_stop, tie_breakers
from jobs.patterns.names import END, ORDER
from odi_audit.errors import UsageError
from odi_audit.model.merges import Terms
from odi_audit.model.tables import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from jobs.patterns.survey import Survey, Truncate
    from jobs.spec.model import HistoryColumns
    from odi_audit.committer.batch import BatchBuilder
    from odi_audit.model.contract import Contract
    from odi_audit.model.shares import Share

CLOSES = "__odi_close"
"""Of a batch's row: it is no version, but ends the one that the table has."""
_AT, _SINCE, _UNTIL, _ENDED = "__odi_at_time", "__odi_place", "__odi_until", "__odi_ended"
_KNOWN, _HELD, _TEXT, _NUMBER = "__odi_known", "__odi_held", "__odi_text", "__odi_turn"
_CUT = "__odi_cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """How the versions of a table are told apart.

    ``order`` are the table's columns by which one version is newer than another: that of the
    source's log for ``changes``, else those of the spec.
    """

    key: tuple[str, ...]
    names: HistoryColumns
    order: tuple[str, ...]
    changes: bool

    def match(self) -> str:
        """Return the condition that a row of the batch ends a version of the table."""
        keys = [f"t.{quote(name)} = s.{quote(name)}" for name in self.key]
        return " AND ".join([*keys, f"t.{quote(self.names.current)}", f"s.{CLOSES}"])


def history(
    batch: BatchBuilder,
    rows: DataFrame,
    table: str,
    *,
    held: DataFrame,
    how: Versions,
    survey: Survey,
    contract: Contract,
    share: Share,
    keep: Callable[[DataFrame], DataFrame],
) -> None:
    """Add to a batch what brings a history up to date.

    ``held`` is the table as it is; ``keep`` keeps rows that are used more than once.
    """
    names = how.names
    if survey.truncates and survey.rows == len(survey.truncates):
        batch.update(table, where=_open(how, survey.truncates, ""), set=_closed(how, survey))
        return
    left = keep(_left(_changes(rows, how, survey), held, how, survey))
    own = _own(held, how)
    made = _to_insert(left, own, how).unionByName(_to_close(left, own, how))
    if survey.truncates and made.isEmpty():
        batch.update(table, where=_open(how, survey.truncates, ""), set=_closed(how, survey))
        return
    setting = {names.valid_to: f"s.{_UNTIL}", names.current: "false"}
    batch.upsert(
        made,
        table,
        key=(*how.key, *how.order, CLOSES),
        terms=Terms(
            match=how.match(),
            update_set=setting | ({END: f"s.{_ENDED}"} if how.changes else {}),
            insert_when=f"NOT s.{CLOSES}",
            gone_when=_open(how, survey.truncates, "t.") if survey.truncates else None,
            gone_set=_closed(how, survey, "t.") if survey.truncates else {},
        ),
        contract=contract,
        share=share,
    )


def _changes(rows: DataFrame, how: Versions, survey: Survey) -> DataFrame:
    """Return one row for each change, with when it was and where it lies in the source."""
    if not how.changes:
        first = how.order[0]
        kind = rows.schema[first].dataType.simpleString()
        if kind not in {"timestamp", "date", "timestamp_ntz"}:
            raise UsageError(
                f"history takes its times from the first column of order_by, and {first} is of "
                f"type {kind}",
                hint="name a column of type timestamp or date first",
            )
        rows = rows.withColumns({OP: F.lit("u"), _AT: F.col(quote(first)).cast("timestamp")})
        place = F.struct(*[F.col(quote(name)) for name in how.order])
        return _once(rows.withColumn(_SINCE, place), how)
    rows = rows.filter(F.col(OP) != "t").withColumns(
        {_AT: F.col(TIME), _SINCE: F.col(CHANGE_ORDER), ORDER: F.col(CHANGE_ORDER)}
    )
    once = _once(rows, how)
    if not survey.truncates:
        return once
    # For each row that the batch changes, a truncate is a delete like any other.
    keys = rows.select(*[F.col(quote(name)) for name in how.key]).distinct()
    cuts = rows.sparkSession.createDataFrame(
        [(item.order, item.micros) for item in survey.truncates], f"{_SINCE} string, {_CUT} bigint"
    )
    ends = keys.crossJoin(F.broadcast(cuts)).withColumns(
        {
            OP: F.lit("d"),
            ORDER: F.col(_SINCE),
            _AT: F.timestamp_micros(_CUT),
        }
    )
    return once.unionByName(ends.drop(_CUT), allowMissingColumns=True)


def _once(rows: DataFrame, how: Versions) -> DataFrame:
    """Leave out what was delivered more than once."""
    window = Window.partitionBy(*_keys(how), F.col(_SINCE)).orderBy(
        *([F.col(name) for name in tie_breakers(rows)] or [F.lit(1)])
    )
    numbered = rows.withColumn(_NUMBER, F.row_number().over(window))
    return numbered.filter(F.col(_NUMBER) == 1).drop(_NUMBER)


def _left(changes: DataFrame, held: DataFrame, how: Versions, survey: Survey) -> DataFrame:
    """Return the changes that count, each with the one that follows it."""
    own = _own(held, how)
    known = _known(changes, held, how, own)
    join = [changes[quote(name)] == known[f"__odi_k_{place}"] for place, name in enumerate(how.key)]
    fresh = changes.join(known, join, "left").filter(
        F.col(_KNOWN).isNull() | (F.col(_SINCE) > F.col(_KNOWN))
    )
    if how.changes and survey.hidden:
        fresh = filled_in(fresh, how.key, before=_HELD, order=_SINCE)
        columns = hideable(fresh, how.key)
        fresh = fresh.filter(F.expr(known_or_stop(columns))) if columns else fresh
    window = Window.partitionBy(*_keys(how)).orderBy(_SINCE)
    return _without_repeats(fresh, own, window).withColumns(
        {
            _NUMBER: F.row_number().over(window),
            _UNTIL: F.lead(_AT).over(window),
            _ENDED: F.lead(_SINCE).over(window),
        }
    )


def _known(changes: DataFrame, held: DataFrame, how: Versions, own: Sequence[str]) -> DataFrame:
    """Return, for each row that the batch changes, how far the table knows it and what it holds."""
    keys = changes.select(*_keys(how)).distinct()
    place = (
        F.greatest(F.col(ORDER), F.col(END))
        if how.changes
        else F.struct(*[F.col(quote(name)) for name in how.order])
    )
    whole = F.struct(*[F.col(quote(name)) for name in own])
    current = F.when(F.col(quote(how.names.current)), whole)
    found = (
        held.join(keys, list(how.key), "left_semi")
        .groupBy(*_keys(how))
        .agg(F.max(place).alias(_KNOWN), F.first(current, ignorenulls=True).alias(_HELD))
    )
    renamed = [F.col(quote(name)).alias(f"__odi_k_{n}") for n, name in enumerate(how.key)]
    return found.select(*renamed, _KNOWN, _HELD)


def _without_repeats(fresh: DataFrame, own: Sequence[str], window: WindowSpec) -> DataFrame:
    """Leave out changes after which the row is as it was before."""
    deleted = F.col(OP) == "d"
    text = F.when(~deleted, _text([F.col(quote(name)) for name in own]))
    held = F.when(
        F.col(_HELD).isNotNull(), _text([F.col(f"{_HELD}.{quote(name)}") for name in own])
    )
    told = fresh.withColumns({_TEXT: text, _NUMBER: F.row_number().over(window)})
    before = F.when(F.col(_NUMBER) == 1, held).otherwise(F.lag(_TEXT).over(window))
    return told.withColumn(_TEXT, ~F.col(_TEXT).eqNullSafe(before)).filter(F.col(_TEXT))


def _text(columns: Sequence[Column]) -> Column:
    return F.to_json(
        F.struct(*[column.alias(f"c{place}") for place, column in enumerate(columns)]),
        {"ignoreNullFields": "false"},
    )


def _to_insert(left: DataFrame, own: Sequence[str], how: Versions) -> DataFrame:
    names = how.names
    made = {
        names.valid_from: F.col(_AT),
        names.valid_to: F.col(_UNTIL),
        names.current: F.col(_ENDED).isNull(),
    }
    if how.changes:
        made |= {ORDER: F.col(_SINCE), END: F.col(_ENDED)}
    return _shaped(left.filter(F.col(OP) != "d"), own, made, closes=False, how=how)


def _to_close(left: DataFrame, own: Sequence[str], how: Versions) -> DataFrame:
    names = how.names
    made: dict[str, Column] = {
        names.valid_from: F.lit(None).cast("timestamp"),
        names.valid_to: F.lit(None).cast("timestamp"),
        names.current: F.lit(False),
    }
    if how.changes:
        made |= {ORDER: F.col(_SINCE), END: F.lit(None).cast("string")}
    first = left.filter((F.col(_NUMBER) == 1) & F.col(_HELD).isNotNull())
    return _shaped(first, own, made, closes=True, how=how)


def _shaped(
    left: DataFrame, own: Sequence[str], made: dict[str, Column], *, closes: bool, how: Versions
) -> DataFrame:
    columns = [F.col(quote(name)) for name in own]
    columns += [column.alias(name) for name, column in made.items()]
    columns += [F.lit(closes).alias(CLOSES), F.col(_AT).alias(_UNTIL)]
    if how.changes:
        columns.append(F.col(_SINCE).alias(_ENDED))
    return left.select(*columns)


def _open(how: Versions, truncates: Sequence[Truncate], side: str) -> str:
    """Return the condition that a version of the table ends with a truncate."""
    last = truncates[-1].order
    return f"{side}{quote(how.names.current)} AND {side}{quote(ORDER)} < '{last}'"


def _closed(how: Versions, survey: Survey, side: str = "") -> dict[str, str]:
    """Return what a truncate sets in the versions that it ends: the first that came after them."""
    cases = survey.truncates
    until = " ".join(
        f"WHEN {side}{quote(ORDER)} < '{cut.order}' THEN timestamp_micros({cut.micros})"
        for cut in cases
    )
    ended = " ".join(
        f"WHEN {side}{quote(ORDER)} < '{cut.order}' THEN '{cut.order}'" for cut in cases
    )
    return {
        how.names.valid_to: f"CASE {until} END",
        how.names.current: "false",
        END: f"CASE {ended} END",
    }


def _keys(how: Versions) -> list[Column]:
    return [F.col(quote(name)) for name in how.key]


def _own(held: DataFrame, how: Versions) -> list[str]:
    names = how.names
    added = {names.valid_from, names.valid_to, names.current, ORDER, END}
    return [name for name in held.columns if name not in added]
