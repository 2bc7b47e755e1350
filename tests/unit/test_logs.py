"""Log lines: their form, what is bound to them, and what never stands in them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from odi_audit import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    logs.configure("auto", "info")


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_without_a_terminal_each_line_is_one_json_object() -> None:
    stream = io.StringIO()
    logs.configure("auto", "info", stream=stream)
    logs.get_logger("committer").info("published", rows=3, table="sales.örders")
    (line,) = lines(stream)
    assert line["event"] == "published"
    assert line["logger"] == "committer"
    assert line["level"] == "info"
    assert line["rows"] == 3
    assert "sales.örders" in stream.getvalue()
    assert str(line["time"]).endswith("Z")


def test_on_a_terminal_a_line_is_readable() -> None:
    stream = Terminal()
    logs.configure("auto", "info", stream=stream)
    logs.get_logger("committer").info("published")
    assert "published" in stream.getvalue()
    with pytest.raises(ValueError, match="Expecting"):
        lines(stream)


def test_the_setting_wins_over_the_terminal() -> None:
    stream = Terminal()
    logs.configure("json", "info", stream=stream)
    logs.get_logger("x").info("said")
    assert lines(stream)[0]["event"] == "said"


def test_job_run_batch_and_table_are_bound_to_every_line_until_the_block_ends() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    log = logs.get_logger("x")
    with logs.bound(job="sales/orders", run="r", batch="b-1"), logs.bound(table="s.o"):
        log.info("inside")
    log.info("outside")
    inside, outside = lines(stream)
    assert {key: inside[key] for key in ("job", "run", "batch", "table")} == {
        "job": "sales/orders",
        "run": "r",
        "batch": "b-1",
        "table": "s.o",
    }
    assert "job" not in outside


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    logs.configure("json", "warning", stream=stream)
    log = logs.get_logger("x")
    log.info("no")
    log.debug("no")
    log.warning("yes")
    log.error("yes")
    assert [line["event"] for line in lines(stream)] == ["yes", "yes"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_secret_is_in_a_line_in_any_form(form: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure(form, "info", stream=stream)
    logs.register("registered-one")
    with logs.bound(table="registered-one"):
        logs.get_logger("x").info(
            "at postgresql://u:url-one@h/d",
            password="named-one",
            nested={"token": "nested-one"},
            error=ValueError("password=error-one"),
        )
    for secret in ("registered-one", "url-one", "named-one", "nested-one", "error-one"):
        assert secret not in stream.getvalue()


def test_a_traceback_is_written_without_its_secrets() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    try:
        raise ValueError("password=trace-one")
    except ValueError:
        logs.get_logger("x").error("failed", exc_info=True)
    assert "ValueError" in stream.getvalue()
    assert "trace-one" not in stream.getvalue()


def test_logging_leaves_stdout_and_the_applications_structlog_alone() -> None:
    code = (
        "import structlog\n"
        "before = structlog.get_config()\n"
        "from odi_audit import logs\n"
        "logs.get_logger('x').info('said')\n"
        "assert structlog.get_config() == before\n"
        "assert not structlog.is_configured()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "said" in done.stderr
