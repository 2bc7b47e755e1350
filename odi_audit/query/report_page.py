"""A report as one HTML page: self-contained, without scripts, made to be printed.

Owns the page's layout. Everything that comes from the ledger or a table is escaped. Must never
refer to anything outside the page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from odi_audit.query.report_rows import Cell
from odi_audit.query.reports import FINDINGS_SHOWN_MAX, Report

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What no HTML or XML document may hold."""
_STYLE = """
:root { color-scheme: light; }
body { font: 13px/1.4 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 2rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 1rem; }
dt { font-weight: 600; }
dd { margin: 0; overflow-wrap: anywhere; }
code, pre, td { font-family: ui-monospace, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.alarm { border: 3px solid #a00; color: #a00; padding: .5rem 1rem; margin: 0 0 1rem; }
.alarm strong { font-size: 1.2rem; }
table { border-collapse: collapse; width: 100%; font-size: 11px; }
th { position: sticky; top: 0; background: #eee; text-align: left; vertical-align: bottom; }
th, td { border: 1px solid #bbb; padding: .2rem .35rem; vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 3rem; }
td.number { text-align: right; white-space: nowrap; overflow-wrap: normal; }
tbody tr:nth-child(even) { background: #f6f6f6; }
footer { margin-top: 1rem; font-size: 11px; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  body { margin: 0; font-size: 9pt; }
  table { font-size: 7pt; }
  thead { display: table-header-group; }
  th { position: static; }
  tr { break-inside: avoid; }
  tbody tr:nth-child(even) { background: none; }
}
"""


def page_parts(report: Report) -> Iterator[str]:
    """Yield the page, piece by piece."""
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        f"<title>{_escaped(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    yield f"<h1>{_escaped(report.title)}</h1>\n"
    yield from _alarm(report)
    yield from _about(report)
    yield "<table>\n<thead><tr>"
    yield "".join(f'<th scope="col">{_escaped(_label(name))}</th>' for name in report.columns)
    yield "</tr></thead>\n<tbody>\n"
    count = 0
    for row in report.rows:
        count += 1
        yield f"<tr>{''.join(map(_cell, row))}</tr>\n"
    yield f"</tbody>\n</table>\n<footer><p>{count} rows.</p>"
    yield f"<p>Rests on the ledger's head: {_escaped(str(report.basis))}.</p></footer>\n"
    yield "</body>\n</html>\n"


def _alarm(report: Report) -> Iterator[str]:
    basis = report.basis
    if basis.verified is None:
        yield '<div class="alarm"><p>The ledger was not verified for this report.</p></div>\n'
    elif not basis.verified:
        yield (
            f'<div class="alarm"><p><strong>The ledger fails verification: {len(basis.findings)} '
            "findings. Nothing on this page can be relied on.</strong></p><ul>\n"
        )
        for finding in basis.findings[:FINDINGS_SHOWN_MAX]:
            yield f"<li>{_escaped(f'{finding.code}: {finding.message}')}</li>\n"
        yield "</ul></div>\n"


def _about(report: Report) -> Iterator[str]:
    tables = "all" if report.tables is None else ", ".join(report.tables)
    lines = {
        "From": report.since or "the beginning",
        "To": f"before {report.until}" if report.until else report.made_at,
        "Tables": tables,
        "Made at": report.made_at,
        "Ledger entries": str(report.basis.size),
        "Ledger root": report.basis.root,
    }
    yield "<dl>\n"
    for name, value in lines.items():
        yield f"<dt>{name}</dt><dd>{_escaped(value)}</dd>\n"
    if report.basis.note is not None:
        yield f"<dt>Signed head</dt><dd><pre>{_escaped(report.basis.note)}</pre></dd>\n"
    yield "</dl>\n"


def _cell(cell: Cell) -> str:
    if cell is None:
        return "<td></td>"
    if isinstance(cell, bool):
        return f"<td>{'yes' if cell else 'no'}</td>"
    if isinstance(cell, int):
        return f'<td class="number">{cell}</td>'
    return f"<td>{_escaped(cell)}</td>"


def _label(name: str) -> str:
    return name.replace("_", " ")


def _escaped(text: str) -> str:
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text))
