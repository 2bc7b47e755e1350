"""The forms of an answer: JSON, Mermaid, Graphviz, the page. No name may become syntax."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
from pathlib import Path

import pytest

from lineage.graph import page as page_module
from lineage.graph.answer import Lineage, Question, ask
from lineage.graph.page import page
from lineage.graph.texts import dot, mermaid
from odi_audit.errors import UsageError
from odi_audit.ids import JobName, TableUuid
from odi_audit.model.offsets import mapping, once
from odi_audit.model.tables import TableRef
from tests.unit.lineage.conftest import COLUMNS, ORDERS, History, work
from tests.unit.lineage.graph.many import columns, fill

EVIL = 'a"b]\\ -->|x| <script>alert(1)</script> </script> `c` ${d} @SCRIPT@ é 表 \u2028 {"#;'
SECRET = "https://ana:hunter22@example.org/feed"


def evil(told: History) -> Lineage:
    odd = TableRef(uuid=TableUuid("33333333-0000-4000-8000-000000000001"), name=f"bad.{EVIL}")
    part = mapping(f"{EVIL}\nnext line", {"p": (0, 1)})
    told.land(told.intend(work("append", odd), job=JobName(f"evil/{EVIL}"), offsets=part), odd)
    told.land(told.intend(work("append", odd), offsets=mapping(SECRET, {"p": (0, 1)})), odd)
    plan = columns(odd)
    plan = json.loads(json.dumps(plan).replace('"amount"', json.dumps(EVIL)))
    told.land(told.intend(work("append"), offsets=once("x"), columns=plan))
    return ask(told.ledger, Question(text=ORDERS.name), moment=lambda given: given)


def test_json_has_every_id_as_text_and_no_secret(history: History) -> None:
    text = json.dumps(evil(history).to_json())
    assert "hunter22" not in text
    body = json.loads(text)
    for node in body["nodes"]:
        for mark in node["recent"]:
            assert mark["snapshot"] is None or isinstance(mark["snapshot"], str)
    assert {edge["kind"] for edge in body["edges"]} == {"read", "write"}
    ids = {node["id"] for node in body["nodes"]}
    assert all({edge["source"], edge["target"]} <= ids for edge in body["edges"])


_SHAPES = ('[("")]', '>""]', '[/""/]', '[[""]]', '[""]', '([""])', '{{""}}')
_MERMAID_NODE = re.compile(r'^  n\d+(?P<left>\W+?")(?P<text>[^"]*)(?P<right>"\W+)$')
_MERMAID_EDGE = re.compile(r'^  n\d+ (?:-->|-\.->)(?:\|"(?P<text>[^"]*)"\|)? n\d+$')
_MERMAID_TEXT = re.compile(r"^(?:[\w .,:/@+=()*-]|#\d+;|<br/>)*$", re.ASCII)


def test_mermaid_has_one_line_for_each_node_and_edge_whatever_their_names(history: History) -> None:
    found = evil(history)
    first, *rest = mermaid(found, columns=True)
    assert first == "flowchart LR"
    nodes = [match for line in rest if (match := _MERMAID_NODE.match(line))]
    edges = [match for line in rest if (match := _MERMAID_EDGE.match(line))]
    assert (len(nodes), len(edges)) == (len(found.nodes), len(found.selection.edges))
    assert len(rest) == len(nodes) + len(edges) + 2
    assert {match["left"] + match["right"] for match in nodes} <= set(_SHAPES)
    for match in (*nodes, *edges):
        assert _MERMAID_TEXT.match(match["text"] or ""), match["text"]
    assert "hunter22" not in "\n".join(rest)


def test_dot_is_what_a_reader_of_the_language_takes_it_for(history: History) -> None:
    found = evil(history)
    lines = list(dot(found, columns=True))
    assert lines[0] == "digraph lineage {" and lines[-1] == "}"
    names = []
    for line in lines[1:-1]:
        # Quoted strings end at the first quote that no backslash stands before.
        bare = re.sub(r'"((?:[^"\\]|\\.)*)"', lambda match: names.append(match[1]) or "Q", line)
        assert re.fullmatch(r"[\w\s=,;\[\]>.-]+", bare), bare
    shown = [name.replace('\\"', '"').replace("\\\\", "\\") for name in names]
    assert any('a"b]\\ -->|x|' in name for name in shown)


class _Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.style = self.policy = ""
        self.tags: list[str] = []
        self._in: dict[str, str | None] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        held = dict(attrs)
        if tag == "script":
            self._in = held
        if held.get("http-equiv") == "Content-Security-Policy":
            self.policy = held["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["script"] and self._in is not None:
            self.scripts.append((self._in, data))
            self._in = None
        if self.tags[-1:] == ["style"] and not self.style:
            self.style = data


def test_the_page_is_one_file_whose_policy_allows_its_own_script_and_style_only(
    history: History,
) -> None:
    text = page(evil(history))
    read = _Reader()
    read.feed(text)
    (kind, data), (_, script) = read.scripts
    assert kind["type"] == "application/json" and len(read.scripts) == 2
    assert "hunter22" not in text and "<script>alert" not in text
    assert json.loads(data)["title"].startswith("Lineage of sales.orders")
    for part in (script, read.style):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in read.policy
    assert "default-src 'none'" in read.policy and "unsafe" not in read.policy
    assert not {"link", "img", "iframe", "object"} & set(read.tags)
    assert not re.search(
        r"""(?:src|href)\s*=|@import|url\((?!#)|fetch\(|XMLHttp|WebSocket""", script
    )


def test_the_same_ledger_gives_the_same_page(history: History) -> None:
    history.land(history.intend(work("append"), offsets=once("x"), columns=COLUMNS))
    question = Question(text=ORDERS.name)
    one, other = (page(ask(history.ledger, question, moment=str)) for _ in range(2))
    assert one == other


def test_a_page_of_too_many_nodes_is_refused_with_what_to_do(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(history, 8)
    monkeypatch.setattr(page_module, "NODES_MAX", 3)
    found = ask(history.ledger, Question(text=made[-1].name), moment=str)
    with pytest.raises(UsageError, match="at most 3 nodes"):
        page(found)


def test_the_parts_of_the_page_are_files_of_the_package() -> None:
    folder = Path(page_module.__file__).parent
    assert {"page.html", "page.css", "page.js"} <= {item.name for item in folder.iterdir()}


def test_an_origin_that_many_inputs_have_is_said_once(history: History) -> None:
    first, second = (
        TableRef(uuid=TableUuid(f"33333333-0000-4000-8000-00000000000{n}"), name=f"day.d{n}")
        for n in (1, 2)
    )
    for place, table in enumerate((first, second)):
        history.land(history.intend(work("append", table), offsets=once(f"x{place}")), table)
        plan = columns(table)
        history.land(history.intend(work("append"), offsets=once(f"y{place}"), columns=plan))
    found = ask(history.ledger, Question(text=ORDERS.name), moment=lambda given: given)
    said = "\n".join(dot(found, columns=True))
    assert "from 2 inputs" in said
    one = re.search(r"amount ← ([^\\]*)", said)
    assert one is not None and one[1].count("amount") == 1, said
