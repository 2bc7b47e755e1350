"""The audited committer: the road of a batch, and reconcile.

Owns the order of plan, intend, stage, gate, publish, record. Must never write without an intent
in the ledger, and must never call Spark except through ``odi_audit.spark``.
"""
