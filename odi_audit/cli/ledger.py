"""``odi-audit ledger …``: seal, prove, check, verify, export, rebuild, grant, status.

Owns the options and the pages for people. Must never decide what is true of a ledger: each command
is one call of :mod:`odi_audit.ledger`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from odi_audit.canonical import JsonObject
from odi_audit.cli.common import JsonOption, LakeOption
from odi_audit.cli.ledger_upkeep import (
    grant_command,
    open_unchecked,
    print_line,
    rebuild_command,
)
from odi_audit.cli.render import answer, stderr
from odi_audit.errors import (
    Exit,
    ProofInvalid,
    StorageError,
    UsageError,
)
from odi_audit.ledger import note
from odi_audit.ledger.export import Form, export
from odi_audit.ledger.port import EntryFilter, TreeHead
from odi_audit.ledger.proof import prove_batch, verify_proof
from odi_audit.ledger.seal import newest_seal, seal
from odi_audit.ledger.verify import HeadFile, head_file, heads_in, verify
from odi_audit.model.entries import Kind
from odi_audit.model.tables import parse
from odi_audit.workspace import Workspace

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="The tamper-evident record: seal it, prove from it, verify it, take it along.",
)

KeyOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--public-key", help="Trusted public key: its text, or a file. May be repeated."),
]
OutOption: TypeAlias = Annotated[
    Path | None, typer.Option("--out", help="File to write, in place of stdout.")
]


@app.command("seal")
def seal_command(
    table: Annotated[
        str | None, typer.Option("--table", help="Also write the head to a property of this table.")
    ] = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign the ledger as it is, and write the head to a file; keep a copy elsewhere."""
    with Workspace.find(lake) as workspace:
        made = seal(workspace.ledger(), workspace.signing_key(), workspace.heads_dir)
        if table is not None:
            from odi_audit.upkeep.anchor import write_head

            write_head(workspace.settings, workspace.spark, table, made.text)
    data: JsonObject = {
        **_head(made.head),
        "entry": made.index,
        "head": made.text,
        "path": str(made.path),
        "table": table,
    }

    def human(console: Console) -> None:
        console.print(f"signed: the first {made.head.size} entries", highlight=False)
        print_line(console, f"head:   {made.path}")
        if table is not None:
            print_line(console, f"table:  {table}")

    answer("odi.ledger.seal/1", data, as_json=as_json, human=human)


@app.command("prove")
def prove_command(
    batch: Annotated[str, typer.Argument(help="Batch id, or its first characters.")],
    out: OutOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a self-contained proof of everything recorded about a batch."""
    with Workspace.find(lake) as workspace:
        ledger = workspace.ledger()
        found = ledger.resolve_batch(batch)
        proof = prove_batch(ledger, found, workspace.signing_key(), workspace.heads_dir)
    text = json.dumps(proof, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise StorageError(f"proof {out} cannot be written: {problem.strerror}") from problem
    data: JsonObject = {"batch": found, "path": str(out), "bytes": len(text.encode()) + 1}
    answer(
        "odi.ledger.prove/1",
        data,
        as_json=as_json,
        human=lambda console: print_line(
            console,
            f"proof of {found}: {out}\n  check it anywhere: odi-audit ledger check {out}",
        ),
    )


@app.command("check")
def check_command(
    proof: Annotated[Path, typer.Argument(help="File that `prove` wrote.")],
    public_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a proof; needs no lake and no database."""
    try:
        document = proof.read_bytes()
    except OSError as problem:
        raise ProofInvalid(f"proof {proof} cannot be read: {problem.strerror}") from problem
    proven = verify_proof(document, trusted=_given_keys(public_key))
    data: JsonObject = {
        "batch": proven.batch,
        "entries": [entry.to_json() for entry in proven.entries],
        "public_key": proven.key.text,
        "key_was_given": bool(public_key),
        **_head(proven.head),
    }

    def human(console: Console) -> None:
        for entry in proven.entries:
            where = f" on {entry.table.name}" if entry.table else ""
            print_line(console, f"{entry.time}  {entry.kind.value}{where}")
        print_line(
            console,
            f"holds: {len(proven.entries)} entries of {proven.batch} are among the first "
            f"{proven.head.size}, signed by {proven.key.text}",
        )
        if not public_key:
            stderr().print("the key came with the proof: compare it with the one you know")

    answer("odi.ledger.check/1", data, as_json=as_json, human=human)


@app.command("verify")
def verify_command(
    head: Annotated[
        list[Path] | None, typer.Option("--head", help="Exported head to check. May be repeated.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", help="Table whose head to check. May be repeated."),
    ] = None,
    public_key: KeyOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute the whole ledger and check it against every signed head."""
    with Workspace.find(lake) as workspace, closing(open_unchecked(workspace)) as ledger:
        keys = _given_keys(public_key) or _own_keys(workspace)
        heads = heads_in(workspace.heads_dir) + [head_file(path) for path in head or []]
        heads += [_table_head(workspace, name) for name in table or []]
        with _progress("verifying") as progress:
            task = progress.add_task("verifying", total=None)
            result = verify(
                ledger,
                verifiers=keys,
                heads=heads,
                progress=lambda done, total: progress.update(task, completed=done, total=total),
            )
    data: JsonObject = {
        **_head(result.head),
        "seals": result.seals,
        "heads": result.heads,
        "findings": [finding.to_json() for finding in result.findings],
    }

    def human(console: Console) -> None:
        for finding in result.findings:
            print_line(console, f"{finding.code}: {finding.message}")
            if finding.hint:
                print_line(console, f"  next: {finding.hint}")
        told = f"findings: {len(result.findings)}" if result.findings else "clean"
        console.print(
            f"{told}; entries {result.head.size}, seals {result.seals}, heads {result.heads}"
        )
        if not result.heads:
            stderr().print("no exported head to compare with: a cut-off tail would not be seen")

    answer("odi.ledger.verify/1", data, as_json=as_json, human=human)
    if result.findings:
        raise typer.Exit(Exit.FINDINGS)


@app.command("export")
def export_command(
    path: Annotated[Path, typer.Argument(help="File to write.")],
    form: Annotated[
        Form | None, typer.Option("--format", help="Else told by the file's name.")
    ] = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write every entry to a Parquet or JSON Lines file."""
    chosen = form or _form(path)
    with Workspace.find(lake) as workspace, _progress("exporting") as progress:
        ledger = workspace.ledger(read_only=True)
        task = progress.add_task("exporting", total=ledger.head().size)
        count = export(ledger, path, chosen, lambda done: progress.update(task, completed=done))
    data: JsonObject = {
        "path": str(path),
        "format": chosen.value,
        "entries": count,
        "bytes": path.stat().st_size,
    }
    answer(
        "odi.ledger.export/1",
        data,
        as_json=as_json,
        human=lambda console: print_line(console, f"{count} entries: {path}"),
    )


@app.command("status")
def status_command(lake: LakeOption = None, as_json: JsonOption = False) -> None:
    """Show the size of the ledger, its last entry and its last seal."""
    with Workspace.find(lake) as workspace, closing(open_unchecked(workspace)) as ledger:
        head = ledger.head()
        last = ledger.get(head.size - 1).time if head.size else None
        intents = len(ledger.open_intents())
        seals = ledger.find(EntryFilter(kinds=(Kind.SEAL,)), limit=1, newest_first=True)
        keys = _own_keys(workspace)
        sealed = next((found for key in keys if (found := newest_seal(ledger, key))), None)
        place = ledger.database.shown
    data: JsonObject = {
        **_head(head),
        "place": place,
        "last_time": last,
        "open_intents": intents,
        "sealed_size": sealed.head.size if sealed else None,
        "sealed_time": seals[0].time if seals else None,
        "public_keys": [key.text for key in keys],
    }

    def human(console: Console) -> None:
        for name, value in data.items():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print_line(console, f"{name:14} {'–' if shown is None else shown}")

    answer("odi.ledger.status/1", data, as_json=as_json, human=human)


app.command("rebuild")(rebuild_command)
app.command("grant")(grant_command)


# -- helpers ------------------------------------------------------------------------------------


def _head(head: TreeHead) -> dict[str, str | int]:
    return {"size": head.size, "root": base64.b64encode(head.root).decode("ascii")}


def _table_head(workspace: Workspace, name: str) -> HeadFile:
    """Return the head that ``seal --table`` left on a table; no head there fails as a head."""
    from odi_audit.upkeep.anchor import HEAD_PROPERTY

    state = workspace.catalog().load(parse(name))
    return HeadFile(name=f"of table {name}", text=state.properties.get(HEAD_PROPERTY, ""))


def _own_keys(workspace: Workspace) -> list[note.VerifierKey]:
    """Return the lake's public keys: from the file beside the key, else from the key itself."""
    path = note.public_path(workspace.settings.ledger.key_path)
    if workspace.settings.ledger.key is None and path.exists():
        return note.read_verifiers(path)
    return [workspace.signing_key().verifier]


def _given_keys(given: Sequence[str] | None) -> list[note.VerifierKey]:
    keys: list[note.VerifierKey] = []
    for item in given or ():
        path = Path(item)
        keys += note.read_verifiers(path) if path.exists() else [note.parse_verifier_key(item)]
    return keys


def _form(path: Path) -> Form:
    forms = {".parquet": Form.PARQUET, ".jsonl": Form.JSONL, ".ndjson": Form.JSONL}
    if path.suffix not in forms:
        raise UsageError(
            f"the name {path.name!r} does not tell a form", hint="add --format parquet or jsonl"
        )
    return forms[path.suffix]


def _progress(what: str) -> Progress:
    """Return a bar on stderr, shown on terminals only."""
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=stderr(),
        transient=True,
        disable=not stderr().is_terminal,
    )
