"""Who is alive, by file locks: the kernel lets go of them when a process dies.

Owns the folder of lock files beside a SQLite ledger. Must never take a process id for a sign of
life: ids are used again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
import weakref
from pathlib import Path
from urllib.parse import quote

from odi_audit.errors import LedgerLocked, LedgerUnavailable

_NAME_LENGTH_MAX = 200
_STALE_AFTER_S = 24 * 3600
"""A dead owner's file is of no use to anyone after this."""
_TRIES = 50
"""A checker holds a shared lock for microseconds; fifty waits of 10 ms outlast any number."""
_TRY_WAIT_S = 0.01


class FileHolds:
    """The owners that this process holds, and the question who holds another."""

    def __init__(self, folder: Path) -> None:
        """Use ``folder``, which is made when first needed."""
        self._folder = folder
        self._held: dict[str, int] = {}
        _ALL.add(self)

    def hold(self, owner: str) -> None:
        """Lock the owner's file.

        Raises:
            LedgerLocked: another process holds the same owner.
            LedgerUnavailable: the file cannot be made.
        """
        if owner in self._held:
            return
        path = self._path(owner)
        try:
            self._folder.mkdir(exist_ok=True)
            self._sweep()
            for _ in range(_TRIES):
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
                if _lock(handle, fcntl.LOCK_EX) and _is_at(handle, path):
                    self._held[owner] = handle
                    return
                os.close(handle)
                time.sleep(_TRY_WAIT_S)
        except OSError as problem:
            raise LedgerUnavailable(
                f"cannot show that this process is alive: {path}: {problem.strerror}"
            ) from problem
        raise LedgerLocked(f"owner {owner!r} is held by another process", owner=owner)

    def is_alive(self, owner: str) -> bool:
        """Say whether a process holds the owner's file locked, this one included."""
        try:
            handle = os.open(self._path(owner), os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as problem:
            raise LedgerUnavailable(
                f"cannot see whether {owner!r} is alive: {problem.strerror}"
            ) from problem
        try:
            return not _lock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def release(self, owner: str) -> None:
        """Let go of an owner, and take its file away."""
        handle = self._held.pop(owner, None)
        if handle is not None:
            self._path(owner).unlink(missing_ok=True)
            os.close(handle)

    def close(self) -> None:
        """Let go of every owner."""
        for owner in list(self._held):
            self.release(owner)

    def forget(self) -> None:
        """Drop the locks that a fork copied: they are the parent's, and must die with it."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def _sweep(self) -> None:
        """Take away the files of owners that died long ago."""
        before = time.time() - _STALE_AFTER_S
        for path in self._folder.iterdir():
            try:
                handle = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                if os.fstat(handle).st_mtime < before and _lock(handle, fcntl.LOCK_SH):
                    path.unlink(missing_ok=True)
            finally:
                os.close(handle)

    def _path(self, owner: str) -> Path:
        name = quote(owner, safe="")
        if len(name) > _NAME_LENGTH_MAX or name in {"", ".", ".."}:
            name = hashlib.sha256(owner.encode()).hexdigest()
        return self._folder / name


_ALL: weakref.WeakSet[FileHolds] = weakref.WeakSet()


def _forget_in_child() -> None:
    for holds in list(_ALL):
        holds.forget()


os.register_at_fork(after_in_child=_forget_in_child)


def _lock(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Say whether the locked file is still the one of that name: a sweep may have removed it."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
