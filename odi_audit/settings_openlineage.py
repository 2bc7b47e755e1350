"""OpenLineage's own configuration, read where a lake says nothing about destinations.

Owns how ``OPENLINEAGE_URL`` and ``openlineage.yml`` become settings of ``[lineage]``. Must never
guess: what it does not know is an error, and no configuration means no destination.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from odi_audit.errors import ConfigError
from odi_audit.settings_layers import Given

FILE_NAME = "openlineage.yml"
_HTTP = {
    "url": "url",
    "endpoint": "endpoint",
    "timeout": "timeout_s",
    "verify": "verify",
    "custom_headers": "headers",
}
_KAFKA = {"topic": "topic", "config": "kafka", "messageKey": "message_key"}
_FILE = {"log_file_path": "file"}
_IGNORED = {"type", "name", "priority", "retry", "flush", "append", "continue_on_failure"} | {
    "continue_on_success",
    "sort_transports",
}
"""Keys that say how the library itself sends: the relay has its own answers to these."""


def openlineage_layer(env: Mapping[str, str], root: Path) -> dict[str, Given]:
    """Return what OpenLineage's variables or file say, as settings of ``[lineage]``.

    Raises:
        ConfigError: the file is malformed, or says what is not known here.
    """
    if env.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return {}
    if env.get("OPENLINEAGE_URL"):
        named = {
            "url": "OPENLINEAGE_URL",
            "endpoint": "OPENLINEAGE_ENDPOINT",
            "api_key": "OPENLINEAGE_API_KEY",
        }
        given = {
            f"lineage.{key}": Given(value=env[name], origin=f"environment {name}")
            for key, name in named.items()
            if env.get(name)
        }
        return given | {"lineage.transport": Given(value="http", origin="OPENLINEAGE_URL")}
    path = _file(env, root)
    return {} if path is None else _from_file(path)


def _file(env: Mapping[str, str], root: Path) -> Path | None:
    named = env.get("OPENLINEAGE_CONFIG")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise ConfigError(f"OPENLINEAGE_CONFIG names {path}, which is not there")
        return path
    path = root / FILE_NAME
    return path if path.is_file() else None


def _from_file(path: Path) -> dict[str, Given]:
    import yaml

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        # The parser's message quotes the line, which may hold a key.
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from None
    transport = document.get("transport") if isinstance(document, dict) else None
    if not isinstance(transport, dict):
        raise ConfigError(f"{path} names no transport", hint=f"edit {path}")
    made = _translated(cast("dict[str, object]", transport), path)
    return {f"lineage.{key}": Given(value=value, origin=str(path)) for key, value in made.items()}


def _translated(transport: Mapping[str, object], path: Path) -> dict[str, object]:
    kind = transport.get("type")
    if kind == "composite":
        return {"transport": "composite", "destinations": _children(transport, path)}
    words = {"http": _HTTP, "kafka": _KAFKA, "file": _FILE, "console": {}}.get(str(kind))
    if words is None:
        raise ConfigError(f"{path}: transport type {kind!r} is not known here", hint=f"edit {path}")
    made: dict[str, object] = {"transport": kind}
    for key, value in transport.items():
        if key in words:
            made[words[key]] = value
        elif kind == "http" and key == "auth":
            made |= _auth(value, path)
        elif kind == "http" and key == "compression":
            made["gzip"] = value == "gzip"
        elif kind == "http" and key == "sslContext":
            made |= _tls(value, path)
        elif key not in _IGNORED:
            raise ConfigError(f"{path}: {key!r} of the {kind} transport is not known here")
    return made


def _children(transport: Mapping[str, object], path: Path) -> dict[str, object]:
    held = transport.get("transports")
    if isinstance(held, list):
        held = {
            str(item.get("name", place)) if isinstance(item, dict) else str(place): item
            for place, item in enumerate(held)
        }
    if not isinstance(held, dict) or not all(isinstance(item, dict) for item in held.values()):
        raise ConfigError(f"{path}: a composite transport needs its transports")
    return {str(name): _translated(item, path) for name, item in held.items()}


def _auth(value: object, path: Path) -> dict[str, object]:
    if not isinstance(value, dict) or value.get("type") != "api_key":
        raise ConfigError(f"{path}: only auth of type api_key is known here")
    return {"api_key": value.get("apiKey") or value.get("api_key")}


def _tls(value: object, path: Path) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: sslContext is not a table")
    words = {
        "caCertPath": "ca_file", "clientCertPath": "client_cert", "clientKeyPath": "client_key",
    }  # fmt: skip
    return {words[key]: item for key, item in value.items() if key in words}
