"""A spec that is right, and changes to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from jobs.spec import Problem, check_text

ROOT = Path(__file__).parents[4]
READY = sorted((ROOT / "jobs/ready").glob("*.yaml"))
READY_ENV = {"WINDOW_FROM": "2026-03-01", "WINDOW_TO": "2026-03-02"}
GOOD = """\
version: 1
job: sales/orders
source:
  type: kafka
  servers: broker:9092
  topics: [orders]
  value:
    format: json
    columns:
      order_id: bigint not null
      amount: decimal(10,2)
      ts: timestamp
batch:
  every: 5m
target:
  table: sales.orders
  mode: append
  partition_by: [days(ts)]
"""

Told = Callable[..., dict[str, Problem]]


@pytest.fixture
def told() -> Told:
    """Return the problems of a text, by key; none of two problems may share a key."""

    def problems(text: str, env: Mapping[str, str] | None = None) -> dict[str, Problem]:
        found = check_text(text, env or {})
        assert (found.spec is None) == bool(found.problems)
        by_key = {problem.key: problem for problem in found.problems}
        assert len(by_key) == len(found.problems)
        return by_key

    return problems


@pytest.fixture
def good() -> str:
    return GOOD
