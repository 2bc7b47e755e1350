"""``odi-audit jobs new``: ask, and write a spec.

Owns the questions and the options that answer them. Must never overwrite a file, and never ask
where there is no terminal.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import typer

from odi_audit.canonical import Json
from odi_audit.cli import render
from odi_audit.cli.common import JsonOption
from odi_audit.cli.render import escape
from odi_audit.errors import OdiError, StorageError, UsageError

SCHEMA = "odi.jobs.new/1"
SourceType = Literal["kafka", "files", "jdbc", "iceberg"]
ModeType = Literal["append", "upsert", "mirror", "history", "replace", "replace_partitions"]
FormatType = Literal["json", "avro", "text", "raw", "csv", "parquet"]
Many: TypeAlias = list[str] | None
AGAIN = "May be repeated."
_LISTS = frozenset({"topics", "key", "order_by", "partition_by"})
_QUESTIONS: Mapping[str, str] = {
    "servers": "Kafka brokers, host:port or ${VARIABLE}",
    "topics": "Topics, with commas",
    "format": "Format",
    "path": "Folder, or a pattern of files",
    "url": "Database, like jdbc:postgresql://host:5432/shop",
    "from_table": "Table to read",
    "watermark": "Column that only grows, like updated_at",
    "key": "Columns that identify a row, with commas",
    "order_by": "Columns that tell what is newer, with commas",
    "where": "Rows to replace, as a condition in SQL",
    "partition_by": "Partition by, with semicolons, like days(ts)",
}


def new_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="File to write.")],
    job: Annotated[str | None, typer.Option(help="namespace/name of the job.")] = None,
    source: Annotated[SourceType | None, typer.Option(help="Where rows come from.")] = None,
    table: Annotated[str | None, typer.Option(help="Where rows go, like sales.orders.")] = None,
    mode: Annotated[ModeType | None, typer.Option(help="How (else: append).")] = None,
    description: Annotated[str | None, typer.Option(help="One line for people.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whom to ask.")] = None,
    servers: Annotated[str | None, typer.Option(help="Kafka: brokers.")] = None,
    topics: Annotated[Many, typer.Option("--topic", help=f"Kafka: a topic. {AGAIN}")] = None,
    pattern: Annotated[str | None, typer.Option(help="Kafka: topics by a pattern.")] = None,
    format: Annotated[FormatType | None, typer.Option(help="Kafka, files.")] = None,  # noqa: A002
    columns: Annotated[str | None, typer.Option(help='Like "id bigint, ts timestamp".')] = None,
    debezium: Annotated[bool, typer.Option("--debezium", help="Kafka: Debezium changes.")] = False,
    registry: Annotated[str | None, typer.Option(help="Kafka: the schema registry.")] = None,
    path: Annotated[str | None, typer.Option(help="Files: folder or pattern.")] = None,
    url: Annotated[str | None, typer.Option(help="JDBC: the database.")] = None,
    user: Annotated[str | None, typer.Option(help="JDBC: the user.")] = None,
    password_variable: Annotated[
        str | None, typer.Option(help="JDBC: the variable that holds the password.")
    ] = None,
    from_table: Annotated[str | None, typer.Option(help="JDBC, Iceberg: table to read.")] = None,
    watermark: Annotated[str | None, typer.Option(help="JDBC: column that only grows.")] = None,
    key: Annotated[Many, typer.Option(help=f"Column that identifies a row. {AGAIN}")] = None,
    order_by: Annotated[
        Many, typer.Option(help=f"Column that tells what is newer. {AGAIN}")
    ] = None,
    partition_by: Annotated[Many, typer.Option(help=f"Like days(ts). {AGAIN}")] = None,
    where: Annotated[str | None, typer.Option(help="Mode replace: which rows.")] = None,
    every: Annotated[str | None, typer.Option(help="Cut a batch after this time.")] = None,
    dead_letter: Annotated[str | None, typer.Option(help="Table for unreadable records.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a commented spec; asks for what the options leave open. Nothing is overwritten."""
    # The options are named as the answers are.
    given = {name: value for name, value in locals().items() if name not in {"spec", "as_json"}}
    given |= {name: tuple(given[name] or ()) for name in _LISTS}
    if spec.exists():
        raise UsageError(f"{spec} is there already; nothing is overwritten", file=str(spec))
    text = _text(given)
    _write(spec, text)
    data: dict[str, Json] = {"file": str(spec), "bytes": len(text.encode())}
    told = f"{spec} is written\n  next: odi-audit jobs check {spec} --offline"
    render.answer(
        SCHEMA,
        data,
        as_json=as_json,
        human=lambda console: console.print(escape(told), soft_wrap=True),
    )


def _text(given: dict[str, Any]) -> str:
    from jobs.spec.template import Answers, new_spec

    if sys.stdin.isatty() and sys.stderr.isatty():
        # Questions are talk; part of each would be written to stdout, which is for the answer.
        with contextlib.redirect_stdout(sys.stderr):
            _ask_all(given)
    else:
        _refuse_gaps(given)
    given["mode"] = given["mode"] or "append"
    return new_spec(Answers(**given))


def _refuse_gaps(given: Mapping[str, Any]) -> None:
    from jobs.spec.template import missing

    gaps = [name for name in ("job", "source", "table") if not given[name]]
    gaps += missing(given, given["source"] or "", given["mode"] or "append")
    if gaps:
        options = ", ".join(_option(name) for name in gaps)
        raise UsageError(
            f"there is no terminal to ask on, and these options are missing: {options}",
            hint="odi-audit jobs new --help",
            missing=[_option(name) for name in gaps],
        )


def _option(name: str) -> str:
    return "--" + {"topics": "topic"}.get(name, name).replace("_", "-")


def _ask_all(given: dict[str, Any]) -> None:
    from jobs.spec import words
    from jobs.spec.template import SOURCES, missing

    # Who gave everything that is needed by options is asked nothing.
    if all(given[name] for name in ("job", "source", "table")) and not missing(
        given, given["source"], given["mode"] or "append"
    ):
        return
    _ask(given, "job", "Job, namespace/name", words.job)
    _ask(given, "source", f"Source ({', '.join(SOURCES)})", _one_of(SOURCES))
    if given["source"] == "kafka" and not given["debezium"]:
        given["debezium"] = typer.confirm("Debezium changes?", default=False, err=True)
    modes = (
        ("mirror", "history", "append") if given["debezium"] else ("append", "upsert", "history")
    )
    _ask(given, "table", "Table to write, namespace.table", words.table)
    _ask(given, "mode", f"Mode ({', '.join(modes)})", _one_of(get_args(ModeType)), modes[0])
    for name in missing(given, given["source"], given["mode"]):
        _ask_one(given, name)
    if given["source"] == "kafka" and given["format"] == "avro":
        _ask(given, "registry", "Schema registry, its address or ${VARIABLE}", str)
    if not given["partition_by"] and given["mode"] == "append":
        _ask_one(given, "partition_by", default="")
    _ask(given, "every", "Commit every", _duration, "5m")
    _ask(given, "dead_letter", "Dead-letter table (empty: none)", _table_or_none, "")


def _ask_one(given: dict[str, Any], name: str, default: str | None = None) -> None:
    formats = ("json", "avro", "text", "raw")
    if given["source"] == "files":
        formats = ("csv", "json", "parquet", "avro")
    question, check = _QUESTIONS[name], str
    if name == "format":
        _ask(given, name, f"Format ({', '.join(formats)})", _one_of(formats), formats[0])
        return
    _ask(given, name, question, check, default)
    if name in _LISTS:
        # A transform has commas of its own.
        parts = str(given[name] or "").split(";" if name == "partition_by" else ",")
        given[name] = tuple(part.strip() for part in parts if part.strip())


def _ask(
    given: dict[str, Any],
    name: str,
    question: str,
    check: Callable[[str], object],
    default: str | None = None,
) -> None:
    if given[name]:
        return

    def checked(answer: str) -> object:
        try:
            return check(answer)
        except (ValueError, OdiError) as error:
            raise typer.BadParameter(str(error)) from None

    shown = bool(default)
    answer = typer.prompt(
        question, default=default, show_default=shown, value_proc=checked, err=True
    )
    given[name] = answer or None


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def check(answer: str) -> str:
        if answer not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return answer

    return check


def _duration(answer: str) -> str:
    from jobs.spec import words

    return words.show_duration(words.duration(answer))


def _table_or_none(answer: str) -> str:
    from jobs.spec import words

    return words.table(answer) if answer.strip() else ""


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already; nothing is overwritten") from None
    except OSError as problem:
        raise StorageError(f"{path} cannot be written: {problem.strerror}") from problem
