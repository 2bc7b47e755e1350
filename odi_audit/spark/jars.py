"""The pinned jars: fetched once, checked by SHA-256, then used without a network.

Owns the cache folder. A jar is under its final name only if its digest was right when it came.
Must never name a registry (the Maven client knows its own), nor load what is not pinned.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from odi_audit.errors import JarError

FETCH_WAIT_S_MAX = 60
"""For one answer of the registry, not for the whole file."""
_CHUNK_BYTES = 1 << 20
_LIST = Path(__file__).parent / "jars.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One pinned jar."""

    group: str
    artifact: str
    version: str
    size_bytes: int
    sha256: str
    sets: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """Its name in the cache folder."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


Fetch = Callable[[Jar, Path], Path]
"""Brings a jar somewhere below a scratch folder (or finds it on this machine)."""


@cache
def pinned() -> tuple[Jar, ...]:
    """Return every pinned jar."""
    rows = cast("list[dict[str, object]]", tomllib.loads(_LIST.read_text("utf-8"))["jar"])
    return tuple(
        Jar(
            group=str(row["group"]),
            artifact=str(row["artifact"]),
            version=str(row["version"]),
            size_bytes=int(str(row["size_bytes"])),
            sha256=str(row["sha256"]),
            sets=tuple(cast("list[str]", row["sets"])),
        )
        for row in rows
    )


def needed(sets: Sequence[str]) -> list[Jar]:
    """Return the jars of the named sets.

    Raises:
        JarError: there is no set of that name.
    """
    for name in sets:
        if not any(name in jar.sets for jar in pinned()):
            raise JarError(f"no jar is pinned for the set {name!r}")
    return [jar for jar in pinned() if set(jar.sets) & set(sets)]


def paths(folder: Path, sets: Sequence[str]) -> list[Path]:
    """Return where the jars of the sets are, or will be once fetched."""
    return [folder / jar.file_name for jar in needed(sets)]


def ensure(folder: Path, sets: Sequence[str], *, fetch: Fetch | None = None) -> list[Path]:
    """Have every jar of the sets in the folder; nothing is fetched that is there.

    A jar that was checked before is told by its size and time; any other is digested.

    Raises:
        JarError: a jar cannot be fetched, or is not the pinned one; that file was removed.
    """
    jars = needed(sets)
    if all(_stamped(folder / jar.file_name, jar) for jar in jars):
        return [folder / jar.file_name for jar in jars]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            for jar in jars:
                _ensure_one(folder, jar, fetch or fetch_from_maven)
    except OSError as error:
        raise JarError(
            f"the jar folder {folder} cannot be used: {error.strerror or error}",
            hint="set ODI_JARS_DIR to a folder that can be written",
        ) from error
    return [folder / jar.file_name for jar in jars]


def problems(folder: Path, sets: Sequence[str]) -> list[str]:
    """Digest every jar of the sets; return what is missing or wrong, changing nothing."""
    found: list[str] = []
    for jar in needed(sets):
        path = folder / jar.file_name
        if not path.is_file():
            found.append(f"{jar.file_name} is not in {folder}")
        elif digest(path) != jar.sha256:
            found.append(f"{path} is not the pinned {jar}")
    return found


def digest(path: Path) -> str:
    """Return a file's SHA-256, in hex."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def fetch_from_maven(jar: Jar, scratch: Path) -> Path:
    """Fetch with the Maven client; a copy in the user's own Maven repository is used as well."""
    from jgo.maven import MavenContext, PythonResolver

    logging.getLogger("jgo").setLevel(logging.ERROR)
    context = MavenContext(
        resolver=PythonResolver(progress_callback=_progress),
        repo_cache=scratch,
        timeout=FETCH_WAIT_S_MAX,
    )
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    return Path(artifact.resolve())


def _ensure_one(folder: Path, jar: Jar, fetch: Fetch) -> None:
    path = folder / jar.file_name
    if _stamped(path, jar):
        return
    if path.exists():
        _accept(path, jar)
        _write_stamp(path, jar)
        return
    sys.stderr.write(f"fetching {jar} ({jar.size_bytes / 1e6:.0f} MB)\n")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        try:
            fetched = fetch(jar, Path(scratch))
        except (OSError, RuntimeError, ValueError, LookupError) as error:
            raise JarError(
                f"{jar} could not be fetched: {type(error).__name__}: {error}",
                hint="check the network and run the command again; odi-audit doctor shows the rest",
                jar=str(jar),
            ) from error
        if not fetched.is_relative_to(scratch):
            fetched = Path(shutil.copyfile(fetched, Path(scratch) / jar.file_name))
        _accept(fetched, jar)
        fetched.replace(path)
    _write_stamp(path, jar)


def _accept(path: Path, jar: Jar) -> None:
    found = digest(path)
    if found != jar.sha256:
        path.unlink()
        raise JarError(
            f"{path.name} is not the pinned {jar}: expected SHA-256 {jar.sha256}, found {found}; "
            "the file was removed",
            hint="run the command again to fetch it anew",
            jar=str(jar),
            expected=jar.sha256,
            found=found,
        )


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".checked")


def _stamp_text(path: Path, jar: Jar) -> str:
    status = path.stat()
    return f"{jar.sha256} {status.st_size} {status.st_mtime_ns}\n"


def _stamped(path: Path, jar: Jar) -> bool:
    try:
        return path.stat().st_size == jar.size_bytes and _stamp_path(path).read_text(
            "utf-8"
        ) == _stamp_text(path, jar)
    except OSError:
        return False


def _write_stamp(path: Path, jar: Jar) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}.checked")
    scratch.write_text(_stamp_text(path, jar), "utf-8")
    scratch.replace(_stamp_path(path))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    # Two processes would both fetch the same tens of megabytes; the kernel frees the lock at death.
    try:
        import fcntl
    except ImportError:  # no such lock on Windows: both fetch, and the rename stays atomic
        yield
        return
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _progress(file_name: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    quiet = not console.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=quiet, transient=True) as progress:
        task = progress.add_task(file_name, total=total_bytes or None)
        yield lambda count: progress.advance(task, count)
