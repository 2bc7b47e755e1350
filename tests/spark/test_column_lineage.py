"""Column lineage as intents keep it, through every operation and out to the events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import odi_audit as odi
from lineage.context import LedgerContext
from lineage.events import events_of
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind
from odi_audit.spark.plan import changes, of_frame
from odi_audit.spark.plan.reader import TooLarge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_audit.workspace import Workspace


@pytest.fixture
def told(lake: Workspace, spark: SparkSession) -> Workspace:
    """Two tables to read from and one to write to."""
    with odi.run("sales/setup", lake=lake, spark=spark) as run:
        run.create_table("s.cust", "id bigint, name string, info struct<a:int,b:int>")
        run.create_table("s.orders", "id bigint, cust bigint, amount int")
        run.create_table("s.wide", "id bigint, name string, amount bigint")
        rows = spark.range(3).selectExpr(
            "id", "concat('n', id) AS name", "named_struct('a', 1, 'b', 2) AS info"
        )
        run.append(rows, "s.cust", offsets=odi.once("cust"))
        rows = spark.range(3).selectExpr("id", "id AS cust", "CAST(id AS int) AS amount")
        run.append(rows, "s.orders", offsets=odi.once("orders"))
    return lake


def joined(lake: Workspace, spark: SparkSession) -> DataFrame:
    catalog = lake.settings.catalog.name
    return spark.sql(
        f"SELECT o.id, upper(c.name) AS name, o.amount FROM {catalog}.s.orders o "
        f"JOIN {catalog}.s.cust c ON c.id = o.cust WHERE o.amount < 9"
    )


def kept(lake: Workspace) -> dict[str, Mapping[str, Any]]:
    """What the last intent keeps of each table's columns."""
    entries = lake.ledger().find(EntryFilter(kinds=(Kind.INTENT,)), limit=1, newest_first=True)
    return {
        str(item["table"]): {key: item[key] for key in item if key.startswith("column_lineage")}
        for item in entries[0].facts["operations"]  # type: ignore[union-attr, call-overload, index]
    }


def edges(fact: Mapping[str, Any]) -> dict[str, set[str]]:
    """A fact in few words: ``table.column KIND`` for each column, ``*`` for all rows."""
    names = [str(item.get("table") or item["name"]) for item in fact["inputs"]]

    def words(items: Sequence[Mapping[str, Any]]) -> set[str]:
        return {f"{names[item['input']]}.{item['field']} {item['subtype']}" for item in items}

    return {name: words(items) for name, items in fact["fields"].items()} | {
        "*": words(fact["dataset"])
    }


def test_an_append_from_a_join_keeps_where_each_column_came_from(
    told: Workspace, spark: SparkSession
) -> None:
    with odi.run("sales/wide", lake=told, spark=spark) as run:
        run.append(joined(told, spark), "s.wide", offsets=odi.once("a"))
    fact = kept(told)["s.wide"]["column_lineage"]
    assert edges(fact) == {
        "id": {"s.orders.id IDENTITY"},
        "name": {"s.cust.name TRANSFORMATION"},
        "amount": {"s.orders.amount TRANSFORMATION"},  # an int that is stored as bigint
        "*": {"s.orders.cust JOIN", "s.cust.id JOIN", "s.orders.amount FILTER"},
    }
    assert fact["unknown"] == []
    heads = {item["table"]: item["snapshot"] for item in fact["inputs"]}
    state = told.catalog().load(odi_table("s.orders"))
    assert heads["s.orders"] == state.current_snapshot


def odi_table(name: str) -> Any:
    from odi_audit.model.tables import parse

    return parse(name)


def test_the_same_plan_is_kept_once_and_only_the_snapshots_are_told_again(
    told: Workspace, spark: SparkSession
) -> None:
    with odi.run("sales/wide", lake=told, spark=spark) as run:
        run.append(joined(told, spark), "s.wide", offsets=odi.mapping("s", {"p": (0, 1)}))
        first = kept(told)["s.wide"]["column_lineage"]
        more = spark.range(3, 4).selectExpr("id", "id AS cust", "CAST(id AS int) AS amount")
        run.append(more, "s.orders", offsets=odi.once("more"))
        run.append(joined(told, spark), "s.wide", offsets=odi.mapping("s", {"p": (1, 2)}))
    again = kept(told)["s.wide"]
    intents = told.ledger().find(EntryFilter(kinds=(Kind.INTENT,)))
    held = next(entry for entry in intents if entry.index == again["column_lineage_at"])
    assert held.facts["operations"][0]["column_lineage"] == first  # type: ignore[index, call-overload]
    snapshots = [item["snapshot"] for item in first["inputs"]]
    moved = [old != new for old, new in zip(snapshots, again["column_lineage_read"], strict=True)]
    assert moved == [False, True], "cust stood still, orders got rows"
    versions = [
        dataset["facets"]["version"]["datasetVersion"]
        for event in _events(told)
        if event["eventType"] == "COMPLETE"
        and event["job"]["name"].startswith("wide.append.s.wide")
        for dataset in event["inputs"]
        if dataset["name"].endswith("/s/orders")
    ]
    assert versions == [snapshots[1], again["column_lineage_read"][1]]


def test_an_upsert_tells_its_key_its_order_and_its_deletes(
    told: Workspace, spark: SparkSession
) -> None:
    frame = joined(told, spark).selectExpr("*", "amount > 5 AS gone", "id + 1 AS version")
    with odi.run("sales/wide", lake=told, spark=spark) as run:
        run.upsert(
            frame,
            "s.wide",
            key=["id"],
            order_by=["version"],
            delete_when="gone",
            offsets=odi.once("u"),
        )
    found = edges(kept(told)["s.wide"]["column_lineage"])
    assert found["name"] == {"s.cust.name TRANSFORMATION"}
    assert set(found) == {"id", "name", "amount", "*"}
    assert found["*"] >= {
        "s.wide.id JOIN",
        "s.orders.id JOIN",
        "s.orders.id WINDOW",
        "s.orders.amount CONDITIONAL",
    }


def test_update_delete_and_overwrite_read_the_table_itself(
    told: Workspace, spark: SparkSession
) -> None:
    catalog = told.settings.catalog.name
    with odi.run("sales/fix", lake=told, spark=spark) as run:
        run.update(
            "s.cust", where="id = 2", set={"name": "concat(name, id, 'x')", "info.a": "id + 1"}
        )
        updated = kept(told)["s.cust"]["column_lineage"]
        run.delete("s.cust", where=f"id IN (SELECT cust FROM {catalog}.s.orders WHERE amount > 1)")
        deleted = kept(told)["s.cust"]["column_lineage"]
        rows = spark.range(1).selectExpr("id", "'x' AS name", "1L AS amount")
        run.overwrite(rows, "s.wide", where="amount = 5", offsets=odi.once("o"))
        replaced = kept(told)["s.wide"]["column_lineage"]
        run.compact("s.cust")
        assert kept(told)["s.cust"] == {}
    assert edges(updated) == {
        "name": {"s.cust.name TRANSFORMATION", "s.cust.id TRANSFORMATION"},
        "info": {"s.cust.info TRANSFORMATION", "s.cust.id TRANSFORMATION"},
        "*": {"s.cust.id FILTER"},
    }
    assert edges(deleted) == {
        "*": {"s.cust.id FILTER", "s.orders.cust FILTER", "s.orders.amount FILTER"}
    }
    assert edges(replaced) == {"*": {"s.wide.amount FILTER"}}
    assert replaced["unknown"] == [], "what is written in the statement rests on nothing"


def test_each_table_of_a_batch_has_its_own(told: Workspace, spark: SparkSession) -> None:
    frame = joined(told, spark)
    with (
        odi.run("sales/both", lake=told, spark=spark) as run,
        run.batch(offsets=odi.once("two")) as batch,
    ):
        batch.append(spark.table(f"{told.settings.catalog.name}.s.orders"), "s.orders")
        batch.append(frame, "s.wide")
    found = {table: edges(item["column_lineage"]) for table, item in kept(told).items()}
    assert found["s.orders"]["cust"] == {"s.orders.cust IDENTITY"}
    assert found["s.wide"]["id"] == {"s.orders.id IDENTITY"}


def test_a_stream_is_connected_to_its_source_and_kept_once(
    told: Workspace, spark: SparkSession, tmp_path: Path
) -> None:
    folder = str(tmp_path / "files")
    rows = spark.range(4).selectExpr("id", "concat('f', id) AS name", "id AS amount")
    rows.repartition(2).write.parquet(folder)
    source = spark.readStream.schema("id bigint, name string, amount bigint")
    stream = source.option("maxFilesPerTrigger", 1).parquet(folder)
    stream = stream.selectExpr("id", "lower(name) AS name", "amount").where("id >= 0")
    query = (
        stream.writeStream.foreachBatch(odi.sink("sales/stream", table="s.wide", lake=told))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    intents = told.ledger().find(EntryFilter(kinds=(Kind.INTENT,), job="sales/stream"))  # type: ignore[arg-type]
    facts = [entry.facts["operations"][0] for entry in intents]  # type: ignore[index, call-overload]
    assert len(facts) >= 2, "the files were to come one by one"
    assert edges(facts[0]["column_lineage"]) == {  # type: ignore[index, call-overload, arg-type]
        "id": {f"{folder}.id IDENTITY"},
        "name": {f"{folder}.name TRANSFORMATION"},
        "amount": {f"{folder}.amount IDENTITY"},
        "*": {f"{folder}.id FILTER"},
    }
    for later in facts[1:]:
        assert later["column_lineage_at"] == intents[0].index  # type: ignore[index, call-overload]


def test_what_a_caller_does_to_a_micro_batch_is_followed_or_unknown_never_wrong(
    told: Workspace, spark: SparkSession, tmp_path: Path
) -> None:
    catalog = told.settings.catalog.name
    found: dict[str, Mapping[str, Any]] = {}

    def look(frame: DataFrame, _number: int) -> None:
        twice = (
            frame.alias("a").join(frame.alias("b"), "id").selectExpr("a.name AS n", "b.name AS m")
        )
        held = frame.filter("id > 1").localCheckpoint()
        other = frame.sparkSession.createDataFrame([(1, "x")], "id bigint, name string")
        enriched = frame.join(spark.table(f"{catalog}.s.cust"), "id").select(frame["name"], "info")
        for name, plan in {
            "twice": twice,
            "held": held,
            "other": other,
            "enriched": enriched,
        }.items():
            found[name] = of_frame(plan)

    stream = spark.readStream.table(f"{catalog}.s.cust").selectExpr("id", "upper(name) AS name")
    query = (
        stream.writeStream.foreachBatch(look)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    assert edges(found["twice"]) == {
        "n": {"s.cust.name TRANSFORMATION"},
        "m": {"s.cust.name TRANSFORMATION"},
        "*": {"s.cust.id JOIN"},
    }
    assert found["held"]["unknown"] == ["id", "name"], "a checkpoint hides what was done before"
    assert found["other"]["unknown"] == ["id", "name"]
    assert edges(found["enriched"])["name"] == {"s.cust.name TRANSFORMATION"}
    assert edges(found["enriched"])["info"] == {"s.cust.info IDENTITY"}


def test_changes_that_were_read_for_a_consumer_know_their_table(
    told: Workspace, spark: SparkSession
) -> None:
    with (
        odi.run("sales/copy", lake=told, spark=spark) as run,
        odi.read_changes("s.orders", consumer="copy", run=run) as reading,
    ):
        frame = reading.to_spark()
        rows = frame.selectExpr("id", "_change AS name", "CAST(amount AS bigint) AS amount")
        run.append(rows, "s.wide", offsets=odi.once("changes"))
    fact = kept(told)["s.wide"]["column_lineage"]
    assert edges(fact)["id"] == {"s.orders.id IDENTITY"}
    assert edges(fact)["amount"] == {"s.orders.amount TRANSFORMATION"}
    assert fact["unknown"] == []


def test_time_travel_names_the_snapshot_that_was_read(told: Workspace, spark: SparkSession) -> None:
    name = f"{told.settings.catalog.name}.s.orders"
    old = told.catalog().load(odi_table("s.orders")).current_snapshot
    with odi.run("sales/more", lake=told, spark=spark) as run:
        run.append(spark.table(name), "s.orders", offsets=odi.once("again"))
    then = spark.read.option("versionAsOf", old).table(name)
    now = spark.table(name)
    assert [item["snapshot"] for item in of_frame(then)["inputs"]] == [old]  # type: ignore[union-attr, index, call-overload]
    assert [item["snapshot"] for item in of_frame(now)["inputs"]] != [old]  # type: ignore[union-attr, index, call-overload]


def test_a_plan_that_is_too_large_is_unknown_and_lands_all_the_same(
    told: Workspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "CELLS_MAX", 3)
    frame = joined(told, spark)
    with pytest.raises(TooLarge):
        of_frame(frame)
    with odi.run("sales/wide", lake=told, spark=spark) as run:
        receipt = run.append(frame, "s.wide", offsets=odi.once("large"))
    assert receipt.fresh
    fact = kept(told)["s.wide"]["column_lineage"]
    assert fact["unknown"] == ["amount", "id", "name"]
    assert fact["reasons"] == ["too large"]
    assert fact["fields"] == {}


def test_an_error_while_reading_a_plan_never_reaches_the_commit(
    told: Workspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("odi_audit.spark.plan.reader.read", broken)
    with odi.run("sales/wide", lake=told, spark=spark) as run:
        assert run.append(joined(told, spark), "s.wide", offsets=odi.once("broken")).fresh
        assert run.update("s.cust", where="id = 1", set={"name": "'x'"}).fresh
    fact = kept(told)["s.cust"]["column_lineage"]
    assert (fact["unknown"], fact["reasons"]) == (["name"], ["not read: ZeroDivisionError"])


def test_a_deep_plan_is_read_without_running_out_of_stack(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("id", "id AS total")
    terms = " OR ".join(f"id = {number}" for number in range(800))
    frame = frame.where(terms)
    for step in range(150):
        frame = frame.selectExpr("id", f"total + {step} AS total")
    assert of_frame(frame)["unknown"] == []


def test_the_password_of_a_database_is_nowhere_in_the_fact(
    spark: SparkSession, tmp_path: Path
) -> None:
    import sqlite3

    sqlite3.connect(tmp_path / "shop.db").execute("CREATE TABLE t (id INTEGER)").connection.close()
    url = f"jdbc:sqlite:{tmp_path}/shop.db"
    reader = spark.read.format("jdbc").option("url", url).option("password", "hunter2-secret")
    reader = reader.option("driver", "org.sqlite.JDBC")
    fact = of_frame(reader.option("dbtable", "t").load())
    # SQLite's URL names no host, so the table has no name by which others would know it.
    assert fact["unknown"] == ["id"]
    assert "hunter2" not in json.dumps(fact)


def test_the_complete_event_has_the_facet_and_every_input_with_its_schema(
    told: Workspace, spark: SparkSession
) -> None:
    with odi.run("sales/wide", lake=told, spark=spark) as run:
        run.append(joined(told, spark), "s.wide", offsets=odi.once("a"))
    event = [item for item in _events(told) if item["outputs"]][-1]
    assert event["eventType"] == "COMPLETE"
    (output,) = event["outputs"]
    facet = output["facets"]["columnLineage"]
    assert set(facet["fields"]) == {"id", "name", "amount"}
    (edge,) = facet["fields"]["name"]["inputFields"]
    inputs = {(item["namespace"], item["name"]): item for item in event["inputs"]}
    schema = inputs[edge["namespace"], edge["name"]]["facets"]["schema"]["fields"]
    assert edge["field"] in {field["name"] for field in schema}
    assert edge["transformations"] == [{"subtype": "TRANSFORMATION", "type": "DIRECT"}]
    assert {item["field"] for item in facet["dataset"]} == {"cust", "id", "amount"}


def _events(lake: Workspace) -> list[dict[str, Any]]:
    ledger = lake.ledger()
    context = LedgerContext(ledger)
    return [
        json.loads(event.body) for entry in ledger.scan() for event in events_of(entry, context)
    ]
