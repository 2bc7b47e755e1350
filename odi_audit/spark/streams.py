"""Structured streaming: which part of its sources a micro-batch holds, and its checkpoint.

Owns the reading of Spark's offset log from inside ``foreachBatch`` and the writing of a checkpoint
that resumes where a recorded micro-batch ended. Must never change a checkpoint that is in use.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from odi_audit.canonical import encode
from odi_audit.errors import NotSupported, OdiError, SparkError, UsageError
from odi_audit.spark.jvm import JavaObject, Jvm, causes, first_line, raised

_QUERY_ID = "sql.streaming.queryId"
_COMMIT_LOG = 'v1\n{"nextBatchWatermarkMs":0}'
"""What Spark writes when a micro-batch of a stateless query is done."""
_NO_OFFSET = "-"
"""How the offset log says that a source has not begun."""
_INTERRUPTIONS = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")
_KEEPS_OWN_LOG = "FileStreamSource"
"""The file source numbers its files in a log of its own, inside the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """One source of a query in one micro-batch; offsets are the source's own JSON documents."""

    description: str
    start: str | None
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One micro-batch: its number, its sources, and the offset log's text for it."""

    query: str
    number: int
    sources: tuple[StreamSource, ...]
    log: str


def epoch_of(frame: DataFrame, number: int) -> Epoch:
    """Return the micro-batch that ``foreachBatch`` was called for.

    Raises:
        SparkError: called outside of a running streaming query.
    """
    jvm = Jvm(frame.sparkSession)
    query_id, query = _query_of(frame)
    log = query.offsetLog()
    now = log.get(number)
    if not now.isDefined():
        raise SparkError(f"the offset log of query {query_id} has no entry for batch {number}")
    before = log.get(number - 1) if number > 0 else None
    starts = _documents(before.get()) if before is not None and before.isDefined() else []
    ends = _documents(now.get())
    names = [str(source) for source in _items(query.sources())]
    return Epoch(
        query=query_id,
        number=number,
        sources=tuple(
            StreamSource(
                description=names[position] if position < len(names) else f"source {position}",
                start=starts[position] if position < len(starts) else None,
                end=end,
            )
            for position, end in enumerate(ends)
            if end is not None
        ),
        log=_text_of(jvm, log, now.get()),
    )


def _query_of(frame: DataFrame) -> tuple[str, JavaObject]:
    session = frame.sparkSession
    query_id = session.sparkContext.getLocalProperty(_QUERY_ID)
    active = Jvm(session).session.sharedState().activeStreamingQueries().values()
    running = {str(query.id()): query for query in active}
    if query_id is None or query_id not in running:
        raise SparkError(
            "the sink was called outside of a streaming query",
            hint="pass it to writeStream.foreachBatch(…)",
        )
    return query_id, running[query_id]


def when_over(frame: DataFrame, call: Callable[[OdiError | None], None]) -> None:
    """Have somebody called once, when the query that a micro-batch belongs to has ended.

    The error is None where the query was stopped; it says nothing in somebody else's words. A
    thread waits for the end: a query listener would be handed every progress of the query, too.
    """
    query_id, query = _query_of(frame)

    def wait() -> None:
        try:
            query.awaitTermination()
        except (Py4JError, PySparkException) as problem:
            chain = causes(problem)
            name = chain[-1].kind if chain else type(problem).__name__
            call(SparkError(f"query {query_id} ended with {name.rsplit('.', 1)[-1]}"))
        else:
            call(None)

    threading.Thread(target=wait, name="odi-query-end", daemon=True).start()


def restore_checkpoint(spark: SparkSession, path: str, epoch: Epoch) -> None:
    """Write a checkpoint from which a query goes on after ``epoch``.

    Raises:
        UsageError: the folder holds a checkpoint already.
        NotSupported: the query reads a file source, whose own log is lost too.
    """
    if any(_KEEPS_OWN_LOG in source.description for source in epoch.sources):
        raise NotSupported(
            f"the query reads {epoch.sources[0].description}: Spark's file source keeps its list "
            "of read files in the checkpoint only",
            hint="ingest files with jobs.files, which knows from the ledger what was read",
        )
    jvm = Jvm(spark)
    hadoop = jvm.java.org.apache.hadoop.fs
    root = hadoop.Path(path)
    files = root.getFileSystem(jvm.session.sessionState().newHadoopConf())
    if files.exists(hadoop.Path(root, "metadata")):
        raise UsageError(f"{path} holds a checkpoint already: it is left as it is")
    for name, text in _checkpoint_files(epoch).items():
        stream = files.create(hadoop.Path(root, name), True)
        stream.write(bytearray(text.encode()))
        stream.close()


def _checkpoint_files(epoch: Epoch) -> dict[str, str]:
    # Spark starts from the last offset log and wants the one before it as well; ``metadata``
    # comes last, because it is what makes the folder a checkpoint.
    files: dict[str, str] = {}
    if epoch.number > 0:
        header = epoch.log.split("\n")[:2]
        starts = [source.start or _NO_OFFSET for source in epoch.sources]
        files[f"offsets/{epoch.number - 1}"] = "\n".join([*header, *starts])
        files[f"commits/{epoch.number - 1}"] = _COMMIT_LOG
    files[f"offsets/{epoch.number}"] = epoch.log
    files[f"commits/{epoch.number}"] = _COMMIT_LOG
    files["metadata"] = json.dumps({"id": epoch.query})
    return files


@contextmanager
def told_briefly() -> Iterator[None]:
    """Let errors out of ``foreachBatch`` in few words, and a stopped query as what it is.

    Spark searches the whole text of such an error, Java stack traces included, with a pattern
    that recurses for every character, and runs out of stack on a long one. It takes an error for
    the end of a stopped query when it names an interruption in Py4J's words.
    """
    try:
        yield
    except (OdiError, Py4JError, PySparkException) as error:
        if interrupted(error):
            raise RuntimeError(
                "py4j.protocol.Py4JJavaError: An error occurred while calling the sink: "
                "java.lang.InterruptedException"
            ) from None
        if isinstance(error, OdiError):
            error.__cause__ = None
            raise error.with_traceback(None) from None
        raise SparkError(f"the micro-batch failed: {first_line(error)}") from None


def interrupted(error: BaseException) -> bool:
    """Say whether an error is how a stopped query ends what it was doing."""
    chain: BaseException | None = error
    while chain is not None:
        if raised(chain, *_INTERRUPTIONS):
            return True
        chain = chain.__cause__
    return False


def has_checkpoint(spark: SparkSession, path: str) -> bool:
    """Say whether a folder holds a checkpoint."""
    jvm = Jvm(spark)
    hadoop = jvm.java.org.apache.hadoop.fs
    root = hadoop.Path(path)
    files = root.getFileSystem(jvm.session.sessionState().newHadoopConf())
    return bool(files.exists(hadoop.Path(root, "metadata")))


def _documents(sequence: JavaObject) -> list[str | None]:
    # Canonical text, so that equal offsets are equal however the source orders its keys.
    return [
        encode(json.loads(offset.get().json())).decode() if offset.isDefined() else None
        for offset in _items(sequence.offsets())
    ]


def _items(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(position) for position in range(sequence.size())]


def _text_of(jvm: Jvm, log: JavaObject, entry: JavaObject) -> str:
    buffer = jvm.java.java.io.ByteArrayOutputStream()
    log.serialize(entry, buffer)
    return str(buffer.toString("UTF-8"))
