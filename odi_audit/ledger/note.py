"""Signed notes and tree heads: the C2SP formats, so that tools that are not ours can check them.

Owns keys (the text forms that Go's ``note.NewSigner`` and ``note.NewVerifier`` read), signing and
opening a note, and the text of a head (C2SP tlog-checkpoint). Must never show a private key: not
in a repr, not in an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from odi_audit.errors import KeyProblem, ProofInvalid
from odi_audit.ledger.port import TreeHead

SEED_BYTES = 32
NOTE_BYTES_MAX = 64 * 1024
"""A head is a few hundred bytes; what is longer is not one."""
_ALGORITHM = b"\x01"
"""Ed25519 in the signed-note format."""
_HASH_BYTES = 4
_SIGNATURE_BYTES = 64
_PRIVATE = "PRIVATE+KEY+"
_DASH = "— "
_KEY_MODE = 0o600
_SIZE_DIGITS_MAX = 18
"""More entries than a 64-bit index can count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierKey:
    """The public half of a key: a name, which is the ledger's origin, and the public bytes."""

    name: str
    public: bytes

    @property
    def hash(self) -> bytes:
        """The four bytes that tell this key from others in a note."""
        data = self.name.encode() + b"\n" + _ALGORITHM + self.public
        return hashlib.sha256(data).digest()[:_HASH_BYTES]

    @property
    def text(self) -> str:
        """The form that Go's ``note.NewVerifier`` reads."""
        return f"{self.name}+{self.hash.hex()}+{_base64(_ALGORITHM + self.public)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The private half. Its repr holds no secret."""

    name: str
    seed: bytes = field(repr=False)

    @property
    def verifier(self) -> VerifierKey:
        """The public half."""
        public = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        return VerifierKey(name=self.name, public=public)

    def private_text(self) -> str:
        """Return the secret form that Go's ``note.NewSigner`` reads."""
        return f"{_PRIVATE}{self.name}+{self.verifier.hash.hex()}+{_base64(_ALGORITHM + self.seed)}"

    def sign(self, message: bytes) -> bytes:
        """Sign bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)


def signing_key(name: str, seed: bytes) -> SigningKey:
    """Make a key from its name and 32 random bytes.

    Raises:
        KeyProblem: the name is empty or holds a space or a plus sign.
    """
    if not _is_name(name):
        raise KeyProblem(
            f"key name {name!r} must not be empty, and holds no space and no plus sign",
            hint='name it like a host and path: origin = "example.org/lake"',
        )
    if len(seed) != SEED_BYTES:
        raise KeyProblem(f"a key is made of {SEED_BYTES} random bytes, not {len(seed)}")
    return SigningKey(name=name, seed=seed)


def parse_signing_key(text: str) -> SigningKey:
    """Read the text form of a private key.

    Raises:
        KeyProblem: it is malformed; the message never repeats it.
    """
    line = text.strip()
    parts = line.removeprefix(_PRIVATE).split("+", 2)
    if not line.startswith(_PRIVATE) or len(parts) != 3:
        raise _bad_private("it is not of the form PRIVATE+KEY+name+hash+key")
    name, hashed, body = parts
    data = _decoded(body)
    if data is None or data[:1] != _ALGORITHM or len(data) != 1 + SEED_BYTES:
        raise _bad_private("its last part is not an Ed25519 key in base64")
    key = signing_key(name, data[1:])
    if key.verifier.hash.hex() != hashed:
        raise _bad_private("its hash does not fit its key: it was altered or cut")
    return key


def parse_verifier_key(text: str) -> VerifierKey:
    """Read the text form of a public key, ``name+hash+key``.

    Raises:
        KeyProblem: it is malformed.
    """
    if text.strip().startswith(_PRIVATE):
        raise KeyProblem("a public key was expected and a private one was given; keep it secret")
    parts = text.strip().split("+", 2)
    data = _decoded(parts[2]) if len(parts) == 3 else None
    if data is None or data[:1] != _ALGORITHM or len(data) != 1 + SEED_BYTES:
        raise KeyProblem(f"public key {text.strip()[:80]!r} is not of the form name+hash+key")
    key = VerifierKey(name=parts[0], public=data[1:])
    if not _is_name(key.name) or key.hash.hex() != parts[1]:
        raise KeyProblem(f"public key {text.strip()[:80]!r}: its hash does not fit its key")
    return key


# -- key files ------------------------------------------------------------------------------------


def public_path(path: Path) -> Path:
    """Return where the public half of the key file lies."""
    return path.with_name(path.name + ".pub")


def write_key(path: Path, key: SigningKey) -> None:
    """Write a new key file, readable by its owner alone, and its public half beside it.

    Raises:
        KeyProblem: a file is there already (a key is never replaced), or cannot be written.
    """
    _write_new(path, key.private_text() + "\n", _KEY_MODE)
    _write_new(public_path(path), key.verifier.text + "\n", 0o644)


def read_key(path: Path) -> SigningKey:
    """Read a key file.

    Raises:
        KeyProblem: it is missing, unreadable, malformed, or open to other users.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise KeyProblem(
            f"signing key {path} cannot be read: {_reason(problem)}",
            hint="odi-audit doctor",
            path=str(path),
        ) from problem
    if mode & 0o077:
        raise KeyProblem(
            f"signing key {path} has mode {mode:04o}: other users can read it, expected 0600",
            hint=f"chmod 600 {path}",
            path=str(path),
        )
    return parse_signing_key(text)


def read_verifiers(path: Path) -> list[VerifierKey]:
    """Read public keys from a file, one on each line; a ledger whose key changed has several.

    Raises:
        KeyProblem: the file is missing, unreadable, empty or malformed.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise KeyProblem(f"public key {path} cannot be read: {_reason(problem)}") from problem
    found = [parse_verifier_key(line) for line in lines if line.strip()]
    if not found:
        raise KeyProblem(f"public key file {path} is empty")
    return found


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError as problem:
        raise KeyProblem(
            f"key file {path} is there already, and a key is never replaced", path=str(path)
        ) from problem
    except OSError as problem:
        raise KeyProblem(f"key file {path} cannot be written: {problem.strerror}") from problem


# -- notes --------------------------------------------------------------------------------------


def sign_note(text: str, key: SigningKey) -> str:
    """Return the signed note of a text, which must end in a newline."""
    if not text.endswith("\n"):
        raise ValueError("the text of a note ends in a newline")
    signature = key.verifier.hash + key.sign(text.encode())
    return f"{text}\n{_DASH}{key.name} {_base64(signature)}\n"


def open_note(note: str, verifiers: Sequence[VerifierKey]) -> tuple[str, VerifierKey]:
    """Return the text of a note and the key that signed it.

    Raises:
        ProofInvalid: the note is malformed, a signature of a known key is wrong, or none of the
            keys signed it.
    """
    if len(note) > NOTE_BYTES_MAX:
        raise ProofInvalid(f"a signed note has at most {NOTE_BYTES_MAX} characters")
    text, divider, tail = note.rpartition("\n\n")
    if not divider or not tail.endswith("\n"):
        raise ProofInvalid("not a signed note: no blank line before its signatures")
    text += "\n"
    signer: VerifierKey | None = None
    for line in tail[:-1].split("\n"):
        name, data = _signature(line)
        for verifier in verifiers:
            if verifier.name == name and verifier.hash == data[:_HASH_BYTES]:
                _check(verifier, data[_HASH_BYTES:], text)
                signer = signer or verifier
    if signer is None:
        raise ProofInvalid(
            "the note is not signed by a key that is trusted here",
            hint="give the ledger's public key: --public-key FILE",
            trusted=[verifier.text for verifier in verifiers],
        )
    return text, signer


def _signature(line: str) -> tuple[str, bytes]:
    name, space, body = line.removeprefix(_DASH).partition(" ")
    data = _decoded(body)
    if not line.startswith(_DASH) or not space or not _is_name(name) or data is None:
        raise ProofInvalid(f"not a signature line: {line[:80]!r}")
    if len(data) <= _HASH_BYTES:
        raise ProofInvalid(f"signature of {name} is too short")
    return name, data


def _check(verifier: VerifierKey, signature: bytes, text: str) -> None:
    wrong = ProofInvalid(
        f"the signature of {verifier.name} does not fit the text: one of them was altered",
        key=verifier.text,
    )
    if len(signature) != _SIGNATURE_BYTES:
        raise wrong
    try:
        Ed25519PublicKey.from_public_bytes(verifier.public).verify(signature, text.encode())
    except InvalidSignature as problem:
        raise wrong from problem


# -- heads ---------------------------------------------------------------------------------------


def head_text(origin: str, head: TreeHead) -> str:
    """Return the text of a head: origin, size, root; one on each line."""
    return f"{origin}\n{head.size}\n{_base64(head.root)}\n"


def sign_head(head: TreeHead, key: SigningKey) -> str:
    """Return the signed note of a head; its origin is the key's name."""
    return sign_note(head_text(key.name, head), key)


def open_head(note: str, verifiers: Sequence[VerifierKey]) -> TreeHead:
    """Check a signed head and return it.

    Raises:
        ProofInvalid: the signature or the form is wrong, or the origin is not the signer's name.
    """
    text, signer = open_note(note, verifiers)
    origin, head = parse_head(text)
    if origin != signer.name:
        raise ProofInvalid(f"the head is of {origin!r}, and {signer.name!r} signed it")
    return head


def parse_head(text: str) -> tuple[str, TreeHead]:
    """Read origin and head from the text of a note, whose signature the caller has checked.

    Raises:
        ProofInvalid: the text is not a head.
    """
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] or not lines[0] or "" in lines[:-1]:
        raise ProofInvalid("not a head: origin, size and root are expected on three lines")
    origin, size, root = lines[:3]
    if not (size.isascii() and size.isdigit() and len(size) <= _SIZE_DIGITS_MAX) or (
        str(int(size)) != size
    ):
        raise ProofInvalid(f"not a head: size {size[:40]!r} is not a plain number")
    data = _decoded(root)
    if data is None or len(data) != hashlib.sha256().digest_size:
        raise ProofInvalid("not a head: the root is not a SHA-256 in base64")
    return origin, TreeHead(size=int(size), root=data)


# -- helpers ------------------------------------------------------------------------------------


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoded(text: str) -> bytes | None:
    """Return the bytes of strict base64: what encodes to exactly this text, else None."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _base64(data) == text else None


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(char.isspace() for char in name)


def _bad_private(reason: str) -> KeyProblem:
    return KeyProblem(f"the signing key is malformed: {reason}", hint="odi-audit doctor")


def _reason(problem: Exception) -> str:
    return (problem.strerror or str(problem)) if isinstance(problem, OSError) else "not text"
