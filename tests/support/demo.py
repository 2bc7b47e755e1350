"""The demo as a reader runs it: in a folder of its own, by its command, in another process."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A demo that has been told: ``here`` holds its lake, ``demo-lake``."""

    here: Path
    data: Any
    story: str

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that the demo proposes."""
        return subprocess.run(
            shlex.split(command), cwd=self.here, env=env(), capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip


def env() -> dict[str, str]:
    """Return an environment in which the package is found."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def tell_demo(here: Path) -> Demo:
    """Run the demo in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "odi_audit.cli", "demo", "--json"],
        cwd=here, env=env(), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == "odi.demo/1"
    return Demo(here=here, data=answer["data"], story=done.stderr)
