"""Proofs: one JSON document that shows, with no database, what was recorded about a batch.

Owns the document (docs/ledger-format.md) and its check. Must never claim more than inclusion: a
proof shows that these entries are in the signed tree, not that there are no others.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from odi_audit.canonical import Json, JsonObject
from odi_audit.errors import EntryNotFound, KeyProblem, LedgerBroken, ProofInvalid
from odi_audit.ids import BatchId
from odi_audit.ledger import merkle, note
from odi_audit.ledger.port import Ledger, TreeHead
from odi_audit.ledger.seal import Seal, newest_seal, seal
from odi_audit.model.entries import Entry, entry_from_json

SCHEMA: Final = "odi.proof/1"
PROOF_BYTES_MAX: Final = 256 * 1024 * 1024
"""No batch has so much recorded about it; a larger document is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What a proof that holds has shown."""

    batch: BatchId
    head: TreeHead
    key: note.VerifierKey
    entries: tuple[Entry, ...]


def prove_batch(
    ledger: Ledger, batch: BatchId, key: note.SigningKey, heads: Path | None
) -> JsonObject:
    """Return the proof of every entry of a batch, to one signed head.

    The newest recorded head serves if it covers the batch; else the ledger is sealed first.

    Raises:
        EntryNotFound: nothing is recorded about the batch.
        LedgerBroken: its entries are not those that were signed.
    """
    entries = ledger.batch_entries(batch)
    if not entries:
        raise EntryNotFound(f"nothing is recorded about batch {batch}", batch=batch)
    sealed = newest_seal(ledger, key.verifier)
    if sealed is None or sealed.head.size <= entries[-1].index:
        sealed = seal(ledger, key, heads)
    if sealed.head.size <= entries[-1].index:
        raise EntryNotFound(f"no signed head covers batch {batch}", batch=batch)
    document = proof_document(ledger, batch, entries, sealed, key.verifier)
    try:
        verify_proof(json.dumps(document), trusted=[key.verifier])
    except ProofInvalid as problem:
        raise LedgerBroken(
            f"batch {batch} cannot be proven: {problem.message}", hint="odi-audit ledger verify"
        ) from problem
    return document


def proof_document(
    ledger: Ledger,
    batch: BatchId,
    entries: Sequence[Entry],
    sealed: Seal,
    verifier: note.VerifierKey,
) -> JsonObject:
    """Put a proof together: bytes and path of each entry, the signed head, the public key."""
    size = sealed.head.size
    return {
        "schema": SCHEMA,
        "data": {
            "batch": batch,
            "head": sealed.text,
            "public_key": verifier.text,
            "entries": [
                {
                    "index": entry.index,
                    "entry": entry.to_bytes().decode("utf-8"),
                    "path": [
                        base64.b64encode(step).decode("ascii")
                        for step in ledger.inclusion_proof(entry.index, size)
                    ],
                }
                for entry in entries
            ],
        },
    }


def verify_proof(document: str | bytes, *, trusted: Sequence[note.VerifierKey] = ()) -> Proven:
    """Check a proof; nothing but the document is needed.

    With ``trusted``, the head must be signed by one of those keys. Without, it is checked with the
    key in the document: then the answer is only as good as the reader's trust in ``Proven.key``.

    Raises:
        ProofInvalid: something in it does not hold; the message says what.
    """
    data = _data(document)
    try:
        named = note.parse_verifier_key(_text(data, "public_key"))
    except KeyProblem as problem:
        raise ProofInvalid(f"the proof's public key cannot be read: {problem.message}") from problem
    text = _text(data, "head")
    head = note.open_head(text, list(trusted) or [named])
    _, signer = note.open_note(text, list(trusted) or [named])
    batch = BatchId(_text(data, "batch"))
    items = data.get("entries")
    if not isinstance(items, list) or not items:
        raise ProofInvalid("the proof holds no entry")
    entries = tuple(_entry(item, batch, head) for item in items)
    if list(entries) != sorted(entries, key=lambda entry: entry.index):
        raise ProofInvalid("the proof's entries are not in the order of the ledger")
    return Proven(batch=batch, head=head, key=signer, entries=entries)


def _entry(item: Json, batch: BatchId, head: TreeHead) -> Entry:
    if not isinstance(item, Mapping):
        raise ProofInvalid("an entry of the proof is not an object")
    index, path = item.get("index"), item.get("path")
    if not isinstance(index, int) or isinstance(index, bool) or not isinstance(path, list):
        raise ProofInvalid("an entry of the proof has no index or no path")
    body = _text(item, "entry").encode("utf-8", errors="surrogatepass")
    if not merkle.proves_inclusion(
        leaf=merkle.leaf_hash(body),
        index=index,
        size=head.size,
        path=[_step(step, index) for step in path],
        root=head.root,
    ):
        raise ProofInvalid(
            f"entry {index} is not in the signed tree of {head.size} entries: the entry, its index "
            "or its path was altered",
            index=index,
        )
    try:
        entry = entry_from_json(json.loads(body))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ProofInvalid(f"entry {index} cannot be read: {problem}", index=index) from problem
    if entry.index != index or entry.batch != batch:
        raise ProofInvalid(
            f"entry {index} is of batch {entry.batch} and says that its index is {entry.index}; "
            f"the proof is of batch {batch}",
            index=index,
        )
    return entry


def _step(step: Json, index: int) -> bytes:
    try:
        data = base64.b64decode(cast("str", step), validate=True)
    except (TypeError, ValueError, binascii.Error) as problem:
        raise ProofInvalid(f"entry {index}: its path is not base64", index=index) from problem
    if len(data) != merkle.HASH_BYTES:
        raise ProofInvalid(f"entry {index}: a step of its path is no SHA-256", index=index)
    return data


def _data(document: str | bytes) -> Mapping[str, Json]:
    if len(document) > PROOF_BYTES_MAX:
        raise ProofInvalid(f"a proof has at most {PROOF_BYTES_MAX} bytes")
    try:
        whole = json.loads(document)
    except (ValueError, RecursionError) as problem:
        raise ProofInvalid(f"the proof is not JSON: {problem}") from problem
    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        raise ProofInvalid(f"the document is not a proof of the form {SCHEMA}")
    data = whole.get("data")
    if not isinstance(data, dict):
        raise ProofInvalid("the proof holds no data")
    return data


def _text(data: Mapping[str, Json], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ProofInvalid(f"the proof has no {name!r}")
    return value
