"""Tasks: what Spark's Python workers do with a part of a source.

Owns the code that runs inside tasks: read a range, decode it, write data files or hand rows on.
Everything here is plain and can be sent to a worker. Must never reach a catalog, the ledger, or
the driver.
"""
