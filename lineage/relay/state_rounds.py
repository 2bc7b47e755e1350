"""One round of the relay as SQL: everything that it changes, in one transaction.

Owns the statements. Must never be called outside a transaction that has passed the fence.
"""

from __future__ import annotations

from lineage.relay.state import Changes
from odi_audit.ledger.database import Session

LETTER_COLUMNS = "source, event, run, state, stand, reason, status, tries, first_at, last_at"


def write_changes(session: Session, name: str, changes: Changes) -> None:
    """Write a round, inside a transaction that has passed the fence."""
    passed = {(source, key) for source, (_, keys) in changes.passed.items() for key in keys}
    gone = passed | {(item.source, item.key) for item in (*changes.unmarked, *changes.letters_gone)}
    if gone:
        session.run_many(
            "DELETE FROM marks WHERE destination = ? AND source = ? AND event = ?",
            [(name, source, key) for source, key in gone],
        )
    rows = [(name, item.source, item.key, item.run, 0) for item in changes.sending]
    rows += [
        (name, item.source, item.key, item.run, 1)
        for item in changes.settled
        if (item.source, item.key) not in passed
    ]
    if rows:
        session.run_many(
            "INSERT INTO marks (destination, source, event, run, settled) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (destination, source, event) DO UPDATE SET settled = excluded.settled",
            rows,
        )
    for source, (position, _) in changes.passed.items():
        move(session, name, source, position)
    if changes.letters or changes.letters_gone:
        _write_letters(session, name, changes)
    for doubt in changes.doubts:
        session.run(
            "INSERT INTO doubts (destination, run, source, event, since, echo, due_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (destination, run) DO UPDATE SET"
            " source = excluded.source, event = excluded.event, since = excluded.since,"
            " echo = excluded.echo, due_at = excluded.due_at",
            (name, doubt.run, doubt.source, doubt.key, doubt.since, doubt.echo, doubt.due_at),
        )
    for run in changes.doubts_gone:
        session.run("DELETE FROM doubts WHERE destination = ? AND run = ?", (name, run))
    if changes.sent:
        session.run(
            "UPDATE destinations SET sent = sent + ?, sent_at = ? WHERE name = ?",
            (changes.sent, changes.at, name),
        )
    if changes.error is not None:
        session.run(
            "UPDATE destinations SET error = ?, error_at = ? WHERE name = ?",
            (changes.error, changes.at, name),
        )
    if changes.stopped is not None or changes.going:
        session.run("UPDATE destinations SET stopped = ? WHERE name = ?", (changes.stopped, name))


def _write_letters(session: Session, name: str, changes: Changes) -> None:
    if changes.letters_gone:
        session.run_many(
            "DELETE FROM letters WHERE destination = ? AND source = ? AND event = ?",
            [(name, item.source, item.key) for item in changes.letters_gone],
        )
    for letter in changes.letters:
        session.run(
            f"INSERT INTO letters (destination, number, {LETTER_COLUMNS}) VALUES (?,"  # noqa: S608  constants
            " (SELECT coalesce(max(l.number), 0) + 1 FROM letters l WHERE l.destination = ?),"
            " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (destination, source, event) DO UPDATE SET stand = excluded.stand,"
            " reason = excluded.reason, status = excluded.status, tries = excluded.tries,"
            " last_at = excluded.last_at",
            (
                name, name, letter.source, letter.key, letter.run, letter.state,
                letter.stand.value, letter.reason, letter.status, letter.tries, letter.first_at,
                letter.last_at,
            ),
        )  # fmt: skip


def move(session: Session, destination: str, source: str, position: str) -> None:
    """Set the position of a source."""
    session.run(
        "INSERT INTO positions (destination, source, position) VALUES (?, ?, ?)"
        " ON CONFLICT (destination, source) DO UPDATE SET position = excluded.position",
        (destination, source, position),
    )
