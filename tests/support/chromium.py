"""A Chromium for tests that look at pages: found, or installed where that is allowed.

A test that needs a browser fails without one; it is never skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "ODI_TEST_CHROMIUM"
PACKAGES = ("chromium", "fonts-dejavu-core")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
INSTALL_S_MAX = 240


def chromium() -> str:
    """Return the path of a Chromium; installs the distribution's where this process may."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    found = _on_path()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES],
        ):
            subprocess.run(command, env=quiet, check=False, timeout=INSTALL_S_MAX)
        found = _on_path()
    if found is None:
        raise RuntimeError(
            "these tests need Chromium: install the packages "
            f"{' and '.join(PACKAGES)}, or name a browser in {VARIABLE}"
        )
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a headless browser."""
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield launched
        finally:
            launched.close()


def _on_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)
