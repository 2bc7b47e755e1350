"""Transforms: SQL over the view ``batch``, or a function from a frame to a frame.

Owns how a hook is found and called, and what it must leave in place; values that a change leaves
out are still known afterwards. Must never hide whose error it is: each names the hook.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from jobs.formats.debezium_envelope import UNAVAILABLE, UNAVAILABLE_VALUE
from jobs.patterns.names import is_own
from odi_audit.errors import OdiError, UsageError
from odi_audit.model.tables import quote
from odi_audit.redact import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.spec.model import Transform

VIEW = "batch"
MESSAGE_LENGTH_MAX = 600


def transformed(rows: DataFrame, transform: Transform, *, needed: Sequence[str] = ()) -> DataFrame:
    """Return what a transform makes of rows; nothing of it is run yet.

    ``needed`` are columns about each change that must still be there afterwards.

    Raises:
        UsageError: the hook is not there, fails, or leaves out what is needed.
    """
    made = _sql(rows, transform.sql) if transform.sql is not None else _python(rows, transform)
    lacking = [name for name in needed if name not in made.columns]
    if lacking:
        raise UsageError(
            f"{_named(transform)} leaves out {', '.join(lacking)}, which say what each change does",
            hint=f"select them too: SELECT …, {', '.join(needed)} FROM {VIEW}",
        )
    return _hidden_by_any_name(made) if UNAVAILABLE in needed else made


def function_of(hook: str) -> Callable[[DataFrame], object]:
    """Return the function that ``module:function`` names.

    Raises:
        UsageError: it is not there.
    """
    module, _, name = hook.partition(":")
    with _told(f"transform {hook}"):
        found = getattr(importlib.import_module(module), name, None)
    if not callable(found):
        raise UsageError(
            f"transform {hook}: module {module} has no function {name}",
            hint="write module:function, importable where the job runs",
        )
    return found  # type: ignore[no-any-return]


def _hidden_by_any_name(rows: DataFrame) -> DataFrame:
    """Say of texts that were not sent, and that the transform renamed, that they were not sent.

    A text still holds Debezium's mark; what is no text is null by now, and known by its name only.
    """
    marked = [
        F.when(F.col(quote(item.name)) == UNAVAILABLE_VALUE, F.lit(item.name))
        for item in rows.schema.fields
        if isinstance(item.dataType, StringType) and is_own(item.name)
    ]
    if not marked:
        return rows
    found = F.array_compact(F.array(*marked))
    told = F.coalesce(F.array_union(F.col(UNAVAILABLE), found), found)
    return rows.withColumn(UNAVAILABLE, F.when(F.size(told) > 0, told))


def _sql(rows: DataFrame, query: str) -> DataFrame:
    with _told("transform.sql"):
        # A view is a name of this session: nothing of it is left in the catalog.
        rows.createOrReplaceTempView(VIEW)
        return rows.sparkSession.sql(query)


def _python(rows: DataFrame, transform: Transform) -> DataFrame:
    assert transform.python is not None
    function = function_of(transform.python)
    with _told(f"transform {transform.python}"):
        made = function(rows)
    if not isinstance(made, DataFrame):
        raise UsageError(
            f"transform {transform.python} returned {type(made).__name__}, not a DataFrame",
            hint="return the frame that is to be written",
        )
    return made


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OdiError:
        raise
    except PySparkException as error:
        text = str(redact(str(error)))[:MESSAGE_LENGTH_MAX]
        raise UsageError(f"{what}: {text}", record=f"{what} failed") from error
    except Exception as error:
        text = f"{type(error).__name__}: {redact(str(error))}"[:MESSAGE_LENGTH_MAX]
        raise UsageError(f"{what} failed: {text}", record=f"{what} failed") from error


def _named(transform: Transform) -> str:
    return "transform.sql" if transform.sql is not None else f"transform {transform.python}"
