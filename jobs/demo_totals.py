"""The demo's second job: totals by customer, made from a recorded reading of the orders.

Owns the table ``finance.totals``. It reads one state of the orders through the consumer API, so
that the ledger knows who read what, and what was made of it. Must never read the orders past it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import odi_audit as odi

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odi_audit.model.receipts import Receipt
    from odi_audit.workspace import Workspace

JOB = "finance/totals"
TABLE = "finance.totals"
COLUMNS = "customer string NOT NULL, orders bigint, amount decimal(20,2)"


def write_totals(lake: Workspace, orders: str) -> Receipt:
    """Make the totals anew from the orders as they are now."""
    with odi.run(JOB, lake=lake) as run:
        run.create_table(TABLE, COLUMNS, if_not_exists=True)
        with odi.read_stable(orders, as_of="main", consumer=JOB, run=run, as_="spark") as reading:
            rows = cast("DataFrame", reading.data)
            totals = rows.groupBy("customer").agg({"order_id": "count", "amount": "sum"})
            frame = totals.selectExpr(
                "customer",
                "`count(order_id)` AS orders",
                "CAST(`sum(amount)` AS decimal(20,2)) AS amount",
            )
            part = odi.once(f"orders as of snapshot {reading.snapshot.id}")
            return run.overwrite(frame, TABLE, where="true", offsets=part)
