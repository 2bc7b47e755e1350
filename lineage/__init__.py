"""Lineage as a projection of the ledger: names of datasets, and OpenLineage events of entries.

Owns the OpenLineage view of what was recorded (docs/lineage-events.md). Must never be in a commit's
way, and must never see more of the library than the ledger and the model.
"""
