"""Tables before format v3: everything works, and nothing is promised that cannot be kept."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import odi_audit as odi
from odi_audit import logs
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.tables import parse
from odi_audit.query.trace import Confidence, trace
from odi_audit.query.verify import verify
from tests.support.independent import Eyes
from tests.support.story import COLUMNS, TABLE, Teller, at, check_landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_audit.workspace import Workspace


def check_rewrote(eyes: Eyes, entry: Entry) -> None:
    """Compare what a record says of rewritten files with the files before and after it."""
    found = entry.facts.get("rewrote", {})
    assert found == eyes.rewrote(TABLE, str(entry.facts["snapshot"])), entry.facts["operation"]


def test_a_v2_table_works_with_file_confidence_and_is_told_how_to_upgrade(
    lake: Workspace, spark: SparkSession
) -> None:
    eyes, name, stream = Eyes.on(lake.root), parse(TABLE), io.StringIO()
    logs.configure("json", "warning", stream=stream)
    try:
        with odi.run("sales/orders", lake=lake) as run:
            run.create_table(
                TABLE, COLUMNS, partitioned_by=["region"], properties={"format-version": "2"}
            )
            for operation, commit, rows in Teller(run=run, spark=spark).steps():
                receipt = commit()
                assert receipt.confidence == "file"
                check_landed(eyes, lake.ledger(), receipt, operation)
                assert eyes.rows(TABLE) == sorted(rows.values(), key=str), operation
    finally:
        logs.configure("auto", "info")
    assert eyes.metadata(TABLE)["format-version"] == 2
    warnings = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["format_version"] for line in warnings} == {2}
    upgrade = warnings[0]["upgrade"]
    assert verify(lake.ledger(), lake.catalog()) == []
    landed = lake.ledger().find(EntryFilter(kinds=(Kind.LANDED,)))
    for entry in landed:
        check_rewrote(eyes, entry)
    assert {entry.facts["operation"] for entry in landed if "rewrote" in entry.facts} == {
        "compact",
        "delete",
        "overwrite",
        "overwrite_partitions",
    }
    (row,) = trace(lake.ledger(), lake.catalog(), name, "id = 0")
    assert row.birth.confidence is not Confidence.EXACT
    # The statement that the warning gives is the one that works.
    spark.sql(upgrade)
    with odi.run("sales/orders", lake=lake) as run:
        receipt = run.append(Teller(run=run, spark=spark).frame(60, 61), TABLE, offsets=at(40, 41))
    assert receipt.confidence == "exact"
    assert receipt.landing.first_row_id is not None
    (row,) = trace(lake.ledger(), lake.catalog(), name, "id = 60")
    assert (row.birth.batch, row.birth.confidence) == (receipt.batch, Confidence.EXACT)
