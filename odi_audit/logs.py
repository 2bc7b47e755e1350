"""Log lines: JSON in production, readable on a terminal, always on stderr, never with a secret.

Owns the chain from an event to a line (structlog) and what is bound to every line: job, run,
batch, table. Must never touch the application's own structlog or logging configuration, and must
never be where an error ends: who logs an error raises it too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TextIO

from odi_audit.redact import is_secret_key, redact, register

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

__all__ = ["Logger", "bound", "configure", "get_logger", "is_secret_key", "redact", "register"]

Format = Literal["auto", "json", "console"]
Level = Literal["debug", "info", "warning", "error"]
_LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@dataclass(slots=True)
class _State:
    """What lines look like in this process; ``stream`` None is whatever stderr is by then."""

    format: Format = "auto"
    level: Level = "info"
    stream: TextIO | None = None


_state = _State()


def configure(format: Format, level: Level, *, stream: TextIO | None = None) -> None:  # noqa: A002 - the setting's name
    """Choose how lines look from now on, in this process."""
    _state.format = format
    _state.level = level
    _state.stream = stream


@contextmanager
def bound(**context: str | int | None) -> Iterator[None]:
    """Bind job, run, batch or table to every line of this thread until the block ends."""
    import structlog

    with structlog.contextvars.bound_contextvars(
        **{key: value for key, value in context.items() if value is not None}
    ):
        yield


class Logger:
    """A named source of lines. It costs nothing until it says something."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: object) -> None:
        """Say what only a developer wants to know."""
        self._say("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Say what happened."""
        self._say("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Say what somebody should look at."""
        self._say("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Say what failed, before raising it."""
        self._say("error", event, fields)

    def _say(self, level: str, event: str, fields: dict[str, object]) -> None:
        if _LEVELS[level] >= _LEVELS[_state.level]:
            _structlog().bind(logger=self._name).log(_LEVELS[level], event, **fields)


def get_logger(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(name)


def redact_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Mask every secret of an event: the last step before it becomes text."""
    cleaned = redact(event)
    assert isinstance(cleaned, dict)
    return cleaned


class _Stderr:
    """Writes each line whole, to the stderr of the moment."""

    def msg(self, line: str) -> None:
        stream = _state.stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()

    log = debug = info = warning = error = critical = exception = msg


@cache
def _structlog() -> FilteringBoundLogger:
    import structlog

    chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        redact_event,
        _render,
    ]
    made: FilteringBoundLogger = structlog.wrap_logger(
        _Stderr(),
        processors=chain,
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    return made


def _render(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    stream = _state.stream or sys.stderr
    if _state.format == "console" or (_state.format == "auto" and stream.isatty()):
        return str(_console(stream.isatty())(logger, method, event))
    return str(_json()(logger, method, event))


@cache
def _console(colors: bool) -> Processor:
    import structlog

    renderer: Processor = structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="time")
    return renderer


@cache
def _json() -> Processor:
    import structlog

    renderer: Processor = structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False)
    return renderer
