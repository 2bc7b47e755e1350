"""The relay: events of the ledger go to their destinations, in order, until each is acknowledged.

Owns positions, sending, and what happens to an event that cannot be sent. Must never write to the
ledger, and must never stand in the way of a commit (docs/adr/0012-relay.md).
"""
