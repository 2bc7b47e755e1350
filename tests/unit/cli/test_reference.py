"""The reference pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_audit.cli import reference

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("page", "made"),
    [("cli.md", reference.commands_page), ("errors.md", reference.errors_page)],
)
def test_a_reference_page_equals_what_the_code_would_write(page, made) -> None:
    assert (DOCS / page).read_text("utf-8") == made(), "run `make docs`"


def test_the_errors_page_names_every_code_once() -> None:
    rows = [line for line in reference.errors_page().splitlines() if line.startswith("| ODI-")]
    codes = [row.split("|")[1].strip() for row in rows]
    assert len(codes) == len(set(codes)) > 30
