"""What the servers are made of: pinned parts, fetched once, then used without a network.

A set is a folder in the user's cache that is there whole or not at all. Its digest is that of the
names and SHA-256 digests of all its files, so that a part that is not the pinned one is refused.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from jgo.maven import MavenContext

FETCH_WAIT_S_MAX = 60
"""For one answer of the registry, not for the whole file."""
BUILD_WAIT_S_MAX = 900
"""Go fetches and compiles everything that the tool needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A set of jars: the coordinates asked for, everything they need, and its digest."""

    name: str
    coordinates: tuple[str, ...]
    sha256: str
    without: tuple[str, ...] = ()
    """Artifacts that the server has itself: two copies of an interface do not fit each other."""


KAFKA = Parts(
    name="kafka-4.3.0",
    coordinates=(
        "org.apache.kafka:kafka_2.13:4.3.0",
        "org.apache.kafka:kafka-tools:4.3.0",
        # Kafka logs through slf4j 1.7: the binding for slf4j 2 would be silent.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
        "org.apache.logging.log4j:log4j-core:2.25.1",
    ),
    sha256="213f1008c859f15b3b5013fb203aa900d1cd2d36eea5199011682b182222c71c",
)
DEBEZIUM_POSTGRES = Parts(
    name="debezium-postgres-3.6.1",
    coordinates=("io.debezium:debezium-connector-postgres:3.6.1.Final",),
    sha256="f40cc49b827cebebdf43c3dc121669a023d1301df182696fd01566a3b846d654",
    without=("kafka-clients", "connect-api", "slf4j-api"),
)
REGISTRY = ("io.apicurio", "apicurio-registry-app", "3.3.3")
REGISTRY_SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"


def cache() -> Path:
    """Return the folder in which parts are kept between test runs."""
    chosen = os.environ.get("TEST_SERVERS_DIR")
    return Path(chosen) if chosen else platformdirs.user_cache_path("odi-audit") / "servers"


def jars(parts: Parts, *, deep: bool = True) -> list[Path]:
    """Return the jars of a set, fetched if they are not there; ``deep`` with all they need."""
    folder = whole(parts.name, lambda scratch: _fetch_jars(parts, scratch, deep=deep))
    return sorted(folder.glob("*.jar"))


def registry() -> Path:
    """Return the unpacked folder of the schema registry."""
    return whole("apicurio-registry-3.3.3", _fetch_registry)


def toxiproxy() -> Path:
    """Return the program of the proxy, built from its pinned source if it is not there."""
    return whole("toxiproxy-2.5.0", _build_toxiproxy) / "server"


# -- fetching --------------------------------------------------------------------------------------


def _fetch_jars(parts: Parts, scratch: Path, *, deep: bool) -> None:
    from jgo.maven import Dependency

    context = _maven(scratch / ".maven")
    asked = []
    for coordinate in parts.coordinates:
        group, artifact, version = coordinate.split(":")
        found = context.project(group, artifact).at_version(version).artifact()
        asked.append(Dependency(found, raw=True))
    inputs, needed = context.resolver.resolve(asked) if deep else (asked, [])
    for dependency in (*inputs, *needed):
        if dependency.artifactId not in parts.without:
            jar = dependency.artifact.resolve()
            shutil.copyfile(jar, scratch / jar.name)
    shutil.rmtree(scratch / ".maven")
    found_digest = _digest_of(scratch)
    if found_digest != parts.sha256:
        raise RuntimeError(
            f"{parts.name} is not the pinned set of jars: expected {parts.sha256}, "
            f"found {found_digest}"
        )


def _fetch_registry(scratch: Path) -> None:
    group, artifact, version = REGISTRY
    context = _maven(scratch / ".maven")
    archive = context.project(group, artifact).at_version(version).artifact("all", "tar.gz")
    path = archive.resolve()
    found = _sha256(path)
    if found != REGISTRY_SHA256:
        raise RuntimeError(f"{path.name} has SHA-256 {found}, pinned is {REGISTRY_SHA256}")
    with tarfile.open(path) as opened:
        opened.extractall(scratch, filter="data")
    shutil.rmtree(scratch / ".maven")


def _maven(repository: Path) -> MavenContext:
    from jgo.maven import MavenContext, PythonResolver

    logging.getLogger("jgo").setLevel(logging.ERROR)
    return MavenContext(resolver=PythonResolver(), repo_cache=repository, timeout=FETCH_WAIT_S_MAX)


def _build_toxiproxy(scratch: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if go is None:
        raise RuntimeError("toxiproxy is built with Go, and none is here: apt install golang-go")
    done = subprocess.run(
        [go, "install", TOXIPROXY],
        env={**os.environ, "GOBIN": str(scratch), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_WAIT_S_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"go install {TOXIPROXY} failed: {done.stderr[-2000:]}")


# -- the cache -------------------------------------------------------------------------------------


def whole(name: str, make: Callable[[Path], None]) -> Path:
    """Have a folder under its final name only once everything in it is there."""
    folder = cache() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f".{name}.lock")):
        if folder.is_dir():  # another process was faster
            return folder
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            make(scratch)
            scratch.chmod(0o755)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest_of(folder: Path) -> str:
    lines = [f"{path.name} {_sha256(path)}\n" for path in sorted(folder.glob("*.jar"))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
