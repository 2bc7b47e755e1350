"""Questions about what was written: batches, verification, the origin of a row.

Owns answers as values, each with its JSON form. Must never change anything, and must never start
a JVM: everything is read from the ledger, the catalog and the tables' own files.
"""
