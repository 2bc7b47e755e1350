"""``report``: rows, the head they rest on, and forms that are safe to hand on."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from odi_audit.clock import SystemClock
from odi_audit.errors import UsageError
from odi_audit.ids import BatchId, JobName
from odi_audit.ledger import note, open_ledger
from odi_audit.ledger.seal import seal
from odi_audit.model.entries import Draft, Kind
from odi_audit.model.findings import Finding
from odi_audit.model.tables import parse
from odi_audit.query.lookup import find_named
from odi_audit.query.report_page import page_parts
from odi_audit.query.reports import (
    Basis,
    Report,
    ReportName,
    csv_line,
    csv_parts,
    json_parts,
    make_report,
    rest_on,
)

if TYPE_CHECKING:
    from conftest import Bench

KEY = note.signing_key("example.org/test", bytes(range(32)))
NOW = "2026-11-30T00:00:00.000000Z"


def basis(bench: Bench, key: note.SigningKey | None = KEY, *, check: bool = True) -> Basis:
    return rest_on(bench.ledger, key=key, verifiers=[KEY.verifier], heads=(), check=check)  # type: ignore[arg-type]


def report(bench: Bench, name: str, *tables: str, **more: Any) -> Report:
    named = [find_named(bench.ledger, bench.catalog, parse(table)) for table in tables]
    more.setdefault("basis", basis(bench))
    return make_report(
        bench.ledger, bench.catalog, ReportName(name), made_at=NOW, tables=named or None, **more
    )


def rows(bench: Bench, name: str, *tables: str, **more: Any) -> list[dict[str, Any]]:
    made = report(bench, name, *tables, **more)
    return [dict(zip(made.columns, row, strict=True)) for row in made.rows]


def test_writes_lists_what_landed_with_who_and_what(bench: Bench) -> None:
    first, second = bench.land(), bench.land()
    back = bench.note(Kind.ROLLBACK, operation="rollback", undone=[second])
    bench.settle(bench.intend(), Kind.REFUSED, reason="bad")
    found = rows(bench, "writes")
    assert [row["batch"] for row in found] == [first, second]
    assert [row["undone_by"] for row in found] == [None, back.index]
    assert found[0]["rows"] == 10
    assert found[0]["offsets"] == "p0 [0, 10)"
    assert found[0]["job"] == "sales/orders"


def test_schema_changes_show_columns_before_and_after(bench: Bench) -> None:
    field = {"id": 1, "name": "id", "type": "long", "required": True}
    nested = {"id": 2, "name": "at", "type": {"type": "struct", "fields": []}, "required": False}
    bench.note(Kind.TABLE_CREATED, operation="create_table", schema={"fields": [field]})
    bench.note(
        Kind.SCHEMA_CHANGE, operation="evolve_schema", steps=[["add", "at", "struct"]],
        before={"fields": [field]}, after={"fields": [field, nested]}, principal="bo",
    )  # fmt: skip
    created, changed = rows(bench, "schema-changes")
    assert (created["change"], created["columns_after"]) == ("table created", "id long")
    assert (changed["change"], changed["columns_before"], changed["columns_after"]) == (
        "add at struct", "id long", "id long, at struct",
    )  # fmt: skip
    assert changed["principal"] == "bo"


def deletion(bench: Bench, op: str, counts: dict[str, int], where: str | None = None) -> BatchId:
    """Record an operation that takes rows away, with its condition in the intent."""
    uuid = bench.state().ref.uuid
    made = bench.intend(op=op)
    operation = {"op": op, "table": "sales.orders", "table_uuid": uuid, "work": "w",
                 "arguments": {"where": where}}  # fmt: skip
    facts = {**made.facts, "operations": [operation]}
    intent = bench.ledger.append(
        Draft(kind=Kind.INTENT, job=made.job, batch=BatchId(f"b-{op}"), facts=facts)
    )[0]
    bench.ledger.append(
        Draft(
            kind=Kind.LANDED, job=made.job, batch=intent.batch, table=bench.state().ref,
            intent=intent.index, settles=True,
            facts={"operation": op, "counts": counts, "snapshot": "5", "principal": "ana"},
        )
    )  # fmt: skip
    return BatchId(f"b-{op}")


def test_deletions_count_rows_by_the_kind_of_operation(bench: Bench) -> None:
    bench.land()
    deletion(bench, "delete", {"added-position-deletes": 3}, "name = '?'")
    deletion(bench, "upsert", {"rows-deleted": 2, "added-records": 9})
    deletion(bench, "overwrite", {"deleted-records": 7, "added-records": 1})
    deletion(bench, "update", {"added-records": 4, "added-position-deletes": 4})
    bench.note(Kind.ROLLBACK, operation="rollback", to="1", undone=["b-x"])
    bench.note(Kind.ERASURE, operation="erase", counts={"rows": 6})
    found = rows(bench, "deletions")
    shown = [(row["operation"], row["rows_deleted"], row["condition"]) for row in found]
    assert shown == [
        ("delete", 3, "name = '?'"), ("upsert", 2, None), ("overwrite", 7, None),
        ("rollback", None, None), ("erase", 6, None),
    ]  # fmt: skip
    assert {row["foreign"] for row in found} == {False}


def test_a_foreign_deletion_is_among_the_deletions(bench: Bench) -> None:
    bench.write()
    bench.table().delete("id < 4", snapshot_properties={"engine-name": "py", "user": "eve"})
    (found,) = [row for row in rows(bench, "deletions") if row["foreign"]]
    assert found["rows_deleted"] >= 4
    assert found["principal"] == "eve"
    assert "py" in found["detail"]


def test_replays_and_gaps_hold_the_refused_ones_too(bench: Bench) -> None:
    bench.land()
    bench.places["topic"] = 50
    bench.land()
    bench.settle(bench.intend(), Kind.REFUSED, code="ODI-G05", reason="overlaps")
    bench.settle(bench.intend(), Kind.REFUSED, code="ODI-G03", reason="a rule, not offsets")
    found = rows(bench, "replays-and-gaps")
    shown = [(row["what"], row["standing"], row["start"], row["end"]) for row in found]
    assert shown == [("gap", "open", 10, 50), ("overlap", "refused", None, None)]


def test_foreign_writes_name_their_writer(bench: Bench) -> None:
    bench.land()
    snapshot = bench.write({"engine-name": "spark", "app-id": "a-1"})
    (found,) = rows(bench, "foreign-writes")
    assert (found["snapshot"], found["engine"], found["application"]) == (snapshot, "spark", "a-1")
    assert found["rows_written"] == 10


def test_retention_says_what_is_kept_and_who_expired_what(bench: Bench) -> None:
    bench.create("sales.empty")
    bench.land()
    bench.note(
        Kind.MAINTENANCE, operation="expire", expired=["1", "2"], principal="bo",
        older_than="2026-10-01", retain_last=1,
    )  # fmt: skip
    found = rows(bench, "retention")
    assert [(row["table"], row["what"]) for row in found] == [
        ("sales.empty", "retained"), ("sales.orders", "retained"), ("sales.orders", "expiry"),
    ]  # fmt: skip
    empty, kept, expiry = found
    assert (empty["snapshots"], empty["ledger_since"]) == (0, None)
    assert kept["oldest_snapshot"] == bench.state().snapshots[0].id
    assert kept["ledger_landed_snapshots"] == 1
    assert (expiry["snapshots"], expiry["principal"]) == (2, "bo")
    bench.writer.drop_table(("sales", "orders"))
    assert rows(bench, "retention")[1]["what"] == "table gone"


def test_a_drop_shows_among_schema_changes_deletions_and_in_retention(bench: Bench) -> None:
    bench.land()
    dropped = bench.note(
        Kind.TABLE_DROPPED, operation="drop_table", purge=True, principal="bo",
        totals={"total-records": 10},
    )  # fmt: skip
    bench.writer.drop_table(("sales", "orders"))
    (change,) = rows(bench, "schema-changes", "sales.orders")
    assert (change["change"], change["batch"]) == ("table dropped", dropped.batch)
    (deletion,) = rows(bench, "deletions")
    assert (deletion["operation"], deletion["rows_deleted"]) == ("drop_table", 10)
    (kept,) = rows(bench, "retention")
    assert (kept["what"], kept["time"], kept["principal"]) == ("table dropped", dropped.time, "bo")
    assert kept["detail"] == "10 rows; its files were deleted"


def test_a_rename_shows_among_schema_changes_and_retention_has_the_new_name(bench: Bench) -> None:
    bench.land()
    bench.writer.rename_table(("sales", "orders"), ("sales", "moved"))
    entry = bench.note(
        Kind.TABLE_RENAMED, "sales.moved", operation="rename_table", from_name="sales.orders",
        to_name="sales.moved", principal="bo",
    )  # fmt: skip
    for name in ("sales.orders", "sales.moved"):
        (change,) = rows(bench, "schema-changes", name)
        assert (change["table"], change["change"], change["principal"], change["batch"]) == (
            "sales.moved", "table renamed from sales.orders to sales.moved", "bo", entry.batch,
        )  # fmt: skip
    assert rows(bench, "deletions") == []
    (kept,) = rows(bench, "retention")
    assert (kept["table"], kept["what"]) == ("sales.moved", "retained")
    bench.writer.drop_table(("sales", "moved"))
    (kept,) = rows(bench, "retention")
    assert (kept["table"], kept["what"]) == ("sales.moved", "table gone"), "under its last name"


def test_access_lists_recorded_reads(bench: Bench) -> None:
    bench.ledger.append(
        Draft(
            kind=Kind.READ, job=JobName("bi/board"), table=bench.state().ref,
            facts={"consumer": "board", "principal": "eve", "from_snapshot": "1",
                   "to_snapshot": "2", "rows": 12, "columns": ["id", "region"]},
        )
    )  # fmt: skip
    (found,) = rows(bench, "access")
    assert (found["consumer"], found["principal"], found["rows"]) == ("board", "eve", 12)
    assert (found["from_snapshot"], found["to_snapshot"]) == ("1", "2")
    assert found["columns"] == "id, region"


def test_a_period_and_tables_narrow_every_report(bench: Bench) -> None:
    bench.create("sales.other")
    bench.land()
    middle = bench.ledger.get(bench.ledger.head().size - 1).time
    other = bench.land("sales.other")
    assert [row["batch"] for row in rows(bench, "writes", "sales.other")] == [other]
    both = rows(bench, "writes", "sales.other", "sales.orders")
    assert len(both) == 2
    assert len(rows(bench, "writes", until=middle)) == 0
    assert [row["batch"] for row in rows(bench, "writes", since=middle)][-1] == other
    for name in ReportName:
        assert rows(bench, name.value, since="2030", until="2031") is not None
    with pytest.raises(UsageError, match="ends"):
        report(bench, "writes", since=middle, until=middle)


def test_entries_that_came_after_the_head_are_left_out(bench: Bench) -> None:
    bench.land()
    before = basis(bench)
    bench.land()
    assert len(rows(bench, "writes", basis=before)) == 1


# -- the head ------------------------------------------------------------------------------------


def test_a_report_carries_a_signed_head_that_anyone_can_open(bench: Bench) -> None:
    bench.land()
    made = basis(bench)
    assert made.verified is True
    head = note.open_head(str(made.note), [KEY.verifier])
    assert (head.size, head.root.hex()) == (made.size, made.root)
    assert head == bench.ledger.head()


def test_without_the_private_key_the_last_seal_is_given(bench: Bench) -> None:
    bench.land()
    assert basis(bench, None).note is None
    sealed = seal(bench.ledger, KEY, None)
    assert basis(bench, None).note == sealed.text
    assert basis(bench, check=False).note == sealed.text
    assert basis(bench, check=False).verified is None


def test_a_ledger_that_was_tampered_with_is_said_to_fail_and_is_not_signed(
    bench: Bench, tmp_path: Path
) -> None:
    bench.land()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute(
            "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'ana', 'eve') AS BLOB)"
        )
        database.commit()
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with closing(open_ledger(url, clock=SystemClock(), read_only=True, check_tail=False)) as ledger:
        made = rest_on(ledger, key=KEY, verifiers=[KEY.verifier], heads=())
    assert made.verified is False
    assert made.note is None
    assert {finding.code for finding in made.findings} == {"ODI-T01"}
    assert "FAILS VERIFICATION" in str(made)


# -- forms ---------------------------------------------------------------------------------------


def made_of(
    cells: Sequence[Sequence[Any]], *, findings: tuple[Finding, ...] = (), verified: bool = True
) -> Report:
    return Report(
        name=ReportName.WRITES,
        title="Writes <&>",
        since=None,
        until="2026-12-01",
        tables=("sales.orders",),
        made_at=NOW,
        basis=Basis(size=7, root="ab" * 32, note="<note>\n", verified=verified, findings=findings),
        columns=("a", "b_c"),
        rows=iter([tuple(row) for row in cells]),
    )


HOSTILE = [
    "=1+2", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", 'a "quoted" word', "a,b", "a\r\nb",
    "plain", "", "<script>alert(1)</script>", "ö–日本", "&amp;",
]  # fmt: skip


def test_csv_is_read_back_as_it_was_but_for_formulas() -> None:
    text = "".join(csv_parts(made_of([(value, 5) for value in HOSTILE])))
    assert text.endswith("\r\n")
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert read[0] == ["a", "b_c", "ledger_size", "ledger_root", "ledger_verified"]
    for value, row in zip(HOSTILE, read[1:], strict=True):
        assert row[0] in {value, f"'{value}"}
        assert not row[0].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        assert row[1:] == ["5", "7", "ab" * 32, "true"]


def test_numbers_in_csv_stay_numbers() -> None:
    assert csv_line([-5, 1.5, True, None, "x"]) == "-5,1.5,true,,x\r\n"


def test_json_is_whole_and_names_each_value() -> None:
    body = json.loads("".join(json_parts(made_of([(value, 1) for value in HOSTILE]))))
    assert body["schema"] == "odi.report/1"
    assert [row["a"] for row in body["data"]["rows"]] == HOSTILE
    assert body["data"]["ledger"]["root"] == "ab" * 32
    assert body["data"]["from"] is None
    empty = json.loads("".join(json_parts(made_of([]))))
    assert empty["data"]["rows"] == []


def page(made: Report) -> ET.Element:
    return ET.fromstring("".join(page_parts(made)))


def test_the_page_is_well_formed_and_shows_every_cell_as_text() -> None:
    odd = "bell\x07 and \ud800"
    root = page(made_of([*((value, 3) for value in HOSTILE), (odd, None), (True, False)]))
    cells = ["".join(cell.itertext()) for cell in root.iter("td")]
    expected = [value.replace("\r\n", "\n").replace("\r", "\n") for value in HOSTILE]
    assert cells[: 2 * len(HOSTILE) : 2] == expected
    assert cells[-4:] == ["bell\ufffd and \ufffd", "", "yes", "no"]
    assert [element.text for element in root.iter("th")] == ["a", "b c"]
    assert not list(root.iter("script"))
    assert root.find("head/title").text == "Writes <&>"  # type: ignore[union-attr]


def test_the_page_carries_its_head_and_needs_nothing_from_outside() -> None:
    made = "".join(page_parts(made_of([])))
    text = "".join(ET.fromstring(made).itertext())
    assert "ab" * 32 in text
    assert "<note>" in text
    assert "sales.orders" in text
    for reference in ("http:", "https:", "src=", "href=", "url(", "@import"):
        assert reference not in made
    for rule in ("@page", "@media print", "table-header-group", "break-inside: avoid"):
        assert rule in made


def test_the_page_says_first_that_the_ledger_fails_verification() -> None:
    finding = Finding(code="ODI-T01", subject="entry 3", message="altered <b>")
    made = "".join(page_parts(made_of([("x", 1)], findings=(finding,), verified=False)))
    assert made.index("fails verification") < made.index("<table>")
    assert "altered &lt;b&gt;" in made


def test_forms_are_written_row_by_row(bench: Bench) -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield ("x", taken)

    for parts in (json_parts, csv_parts, page_parts):
        made = made_of([])
        object.__setattr__(made, "rows", endless())
        stream = parts(made)
        while taken < 3:
            next(stream)
        assert taken == 3
        taken = 0
