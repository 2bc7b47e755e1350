"""What a job's document says of itself goes along with its runs."""

from __future__ import annotations

import json

from openlineage.client.generated.documentation_job import DocumentationJobFacet
from openlineage.client.generated.ownership_job import OwnershipJobFacet

from tests.unit.lineage.conftest import History, work


def test_owner_and_description_of_a_spec_are_facets_of_the_job(history: History) -> None:
    about = {"owner": "web-team", "description": "Every order of the shop.", "spec": "ab12"}
    history.land(history.intend(work("append"), about=about))
    history.land(history.intend(work("append")))
    said = [json.loads(event.body)["job"]["facets"] for event in history.events]
    assert said[0]["documentation"]["description"] == said[1]["documentation"]["description"]
    assert said[1]["documentation"]["description"] == "Every order of the shop."
    assert said[1]["documentation"]["_schemaURL"] == DocumentationJobFacet._get_schema()
    assert said[1]["ownership"]["owners"] == [{"name": "web-team"}]
    assert said[1]["ownership"]["_schemaURL"] == OwnershipJobFacet._get_schema()
    assert "ownership" not in said[-1]
    assert said[-1]["documentation"]["description"].startswith("append on sales.orders")
