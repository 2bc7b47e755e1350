"""Names of datasets: equal to those that openlineage-spark gives."""

from __future__ import annotations

import pytest

from lineage.naming import DatasetName, of_file, of_location, of_topic
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
