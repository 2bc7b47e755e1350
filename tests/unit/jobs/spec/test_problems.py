"""What a tired engineer is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.spec import Problem, load_spec, parse_spec
from jobs.spec.problems import SHOWN_MAX
from odi_audit.errors import ConfigError, Exit

Told = Callable[..., dict[str, Problem]]


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path, good: str) -> None:
    path = tmp_path / "orders.yaml"
    text = good.replace("topics", "topcs").replace("5m", "5").replace("append", "upsert")
    path.write_text(text + "tabel: x\n")
    with pytest.raises(ConfigError) as caught:
        load_spec(path, {})
    assert caught.value.exit_status == Exit.CONFIG
    allowed = "type, servers, topics, pattern, start, value, key, envelope, keep, options"
    assert caught.value.message == (
        f"{path} has 4 problems\n"
        f"  {path}:6:3: source.topcs: no such key; did you mean topics? (allowed: {allowed})\n"
        f"  {path}:14:10: batch.every: found 5, without a unit; write 5s, 5m or 5h\n"
        f"  {path}:15:1: target.key: missing; upsert needs the columns that identify a row\n"
        f"  {path}:19:1: tabel: no such key; allowed: version, job, description, owner, source, "
        "registry, batch, transform, target, contract, dead_letter, bootstrap, engine"
    )
    assert caught.value.facts["file"] == str(path)
    assert len(caught.value.facts["problems"]) == 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "key", "place", "said"),
    [
        ("version: 1", "version: 2", "version", (1, 10), "found 2; allowed: 1"),
        ("type: kafka", "type: kafak", "source.type", (4, 9), "did you mean kafka?"),
        ("  type: kafka\n", "", "source.type", (3, 1), "kafka, files, jdbc, iceberg"),
        ("format: json", "format: jsn", "source.value.format", (8, 13), "did you mean json?"),
        ("mode: append", "mode: Upsert", "target.mode", (17, 9), "did you mean upsert?"),
        ("decimal(10,2)", "decimal(10,2", "source.value.columns.amount", (11, 15), "decimal"),
        ("bigint not null", "int8", "source.value.columns.order_id", (10, 17), "did you mean int"),
        ("[days(ts)]", "[dyas(ts)]", "target.partition_by[0]", (18, 18), "did you mean days"),
        ("[days(ts)]", "[days(tss)]", "target.partition_by[0]", (18, 18), "did you mean ts?"),
        ("sales/orders", "orders", "job", (2, 6), "namespace/name"),
        ("sales.orders", "orders", "target.table", (16, 10), "no namespace"),
        ("broker:9092", "broker", "source.servers", (5, 12), "host:port"),
        ("broker:9092", "", "source.servers", (5, 3), "is empty"),
        ("[orders]", "{a: b}", "source.topics", (6, 11), "write a list"),
        ("every: 5m", "every: 2d", "batch.every", (14, 10), "allowed: 1s to 1d"),
        ("every: 5m", "rows: 0", "batch.rows", (14, 9), "found 0; at least 1"),
        ("every: 5m", "rows: many", "batch.rows", (14, 9), "write a whole number"),
        ("every: 5m", "rows: 1.5", "batch.rows", (14, 9), "write a whole number"),
        ("every: 5m", "bytes: 1B", "batch.bytes", (14, 10), "allowed: 1KB to 1TB"),
        ("every: 5m", "cut_at_transactions: perhaps", "batch.cut_at_transactions", (14, 24),
         "true or false"),
        ("batch:\n  every: 5m", "batch: 5m", "batch", (13, 8), "every, rows, bytes"),
        ("  every: 5m", "  interval: 5m", "batch.interval", (14, 3), "did you mean every?"),
        ("  servers:", "  bootstrap.servers:", "source.bootstrap.servers", (5, 3),
         "did you mean servers?"),
        ("batch:", "key: [a]\nbatch:", "key", (13, 1), "under source or target or contract"),
        ("batch:", "sorce: 1\nbatch:", "sorce", (13, 1), "source is there already, in line 3"),
        ("  topics: [orders]", "  topics: [orders]\n  start: {offsets: {orders: {0: x}}}",
         "source.start.offsets.orders.0", (7, 33), "whole number"),
        ("  topics: [orders]", "  topics: [orders]\n  start: latst", "source.start", (7, 10),
         "did you mean latest?"),
        ("  topics: [orders]", "  pattern: 'a('", "source.pattern", (6, 12), "no pattern"),
        ("  topics: [orders]", "  topics: [orders]\n  keep: [offset, header]",
         "source.keep[1]", (7, 18), "did you mean headers?"),
        ("  topics: [orders]", "  topics: [orders, 5]", "source.topics[1]",
         (6, 20), 'in quotes: "5"'),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_what_is_allowed(
    told: Told, good: str, old: str, new: str, key: str, place: tuple[int, int], said: str
) -> None:
    assert good.count(old) == 1
    found = told(good.replace(old, new))
    assert list(found) == [key]
    assert (found[key].mark.line, found[key].mark.column) == place
    assert said in found[key].message


def test_a_missing_key_says_what_it_is_for(told: Told) -> None:
    found = told("version: 1\n")
    assert set(found) == {"job", "source", "target"}
    assert found["source"].message == "missing; where rows come from"
    assert {problem.mark.line for problem in found.values()} == {1}


def test_a_mistyped_key_is_not_told_as_missing_too(told: Told, good: str) -> None:
    assert list(told(good.replace("target:", "tagret:"))) == ["tagret"]
    assert list(told(good.replace("job:", "jbo:"))) == ["jbo"]


def test_more_problems_than_anybody_reads_are_counted(good: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_spec(good + "".join(f"zz{n}: 1\n" for n in range(SHOWN_MAX + 20)), {})
    assert f"has {SHOWN_MAX + 20} problems" in caught.value.message
    assert caught.value.message.endswith("and 20 more")


def test_a_long_value_is_cut_in_the_message(told: Told, good: str) -> None:
    found = told(good.replace("mode: append", f"mode: {'x' * 500}"))
    assert len(found["target.mode"].message) < 250


def test_a_file_that_is_not_there_or_no_text_is_an_error_of_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no spec") as caught:
        load_spec(tmp_path / "none.yaml", {})
    assert caught.value.hint == f"odi-audit jobs new {tmp_path / 'none.yaml'}"
    (tmp_path / "latin.yaml").write_bytes(b"version: 1\njob: \xe4\n")
    with pytest.raises(ConfigError, match=r"latin.yaml:2:1: this is not UTF-8"):
        load_spec(tmp_path / "latin.yaml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_spec(tmp_path, {})


def test_a_byte_order_mark_and_windows_line_ends_are_no_matter(tmp_path: Path, good: str) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + good.replace("\n", "\r\n").encode())
    assert load_spec(path, {}) == parse_spec(good, {})
