"""Java for Spark: found, asked for its version, and chosen.

Owns the search: JAVA_HOME, the PATH, then the folders where systems put it. Must never start
Spark, and must never change the environment.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from odi_audit.errors import JavaMissing

VERSION_MIN = 17
VERSIONS_TESTED = (17, 21)
"""What Spark 4.1 supports; a newer Java is taken only where neither is to be found."""
ANSWER_WAIT_S_MAX = 20
INSTALL = (
    "install Java 17: Debian/Ubuntu `sudo apt install openjdk-17-jre-headless`, "
    "macOS `brew install openjdk@17`, Windows `winget install EclipseAdoptium.Temurin.17.JRE`; "
    "or set JAVA_HOME to the one you have"
)
_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "C:/Program Files/Eclipse Adoptium/*",
    "C:/Program Files/Java/*",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that answers: its home and its major version."""

    home: Path
    version: int

    @property
    def tested(self) -> bool:
        """Whether Spark supports this version."""
        return self.version in VERSIONS_TESTED


def find(
    env: Mapping[str, str], *, home: Path | None = None, folders: Iterable[str] = _FOLDERS
) -> Java:
    """Return the Java to run Spark with: the first that is tested, else the first new enough.

    ``home`` (the setting) is taken or refused, never passed over.

    Raises:
        JavaMissing: none was found, or only ones that are too old; the message says what to
            install.
    """
    if home is not None:
        chosen = ask(home)
        if chosen is None or chosen.version < VERSION_MIN:
            raise _missing(
                f"the setting spark.java_home, {home}, has no Java {VERSION_MIN} or newer", []
            )
        return chosen
    seen: list[Java] = []
    for candidate in _candidates(env, folders):
        found = ask(candidate)
        if found is None:
            continue
        if found.tested:
            return found
        seen.append(found)
    for found in seen:
        if found.version >= VERSION_MIN:
            return found
    raise _missing(f"Spark needs Java {VERSION_MIN} or newer", seen)


def ask(home: Path) -> Java | None:
    """Return the Java at a home folder, or None where none answers.

    The ``release`` file of the folder is read first: starting a JVM takes a moment each.
    """
    program = home / "bin" / "java"
    if not program.exists() and not program.with_suffix(".exe").exists():
        return None
    version = _released(home) or _answered(program)
    return None if version is None else Java(home=home, version=version)


def parse_version(text: str) -> int | None:
    """Read the major version of ``17.0.15``, ``1.8.0_392`` or ``21-ea``."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match.group(1)) if match else None


def _candidates(env: Mapping[str, str], folders: Iterable[str]) -> Iterator[Path]:
    seen: set[Path] = set()
    for home in _places(env, folders):
        try:
            resolved = home.resolve()
        except OSError:
            continue
        if resolved not in seen:
            seen.add(resolved)
            yield resolved


def _places(env: Mapping[str, str], folders: Iterable[str]) -> Iterator[Path]:
    if env.get("JAVA_HOME"):
        yield Path(env["JAVA_HOME"])
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for pattern in folders:
        anchor = Path(pattern).anchor
        if anchor and Path(anchor).exists():
            yield from sorted(Path(anchor).glob(str(Path(pattern).relative_to(anchor))))


def _released(home: Path) -> int | None:
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return parse_version(match.group(1)) if match else None


def _answered(program: Path) -> int | None:
    try:
        answer = subprocess.run(
            [str(program), "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_WAIT_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return parse_version(match.group(1)) if match and answer.returncode == 0 else None


def _missing(what: str, seen: list[Java]) -> JavaMissing:
    found = [f"Java {item.version} in {item.home}" for item in seen]
    tail = f"; found only {', '.join(found)}" if found else "; found none"
    return JavaMissing(what + tail, hint=INSTALL, found=found)


def main() -> int:
    """Say which Java would be used; what ``make`` asks before it downloads anything."""
    import os
    import sys

    try:
        found = find(os.environ)
    except JavaMissing as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_status)
    sys.stderr.write(f"Java {found.version} in {found.home}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
