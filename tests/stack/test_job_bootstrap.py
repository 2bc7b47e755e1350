"""Bootstrap on a real Kafka: history, then the topic from the exact hand-over, each record once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odi_audit as odi
from jobs.runner.choose import worker_of
from jobs.runner.loop import Until, run_job
from jobs.runner.outcome import Ran
from jobs.sources.base import Limits
from jobs.spec import parse_spec
from odi_audit.errors import OffsetGap, SourceNotFound, UsageError
from odi_audit.query.offsets import continuity
from odi_audit.query.verify import verify
from odi_audit.workspace import Workspace
from tests.support.independent import Eyes
from tests.support.killed import Killed
from tests.support.servers.kafka import Kafka
from tests.support.servers.topics import Topics

SPEC = """
version: 1
job: shop/clicks
source:
  type: kafka
  servers: {servers}
  topics: [{topic}]
  value: {{format: json}}
bootstrap:
  from: {{type: files, path: history, format: json, settle: 0s}}
  hand_over: {hand_over}
batch: {{files: 1}}
target: {{table: shop.clicks}}
"""
HAND_OVER = {0: 40, 1: 25}
"""What of each partition is in the files of history."""


class Clicks:
    """A topic whose first records are in files, and the job over both."""

    def __init__(self, kafka: Kafka, lake: Workspace, folder: Path) -> None:
        self.lake, self.folder = lake, folder
        self.topic, self.topics = f"clicks-{secrets.token_hex(3)}", Topics(kafka.bootstrap)
        self.topics.create(self.topic, 2)
        self.expected: list[str] = []
        for partition in HAND_OVER:
            self.fill(partition, 60)
        (folder / "history").mkdir()
        for partition, end in HAND_OVER.items():
            names = [f"{partition}-{offset}" for offset in range(end)]
            for first in range(0, end, 20):
                body = "".join(
                    json.dumps({"id": name}) + "\n" for name in names[first : first + 20]
                )
                (folder / "history" / f"{partition}-{first}.json").write_text(body)
        given = ", ".join(f"{number}: {offset}" for number, offset in HAND_OVER.items())
        self.offsets = f"{{offsets: {{{self.topic}: {{{given}}}}}}}"
        self.servers = kafka.bootstrap

    def fill(self, partition: int, count: int) -> None:
        first = sum(1 for name in self.expected if name.startswith(f"{partition}-"))
        names = [f"{partition}-{first + number}" for number in range(count)]
        values = [json.dumps({"id": name}).encode() for name in names]
        self.topics.fill(self.topic, values, partition=partition)
        self.expected += names

    def run(
        self, *, hand_over: str | None = None, reach: Callable[[str], None] | None = None
    ) -> Ran:
        text = SPEC.format(
            servers=self.servers, topic=self.topic, hand_over=hand_over or self.offsets
        )
        spec = parse_spec(text, {})
        more: dict[str, Any] = {} if reach is None else {"reach": reach}
        with odi.run(spec.job, lake=self.lake, **more) as run:
            worker = worker_of(spec, folder=self.folder)
            return run_job(run, worker, Limits(rows=30), until=Until(drained=True))

    def held(self) -> list[str]:
        return sorted(str(row[0]) for row in Eyes.on(self.lake.root).rows("shop.clicks"))


@pytest.fixture
def clicks(kafka: Kafka, lake: Workspace, tmp_path: Path) -> Clicks:
    return Clicks(kafka, lake, tmp_path)


def test_each_record_is_in_history_or_behind_the_hand_over_whenever_the_job_is_killed(
    clicks: Clicks,
) -> None:
    kills = 0
    for deadly in (4, 9, 15, 22, 30, 10**9):
        left = [deadly]

        def reach(_point: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        try:
            clicks.run(reach=reach)
        except Killed:
            kills += 1
    assert kills >= 3, "no fault fired"
    assert clicks.held() == sorted(clicks.expected)
    clicks.fill(0, 5)
    # History is closed: what comes to its folder now is not of this job.
    (clicks.folder / "history" / "more.json").write_text('{"id": "stray"}\n')
    assert clicks.run().records == 5
    assert clicks.held() == sorted(clicks.expected)
    ledger = clicks.lake.ledger()
    told = continuity(ledger)
    assert not told.events
    topics = {
        line.partition: (line.first, line.last)
        for source in told.lines
        if source.source.startswith("kafka://")
        for line in source.partitions
    }
    assert topics == {f"{clicks.topic}-0": (40, 65), f"{clicks.topic}-1": (25, 60)}
    assert not verify(ledger, clicks.lake.catalog())


def test_a_hand_over_that_kafka_does_not_hold_or_that_is_not_exact_is_refused_before_anything(
    clicks: Clicks,
) -> None:
    with pytest.raises(UsageError, match=rf"names no offset for {clicks.topic}-1"):
        clicks.run(hand_over=f"{{offsets: {{{clicks.topic}: {{0: 40}}}}}}")
    clicks.topics.cut(clicks.topic, 1, 26)
    with pytest.raises(OffsetGap, match=rf"{clicks.topic}-1: hand-over 25, held 26 to 60"):
        clicks.run()
    with pytest.raises(OffsetGap, match="Kafka does not hold the hand-over"):
        clicks.run(hand_over='{timestamp: "2020-01-01T00:00:00Z"}')
    assert not clicks.lake.catalog().tables(), "nothing was read or made"
    for path in (clicks.folder / "history").iterdir():
        path.unlink()
    clicks.topics.create(clicks.topic + "x", 1)
    clicks.topics.fill(clicks.topic + "x", [b'{"id": "a"}'])
    clicks.topic += "x"
    with pytest.raises(SourceNotFound, match="has no record at all"):
        clicks.run(hand_over='{timestamp: "2020-01-01T00:00:00Z"}')
