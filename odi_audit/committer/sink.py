"""The sink: one call makes a structured-streaming query exactly-once and audited.

Owns the function that ``foreachBatch`` calls. A micro-batch's offsets come from Spark's offset log,
so a micro-batch that Spark runs again is the same batch. Must never commit a micro-batch whose
offsets it cannot name.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from odi_audit import logs
from odi_audit.canonical import Json, JsonObject
from odi_audit.committer.lifetime import Stopped
from odi_audit.committer.operations import NO_CONTRACT
from odi_audit.committer.run import Run
from odi_audit.errors import OdiError, SourceChanged
from odi_audit.ledger.port import EntryFilter
from odi_audit.model.contract import Contract
from odi_audit.model.entries import Entry, Kind
from odi_audit.model.offsets import Offsets, stream
from odi_audit.model.receipts import Receipt
from odi_audit.model.tables import parse
from odi_audit.spark import streams
from odi_audit.spark.streams import Epoch, StreamSource

if TYPE_CHECKING:
    from odi_audit.spark.types import DataFrame

log = logs.get_logger(__name__)


class Sink:
    """What ``foreachBatch`` calls: ``stream.writeStream.foreachBatch(odi.sink(…))``."""

    def __init__(
        self,
        start: Callable[[], Run],
        *,
        table: str,
        key: Sequence[str] = (),
        order_by: Sequence[str] = (),
        delete_when: str | None = None,
        contract: Contract = NO_CONTRACT,
    ) -> None:
        self._start = start
        self._given = table
        self._table = parse(table)
        self._key = tuple(key)
        self._order_by = tuple(order_by)
        self._delete_when = delete_when
        self._contract = contract
        self._run: Run | None = None
        self._watched: Run | None = None
        self.last: Receipt | None = None

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Commit one micro-batch, once."""
        with streams.told_briefly():
            try:
                self._commit(frame, epoch)
            except BaseException as error:
                stopped = streams.interrupted(error)
                self._end(Stopped("the query was stopped while it wrote") if stopped else error)
                raise

    def _commit(self, frame: DataFrame, epoch: int) -> None:
        found = streams.epoch_of(frame, epoch)
        if self.last is None:
            self._check_query(found)
        run = self._running()
        if self._watched is not run:
            streams.when_over(frame, lambda error: self._over(run, error))
            self._watched = run
        batch = run.batch(offsets=offsets_of(found), stream=_facts(found))
        if self._key:
            batch.upsert(
                frame,
                self._given,
                key=self._key,
                order_by=self._order_by,
                delete_when=self._delete_when,
                contract=self._contract,
            )
        else:
            batch.append(frame, self._given, contract=self._contract)
        self.last = batch.commit()

    def restore_checkpoint(self, path: str) -> int | None:
        """Make a lost checkpoint again, from the ledger; returns the last micro-batch's number.

        Does nothing and returns None when the folder holds a checkpoint, or when nothing of this
        job has landed on the table. For stateless queries: state is not in the ledger.

        Raises:
            NotSupported: the query reads a file source.
        """
        try:
            return self._restore(self._running(), path)
        except BaseException as error:
            self._end(error)
            raise

    def _restore(self, run: Run, path: str) -> int | None:
        if streams.has_checkpoint(run.spark, path):
            return None
        entry = self._last_intent()
        if entry is None:
            return None
        epoch = _epoch(cast("Mapping[str, Json]", entry.facts["stream"]))
        streams.restore_checkpoint(run.spark, path, epoch)
        log.info("checkpoint restored", path=path, micro_batch=epoch.number, batch=entry.batch)
        return epoch.number

    def _check_query(self, epoch: Epoch) -> None:
        # Some sources number what they have read in the checkpoint only, so the same offsets of
        # another checkpoint may be other rows: neither skipping nor writing them would be right.
        last = self._last_intent()
        if last is None:
            return
        before = _epoch(cast("Mapping[str, Json]", last.facts["stream"]))
        if before.query != epoch.query:
            raise SourceChanged(
                f"the query starts anew, but {self._table} holds batches of this job already: "
                f"Spark's checkpoint was lost or another folder was named (the last was "
                f"micro-batch {before.number} of query {before.query}, this is "
                f"{epoch.number} of {epoch.query})",
                hint="call restore_checkpoint(path) of the sink before start(), or give the new "
                "query a job name of its own",
                table=str(self._table),
            )

    def _end(self, error: BaseException | None) -> None:
        """End the run with the query: what it left open may then be settled by the next one."""
        run, self._run = self._run, None
        if run is not None:
            atexit.unregister(self._leave)
            told = None if error is None else error.__traceback__
            run.__exit__(None if error is None else type(error), error, told)

    def _over(self, run: Run, error: OdiError | None) -> None:
        """Hear from Spark that a query has ended; by now there may be another one, and its run."""
        if self._run is run:
            self._end(error)

    def _leave(self) -> None:
        self._end(Stopped("its process ended while the query was running"))

    def _running(self) -> Run:
        if self._run is None:
            self._run = self._start().__enter__()
            atexit.register(self._leave)
        return self._run

    def _last_intent(self) -> Entry | None:
        run = self._running()
        ledger = run.parts.ledger
        uuid = run.parts.catalog().load(self._table).ref.uuid
        landed = ledger.find(
            EntryFilter(kinds=(Kind.LANDED,), job=run.job, table=uuid), newest_first=True
        )
        for entry in landed:
            intent = ledger.get(entry.intent) if entry.intent is not None else entry
            undone = entry.batch is not None and ledger.undone(entry.batch, uuid)
            if "stream" in intent.facts and not undone:
                return intent
        return None


def offsets_of(epoch: Epoch) -> Offsets:
    """Return a micro-batch's offsets: each source's own documents, start and end."""
    names = ", ".join(source.description for source in epoch.sources)
    return stream(
        f"stream:{names}",
        {
            f"{position}": (source.start, source.end)
            for position, source in enumerate(epoch.sources)
        },
    )


def _facts(epoch: Epoch) -> JsonObject:
    return {
        "query": epoch.query,
        "number": epoch.number,
        "log": epoch.log,
        "sources": [
            {"description": item.description, "start": item.start, "end": item.end}
            for item in epoch.sources
        ],
    }


def _epoch(facts: Mapping[str, Json]) -> Epoch:
    sources = cast("Sequence[Mapping[str, str]]", facts["sources"])
    return Epoch(
        query=str(facts["query"]),
        number=cast("int", facts["number"]),
        sources=tuple(
            StreamSource(description=item["description"], start=item["start"], end=item["end"])
            for item in sources
        ),
        log=str(facts["log"]),
    )
