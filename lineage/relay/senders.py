"""Sending: what a transport must do, and the transports that write to this machine.

Owns the interface, the file and the console. A chunk never has two events of one run: the earlier
is acknowledged before the later is sent. Must never say DONE of an event that could still be lost
by the end of this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from lineage.relay.answers import DONE, Answer, Verdict, no_answer
from lineage.relay.destinations import Destination
from lineage.relay.sources import Item

if TYPE_CHECKING:
    from openlineage.client.transport.file import FileTransport

CHUNK_MAX = 256
"""Events written to a file or given to Kafka at once: one flush for all of them."""


class Sender(Protocol):
    """Sends events to one destination; used by one thread.

    ``one_by_one``: a chunk is a queue of single requests, given for the next to be at hand.
    """

    chunk_max: int
    one_by_one: bool

    def send(self, items: Sequence[Item]) -> list[Answer]:
        """Send events and return the answer to each, in their order; never raises for a fault."""
        ...

    def probe(self) -> bool:
        """Say whether the destination is well, without an event."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def make_sender(destination: Destination) -> Sender:
    """Return a new sender to a destination.

    Raises:
        ConfigError: a part that the transport needs is not installed, or its settings are wrong.
    """
    match destination.transport:
        case "http":
            from lineage.relay.http import HttpSender

            return HttpSender(destination.settings)
        case "kafka":
            from lineage.relay.kafka import KafkaSender

            return KafkaSender(destination.settings)
        case "file":
            assert destination.settings.file is not None
            return FileSender(destination.settings.file)
        case "console":
            return ConsoleSender()


class FileSender:
    """Appends events to a file, one line each, on the disk when it says so."""

    chunk_max = CHUNK_MAX
    one_by_one = False

    def __init__(self, path: Path) -> None:
        from openlineage.client.transport.file import FileConfig, FileTransport

        self._transport: FileTransport = FileTransport(
            FileConfig(log_file_path=str(path), append=True)
        )
        self._path = path
        self._looked = False

    def send(self, items: Sequence[Item]) -> list[Answer]:
        """Append all of them with one write and one flush."""
        lines = b"".join(item.body + b"\n" for item in items)
        try:
            # The library's own way in, but once for a chunk: it would open the file for each event.
            with self._transport._file_handler.open_file(str(self._path), "ab") as stream:
                if not self._looked and self._is_torn():
                    stream.write(b"\n")
                self._looked = True
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as problem:
            return [self._failed(problem)] * len(items)
        return [DONE] * len(items)

    def probe(self) -> bool:
        """Say whether the file can be written."""
        return os.access(self._path if self._path.exists() else self._path.parent, os.W_OK)

    def close(self) -> None:
        """Nothing is kept open."""

    def _is_torn(self) -> bool:
        """Say whether the last line was cut off, by a power cut say: it is not to be gone on."""
        if not self._path.exists() or not self._path.stat().st_size:
            return False
        with self._path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) != b"\n"

    def _failed(self, problem: OSError) -> Answer:
        reason = f"{self._path}: {problem.strerror or problem}"
        if isinstance(problem, PermissionError | IsADirectoryError | FileNotFoundError):
            return Answer(verdict=Verdict.STOPPED, reason=reason)
        return no_answer(reason, in_doubt=False)


class ConsoleSender:
    """Prints events to stdout, one line each: only where somebody asked for that."""

    chunk_max = CHUNK_MAX
    one_by_one = False

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def send(self, items: Sequence[Item]) -> list[Answer]:
        """Print all of them."""
        stream = self._stream or sys.stdout
        try:
            stream.writelines(item.body.decode() + "\n" for item in items)
            stream.flush()
        except (OSError, ValueError) as problem:
            return [Answer(verdict=Verdict.STOPPED, reason=f"stdout: {problem}")] * len(items)
        return [DONE] * len(items)

    def probe(self) -> bool:
        """A terminal is always well."""
        return True

    def close(self) -> None:
        """Nothing is kept open."""
