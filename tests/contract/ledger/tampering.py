"""Tampering: whatever is done to a stored ledger that was sealed, ``verify`` finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odi_audit.canonical import encode
from odi_audit.errors import LedgerBroken, ProofInvalid
from odi_audit.ledger import merkle, note
from odi_audit.ledger.proof import prove_batch, verify_proof
from odi_audit.ledger.seal import head_files, seal
from odi_audit.ledger.verify import HeadFile, Verified, heads_in, verify
from odi_audit.model.entries import Draft, Kind
from tests.contract.ledger.places import KEY, ORDERS, Place, batch, land, renumbered

OTHER_KEY = note.signing_key("example.org/lake", bytes(32))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A ledger of 13 entries: 5 batches, an undo, and two seals; two heads were exported."""

    place: Place
    heads: Path

    def verified(self, place: Place | None = None, *, heads: bool = True) -> Verified:
        ledger = (place or self.place).open(check_tail=False, read_only=True)
        try:
            return verify(
                ledger,
                verifiers=[KEY.verifier],
                heads=heads_in(self.heads) if heads else [],
            )
        finally:
            ledger.close()

    def codes(self, place: Place, *, heads: bool = True) -> set[str]:
        return {finding.code for finding in self.verified(place, heads=heads).findings}


SIZE = 13
Attack = Callable[[list[bytes]], list[bytes]]


def altered(body: bytes, **changes: Any) -> bytes:
    return encode(json.loads(body) | changes)


CAREFUL: dict[str, Attack] = {
    "altered": lambda b: [*b[:3], altered(b[3], facts={"offsets": None, "rows": 1}), *b[4:]],
    "removed": lambda b: renumbered([*b[:2], *b[4:]]),
    "first-removed": lambda b: renumbered(b[2:]),
    "inserted": lambda b: renumbered([*b[:4], encode({"v": 1, "kind": "read", "index": 0,
                                      "facts": {}, "time": json.loads(b[3])["time"]}), *b[4:]]),
    "swapped": lambda b: renumbered([*b[:2], b[4], b[3], b[2], *b[5:]]),
    "cut-after-a-seal": lambda b: b[:8],
    "cut-by-one-entry-before-the-seal": lambda b: b[:11],
    "emptied": lambda b: [],
    "replaced": lambda b: renumbered([b[0]] * SIZE),
}  # fmt: skip
"""Attacks that leave a perfectly consistent ledger: only signed heads tell."""

CLUMSY: dict[str, str] = {
    "entry-deleted": "DELETE FROM entries WHERE idx = 4",
    "first-deleted": "DELETE FROM entries WHERE idx = 0",
    "last-deleted": "DELETE FROM entries WHERE idx = 12",
    "two-bodies-swapped": "UPDATE entries SET body = (SELECT e.body FROM entries e"
    " WHERE e.idx = 5 - entries.idx) WHERE idx IN (2, 3)",
    "two-entries-swapped": "UPDATE entries SET idx = -1 - idx WHERE idx IN (2, 3);"
    "UPDATE entries SET idx = 6 + idx WHERE idx < 0",
    "entry-copied-to-the-end": "INSERT INTO entries SELECT 13, body, leaf FROM entries"
    " WHERE idx = 12",
    "entry-before-the-first": "INSERT INTO entries SELECT -1, body, leaf FROM entries"
    " WHERE idx = 12",
    "entry-far-away": "INSERT INTO entries SELECT 99, body, leaf FROM entries WHERE idx = 12",
    "leaf-changed": "UPDATE entries SET leaf = (SELECT e.leaf FROM entries e WHERE e.idx = 0)"
    " WHERE idx = 5",
    "node-changed": "UPDATE nodes SET hash = (SELECT leaf FROM entries WHERE idx = 0)"
    " WHERE level = 2 AND idx = 1",
    "top-node-deleted": "DELETE FROM nodes WHERE level = 3",
    "node-added": "INSERT INTO nodes SELECT 1, 77, leaf FROM entries WHERE idx = 0",
    "node-level-added": "INSERT INTO nodes SELECT 40, 0, leaf FROM entries WHERE idx = 0",
    "all-nodes-deleted": "DELETE FROM nodes",
    "index-row-deleted": "DELETE FROM entry_index WHERE idx = 3",
    "index-row-changed": "UPDATE entry_index SET kind = 'refused' WHERE idx = 3",
    "index-time-changed": "UPDATE entry_index SET time = '2020' WHERE idx = 3",
    "landed-forgotten": "DELETE FROM landed WHERE idx = 1",
    "landed-invented": "INSERT INTO landed VALUES ('b-x', 'u', 2)",
    "landed-invented-outside": "INSERT INTO landed VALUES ('b-x', 'u', 500)",
    "settled-forgotten": "DELETE FROM settled WHERE intent = 0",
    "settled-invented": "INSERT INTO settled VALUES (77, 12)",
    "position-moved": "UPDATE positions SET end_place = '1000000' WHERE idx = 9",
    "undone-forgotten": "DELETE FROM undone",
    "seal-replaced": "UPDATE entries SET body = (SELECT e.body FROM entries e WHERE e.idx = 0)"
    " WHERE idx = 7",
}
"""Attacks on one table."""


class TamperContract:
    """Subclasses give the fixture ``place``."""

    @pytest.fixture
    def sealed(self, place: Place, tmp_path: Path) -> Sealed:
        ledger = place.create()
        heads = tmp_path / "heads"
        for number in range(3):
            land(ledger, number)
        ledger.append(Draft(kind=Kind.UNDO, table=ORDERS, facts={"undone": [batch(2)]}))
        assert seal(ledger, KEY, heads).index == 7
        for number in (3, 4):
            land(ledger, number)
        assert seal(ledger, KEY, heads).head.size == SIZE - 1
        ledger.close()
        made = Sealed(place, heads)
        clean = made.verified()
        assert clean.findings == ()
        assert (clean.head.size, clean.seals, clean.heads) == (SIZE, 2, 2)
        return made

    @pytest.mark.parametrize("name", CLUMSY)
    def test_a_clumsy_change_is_found(self, sealed: Sealed, name: str) -> None:
        before = sealed.place.look("SELECT count(*) FROM entries")
        sealed.place.attack(*CLUMSY[name].split(";"))
        assert before
        assert sealed.codes(sealed.place, heads=False), "the ledger contradicts itself"

    @pytest.mark.parametrize("name", CAREFUL)
    def test_a_careful_rewrite_is_found_by_the_signed_heads(
        self, sealed: Sealed, name: str
    ) -> None:
        sealed.place.rewrite(CAREFUL[name](sealed.place.bodies()))
        found = sealed.codes(sealed.place)
        told = {"ODI-T05", "ODI-T08", "ODI-T10", "ODI-T11"}
        assert found <= told, "the forgery itself was consistent"
        assert found & {"ODI-T10", "ODI-T11"}

    def test_a_cut_tail_is_named_as_such(self, sealed: Sealed) -> None:
        sealed.place.rewrite(sealed.place.bodies()[:9])
        assert sealed.codes(sealed.place) == {"ODI-T10"}
        ledger = sealed.place.open()
        with pytest.raises(LedgerBroken, match="does not continue"):
            seal(ledger, KEY, sealed.heads)
        ledger.close()

    def test_without_an_exported_head_a_cut_tail_cannot_be_seen(self, sealed: Sealed) -> None:
        """The limit that docs/threat-model.md tells of."""
        sealed.place.rewrite(sealed.place.bodies()[:9])
        assert sealed.codes(sealed.place, heads=False) == set()

    def test_a_rewritten_past_is_found_by_the_seals_inside_alone(self, sealed: Sealed) -> None:
        bodies = sealed.place.bodies()
        bodies[3] = altered(bodies[3], job="other/job")
        sealed.place.rewrite(bodies)
        assert sealed.codes(sealed.place, heads=False) == {"ODI-T11"}

    def test_every_field_of_every_entry_counts(self, sealed: Sealed) -> None:
        bodies = sealed.place.bodies()
        tried = 0
        for index, body in enumerate(bodies[: self.entries_tried()]):
            whole = json.loads(body)
            for change in _field_changes(whole):
                copy = sealed.place.copy()
                text = encode(change)
                copy.attack(("UPDATE entries SET body = ? WHERE idx = ?", (text, index)))
                assert sealed.codes(copy, heads=False), (index, change)
                tried += 1
                if index == SIZE - 1:
                    continue  # No head covers the last seal itself: nothing is signed after it.
                leaf = merkle.leaf_hash(text)
                copy.attack(("UPDATE entries SET leaf = ? WHERE idx = ?", (leaf, index)))
                assert sealed.codes(copy, heads=False), (index, change)
                tried += 1
        assert tried >= 20

    def entries_tried(self) -> int:
        """How many entries the test of fields and bytes goes over."""
        return SIZE

    def test_a_head_that_was_altered_or_signed_by_another_is_found(self, sealed: Sealed) -> None:
        ledger = sealed.place.open(read_only=True)
        good = head_files(sealed.heads)[0].read_text(encoding="utf-8")
        forged = note.sign_head(note.open_head(good, [KEY.verifier]), OTHER_KEY)
        for text in ("", "x", forged, good.replace("\n7\n", "\n8\n"), good[:-3] + "\n"):
            given = HeadFile(name="given", text=text)
            found = verify(ledger, verifiers=[KEY.verifier], heads=[given]).findings
            assert [finding.code for finding in found] == ["ODI-T09"], text
        ledger.close()

    def test_seals_of_a_key_that_is_not_trusted_are_found(self, sealed: Sealed) -> None:
        ledger = sealed.place.open(read_only=True)
        found = verify(ledger, verifiers=[OTHER_KEY.verifier]).findings
        assert [(finding.code, finding.subject) for finding in found] == [
            ("ODI-T08", "seal 7"),
            ("ODI-T08", "seal 12"),
        ]
        both = [OTHER_KEY.verifier, KEY.verifier]
        assert verify(ledger, verifiers=both).findings == (), "a changed key leaves the old valid"
        ledger.close()

    def test_sealing_again_with_nothing_new_gives_the_same_head(self, sealed: Sealed) -> None:
        ledger = sealed.place.open()
        again = seal(ledger, KEY, sealed.heads)
        assert again.head.size == SIZE - 1
        assert ledger.head().size == SIZE
        other = seal(ledger, OTHER_KEY, None)
        assert other.head.size == SIZE, "another key signs for itself"
        ledger.close()

    def test_a_batch_is_proven_with_no_database(self, sealed: Sealed) -> None:
        ledger = sealed.place.open()
        proof = json.dumps(prove_batch(ledger, batch(3), KEY, sealed.heads))
        assert ledger.head().size == SIZE, "the head that was there serves"
        proven = verify_proof(proof, trusted=[KEY.verifier])
        assert proven.entries == tuple(ledger.batch_entries(batch(3)))
        assert verify_proof(proof).key == KEY.verifier
        land(ledger, 6)
        later = json.dumps(prove_batch(ledger, batch(6), KEY, sealed.heads))
        assert verify_proof(later, trusted=[KEY.verifier]).head.size == SIZE + 2
        ledger.close()
        assert sealed.verified().findings == ()

    def test_a_proof_that_was_altered_anywhere_does_not_hold(self, sealed: Sealed) -> None:
        ledger = sealed.place.open()
        proof = json.dumps(prove_batch(ledger, batch(3), KEY, None))
        ledger.close()
        verify_proof(proof, trusted=[KEY.verifier])
        with pytest.raises(ProofInvalid):
            verify_proof(proof, trusted=[OTHER_KEY.verifier])
        for at in range(0, len(proof), 7):
            changed = proof[:at] + chr(ord(proof[at]) ^ 1) + proof[at + 1 :]
            with pytest.raises(ProofInvalid):
                verify_proof(changed, trusted=[KEY.verifier])

    def test_a_batch_whose_entries_were_altered_cannot_be_proven(self, sealed: Sealed) -> None:
        bodies = sealed.place.bodies()
        bodies[1] = altered(bodies[1], time=json.loads(bodies[0])["time"])
        sealed.place.rewrite(bodies)
        ledger = sealed.place.open()
        with pytest.raises(LedgerBroken):
            prove_batch(ledger, batch(0), KEY, None)
        ledger.close()


def _field_changes(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entry with each field changed, each removed, and one added."""
    other = {"kind": "erasure", "index": whole["index"] + 1, "facts": {"other": 1}, "v": 2}
    changed = [whole | {name: other.get(name, "other")} for name in whole]
    removed = [{key: whole[key] for key in whole if key != name} for name in whole]
    facts = [
        whole | {"facts": {key: whole["facts"][key] for key in whole["facts"] if key != name}}
        for name in whole["facts"]
    ]
    return [*changed, *removed, *facts, whole | {"extra": True}, whole | {"recovered": True}]
