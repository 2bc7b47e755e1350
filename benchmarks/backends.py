"""Backends for the measurements: one that answers at once, a slow one, one that refuses.

Owns a server of one thread that reads requests and answers them all alike, so that what is
measured is the relay and not the receiver. Must never look into an event.

    python -m benchmarks.backends --status 201 --delay-s 0
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

HEAD_BYTES_MAX = 64 * 1024
STARTED_S_MAX = 30
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@contextmanager
def backend(*, status: int = 201, delay_s: float = 0.0) -> Iterator[str]:
    """Run a backend in a process of its own; gives its URL."""
    order = [sys.executable, "-m", "benchmarks.backends"]
    order += ["--status", str(status), "--delay-s", str(delay_s)]
    with subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


@contextmanager
def nobody() -> Iterator[str]:
    """Give the URL of a port at which nobody listens, and nobody else can begin to."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


async def _serve(status: int, delay_s: float) -> None:
    body = b"{}"
    answer = b"HTTP/1.1 %d answered\r\nContent-Type: application/json\r\n" % status
    answer += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = _LENGTH.search(head)
                await reader.readexactly(0 if found is None else int(found[1]))
                if delay_s:
                    await asyncio.sleep(delay_s)
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    # The end of standard input is the end of whoever started this.
    asyncio.get_running_loop().add_reader(sys.stdin, server.close)
    with suppress(asyncio.CancelledError):
        await server.serve_forever()


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--status", type=int, default=201)
    parser.add_argument("--delay-s", type=float, default=0.0)
    asked = parser.parse_args()
    asyncio.run(_serve(asked.status, asked.delay_s))


if __name__ == "__main__":
    main()
