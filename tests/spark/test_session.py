"""A real Spark on a real lake: what the session is, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from odi_audit.clock import SystemClock
from odi_audit.doctor import State, examine
from odi_audit.errors import SparkError
from odi_audit.model.tables import TableName
from odi_audit.spark import listing
from odi_audit.spark.session import session_in
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Workspace]
ODD = "Öd`d \"T'able"


def test_a_new_table_is_v3_and_both_sides_see_it_under_the_same_name(
    jvm: SparkSession, make_lake: Make
) -> None:
    lake = make_lake("läke with space")
    lake.use_spark(session_in(jvm, lake.settings))
    name = TableName(("Sales", "inner", ODD))
    spark = lake.spark()
    spark.sql("CREATE NAMESPACE lake.Sales")
    spark.sql("CREATE NAMESPACE lake.Sales.inner")
    spark.sql(f"CREATE TABLE {name.sql('lake')} (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {name.sql('lake')} VALUES (1)")
    assert listing.tables(spark, "lake") == [name] == lake.catalog().tables()
    rows = spark.sql(f"SHOW TBLPROPERTIES {name.sql('lake')}").collect()
    properties = {row["key"]: row["value"] for row in rows}
    assert properties["format-version"] == "3"
    assert properties["write.merge.mode"] == "merge-on-read"
    assert properties["write.wap.enabled"] == "true"
    (check,) = [
        check for check in examine(lake, clock=SystemClock(), spark=True) if check.name == "spark"
    ]
    assert check.state is State.OK
    assert "same 1 tables" in check.message


def test_the_doctor_finds_tables_that_only_one_side_sees(
    jvm: SparkSession, make_lake: Make
) -> None:
    lake, other = make_lake("one"), make_lake("other")
    spark = session_in(jvm, other.settings)
    spark.sql("CREATE NAMESPACE lake.db")
    spark.sql("CREATE TABLE lake.db.lonely (id BIGINT) USING iceberg")
    lake._spark = spark
    check = list(examine(lake, clock=SystemClock(), spark=True))[-1]
    assert check.state is State.FAIL
    assert "db.lonely" in check.message


def test_a_session_of_another_lake_is_refused_with_what_it_lacks(
    jvm: SparkSession, make_lake: Make
) -> None:
    lake = make_lake()
    with pytest.raises(SparkError) as caught:
        lake.use_spark(jvm)
    lacking = caught.value.facts["lacking"]
    assert isinstance(lacking, list)
    assert set(lacking) == {"spark.sql.catalog.lake.uri", "spark.sql.catalog.lake.warehouse"}


def test_a_second_session_leaves_the_first_on_its_own_lake(
    jvm: SparkSession, make_lake: Make
) -> None:
    before = jvm.conf.get("spark.sql.catalog.lake.uri")
    lake = make_lake()
    made = session_in(jvm, lake.settings)
    assert jvm.conf.get("spark.sql.catalog.lake.uri") == before
    assert made.conf.get("spark.sql.catalog.lake.uri") != before


def test_times_are_utc(jvm: SparkSession) -> None:
    assert jvm.conf.get("spark.sql.session.timeZone") == "UTC"


def test_an_analysis_error_is_raised_without_a_line_on_stderr(
    jvm: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException):
        jvm.sql("SELECT nope FROM lake.no.where")
    assert capfd.readouterr().err == ""


STORY = """
import json, sys
from pathlib import Path
from odi_audit.errors import SparkError
from odi_audit.spark.session import session
from odi_audit.workspace import Workspace
one = Workspace.find(Path(sys.argv[1]), overrides={"spark.master": "local[1]"})
two = Workspace.find(Path(sys.argv[2]), overrides={"spark.master": "local[1]"})
made = one.spark("first")
again = session(one.settings, app_name="second") is made
try:
    session(two.settings, app_name="third")
    refused = None
except SparkError as error:
    refused = error.code
workers = made.sparkContext.pythonExec
print(json.dumps({"again": again, "refused": refused, "workers": workers}))
made.stop()
"""


def test_a_fitting_active_session_is_used_again_and_any_other_refused(make_lake: Make) -> None:
    one, two = make_lake("one"), make_lake("two")
    done = subprocess.run(
        [sys.executable, "-c", STORY, str(one.root), str(two.root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "again": True,
        "refused": "ODI-J03",
        "workers": sys.executable,
    }
    assert "WARN " not in done.stderr
    assert not (one.root / "spark-warehouse").exists()
