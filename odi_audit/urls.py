"""Logins in database URLs: taken apart and put together, with percent-encoding.

Owns the userinfo part of a URL. Must never log or show one.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A URL without its userinfo, and the userinfo decoded."""

    bare: str
    user: str | None
    password: str | None


def split_login(url: str) -> Login:
    """Take the login out of a URL."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return Login(
        bare=urlunsplit(parts._replace(netloc=host)),
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )


def with_login(url: str, *, user: str | None, password: str | None) -> str:
    """Put a login into a URL; what is not given stays as the URL has it."""
    found = split_login(url)
    user = user or found.user
    password = password or found.password
    if user is None and password is None:
        return url
    login = quote(user or "", safe="") + (f":{quote(password, safe='')}" if password else "")
    parts = urlsplit(found.bare)
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
