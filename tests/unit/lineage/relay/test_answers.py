"""What an answer means, and how long to wait."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from lineage.relay.answers import RETRY_AFTER_S_MAX, Verdict, backoff_s, of_status

NOW = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.DONE), (201, Verdict.DONE), (204, Verdict.DONE),
        (400, Verdict.REFUSED), (409, Verdict.REFUSED), (413, Verdict.REFUSED),
        (422, Verdict.REFUSED),
        (301, Verdict.STOPPED), (307, Verdict.STOPPED), (401, Verdict.STOPPED),
        (403, Verdict.STOPPED), (404, Verdict.STOPPED), (415, Verdict.STOPPED),
        (408, Verdict.LATER), (425, Verdict.LATER), (429, Verdict.LATER), (500, Verdict.LATER),
        (502, Verdict.LATER), (503, Verdict.LATER), (504, Verdict.LATER), (599, Verdict.LATER),
    ],
)  # fmt: skip
def test_each_status_means_one_thing(status: int, verdict: Verdict) -> None:
    answer = of_status(status, "why", None, NOW)
    assert answer.verdict is verdict
    if verdict is not Verdict.DONE:
        assert answer.reason.startswith(f"{status} why")


def test_only_an_answer_from_somebody_on_the_way_leaves_a_doubt() -> None:
    doubtful = {status for status in range(200, 600) if of_status(status, "", None, NOW).in_doubt}
    assert doubtful == {408, 502, 504}


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("99999999999999", RETRY_AFTER_S_MAX),
        ("Mon, 16 Nov 2026 08:00:30 GMT", 30.0),
        ("Mon, 16 Nov 2026 07:00:00 GMT", 0.0),
        ("Tue, 17 Nov 2026 08:00:00 GMT", RETRY_AFTER_S_MAX),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date_and_bounded(
    text: str | None, wait_s: float | None
) -> None:
    for status in (429, 503):
        assert of_status(status, "", text, NOW).wait_s == wait_s


def test_the_wait_grows_has_full_jitter_and_is_bounded() -> None:
    chance = random.Random(1)
    for tries in (0, 3, 8, 5000):
        most = min(60.0, 0.5 * 2 ** min(tries, 30))
        waits = [backoff_s(tries, 60.0, chance) for _ in range(500)]
        assert 0 <= min(waits) < most * 0.05
        assert most * 0.95 < max(waits) <= most


def test_a_long_reason_is_cut() -> None:
    assert len(of_status(422, "x" * 10_000, None, NOW).reason) <= 300
