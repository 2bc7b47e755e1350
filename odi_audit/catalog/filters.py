"""Filters as people write them: ``order_id = 7 and region like 'n%'``, read against a schema.

Owns the grammar (comparisons, BETWEEN, IN, LIKE, IS NULL, IS NAN, AND, OR, NOT, parentheses) and
the marking of the place where a filter goes wrong. Must never evaluate: what it returns is a
predicate whose values have the types of their columns (``literals``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyiceberg.types import DoubleType, FloatType, PrimitiveType, StringType

from odi_audit.catalog.literals import Misfit, compared
from odi_audit.catalog.predicates import (
    NEGATED,
    Always,
    Among,
    Both,
    Compare,
    Either,
    Like,
    Nan,
    Null,
    Predicate,
    Term,
    Value,
)
from odi_audit.errors import UsageError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

FILTER_LENGTH_MAX = 100_000
"""More than anybody types; a filter is read into memory and walked by recursion."""
DEPTH_MAX = 50
NEAR_MATCHES_MAX = 3
_SHOWN_BEFORE_MAX, _SHOWN_AFTER_MAX = 60, 30
EXAMPLE = "write it like: order_id = 7 and region = 'north'"
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_SPELLINGS = {"==": "=", "<>": "!="}


class Sort(StrEnum):
    """What a word of a filter is."""

    NUMBER = "number"
    TEXT = "text"
    HEX = "hex"
    NAME = "name"
    QUOTED = "quoted"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a filter, and where it starts."""

    sort: Sort
    text: str
    place: int

    def says(self, *words: str) -> bool:
        """Whether this is one of the given keywords or signs."""
        return self.sort in {Sort.NAME, Sort.SIGN} and self.text.lower() in words


_WORDS = re.compile(
    r"""\s*(?:
      (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | [xX]'(?P<hex>[0-9a-fA-F]*)'
    | '(?P<text>(?:[^']|'')*)'
    | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    | (?P<name>[^\W\d][\w$]*)
    | (?P<sign><=|>=|<>|!=|==|[=<>(),.+-])
    )""",
    re.VERBOSE,
)


def read(text: str, schema: Schema) -> Predicate:
    """Return the predicate that a filter means for rows of ``schema``.

    Raises:
        UsageError: the filter cannot be read, or names a column or a value that does not fit;
            the message marks the place.
    """
    if len(text) > FILTER_LENGTH_MAX:
        raise UsageError(f"the filter is longer than {FILTER_LENGTH_MAX} characters", hint=EXAMPLE)
    return _Parser(text, schema).whole()


def _words(text: str) -> Iterator[Word]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _WORDS.match(text, place)
        start = place + len(text[place:]) - len(text[place:].lstrip())
        if found is None or found.lastgroup is None:
            open_quote = text[start] in "'\"`"
            problem = "a quote is not closed" if open_quote else f"{text[start]!r} means nothing"
            raise _marked(text, start, problem)
        part = found[found.lastgroup]
        if found.lastgroup == "text":
            part = part.replace("''", "'")
        elif found.lastgroup == "quoted":
            part = part[1:-1].replace(part[0] * 2, part[0])
        yield Word(sort=Sort(found.lastgroup), text=part, place=start)
        place = found.end()
    yield Word(sort=Sort.END, text="", place=end)


class _Parser:
    """Reads a filter from left to right. ``negated`` goes down to the leaves."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._text = text
        self._schema = schema
        self._words = list(_words(text))
        self._next = 0
        self._depth = 0

    def whole(self) -> Predicate:
        made = self._either(negated=False)
        if self._word.sort is not Sort.END:
            raise self._wrong("expected AND, OR or the end")
        return made

    # -- the grammar, loosest binding first ---------------------------------------------------

    def _either(self, *, negated: bool) -> Predicate:
        parts = [self._both(negated=negated)]
        while self._takes("or"):
            parts.append(self._both(negated=negated))
        if len(parts) == 1:
            return parts[0]
        return Both(parts=tuple(parts)) if negated else Either(parts=tuple(parts))

    def _both(self, *, negated: bool) -> Predicate:
        parts = [self._one(negated=negated)]
        while self._takes("and"):
            parts.append(self._one(negated=negated))
        if len(parts) == 1:
            return parts[0]
        return Either(parts=tuple(parts)) if negated else Both(parts=tuple(parts))

    def _one(self, *, negated: bool) -> Predicate:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"more than {DEPTH_MAX} levels deep")
        if self._takes("not"):
            made = self._one(negated=not negated)
        elif self._takes("("):
            made = self._either(negated=negated)
            self._needs(")")
        elif self._word.says("true", "false") and not self._follows("=", "==", "!=", "<>"):
            made = Always(value=(self._take().says("true")) is not negated)
        elif self._at_value():
            made = self._value_first(negated=negated)
        else:
            made = self._column_first(negated=negated)
        self._depth -= 1
        return made

    def _value_first(self, *, negated: bool) -> Predicate:
        value = self._value()
        op = _FLIPPED[self._comparison()]
        return self._compared(self._term(), op, value, negated=negated)

    def _column_first(self, *, negated: bool) -> Predicate:
        term = self._term()
        if self._takes("is"):
            return self._is(term, negated=negated)
        if self._takes("not"):
            negated = not negated
            if not self._word.says("in", "like", "between"):
                raise self._wrong("expected IN, LIKE or BETWEEN after NOT")
        if self._takes("in"):
            return self._among(term, negated=negated)
        if self._takes("like"):
            return self._like(term, negated=negated)
        if self._takes("between"):
            low = self._compared(term, ">=", self._value(), negated=negated)
            self._needs("and")
            high = self._compared(term, "<=", self._value(), negated=negated)
            return (Either if negated else Both)(parts=(low, high))
        op = self._comparison()
        return self._compared(term, op, self._value(), negated=negated)

    def _is(self, term: Term, *, negated: bool) -> Predicate:
        if self._takes("not"):
            negated = not negated
        if self._takes("null"):
            return Null(term=term, negated=negated)
        place = self._word.place
        if not self._takes("nan"):
            raise self._wrong("expected NULL, NOT NULL, NAN or NOT NAN after IS")
        if not isinstance(term.type, FloatType | DoubleType):
            raise _marked(self._text, place, f"{term.name} is {term.type}: only floats can be NaN")
        return Nan(term=term, negated=negated)

    def _among(self, term: Term, *, negated: bool) -> Predicate:
        self._needs("(")
        words = [self._value()]
        while self._takes(","):
            words.append(self._value())
        self._needs(")")
        values: list[Value] = []
        for word in words:
            made = self._compared(term, "=", word, negated=False)
            if isinstance(made, Compare):
                values.append(made.value)
        if values:
            return Among(term=term, values=tuple(values), negated=negated)
        return Null(term=term, negated=True) if negated else Always(value=False)

    def _like(self, term: Term, *, negated: bool) -> Predicate:
        word = self._take()
        if word.sort is not Sort.TEXT:
            raise _marked(self._text, word.place, "expected a pattern in quotes after LIKE")
        if not isinstance(term.type, StringType):
            raise _marked(self._text, word.place, f"{term.name} is {term.type}, not a text")
        return Like(term=term, pattern=word.text, negated=negated)

    # -- leaves -------------------------------------------------------------------------------

    def _term(self) -> Term:
        first = self._take()
        if first.sort not in {Sort.NAME, Sort.QUOTED}:
            raise _marked(self._text, first.place, "expected a column")
        parts = [first.text]
        while self._takes("."):
            word = self._take()
            if word.sort not in {Sort.NAME, Sort.QUOTED}:
                raise _marked(self._text, word.place, "expected a column after the dot")
            parts.append(word.text)
        name = ".".join(parts)
        try:
            found = self._schema.find_field(name, case_sensitive=True)
        except ValueError as problem:
            raise self._unknown(name, first.place) from problem
        kind = found.field_type
        return Term(
            id=found.field_id, name=name, type=kind if isinstance(kind, PrimitiveType) else None
        )

    def _unknown(self, name: str, place: int) -> UsageError:
        names = [str(self._schema.find_column_name(number)) for number in self._schema.field_ids]
        near = [known for known in names if known.lower() == name.lower()]
        near += difflib.get_close_matches(name, sorted(set(names) - set(near)), NEAR_MATCHES_MAX)
        meant = f"; did you mean {', '.join(near[:NEAR_MATCHES_MAX])}?" if near else ""
        columns = ", ".join(part.name for part in self._schema.fields)
        return _marked(
            self._text,
            place,
            f"the table has no column {name}{meant}",
            hint=f"the columns are: {columns}",
            near=near[:NEAR_MATCHES_MAX],
        )

    def _at_value(self) -> bool:
        word = self._word
        if word.sort in {Sort.NUMBER, Sort.TEXT, Sort.HEX} or word.says("+", "-", "null"):
            return True
        if word.says("date", "timestamp"):
            return self._words[self._next + 1].sort is Sort.TEXT
        return word.says("true", "false") and self._follows("=", "==", "!=", "<>")

    def _value(self) -> Word:
        if self._word.says("date", "timestamp"):
            self._next += 1
        word = self._take()
        if word.says("null"):
            raise _marked(self._text, word.place, "nothing equals NULL: write IS NULL")
        if word.says("+", "-") and self._word.sort is Sort.NUMBER:
            return Word(sort=Sort.NUMBER, text=word.text + self._take().text, place=word.place)
        if word.sort not in {Sort.NUMBER, Sort.TEXT, Sort.HEX} and not word.says("true", "false"):
            problem = "expected a value"
            if word.sort in {Sort.NAME, Sort.QUOTED}:
                problem += f": a text is written in single quotes, like '{word.text}'"
            raise _marked(self._text, word.place, problem)
        return word

    def _compared(self, term: Term, op: str, word: Word, *, negated: bool) -> Predicate:
        if term.type is None:
            raise _marked(
                self._text, word.place, f"{term.name} is nested: it can be NULL or not, no more"
            )
        try:
            return compared(term, NEGATED[op] if negated else op, word.sort.value, word.text)
        except Misfit as problem:
            raise _marked(
                self._text, word.place, f"{term.name} is {term.type}: {problem}"
            ) from None

    def _comparison(self) -> str:
        word = self._take()
        op = _SPELLINGS.get(word.text, word.text)
        if word.sort is not Sort.SIGN or op not in _FLIPPED:
            raise _marked(
                self._text, word.place, "expected a comparison: = != < <= > >= IN LIKE BETWEEN IS"
            )
        return op

    # -- walking ------------------------------------------------------------------------------

    @property
    def _word(self) -> Word:
        return self._words[self._next]

    def _take(self) -> Word:
        word = self._word
        if word.sort is not Sort.END:
            self._next += 1
        return word

    def _takes(self, keyword: str) -> bool:
        if not self._word.says(keyword):
            return False
        self._next += 1
        return True

    def _follows(self, *keywords: str) -> bool:
        return self._words[min(self._next + 1, len(self._words) - 1)].says(*keywords)

    def _needs(self, keyword: str) -> None:
        if not self._takes(keyword):
            raise self._wrong(f"expected {keyword.upper()}")

    def _wrong(self, problem: str) -> UsageError:
        return _marked(self._text, self._word.place, problem)


def _marked(
    text: str, place: int, problem: str, *, hint: str = EXAMPLE, near: list[str] | None = None
) -> UsageError:
    """Make the error that shows the filter with a caret under the place."""
    start = max(0, place - _SHOWN_BEFORE_MAX)
    shown = re.sub(r"\s", " ", text[start : place + _SHOWN_AFTER_MAX])
    head = "…" if start else ""
    tail = "…" if place + _SHOWN_AFTER_MAX < len(text) else ""
    caret = " " * (len(head) + place - start) + "^"
    return UsageError(
        f"the filter cannot be read at character {place + 1}: {problem}\n"
        f"    {head}{shown}{tail}\n    {caret}",
        hint=hint,
        place=place + 1,
        near=near,
    )
