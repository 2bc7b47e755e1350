"""The relay's state over a SQL database: one implementation for SQLite and PostgreSQL.

Owns the fence: a round is written only by whoever has the lease at that moment. Must never let a
driver's error through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from lineage.relay.state import Changes, Doubt, Dropped, Facts, Lease, Letter, Mark, Stand
from lineage.relay.state_rounds import LETTER_COLUMNS, move, write_changes
from lineage.relay.state_tables import told
from odi_audit.errors import RelayHeld
from odi_audit.ids import RunId
from odi_audit.ledger.database import Database, Row, Session, SqlValue

_KEPT = ("destinations", "positions", "marks", "letters", "doubts")
"""What is kept of a destination, apart from its lease and from what was dropped."""


class SqlState:
    """The state of every destination of one lake."""

    def __init__(self, database: Database) -> None:
        """Take a database whose tables are there."""
        self._database = database

    @property
    def shown(self) -> str:
        """Where the state is, for messages."""
        return self._database.shown

    # -- reading ----------------------------------------------------------------------------------

    def destinations(self) -> list[Facts]:
        """Return every destination that was ever sent to."""
        return [_facts(row) for row in self._rows("SELECT * FROM destinations ORDER BY name")]

    def facts(self, destination: str) -> Facts | None:
        """Return what is kept of a destination."""
        found = self._rows("SELECT * FROM destinations WHERE name = ?", destination)
        return _facts(found[0]) if found else None

    def positions(self, destination: str) -> dict[str, str]:
        """Return the position in each source."""
        found = self._rows(
            "SELECT source, position FROM positions WHERE destination = ?", destination
        )
        return {cast("str", source): cast("str", position) for source, position in found}

    def marks(self, destination: str) -> list[Mark]:
        """Return the events above the positions that were settled or under way."""
        found = self._rows(
            "SELECT source, event, run, settled FROM marks WHERE destination = ?", destination
        )
        return [
            Mark(
                source=cast("str", source),
                key=cast("str", key),
                run=RunId(cast("str", run)),
                settled=bool(settled),
            )
            for source, key, run, settled in found
        ]

    def letters(
        self, destination: str, *, stand: Stand | None = None, limit: int | None = None
    ) -> list[Letter]:
        """Return letters in the order in which they must be sent."""
        wanted = "" if stand is None else " AND stand = ?"
        most = "" if limit is None else f" LIMIT {int(limit)}"
        found = self._rows(
            f"SELECT {LETTER_COLUMNS} FROM letters WHERE destination = ?{wanted}"  # noqa: S608  constants
            f" ORDER BY number{most}",
            destination,
            *(() if stand is None else (stand.value,)),
        )
        return [_letter(row) for row in found]

    def letter_counts(self, destination: str) -> dict[RunId, int]:
        """Return how many letters each held run has."""
        found = self._rows(
            "SELECT run, count(*) FROM letters WHERE destination = ? GROUP BY run", destination
        )
        return {RunId(cast("str", run)): cast("int", count) for run, count in found}

    def doubts(self, destination: str) -> list[Doubt]:
        """Return the runs of which an event may still arrive late."""
        found = self._rows(
            "SELECT run, source, event, since, echo, due_at FROM doubts WHERE destination = ?",
            destination,
        )
        return [
            Doubt(
                run=RunId(cast("str", run)),
                source=cast("str", source),
                key=cast("str", key),
                since=cast("str", since),
                echo=cast("str | None", echo),
                due_at=cast("str | None", due_at),
            )
            for run, source, key, since, echo, due_at in found
        ]

    def dropped(self, destination: str, limit: int) -> list[Dropped]:
        """Return what was dropped, newest first."""
        found = self._rows(
            "SELECT source, event, run, state, refusal, reason, who, dropped_at FROM dropped"
            " WHERE destination = ? ORDER BY dropped_at DESC LIMIT ?",
            destination,
            limit,
        )
        names = ("source", "key", "run", "state", "refusal", "reason", "who", "at")
        return [
            Dropped(**dict(zip(names, cast("tuple[str, ...]", row), strict=True)))  # type: ignore[arg-type]
            for row in found
        ]

    def lease(self, destination: str) -> Lease | None:
        """Return who may send now; None if nobody ever did, or the last one gave it back."""
        found = self._lease(self._database, destination)
        return None if found is None or found[1] else found[0]

    # -- the lease --------------------------------------------------------------------------------

    def acquire(self, destination: str, holder: str, now: str, until: str) -> Lease:
        """Take the lease, if it is free, has run out, or its holder is dead."""
        with self._writing() as session:
            found = self._lease(session, destination)
            token = 1 if found is None else found[0].token + 1
            if found is not None and not found[1]:
                before = found[0]
                # A dead holder is known at once by its lock; the time limit is for one that
                # is cut off from here. Neither need be right: the token fences (docs/adr/0012).
                if before.until > now and self._database.is_alive(before.holder):
                    raise RelayHeld(
                        f"{before.holder} sends to {destination} until {before.until} at least",
                        hint="odi-audit relay status",
                        destination=destination,
                        holder=before.holder,
                    )
            self._database.hold(holder)
            session.run("DELETE FROM leases WHERE destination = ?", (destination,))
            session.run(
                "INSERT INTO leases (destination, holder, token, until, given_back)"
                " VALUES (?, ?, ?, ?, 0)",
                (destination, holder, token, until),
            )
        return Lease(destination=destination, holder=holder, token=token, until=until)

    def renew(self, lease: Lease, until: str) -> Lease:
        """Keep the lease for longer."""
        with self._writing() as session:
            self._check(session, lease)
            session.run(
                "UPDATE leases SET until = ? WHERE destination = ?", (until, lease.destination)
            )
        return Lease(
            destination=lease.destination, holder=lease.holder, token=lease.token, until=until
        )

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it was lost."""
        with self._writing() as session:
            session.run(
                "UPDATE leases SET given_back = 1 WHERE destination = ? AND token = ?",
                (lease.destination, lease.token),
            )
        with told():
            self._database.release(lease.holder)

    def _lease(self, session: Session, destination: str) -> tuple[Lease, bool] | None:
        with told():
            found = session.rows(
                "SELECT holder, token, until, given_back FROM leases WHERE destination = ?",
                (destination,),
            )
        if not found:
            return None
        holder, token, until, given_back = found[0]
        lease = Lease(
            destination=destination,
            holder=cast("str", holder),
            token=cast("int", token),
            until=cast("str", until),
        )
        return lease, bool(given_back)

    def _check(self, session: Session, lease: Lease) -> None:
        """The fence: whoever was taken for dead writes no more."""
        found = session.rows(
            "SELECT token, given_back FROM leases WHERE destination = ?", (lease.destination,)
        )
        if found != [(lease.token, 0)]:
            raise RelayHeld(
                f"another relay has taken over {lease.destination} from {lease.holder}",
                hint="odi-audit relay status",
                destination=lease.destination,
                holder=lease.holder,
            )

    # -- writing ----------------------------------------------------------------------------------

    def begin(self, destination: str, address: str, positions: dict[str, str]) -> None:
        """Make a destination, or start it anew at an address: what was kept of it is gone."""
        with self._writing() as session:
            _remove(session, destination)
            session.run(
                "INSERT INTO destinations (name, address, sent, orders) VALUES (?, ?, 0, 0)",
                (destination, address),
            )
            for source, position in positions.items():
                move(session, destination, source, position)

    def forget(self, destination: str) -> None:
        """Remove everything that is kept of a destination."""
        with self._writing() as session:
            _remove(session, destination)
            session.run("DELETE FROM leases WHERE destination = ?", (destination,))

    def write(self, lease: Lease, changes: Changes) -> None:
        """Write one round's changes."""
        with self._writing() as session:
            self._check(session, lease)
            write_changes(session, lease.destination, changes)

    def ask_retry(self, destination: str, keys: Sequence[tuple[str, str]]) -> int:
        """Have letters tried again by whoever sends."""
        with self._writing() as session:
            found = _known(session, destination, keys)
            session.run_many(
                "UPDATE letters SET stand = ? WHERE destination = ? AND source = ? AND event = ?",
                [(Stand.RETRY.value, destination, source, key) for source, key in found],
            )
            _order(session, destination)
            return len(found)

    def drop(
        self, destination: str, keys: Sequence[tuple[str, str]], *, reason: str, who: str, at: str
    ) -> int:
        """Never send these letters, and let what is behind them go."""
        with self._writing() as session:
            found = _known(session, destination, keys)
            for source, key in found:
                which = (destination, source, key)
                session.run(
                    "INSERT INTO dropped (destination, source, event, run, state, refusal, reason,"
                    " who, dropped_at) SELECT destination, source, event, run, state, reason,"
                    " CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT) FROM letters"
                    " WHERE destination = ? AND source = ? AND event = ?",
                    (reason, who, at, *which),
                )
                session.run(
                    "UPDATE letters SET stand = ? WHERE destination = ? AND stand = ? AND run ="
                    " (SELECT l.run FROM letters l WHERE l.destination = ? AND l.source = ?"
                    " AND l.event = ? AND l.stand <> ?)",
                    (
                        Stand.RETRY.value, destination, Stand.HELD.value, *which, Stand.HELD.value,
                    ),
                )  # fmt: skip
                session.run(
                    "DELETE FROM letters WHERE destination = ? AND source = ? AND event = ?", which
                )
            _order(session, destination)
            return len(found)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # -- helpers ----------------------------------------------------------------------------------

    def _rows(self, sql: str, *params: SqlValue) -> list[Row]:
        with told():
            return self._database.rows(sql, params)

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with told(), self._database.writing() as session:
            yield session


def _remove(session: Session, destination: str) -> None:
    for table in _KEPT:
        column = "name" if table == "destinations" else "destination"
        session.run(f"DELETE FROM {table} WHERE {column} = ?", (destination,))  # noqa: S608  constants


def _known(
    session: Session, destination: str, keys: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    there = session.rows("SELECT source, event FROM letters WHERE destination = ?", (destination,))
    found = {(cast("str", source), cast("str", key)) for source, key in there}
    return [pair for pair in keys if pair in found]


def _order(session: Session, destination: str) -> None:
    session.run("UPDATE destinations SET orders = orders + 1 WHERE name = ?", (destination,))


def _facts(row: Row) -> Facts:
    name, address, sent, sent_at, error, error_at, stopped, orders = row
    return Facts(
        name=cast("str", name),
        address=cast("str", address),
        sent=cast("int", sent),
        sent_at=cast("str | None", sent_at),
        error=cast("str | None", error),
        error_at=cast("str | None", error_at),
        stopped=cast("str | None", stopped),
        orders=cast("int", orders),
    )


def _letter(row: Row) -> Letter:
    source, key, run, state, stand, reason, status, tries, first_at, last_at = row
    return Letter(
        source=cast("str", source),
        key=cast("str", key),
        run=RunId(cast("str", run)),
        state=cast("str", state),
        stand=Stand(cast("str", stand)),
        reason=cast("str", reason),
        status=cast("int | None", status),
        tries=cast("int", tries),
        first_at=cast("str", first_at),
        last_at=cast("str", last_at),
    )
