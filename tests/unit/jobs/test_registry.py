"""The registry's client: asks in time, tries again, and tells errors apart without a secret."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from jobs.formats.decoded import Unreadable
from jobs.sources import registry as module
from jobs.sources.registry import Registry, RegistryAccess, access_of, shared
from jobs.sources.registry_start import Levels, Weak, columns_of, is_weaker, subjects_of
from jobs.spec import parse_spec
from jobs.tasks.decoders import AvroFormat
from odi_audit.errors import ConfigError, SourceDenied, SourceNotFound, SourceUnavailable

Answer = tuple[int, Any]
ORDER = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]}
PASSWORD = "correct horse battery"


class Server:
    """Answers as told, under a path; ``asked`` has every question."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        self.asked: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.removeprefix("/apis/ccompat/v7")
                server.asked.append((path, self.headers.get("Authorization")))
                found = server.answers.get(path, (404, None))
                status, body = found() if callable(found) else found
                with suppress(BrokenPipeError):  # whoever asked did not wait
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(b"<html>" if body is None else json.dumps(body).encode())

            do_POST = do_GET  # noqa: N815 - the library's name

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.block_on_close = False
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def access(self, **more: Any) -> RegistryAccess:
        url = f"http://127.0.0.1:{self.http.server_address[1]}/apis/ccompat/v7"
        return RegistryAccess(url=url, **{"timeout_s": 5.0, **more})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "WAIT_S_MAX", 0.05)
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def schema(document: Any, **more: Any) -> Answer:
    return 200, {"schema": json.dumps(document), **more}


def test_a_schema_is_asked_for_once_with_the_login_of_the_spec(server: Server) -> None:
    server.answers["/schemas/ids/7"] = schema(ORDER)
    registry = Registry(server.access(user="ann", password=PASSWORD))
    for _ in range(3):
        assert [name for name, _ in registry.type(7).fields] == ["id"]
    login = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    assert server.asked == [("/schemas/ids/7", login)]


def test_references_are_followed(server: Server) -> None:
    reference = {"name": "shop.Order", "subject": "orders value/x", "version": 2}
    outer = {"type": "record", "name": "O", "fields": [{"name": "o", "type": "shop.Order"}]}
    server.answers["/schemas/ids/8"] = schema(outer, references=[reference])
    server.answers["/subjects/orders%20value%2Fx/versions/2"] = schema(ORDER, id=7, version=2)
    ((name, inner),) = Registry(server.access()).type(8).fields
    assert (name, inner.name, inner.kind) == ("o", "shop.Order", "record")
    del server.answers["/subjects/orders%20value%2Fx/versions/2"]
    server.answers["/subjects/orders%20value%2Fx/versions/2"] = (404, {"error_code": 40402})
    with pytest.raises(Unreadable, match="version 2 of subject orders value/x"):
        Registry(server.access()).type(8)


def test_an_id_that_the_registry_does_not_know_is_told_from_a_wrong_address(
    server: Server,
) -> None:
    registry = Registry(server.access())
    server.answers["/schemas/ids/9"] = (404, {"error_code": 40403, "message": "no"})
    with pytest.raises(Unreadable, match="does not know this id"):
        registry.type(9)
    with pytest.raises(ConfigError, match="does not answer as a schema registry: 404"):
        registry.type(10)
    server.answers["/schemas/ids/11"] = (200, None)
    with pytest.raises(ConfigError):
        registry.type(11)
    server.answers["/schemas/ids/12"] = schema("syntax = proto3", schemaType="PROTOBUF")
    with pytest.raises(Unreadable, match="PROTOBUF"):
        registry.type(12)
    with pytest.raises(ConfigError):
        registry.latest("none")
    server.answers["/subjects/none/versions/latest"] = (404, {"error_code": 40401})
    with pytest.raises(SourceNotFound):
        registry.latest("none")


def test_a_registry_that_is_away_for_a_moment_is_asked_again(server: Server) -> None:
    left = [(503, None), (500, {"error_code": 50001})]
    server.answers["/schemas/ids/7"] = lambda: left.pop() if left else schema(ORDER)
    assert Registry(server.access()).type(7).name == "shop.Order"
    server.answers["/schemas/ids/8"] = (503, None)
    with pytest.raises(SourceUnavailable, match="in 4 tries: it answered 503"):
        Registry(server.access()).type(8)


def test_no_question_waits_longer_than_the_spec_says(server: Server) -> None:
    def slow() -> Answer:
        time.sleep(4)
        return schema(ORDER)

    server.answers["/schemas/ids/7"] = slow
    began = time.monotonic()
    with pytest.raises(SourceUnavailable):
        Registry(server.access(timeout_s=0.1)).type(7)
    assert time.monotonic() - began < 3


def test_a_login_that_is_refused_is_told_without_the_password(server: Server) -> None:
    server.answers["/config/x"] = (401, {"error_code": 401})
    access = server.access(user="ann", password=PASSWORD)
    with pytest.raises(SourceDenied, match="refuses user 'ann'") as refused:
        Registry(access).level("x")
    shown = [str(refused.value), repr(access), repr(AvroFormat(registry=access))]
    assert not any(PASSWORD in text for text in shown)


def test_a_level_is_the_subjects_own_or_the_general_one(server: Server) -> None:
    server.answers["/config/a"] = (200, {"compatibilityLevel": "FULL"})
    server.answers["/config/b"] = (404, {"error_code": 40408})
    server.answers["/config"] = (200, {"compatibilityLevel": "BACKWARD"})
    registry = Registry(server.access())
    assert (registry.level("a"), registry.level("b")) == ("FULL", "BACKWARD")
    server.answers["/compatibility/subjects/a/versions/latest"] = (200, {"is_compatible": False})
    assert registry.is_compatible("a", ORDER) is False


def test_a_level_is_weaker_where_it_promises_less() -> None:
    levels = ["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL",
              "FULL_TRANSITIVE"]  # fmt: skip
    fine = {
        wanted: [found for found in levels if not is_weaker(found, wanted)] for wanted in levels
    }
    assert fine["NONE"] == levels
    assert fine["BACKWARD"] == ["BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"]
    assert fine["FORWARD_TRANSITIVE"] == ["FORWARD_TRANSITIVE", "FULL_TRANSITIVE"]
    assert fine["FULL"] == ["FULL", "FULL_TRANSITIVE"]
    assert fine["FULL_TRANSITIVE"] == ["FULL_TRANSITIVE"]
    assert is_weaker("SOMETHING_NEW", "BACKWARD")
    weak = Weak(subject="o-value", found="NONE", wanted="FULL", url="http://r/v7")
    assert weak.command.endswith(
        """--data '{"compatibility": "FULL"}' http://r/v7/config/o-value"""
    )


def test_a_process_has_one_client_for_a_registry_and_the_login_travels_with_the_format() -> None:
    text = """
version: 1
job: shop/orders
source: {type: kafka, servers: "b:9092", topics: [o], value: {format: avro}}
registry: {url: "http://r/v7/", user: ann, password: "${SECRET}", timeout: 3s}
target: {table: shop.orders}
"""
    spec = parse_spec(text, {"SECRET": PASSWORD})
    assert spec.registry is not None
    access = access_of(spec.registry)
    assert (access.url, access.timeout_s) == ("http://r/v7", 3.0)
    there = pickle.loads(pickle.dumps(AvroFormat(registry=access)))
    assert there.registry.password == PASSWORD
    assert shared(there.registry) is shared(access)
    assert subjects_of(spec, ["b", "a"]) == ["a-value", "b-value"]
    changes = parse_spec(
        text.replace("{format: avro}", "{format: avro}, envelope: debezium").replace(
            "shop.orders}", "shop.orders, mode: mirror, key: id}"
        ),
        {"SECRET": PASSWORD},
    )
    assert subjects_of(changes, ["a"]) == ["a-value", "a-key"]


def test_columns_of_a_table_follow_the_schema() -> None:
    from jobs.formats.avro_schema import read_schema

    kinds = {
        "id": "long",
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "at": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        "tags": {"type": "array", "items": "string"},
        "by": {"type": "map", "values": "int"},
        "place": {"type": "record", "name": "P", "fields": [{"name": "x", "type": "float"}]},
        "either": ["null", "int", "string"],
        "nothing": "null",
    }
    document: dict[str, Any] = {"type": "record", "name": "R", "fields": []}
    document["fields"] = [{"name": name, "type": kind} for name, kind in kinds.items()]
    assert columns_of(read_schema(document)) == {
        "id": "bigint",
        "price": "decimal(9,2)",
        "at": "timestamp",
        "tags": "array<string>",
        "by": "map<string, int>",
        "place": "struct<`x`: float>",
        "either": "struct<`member0`: int, `member1`: string>",
    }


def test_a_topic_that_joins_later_is_checked_too_and_none_twice(server: Server) -> None:
    server.answers["/config/a-value"] = (200, {"compatibilityLevel": "FULL"})
    server.answers["/config/b-value"] = (200, {"compatibilityLevel": "NONE"})
    text = f"""
version: 1
job: shop/orders
source: {{type: kafka, servers: "b:9092", pattern: "[ab]", value: {{format: avro}}}}
registry: {{url: "{server.access().url}", compatibility: BACKWARD, on_weaker: refuse}}
target: {{table: shop.orders}}
"""
    levels = Levels(parse_spec(text, {}))
    levels.check(["a"])
    levels.check(["a"])
    with pytest.raises(ConfigError, match="subject b-value has compatibility NONE"):
        levels.check(["a", "b"])
    assert [path for path, _ in server.asked] == ["/config/a-value", "/config/b-value"]
