from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from odi_audit.errors import KeyProblem, ProofInvalid
from odi_audit.ledger import note
from odi_audit.ledger.port import TreeHead

KEY = note.signing_key("example.org/lake", bytes(range(32)))
OTHER = note.signing_key("example.org/other", bytes(32))
HEAD = TreeHead(size=5, root=bytes(range(32)))


def test_a_head_has_exactly_these_bytes() -> None:
    """Golden: other people's tools read this; it never changes."""
    assert note.sign_head(HEAD, KEY) == (
        "example.org/lake\n"
        "5\n"
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
        "\n"
        "— example.org/lake "
        "z4nD2+cSJ/gUdyqpkLw9SmIeLTTul66B9Zc4XhBGtCqoRmESnTjlUcDb4aaj"
        "oTWg9uPJx2K2wNerUU616mluoDhEtgQ=\n"
    )


def test_keys_have_exactly_these_texts() -> None:
    assert (
        KEY.verifier.text
        == "example.org/lake+cf89c3db+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
    )
    parts = (
        "PRIVATE",
        "KEY",
        "example.org/lake",
        "cf89c3db",
        "AQABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
    )
    assert KEY.private_text() == "+".join(parts)


def test_keys_are_read_back_from_their_texts() -> None:
    assert note.parse_signing_key(KEY.private_text() + "\n") == KEY
    assert note.parse_verifier_key(KEY.verifier.text) == KEY.verifier


def test_a_signed_head_opens_with_its_key_among_others() -> None:
    assert note.open_head(note.sign_head(HEAD, KEY), [OTHER.verifier, KEY.verifier]) == HEAD


def test_a_note_with_several_signatures_opens_with_any_known_one() -> None:
    text = note.head_text(KEY.name, HEAD)
    both = note.sign_note(text, OTHER) + note.sign_note(text, KEY).split("\n\n")[1]
    assert note.open_head(both, [KEY.verifier]) == HEAD
    with pytest.raises(ProofInvalid, match="signed it"):
        note.open_head(both, [OTHER.verifier])


def test_every_altered_character_of_a_head_is_refused() -> None:
    signed = note.sign_head(HEAD, KEY)
    for at, char in enumerate(signed):
        changed = signed[:at] + chr(ord(char) ^ 1) + signed[at + 1 :]
        with pytest.raises(ProofInvalid):
            note.open_head(changed, [KEY.verifier])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "a\n1\n",
        "a\n01\n" + base64.b64encode(bytes(32)).decode() + "\n",
        "a\n-1\n" + base64.b64encode(bytes(32)).decode() + "\n",
        "a\n" + "9" * 5000 + "\n" + base64.b64encode(bytes(32)).decode() + "\n",
        "a\n٣\n" + base64.b64encode(bytes(32)).decode() + "\n",
        "a\n1\n" + base64.b64encode(bytes(31)).decode() + "\n",
        "a\n1\nnot base64!\n",
    ],
)
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ProofInvalid):
        note.parse_head(text)


def test_a_head_may_have_lines_that_are_not_known_here() -> None:
    text = note.head_text("a", HEAD) + "an extension\n"
    assert note.parse_head(text) == ("a", HEAD)


def test_no_repr_and_no_error_shows_a_private_key() -> None:
    secret = base64.b64encode(b"\x01" + KEY.seed).decode()
    assert secret not in repr(KEY)
    assert "seed" not in repr(KEY)
    for broken in (KEY.private_text()[:-4], KEY.private_text().replace("lake", "lake2"), secret):
        with pytest.raises(KeyProblem) as caught:
            note.parse_signing_key(broken)
        assert secret[:20] not in str(caught.value)
    with pytest.raises(KeyProblem) as caught:
        note.parse_verifier_key(KEY.private_text())
    assert secret[:20] not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u00a0b"])
def test_a_name_that_would_break_the_format_is_refused(name: str) -> None:
    with pytest.raises(KeyProblem):
        note.signing_key(name, bytes(32))


def test_a_key_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "ledger.key"
    note.write_key(path, KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert note.read_key(path) == KEY
    assert note.read_verifiers(note.public_path(path)) == [KEY.verifier]
    path.chmod(0o640)
    with pytest.raises(KeyProblem, match="0640") as caught:
        note.read_key(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ledger.key"
    note.write_key(path, KEY)
    with pytest.raises(KeyProblem, match="never replaced"):
        note.write_key(path, OTHER)
    assert note.read_key(path) == KEY


def test_a_missing_or_mangled_key_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyProblem, match="cannot be read"):
        note.read_key(tmp_path / "none")
    path = tmp_path / "key"
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(KeyProblem):
        note.read_key(path)
    path.write_text("\n\n")
    with pytest.raises(KeyProblem, match="empty"):
        note.read_verifiers(path)
