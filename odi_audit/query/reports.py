"""Reports for compliance: what happened in a period, resting on a named head of the ledger.

Owns the names and columns of the reports, the head each rests on, and their CSV and JSON forms
(``report_page`` is the HTML one, ``report_rows`` makes the rows). Rows are made while they are
written. Must never hide that a ledger failed verification, nor count an entry beyond its head.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from odi_audit.canonical import JsonObject
from odi_audit.errors import UsageError
from odi_audit.ledger.port import Ledger
from odi_audit.model.findings import Finding
from odi_audit.query import report_rows
from odi_audit.query.lookup import Named
from odi_audit.query.report_rows import Cell, Scope

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.ledger.note import SigningKey, VerifierKey
    from odi_audit.ledger.store import SqlLedger
    from odi_audit.ledger.verify import HeadFile, Progress

SCHEMA = "odi.report/1"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What makes a spreadsheet take a cell for a formula."""
FINDINGS_SHOWN_MAX = 20


class ReportName(StrEnum):
    """Which report."""

    WRITES = "writes"
    SCHEMA_CHANGES = "schema-changes"
    DELETIONS = "deletions"
    REPLAYS_AND_GAPS = "replays-and-gaps"
    FOREIGN_WRITES = "foreign-writes"
    RETENTION = "retention"
    ACCESS = "access"


_TITLES = {
    ReportName.WRITES: "Writes",
    ReportName.SCHEMA_CHANGES: "Tables created and schemas changed",
    ReportName.DELETIONS: "Deletions",
    ReportName.REPLAYS_AND_GAPS: "Replays and gaps of sources",
    ReportName.FOREIGN_WRITES: "Foreign writes",
    ReportName.RETENTION: "Retention",
    ReportName.ACCESS: "Recorded reads",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The head of the ledger that a report rests on.

    ``note`` is the signed head, where there is a key. ``verified`` is None where the ledger was
    not checked.
    """

    size: int
    root: str
    note: str | None
    verified: bool | None
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        state = {
            True: "verified",
            False: f"FAILS VERIFICATION ({len(self.findings)} findings)",
            None: "not verified",
        }[self.verified]
        return f"{self.size} entries, root {self.root}, {state}"

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "size": self.size,
            "root": self.root,
            "note": self.note,
            "verified": self.verified,
            "findings_count": len(self.findings),
            "findings": [finding.to_json() for finding in self.findings[:FINDINGS_SHOWN_MAX]],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report. Its rows can be gone through once."""

    name: ReportName
    title: str
    since: str | None
    until: str | None
    tables: tuple[str, ...] | None
    made_at: str
    basis: Basis
    columns: tuple[str, ...]
    rows: Iterator[tuple[Cell, ...]]


def rest_on(
    ledger: SqlLedger,
    *,
    key: SigningKey | None,
    verifiers: Sequence[VerifierKey],
    heads: Sequence[HeadFile],
    check: bool = True,
    progress: Progress | None = None,
) -> Basis:
    """Return the head that a report made now rests on, signed if it may be.

    A tree that fails verification, or was not checked, is not signed: the last seal is given
    with it instead.
    """
    from odi_audit.errors import ProofInvalid
    from odi_audit.ledger import note
    from odi_audit.ledger.seal import newest_seal
    from odi_audit.ledger.verify import verify

    findings: tuple[Finding, ...] = ()
    if not check:
        head = ledger.head()
    else:
        result = verify(ledger, verifiers=verifiers, heads=heads, progress=progress)
        head, findings = result.head, result.findings
    signed: str | None = None
    if check and not findings and key is not None:
        signed = note.sign_head(head, key)
    else:
        try:
            found = (newest_seal(ledger, verifier) for verifier in verifiers)
            signed = next((seal.text for seal in found if seal is not None), None)
        except ProofInvalid:
            signed = None  # a broken seal is among the findings
    return Basis(
        size=head.size,
        root=head.root.hex(),
        note=signed,
        verified=not findings if check else None,
        findings=findings,
    )


def make_report(
    ledger: Ledger,
    catalog: LakeCatalog,
    name: ReportName,
    *,
    basis: Basis,
    made_at: str,
    since: str | None = None,
    until: str | None = None,
    tables: Sequence[Named] | None = None,
) -> Report:
    """Return a report on the named tables, or on all, from ``since`` to before ``until``.

    Raises:
        UsageError: the period ends before it begins.
    """
    if since is not None and until is not None and until <= since:
        raise UsageError(
            f"the period ends at {until}, not after its beginning at {since}",
            hint="--from 2026-11-01 --to 2026-12-01",
        )
    scope = Scope(
        ledger=ledger,
        catalog=catalog,
        since=since,
        until=until,
        tables=None if tables is None else tuple(tables),
        stop=basis.size,
    )
    columns, rows = report_rows.MAKERS[name.value]
    return Report(
        name=name,
        title=_TITLES[name],
        since=since,
        until=until,
        tables=None if tables is None else tuple(table.ref.name for table in tables),
        made_at=made_at,
        basis=basis,
        columns=columns,
        rows=rows(scope),
    )


# -- forms -----------------------------------------------------------------------------------


def json_parts(report: Report) -> Iterator[str]:
    """Yield the JSON document of a report, piece by piece."""
    data: JsonObject = {
        "name": report.name.value,
        "title": report.title,
        "from": report.since,
        "to": report.until,
        "tables": None if report.tables is None else list(report.tables),
        "made_at": report.made_at,
        "ledger": report.basis.to_json(),
        "columns": list(report.columns),
    }
    head = json.dumps({"schema": SCHEMA, "data": data}, ensure_ascii=False)
    yield head[:-2] + ', "rows": ['
    for number, row in enumerate(report.rows):
        named = dict(zip(report.columns, row, strict=True))
        yield (", " if number else "") + json.dumps(named, ensure_ascii=False)
    yield "]}}\n"


def csv_parts(report: Report) -> Iterator[str]:
    """Yield the lines of a report as CSV (RFC 4180); each row ends with the head it rests on."""
    yield csv_line([*report.columns, "ledger_size", "ledger_root", "ledger_verified"])
    basis = report.basis
    tail = (basis.size, basis.root, "not checked" if basis.verified is None else basis.verified)
    for row in report.rows:
        yield csv_line([*row, *tail])


def csv_line(cells: Iterable[Cell | float]) -> str:
    """Return one line of CSV. No text is left that a spreadsheet would run as a formula."""
    return ",".join(map(_csv_cell, cells)) + "\r\n"


def _csv_cell(cell: Cell | float) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int | float):
        return str(cell)
    text = f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell
    if any(char in text for char in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
