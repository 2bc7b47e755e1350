"""From the table that a ledger entry means to the catalog's table, whatever it is called now.

Owns that one step. Must never take another table of the same name for it: the uuid decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_audit.catalog.state import TableState
from odi_audit.errors import BadTableName, TableNotFound
from odi_audit.model.tables import TableRef, parse

if TYPE_CHECKING:
    from odi_audit.catalog.lake import LakeCatalog


def find_table(catalog: LakeCatalog, table: TableRef) -> TableState | None:
    """Return the table that the ledger means, also under a new name; None where it is gone."""
    try:
        name = parse(table.name)
        state = catalog.load(name)
        if state.ref.uuid == table.uuid:
            return state
    except (TableNotFound, BadTableName):
        pass
    return catalog.load_by_uuid(table.uuid)
