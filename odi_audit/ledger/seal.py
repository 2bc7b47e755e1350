"""Seals: signed heads of the tree, recorded in the ledger and exported as files.

Owns when a head may be signed, and the files of exported heads. A head says: these were the first
N entries, and no others. Must never sign a tree that does not continue the heads signed before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from odi_audit.errors import LedgerBroken, ProofInvalid, StorageError
from odi_audit.ledger import note
from odi_audit.ledger.port import EntryFilter, Ledger, TreeHead
from odi_audit.model.entries import Draft, Entry, Kind

HEAD_SUFFIX = ".head"
_SIZE_DIGITS = 15
"""File names sort by size up to 10**15 entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A signed head: the entry that records it, and the note that anyone can check."""

    index: int
    head: TreeHead
    text: str
    path: Path | None


def seal(ledger: Ledger, key: note.SigningKey, heads: Path | None) -> Seal:
    """Sign the tree as it is, record the head, and write it to the folder of heads.

    With nothing new since the last seal of this key, that seal is given again.

    Raises:
        LedgerBroken: the tree does not continue an exported head: it was cut or altered.
        StorageError: the head cannot be written; it is recorded, and the next call writes it.
    """
    if heads is not None:
        _check_continues(ledger, key, heads)
    size = ledger.head().size
    made = _last_unchanged(ledger, key, size)
    if made is None:
        head = TreeHead(size=size, root=ledger.root_at(size))
        text = note.sign_head(head, key)
        entry = ledger.append(seal_draft(text, key.verifier))[0]
        made = Seal(index=entry.index, head=head, text=text, path=None)
    if heads is None:
        return made
    path = heads / head_name(made.head.size)
    write_head(path, made.text)
    return Seal(index=made.index, head=made.head, text=made.text, path=path)


def seal_draft(text: str, verifier: note.VerifierKey) -> Draft:
    """Return the entry that records a signed head."""
    return Draft(kind=Kind.SEAL, facts={"head": text, "key": verifier.text})


def seal_text(entry: Entry) -> str:
    """Return the signed head that a seal entry holds.

    Raises:
        ProofInvalid: it holds none.
    """
    text = entry.facts.get("head")
    if not isinstance(text, str):
        raise ProofInvalid(f"seal entry {entry.index} holds no signed head", index=entry.index)
    return text


def newest_seal(ledger: Ledger, verifier: note.VerifierKey) -> Seal | None:
    """Return the last recorded head of a key.

    Raises:
        ProofInvalid: the last seal entry does not verify.
    """
    for entry in ledger.find(EntryFilter(kinds=(Kind.SEAL,)), limit=1, newest_first=True):
        if entry.facts.get("key") == verifier.text:
            text = seal_text(entry)
            head = note.open_head(text, [verifier])
            return Seal(index=entry.index, head=head, text=text, path=None)
    return None


# -- files of heads -----------------------------------------------------------------------------


def head_name(size: int) -> str:
    """Return the file name of the head of a size."""
    return f"{size:0{_SIZE_DIGITS}d}{HEAD_SUFFIX}"


def head_files(heads: Path) -> list[Path]:
    """Return the files of exported heads in a folder, smallest head first."""
    return sorted(heads.glob(f"*{HEAD_SUFFIX}")) if heads.is_dir() else []


def write_head(path: Path, text: str) -> None:
    """Write a head to its file, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as problem:
        raise StorageError(
            f"head {path} cannot be written: {problem.strerror}", hint=f"ls -ld {path.parent}"
        ) from problem


def read_head(path: Path) -> str:
    """Read the text of an exported head.

    Raises:
        ProofInvalid: the file cannot be read as text.
    """
    try:
        return path.read_bytes()[: note.NOTE_BYTES_MAX + 1].decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ProofInvalid(f"head {path} cannot be read: {problem}") from problem


def _check_continues(ledger: Ledger, key: note.SigningKey, heads: Path) -> None:
    """Refuse to sign a tree that does not continue the largest head exported before."""
    files = head_files(heads)
    if not files:
        return
    before = note.open_head(read_head(files[-1]), [key.verifier])
    if ledger.head().size >= before.size and ledger.root_at(before.size) == before.root:
        return
    raise LedgerBroken(
        f"the ledger does not continue the head of {before.size} entries in {files[-1]}: entries "
        "were cut off or altered since; no new head was signed",
        hint="odi-audit ledger verify",
        size=before.size,
    )


def _last_unchanged(ledger: Ledger, key: note.SigningKey, size: int) -> Seal | None:
    """Return the last seal if nothing but itself came after the tree that it signed."""
    if not size:
        return None
    last = ledger.get(size - 1)
    if last.kind is not Kind.SEAL or last.facts.get("key") != key.verifier.text:
        return None
    text = seal_text(last)
    head = note.open_head(text, [key.verifier])
    if head.size != last.index:
        return None
    return Seal(index=last.index, head=head, text=text, path=None)
