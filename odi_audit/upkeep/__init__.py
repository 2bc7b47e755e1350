"""Care of the lake: what is done to tables and the ledger beside ingestion.

Owns maintenance as plans that are shown before they are applied. Must never write to a table past
the committer.
"""
