"""``odi-audit trace TABLE --where …``: which batches made a row, changed it, or took it out.

Owns the options, and the exit status 1 where a data file is gone or the ledger is in doubt. Must
never show an answer without its confidence, nor before a doubt about what it rests on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from odi_audit.canonical import Json, JsonObject
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.doubts import tell, tell_doubts, tell_missing
from odi_audit.errors import Exit, UsageError
from odi_audit.ledger.port import Ledger
from odi_audit.model.findings import Finding
from odi_audit.model.tables import TableRef, parse
from odi_audit.query.seen import LIMIT_DEFAULT
from odi_audit.query.trust import check_entries
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from odi_audit.query.gone import Gone
    from odi_audit.query.trace import Tracing
    from odi_audit.query.versions import Histories

T = TypeVar("T")

SCHEMA = "odi.trace/1"
HISTORY_SCHEMA = "odi.trace.history/1"
DELETED_SCHEMA = "odi.trace.deleted/1"


def command(
    table: Annotated[str, typer.Argument(help="The table, like sales.orders.")],
    where: Annotated[
        str | None, typer.Option(help="Which rows, like: order_id = 7 and region = 'north'.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", help="The table as it was: a snapshot, tag, branch, time or batch."
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Show only these columns, like: order_id,amount.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = LIMIT_DEFAULT,
    history: Annotated[
        bool, typer.Option("--history", help="Every version of each row, and what changed.")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Rows that are gone, and who took them out.")
    ] = False,
    source_offset: Annotated[
        bool,
        typer.Option(
            "--source-offset",
            help="Also the record of the source, of tables made with provenance=row.",
        ),
    ] = False,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show, for each matching row, the batch it was born in and the batch that last changed it.

    Exit status 1: a data file is gone and the rest is answered, or the ledger is in doubt.
    """
    if history and deleted:
        raise UsageError("--history and --deleted are two questions: ask one at a time")
    if source_offset and (history or deleted):
        raise UsageError("--source-offset is answered for rows as they are: ask it alone")
    with Workspace.find(lake) as workspace:
        asked = _Asked(workspace, table, where, as_of, _names(columns), limit, as_json)
        if history:
            asked.history()
        elif deleted:
            asked.deleted()
        else:
            asked.trace(source_offset=source_offset)
    if asked.doubts or asked.missing:
        raise typer.Exit(Exit.FINDINGS)


class _Asked:
    """One call of the command; doubts about the ledger are told before what rests on it."""

    def __init__(
        self,
        workspace: Workspace,
        table: str,
        where: str | None,
        as_of: str | None,
        columns: list[str] | None,
        limit: int,
        as_json: bool,
    ) -> None:
        self.name = parse(table)
        self.where, self.as_of, self.columns = where, as_of, columns
        self.limit, self.as_json = limit, as_json
        self.ledger: Ledger = workspace.ledger(read_only=True)
        self.catalog = workspace.catalog()
        self.missing: Sequence[str] = ()
        self.doubts: list[Finding] = []
        self._checked: set[int] = set()
        self.doubts.extend(tell_doubts(workspace))

    def trace(self, *, source_offset: bool) -> None:
        """Answer for the rows that are there, each as it is read."""
        from odi_audit.query.trace import start_trace

        tracing = self._ask(partial(start_trace, source_offset=source_offset))
        if self.as_json:
            self._stream(tracing)
        else:
            from odi_audit.cli import trace_page

            console = render.stdout()
            shown = 0
            for row in tracing:
                self._check(tracing.entries)
                trace_page.row(console, row)
                shown += 1
            if not shown:
                console.print("No row matches.")
        self._end(tracing.missing, cut=tracing.cut)

    def history(self) -> None:
        """Answer with every version of the rows."""
        from odi_audit.query.versions import histories

        found = self._ask(histories)

        def show(console: Console) -> None:
            from odi_audit.cli import trace_page

            trace_page.histories(console, found)

        self._answer(HISTORY_SCHEMA, found, show)

    def deleted(self) -> None:
        """Answer for rows that are there no more."""
        from odi_audit.query.gone import gone_rows

        with render.working("looking for rows that are gone"):
            found = self._ask(gone_rows)

        def show(console: Console) -> None:
            from odi_audit.cli import trace_page

            trace_page.gone(console, found)

        self._answer(DELETED_SCHEMA, found, show, horizon=found.horizon.to_json())

    # -- parts of every answer -------------------------------------------------------------------

    def _ask(self, question: Callable[..., T]) -> T:
        return question(
            self.ledger,
            self.catalog,
            self.name,
            self.where,
            as_of=self.as_of,
            columns=self.columns,
            limit=self.limit,
        )

    def _answer(
        self,
        schema: str,
        found: Histories | Gone,
        show: Callable[[Console], None],
        **more: Json,
    ) -> None:
        self._check(found.entries)
        render.answer(
            schema,
            {
                **self._about(found.table, found.snapshot),
                "rows": [row.to_json() for row in found.rows],
                **more,
                **self._rest(found.missing, cut=found.cut),
            },
            as_json=self.as_json,
            human=show,
        )
        self._end(found.missing, cut=found.cut)

    def _about(self, table: TableRef, snapshot: str | None) -> dict[str, Json]:
        return {
            "table": table.name,
            "table_uuid": table.uuid,
            "where": self.where,
            "as_of": self.as_of,
            "snapshot": snapshot,
        }

    def _rest(self, missing: Sequence[str], *, cut: bool) -> dict[str, Json]:
        return {
            "limit": self.limit,
            "cut": cut,
            "missing": list(missing),
            "doubts": [doubt.to_json() for doubt in self.doubts],
        }

    def _stream(self, tracing: Tracing) -> None:
        """Write the JSON answer row by row, so that a large one needs no memory."""
        rows = iter(tracing)
        # A filter that does not fit is told before anything is written.
        row = next(rows, None)
        about = json.dumps(self._about(tracing.table, tracing.snapshot), ensure_ascii=False)
        sys.stdout.write(f'{{"schema": "{SCHEMA}", "data": {about[:-1]}, "rows": [')
        separator = ""
        while row is not None:
            self._check(tracing.entries)
            sys.stdout.write(separator + _text(row.to_json()))
            separator = ", "
            row = next(rows, None)
        rest = _text(self._rest(tracing.missing, cut=tracing.cut))
        sys.stdout.write(f"], {rest[1:]}}}\n")
        sys.stdout.flush()

    def _check(self, entries: Collection[int]) -> None:
        if len(entries) == len(self._checked):
            return  # what was checked is a part of them
        fresh = sorted(set(entries) - self._checked)
        self._checked.update(fresh)
        found = check_entries(self.ledger, fresh)
        tell(found)
        self.doubts.extend(found)

    def _end(self, missing: Sequence[str], *, cut: bool) -> None:
        self.missing = missing
        tell_missing(missing)
        if cut:
            render.stderr().print(f"The first {self.limit} rows are shown; --limit shows more.")


def _names(columns: str | None) -> list[str] | None:
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",") if name.strip()]
    if not names:
        raise UsageError("--columns names no column", hint="--columns order_id,amount")
    return names


def _text(body: JsonObject) -> str:
    return json.dumps(body, ensure_ascii=False)
