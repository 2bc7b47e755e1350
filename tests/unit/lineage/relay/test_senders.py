"""Transports: what goes over the wire, and what a fault of each means."""

from __future__ import annotations

import gzip
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lineage.relay.answers import Verdict
from lineage.relay.kafka import message_key
from lineage.relay.senders import FileSender, make_sender
from lineage.relay.sources import LEDGER, Item
from odi_audit.ids import RunId
from tests.support.relaying import http as to_http


def item(body: bytes = b'{"a": "\xc3\xa9"}') -> Item:
    return Item(source=LEDGER, key="0.0", run=RunId("r"), state="START", body=body)


class Seen:
    """A server that notes requests and answers as told."""

    def __init__(self) -> None:
        self.status = 201
        self.headers: dict[str, str] = {}
        self.answer = b""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []


@contextmanager
def serving(seen: Seen, context: ssl.SSLContext | None = None) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.requests.append((self.path, headers, body))
            self.send_response(seen.status)
            for name, value in seen.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(seen.answer)))
            self.end_headers()
            self.wfile.write(seen.answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def test_the_key_the_headers_and_the_bytes_are_sent() -> None:
    seen = Seen()
    with serving(seen) as port:
        place = to_http(
            f"http://127.0.0.1:{port}/base", api_key="k-123456", headers={"X-Team": "sales"},
            endpoint="/lineage/in",
        )  # fmt: skip
        sender = make_sender(place)
        answers = sender.send([item(), item()])
        sender.close()
    assert [answer.verdict for answer in answers] == [Verdict.DONE] * 2
    path, headers, body = seen.requests[0]
    assert path == "/base/lineage/in"
    assert headers["authorization"] == "Bearer k-123456"
    assert headers["x-team"] == "sales"
    assert headers["content-type"] == "application/json"
    assert body == item().body
    assert "k-123456" not in repr(place)


def test_gzip_is_used_where_asked_for() -> None:
    seen = Seen()
    with serving(seen) as port:
        sender = make_sender(to_http(f"http://127.0.0.1:{port}", gzip=True))
        assert sender.send([item()])[0].verdict is Verdict.DONE
    _, headers, body = seen.requests[0]
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(body) == item().body


def test_a_login_in_netrc_does_not_replace_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    seen = Seen()
    with serving(seen) as port:
        make_sender(to_http(f"http://127.0.0.1:{port}", api_key="k-123456")).send([item()])
        make_sender(to_http(f"http://127.0.0.1:{port}")).send([item()])
    assert seen.requests[0][1]["authorization"] == "Bearer k-123456"
    assert "authorization" not in seen.requests[1][1]


def test_a_redirect_is_not_followed_with_the_key() -> None:
    seen, other = Seen(), Seen()
    with serving(seen) as port, serving(other) as elsewhere:
        seen.status = 307
        seen.headers = {"Location": f"http://127.0.0.1:{elsewhere}/api/v1/lineage"}
        sender = make_sender(to_http(f"http://127.0.0.1:{port}", api_key="k-123456"))
        answer = sender.send([item()])[0]
    assert answer.verdict is Verdict.STOPPED
    assert "redirect is not followed" in answer.reason
    assert other.requests == []


def test_a_reason_is_cut_on_one_line_and_without_secrets() -> None:
    seen = Seen()
    seen.status = 422
    seen.answer = b'{"message": "no\n such key", "token": "abcdef123456"}' + b"x" * 100_000
    with serving(seen) as port:
        sender = make_sender(to_http(f"http://127.0.0.1:{port}"))
        answers = sender.send([item(), item()])
    assert [answer.verdict for answer in answers] == [Verdict.REFUSED] * 2
    assert len(answers[0].reason) <= 300
    assert "\n" not in answers[0].reason
    assert "abcdef" not in answers[0].reason


def test_nobody_there_is_no_doubt_and_a_cut_line_is_one() -> None:
    with serving(Seen()) as port:
        pass
    answer = make_sender(to_http(f"http://127.0.0.1:{port}")).send([item()])[0]
    assert (answer.verdict, answer.in_doubt, answer.everybody) == (Verdict.LATER, False, True)
    listener = threading.Event()

    class Cut(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            listener.set()
            self.connection.close()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cut)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    answer = make_sender(to_http(f"http://127.0.0.1:{server.server_address[1]}")).send([item()])[0]
    server.shutdown()
    server.server_close()
    assert listener.is_set()
    assert (answer.verdict, answer.in_doubt) == (Verdict.LATER, True)


# -- TLS -------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for loopback that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path


def test_tls_is_verified_against_the_authority_that_is_named(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(cert)
    context.verify_mode = ssl.CERT_OPTIONAL
    seen = Seen()
    with serving(seen, context) as port:
        url = f"https://localhost:{port}"
        stranger = make_sender(to_http(url)).send([item()])[0]
        assert stranger.verdict is Verdict.STOPPED
        assert "certificate" in stranger.reason.lower()
        assert seen.requests == []
        known = make_sender(to_http(url, ca_file=cert)).send([item()])[0]
        assert known.verdict is Verdict.DONE
        wrong_name = make_sender(to_http(f"https://127.0.0.1:{port}", ca_file=cert))
        assert wrong_name.send([item()])[0].verdict is Verdict.STOPPED
        unverified = make_sender(to_http(url, verify=False)).send([item()])[0]
        assert unverified.verdict is Verdict.DONE


def test_a_client_certificate_is_shown_where_one_is_wanted(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(cert)
    context.verify_mode = ssl.CERT_REQUIRED
    seen = Seen()
    with serving(seen, context) as port:
        url = f"https://localhost:{port}"
        without = make_sender(to_http(url, ca_file=cert, timeout_s=3)).send([item()])[0]
        assert without.verdict is not Verdict.DONE
        shown = to_http(url, ca_file=cert, client_cert=cert, client_key=key)
        assert make_sender(shown).send([item()])[0].verdict is Verdict.DONE


# -- files and Kafka -------------------------------------------------------------------------------


def test_a_file_is_appended_to_and_a_torn_line_is_not_gone_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"torn": ')
    assert FileSender(path).send([item(b"{}"), item(b"[]")])[0].verdict is Verdict.DONE
    sender = FileSender(path)
    sender.send([item(b"1")])
    assert path.read_bytes().splitlines() == [b'{"torn": ', b"{}", b"[]", b"1"]


def test_a_file_that_cannot_be_written_stops_the_relay(tmp_path: Path) -> None:
    answer = FileSender(tmp_path / "nowhere" / "events.jsonl").send([item()])[0]
    assert answer.verdict is Verdict.STOPPED
    assert "nowhere" in answer.reason
    assert FileSender(tmp_path).send([item()])[0].verdict is Verdict.STOPPED


def test_kafka_keys_keep_a_job_and_its_children_together() -> None:
    job = b'"job": {"namespace": "n", "name": "child"}'
    assert message_key(b'{"run": {}, ' + job + b"}") == "run:n/child"
    parent = b'{"parent": {"job": {"namespace": "n", "name": "p"}}}'
    assert message_key(b'{"run": {"facets": ' + parent + b"}, " + job + b"}") == "run:n/p"
    root = (
        b'{"parent": {"job": {"namespace": "n", "name": "p"},'
        b' "root": {"job": {"namespace": "air", "name": "dag"}}}}'
    )
    assert message_key(b'{"run": {"facets": ' + root + b"}, " + job + b"}") == "run:air/dag"
