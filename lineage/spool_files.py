"""The files of one Spark process in the spool, as one stream of lines.

Owns the names: ``<process>.jsonl`` is what the JVM appends to, ``<process>.<offset>.part`` what was
cut off before, ``<process>.lock`` what its driver holds while it lives. The listener opens its file
anew for each event, so a file that is renamed under it is simply begun again. Offsets count over
all parts, those that are gone included. Must never cut or remove what a reader may still need:
that is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LINE_BYTES_MAX = 16 * 1024 * 1024
"""A longer line is no event that anybody could use; it is skipped and counted."""
PART_BYTES_MAX = 32 * 1024 * 1024
"""A file that has grown to this is cut off, so that a stream which runs for months needs no more
room than what waits to be sent."""
DEAD_AFTER_S = 60.0
"""A JVM may write its last lines after its driver died; then its file is left alone for so long."""
IDLE_S_MAX = 86_400.0
"""A file of a process that holds no lock (``spark-submit``) counts as ended after a quiet day."""
_LIVE, _PART, _LOCK = ".jsonl", ".part", ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One whole line and where it stands; without content where it is too long."""

    offset: int
    length: int
    content: bytes


def processes(folder: Path) -> list[str]:
    """Return the names of the processes that have left something, sorted."""
    return sorted(
        {path.name.partition(".")[0] for path in folder.glob(f"*{_LIVE}")}
        | {path.name.partition(".")[0] for path in folder.glob(f"*{_PART}")}
    )


class SpoolFile:
    """What one process has written."""

    def __init__(self, folder: Path, process: str) -> None:
        self.live = folder / f"{process}{_LIVE}"
        self._folder = folder
        self._process = process

    @property
    def begin(self) -> int:
        """The offset of the first byte that is still there."""
        return next((base for base, _ in self._segments()), 0)

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return max((base + path.stat().st_size for base, path in self._segments()), default=0)

    def size_bytes(self) -> int:
        """Return how much room it takes."""
        return self.end - self.begin

    def lines(self, at: int, stop: int | None = None) -> Iterator[Line]:
        """Yield whole lines from an offset on; a line that is being written is left alone."""
        segments = self._segments()
        for number, (base, path) in enumerate(segments):
            if at < base + path.stat().st_size:
                yield from _lines(path, base, at, stop, last=number == len(segments) - 1)

    def is_dead(self, now: float) -> bool:
        """Say whether its process will write no more."""
        changed = [path.stat().st_mtime for _, path in self._segments()]
        quiet_s = now - max(changed, default=0.0)
        lock = self.live.with_suffix(_LOCK)
        try:
            import fcntl

            opened = lock.open("r")
        except (ImportError, FileNotFoundError):
            return quiet_s > IDLE_S_MAX
        with opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return False
        return quiet_s > DEAD_AFTER_S

    def cut(self) -> bool:
        """Cut off what has grown too big, under the process's hands; say whether it was."""
        segments = self._segments()
        if not segments or segments[-1][1] != self.live:
            return False
        base, live = segments[-1]
        if live.stat().st_size < PART_BYTES_MAX:
            return False
        live.rename(self._folder / f"{self._process}.{base:015d}{_PART}")
        return True

    def drop_before(self, offset: int) -> None:
        """Remove the parts that end at or before an offset.

        The newest part stays while its process lives: it says where the next one begins.
        """
        for base, path in self._parts()[:-1]:
            if base + path.stat().st_size <= offset:
                path.unlink()

    def remove(self) -> None:
        """Remove all of it."""
        for _, path in self._segments():
            path.unlink(missing_ok=True)
        self.live.with_suffix(_LOCK).unlink(missing_ok=True)

    def _parts(self) -> list[tuple[int, Path]]:
        found = self._folder.glob(f"{self._process}.*{_PART}")
        return sorted((int(path.name.split(".")[1]), path) for path in found)

    def _segments(self) -> list[tuple[int, Path]]:
        parts = self._parts()
        if not self.live.exists():
            return parts
        # Once there is a new file, the part before it is whole: one thread writes both.
        base = parts[-1][0] + parts[-1][1].stat().st_size if parts else 0
        return [*parts, (base, self.live)]


def _lines(path: Path, base: int, at: int, stop: int | None, *, last: bool) -> Iterator[Line]:
    with path.open("rb") as file:
        file.seek(max(at - base, 0))
        while True:
            offset = base + file.tell()
            if stop is not None and offset >= stop:
                return
            line = file.readline(LINE_BYTES_MAX)
            length, content = len(line), line
            while line and not line.endswith(b"\n"):
                content = b""
                line = file.readline(LINE_BYTES_MAX)
                length += len(line)
            if length == 0 or (not line and last):
                return
            yield Line(offset=offset, length=length, content=content)
