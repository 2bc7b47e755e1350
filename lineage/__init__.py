"""Lineage as a projection of the ledger. So far: the names of datasets (``naming``).

Owns the OpenLineage view of what was recorded. Must never be in a commit's way, and must never
see more of the library than the ledger and the model.
"""
