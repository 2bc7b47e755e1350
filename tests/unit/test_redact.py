"""The redactor: no secret leaves, whatever it is wrapped in; nothing else is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odi_audit.redact import MASK, is_clean, is_secret_key, redact, redact_text, register

SECRET = "s3cr3t-Value_9"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://ann:{SECRET}@db:5432/x",
        f"jdbc:postgresql://ann:{SECRET}@db/x",
        f"cannot connect to https://ann:{SECRET}@host/path and gave up",
        f"password={SECRET} host=db",
        f"PASSWORD: {SECRET}",
        f'{{"api_key": "{SECRET}"}}',
        f"jdbc:sqlserver://h;password={SECRET};x=y",
        f"Authorization: Bearer {SECRET}",
        f"https://h/?token={SECRET}&x=1",
        f"PRIVATE+KEY+lake+0a1b2c3d+{SECRET}",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}",
        f"aws_secret_access_key = {SECRET}",
    ],
)
def test_a_secret_is_masked_by_its_form(text: str) -> None:
    cleaned = redact_text(text)
    assert SECRET not in cleaned
    assert MASK in cleaned


def test_what_stands_around_a_secret_stays() -> None:
    cleaned = redact_text(f"cannot reach postgresql://ann:{SECRET}@db:5432/x in 3 s")
    assert cleaned == "cannot reach postgresql://ann:***@db:5432/x in 3 s"


def test_a_password_with_an_at_sign_is_masked_whole() -> None:
    assert redact_text("postgresql://ann:p@ss@db/x") == "postgresql://ann:***@db/x"


@pytest.mark.parametrize("form", ["AKIAABCDEFGHIJKLMNOP", "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln"])
def test_known_token_forms_are_masked_anywhere(form: str) -> None:
    assert redact_text(f"used {form} here") == "used *** here"


@pytest.mark.parametrize(
    "key",
    [
        "password", "db_password", "ODI_CATALOG__PASSWORD", "jdbc.password", "token", "secret",
        "s3.secret-access-key", "s3.access-key-id", "Authorization", "credential", "api-key",
        "key", "ssl.key", "passphrase", "private_key",
    ],
)  # fmt: skip
def test_a_secret_is_masked_by_the_name_of_its_key(key: str) -> None:
    assert is_secret_key(key)
    assert redact({key: "x"}) == {key: MASK}


@pytest.mark.parametrize("key", ["primary_key", "sort.key", "keys", "monkey", "table", "author"])
def test_names_that_only_look_like_secrets_are_left(key: str) -> None:
    assert redact({key: "order_id"}) == {key: "order_id"}


def test_the_columns_of_a_key_are_no_secret_and_neither_are_counts() -> None:
    event = {"key": ["order_id", "line"], "token_count": 3, "password": None, "secret": True}
    assert redact(event) == event


@pytest.mark.parametrize(
    "text",
    [
        "b-7f3a0011223344556677889900aabbcc landed in sales.orders, snapshot 2038159665974069217",
        "https://host:8080/api/v1/lineage?nodeId=dataset:x",
        "odi-audit reconcile --batch b-7f3a",
        "2026-11-16T07:32:37.123456Z",
        "sqlite:////lakes/a/ledger.db",
        "email ann@example.org",
    ],
)
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text


def test_a_registered_secret_is_masked_wherever_it_stands() -> None:
    register("Tr0ub4dor-registered")
    assert redact_text("xTr0ub4dor-registeredy") == f"x{MASK}y"
    assert redact({"x": [b"Tr0ub4dor-registered"]}) == {"x": [MASK]}


def test_objects_are_masked_by_their_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return f"password={SECRET}"

    assert SECRET not in str(redact({"odd": Odd(), "error": ValueError(f"token={SECRET}")}))


KEYS = st.sampled_from(["password", "x-token", "client_secret", "Authorization", "api_key"])
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20))


@given(
    key=KEYS,
    wrap=st.recursive(
        st.just("HERE"),
        lambda inner: st.one_of(
            st.lists(st.one_of(PLAIN, inner), min_size=1, max_size=3),
            st.dictionaries(st.text(max_size=5), inner, min_size=1, max_size=2),
        ),
        max_leaves=5,
    ),
)
def test_no_nesting_hides_a_secret(key: str, wrap: object) -> None:
    def put(value: object) -> object:
        if value == "HERE":
            return {key: SECRET, "url": f"https://u:{SECRET}@h/"}
        if isinstance(value, list):
            return [put(item) for item in value]
        if isinstance(value, dict):
            return {name: put(item) for name, item in value.items()}
        return value

    assert SECRET not in repr(redact(put(wrap)))


@given(user=st.text("abcXYZ09._-", min_size=1), secret=st.text("abcXYZ09%!@:*._~-", min_size=9))
def test_no_login_in_a_url_survives(user: str, secret: str) -> None:
    assert redact_text(f"at postgresql://{user}:{secret}@db/x") == (
        f"at postgresql://{user}:***@db/x"
    )


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_redacting_never_fails_and_redacting_twice_changes_nothing(value: object) -> None:
    once = redact(value)
    assert redact(once) == once


PIECES = [
    "postgresql://", "ann", ":", "@", "db", "password", "=", " ", '"', "api", "_", "-", "key",
    "token", "Bearer", "basic", SECRET, "AKIA", "ABCDEFGHIJKLMNOP", "eyJhbGciOiJI", ".", "pwd",
    "PRIVATE+KEY+", "-----BEGIN PRIVATE KEY-----", "access", "credent\u0131al", "pa\u017f\u017fwd",
    "secret", "/x", "\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join))
def test_a_text_is_clean_exactly_if_nothing_in_it_would_be_masked(text: str) -> None:
    assert is_clean(text) == (redact_text(text) == text)
