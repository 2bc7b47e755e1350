"""A lineage as one HTML page: the graph with everything that is known of it, and no network.

Owns how the parts become one file: script and style are named by their digests in the page's
Content-Security-Policy, which forbids all else. Data is a block of JSON that no browser runs. Must
never write a name where it could become markup, or a secret anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from lineage.graph.answer import Lineage
from lineage.graph.layout import Size, place
from lineage.graph.model import DATASETS, Node
from lineage.graph.texts import clean
from odi_audit.canonical import Json
from odi_audit.errors import StorageError, UsageError

NODES_MAX = 2_000
"""Placing more than this takes long, and nobody finds anything in it."""
_DATASET = Size(width=216, height=48)
_MARK = re.compile("@[A-Z]+@")
_JOB = Size(width=184, height=40)


def page(lineage: Lineage) -> str:
    """Return the page.

    Raises:
        UsageError: there are more nodes than a page can show.
    """
    if len(lineage.nodes) > NODES_MAX:
        raise UsageError(
            f"a page shows at most {NODES_MAX:,} nodes, and this lineage has "
            f"{len(lineage.nodes):,}",
            hint="narrow it with --up, --down or --depth",
        )
    parts = files("lineage.graph")
    style = parts.joinpath("page.css").read_text("utf-8")
    script = parts.joinpath("page.js").read_text("utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    column = f".{lineage.asked.column}" if lineage.asked.column else ""
    title = f"Lineage of {lineage.start.name}{column}"
    filled = {
        "@POLICY@": html.escape(policy, quote=False),
        "@TITLE@": html.escape(clean(title)),
        "@STYLE@": style,
        "@DATA@": _embedded(_data(lineage, title)),
        "@SCRIPT@": script,
    }
    frame = parts.joinpath("page.html").read_text("utf-8")
    # In one pass: what is filled in is not searched for marks.
    return _MARK.sub(lambda mark: filled[mark[0]], frame)


def write_page(lineage: Lineage, path: Path) -> None:
    """Write the page to a file: the whole of it, or nothing.

    Raises:
        StorageError: the file cannot be written.
        UsageError: there are more nodes than a page can show.
    """
    text = page(lineage)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(path)
    except OSError as problem:
        raise StorageError(f"page {path} cannot be written: {problem.strerror}") from problem
    finally:
        draft.unlink(missing_ok=True)


def _data(lineage: Lineage, title: str) -> dict[str, Json]:
    body: dict[str, Any] = dict(lineage.to_json())
    sizes = {key: _size(node) for key, node in lineage.nodes.items()}
    placed = place(sizes, lineage.selection.edges)
    ids = {node["id"]: place for place, node in enumerate(body["nodes"])}
    for node, (key, size) in zip(body["nodes"], sorted(sizes.items()), strict=True):
        x, y = placed.centres[key]
        node |= {"x": x, "y": y, "w": size.width, "h": size.height}
    places = {key: place for place, key in enumerate(sorted(lineage.nodes))}
    pairs = sorted(lineage.selection.edges)
    for edge, pair in zip(body["edges"], pairs, strict=True):
        edge["points"] = [[round(x, 1), round(y, 1)] for x, y in placed.lines[pair]]
        edge["from"], edge["to"] = (places[key] for key in pair)
        for column in edge["columns"]:
            column["input"] = ids.get(column["input"])
        del edge["source"], edge["target"], edge["recent"]
    for step in body["steps"]:
        for key in ("table", "job", "input"):
            step[key] = ids.get(step[key])
    return {**body, "title": clean(title), "start": places[lineage.selection.start]}


def _size(node: Node) -> Size:
    return _DATASET if node.kind in DATASETS else _JOB


def _embedded(data: dict[str, Json]) -> str:
    """Return JSON in which nothing can end the block that it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return clean_json(text)


def clean_json(text: str) -> str:
    """Return JSON without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
