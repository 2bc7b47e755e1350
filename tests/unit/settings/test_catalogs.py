"""One catalog, named to Spark and to pyiceberg alike."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import make_url

from odi_audit.settings import (
    Settings,
    catalog_pyiceberg_properties,
    catalog_spark_conf,
    jar_sets,
    load,
)


def settings(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    (tmp_path / "odi.toml").write_text(text, "utf-8")
    return load(tmp_path, env or {}).settings


def test_sqlite_is_one_file_on_both_sides(tmp_path: Path) -> None:
    made = settings(tmp_path, "")
    conf = catalog_spark_conf(made)
    properties = catalog_pyiceberg_properties(made)
    file = str(tmp_path / "catalog.db")
    assert conf["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert conf["spark.sql.catalog.lake.type"] == "jdbc"
    assert conf["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{file}"
    assert conf["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"
    assert conf["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert properties["type"] == "sql"
    assert make_url(properties["uri"]).database == file
    assert conf["spark.sql.catalog.lake.warehouse"] == properties["warehouse"]
    assert jar_sets(made) == ("core",)


def test_a_postgresql_login_reaches_both_sides_with_odd_characters_whole(tmp_path: Path) -> None:
    made = settings(
        tmp_path,
        '[catalog]\ntype = "postgresql"\nuri = "postgresql://db:5433/x?sslmode=require"\n'
        'user = "a@b"',
        {"ODI_CATALOG__PASSWORD": "p:/@%&w"},
    )
    conf = catalog_spark_conf(made)
    assert conf["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db:5433/x?sslmode=require"
    assert conf["spark.sql.catalog.lake.jdbc.user"] == "a@b"
    assert conf["spark.sql.catalog.lake.jdbc.password"] == "p:/@%&w"
    url = make_url(catalog_pyiceberg_properties(made)["uri"])
    assert (url.drivername, url.username, url.password) == ("postgresql+psycopg", "a@b", "p:/@%&w")
    assert (url.host, url.port, url.database) == ("db", 5433, "x")
    assert url.query["sslmode"] == "require"
    assert jar_sets(made) == ("core", "postgresql")


def test_a_login_in_the_url_is_taken_out_for_jdbc_which_would_not_read_it(tmp_path: Path) -> None:
    made = settings(tmp_path, '[catalog]\ntype = "postgresql"\nuri = "postgresql://u:s%20s@db/x"')
    conf = catalog_spark_conf(made)
    assert conf["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db/x"
    assert conf["spark.sql.catalog.lake.jdbc.password"] == "s s"


def test_rest_is_passed_through_with_its_credential(tmp_path: Path) -> None:
    made = settings(
        tmp_path,
        '[catalog]\ntype = "rest"\nname = "prod"\nuri = "https://catalog/api"\nwarehouse = "w1"\n'
        'user = "client"\n[catalog.properties]\nscope = "all"',
        {"ODI_CATALOG__PASSWORD": "secret"},
    )
    expected = {"uri": "https://catalog/api", "warehouse": "w1", "credential": "client:secret"}
    expected |= {"type": "rest", "scope": "all"}
    assert catalog_pyiceberg_properties(made) == expected
    conf = catalog_spark_conf(made)
    assert {key: conf[f"spark.sql.catalog.prod.{key}"] for key in expected} == expected


def test_rest_without_a_warehouse_leaves_it_to_the_server(tmp_path: Path) -> None:
    made = settings(tmp_path, '[catalog]\ntype = "rest"\nuri = "https://catalog"')
    assert "warehouse" not in catalog_pyiceberg_properties(made)


def test_a_warehouse_on_s3_brings_its_jars_and_its_file_io(tmp_path: Path) -> None:
    made = settings(tmp_path, '[catalog]\nwarehouse = "s3://bucket/lake"')
    assert jar_sets(made) == ("core", "s3")
    conf = catalog_spark_conf(made)
    assert conf["spark.sql.catalog.lake.warehouse"] == "s3://bucket/lake"
    assert conf["spark.sql.catalog.lake.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
