"""Dead letters brought back: decoded again, under their table as it is now.

Owns which letters fit by now, and the batch that takes them in. That batch names each letter it
holds, so the ledger refuses a letter that has been brought back before, whatever else comes with
it (docs/adr/0018-dead-letters.md). Must never change or remove a letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import TYPE_CHECKING

from jobs.dlq import Letter, State, Which, letter_tables, read_letters, source_of
from jobs.formats.types import spark_type, together
from jobs.runner.growing import TableTooSmall, until_it_fits
from jobs.runner.kafka_formats import format_of
from jobs.runner.tables import Growth
from jobs.sources.base import batch_of
from jobs.tasks import facts
from jobs.tasks.records import Records
from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import CommitConflict, NotSupported, TableNotFound, UsageError
from odi_audit.ids import BatchId, JobName, TableUuid
from odi_audit.model.contract import Contract
from odi_audit.model.offsets import Offsets, mapping
from odi_audit.model.provenance import OFFSET, PARTITION
from odi_audit.model.tables import parse

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.formats.decoded import Decoded
    from jobs.spec.model import JobSpec
    from odi_audit.catalog.lake import LakeCatalog
    from odi_audit.catalog.state import TableState
    from odi_audit.committer.run import Run
    from odi_audit.ledger.port import Ledger
    from odi_audit.model.loose import LooseFile, LooseTable
    from odi_audit.model.receipts import Receipt
    from odi_audit.spark.types import SparkSession

LETTERS_MAX = 10_000
"""Letters of one batch: the ledger names each of them. What is left is brought by the next call."""
_PLACE = "__odi_place"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReplay:
    """The letters of one table: those that fit by now, and those that still do not."""

    table: str
    fits: tuple[Letter, ...]
    still: Mapping[str, str]
    """By the letter's identity, why not."""
    growth: Growth
    batch: BatchId | None = None
    generation: int = 0
    landed: Receipt | None = None

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        still: list[Json] = [{"letter": name, "reason": why} for name, why in self.still.items()]
        return {
            "table": self.table,
            "fits": [letter.identity for letter in self.fits],
            "still": still,
            "add": dict(self.growth.add),
            "widen": dict(self.growth.widen),
            "batch": self.batch,
            "generation": self.generation,
            "landed": self.landed is not None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay would do, or did, table by table."""

    job: JobName
    letters: str
    tables: tuple[TableReplay, ...]
    more: bool = False
    """Whether open letters are left for another call."""

    def to_json(self) -> JsonObject:
        """Return the form that ``--json`` prints."""
        return {
            "job": self.job,
            "letters": self.letters,
            "tables": [table.to_json() for table in self.tables],
            "more": self.more,
        }


def check_replayable(spec: JobSpec) -> str:
    """Return the table of a job's dead letters, where they can be brought back.

    Raises:
        UsageError: the spec names no table for dead letters.
        NotSupported: rows of this job cannot be made of letters alone.
    """
    if spec.dead_letter is None:
        raise UsageError(
            f"job {spec.job} keeps no dead letters", hint="name a table: dead_letter: {table: …}"
        )
    target = spec.target
    obstacles = {
        "its source is not Kafka": spec.source.type != "kafka",
        "its records are changes of rows, which must come in their order": spec.source.type
        == "kafka"
        and spec.source.envelope != "none",
        f"its mode is {target.mode}": target.mode != "append",
        "it has a transform": spec.transform is not None,
        "it keeps a raw table too": target.raw is not None,
        "it routes by field": target.route is not None and target.route.by == "field",
    }
    for obstacle, holds in obstacles.items():
        if holds:
            raise NotSupported(
                f"dead letters of job {spec.job} cannot be brought back one by one: {obstacle}",
                hint=f"odi-audit dlq list {spec.dead_letter.table} --values shows their bytes; "
                "have the producer send the records again",
                job=spec.job,
            )
    return spec.dead_letter.table


def has_contract(spec: JobSpec) -> bool:
    """Say whether rows of a job have conditions to keep."""
    given = spec.contract
    return bool(given.key or given.required or given.rules)


def plan_replay(
    ledger: Ledger,
    catalog: LakeCatalog,
    spec: JobSpec,
    *,
    which: Which,
    spark: SparkSession | None = None,
) -> Replay:
    """Say which open letters of a job fit by now, and what their tables need for it.

    ``spark`` is needed where the job has a contract (:func:`has_contract`): its conditions are
    Spark's expressions.

    Raises:
        TableNotFound: there is no table of dead letters yet.
    """
    name = check_replayable(spec)
    wanted = replace(which, job=spec.job, state=State.OPEN)
    found = read_letters(ledger, letter_tables(catalog, name), which=wanted)
    letters = sorted(islice(found, LETTERS_MAX + 1), key=_in_order)
    chosen = letters[:LETTERS_MAX]
    tables = []
    for table, group in groupby(sorted(chosen, key=_of_table), key=_of_table):
        try:
            state = catalog.load(parse(table)) if table else None
        except TableNotFound:
            state = None
        if state is None:
            why = f"table {table} is not there" if table else "it was never known for which table"
            still = {letter.identity: why for letter in group}
            tables.append(TableReplay(table=table, fits=(), still=still, growth=Growth()))
        else:
            made = _fitting(state, list(group), spec, spark)
            tables.append(_named(ledger, made, spec.job, state.ref.uuid))
    return Replay(
        job=JobName(spec.job), letters=name, tables=tuple(tables), more=len(letters) > len(chosen)
    )


def carry_out(run: Run, replay: Replay, spec: JobSpec) -> Replay:
    """Bring back what fits, one batch for each table, each letter once.

    Raises:
        Refused: the letters break the contract together, or one of them has been brought back.
        CommitConflict: a table changed meanwhile; plan again.
    """
    done = [table if not table.fits else _commit(run, table, spec) for table in replay.tables]
    return replace(replay, tables=tuple(done))


# -- which letters fit -------------------------------------------------------------------------


def _fitting(
    state: TableState, letters: Sequence[Letter], spec: JobSpec, spark: SparkSession | None
) -> TableReplay:
    from odi_audit.catalog.data_files import arrow_schema_of
    from odi_audit.catalog.loose import loose_view

    schema = _read_of(spec, arrow_schema_of(loose_view(state)))
    form, strict = format_of(spec), spec.target.evolve == "strict"
    fits: list[Letter] = []
    still: dict[str, str] = {}
    add: dict[str, str] = {}
    widen: dict[str, str] = {}
    wider: dict[str, pa.DataType] = {}
    decoder = form.decoder(schema)
    for letter in letters:
        made = decoder.decode(_records([letter]))
        if made.rejects and made.wider and not strict:
            again = form.decoder(_changed(schema, made.wider)).decode(_records([letter]))
            if not again.rejects:
                wider |= made.wider
                widen = together([widen, _types(made.wider)])
                made = again
        if made.rejects:
            still[letter.identity] = made.rejects[0].reason
        else:
            fits.append(letter)
            add = together([add, _types(made.unknown)])
    broken = _breaking(spark, _changed(schema, wider), fits, spec)
    still |= {fits[place].identity: why for place, why in broken.items()}
    kept = tuple(letter for place, letter in enumerate(fits) if place not in broken)
    growth = Growth() if strict else Growth(add=add, widen=widen)
    return TableReplay(table=state.ref.name, fits=kept, still=still, growth=growth)


def _breaking(
    spark: SparkSession | None, schema: pa.Schema, letters: Sequence[Letter], spec: JobSpec
) -> dict[int, str]:
    """Return the places of letters whose rows break the contract, with the reason."""
    if not letters or not has_contract(spec):
        return {}
    import pyarrow as pa

    from jobs.patterns.contracts import judged
    from jobs.tasks.rows import REASON

    assert spark is not None, "the conditions of a contract are Spark's expressions"
    rows, order, _ = _decoded(schema, letters, spec)
    frame = spark.createDataFrame(rows.append_column(_PLACE, pa.array(order, pa.int64())))
    bad = judged(frame, spec, changes=False).where(f"{REASON} IS NOT NULL")
    return {row[0]: row[1] for row in bad.select(_PLACE, REASON).collect()}


def _named(ledger: Ledger, made: TableReplay, job: str, table: TableUuid) -> TableReplay:
    """Give the batch its id; where one of the same letters was undone, the next generation."""
    if not made.fits:
        return made
    offsets = _offsets(job, made.fits)
    generation = 0
    while ledger.landed(batch_of(JobName(job), offsets, generation), table) is not None:
        generation += 1
    return replace(made, batch=batch_of(JobName(job), offsets, generation), generation=generation)


# -- bringing them back ------------------------------------------------------------------------


def _commit(run: Run, made: TableReplay, spec: JobSpec) -> TableReplay:
    from odi_audit.catalog.data_files import DataFileWriter, arrow_schema_of
    from odi_audit.settings import catalog_pyiceberg_properties

    def write(now: LooseTable) -> list[LooseFile]:
        loose = replace(now, storage=catalog_pyiceberg_properties(run.parts.settings))
        rows, order, growth = _decoded(_read_of(spec, arrow_schema_of(loose)), made.fits, spec)
        if growth:
            raise TableTooSmall({made.table: growth})
        if len(order) != len(made.fits):
            raise CommitConflict(
                f"{len(made.fits) - len(order)} of {len(made.fits)} letters do not fit "
                f"{made.table} any more: it was changed meanwhile",
                hint="odi-audit dlq replay SPEC",
            )
        with DataFileWriter(loose, "letters") as writer:
            writer.write(rows)
            return writer.close()

    def attempt() -> Receipt:
        batch = run.batch(offsets=_offsets(run.job, made.fits), generation=made.generation)
        given = spec.contract
        contract = Contract(key=given.key, required=given.required, rules=given.rules)
        return batch.append_files(write, made.table, contract=contract).commit()

    landed, _ = until_it_fits(run, attempt, batch=made.batch)
    return replace(made, landed=landed)


def _decoded(
    schema: pa.Schema, letters: Sequence[Letter], spec: JobSpec
) -> tuple[pa.Table, list[int], Growth]:
    """Return the rows of letters with their facts, which letter each is of, and what is missing."""
    import pyarrow as pa

    tables: list[pa.Table] = []
    order: list[int] = []
    add: dict[str, str] = {}
    widen: dict[str, str] = {}
    decoder, kept = format_of(spec).decoder(schema), _facts(spec)
    places = sorted(range(len(letters)), key=lambda place: _in_order(letters[place]))
    for _, group in groupby(places, key=lambda place: letters[place].partition):
        mine = list(group)
        records = _records([letters[place] for place in mine])
        made: Decoded = decoder.decode(records)
        add, widen = together([add, _types(made.unknown)]), together([widen, _types(made.wider)])
        rows = made.rows
        for name, column in zip(kept, facts.columns(kept, records, made.places), strict=True):
            named = [letters[mine[place]].identity for place in made.places]
            # Such a row names its letter: that is the record of the batch that brought it.
            rows = rows.append_column(name, pa.array(named) if name == PARTITION else column)
        tables.append(rows)
        order += [mine[place] for place in made.places]
    strict = spec.target.evolve == "strict"
    growth = Growth() if strict else Growth(add=add, widen=widen)
    return pa.concat_tables(tables), order, growth


def _offsets(job: str, letters: Iterable[Letter]) -> Offsets:
    # Each letter is a part of its own: one that has been brought back overlaps, and is refused.
    ranges = {letter.identity: (letter.offset, letter.offset + 1) for letter in letters}
    return mapping(source_of(job), ranges)


def _facts(spec: JobSpec) -> tuple[str, ...]:
    assert spec.source.type == "kafka"
    kept = tuple(f"_{name}" for name in spec.source.keep)
    return kept + ((PARTITION, OFFSET) if spec.target.provenance == "row" else ())


def _read_of(spec: JobSpec, whole: pa.Schema) -> pa.Schema:
    """Return the columns that the decoder fills: all but the facts of the record."""
    import pyarrow as pa

    kept = _facts(spec)
    return pa.schema([item for item in whole if item.name not in kept])


# -- letters as records ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Message:
    """A letter in the shape of Kafka's message: the decoders take nothing else."""

    letter: Letter

    def value(self) -> bytes | None:
        return self.letter.value

    def key(self) -> bytes | None:
        return self.letter.key

    def offset(self) -> int:
        return self.letter.offset

    def timestamp(self) -> tuple[int, int]:
        at = self.letter.at
        return (0, 0) if at is None else (1, round(at.timestamp() * 1000))

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.letter.headers)


def _records(letters: Sequence[Letter]) -> Records:
    topic, _, partition = letters[0].partition.rpartition("-")
    messages = [_Message(letter) for letter in letters]
    return Records(topic=topic, partition=int(partition), messages=messages)  # type: ignore[arg-type]


def _changed(schema: pa.Schema, wider: Mapping[str, pa.DataType]) -> pa.Schema:
    for place, item in enumerate(schema):
        if item.name in wider:
            schema = schema.set(place, item.with_type(wider[item.name]))
    return schema


def _types(found: Mapping[str, pa.DataType]) -> dict[str, str]:
    return {name: spark_type(kind) for name, kind in found.items()}


def _in_order(letter: Letter) -> tuple[str, int, str]:
    return letter.partition, letter.offset, letter.batch


def _of_table(letter: Letter) -> str:
    return letter.table or ""
