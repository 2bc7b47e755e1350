"""``odi-audit jobs new | check | schema``, and the text of a new spec."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.spec import check_text, load_spec
from jobs.spec.template import Answers, new_spec
from odi_audit.cli import app
from odi_audit.errors import ConfigError, UsageError

ROOT = Path(__file__).parents[4]
KAFKA = ["--job", "sales/orders", "--source", "kafka", "--table", "sales.orders",
         "--servers", "${KAFKA}", "--topic", "orders", "--format", "json"]  # fmt: skip


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull, encoding="utf-8"))  # noqa: SIM115, PTH123


def new(path: Path, *options: str) -> int:
    return app.run(["jobs", "new", str(path), *options])


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert app.run([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "options",
    [
        KAFKA,
        [*KAFKA, "--columns", "id bigint, ts timestamp", "--partition-by", "bucket(3, id)",
         "--partition-by", "days(ts)", "--dead-letter", "sales.dead", "--every", "30s",
         "--owner", "team: sales # 1", "--description", "yes"],
        [*KAFKA[:-1], "avro", "--registry", "${REGISTRY}"],
        [*KAFKA, "--mode", "upsert", "--key", "id", "--key", "odd_id", "--order-by", "ts"],
        [*KAFKA, "--mode", "mirror", "--debezium", "--key", "from_event"],
        [*KAFKA, "--mode", "history", "--debezium", "--key", "id"],
        ["--job", "a/b", "--source", "kafka", "--table", "a.b", "--servers", "h:1",
         "--pattern", r"shop\..+", "--format", "raw"],
        ["--job", "a/b", "--source", "files", "--table", "a.b", "--path", "in box/*.csv",
         "--format", "csv", "--columns", "a int"],
        ["--job", "a/b", "--source", "jdbc", "--table", "a.b", "--url", "jdbc:postgresql://h/d",
         "--user", "u", "--password-variable", "PW", "--from-table", "t", "--watermark", "c",
         "--mode", "upsert", "--key", "id"],
        ["--job", "a/b", "--source", "iceberg", "--table", "a.b", "--from-table", "a.c"],
        ["--job", "a/b", "--source", "iceberg", "--table", "a.b", "--from-table", "a.c",
         "--mode", "replace", "--where", "day = '2026-01-01'"],
    ],
)  # fmt: skip
def test_a_new_spec_is_valid_as_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    path = tmp_path / "job.yaml"
    assert new(path, *options) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"odi-audit jobs check {path} --offline")
    env = {"KAFKA": "h:1", "PW": "pw-of-db", "REGISTRY": "http://r"}
    spec = load_spec(path, env)
    assert spec.job in {"sales/orders", "a/b"}
    text = path.read_text("utf-8")
    assert text.startswith("# yaml-language-server: $schema=")
    assert text.count("#") > 5


def test_answers_stand_in_the_spec_as_they_were_given(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    assert new(path, *KAFKA, "--owner", "a: b # c", "--every", "30s", "--columns", "x int") == 0
    spec = load_spec(path, {"KAFKA": "h:1"})
    assert (spec.owner, spec.batch.every.seconds) == ("a: b # c", 30)


def test_a_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("mine")
    assert new(path, *KAFKA) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_without_a_terminal_the_missing_options_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    options = ["--job", "a/b", "--source", "kafka", "--mode", "upsert", "--json"]
    assert new(path, *options) == 2
    facts = json.loads(capsys.readouterr().err)["data"]["facts"]
    assert facts["missing"] == ["--table", "--servers", "--topic", "--format", "--key"]
    assert not path.exists()


def test_answers_that_do_not_go_together_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    assert new(path, *KAFKA, "--mode", "mirror", "--key", "id") == 3
    assert "a mirror needs changes" in capsys.readouterr().err
    assert not path.exists()


def test_on_a_terminal_it_asks_and_asks_again_after_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    ours, theirs = pty.openpty()
    code = "from odi_audit.cli.app import main; main()"
    asked = subprocess.Popen(
        [sys.executable, "-c", code, "jobs", "new", str(path), "--owner", "me"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=ROOT,
    )  # fmt: skip
    os.close(theirs)
    answers = ["orders", "sales/orders", "kafka", "n", "sales.orders", "upsert", "${KAFKA}",
               "orders, returns", "json", "order_id", "1m", ""]  # fmt: skip
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
    deadline = time.monotonic() + 60
    with contextlib.suppress(OSError):  # the other end of the terminal is closed
        while asked.poll() is None and time.monotonic() < deadline:
            os.read(ours, 4096)
    os.close(ours)
    assert asked.wait(timeout=10) == 0
    assert asked.stdout is not None
    assert asked.stdout.read().decode().startswith(f"{path} is written")
    asked.stdout.close()
    spec = load_spec(path, {"KAFKA": "h:1"})
    assert (spec.job, spec.target.mode, spec.target.key) == (
        "sales/orders",
        "upsert",
        ("order_id",),
    )
    assert spec.source.topics == ("orders", "returns")  # type: ignore[union-attr]
    assert (spec.batch.every.seconds, spec.owner, spec.dead_letter) == (60, "me", None)


ANSWER = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["description", "owner"]), ANSWER.filter(str.strip)), ANSWER)
def test_a_new_spec_says_what_was_answered_or_is_refused(texts: dict[str, str], topic: str) -> None:
    answers = Answers(
        job="a/b",
        source="kafka",
        table="a.b",
        servers="h:1",
        topics=(topic,),
        format="json",
        **texts,
    )
    try:
        text = new_spec(answers)
    except ConfigError:
        assert not topic.strip() or "${" in topic + "".join(texts.values())
        return
    found = check_text(text, {}, unset_ok=True)
    assert found.spec is not None
    assert found.spec.source.topics == (topic.replace("$${", "${"),)  # type: ignore[union-attr]
    for name, value in texts.items():
        assert getattr(found.spec, name) == value.replace("$${", "${")


def test_a_source_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError):
        Answers(job="a/b", source="kafak", table="a.b")


# -- check ----------------------------------------------------------------------------------------


def test_check_says_what_was_understood(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "jobs/ready/04-dual-table.yaml"
    assert app.run(["jobs", "check", str(path), "--offline"]) == 0
    out = capsys.readouterr().out
    for words in ("shop/orders_dual", "shop.orders_raw", "upsert by order_id", "KAFKA", "spark ("):
        assert words in out
    assert out.rstrip().endswith("is valid")


def test_check_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "jobs/ready/01-append.yaml"
    answer = ask(capsys, "jobs", "check", str(path), "--offline")
    assert answer["schema"] == "odi.jobs.check/1"
    data = answer["data"]
    assert set(data) == {"file", "offline", "variables", "unknown", "understood", "would"}
    assert (data["variables"], data["unknown"]) == (["KAFKA"], [])
    understood = data["understood"]
    assert understood["job"] == "shop/clicks"
    assert understood["tables"] == [
        {"role": "into", "name": "shop.clicks"},
        {"role": "dead letters", "name": "shop.clicks_dead"},
    ]
    assert understood["engine"] == {"chosen": "arrow", "why": []}
    assert understood["snapshots_per_day_max"] == 288
    assert understood["spec"]["batch"]["every"] == "5m"
    assert len(understood["digest"]) == 64


def test_check_of_a_wrong_spec_tells_machines_every_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], good: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(good.replace("topics", "topcs").replace("5m", "5"))
    assert app.run(["jobs", "check", str(path), "--offline", "--json"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    data = json.loads(err)["data"]
    assert data["code"] == "ODI-S01"
    assert [line.split(" ")[0] for line in data["facts"]["problems"]] == [
        f"{path}:6:3:", f"{path}:14:10:",
    ]  # fmt: skip


def test_check_without_the_variables_says_what_it_could_not_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], good: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(good.replace("broker:9092", "${NOBODY_SETS_THIS}"))
    assert app.run(["jobs", "check", str(path), "--offline"]) == 3
    assert "NOBODY_SETS_THIS is not set" in capsys.readouterr().err
    assert app.run(["jobs", "check", str(path), "--offline", "--unset-ok"]) == 0
    assert "not checked, for want of their variables: source.servers" in capsys.readouterr().out
    data = ask(capsys, "jobs", "check", str(path), "--offline", "--unset-ok")["data"]
    assert (data["unknown"], data["understood"]) == (["source.servers"], None)
    path.write_text(good.replace("broker:9092", "${NOBODY_SETS_THIS}").replace("5m", "5"))
    assert app.run(["jobs", "check", str(path), "--offline", "--unset-ok"]) == 3


def test_check_shows_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, good: str
) -> None:
    monkeypatch.setenv("TEST_KAFKA_PW", "not-to-be-seen")
    path = tmp_path / "job.yaml"
    options = "  options: {sasl.password: '${TEST_KAFKA_PW}'}\n  topics"
    path.write_text(good.replace("  topics", options))
    assert app.run(["jobs", "check", str(path), "--offline"]) == 0
    assert app.run(["jobs", "check", str(path), "--offline", "--json"]) == 0
    shown = "".join(capsys.readouterr())
    assert "not-to-be-seen" not in shown
    assert "${TEST_KAFKA_PW}" in shown


def test_advice_is_given_and_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], good: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(good.replace("5m", "10s").replace("  topics", "  start: latest\n  topics"))
    notes = ask(capsys, "jobs", "check", str(path), "--offline")["data"]["understood"]["notes"]
    assert "batch.every: 10s makes up to 8,640 snapshots a day; 1m to 5m is usual" in notes
    assert {note.split(":")[0] for note in notes} == {
        "batch.every", "source.start", "dead_letter", "owner",
    }  # fmt: skip


def test_variables_may_be_left_unset_only_where_no_source_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.run(["jobs", "check", "x.yaml", "--unset-ok"]) == 2
    assert "odi-audit jobs check x.yaml --offline --unset-ok" in capsys.readouterr().err


def test_the_schema_is_printed_as_it_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["jobs", "schema"]) == 0
    published = (ROOT / "jobs/schema/job-1.json").read_text("utf-8")
    assert capsys.readouterr().out == published
    answer = ask(capsys, "jobs", "schema")
    assert answer == {"schema": "odi.jobs.schema/1", "data": json.loads(published)}


def test_specs_need_neither_spark_nor_the_lake() -> None:
    code = (
        "import sys, jobs.spec, jobs.spec.summary, jobs.spec.template; "
        "print({'pyspark', 'pyiceberg', 'pyarrow', 'duckdb', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"
