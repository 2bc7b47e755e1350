"""Layers of settings: defaults, ``odi.toml``, the environment, flags; each value with its origin.

Owns how a key is spelled in each layer and what happens to an unknown one (an error that names
the nearest). Must never know what a key means: that is ``settings``.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from odi_audit.errors import ConfigError

ENV_PREFIX = "ODI_"
ENV_RESERVED = frozenset({"ODI_LAKE", "ODI_DEBUG"})
"""Variables that are no settings: where the lake is, and whether a bug shows its traceback."""
ENV_RESERVED_PREFIX = "ODI_TEST_"
"""Left to tests, which steer child processes by them."""
ENV_ALIASES = {"ODI_JARS_DIR": "spark.jars_dir"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Every key that there is, dotted; ``maps`` are those whose value is a table of strings."""

    plain: frozenset[str]
    maps: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Plain keys and maps."""
        return self.plain | self.maps


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value as somebody gave it, and who."""

    value: object
    origin: str


def file_layer(path: Path, keys: Keys) -> dict[str, Given]:
    """Read ``odi.toml``.

    Raises:
        ConfigError: it is not TOML, or holds an unknown section or key.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint=f"edit {path}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    sections = {key.partition(".")[0] for key in keys.all}
    given: dict[str, Given] = {}
    for section, body in document.items():
        if section not in sections:
            raise _unknown(section, sections, str(path))
        if not isinstance(body, dict):
            raise ConfigError(
                f"{path}: {section} is a section, but has a single value",
                hint=f"write [{section}] on a line of its own, and its keys below",
            )
        for name, value in cast("dict[str, object]", body).items():
            key = f"{section}.{name}"
            if key not in keys.all:
                raise _unknown(key, keys.all, str(path))
            given[key] = Given(value=value, origin=path.name)
    return given


def env_layer(env: Mapping[str, str], keys: Keys) -> dict[str, Given]:
    """Read ``ODI_SECTION__KEY`` variables.

    Raises:
        ConfigError: a variable begins with ``ODI_`` and names no setting.
    """
    names = {env_name(key): key for key in keys.all} | ENV_ALIASES
    given: dict[str, Given] = {}
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX) or name in ENV_RESERVED:
            continue
        if name.startswith(ENV_RESERVED_PREFIX):
            continue
        if name not in names:
            raise _unknown(name, names.keys() | ENV_RESERVED, "the environment")
        given[names[name]] = _from_text(names[name], env[name], f"environment {name}", keys)
    return given


def flag_layer(overrides: Mapping[str, str], keys: Keys) -> dict[str, Given]:
    """Read overrides, ``section.key`` to text.

    Raises:
        ConfigError: an override names no setting.
    """
    given: dict[str, Given] = {}
    for key, text in overrides.items():
        if key not in keys.all:
            raise _unknown(key, keys.all, "a flag")
        given[key] = _from_text(key, text, "flag", keys)
    return given


def stack(layers: Iterable[Mapping[str, Given]]) -> dict[str, Given]:
    """Lay the layers over one another; the last that has a key wins."""
    merged: dict[str, Given] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def nest(given: Mapping[str, Given]) -> dict[str, dict[str, object]]:
    """Turn dotted keys into sections, as the models want them."""
    nested: dict[str, dict[str, object]] = {}
    for key, item in given.items():
        section, _, name = key.partition(".")
        nested.setdefault(section, {})[name] = item.value
    return nested


def env_name(key: str) -> str:
    """Return the environment variable of a key."""
    return ENV_PREFIX + key.replace(".", "__").upper()


def _from_text(key: str, text: str, origin: str, keys: Keys) -> Given:
    if key not in keys.maps:
        return Given(value=text, origin=origin)
    try:
        return Given(value=json.loads(text), origin=origin)
    except ValueError as error:
        raise ConfigError(
            f"{key} from {origin} is not a JSON object of strings",
            hint=f'write it like {env_name(key)}=\'{{"name": "value"}}\'',
            setting=key,
        ) from error


def _unknown(name: str, known: Collection[str], where: str) -> ConfigError:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    meant = f"; the nearest is {near[0]}" if near else ""
    return ConfigError(
        f"unknown setting {name} in {where}{meant}",
        hint="odi-audit config --keys",
        setting=name,
        nearest=near[0] if near else None,
    )
