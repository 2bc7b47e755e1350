"""Verification: recompute everything, believe nothing that is stored.

Owns the walk over the whole ledger: bytes against leaves, leaves against nodes, entries against
projections, and the tree against every signed head. Runs in one unmoving view, in bounded memory.
Must never repair: it returns findings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, cast

from odi_audit.canonical import encode
from odi_audit.errors import KeyProblem, LedgerBroken, OdiError, ProofInvalid
from odi_audit.ledger import merkle, note, reading, seal, tree
from odi_audit.ledger.database import Row, Session, octets
from odi_audit.ledger.port import StoredEntry, TreeHead
from odi_audit.ledger.projection import COLUMNS, Rows, project
from odi_audit.ledger.store import SqlLedger
from odi_audit.model.entries import Entry, Kind, entry_from_json
from odi_audit.model.findings import Finding

CHUNK: Final = 1_024
FINDINGS_MAX: Final = 1_000
"""After so many the ledger is broken beyond a list; the last finding says that it was cut."""

ENTRY_ALTERED: Final = "ODI-T01"
ENTRY_MISSING: Final = "ODI-T02"
ENTRY_MALFORMED: Final = "ODI-T03"
ENTRY_MOVED: Final = "ODI-T04"
TIME_BACKWARDS: Final = "ODI-T05"
NODE_WRONG: Final = "ODI-T06"
PROJECTION_WRONG: Final = "ODI-T07"
SEAL_INVALID: Final = "ODI-T08"
HEAD_INVALID: Final = "ODI-T09"
TAIL_CUT: Final = "ODI-T10"
TREE_REWRITTEN: Final = "ODI-T11"
TOO_MANY: Final = "ODI-T99"

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFile:
    """A signed head from outside the ledger, and where it came from."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verification looked at, and what it found."""

    head: TreeHead
    seals: int
    heads: int
    findings: tuple[Finding, ...]


class _Enough(Exception):
    """The list of findings is full."""


def verify(
    ledger: SqlLedger,
    *,
    verifiers: Sequence[note.VerifierKey],
    heads: Sequence[HeadFile] = (),
    progress: Progress | None = None,
) -> Verified:
    """Check a whole ledger against itself, its seals and the heads given.

    Raises:
        LedgerUnavailable, LedgerLocked: the database did not answer. Damage is never raised.
    """
    with ledger.database.reading() as session:
        walk = _Walk(session, verifiers, progress)
        try:
            walk.entries()
            walk.surplus()
            walk.check_seals()
            for head in heads:
                walk.check_head(head)
        except _Enough:
            walk.findings.append(
                _finding(TOO_MANY, "ledger", f"more than {FINDINGS_MAX} findings: the rest is cut")
            )
    return Verified(
        head=TreeHead(size=walk.size, root=walk.growth.root()),
        seals=len(walk.seals),
        heads=len(heads),
        findings=tuple(walk.findings),
    )


def heads_in(folder: Path) -> list[HeadFile]:
    """Read every exported head of a folder; one that cannot be read fails as a head."""
    return [head_file(path) for path in seal.head_files(folder)]


def head_file(path: Path) -> HeadFile:
    """Read one exported head; what is no text becomes a head that does not verify."""
    try:
        return HeadFile(name=str(path), text=seal.read_head(path))
    except ProofInvalid:
        return HeadFile(name=str(path), text="")


class _Walk:
    """One verification under way."""

    def __init__(
        self,
        session: Session,
        verifiers: Sequence[note.VerifierKey],
        progress: Progress | None,
    ) -> None:
        self.session = session
        self.verifiers = verifiers
        self.progress = progress
        self.size = tree.size(session)
        self.growth = merkle.Growth(0, [])
        self.findings: list[Finding] = []
        self.seals: list[Entry] = []
        self.projected = dict.fromkeys(COLUMNS, 0)
        self.unread: set[int] = set()
        self.missing = 0
        self.last_time = ""

    def add(self, code: str, subject: str, message: str) -> None:
        """Note a finding."""
        if len(self.findings) >= FINDINGS_MAX:
            raise _Enough
        self.findings.append(_finding(code, subject, message))

    # -- entries, chunk by chunk ------------------------------------------------------------------

    def entries(self) -> None:
        """Walk over every entry, and compare nodes and projections of each chunk."""
        for low in range(0, self.size, CHUNK):
            high = min(low + CHUNK, self.size)
            nodes: dict[merkle.NodeId, bytes] = {}
            rows: Rows = {table: [] for table in COLUMNS}
            for index, raw in _each(self.session, low, high):
                leaf = self.entry(index, raw, rows)
                for node in self.growth.add(leaf):
                    nodes[(node.level, node.index)] = node.hash
            self.nodes(low, high, nodes)
            self.projections(low, high, rows)
            if self.progress:
                self.progress(high, self.size)

    def entry(self, index: int, raw: StoredEntry | None, rows: Rows) -> bytes:
        """Check one entry; return the leaf with which the tree goes on."""
        subject = f"entry {index}"
        if raw is None:
            self.unread.add(index)
            self.missing += 1
            self.add(ENTRY_MISSING, subject, f"entry {index} is missing")
            return bytes(merkle.HASH_BYTES)
        if merkle.leaf_hash(raw.body) != raw.leaf:
            self.add(ENTRY_ALTERED, subject, f"entry {index} does not hash to its leaf")
        try:
            entry = entry_from_json(json.loads(raw.body))
            canonical = encode(entry.to_json()) == raw.body
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
            self.unread.add(index)
            self.add(ENTRY_MALFORMED, subject, f"entry {index} cannot be read: {problem}")
            return raw.leaf
        if not canonical:
            self.add(ENTRY_MALFORMED, subject, f"entry {index} is not in canonical form")
        if entry.index != index:
            self.unread.add(index)
            self.add(ENTRY_MOVED, subject, f"entry {index} says that it is entry {entry.index}")
            return raw.leaf
        if entry.time < self.last_time:
            self.add(TIME_BACKWARDS, subject, f"entry {index} is older than the one before")
        self.last_time = entry.time
        if entry.kind is Kind.SEAL:
            self.seals.append(entry)
        try:
            for table, made in project(entry).items():
                rows[table].extend(made)
        except ValueError as problem:
            self.unread.add(index)
            self.add(ENTRY_MALFORMED, subject, f"entry {index}: {problem}")
        return raw.leaf

    def nodes(self, low: int, high: int, made: dict[merkle.NodeId, bytes]) -> None:
        """Compare the nodes that a chunk completes with the stored ones."""
        stored: dict[merkle.NodeId, bytes] = {}
        for level in range(1, high.bit_length() + 1):
            for index, value in self.session.rows(
                "SELECT idx, hash FROM nodes WHERE level = ? AND idx >= ? AND idx < ?",
                (level, low >> level, high >> level),
            ):
                stored[(level, cast("int", index))] = octets(value)
        for node in sorted(made.keys() | stored.keys()):
            if made.get(node) != stored.get(node):
                what = "is missing" if node not in stored else "is not the hash of its children"
                self.add(
                    NODE_WRONG,
                    f"node {node[0]}/{node[1]}",
                    f"the tree's node at level {node[0]}, index {node[1]} {what}",
                )

    def projections(self, low: int, high: int, made: Rows) -> None:
        """Compare the projected rows of a chunk with the stored ones."""
        for table, columns in COLUMNS.items():
            self.projected[table] += len(made[table])
            stored = self.session.rows(
                f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608  constants only
                " WHERE idx >= ? AND idx < ?",
                (low, high),
            )
            at = columns.index("idx")
            # Of an entry that cannot be read nobody knows the rows: that is one finding, not five.
            known = [row for row in stored if row[at] not in self.unread]
            self.projected[table] += len(stored) - len(known)
            if sorted(map(repr, known)) != sorted(map(repr, made[table])):
                self.projection(table, sorted(_differing(known, made[table], at)))

    def projection(self, table: str, indexes: Sequence[int]) -> None:
        """Note that rows of a projection differ, by the entries that they belong to."""
        shown = ", ".join(map(str, indexes[:5])) + (", …" if len(indexes) > 5 else "")
        self.add(
            PROJECTION_WRONG,
            f"projection {table}",
            f"the rows of {table} for entries {shown} are not what the entries say",
        )

    def surplus(self) -> None:
        """Look for rows outside the walk: before the first entry, or after the last."""
        there = self.size - self.missing
        counts = {"entries": there, "nodes": merkle.node_count(self.size), **self.projected}
        for table, expected in counts.items():
            found = self.session.rows(f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608  constant
            if found != expected:
                code = NODE_WRONG if table == "nodes" else PROJECTION_WRONG
                self.add(
                    ENTRY_MISSING if table == "entries" else code,
                    f"table {table}",
                    f"table {table} has {found!r} rows, expected {expected}",
                )

    # -- signatures -------------------------------------------------------------------------------

    def check_seals(self) -> None:
        """Check the signature and the root of every seal entry."""
        for entry in self.seals:
            subject = f"seal {entry.index}"
            try:
                head = note.open_head(seal.seal_text(entry), self.verifiers)
            except OdiError as problem:
                self.add(SEAL_INVALID, subject, f"seal entry {entry.index}: {problem.message}")
                continue
            if head.size > entry.index:
                self.add(
                    SEAL_INVALID, subject, f"seal entry {entry.index} signs {head.size} entries"
                )
            else:
                self.compare(subject, head)

    def check_head(self, given: HeadFile) -> None:
        """Check one exported head."""
        subject = f"head {given.name}"
        try:
            head = note.open_head(given.text, self.verifiers)
        except (ProofInvalid, KeyProblem) as problem:
            self.add(HEAD_INVALID, subject, problem.message)
            return
        if head.size > self.size:
            self.add(
                TAIL_CUT,
                subject,
                f"a head of {head.size} entries was signed, and the ledger has {self.size}: "
                f"its last {head.size - self.size} or more were cut off",
            )
        else:
            self.compare(subject, head)

    def compare(self, subject: str, head: TreeHead) -> None:
        """Compare a signed root with the tree, whose nodes the walk has just recomputed."""
        try:
            root = merkle.root(head.size, tree.reader(self.session))
        except LedgerBroken as problem:
            self.add(NODE_WRONG, subject, problem.message)
            return
        if root != head.root:
            self.add(
                TREE_REWRITTEN,
                subject,
                f"the first {head.size} entries are not those that were signed: one was altered, "
                "removed, inserted or moved",
            )


def _each(session: Session, low: int, high: int) -> Iterator[tuple[int, StoredEntry | None]]:
    """Yield every index of a range with what is stored there."""
    there = {raw.index: raw for raw in reading.stored(session, low, high)}
    for index in range(low, high):
        yield index, there.get(index)


def _differing(stored: Sequence[Row], made: Sequence[Row], at: int) -> set[int]:
    """Return the entries whose rows are in one list only."""
    return {cast("int", row[at]) for row in set(stored) ^ set(made)}


def _finding(code: str, subject: str, message: str) -> Finding:
    return Finding(code=code, subject=subject, message=message, hint=_HINTS.get(code))


_HINTS: Final = {
    PROJECTION_WRONG: "odi-audit ledger rebuild --projections --apply",
    HEAD_INVALID: "check with the right public key: odi-audit ledger verify --public-key FILE",
}
"""What helps; an altered entry has no remedy but a copy of the ledger from before."""
