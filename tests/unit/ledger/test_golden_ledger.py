"""Golden: the bytes of entries, the root and the proof, as strangers' verifiers rely on them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from odi_audit.ids import RunId
from odi_audit.ledger import SqlLedger
from odi_audit.ledger.proof import prove_batch, verify_proof
from odi_audit.model.entries import Draft, Kind
from tests.contract.ledger.places import ITEMS, JOB, KEY, ORDERS, SqlitePlace, batch, land

GOLDEN = Path(__file__).parent / "golden"


def story(tmp_path: Path) -> tuple[SqlitePlace, SqlLedger]:
    place = SqlitePlace(tmp_path)
    ledger = place.create()
    land(ledger, 1)
    ledger.append(
        Draft(kind=Kind.INTENT, job=JOB, batch=batch(2), facts={"b": 1, "a": [None, True, 1.5]}),
        Draft(kind=Kind.REFUSED, job=JOB, batch=batch(2), intent=2, settles=True),
        Draft(kind=Kind.ROLLBACK, run=RunId("r"), table=ITEMS, facts={"undone": [batch(1)]}),
        Draft(kind=Kind.LANDED, batch=batch(3), table=ORDERS, recovered=True),
    )
    return place, ledger


def test_entries_have_exactly_these_bytes(tmp_path: Path) -> None:
    place, ledger = story(tmp_path)
    assert (
        b"".join(body + b"\n" for body in place.bodies()) == (GOLDEN / "entries.jsonl").read_bytes()
    )
    ledger.close()


def test_the_tree_has_exactly_this_root(tmp_path: Path) -> None:
    _, ledger = story(tmp_path)
    root = base64.b64encode(ledger.head().root).decode()
    assert root == "n0VfS1GRBtpEKCUh7apJoTrr1XDbdOZmWAHQAGh0YUg="
    ledger.close()


def test_a_proof_has_exactly_this_form(tmp_path: Path) -> None:
    _, ledger = story(tmp_path)
    document = prove_batch(ledger, batch(2), KEY, None)
    assert document == json.loads((GOLDEN / "proof.json").read_text("utf-8"))
    ledger.close()


def test_a_proof_of_today_will_still_be_read() -> None:
    proven = verify_proof((GOLDEN / "proof.json").read_bytes(), trusted=[KEY.verifier])
    assert [entry.kind for entry in proven.entries] == [Kind.INTENT, Kind.REFUSED]
