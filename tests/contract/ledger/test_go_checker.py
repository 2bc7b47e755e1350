"""Heads and proofs, judged by Go's own transparency-log code."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from odi_audit.ledger import SqlLedger, note
from odi_audit.ledger.export import Form, export
from odi_audit.ledger.proof import prove_batch
from odi_audit.ledger.seal import seal
from tests.contract.ledger.places import KEY, ROOT, SqlitePlace, batch, land

Checker = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    """Build the checker; a machine without Go fails these tests, it does not skip them."""
    go = shutil.which("go")
    assert go, "Go is not installed, and the ledger's proofs are judged by it"
    program = tmp_path_factory.mktemp("checker") / "ledgerchecker"
    source = ROOT / "tests" / "ledger_checker_go"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert built.returncode == 0, built.stderr

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def ledger(tmp_path: Path) -> SqlLedger:
    made = SqlitePlace(tmp_path).create()
    for number in range(11):
        land(made, number)
    return made


def test_go_accepts_the_proof_of_every_batch(
    checker: Checker, ledger: SqlLedger, tmp_path: Path
) -> None:
    path = tmp_path / "proof.json"
    for number in range(11):
        path.write_text(json.dumps(prove_batch(ledger, batch(number), KEY, None)), "utf-8")
        done = checker("proof", path)
        assert done.stdout == "2 entries in a tree of 22\n", done.stderr


def test_go_refuses_a_proof_that_was_altered(
    checker: Checker, ledger: SqlLedger, tmp_path: Path
) -> None:
    path = tmp_path / "proof.json"
    whole = json.dumps(prove_batch(ledger, batch(3), KEY, None))
    for old, new in [
        ("sales.orders", "sales.Orders"),
        ("\\n22\\n", "\\n23\\n"),
        ('"index": 6', '"index": 5'),
    ]:
        assert old in whole
        path.write_text(whole.replace(old, new, 1), "utf-8")
        assert checker("proof", path).returncode == 1


def test_go_computes_the_same_root_from_the_exported_lines(
    checker: Checker, ledger: SqlLedger, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    assert export(ledger, path, Form.JSONL) == 22
    root = base64.b64encode(ledger.head().root).decode()
    assert checker("tree", path).stdout == f"22 {root}\n"


def test_go_accepts_that_one_head_continues_another(
    checker: Checker, ledger: SqlLedger, tmp_path: Path
) -> None:
    heads = [seal(ledger, KEY, None)]
    for number in range(20, 26):
        land(ledger, number)
        heads.append(seal(ledger, KEY, None))
    path = tmp_path / "consistency.json"
    for older, newer in [(0, 1), (0, 6), (2, 5), (4, 6)]:
        old, new = heads[older], heads[newer]
        document = {
            "public_key": KEY.verifier.text,
            "old": old.text,
            "new": new.text,
            "proof": [
                base64.b64encode(step).decode()
                for step in ledger.consistency_proof(old.head.size, new.head.size)
            ],
        }
        path.write_text(json.dumps(document), "utf-8")
        done = checker("consistency", path)
        assert done.stdout == f"{new.head.size} continues {old.head.size}\n", done.stderr
        document["proof"] = document["proof"][:-1]
        path.write_text(json.dumps(document), "utf-8")
        assert checker("consistency", path).returncode == 1


def test_go_signs_with_our_key_file_exactly_as_we_do(
    checker: Checker, ledger: SqlLedger, tmp_path: Path
) -> None:
    key_path, text_path = tmp_path / "keys" / "ledger.key", tmp_path / "text"
    note.write_key(key_path, KEY)
    text = note.head_text(KEY.name, ledger.head())
    text_path.write_text(text, "utf-8")
    assert checker("sign", key_path, text_path).stdout == note.sign_note(text, KEY)
