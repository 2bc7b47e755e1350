"""Rules between keys: each speaks up, at its key, in words that help."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.spec import Problem, parse_spec
from jobs.spec.document import parse
from jobs.spec.rules import arrow_obstacles
from jobs.spec.view import View

Told = Callable[..., dict[str, Problem]]

KAFKA = "source: {type: kafka, servers: 'h:1', topics: [t], value: {format: json}}"
CDC = (
    "source: {type: kafka, servers: 'h:1', topics: [t], envelope: debezium, value: {format: json}}"
)
FILES = "source: {type: files, path: in, format: csv, columns: 'a int, ts timestamp'}"
TABLE = "source: {type: iceberg, table: s.t}"
JDBC = "source: {type: jdbc, url: 'jdbc:x://h/d', table: t, watermark: {column: c, overlap: 5m}}"
KEYED = (
    "source: {type: kafka, servers: 'h:1', topics: [t], key: {format: %s}, "
    "value: {format: json, columns: 'a int'}}"
)
INTO = "target: {table: a.b}"


def spec(*lines: str) -> str:
    return "\n".join(["version: 1", "job: a/b", *lines]) + "\n"


@pytest.mark.parametrize(
    "lines",
    [
        (KAFKA, INTO),
        (CDC, "target: {table: a.b, mode: mirror, key: from_event}"),
        (CDC, "target: {table: a.b, mode: mirror, key: [id]}"),
        (CDC, "target: {table: a.b, mode: history, key: [id]}"),
        (CDC, "target: {table: a.b}"),
        (KAFKA, "target: {table: a.b, mode: history, key: id, order_by: ts}"),
        (FILES, "target: {table: a.b, mode: replace_partitions, partition_by: days(ts)}"),
        (TABLE, "target: {table: a.b, mode: mirror, key: id}"),
        (TABLE, "transform: m:f", INTO),
        (JDBC, "target: {table: a.b, mode: upsert, key: id}"),
        ("source: {type: iceberg, table: a.b, read: rows}",
         "target: {table: a.b, mode: replace, where: 'x > 1'}"),
        (KAFKA, "target: {route: {by: field, field: f, table: 'a.x_{field}', allow: a.x_*}}"),
        (KAFKA, "target: {route: {by: topic, table: 'a.{topic}', allow: [a.shop_*]}}"),
        (KAFKA, INTO, "engine: arrow"),
        (KEYED % "text", INTO, "engine: arrow"),
        (KEYED % "json", "target: {table: a.b, mode: upsert, key: of_the_key}"),
        (KEYED % "raw", "target: {table: a.b, mode: upsert, key: _key}"),
        (CDC.replace("value:", "keep: [key], key: {format: json}, value:"), INTO),
    ],
)  # fmt: skip
def test_what_goes_together_is_taken(lines: tuple[str, ...]) -> None:
    parse_spec(spec(*lines), {})


@pytest.mark.parametrize(
    ("lines", "key", "line", "said"),
    [
        # the source
        ((KEYED.replace("value:", "keep: [key], value:") % "text", INTO),
         "source.keep", 3, "for its bytes write key: {format: raw}"),
        ((KEYED % "text", "target: {table: a.b, mode: upsert, key: b}"),
         "target.key", 4, "column b is not among the source's columns"),
        (("source: {type: kafka, servers: 'h:1', value: {format: json}}", INTO),
         "source.topics", 3, "name topics, or give a pattern"),
        (("source: {type: kafka, servers: 'h:1', topics: t, pattern: t, value: {format: json}}",
          INTO), "source.pattern", 3, "not both"),
        (("source: {type: kafka, servers: 'h:1', topics: t, value: {format: avro}}", INTO),
         "source.value.format", 3, "registry"),
        (("source: {type: kafka, servers: 'h:1', topics: t, value: {format: raw, columns: a int}}",
          INTO), "source.value.columns", 3, "leave columns out"),
        ((("source: {type: kafka, servers: 'h:1', topics: t, envelope: debezium, "
          "value: {format: raw}}"), INTO), "source.value.format", 3, "json or avro"),
        ((("source: {type: kafka, servers: 'h:1', topics: t, value: {format: json}, "
          "start: {offsets: {u: {0: 1}}}}"), INTO), "source.start.offsets.u", 3, "no such topic"),
        (("source: {type: kafka, servers: 'h:1', topics: t, value: {format: json}, start: {}}",
          INTO), "source.start", 3, "give one of"),
        ((KAFKA, "batch: {cut_at_transactions: true}", INTO),
         "batch.cut_at_transactions", 4, "debezium"),
        ((KAFKA, "registry: {url: 'http://r'}", INTO), "registry", 4, "nothing uses it"),
        (("source: {type: jdbc, url: 'jdbc:x://h/d', watermark: {column: c}}", INTO),
         "source", 3, "one of table and query"),
        ((JDBC, INTO), "source.watermark.overlap", 3, "mode: upsert"),
        ((TABLE, INTO), "source.read", 3, "read: appends"),
        (("source: {type: iceberg, table: s.t, read: rows, start: latest}", INTO),
         "source.start", 3, "has no beginning"),
        (("source: {type: iceberg, table: s.t, read: appends, start: {tag: x, batch: b-00aa}}",
          INTO), "source.start", 3, "give one of"),
        # the target
        ((KAFKA, "target: {mode: append}"), "target.table", 4, "name a table"),
        ((KAFKA, "target: {table: a.b, mode: upsert}"), "target.key", 4, "identify a row"),
        ((KAFKA, "target: {table: a.b, key: [id]}"), "target.key", 4, "contract.key"),
        ((KAFKA, "target: {table: a.b, mode: mirror, key: [id]}"), "target.mode", 4, "debezium"),
        ((CDC, "target: {table: a.b, mode: mirror}"), "target.key", 4, "from_event"),
        ((CDC, "target: {table: a.b, mode: upsert, key: [id]}"), "target.mode", 4, "write mirror"),
        ((CDC, "target: {table: a.b, mode: mirror, key: [id], order_by: [ts]}"),
         "target.order_by", 4, "own order"),
        ((KAFKA, "target: {table: a.b, mode: upsert, key: from_event}"),
         "target.key", 4, "envelope: debezium"),
        ((KAFKA, "target: {table: a.b, mode: history, key: [id]}"),
         "target.order_by", 4, "what is newer"),
        ((KAFKA, "target: {table: a.b, order_by: [ts]}"), "target.order_by", 4, "only upsert"),
        ((KAFKA, "target: {table: a.b, mode: replace}"), "target.where", 4, "which rows"),
        ((KAFKA, "target: {table: a.b, where: 'a > 1'}"), "target.where", 4, "mode replace"),
        ((KAFKA, "target: {table: a.b, delete_when: 'a > 1'}"), "target.delete_when", 4, "upsert"),
        ((KAFKA, "target: {table: a.b, mode: replace_partitions}"),
         "target.partition_by", 4, "partitions"),
        ((KAFKA, "target: {table: a.b, raw: {table: a.c}}"), "target.raw", 4, "upsert"),
        ((KAFKA, "target: {table: a.b, mode: upsert, key: id, raw: {table: a.b}}"),
         "target.raw.table", 4, "is the target already"),
        ((KAFKA, INTO, "dead_letter: {table: A.b}"), "dead_letter.table", 5, "already"),
        (("source: {type: iceberg, table: a.b, read: appends}", INTO), "target.table", 4,
         "is the source already"),
        # routes
        ((KAFKA, "target: {table: a.b, route: {by: topic, table: 'a.{topic}', allow: a.*}}"),
         "target.route", 4, "not both"),
        ((KAFKA, "target: {route: {by: field, table: 'a.{field}', allow: a.*}}"),
         "target.route.field", 4, "column"),
        ((KAFKA, "target: {route: {by: topic, table: 'a.{field}', allow: a.*}}"),
         "target.route.table", 4, "{topic}"),
        ((KAFKA, "target: {route: {by: topic, table: 'a.{topic}', allow: b.*}}"),
         "target.route.allow", 4, "no table that"),
        ((FILES, "target: {route: {by: topic, table: 'a.{topic}', allow: a.*}}"),
         "target.route.by", 4, "by: field"),
        # the rest
        ((KAFKA, "contract: {on_violation: dead_letter}", INTO),
         "contract.on_violation", 4, "dead_letter: {table"),
        ((KAFKA, "transform: {sql: SELECT * FROM batch, python: 'm:f'}", INTO),
         "transform", 4, "one of sql and python"),
        ((KAFKA, "transform: m:f", INTO, "engine: arrow"), "engine", 6, "transform is given"),
        ((FILES, INTO, "engine: arrow"), "engine", 5, "not kafka"),
        ((FILES, INTO, ("bootstrap: {from: {type: files, path: p, format: csv}, "
          "hand_over: {timestamp: 2026-01-01}}")), "bootstrap", 5, "handed over to kafka"),
        ((KAFKA, INTO, ("bootstrap: {from: {type: files, path: p, format: csv}, "
          "hand_over: earliest}")), "bootstrap.hand_over", 5, "exact place"),
        ((("source: {type: kafka, servers: 'h:1', topics: t, value: {format: json}, "
          "start: latest}"), INTO, ("bootstrap: {from: {type: files, path: p, format: csv}, "
          "hand_over: {timestamp: 2026-01-01}}")), "source.start", 3, "leave this out"),
        ((FILES, "target: {table: a.b, partition_by: [a, days(tz)]}"),
         "target.partition_by[1]", 4, "did you mean ts"),
        ((FILES, INTO, "contract: {required: [a, bb]}"), "contract.required[1]", 5, "bb"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_told_at_its_key(
    told: Told, lines: tuple[str, ...], key: str, line: int, said: str
) -> None:
    found = told(spec(*lines))
    assert list(found) == [key]
    assert found[key].mark.line == line
    assert said in found[key].message


def test_rules_speak_up_while_other_keys_are_wrong(told: Told) -> None:
    found = told(spec(KAFKA, "batch: {every: 5}", "target: {table: a.b, mode: upsert, nope: 1}"))
    assert set(found) == {"batch.every", "target.key", "target.nope"}


@pytest.mark.parametrize(
    "text",
    ["source: 3\ntarget: []", "source: {type: [a]}\ntarget: {mode: {}}", "batch: x\ncontract: 1",
     "bootstrap: {from: 3, hand_over: {offsets: 3}}\nsource: {type: kafka, topics: {a: b}}",
     "target: {route: {by: topic, table: 3, allow: [3]}, partition_by: [[]], key: {a: b}}",
     "transform: []\nregistry: 1\ndead_letter: {table: []}\nengine: {}",
     "source: {type: jdbc, watermark: {overlap: [1]}}\ntarget: {raw: 1, history: 2}"],
)  # fmt: skip
def test_values_of_any_kind_are_told_and_never_a_bug(told: Told, text: str) -> None:
    assert told("version: 1\njob: a/b\n" + text)


def test_what_keeps_a_job_from_the_arrow_path_is_listed() -> None:
    root = parse(spec(CDC, "transform: m:f", "target: {table: a.b, mode: mirror}"), {}).root
    assert len(arrow_obstacles(View(root))) == 3
    assert arrow_obstacles(View(parse(spec(KAFKA, INTO), {}).root)) == []
