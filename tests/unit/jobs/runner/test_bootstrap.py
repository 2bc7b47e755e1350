"""What a bootstrap refuses before it reaches any source."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.runner.choose import worker_of
from jobs.spec import parse_spec
from odi_audit.errors import UsageError

SPEC = """
version: 1
job: shop/orders
source:
  type: kafka
  servers: localhost:9092
  topics: [orders]
  value: {{format: json}}
  envelope: debezium
bootstrap:
  from:
    type: jdbc
    url: jdbc:postgresql://localhost/shop
    table: orders
    watermark: {{column: at}}
  hand_over: {{offsets: {{orders: {{0: 10}}}}}}
target: {{table: shop.orders, mode: {mode}, key: {key}}}
"""


@pytest.mark.parametrize("mode", ["mirror", "history"])
def test_rows_of_the_past_need_a_key_that_the_spec_names(mode: str, tmp_path: Path) -> None:
    told = parse_spec(SPEC.format(mode=mode, key="from_event"), {})
    with pytest.raises(UsageError, match="rows of history tell no key"):
        worker_of(told, folder=tmp_path)
    assert worker_of(parse_spec(SPEC.format(mode=mode, key="[id]"), {}), folder=tmp_path)
