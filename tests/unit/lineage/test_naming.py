"""Names of datasets: equal to those that openlineage-spark gives."""

from __future__ import annotations

import pytest
from openlineage.client.naming.dataset import Kafka, Postgres

from lineage.naming import (
    DatasetName,
    accepted,
    of_database,
    of_file,
    of_location,
    of_source,
    of_topic,
)
from odi_audit.errors import UsageError


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/lake/sales/orders", "file", "/lake/sales/orders"),
        ("file:/lake/sales/orders", "file", "/lake/sales/orders"),
        ("file:///lake/sales/orders/", "file", "/lake/sales/orders"),
        ("/lake/Öd d/a%20b", "file", "/lake/Öd d/a%20b"),
        ("/", "file", "/"),
        ("s3://bucket/sales/orders", "s3://bucket", "sales/orders"),
        ("s3a://bucket/sales/orders/", "s3://bucket", "sales/orders"),
        ("S3N://bucket", "s3://bucket", "/"),
        ("gs://bucket/a", "gs://bucket", "a"),
        ("hdfs://nn:8020/lake/a", "hdfs://nn:8020", "/lake/a"),
        ("abfss://box@acc.dfs/lake", "abfss://box@acc.dfs", "/lake"),
    ],
)
def test_a_location_is_named_by_scheme_and_path(location: str, namespace: str, name: str) -> None:
    assert of_location(location) == DatasetName(namespace=namespace, name=name)


@pytest.mark.parametrize("location", ["", "lake/orders", "file:lake", "s3:///orders"])
def test_a_location_that_names_no_place_is_refused(location: str) -> None:
    with pytest.raises(UsageError):
        of_location(location)


def test_a_file_is_named_by_its_absolute_path() -> None:
    assert of_file("/in/a b.csv") == DatasetName(namespace="file", name="/in/a b.csv")
    with pytest.raises(UsageError):
        of_file("in/a.csv")


@pytest.mark.parametrize(
    ("bootstrap", "namespace"),
    [
        ("broker:9092", "kafka://broker:9092"),
        ("one:9092,two:9093", "kafka://one:9092"),
        ("SASL_SSL://one:9093, two:9093", "kafka://one:9093"),
        ("[::1]:9092", "kafka://[::1]:9092"),
    ],
)
def test_a_topic_is_named_by_the_first_server(bootstrap: str, namespace: str) -> None:
    assert of_topic(bootstrap, "orders") == DatasetName(namespace=namespace, name="orders")


@pytest.mark.parametrize(("bootstrap", "topic"), [("broker", "t"), ("", "t"), ("b:9092", "")])
def test_a_topic_without_server_port_or_name_is_refused(bootstrap: str, topic: str) -> None:
    with pytest.raises(UsageError):
        of_topic(bootstrap, topic)


@pytest.mark.parametrize(
    ("url", "table", "namespace", "name"),
    [
        ("jdbc:postgresql://h/shop", "public.orders", "postgres://h:5432", "shop.public.orders"),
        ("postgres://h:6432/shop", None, "postgres://h:6432", "shop"),
        ("postgresql://ana:pw@h/shop?sslmode=require", "a.b", "postgres://h:5432", "shop.a.b"),
        ("jdbc:mysql://h/shop;x=1", "t", "mysql://h:3306", "shop.t"),
        ("jdbc:sqlserver://h:1433", "dbo.t", "sqlserver://h:1433", "dbo.t"),
    ],
)
def test_a_database_is_named_without_login_and_parameters(
    url: str, table: str | None, namespace: str, name: str
) -> None:
    assert of_database(url, table) == DatasetName(namespace=namespace, name=name)


def test_a_postgresql_table_has_the_name_that_openlineage_gives_it() -> None:
    theirs = Postgres(host="h", port="5432", database="shop", schema="public", table="orders")
    ours = of_database("jdbc:postgresql://h:5432/shop", "public.orders")
    assert (ours.namespace, ours.name) == (theirs.get_namespace(), theirs.get_name())
    topic = Kafka(bootstrap_server_host="b", port="9092", topic="orders")
    named = of_topic("b:9092,c:9092", "orders")
    assert (named.namespace, named.name) == (topic.get_namespace(), topic.get_name())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("kafka://b:9092/orders", ("kafka://b:9092", "orders")),
        ("file:///in/day", ("file", "/in/day")),
        ("/in/day", ("file", "/in/day")),
        ("s3a://box/in", ("s3://box", "in")),
        ("postgres://h/shop.public.orders", ("postgres://h:5432", "shop.public.orders")),
        ("https://ana:pw@host/feed", ("https://host", "/feed")),
        ("orders queue", ("odi", "orders queue")),
        ("urn:feed:1", ("odi", "urn:feed:1")),
        ("s3://", ("odi", "s3://")),
        ("kafka://b:9092", None),
    ],
)
def test_a_source_is_named_as_far_as_it_says_what_it_is(
    source: str, expected: tuple[str, str] | None
) -> None:
    found = of_source(source)
    assert (None if found is None else (found.namespace, found.name)) == expected


def test_a_namespace_that_marquez_would_refuse_is_made_acceptable() -> None:
    assert accepted("kafka://[::1]:9092") == "kafka://_::1_:9092"
    assert accepted("s3://my-bucket.x_1@a+b") == "s3://my-bucket.x_1@a+b"
    assert accepted("") == "_"
    assert len(accepted("x" * 5000)) == 1024
