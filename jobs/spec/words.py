"""Words of a spec that stand for values: durations, sizes, names, patterns.

Owns their spelling, both ways. Each function takes what the file holds and returns the value, or
raises ``ValueError`` with what is allowed. Must never know which key a word belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from odi_audit.errors import OdiError
from odi_audit.ids import JobName, job_name
from odi_audit.model.tables import parse

_T = TypeVar("_T")
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
DURATION_PATTERN = r"^(\d+(ms|s|m|h|d))+$"
DAYS_MAX = 3650
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)", re.IGNORECASE)
SIZE_PATTERN = r"^\d+(\.\d+)?\s*[KMGTkmgt]?[iI]?[bB]$"
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_HOOK = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_QUERY = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:select|with)\b", re.IGNORECASE)
_BATCH = re.compile(r"\bbatch\b", re.IGNORECASE)
PATTERN_LENGTH_MAX = 1_000
_TEMPLATE_PLACE = re.compile(r"\{([^{}]*)\}")


def duration(given: object) -> timedelta:
    """Read ``10s``, ``5m``, ``1h30m``, ``2d``."""
    if isinstance(given, timedelta):
        return given
    if isinstance(given, int | float) and not isinstance(given, bool):
        told = f"found {given}, without a unit; write {given:g}s, {given:g}m or {given:g}h"
        raise ValueError(told)  # noqa: TRY004 - pydantic takes a ValueError for a finding
    text = str(given).strip()
    if not isinstance(given, str) or not _DURATION.fullmatch(text):
        raise ValueError(f"found {given!r}; write a duration such as 10s, 5m, 1h or 1h30m")
    if len(text) > 40:
        raise ValueError("a duration of this length means nothing")
    seconds = sum(int(number) * _UNITS_S[unit] for number, unit in _DURATION_PART.findall(text))
    if seconds > DAYS_MAX * 86400:
        raise ValueError(f"found {text}; at most {DAYS_MAX}d")
    return timedelta(milliseconds=round(seconds * 1000))


def show_duration(value: timedelta) -> str:
    """Write a duration in the largest units that hold it exactly."""
    left = round(value.total_seconds() * 1000)
    text = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def size(given: object) -> int:
    """Read ``128MB``, ``1GiB``: powers of 1024 either way, as Spark and Iceberg count."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        raise ValueError(
            f"found {given}, without a unit; write {given}B, or a number of KB, MB, GB"
        )
    match = _SIZE.fullmatch(str(given).strip()) if isinstance(given, str) else None
    if match is None or len(match[0]) > 30:
        raise ValueError(f"found {given!r}; write a size such as 512KB, 128MB or 1GB")
    number = float(match[1]) if "." in match[1] else int(match[1])
    return int(number * 1024 ** _POWERS[match[2].upper()])


def show_size(value: int) -> str:
    """Write a size in the largest unit that holds it exactly."""
    for unit in ("TB", "GB", "MB", "KB"):
        whole, rest = divmod(value, 1024 ** _POWERS[unit[0]])
        if whole and not rest:
            return f"{whole}{unit}"
    return f"{value}B"


def job(given: object) -> JobName:
    """Read a job's name."""
    return _checked(lambda: job_name(_text(given, "sales/orders")))


def table(given: object) -> str:
    """Read a table's name; it is kept as written."""
    text = _text(given, "sales.orders")
    _checked(lambda: parse(text))
    return text


def template(given: object) -> str:
    """Read a table's name with one place in it, such as ``sales.{topic}``."""
    text = _text(given, "sales.{topic}")
    places = _TEMPLATE_PLACE.findall(text)
    if len(places) != 1 or places[0] not in {"topic", "field"}:
        raise ValueError(f"found {text!r}; write one place for the name: {{topic}} or {{field}}")
    _checked(lambda: parse(_TEMPLATE_PLACE.sub("x", text)))
    if _TEMPLATE_PLACE.sub("", text).strip("`").endswith(".") and text.startswith("{"):
        raise ValueError(f"found {text!r}; the namespace must be written out")
    return text


def table_pattern(given: object) -> str:
    """Read a pattern of table names: ``sales.*`` or ``sales.orders_*``; the namespace is fixed."""
    text = _text(given, "sales.*")
    namespace, dot, _ = text.rpartition(".")
    if not dot or any(letter in namespace for letter in "*?["):
        raise ValueError(f"found {text!r}; write the namespace out, such as sales.* or sales.raw_*")
    _checked(lambda: parse(re.sub(r"[*?]", "x", text)))
    if "[" in text or "]" in text:
        raise ValueError(f"found {text!r}; * and ? are all that a pattern knows")
    return text


def matches(name: str, pattern: str) -> bool:
    """Say whether a table's name is one of a pattern's: ``*`` for any letters but a dot."""
    made = "".join({"*": r"[^.]*", "?": r"[^.]"}.get(one, re.escape(one)) for one in pattern)
    return re.fullmatch(made, name) is not None


def regex(given: object) -> str:
    """Read a pattern of topic names."""
    text = _text(given, r"shop\..+")
    if len(text) > PATTERN_LENGTH_MAX:
        raise ValueError(f"a pattern of over {PATTERN_LENGTH_MAX} characters")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"found {text!r}, which is no pattern: {error}") from None
    return text


def hook(given: object) -> str:
    """Read ``module:function``."""
    text = _text(given, "mycompany.orders:clean")
    if not _HOOK.fullmatch(text):
        raise ValueError(f"found {text!r}; write module:function, such as mycompany.orders:clean")
    return text


def query(given: object) -> str:
    """Read one SELECT over ``batch``; what it means is Spark's to say."""
    text = _text(given, "SELECT * FROM batch").strip().removesuffix(";").strip()
    if not _QUERY.match(text):
        raise ValueError("write one query that begins with SELECT or WITH")
    if not _BATCH.search(text):
        raise ValueError("the query does not read `batch`, which is how it sees the rows")
    return text


def moment(given: object) -> datetime:
    """Read an ISO 8601 time with its zone, or a date (its midnight in UTC)."""
    if isinstance(given, datetime):
        return given
    text = _text(given, "2026-01-31T00:00:00Z").strip()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"found {text!r}; write a time such as 2026-01-31T00:00:00Z") from None
    if found.tzinfo is None:
        if len(text) > 10:
            raise ValueError(f"found {text}, without a zone; write {text}Z for UTC, or +02:00")
        found = found.replace(tzinfo=UTC)
    return found.astimezone(UTC)


def show_moment(value: datetime) -> str:
    """Write a time."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _text(given: object, example: str) -> str:
    if isinstance(given, str) and given.strip():
        return str(given)
    found = "nothing" if given is None or given == "" else repr(given)
    raise ValueError(f"found {found}; write a text such as {example}")


def _checked(check: Callable[[], _T]) -> _T:
    try:
        return check()
    except OdiError as error:
        raise ValueError(error.message) from None
