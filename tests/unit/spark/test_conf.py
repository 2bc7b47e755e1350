"""The Spark conf of a lake, and the pinned list behind it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from odi_audit.settings import Settings, load
from odi_audit.spark import jars
from odi_audit.spark.conf import spark_conf


def settings(tmp_path: Path, text: str = "") -> Settings:
    (tmp_path / "odi.toml").write_text(text, "utf-8")
    return load(tmp_path, {"ODI_JARS_DIR": str(tmp_path / "jars")}).settings


def test_new_tables_are_v3_merge_on_read_with_128_mb_files_and_staging(tmp_path: Path) -> None:
    conf = spark_conf(settings(tmp_path))
    prefix = "spark.sql.catalog.lake.table-default."
    assert {key.removeprefix(prefix): conf[key] for key in conf if key.startswith(prefix)} == {
        "format-version": "3",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "write.target-file-size-bytes": "134217728",
        "write.parquet.row-group-size-bytes": "16777216",
        "write.distribution-mode": "hash",
        "write.wap.enabled": "true",
    }


def test_jars_are_plain_local_paths_so_that_nothing_is_resolved_at_start(tmp_path: Path) -> None:
    conf = spark_conf(settings(tmp_path))
    paths = conf["spark.jars"].split(",")
    assert all(path.startswith(str(tmp_path / "jars")) for path in paths)
    assert not any("packages" in key or "ivy" in key for key in conf)


def test_what_the_user_sets_wins(tmp_path: Path) -> None:
    text = '[spark]\nshuffle_partitions = 3\n[spark.conf]\n"spark.ui.enabled" = "true"'
    conf = spark_conf(settings(tmp_path, text))
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.sql.shuffle.partitions"] == "3"


def test_a_cluster_keeps_its_own_host_and_partitions(tmp_path: Path) -> None:
    conf = spark_conf(settings(tmp_path, '[spark]\nmaster = "spark://host:7077"'))
    assert "spark.driver.host" not in conf
    assert "spark.sql.shuffle.partitions" not in conf


def test_the_log_configuration_is_shipped(tmp_path: Path) -> None:
    option = spark_conf(settings(tmp_path))["spark.driver.extraJavaOptions"]
    file = Path(option.removeprefix("-Dlog4j2.configurationFile=file://"))
    assert "rootLogger" in file.read_text("utf-8")


def test_every_pinned_jar_has_a_digest_a_size_and_a_set() -> None:
    pinned = jars.pinned()
    assert len({jar.file_name for jar in pinned}) == len(pinned)
    for jar in pinned:
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert jar.size_bytes > 0
        assert set(jar.sets) <= {"core", "postgresql", "s3", "listener"}
        assert "SNAPSHOT" not in jar.version


def test_printing_the_conf_does_not_import_pyspark(run_python: Callable[[str], str]) -> None:
    loaded = run_python("import sys, odi_audit.spark.conf\nprint('pyspark' in sys.modules)")
    assert loaded.strip() == "False"
