"""Whatever a destination answers, and whenever it carries out what it did not answer for."""

from __future__ import annotations

import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lineage.relay.answers import DONE, Answer, Verdict, no_answer
from lineage.relay.relay import Manner
from lineage.relay.sources import Item
from odi_audit.errors import OdiError
from tests.support.relaying import (
    ENDS,
    events_in,
    forever,
    http,
    judge,
    new_ledger,
    relay_of,
    state_beside,
)

FAULTS = ("503", "500", "unheard", "late", "taken", "death")


class Death(OdiError):
    """The relay's process ends here."""


@dataclass(slots=True)
class Backend:
    """Takes events, or fails as its script says. A late event comes at some later request.

    It comes at the latest when the end of its run is said once more: by then the relay has waited
    for longer than any request lives.
    """

    script: list[str]
    states: dict[str, str] = field(default_factory=dict)
    arrived: list[tuple[int | None, str, str]] = field(default_factory=list)
    late: list[Item] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lock: threading.Lock = field(default_factory=threading.Lock)
    fired: list[str] = field(default_factory=list)

    def take(self, item: Item) -> None:
        self.arrived.append((int(item.key.split(".")[0]), item.run, item.state))
        self.states[item.run] = ENDS.get(item.state, "RUNNING")

    def post(self, item: Item) -> Answer:
        with self.lock:
            if item.state in ENDS and self.ended[item.run]:
                self.come([one for one in self.late if one.run == item.run])
            elif len(self.script) % 3 == 1:
                self.come(self.late[:1])
            fault = self.script.pop() if self.script else None
            if fault is None:
                self.take(item)
                self.ended[item.run] += item.state in ENDS
                return DONE
            self.fired.append(fault)
            if fault == "taken":
                self.take(item)
            if fault == "late":
                self.late.append(item)
            if fault == "death":
                raise Death("killed")
            if fault in {"503", "500"}:
                return Answer(
                    verdict=Verdict.LATER,
                    status=int(fault),
                    suspect=fault == "500",
                    everybody=fault == "503",
                )
            return no_answer(fault, in_doubt=fault != "unheard")

    def come(self, items: list[Item]) -> None:
        for item in items:
            self.late.remove(item)
            self.take(item)


@dataclass(slots=True)
class Scripted:
    backend: Backend
    chunk_max: int = 2
    one_by_one: bool = True

    def send(self, items: Sequence[Item]) -> list[Answer]:
        return [self.backend.post(item) for item in items]

    def probe(self) -> bool:
        return False

    def close(self) -> None:
        pass


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(script=st.lists(st.sampled_from((*FAULTS, None, None, None)), max_size=40))
def test_in_the_end_everything_is_there_and_every_state_is_right(script: list[str | None]) -> None:
    backend = Backend(script=list(script))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledger = new_ledger(folder, 4)
        manner = Manner(settle_s=0.0, retry_s_max=0.001, give_up_after=1000)
        deaths = 0
        while True:
            store = state_beside(folder / "ledger.db")
            relay = relay_of(
                http("http://nowhere"), ledger, store, manner=manner,
                make=lambda _: Scripted(backend),
            )  # fmt: skip
            try:
                outcome = relay.run(forever())
                break
            except Death:
                # What other lanes still send now is as good as late.
                deaths += 1
            finally:
                store.close()
        assert outcome.left == 0
        assert outcome.letters == 0
        assert deaths <= script.count("death")
        assert not backend.script
        # Whatever has not come by now comes now: no end is said any more.
        backend.come(list(backend.late))
        came_back = {"late"} & set(backend.fired)
        judge(events_in(ledger), backend.arrived, backend.states, never_back=not came_back)
        ledger.close()
