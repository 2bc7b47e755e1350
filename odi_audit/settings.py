"""Settings: every value that can be chosen, and where it came from.

Owns the loading of their layers: defaults < ``odi.toml`` < ``ODI_*`` < flags; the models are in
``settings_models``. Must never open a catalog or a ledger, and must never show a secret: those are
``SecretStr``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from odi_audit import redact
from odi_audit.errors import ConfigError, LakeNotFound
from odi_audit.settings_layers import (
    Given,
    Keys,
    env_layer,
    file_layer,
    flag_layer,
    nest,
    stack,
)
from odi_audit.settings_models import (
    CatalogSettings,
    DestinationSettings,
    LakeSettings,
    LedgerSettings,
    LimitSettings,
    LineageSettings,
    LogSettings,
    RunSettings,
    Settings,
    SparkSettings,
)
from odi_audit.settings_openlineage import openlineage_layer
from odi_audit.urls import split_login, with_login

__all__ = [
    "CATALOG_BUSY_TIMEOUT_MS", "FILE_NAME", "SQLITE", "CatalogSettings", "DestinationSettings",
    "LakeSettings", "LedgerSettings", "LimitSettings", "LineageSettings", "Loaded", "LogSettings",
    "RunSettings", "Settings", "SparkSettings", "catalog_file", "catalog_pyiceberg_properties",
    "catalog_spark_conf", "jar_sets", "known_keys", "ledger_url", "load", "shown",
]  # fmt: skip

FILE_NAME = "odi.toml"
SQLITE = "sqlite:///"
CATALOG_BUSY_TIMEOUT_MS = 30_000
"""How long Spark waits for another process's write to the SQLite catalog, which takes moments."""
_NO_DESTINATION = frozenset(
    f"lineage.{name}" for name in ("relay", "exit_wait_s", "settle_s", "retry_s_max")
)
"""Keys of ``[lineage]`` that say how events are sent, not where to."""


_Lineage = TypeVar("_Lineage", LineageSettings, DestinationSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Settings and, for each dotted key, who gave its value."""

    settings: Settings
    origins: Mapping[str, str]


def load(
    root: Path,
    env: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    *,
    file_name: str = FILE_NAME,
) -> Loaded:
    """Load the settings of the lake at ``root``; relative paths are resolved against it.

    Afterwards every secret is registered with the redactor.

    Raises:
        LakeNotFound: there is no ``odi.toml`` in ``root``.
        ConfigError: a key is unknown, or a value is malformed or out of its limits.
    """
    root = root.resolve()
    path = root / file_name
    if not path.is_file():
        raise LakeNotFound(f"no {file_name} in {root}", hint=f"odi-audit init {root}")
    keys = known_keys()
    chosen = stack(
        [file_layer(path, keys), env_layer(env, keys), flag_layer(overrides or {}, keys)]
    )
    layers = [_defaults(root), chosen]
    if not any(key.startswith("lineage.") and key not in _NO_DESTINATION for key in chosen):
        # Only where the lake says nothing about destinations: two configurations never mix.
        layers.insert(1, openlineage_layer(env, root))
    given = stack(layers)
    try:
        settings = Settings.model_validate(nest(given))
    except ValidationError as error:
        raise _invalid(error, given) from error
    settings = _absolute(settings, root)
    _register_secrets(settings)
    origins = {key: given[key].origin if key in given else "default" for key in sorted(keys.all)}
    return Loaded(settings=settings, origins=origins)


def known_keys() -> Keys:
    """Return every key that can be set, read off the models."""
    plain: set[str] = set()
    maps: set[str] = set()
    for section, outer in Settings.model_fields.items():
        model = outer.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        for name, field in model.model_fields.items():
            (maps if get_origin(field.annotation) is dict else plain).add(f"{section}.{name}")
    return Keys(plain=frozenset(plain - {"lake.root"}), maps=frozenset(maps))


def shown(settings: Settings) -> dict[str, object]:
    """Return every value by its dotted key, secrets masked: what ``config`` prints."""
    values: dict[str, object] = {}
    for key in sorted(known_keys().all):
        section, _, name = key.partition(".")
        value: object = getattr(getattr(settings, section), name)
        values[key] = redact.redact(_plain(value))
    return values


def _plain(value: object) -> object:
    """Return a value as JSON holds it, secrets masked."""
    if isinstance(value, SecretStr):
        return redact.MASK
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def ledger_url(settings: Settings) -> str:
    """Return the URL that opens the ledger, with its password: never to be shown."""
    ledger = settings.ledger
    if ledger.url.startswith(SQLITE):
        return ledger.url
    return with_login(ledger.url, user=None, password=_reveal(ledger.password))


def catalog_file(settings: Settings) -> Path | None:
    """Return the SQLite catalog's file, or None where the catalog is a server."""
    return Path(settings.catalog.uri) if settings.catalog.type == "sqlite" else None


def catalog_spark_conf(settings: Settings) -> dict[str, str]:
    """Return the Spark conf that names the catalog, with its password: never to be shown."""
    catalog = settings.catalog
    prefix = f"spark.sql.catalog.{catalog.name}"
    # Each session has its own catalog object: a cached table of another session stays stale.
    options = {"cache-enabled": "false"}
    if catalog.warehouse is not None:
        options["warehouse"] = catalog.warehouse
    if _on_s3(settings):
        options["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    if catalog.type == "sqlite":
        options |= {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{catalog.uri}",
            "jdbc.schema-version": "V1",
            "jdbc.busy_timeout": str(CATALOG_BUSY_TIMEOUT_MS),
        }
    elif catalog.type == "postgresql":
        login = split_login(catalog.uri)
        options |= {"type": "jdbc", "uri": f"jdbc:{login.bare}", "jdbc.schema-version": "V1"}
        user = catalog.user or login.user
        password = _reveal(catalog.password) or login.password
        options |= {"jdbc.user": user} if user else {}
        options |= {"jdbc.password": password} if password else {}
    else:
        options |= {"type": "rest", "uri": catalog.uri} | _credential(catalog)
    options |= catalog.properties
    conf = {prefix: "org.apache.iceberg.spark.SparkCatalog"}
    return conf | {f"{prefix}.{key}": value for key, value in options.items()}


def catalog_pyiceberg_properties(settings: Settings) -> dict[str, str]:
    """Return pyiceberg's properties of the same catalog, to be opened under the same name."""
    catalog = settings.catalog
    properties: dict[str, str] = {}
    if catalog.warehouse is not None:
        properties["warehouse"] = catalog.warehouse
    if catalog.type == "sqlite":
        properties |= {"type": "sql", "uri": SQLITE + catalog.uri, "init_catalog_tables": "false"}
    elif catalog.type == "postgresql":
        url = with_login(catalog.uri, user=catalog.user, password=_reveal(catalog.password))
        scheme, _, rest = url.partition("://")
        properties |= {"type": "sql", "uri": f"{scheme}+psycopg://{rest}", "pool_pre_ping": "true"}
    else:
        properties |= {"type": "rest", "uri": catalog.uri} | _credential(catalog)
    return properties | catalog.properties


def jar_sets(settings: Settings) -> tuple[str, ...]:
    """Return the names of the pinned jar sets that Spark needs for this catalog."""
    sets = ["core"]
    if settings.catalog.type == "postgresql":
        sets.append("postgresql")
    if _on_s3(settings):
        sets.append("s3")
    return tuple(sets)


def _defaults(root: Path) -> dict[str, Given]:
    return {
        "lake.root": Given(value=root, origin="the folder of odi.toml"),
        "run.principal": Given(value=_account(), origin="default: the account of this process"),
        "run.code_version": Given(value=_version(), origin="default: the installed version"),
        "spark.jars_dir": Given(value=_jars_dir(), origin="default: the user's cache folder"),
    }


def _account() -> str:
    # The account by its id, not by a variable that anybody can set.
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return f"uid:{os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _version() -> str:
    from importlib import metadata

    try:
        return f"odi-audit/{metadata.version('odi-audit')}"
    except metadata.PackageNotFoundError:
        return "odi-audit/not-installed"


def _jars_dir() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("odi-audit", appauthor=False)) / "jars"


def _invalid(error: ValidationError, given: Mapping[str, Given]) -> ConfigError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    parts = [str(part) for part in first["loc"]]
    key = ".".join(parts[:2])
    origin = given[key].origin if key in given else "default"
    return ConfigError(
        f"setting {'.'.join(parts)} from {origin} is not valid: {first['msg']}",
        hint="odi-audit config --keys",
        setting=key,
        origin=origin,
    )


def _absolute(settings: Settings, root: Path) -> Settings:
    catalog, ledger = settings.catalog, settings.ledger
    warehouse = catalog.warehouse
    if catalog.type != "rest":
        warehouse = _local(warehouse or "warehouse", root)
    uri = catalog.uri
    if catalog.type == "sqlite":
        uri = _local(uri.removeprefix(SQLITE), root)
    _check_scheme("catalog.uri", uri, catalog.type)
    url = ledger.url
    if url.startswith(SQLITE):
        url = SQLITE + _local(url.removeprefix(SQLITE), root)
    _check_scheme("ledger.url", url, "sqlite" if url.startswith(SQLITE) else "postgresql")
    lineage = settings.lineage
    spark = settings.spark
    jars_dir = None if spark.jars_dir is None else root / spark.jars_dir.expanduser()
    return settings.model_copy(
        update={
            "catalog": catalog.model_copy(update={"uri": uri, "warehouse": warehouse}),
            "ledger": ledger.model_copy(
                update={"url": url, "key_path": root / ledger.key_path.expanduser()}
            ),
            "spark": spark.model_copy(update={"jars_dir": jars_dir}),
            "lineage": _placed(lineage, root).model_copy(
                update={
                    "destinations": {
                        name: _placed(item, root) for name, item in lineage.destinations.items()
                    }
                }
            ),
        }
    )


def _placed(section: _Lineage, root: Path) -> _Lineage:
    """Return a destination with its files found from the lake's folder."""
    names = ("file", "ca_file", "client_cert", "client_key")
    held = {name: getattr(section, name) for name in names}
    return section.model_copy(
        update={name: root / path.expanduser() for name, path in held.items() if path is not None}
    )


def _local(place: str, root: Path) -> str:
    if "://" in place:
        return place
    return str((root / Path(place).expanduser()).absolute())


def _check_scheme(key: str, value: str, kind: str) -> None:
    schemes = {"postgresql": ("postgresql://",), "rest": ("http://", "https://")}.get(kind, ())
    if schemes and not value.startswith(schemes):
        raise ConfigError(
            f"setting {key} is {redact.redact_text(value)!r}, but must begin with "
            + " or ".join((*schemes, *((SQLITE,) if key == "ledger.url" else ()))),
            hint="odi-audit config",
            setting=key,
        )


def _on_s3(settings: Settings) -> bool:
    place = settings.catalog.warehouse or ""
    return place.startswith(("s3://", "s3a://")) or "S3FileIO" in settings.catalog.properties.get(
        "io-impl", ""
    )


def _credential(catalog: CatalogSettings) -> dict[str, str]:
    secret = _reveal(catalog.password)
    if not secret:
        return {}
    return {"credential": f"{catalog.user}:{secret}" if catalog.user else secret}


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _register_secrets(settings: Settings) -> None:
    lineage = settings.lineage
    places = [lineage, *lineage.destinations.values()]
    secrets = [settings.catalog.password, settings.ledger.password, settings.ledger.key]
    secrets += [place.api_key for place in places] + list(lineage.api_keys.values())
    for secret in secrets:
        if secret is not None:
            redact.register(secret.get_secret_value())
    for place in places:
        for key, value in (place.kafka | place.headers).items():
            if redact.is_secret_key(key):
                redact.register(value)
    for url in (settings.catalog.uri, settings.ledger.url):
        if not url.startswith((SQLITE, "/")) and (password := split_login(url).password):
            redact.register(password)
    for key, value in settings.catalog.properties.items():
        if redact.is_secret_key(key):
            redact.register(value)
