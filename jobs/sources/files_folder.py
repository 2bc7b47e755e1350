"""The files of a folder as they are now: which there are, which are finished, what is in them.

Owns the listing and the digests. A file is left alone while it is young, has a name of unfinished
files, or changes under our hands. Digests are kept for as long as a file's status stays as it was.
Must never change a file.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jobs.tasks.file_rows import FileFormat
from odi_audit.errors import NotSupported, SourceDenied, SourceNotFound, SourceUnavailable

UNFINISHED_STARTS = (".", "_")
UNFINISHED_ENDS = (".tmp", ".part", ".partial", ".crdownload", ".inprogress", ".swp", "~")
"""Names under which programs write a file before it gets its own."""
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the file system says of a file; ``changed_ns`` moves with its content and its status."""

    path: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is in a file: size and digest as the ledger keeps them, and how many records."""

    place: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Files that are finished, oldest first, and how many were left alone."""

    finished: tuple[Status, ...]
    young: int
    """Younger than the time that the spec gives them to settle."""


class Folder:
    """A folder or a pattern of files."""

    def __init__(self, path: str, *, base: Path, form: FileFormat, settle_s: float) -> None:
        scheme, found, _ = path.partition("://")
        if found and scheme != "file":
            raise NotSupported(
                f"source.path {path}: files are read from folders of this machine, not by {scheme}",
                hint="mount the place as a folder, or bring the files here first",
            )
        whole = path.removeprefix("file://")
        parts = (base / Path(whole).expanduser()).parts
        fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
        self._fixed = Path(*parts[:fixed])
        self._pattern = "/".join(parts[fixed:])
        self.root = self._fixed.resolve()
        self.shown = path
        self._format = form
        self._settle_s = settle_s
        self._contents: dict[Status, Content] = {}

    @property
    def source(self) -> str:
        """The name under which the ledger keeps positions: the folder that holds them all."""
        folder = self.root.parent if self.root.is_file() else self.root
        return f"file://{folder}"

    def look(self, now_s: float) -> Listing:
        """Return the files that are finished, by time and name.

        Raises:
            SourceNotFound: the folder is not there.
            SourceDenied, SourceUnavailable: it cannot be read.
        """
        finished: list[Status] = []
        young = 0
        for path in self._paths():
            status = _status(path)
            if status is None:
                continue
            if self._settle_s and now_s - status.modified_ns / 1e9 < self._settle_s:
                young += 1
            else:
                finished.append(status)
        finished.sort(key=lambda item: (item.modified_ns, item.path))
        self._contents = {item: self._contents[item] for item in finished if item in self._contents}
        return Listing(finished=tuple(finished), young=young)

    def known(self, status: Status) -> Content | None:
        """Return what is in a file, where it was read before and has not changed since."""
        return self._contents.get(status)

    def content(self, status: Status) -> Content | None:
        """Return what is in a file; None where it changes while it is read, or is gone.

        Raises:
            SourceDenied, SourceUnavailable: it cannot be read.
        """
        found = self._contents.get(status)
        if found is not None:
            return found
        digest, size, lines, last = hashlib.sha256(), 0, 0, b"\n"
        try:
            with Path(status.path).open("rb") as stream:
                while chunk := stream.read(_READ_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    lines += chunk.count(b"\n")
                    last = chunk[-1:]
            rows = _rows(status.path, self._format, lines + (last != b"\n"), size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(status.path, error) from error
        if size != status.size or _status(status.path) != status:
            return None
        return self._contents.setdefault(
            status, Content(place=f"{size}:{digest.hexdigest()}", rows=rows)
        )

    def _paths(self) -> Iterator[str]:
        try:
            if self._pattern:
                found = list(self._fixed.glob(self._pattern)) if self.root.is_dir() else None
            else:
                found = [self._fixed] if self.root.is_file() else list(self._fixed.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            found = None
        except OSError as error:
            raise _unreadable(str(self.root), error) from error
        if found is None:
            raise self._missing()
        # By its real path: a file that is reached by two names is one file.
        real = {path.resolve(): path for path in found}
        for path in sorted(real):
            if path.is_file() and not self._unfinished(real[path]):
                yield str(path)

    def _unfinished(self, path: Path) -> bool:
        names = path.relative_to(self._fixed).parts or (path.name,)
        return any(name.startswith(UNFINISHED_STARTS) for name in names) or (
            path.name.lower().endswith(UNFINISHED_ENDS)
        )

    def _missing(self) -> SourceNotFound:
        return SourceNotFound(
            f"source.path {self.shown}: there is no folder {self.root}",
            hint="make it, or correct source.path; a relative path begins at the spec's folder",
        )


def _status(path: str) -> Status | None:
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    return Status(
        path=path,
        size=found.st_size,
        modified_ns=found.st_mtime_ns,
        changed_ns=found.st_ctime_ns,
        inode=found.st_ino,
    )


def _rows(path: str, form: FileFormat, lines: int, size: int) -> int:
    """Count records without decoding them; a file that cannot be read is found when it is."""
    if not size:
        return 0
    try:
        if form == "parquet":
            from pyarrow import parquet

            return int(parquet.read_metadata(path).num_rows)
        if form == "avro":
            import fastavro

            with Path(path).open("rb") as stream:
                return sum(block.num_records for block in fastavro.block_reader(stream))
    except (ValueError, EOFError, KeyError, IndexError, ArithmeticError):
        return 0
    # Of a packed file the packed lines: an estimate, as limits by bytes are.
    return lines


def _unreadable(path: str, error: OSError) -> SourceDenied | SourceUnavailable:
    kind = SourceDenied if isinstance(error, PermissionError) else SourceUnavailable
    return kind(f"{path} cannot be read: {error.strerror or error}", path=path)
