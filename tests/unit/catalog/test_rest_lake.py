"""A lake whose catalog is a REST server: its listing, its errors, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from odi_audit.catalog import open_catalog
from odi_audit.errors import CatalogUnavailable, TableNotFound
from odi_audit.model.tables import TableName, parse
from odi_audit.settings import Settings

ANSWERS: dict[str, object] = {
    "/v1/config": {"defaults": {}, "overrides": {}},
    "/v1/namespaces": {"namespaces": [["sales"]]},
    "/v1/namespaces?parent=sales": {"namespaces": [["sales", "eu"]]},
    "/v1/namespaces?parent=sales%1Feu": {"namespaces": []},
    "/v1/namespaces/sales/tables": {"identifiers": [{"namespace": ["sales"], "name": "orders"}]},
    "/v1/namespaces/sales%1Feu/tables": {
        "identifiers": [{"namespace": ["sales", "eu"], "name": "items"}]
    },
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = ANSWERS.get(self.path)
        error = {"error": {"message": "no", "type": "NoSuchTableException", "code": 404}}
        body = json.dumps(error if found is None else found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    made = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def settings(server: HTTPServer) -> Settings:
    uri = f"http://127.0.0.1:{server.server_port}"
    return Settings.model_validate({"catalog": {"type": "rest", "uri": uri}})


def test_all_tables_of_all_namespaces_are_listed(server: HTTPServer) -> None:
    catalog = open_catalog(settings(server))
    assert catalog.tables() == [TableName(("sales", "eu", "items")), parse("sales.orders")]
    assert catalog.name == "lake"
    catalog.close()


def test_an_unknown_table_names_the_near_ones(server: HTTPServer) -> None:
    with pytest.raises(TableNotFound) as caught:
        open_catalog(settings(server)).load(parse("sales.order"))
    assert "did you mean sales.orders" in caught.value.message


def test_a_server_that_does_not_answer_is_told(server: HTTPServer) -> None:
    catalog = open_catalog(settings(server))
    server.shutdown()
    server.server_close()
    with pytest.raises(CatalogUnavailable, match="the rest catalog did not answer"):
        catalog.tables()
    with pytest.raises(CatalogUnavailable):
        catalog.load(parse("sales.orders"))
    with pytest.raises(CatalogUnavailable):
        open_catalog(settings(server))
