"""Events are valid for openlineage-python, for our schemas, and for a backend like Marquez."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attr
import pytest
from jsonschema import Draft202012Validator
from openlineage.client import generated
from openlineage.client.generated.base import BaseFacet, RunEvent
from openlineage.client.serde import Serde

from lineage import facets
from lineage.events import Event
from odi_audit.ledger.merkle import proves_inclusion
from tests.unit.lineage.conftest import RUN, Told
from tests.unit.lineage.strict_backend import StrictBackend

SCHEMAS = Path(facets.__file__).parent / "schemas"


def facet_classes() -> dict[str, type[BaseFacet]]:
    """Every facet that openlineage-python or we have a class for, by its schema's address."""
    for module in pkgutil.iter_modules(generated.__path__):
        importlib.import_module(f"{generated.__name__}.{module.name}")
    found: dict[str, type[BaseFacet]] = {}
    todo: list[type[BaseFacet]] = [BaseFacet]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        found[kind._get_schema()] = kind
    return found


def facets_of(event: Event) -> Iterator[tuple[str, dict[str, Any]]]:
    body = json.loads(event.body)
    holders = [body["run"].get("facets", {}), body["job"].get("facets", {})]
    for dataset in [*body["inputs"], *body["outputs"]]:
        holders += [dataset.get(key, {}) for key in ("facets", "inputFacets", "outputFacets")]
    for holder in holders:
        yield from holder.items()


def test_every_event_and_every_facet_parses_back_into_its_class(told: Told) -> None:
    classes, seen = facet_classes(), set()
    for event in told.history.events:
        body = json.loads(event.body)
        assert body["schemaURL"] == RunEvent._get_schema()
        for name, facet in facets_of(event):
            kind = classes[facet["_schemaURL"]]
            given = {
                field.alias: facet[field.name]
                for field in attr.fields(kind)
                if field.init and field.name in facet
            }
            again = kind(**given)
            assert without_empty(Serde.to_dict(again)) == without_empty(facet)
            seen.add(name)
    assert seen >= {
        "parent",
        "nominalTime",
        "processing_engine",
        "errorMessage",
        "environmentVariables",
        "executionParameters",
        "tags",
        "jobType",
        "sourceCodeLocation",
        "sql",
        "documentation",
        "schema",
        "dataSource",
        "catalog",
        "storage",
        "symlinks",
        "version",
        "datasetType",
        "lifecycleStateChange",
        "columnLineage",
        "ownership",
        "dataQualityMetrics",
        "dataQualityAssertions",
        "inputStatistics",
        "subset",
        "outputStatistics",
        "icebergCommitReport",
        "odi_batch",
        "odi_offsets",
        "odi_ledger",
        "odi_read",
    }


def test_bytes_say_what_openlineage_python_would_send(told: Told) -> None:
    for event in told.history.events:
        sent = json.loads(Serde.to_json(event.document))
        assert without_empty(sent) == without_empty(json.loads(event.body))


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_empty(item) for key, item in value.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value


def test_our_own_facets_fit_their_schemas(told: Told) -> None:
    schemas = {path.name: json.loads(path.read_text("utf-8")) for path in SCHEMAS.glob("*.json")}
    checked = set()
    for event in told.history.events:
        for _, facet in facets_of(event):
            address, _, _ = facet["_schemaURL"].partition("#")
            name = address.rpartition(":")[2]
            if address.startswith("urn:odi-audit"):
                assert schemas[name]["$id"] == address
                Draft202012Validator(schemas[name]).validate(facet)
                checked.add(name)
    trimmed = "OdiTrimmedRunFacet-1-0-0.json"
    assert checked == set(schemas) - {trimmed}
    made = facets.OdiTrimmedRunFacet(
        index=1,
        facets=[facets.TrimmedFacet(path="a", bytes=1, sha256="0" * 64)],
        more=2,
        producer=facets.PRODUCER,
    )
    Draft202012Validator(schemas[trimmed]).validate(Serde.to_dict(made))


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_is_a_schema_and_refuses_what_it_does_not_know(path: Path) -> None:
    schema = json.loads(path.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    assert not Draft202012Validator(schema).is_valid({"_producer": "urn:x", "surprise": 1})


def test_a_backend_as_strict_as_marquez_takes_every_event(told: Told) -> None:
    backend = StrictBackend()
    for event in told.history.events:
        assert backend.post(event.body) == 201, event.body
    ledger = told.history.ledger
    landed = {entry.run for entry in ledger.scan() if entry.kind == "landed" and entry.settles}
    refused = {entry.run for entry in ledger.scan() if entry.kind == "refused"}
    assert {backend.states[str(run)] for run in landed} == {"COMPLETED"}
    assert {backend.states[str(run)] for run in refused} == {"FAILED"}
    assert not {run for run, _, _ in backend.versions} & {str(run) for run in refused}
    # Of a run that is open for long and quiet it is told that it runs, and of nothing else.
    assert {run for run, state in backend.states.items() if state == "RUNNING"} == {RUN}


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        (lambda body: body.pop("eventType"), 500),
        (lambda body: body.pop("run"), 422),
        (lambda body: body.pop("producer"), 422),
        (lambda body: body.pop("eventTime"), 422),
        (lambda body: body["job"].pop("name"), 422),
        (lambda body: body["inputs"][0].update(namespace="a b"), 400),
        (lambda body: body["run"]["facets"]["parent"].pop("job"), 422),
        (lambda body: body["run"]["facets"]["odi_batch"].update(host="\x00"), 500),
    ],
)
def test_the_strict_backend_refuses_what_marquez_refuses(
    told: Told, spoil: Any, status: int
) -> None:
    body = json.loads(told["kafka_append"][0].body)
    spoil(body)
    assert StrictBackend().post(json.dumps(body).encode()) == status


def test_a_leaf_in_an_event_is_proved_by_the_ledger(told: Told) -> None:
    ledger = told.history.ledger
    head = ledger.head()
    for event in told.history.events:
        held = json.loads(event.body)["run"]["facets"]["odi_ledger"]
        proof = ledger.inclusion_proof(held["index"], head.size)
        leaf = bytes.fromhex(held["leaf"])
        assert proves_inclusion(
            leaf=leaf, index=held["index"], size=head.size, path=proof, root=head.root
        )
