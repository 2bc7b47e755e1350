"""Secrets taken out of anything that is shown, logged or recorded.

Owns what counts as a secret: by the name of its key, by its form, and by having been registered.
Must never fail on a value, and must never be the only guard: secrets are ``SecretStr`` in settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"
DEPTH_MAX = 8
"""Nested deeper than this, a value is masked as a whole: nobody reads it in a log line."""
REGISTERED_LENGTH_MIN = 4
"""Shorter secrets are not searched for in text: they would mask ordinary words."""

_SECRET_KEY = re.compile(
    r"(?:passw|pwd|passphrase|secret|token|credential|authorization|api[-_.]?key"
    r"|access[-_.]?key|private[-_.]?key|signing[-_.]?key|(?:^|[-_.])(?:auth|cookie)$)",
    re.IGNORECASE,
)
_KEY_WORD = re.compile(r"(?:^|(?P<word>[a-z]+)[-_.])key$", re.IGNORECASE)
_HARMLESS = frozenset(
    {"batch", "foreign", "join", "merge", "order", "partition", "primary", "property", "public"}
    | {"row", "sort", "unique"}
)
"""Words before ``key`` that make it the name of something, not a secret."""
_SCHEME_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.:-]*://)(?P<user>[^\s/@:\"'<>]*):[^\s/\"'<>]*@"
)
_PAIR = re.compile(
    r"(?P<key>\b[\w.-]*(?:password|passwd|pwd|secret|token|credential|api[-_]?key"
    r"|access[-_]?key(?!-id))[\w.-]*[\"']?\s*[=:]\s*)(?P<quote>[\"']?)[^\s&;,\"'}\])]+(?P=quote)",
    re.IGNORECASE,
)
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"PRIVATE\+KEY\+\S+"), MASK),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        MASK,
    ),
    (
        re.compile(r"\b(?P<kind>bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE),
        r"\g<kind> ***",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), MASK),
)

_HINTS = ("passw", "pwd", "secret", "token", "credential", "key", "bearer", "basic", "eyj")
_HINTS_AS_WRITTEN = ("AKIA", "ASIA")
"""Every form of a secret holds one of these, or a login in a URL: what holds none is clean."""

_registered: set[str] = set()


def register(secret: str) -> None:
    """Have a secret masked wherever it stands in a text from now on, in this process."""
    if len(secret) >= REGISTERED_LENGTH_MIN:
        _registered.add(secret)


def registered() -> int:
    """Return how many secrets are registered: what was clean before may not be after one more."""
    return len(_registered)


def registered_secrets() -> list[str]:
    """Return the secrets themselves: for a process of ours that must know them too."""
    return sorted(_registered)


def is_secret_key(key: str) -> bool:
    """Say whether the value under a key of this name is a secret."""
    if _SECRET_KEY.search(key):
        return True
    match = _KEY_WORD.search(key)
    return match is not None and (match["word"] or "").lower() not in _HARMLESS


def redact(value: object) -> object:
    """Return the value with every secret in it masked; numbers, booleans and None as they are."""
    return _redact(value, 0)


def redact_text(text: str) -> str:
    """Return the text with every secret in it masked."""
    for secret in sorted(_registered, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _SCHEME_USERINFO.sub(r"\g<scheme>\g<user>:***@", text)
    for pattern, replacement in _FORMS:
        text = pattern.sub(replacement, text)
    return _PAIR.sub(rf"\g<key>{MASK}", text)


def may_hold_secret(text: str) -> bool:
    """Say whether a text has to be searched by form: most are found clean without it."""
    if any(secret in text for secret in _registered):
        return True
    # Beyond ASCII some letters are taken for others, whatever their case: no short cut there.
    if not text.isascii():
        return True
    lowered = text.lower()
    return (
        any(hint in lowered for hint in _HINTS)
        or any(hint in text for hint in _HINTS_AS_WRITTEN)
        or ("@" in text and "://" in text)
    )


def is_clean(text: str) -> bool:
    """Say whether a text holds no secret."""
    return not may_hold_secret(text) or redact_text(text) == text


def _redact(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth > DEPTH_MAX:
        return MASK
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, bytes | bytearray):
        return redact_text(bytes(value).decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return {
            redact_text(str(key)): _redact_item(str(key), item, depth)
            for key, item in value.items()
        }
    if isinstance(value, Sequence | set | frozenset):
        return [_redact(item, depth + 1) for item in value]
    return redact_text(str(value))


def _redact_item(key: str, item: object, depth: int) -> object:
    # A list under `key` is the columns of a key; a number or a boolean is no secret's value.
    if isinstance(item, str | bytes | bytearray) and item and is_secret_key(key):
        return MASK
    if _SECRET_KEY.search(key) and not isinstance(item, bool | int | float | None):
        return MASK
    return _redact(item, depth + 1)
