"""The spool: events that openlineage-spark wrote to files, read as whole runs.

Owns the folder: one file for each Spark process, appended to by its JVM, read here and removed when
all of it was handed on. A run leaves when it has ended, as START and one end, because only then is
known whose work it was and what it touched (docs/adr/0014). Must never read a line that is still
being written, hand on a run twice as ended, or hold more than a bounded part of a file in memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from lineage.leaving import Event
from lineage.listener_run import ENDS, ListenerRun, is_application, of_document
from lineage.spool_files import SpoolFile, processes
from odi_audit import logs
from odi_audit.canonical import JsonObject, encode
from odi_audit.checks import Bug
from odi_audit.errors import UsageError
from odi_audit.ids import RunId

log = logs.get_logger(__name__)

NAME = "spool"
LEFT_OUT = "left-out"
OPEN_RUNS_MAX = 1_000
"""Runs that have begun and not ended. Some of Spark's internal jobs never do: the oldest go."""
OPEN_BYTES_MAX = 64 * 1024 * 1024
"""How much of a file may follow a run's begin before it is given up: it bounds what a restart
reads again."""
ENDED_KEPT_MAX = 10_000
"""Runs that have ended and may be spoken of once more: a failed write also "completes"."""

Turn = Callable[[ListenerRun], Sequence[Event]]
"""Makes of a listener's run the events that may be sent, or none."""
Note = Callable[[int, str], None]
"""Is told of a line by its offset, and why nothing of it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """An event that may be sent, and the position after it.

    ``key`` tells it from every other of the folder: its file, where its run begins and ends in it,
    and which of the run's events it is.
    """

    position: str
    key: str
    run: RunId
    state: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a file was handed on.

    Ends before ``offset`` were handed on, and of the one that begins there the first ``sent``
    events. ``low`` is where the oldest run begins that was open then.
    """

    low: int = 0
    offset: int = 0
    sent: int = 0


class Spool:
    """The spool folder of a lake; ``turn`` decides what of a run is sent."""

    def __init__(self, folder: Path, turn: Turn, *, now: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        """What was not handed on, by reason: left-out (it says nothing), bad-line, long-line,
        torn-line, unended, no-start, unusable. Each is counted once in the life of this object."""
        self._turn = turn
        self._now = now
        self._readers: dict[str, _Reader] = {}
        self._stops: dict[str, int] | None = None
        self._counted: dict[str, int] = {}

    def read(self, position: str | None, limit: int) -> list[Spooled]:
        """Return up to ``limit`` events after a position, in order within each run.

        Raises:
            UsageError: the position is not one of this class.
        """
        places = _parse(position)
        found: list[Spooled] = []
        names = self._names()
        self._readers = {name: kept for name, kept in self._readers.items() if name in names}
        places = {name: place for name, place in places.items() if name in names}
        for name in names:
            if len(found) >= limit:
                break
            reader = self._reader(name, places.get(name, Place()))
            for given in reader.events(self._turn, limit - len(found)):
                places[name] = given.after
                found.append(given.spooled(_text(places)))
        return found

    def again(self, key: str) -> Spooled | None:
        """Make one event again; None where its file is gone or no longer gives it."""
        name, _, rest = key.rpartition(":")
        begins, end, number = (int(part) for part in rest.split(".")) if name else (0, 0, 0)
        if name not in self._names():
            return None
        reader = _Reader(self._file(name), Place(low=begins, offset=end))
        for given in reader.events(self._turn, number + 1):
            if given.key == key:
                return given.spooled(_text({name: given.after}))
        return None

    def waiting(self, position: str | None) -> tuple[int, str | None]:
        """Return how many events follow a position, and the time of the first of them."""
        places = _parse(position)
        count, first = 0, None
        for name in self._names():
            place = places.get(name, Place())
            reader = _Reader(self._file(name), place, stop=self._stop(name))
            for given in reader.events(self._turn, sys.maxsize):
                count += 1
                first = first or given.event.document.eventTime
        return count, first

    def end(self) -> str:
        """Return the position behind everything that there is now."""
        return _text(
            {
                name: Place(low=size, offset=size)
                for name in self._names()
                for size in [self._file(name).end]
            }
        )

    def freeze(self) -> None:
        """Read no further than what there is now."""
        self._stops = {name: self._file(name).end for name in self._names()}
        self._readers.clear()

    def forget(self, *positions: str | None) -> list[str]:
        """Make room: remove what is behind every position; return the processes that are gone.

        ``positions`` are those of the last events that each receiver has. Of a process that lives
        the parts that are behind go; of a dead one everything, once nothing of it waits.
        """
        gone: list[str] = []
        for name in self._names():
            file = self._file(name)
            stands = [self._stand(name, position) for position in positions]
            if all(done for done, _ in stands) and file.is_dead(self._now()):
                for reason, count in leftovers(file).items():
                    self.counts[reason] += count
                    log.warning("spool file ended", process=name, reason=reason, count=count)
                file.remove()
                self._readers.pop(name, None)
                gone.append(name)
                continue
            file.drop_before(min((low for _, low in stands), default=0))
            file.cut()
        return gone

    def size_bytes(self) -> int:
        """Return how much waits on disk, handed on or not."""
        return sum(self._file(name).size_bytes() for name in self._names())

    def _names(self) -> list[str]:
        return processes(self.folder)

    def _file(self, name: str) -> SpoolFile:
        return SpoolFile(self.folder, name)

    def _stand(self, name: str, position: str | None) -> tuple[bool, int]:
        """Say whether nothing waits behind a position, and from where on a reader needs it."""
        place = _parse(position).get(name, Place())
        reader, stop = self._reader(name, place), self._stop(name)
        if next(reader.events(self._turn, 1), None) is None:
            # What gives no event is behind it as well.
            return stop is None or self._file(name).end <= stop, reader.place.low
        del self._readers[name]
        return False, place.low

    def _reader(self, name: str, place: Place) -> _Reader:
        kept = self._readers.get(name)
        if kept is None or kept.told != place:
            kept = self._readers[name] = _Reader(
                self._file(name), place, stop=self._stop(name), note=partial(self._note, name)
            )
        return kept

    def _note(self, name: str, offset: int, reason: str) -> None:
        # A reader that begins again before a line must not count it again.
        if offset > self._counted.get(name, -1):
            self._counted[name] = offset
            self.counts[reason] += 1
            if reason != LEFT_OUT:
                log.warning("spooled event not sent", process=name, offset=offset, reason=reason)

    def _stop(self, name: str) -> int | None:
        return None if self._stops is None else self._stops.get(name, 0)


# -- one file --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    after: Place
    key: str
    event: Event

    def spooled(self, position: str) -> Spooled:
        event = self.event
        return Spooled(
            position=position, key=self.key, run=event.run, state=event.state, body=event.body
        )


class _Reader:
    """Reads one file on from a place; what it knows of open runs can be made again from there."""

    def __init__(
        self, file: SpoolFile, place: Place, *, stop: int | None = None, note: Note | None = None
    ) -> None:
        self._file = file
        self.place = place
        self.told = place
        """The place after the last event that was given out."""
        self.at = place.low
        self._note = note
        self._stop = stop
        self._open: OrderedDict[str, ListenerRun] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def events(self, turn: Turn, limit: int) -> Iterator[_Given]:
        """Yield events and the place after each, until ``limit`` or the last whole line."""
        left = limit
        for line in self._file.lines(self.at, self._stop):
            offset, length = line.offset, line.length
            run, before = self._take(offset, line.content)
            self.at = offset + length
            if offset < self.place.offset:
                continue
            if run is not None and before is not None:
                made = self._turned(turn, run, offset)
                for number in range(self.place.sent, len(made)):
                    if left == 0:
                        self._put_back(offset, before)
                        return
                    last = number == len(made) - 1
                    self.place = (
                        self._behind(offset + length)
                        if last
                        else Place(low=self._low(run.begins), offset=offset, sent=number + 1)
                    )
                    left -= 1
                    self.told = self.place
                    key = f"{self._file.live.stem}:{run.begins}.{offset}.{number}"
                    yield _Given(after=self.place, key=key, event=made[number])
            # What gave no event is behind us as well, but a position is told with events only.
            if self.place.offset <= offset:
                self.place = self._behind(offset + length)

    def _turned(self, turn: Turn, run: ListenerRun, offset: int) -> Sequence[Event]:
        try:
            made = turn(run)
        except (Bug, ValueError, TypeError, KeyError, AttributeError):
            # One run that no event can be made of must not stop all that follow.
            self._count(offset, "unusable")
            return ()
        if not made:
            self._count(offset, LEFT_OUT)
        return made

    @property
    def open_runs(self) -> int:
        """How many runs have begun and not ended."""
        return len(self._open)

    def _take(
        self, offset: int, line: bytes
    ) -> tuple[ListenerRun, ListenerRun] | tuple[None, None]:
        """Note a line; return the run that it ends, if it does, with and without that line."""
        document = self._parsed(offset, line)
        if document is None or is_application(document):
            return None, None
        run = cast("JsonObject", document["run"])
        run_id, state = str(run["runId"]), str(document["eventType"])
        if run_id in self._ended:
            return None, None
        begun = self._open.pop(run_id, None) if state in ENDS else self._open.get(run_id)
        if state not in ENDS:
            self._open[run_id] = (
                of_document(document, begins=offset) if begun is None else begun.joined(document)
            )
            self._give_up_old(offset)
            return None, None
        self._ended[run_id] = None
        while len(self._ended) > ENDED_KEPT_MAX:
            self._ended.popitem(last=False)
        if begun is None:
            # Either it was given up, or this is the second end of a run that ended long ago.
            self._count(offset, "no-start")
            return None, None
        return begun.joined(document), begun

    def _parsed(self, offset: int, line: bytes) -> JsonObject | None:
        if not line:
            self._count(offset, "long-line")
            return None
        try:
            document = json.loads(line)
            if isinstance(document["run"]["runId"], str) and document["job"]["name"]:
                return cast("JsonObject", document) if document.get("eventType") else None
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        self._count(offset, "bad-line")
        return None

    def _count(self, offset: int, reason: str) -> None:
        if self._note is not None and offset >= self.place.offset:
            self._note(offset, reason)

    def _give_up_old(self, offset: int) -> None:
        while self._open:
            run_id, oldest = next(iter(self._open.items()))
            if len(self._open) <= OPEN_RUNS_MAX and offset - oldest.begins <= OPEN_BYTES_MAX:
                return
            del self._open[run_id]
            self._count(offset, "unended")

    def _put_back(self, offset: int, run: ListenerRun) -> None:
        # Nothing of this end was handed on: the next read begins with it.
        self.at = offset
        self._ended.pop(run.run, None)
        self._open[run.run] = run
        self._open.move_to_end(run.run, last=False)

    def _low(self, offset: int) -> int:
        return min([offset, *(held.begins for held in self._open.values())])

    def _behind(self, offset: int) -> Place:
        return Place(low=self._low(offset), offset=offset)


def leftovers(file: SpoolFile) -> Mapping[str, int]:
    """Return what a file that has ended holds beyond its whole lines and ended runs."""
    begin = file.begin
    reader = _Reader(file, Place(low=begin, offset=begin))
    for _ in reader.events(lambda _: (), sys.maxsize):
        pass
    found = {"torn-line": 1 if file.end > reader.at else 0, "unended": reader.open_runs}
    return {reason: count for reason, count in found.items() if count}


# -- positions -------------------------------------------------------------------------------------


def _text(places: Mapping[str, Place]) -> str:
    return encode(
        {name: [place.low, place.offset, place.sent] for name, place in places.items()}
    ).decode()


def _parse(position: str | None) -> dict[str, Place]:
    if position is None:
        return {}
    try:
        return {
            str(name): Place(low=int(low), offset=int(offset), sent=int(sent))
            for name, (low, offset, sent) in json.loads(position).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{position[:100]!r} is no position in a spool") from error
