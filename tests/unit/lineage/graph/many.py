"""A lake of many tables, layer upon layer: each made from a few of the layer before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from odi_audit.canonical import JsonObject
from odi_audit.ids import JobName, TableUuid
from odi_audit.model.entries import Draft, Entry
from odi_audit.model.offsets import kafka, once
from odi_audit.model.tables import TableRef
from tests.unit.lineage.conftest import History, location, new_history, work

NAMES = ("orders", "customers", "payments", "shipments", "returns", "clicks", "sessions", "prices")


class Quiet(History):
    """A history that makes no events: most of its time went into them."""

    def add(self, *drafts: Draft) -> Entry:
        return self.ledger.append(*drafts)[-1]


def quiet_history(folder: Path) -> History:
    made = new_history(folder)
    return Quiet(ledger=made.ledger, context=made.context)


def table(number: int, layer: str) -> TableRef:
    name = f"{layer}.{NAMES[number % len(NAMES)]}_{number:03d}"
    return TableRef(uuid=TableUuid(f"22222222-0000-4000-8000-{number:012d}"), name=name)


def columns(*inputs: TableRef) -> JsonObject:
    """Say that ``id`` is the first input's and ``amount`` a sum over all of them."""
    edges: list[Any] = [
        {"input": place, "field": "amount", "type": "DIRECT", "subtype": "AGGREGATION"}
        for place in range(len(inputs))
    ]
    return {
        "inputs": [
            {
                "namespace": "s3://lake",
                "name": location(item).removeprefix("s3://lake/"),
                "table": item.name,
                "table_uuid": item.uuid,
                "fields": [["id", "long"], ["amount", "decimal(10,2)"]],
            }
            for item in inputs
        ],
        "fields": {
            "id": [{"input": 0, "field": "id", "type": "DIRECT", "subtype": "IDENTITY"}],
            "amount": edges,
        },
        "dataset": [{"input": 0, "field": "id", "type": "INDIRECT", "subtype": "FILTER"}],
        "unknown": ["prices"],
    }


def fill(told: History, count: int, *, seed: int = 7) -> list[TableRef]:
    """Write a ledger of ``count`` tables; the last one rests on many of the others."""
    chance = random.Random(seed)
    raw, made = max(1, count // 4), []
    for number in range(count):
        layer = "raw" if number < raw else ("core" if number < count * 2 // 3 else "mart")
        ref = table(number, layer)
        job = JobName(f"{layer}/{ref.name.partition('.')[2]}_{'import' if number < raw else 'job'}")
        if number < raw:
            part = kafka({ref.name: {0: (0, 10)}}, bootstrap="broker.example.org:9092")
            opened = told.intend(work("append", ref), job=job, offsets=part)
        else:
            near = made[max(0, number - raw) :]
            read = chance.sample(near, min(len(near), chance.choice((1, 1, 2, 2, 3))))
            if number == count - 1:
                read = chance.sample(made, max(1, count // 6))
            opened = told.intend(
                work("append", ref), job=job, offsets=once(str(number)), columns=columns(*read)
            )
        told.land(opened, ref)
        made.append(ref)
    return made
