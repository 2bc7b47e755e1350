"""The main job: a folder of CSV files becomes rows of a table, each file once.

Owns the order of the files (by name), their grouping into batches, and what is skipped because
the ledger has it. Must never remember anything itself: what was read is in the ledger, so the job
can be killed and started again at any point. A file must be complete when it gets its name:
write it under a name that begins with a dot or an underscore, and rename it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import odi_audit as odi
from odi_audit.committer.parts import nowhere
from odi_audit.committer.run import Run
from odi_audit.errors import Exit, OdiError, UsageError
from odi_audit.model.contract import Contract
from odi_audit.model.offsets import Offsets
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import parse
from odi_audit.redact import redact_text
from odi_audit.spark.failures import translated
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER_COLUMNS = (
    "order_id bigint not null, customer string not null, status string not null, "
    "amount decimal(10,2) not null, updated_at timestamp not null"
)
"""The columns of an order, in the file and in the table."""
ORDER_CONTRACT = Contract(key=("order_id",), rules={"amount is not negative": "amount >= 0"})
FILES_PER_BATCH_MAX = 1_000
"""A batch is staged, checked and published as a whole: beyond this, several are better."""
_GLOB, _ESCAPED = re.compile(r"([\\*?\[\]{}])"), r"\\\1"
"""Letters by which Spark would take a file's name for a pattern; it decodes no %20 either."""
_UNFINISHED = (".", "_")
"""First letters of a file that is still being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesJob:
    """A folder of CSV files of orders, the table that they go into, and how.

    With ``key`` the rows are upserted by it, the newest by ``order_by`` wins, and those for which
    ``delete_when`` holds are deleted; without, they are appended.
    """

    job: str
    folder: Path
    table: str
    key: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    delete_when: str | None = None
    files_per_batch: int = 1
    columns: str = ORDER_COLUMNS
    contract: Contract = ORDER_CONTRACT

    def __post_init__(self) -> None:
        if not 1 <= self.files_per_batch <= FILES_PER_BATCH_MAX:
            raise UsageError(
                f"{self.files_per_batch} files in a batch: expected 1 to {FILES_PER_BATCH_MAX}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What one execution of the job did."""

    known: tuple[Path, ...]
    batches: tuple[tuple[tuple[Path, ...], Receipt], ...]

    @property
    def rows_read_count(self) -> int:
        """How many rows the new batches brought or changed."""
        return sum(added_rows(receipt) for _, receipt in self.batches)


def load_files(
    spec: FilesJob,
    lake: Workspace,
    *,
    reach: Callable[[str], None] = nowhere,
    tell: Callable[[tuple[Path, ...], Receipt], None] = lambda _files, _receipt: None,
) -> Loaded:
    """Bring every file of the folder that the ledger does not have; afterwards it has them all.

    Starting it again is safe whatever happened before: a batch that a killed run had staged is
    published first (or dropped), then the files that are still missing follow. ``tell`` is called
    after each batch.

    Raises:
        UsageError: the folder cannot be read, or holds no file.
        SourceChanged: a file is not what it was when it was read. Give new content a new name.
        Refused: a file breaks the contract. Files before it are in, this one and later ones not.
    """
    found = list_files(spec.folder)
    with odi.run(spec.job, lake=lake, reach=reach) as run:
        run.create_table(spec.table, spec.columns, if_not_exists=True)
        offered = odi.files(found, source=f"file://{spec.folder.resolve()}")
        known, new = _split(run, spec, offered)
        batches = []
        for files in _groups(new, spec.files_per_batch):
            part = replace(offered, ranges={str(path): offered.ranges[str(path)] for path in files})
            receipt = _commit(run, spec, files, part)
            batches.append((files, receipt))
            tell(files, receipt)
    return Loaded(known=tuple(known), batches=tuple(batches))


def list_files(folder: Path) -> list[Path]:
    """Return the finished CSV files of a folder, by name.

    Raises:
        UsageError: the folder cannot be read, or holds none.
    """
    root = folder.resolve()
    try:
        found = sorted(
            path
            for path in root.iterdir()
            if path.suffix == ".csv" and path.is_file() and not path.name.startswith(_UNFINISHED)
        )
    except OSError as problem:
        raise UsageError(f"folder {root} cannot be read: {problem.strerror}") from problem
    if not found:
        raise UsageError(f"folder {root} holds no .csv file")
    return found


def added_rows(receipt: Receipt) -> int:
    """Return how many rows a batch over one table wrote."""
    return receipt.landing.counts.get("added-records", 0)


def _split(run: Run, spec: FilesJob, offered: Offsets) -> tuple[list[Path], list[Path]]:
    """Tell the files that have landed from the rest; a changed file is among the rest.

    The committer would recognise a landed batch too, but only one with exactly the same files.
    """
    table = run.parts.catalog().load(parse(spec.table)).ref.uuid
    positions = run.parts.ledger.positions(
        run.job, table, offered.source, partitions=list(offered.ranges)
    )
    known: list[Path] = []
    new: list[Path] = []
    for name, part in offered.ranges.items():
        landed = name in positions and positions[name].end == part.end
        (known if landed else new).append(Path(name))
    return known, new


def _groups(files: Sequence[Path], size: int) -> Iterator[tuple[Path, ...]]:
    for start in range(0, len(files), size):
        yield tuple(files[start : start + size])


def _commit(run: Run, spec: FilesJob, files: Sequence[Path], offsets: Offsets) -> Receipt:
    frame = _read(run, spec, files)
    if not spec.key:
        return run.append(frame, spec.table, offsets=offsets, contract=spec.contract)
    # Keys may repeat in a file of changes (the newest wins), so only the rules are kept.
    return run.upsert(
        frame,
        spec.table,
        key=spec.key,
        order_by=spec.order_by,
        delete_when=spec.delete_when,
        offsets=offsets,
        contract=replace(spec.contract, key=()),
    )


def _read(run: Run, spec: FilesJob, files: Sequence[Path]) -> DataFrame:
    # A row that does not fit, or a header with other columns, fails the batch: never a null.
    reader = run.spark.read.schema(spec.columns).options(
        header=True, mode="FAILFAST", enforceSchema=False
    )
    with translated(f"reading {files[0].name} for {spec.table}"):
        return reader.csv([f"file://{_GLOB.sub(_ESCAPED, str(path))}" for path in files])


# -- python -m jobs.files -------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    try:
        spec = FilesJob(
            job=given.job,
            folder=given.folder,
            table=given.table,
            key=tuple(given.key),
            order_by=tuple(given.order_by),
            delete_when=given.delete_when,
            files_per_batch=given.files_per_batch,
        )
        with Workspace.find(given.lake) as lake:
            done = load_files(
                spec, lake, tell=lambda files, receipt: console.print(line(files, receipt))
            )
    except OdiError as error:
        sys.stderr.write(redact_text(str(error)) + "\n")
        return int(error.exit_status)
    console.print(
        f"{spec.table}: {len(done.batches)} new batches with {done.rows_read_count:,} rows; "
        f"{len(done.known)} files were in the ledger already"
    )
    return int(Exit.OK)


def line(files: Sequence[Path], receipt: Receipt) -> str:
    """Say in one line what became of a batch."""
    names = files[0].name + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    how = "landed" if receipt.fresh else "had landed"
    return (
        f"{names}: batch {receipt.batch} {how}, {added_rows(receipt):,} rows, "
        f"snapshot {receipt.snapshot}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.files",
        description="Bring a folder of CSV files of orders into a table, each file once.",
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the files arrive")
    parser.add_argument("--table", required=True, help="like sales.orders; made if missing")
    parser.add_argument("--job", required=True, help="like sales/orders_import")
    parser.add_argument("--lake", type=Path, help="workspace folder (else: found upwards)")
    parser.add_argument("--key", nargs="+", default=[], help="upsert by these columns")
    parser.add_argument("--order-by", nargs="+", default=[], help="the newest by these wins")
    parser.add_argument("--delete-when", help="a condition on the file's rows: they are deleted")
    parser.add_argument("--files-per-batch", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
