"""Does Marquez hold what the ledger says? Compared, named, and on request sent again.

Owns the comparison with one kind of backend; events and their order are those of ``lineage``.
Must never send a START after the end of its run, nor remove anything from a backend.
"""

from __future__ import annotations
