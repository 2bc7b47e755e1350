"""One server process: started, waited for, stopped, killed, started again on the same data."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from odi_audit.spark.java import ask

HOST = "127.0.0.1"
STOP_WAIT_S_MAX = 30
LOG_TAIL_CHARS = 4000
START_ATTEMPTS_MAX = 3
"""Somebody else may take a port between our looking at it and the server's binding it."""
JAVA_FOLDERS = (
    ("/usr/lib/jvm", "*"),
    ("/opt", "jdk*"),
    ("/opt/java", "*"),
    ("/Library/Java/JavaVirtualMachines", "*/Contents/Home"),
)
_GUARD = Path(__file__).parent / "guard.py"


class Server(ABC):
    """A server in its own temporary folder; its port and data outlive a restart."""

    name: str
    start_wait_s_max: float = 60

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"odi-{self.name}-"))
        self.log = self.folder / "server.log"
        self._guard: subprocess.Popen[bytes] | None = None
        self._logged_before = 0
        self.pid = 0

    @abstractmethod
    def command(self) -> list[str]:
        """Return the program and its arguments."""

    @abstractmethod
    def ready(self) -> bool:
        """Say whether the server answers."""

    @abstractmethod
    def prepare(self) -> None:
        """Do what must be done once, before the first start; may be asked again for new ports."""

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._guard is not None and self._guard.poll() is None

    def start_first(self) -> None:
        """Start a new server; ports are chosen again where another process took one."""
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            self.prepare()
            try:
                self.start()
            except ServerFailed as failed:
                if attempt == START_ATTEMPTS_MAX or "in use" not in str(failed):
                    self.remove()
                    raise
            else:
                return

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            ServerFailed: it ended, or did not answer in time; the end of its log is in the message.
        """
        if self.running:
            raise RuntimeError(f"{self.name} is running already")
        self._logged_before = self.log.stat().st_size if self.log.exists() else 0
        self._guard = subprocess.Popen(
            [
                sys.executable, "-S", "-E", str(_GUARD), str(self.folder), str(self.log),
                *self.command(),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline() or 0)
        deadline = time.monotonic() + self.start_wait_s_max
        while not self.ready():
            if not self.running:
                raise ServerFailed(f"{self.name} ended while starting", self.log_tail())
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(
                    f"{self.name} did not answer within {self.start_wait_s_max:.0f} s",
                    self.log_tail(),
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server as an operator would; kill it if it does not end."""
        self._signal(b"T")
        try:
            self._wait(STOP_WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL)."""
        self._signal(b"K")
        self._wait(STOP_WAIT_S_MAX)

    def pause(self) -> None:
        """Have the server hang (SIGSTOP): connections stand, nothing answers."""
        self._signal(b"S")

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal(b"C")

    def restart(self, *, crash: bool = False) -> None:
        """Stop (or kill) the server and start it again: same ports, same data."""
        if self.running:
            self.kill() if crash else self.stop()
        self.start()

    def remove(self) -> None:
        """End the server at once and remove everything it left."""
        if self.running:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_text(self) -> str:
        """Return what the server has logged since its last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as stream:
            stream.seek(self._logged_before)
            return stream.read().decode("utf-8", "replace")

    def log_tail(self) -> str:
        """Return the end of the log, for a message."""
        return self.log_text()[-LOG_TAIL_CHARS:]

    def _signal(self, letter: bytes) -> None:
        if self.running:
            assert self._guard is not None and self._guard.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.write(letter)
                self._guard.stdin.flush()

    def _wait(self, seconds: float) -> None:
        if self._guard is None:
            return
        self._guard.wait(seconds)
        for stream in (self._guard.stdin, self._guard.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class ServerFailed(RuntimeError):
    """A server did not start; the message ends with what it logged last."""

    def __init__(self, problem: str, log: str) -> None:
        super().__init__(f"{problem}; the end of its log:\n{log}")


def free_port(taken: Callable[[int], bool] = lambda _: False) -> int:
    """Return a port that nobody listens on, below those that the system gives to clients.

    While a server is down for a restart, a client that tries to reach its port could otherwise be
    given that very port as its own, and would keep the server from coming back.
    """
    chosen = random.SystemRandom()
    for _ in range(200):
        port = chosen.randrange(15000, _first_client_port())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                if not taken(port):
                    return port
    raise RuntimeError("no free port was found on loopback")


def _first_client_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 32768


def answers(url: str) -> bool:
    """Say whether an HTTP server answers with a success."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status < 300)
    except (urllib.error.URLError, OSError):
        return False


def java(version_min: int) -> str:
    """Return a Java program of at least this version: the oldest that will do.

    Raises:
        RuntimeError: there is none.
    """
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    for folder, pattern in JAVA_FOLDERS:
        homes.extend(sorted(Path(folder).glob(pattern)))
    found = sorted({(told.version, str(told.home)) for home in homes if (told := ask(home))})
    for version, home in found:
        if version >= version_min:
            return f"{home}/bin/java"
    seen = ", ".join(f"{version} in {home}" for version, home in found) or "none"
    raise RuntimeError(f"Java {version_min} or newer is needed, found: {seen}")
