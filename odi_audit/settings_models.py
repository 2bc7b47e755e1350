"""The sections of the settings: every value that can be chosen, its default and its limits.

Owns the models, and which values contradict each other. Must never read a file or the environment:
that is ``settings``. Secrets are ``SecretStr``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator


class Section(BaseModel):
    """What every section has: unknown keys are errors, and nothing changes once loaded."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LakeSettings(Section):
    """What the lake is called; ``root`` is the folder of ``odi.toml``, never a key in it."""

    name: str = Field("lake", min_length=1, max_length=100)
    root: Path = Path()


class CatalogSettings(Section):
    """Which Iceberg catalog holds the tables."""

    type: Literal["sqlite", "postgresql", "rest"] = "sqlite"
    name: str = Field("lake", pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")
    uri: str = "catalog.db"
    warehouse: str | None = None
    user: str | None = None
    password: SecretStr | None = None
    properties: dict[str, str] = Field(default_factory=dict)


class LedgerSettings(Section):
    """Where the ledger is, and the name and key that its heads are signed with."""

    url: str = "sqlite:///ledger.db"
    password: SecretStr | None = None
    origin: str = Field("odi-audit.local/lake", min_length=1, max_length=200)
    key_path: Path = Path("keys/ledger.key")
    key: SecretStr | None = None
    busy_timeout_s: float = Field(30.0, gt=0, le=3600)

    @field_validator("origin")
    @classmethod
    def _origin_is_a_key_name(cls, value: str) -> str:
        # The signed-note format cuts lines at spaces and key names at plus signs.
        if re.search(r"[\s+]", value):
            raise ValueError("must hold no space and no plus sign")
        return value


class SparkSettings(Section):
    """How Spark is started; ``conf`` is added last and wins."""

    master: str = Field("local[*]", min_length=1)
    driver_memory: str = Field("2g", pattern=r"^[1-9][0-9]*[mgMG]$")
    shuffle_partitions: int | None = Field(None, ge=1, le=100_000)
    java_home: Path | None = None
    jars_dir: Path | None = None
    listener: bool = False
    conf: dict[str, str] = Field(default_factory=dict)


class LogSettings(Section):
    """How log lines look; ``auto`` is readable on a terminal and JSON elsewhere."""

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class RunSettings(Section):
    """Who runs what: both go into every stamp.

    ``pulse_s``: how often a batch that is under way for so long is told in the ledger; 0 is never.
    """

    principal: str = Field("", max_length=200)
    code_version: str = Field("", max_length=200)
    pulse_s: float = Field(300.0, ge=0, le=86_400)


class LimitSettings(Section):
    """Limits of a commit; each has its reason beside it in the committer."""

    stage_attempts_max: int = Field(5, ge=1, le=100)
    refused_branch_days: int = Field(7, ge=0, le=365)
    batch_tables_max: int = Field(64, ge=1, le=1000)
    refusal_samples_max: int = Field(5, ge=0, le=100)


class _Destination(Section):
    """Where events go, in OpenLineage's words as far as there are any."""

    url: str | None = None
    endpoint: str = Field("api/v1/lineage", min_length=1)
    api_key: SecretStr | None = None
    gzip: bool = False
    verify: bool = True
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    timeout_s: float = Field(10.0, gt=0, le=300)
    headers: dict[str, str] = Field(default_factory=dict)
    topic: str | None = None
    kafka: dict[str, str] = Field(default_factory=dict)
    message_key: str | None = None
    file: Path | None = None
    lanes: int | None = Field(None, ge=1, le=32)

    @field_validator("url")
    @classmethod
    def _url_is_http_without_login(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and name a host")
        if "@" in parts.netloc:
            raise ValueError("must hold no login: the key is api_key")
        return value

    def _check(self, transport: str) -> None:
        wanted = {"http": "url", "kafka": "topic", "file": "file"}.get(transport)
        if wanted is not None and getattr(self, wanted) is None:
            raise ValueError(f"transport {transport} needs {wanted}")
        if transport == "kafka" and "bootstrap.servers" not in self.kafka:
            raise ValueError('transport kafka needs kafka = { "bootstrap.servers" = "host:port" }')
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key needs client_cert")


class DestinationSettings(_Destination):
    """One destination of several; its name is its key."""

    transport: Literal["http", "kafka", "file", "console"]

    @model_validator(mode="after")
    def _is_whole(self) -> DestinationSettings:
        self._check(self.transport)
        return self


class LineageSettings(_Destination):
    """Where lineage events go. Without a transport nothing is sent, and nothing is lost.

    ``composite`` sends to each of ``destinations``, each with a position of its own; ``api_keys``
    are their keys by name, so that those can stay out of the file.
    """

    transport: Literal["none", "http", "kafka", "file", "console", "composite"] = "none"
    destinations: dict[str, DestinationSettings] = Field(default_factory=dict, max_length=16)
    api_keys: dict[str, SecretStr] = Field(default_factory=dict)
    relay: Literal["off", "thread"] = "off"
    exit_wait_s: float = Field(2.0, ge=0, le=60)
    settle_s: float = Field(30.0, ge=0, le=600)
    retry_s_max: float = Field(60.0, gt=0, le=3600)

    @field_validator("destinations")
    @classmethod
    def _names_are_plain(
        cls, value: dict[str, DestinationSettings]
    ) -> dict[str, DestinationSettings]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
                raise ValueError(f"{name!r} is no name for a destination")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> LineageSettings:
        self._check(self.transport)
        if self.transport == "none" and (self.url or self.topic or self.file):
            raise ValueError('an address is given, but no transport (transport = "http"?)')
        if (self.transport == "composite") != bool(self.destinations):
            raise ValueError("transport composite and [lineage.destinations.NAME] go together")
        unknown = sorted(set(self.api_keys) - set(self.destinations))
        if unknown:
            raise ValueError(f"api_keys names {unknown[0]!r}, which is no destination")
        return self


class Settings(Section):
    """Everything that can be chosen. Paths are absolute once loaded."""

    lake: LakeSettings = Field(default_factory=LakeSettings)
    catalog: CatalogSettings = Field(default_factory=CatalogSettings)
    ledger: LedgerSettings = Field(default_factory=LedgerSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    run: RunSettings = Field(default_factory=RunSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    lineage: LineageSettings = Field(default_factory=LineageSettings)
