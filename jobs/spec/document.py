"""YAML of a spec as plain values, with the line and column of every key and value.

Owns what YAML may be here: one document of mappings, lists and scalars, YAML 1.2 words (``no`` is
a text), no key twice, no tags, anchors and merges within limits. Must never make an object of
anything, and never know what a key means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from jobs.spec.problems import TOP, Mark, Path, Problem, dotted
from jobs.spec.variables import FromVariable, expand

Value: TypeAlias = Union[str, int, float, bool, None, list["Value"], dict[str, "Value"]]

SIZE_BYTES_MAX = 256 * 1024
"""A spec is written and read by people; beyond this it is something else."""
VALUES_MAX = 10_000
"""Counted after aliases are followed: a few lines of anchors can stand for billions of values."""
EVENTS_MAX = 3 * VALUES_MAX
"""A value of a mapping is up to three: its key, and the beginning and end of itself."""
DEPTH_MAX = 24
MESSAGE_LENGTH_MAX = 200
ASIDE = "x-"
"""Top keys that begin so hold anchors for the rest and mean nothing themselves."""
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp", _TAG + "binary", _TAG + "value"}
_MERGE = _TAG + "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The plain values of a spec, and where each stands.

    ``keys`` has the place of a value's key (of a list's item: of the item), ``values`` that of the
    value itself. ``unknown`` are the dotted keys whose variables are not set, if that was allowed.
    """

    root: dict[str, Value]
    keys: Mapping[Path, Mark]
    values: Mapping[Path, Mark]
    problems: tuple[Problem, ...]
    variables: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()

    def key_mark(self, path: Path) -> Mark:
        """Return the place of the nearest key that is there: the path's own, or one above it."""
        return _nearest(self.keys, path)

    def value_mark(self, path: Path) -> Mark:
        """Return the place of the nearest value that is there."""
        return _nearest(self.values, path)


def parse(text: str, env: Mapping[str, str], *, unset_ok: bool = False) -> Document:
    """Read a text; what is wrong with it is in ``problems``, all at once where that is possible.

    With ``unset_ok`` a variable that is not set is no problem, and its value is unknown.
    """
    if len(text.encode("utf-8", "replace")) > SIZE_BYTES_MAX:
        return _nothing(TOP, f"the file is over {SIZE_BYTES_MAX // 1024} KiB")
    try:
        much = _too_much(text)
        if much:
            return _nothing(TOP, much)
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        return _nothing(_mark_of(error), _problem_of(error, text))
    except YAMLError as error:
        return _nothing(TOP, "this is not YAML: " + str(error).strip().splitlines()[0])
    if node is None:
        return _nothing(TOP, "the file is empty; `odi-audit jobs new` writes a first one")
    if not isinstance(node, MappingNode):
        return _nothing(_mark(node), "expected keys and values, such as `version: 1`")
    reader = _Reader(env, unset_ok)
    root = reader.mapping(node, ())
    return Document(
        root=root,
        keys=reader.keys,
        values=reader.values,
        problems=tuple(reader.problems),
        variables=tuple(sorted(reader.variables)),
        unknown=frozenset(reader.unknown),
    )


def _too_much(text: str) -> str | None:
    """Say what a text has too much of, before anything is built of it.

    Composing takes ever longer with depth, and is recursive.
    """
    depth = 0
    for count, event in enumerate(YAML(typ="safe", pure=True).parse(text)):
        if isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            return f"values are nested over {DEPTH_MAX} deep"
        if count > EVENTS_MAX:
            return f"the file holds over {VALUES_MAX:,} values"
    return None


class _TooMuch(Exception):
    """Aliases stand for more than is read."""


@dataclass(slots=True)
class _Reader:
    """Turns nodes into values; what is wrong is noted, and reading goes on."""

    env: Mapping[str, str]
    unset_ok: bool
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    count: int = 0

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Value]:
        self.values[path] = _mark(node)
        try:
            return self._entries(node, path)
        except _TooMuch as much:
            if path:
                raise
            self.note((), _mark(node), str(much))
            return {}

    def value(self, node: Node, path: Path) -> Value:
        self.count += 1
        if self.count > VALUES_MAX:
            raise _TooMuch(f"the file stands for over {VALUES_MAX:,} values")
        if len(path) > DEPTH_MAX:
            raise _TooMuch(f"values are nested over {DEPTH_MAX} deep")
        self.values[path] = _mark(node)
        if isinstance(node, MappingNode):
            return self._entries(node, path)
        if isinstance(node, SequenceNode):
            items: list[Value] = []
            for index, item in enumerate(node.value):
                self.keys[*path, index] = _mark(item)
                items.append(self.value(item, (*path, index)))
            return items
        return self._scalar(node, path)

    def note(self, path: Path, mark: Mark, message: str) -> None:
        self.problems.append(Problem(mark=mark, key=dotted(path), message=message))

    def _entries(self, node: MappingNode, path: Path) -> dict[str, Value]:
        found: dict[str, Value] = {}
        merged: list[tuple[Node, Node]] = []
        seen: dict[str, Mark] = {}
        for key, item in node.value:
            name = self._name(key, path)
            if name is None:
                continue
            mark = _mark(key)
            if name in seen:
                first = seen[name].line
                self.note((*path, name), mark, f"stands here a second time, first in line {first}")
                continue
            seen[name] = mark
            if str(key.tag) == _MERGE:
                merged += self._merged(item, path)
            elif path or not name.startswith(ASIDE):
                self.keys[*path, name] = mark
                found[name] = self.value(item, (*path, name))
        for key, item in merged:
            name = self._name(key, path)
            if name is not None and name not in found:
                self.keys[*path, name] = _mark(key)
                found[name] = self.value(item, (*path, name))
        return found

    def _name(self, key: Node, path: Path) -> str | None:
        if isinstance(key, ScalarNode):
            return str(key.value)
        self.note(path, _mark(key), "a key must be a word")
        return None

    def _merged(self, node: Node, path: Path) -> list[tuple[Node, Node]]:
        """Return the entries that ``<<`` brings; of several mappings the first wins."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        entries: list[tuple[Node, Node]] = []
        for source in sources:
            if isinstance(source, MappingNode):
                entries += source.value
            else:
                self.note(path, _mark(source), "<< takes a mapping, such as <<: *defaults")
        return entries

    def _scalar(self, node: Node, path: Path) -> Value:
        text, tag = str(node.value), str(node.tag)
        if tag in _TEXT_TAGS:
            return self._text(text, node, path)
        kind = tag.removeprefix(_TAG)
        try:
            if kind == "int":
                return _integer(text)
            if kind == "float":
                return float(text.replace("_", ""))
        except ValueError:
            return text
        if kind == "bool":
            return text.lower() == "true" if text.lower() in {"true", "false"} else text
        if kind == "null":
            if not text:
                # Nothing stands there; YAML would place it at whatever comes next.
                self.values[path] = self.keys.get(path, self.values[path])
            return None
        self.note(path, _mark(node), f"tag {tag} is not read here: write the value without it")
        return text

    def _text(self, text: str, node: Node, path: Path) -> str:
        done = expand(text, self.env)
        for problem in done.problems:
            self.note(path, _mark(node), problem)
        if not _whole(done.text):
            self.note(path, _mark(node), "holds half a character, which no UTF-8 text can")
            return ""
        self.variables.update(done.names)
        if done.unset and self.unset_ok:
            self.unknown.add(dotted(path))
        elif done.unset:
            for name in done.unset:
                told = (
                    f"variable {name} is not set, or empty; set it, or write ${{{name}:-default}}"
                )
                self.note(path, _mark(node), told)
        return FromVariable(done.text, text) if done.names else done.text


def _whole(text: str) -> bool:
    """Say whether a text is one of whole characters; escapes and variables may bring others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer(text: str) -> int:
    digits = text.replace("_", "").lower()
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits.lstrip("+-")[:2], 10)
    return int(digits, base)


def _mark(node: Node) -> Mark:
    start = node.start_mark
    return Mark(start.line + 1, start.column + 1)


def _nearest(marks: Mapping[Path, Mark], path: Path) -> Mark:
    for length in range(len(path), -1, -1):
        if path[:length] in marks:
            return marks[path[:length]]
    return TOP


def _mark_of(error: MarkedYAMLError) -> Mark:
    mark = error.problem_mark or error.context_mark
    return TOP if mark is None else Mark(mark.line + 1, mark.column + 1)


def _problem_of(error: MarkedYAMLError, text: str) -> str:
    problem = str(error.problem or error.context or "cannot be read")[:MESSAGE_LENGTH_MAX]
    if "\\t" in problem:
        return "this is not YAML: a tab; indent with spaces"
    line = text.splitlines()[_mark_of(error).line - 1 :][:1]
    if error.context and "flow" in str(error.context) and "${" in "".join(line):
        return 'within { } and [ ] a variable must stand in quotes: "${NAME}"'
    if "found another document" in problem:
        return "a second document begins here; a spec is one job"
    context = f" {error.context}" if error.context and error.problem else ""
    return f"this is not YAML: {problem}{context}"


def _nothing(mark: Mark, message: str) -> Document:
    problem = Problem(mark=mark, key="", message=message)
    return Document(root={}, keys={}, values={}, problems=(problem,))
