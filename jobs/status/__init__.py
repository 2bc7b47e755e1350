"""How jobs stand: what the ledger says of them, what their sources say, what a spec would do.

Owns the answers to ``odi-audit jobs`` and ``odi-audit jobs check``. Must never write anything.
"""
