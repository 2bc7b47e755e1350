"""The public names: few, sorted, pinned, and cheap to import."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import odi_audit as odi

NAMES = [
    "Contract",
    "OdiError",
    "OutcomeUnknown",
    "Receipt",
    "Refused",
    "Workspace",
    "files",
    "kafka",
    "lsn",
    "mapping",
    "once",
    "read_changes",
    "read_stable",
    "run",
    "session",
    "sink",
    "watermark",
    "with_source",
]


def test_the_public_names_are_these_and_sorted() -> None:
    assert odi.__all__ == NAMES == sorted(odi.__all__)


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in odi.__all__:
        assert inspect.getdoc(getattr(odi, name)), name
    assert not hasattr(odi, "no_such_name")


def test_importing_the_library_loads_no_engine(run_python: Callable[[str], str]) -> None:
    heavy = "('pyspark', 'pyiceberg', 'pyarrow', 'structlog', 'psycopg', 'pydantic')"
    code = f"import sys, odi_audit; print([name for name in {heavy} if name in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_describing_a_source_loads_no_engine(run_python: Callable[[str], str]) -> None:
    code = (
        "import sys, odi_audit as odi; odi.mapping('s', {'p': (0, 1)}); odi.Contract(); "
        "print([name for name in ('pyspark', 'pyiceberg', 'pyarrow') if name in sys.modules])"
    )
    assert run_python(code).strip() == "[]"
