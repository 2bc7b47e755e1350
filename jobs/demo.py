"""The demo: the story of one lake, from files that arrive to a row that is traced.

Owns the order of the chapters and their words. Everything that is shown happened: real Spark, real
Iceberg, a real SIGKILL, and the product's own commands. Must never print a number that was not
read from the lake.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import odi_audit as odi
from jobs import demo_place as made_up
from jobs import demo_totals
from jobs.demo_place import Place
from jobs.demo_stage import Stage, kill_when_staged, quiet_jvm
from jobs.files import FilesJob, Loaded, added_rows, load_files
from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import OdiError
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.entries import Kind
from odi_audit.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

TABLE = "sales.orders"
IMPORT_JOB = "sales/orders_import"
CHANGES_JOB = "sales/order_changes"
UPKEEP_JOB = "sales/upkeep"
SPARK_LOG = "out/spark.log"
WITHDRAWN = "status = 'withdrawn'"
ROW = f"order_id = {made_up.TRACED_ORDER}"
WRONG = f"customer = '{made_up.WRONG_CUSTOMER}' and amount > {made_up.WRONG_AMOUNT_MIN}"
_KEPT_VARIABLES = frozenset({"ODI_DEBUG", "ODI_JARS_DIR", "ODI_SPARK__JAVA_HOME"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the story came to, for machines; ``commands`` are those that it proposes."""

    lake: str
    seconds: float
    rows: Mapping[str, int]
    batches: Mapping[str, str]
    statuses: Mapping[str, int]
    commands: tuple[tuple[str, int], ...]

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        commands: list[Json] = [{"command": text, "status": st} for text, st in self.commands]
        return {
            "lake": self.lake,
            "seconds": round(self.seconds, 1),
            "table": TABLE,
            "rows": dict(self.rows),
            "batches": dict(self.batches),
            "statuses": dict(self.statuses),
            "commands": commands,
        }


def tell(folder: Path, *, console: Console, talk: Console, env: Mapping[str, str]) -> Told:
    """Make the demo lake anew in ``folder`` and tell its story on ``console``.

    ``talk`` gets progress. Settings of other lakes in ``env`` are left out: the demo must touch
    nothing but its own folder.

    Raises:
        LakeExists: the folder is there and is no demo lake; nothing was touched.
        JavaMissing, JarError, SparkError: what Spark needs is not there.
    """
    began = time.monotonic()
    made_up.clear(folder)
    stage = Stage(lake=folder, console=console, talk=talk, env=clean(env))
    quiet = {"log.level": "error"}
    Workspace.init(folder, env=stage.env, name="demo").close()
    with closing(Workspace.find(folder, env=stage.env, overrides=quiet)) as lake:
        story = _Story(lake, stage)
        story.tell()
    seconds = time.monotonic() - began
    stage.say(f"\nThe story took {seconds:.0f} s. The lake stays in {folder}.")
    return Told(
        lake=str(folder),
        seconds=seconds,
        rows=story.rows,
        batches=story.batches,
        statuses=story.statuses,
        commands=story.propose(),
    )


def clean(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings that would lead the demo to another lake."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith("ODI_") or name in _KEPT_VARIABLES
    }


@dataclass(slots=True)
class _Story:
    """The chapters, in order, and what they leave for the end."""

    lake: Workspace
    stage: Stage
    rows: dict[str, int] = field(default_factory=dict)
    batches: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)

    def tell(self) -> None:
        """Tell all of it."""
        self._chapter_lake()
        self.stage.talk.print("Spark is starting …")
        with quiet_jvm(self.stage.lake / SPARK_LOG):
            spark = self.lake.spark("odi-audit demo")
        try:
            self._chapter_files(spark)
            self._chapter_changes(spark)
            self._chapter_killed(spark)
            self._chapter_compaction(spark)
            self._chapter_totals()
            self._chapter_row()
            self._chapter_clean()
            self._chapter_foreign(spark)
        finally:
            spark.stop()
        self._chapter_proof()
        self._chapter_incident()
        self._chapter_lineage()

    # -- chapters --------------------------------------------------------------------------------

    def _chapter_lake(self) -> None:
        self.stage.heading("A lake")
        self.stage.say(
            f"Made in {self.stage.lake}: an Iceberg catalog that Spark and Python share, a "
            "warehouse, and a ledger with a key of its own. No server runs."
        )

    def _chapter_files(self, spark: SparkSession) -> None:
        self.stage.heading("Three files of orders arrive")
        self.stage.say(
            "Each file is one batch: recorded in the ledger before it is written, staged where "
            "nobody sees it, checked (no key twice, no negative amount), published in one step."
        )
        for day in range(3):
            made_up.write_orders(self._place, day)
        with self.stage.waiting("three batches are on their way"):
            done = self._import()
        self._show(done)
        again = self._import()
        self.stage.say(
            f"The same job once more: {len(again.known)} files are in the ledger, "
            f"{len(again.batches)} new batches. {self._count(spark, 'imported')}"
        )

    def _chapter_changes(self, spark: SparkSession) -> None:
        self.stage.heading("A file of changes is upserted")
        self.stage.say(
            "Orders were shipped, some withdrawn (deleted here), some came late. One MERGE, "
            "staged, checked and published like any other batch."
        )
        made_up.write_changes(self._place)
        with self.stage.waiting("the upsert is on its way"):
            done = load_files(self._changes, self.lake)
        self._show(done)
        (_, receipt), counts = done.batches[0], done.batches[0][1].landing.counts
        self.batches["changes"] = receipt.batch
        self.stage.say(
            f"{counts['rows-updated']} rows updated, {counts['rows-inserted']} inserted, "
            f"{counts['rows-deleted']} deleted. {self._count(spark, 'changed')}"
        )

    def _chapter_killed(self, spark: SparkSession) -> None:
        self.stage.heading("A run is killed in the middle")
        file = made_up.write_orders(self._place, 3)
        self.stage.say(
            f"{file.name} arrives. Another process takes it; when its rows are staged and "
            "nothing is published yet, it gets a SIGKILL."
        )
        with self.stage.waiting("a second Spark starts, stages the file, and is killed"):
            pid = kill_when_staged(self._orders, self.stage)
        self.stage.say(f"Process {pid} is dead. {self._count(spark, 'killed')}")
        self.stage.say("Its intent is open in the ledger, and what became of it can be seen:")
        self.stage.run("reconcile")
        self.stage.say("Nothing needs to be cleaned up. The job is simply started again:")
        with self.stage.waiting("the job starts, and settles what the dead run left"):
            again = self._import()
        landed = self._newest_landed()
        self.batches["killed"] = landed
        self.stage.say(
            f"At its start the staged files were published as they were, as batch {landed}; "
            f"then {len(again.known)} files are known and {len(again.batches)} are new. "
            f"{self._count(spark, 'restarted')}"
        )

    def _chapter_compaction(self, spark: SparkSession) -> None:
        self.stage.heading("The table is compacted")
        with self.stage.waiting("files are rewritten"), odi.run(UPKEEP_JOB, lake=self.lake) as run:
            receipt = run.compact(TABLE, options={"rewrite-all": "true"})
        counts = receipt.landing.counts
        self.batches["compaction"] = receipt.batch
        self.stage.say(
            f"{counts['deleted-data-files']} data files became {counts['added-data-files']}, as "
            f"batch {receipt.batch}. Every row now lies in another file, and keeps its id. "
            f"{self._count(spark, 'compacted')}"
        )

    def _chapter_totals(self) -> None:
        self.stage.heading("Somebody reads it")
        self.stage.say(
            "Another job makes totals by customer. It reads the orders through the consumer API: "
            "what was read, by whom and at which snapshot, is an entry in the ledger too."
        )
        with self.stage.waiting("the totals are made"):
            receipt = demo_totals.write_totals(self.lake, TABLE)
        self.batches["totals"] = receipt.batch
        self.stage.quote(
            f"{demo_totals.TABLE}  batch {receipt.batch}  {added_rows(receipt)} customers"
        )

    def _chapter_row(self) -> None:
        self.stage.heading("Which batch produced this row?")
        self.stage.say(
            "One order is picked. Iceberg's row ids and the ledger answer together; the table has "
            "no extra column, and no JVM is started:"
        )
        self.stage.run("trace", TABLE, "--where", ROW)

    def _chapter_clean(self) -> None:
        self.stage.heading("Do the tables and the ledger agree?")
        self.statuses["verify_clean"] = self.stage.run("verify")

    def _chapter_foreign(self, spark: SparkSession) -> None:
        self.stage.heading("Somebody writes past the committer")
        statement = f"UPDATE lake.{TABLE} SET amount = amount + 1000 WHERE {ROW}"  # noqa: S608
        self.stage.say("Plain Spark SQL, as anybody with access to the lake could run it:")
        self.stage.quote(f"spark.sql({statement!r})")
        with self.stage.waiting("the foreign write is on its way"):
            spark.sql(statement)
        self.stage.say("It worked: the lake is not a fence. But it cannot be hidden:")
        self.statuses["verify_foreign"] = self.stage.run("verify")
        self._count(spark, "foreign")

    def _chapter_proof(self) -> None:
        self.stage.heading("The ledger can be proven to somebody else")
        self.stage.say(
            "Its entries are leaves of a Merkle tree; the head is signed. A proof of one batch is "
            "a small file that is checked with nothing but the public key:"
        )
        self.stage.run("ledger", "seal")
        self.stage.run("ledger", "prove", self.batches["killed"], "--out", str(self._proof))
        self.statuses["proof"] = self.stage.run(
            "ledger", "check", str(self._proof), "--public-key", str(self._public_key), lake=False
        )

    def _chapter_incident(self) -> None:
        self.stage.heading("A number is wrong")
        customer = made_up.WRONG_CUSTOMER
        self.stage.say(
            f"Finance calls: the total of {customer} is far too high. Which batch wrote that "
            "number, and what had its run read?"
        )
        self.statuses["trace_total"] = self.stage.run(
            "trace", demo_totals.TABLE, "--where", f"customer = '{customer}'"
        )
        self.statuses["batch_total"] = self.stage.run("batch", self.batches["totals"])
        self.stage.say("Among the orders that it read, one stands out:")
        self.statuses["trace_wrong"] = self.stage.run("trace", TABLE, "--where", WRONG)
        self.stage.say(
            "Its file is named: a decimal point was lost there. What else came with that batch, "
            "and who has read it since?"
        )
        self.statuses["impact"] = self.stage.run("impact", self.batches["killed"])

    def _chapter_lineage(self) -> None:
        self.stage.heading("What feeds what?")
        self.stage.say(
            "The ledger knows what each batch read and wrote, down to the column. What do the "
            "totals rest on?"
        )
        totals = demo_totals.TABLE
        self.statuses["lineage"] = self.stage.run("lineage", totals, "--up")
        self.statuses["lineage_column"] = self.stage.run("lineage", f"{totals}.amount", "--up")
        self.stage.say("The same as a page, in one file that needs no network:")
        self.statuses["lineage_page"] = self.stage.run("lineage", totals, "--html", str(self._page))
        self.stage.say(
            "Open it in a browser: drag to move, wheel to zoom, click a node for its batches and "
            "a line for its columns."
        )
        self.stage.quote(self._page.resolve().as_uri())

    def propose(self) -> tuple[tuple[str, int], ...]:
        """Show the commands to try next, and return them with the exit statuses they end with."""
        self.stage.heading("Try next")
        shown = self.stage.command
        orders = self._orders
        commands = (
            (shown("batches"), 0),
            (shown("batch", self.batches["killed"]), 0),
            (shown("trace", TABLE, "--where", ROW, "--json"), 0),
            (shown("trace", TABLE, "--where", ROW, "--history"), 0),
            (shown("history", TABLE), 0),
            (shown("offsets", TABLE), 0),
            (shown("coverage"), 0),
            (shown("lineage", TABLE, "--columns"), 0),
            (shown("sql", "SELECT job, count(*) AS batches FROM batches GROUP BY job"), 0),
            (shown("verify"), 1),
            (shown("reconcile"), 0),
            (shown("ledger", "verify"), 0),
            (shown("ledger", "export", str(self._place.out / "ledger.jsonl")), 0),
            (
                self.stage.python(
                    "-m", "jobs.files", "--lake", str(self.stage.lake),
                    "--folder", str(orders.folder), "--table", TABLE, "--job", orders.job,
                ),
                0,
            ),
        )  # fmt: skip
        for text, _ in commands:
            self.stage.quote(text)
        self.stage.say("(`verify` ends with status 1 here: the foreign write stays found.)")
        return commands

    # -- helpers -----------------------------------------------------------------------------------

    @property
    def _place(self) -> Place:
        return Place(root=self.stage.lake)

    @property
    def _orders(self) -> FilesJob:
        return FilesJob(job=IMPORT_JOB, folder=self._place.orders, table=TABLE)

    @property
    def _changes(self) -> FilesJob:
        return FilesJob(
            job=CHANGES_JOB,
            folder=self._place.changes,
            table=TABLE,
            key=("order_id",),
            order_by=("updated_at",),
            delete_when=WITHDRAWN,
        )

    @property
    def _proof(self) -> Path:
        return self._place.out / "proof.json"

    @property
    def _page(self) -> Path:
        return self.stage.lake / "lineage.html"

    @property
    def _public_key(self) -> Path:
        return self.stage.lake / "keys" / "ledger.key.pub"

    def _import(self) -> Loaded:
        return load_files(self._orders, self.lake)

    def _show(self, done: Loaded) -> None:
        for files, receipt in done.batches:
            names = ", ".join(path.name for path in files)
            self.stage.quote(
                f"{names}  batch {receipt.batch}  snapshot {receipt.snapshot}  "
                f"{added_rows(receipt)} rows"
            )

    def _count(self, spark: SparkSession, when: str) -> str:
        """Count the table, keep the number for the end, and say it."""
        query = f"SELECT count(*), count(DISTINCT order_id) FROM lake.{TABLE}"  # noqa: S608 - constants
        found = spark.sql(query).first()
        assert found is not None
        rows, orders = int(found[0]), int(found[1])
        self.rows[when] = rows
        if rows != orders:
            raise OdiError(f"{TABLE} has {rows} rows of {orders} orders: something is there twice")
        return f"The table has {rows:,} rows, no order twice."

    def _newest_landed(self) -> str:
        landed = self.lake.ledger().find(
            EntryFilter(kinds=(Kind.LANDED,)), limit=1, newest_first=True
        )
        return str(landed[0].batch)
