"""The values that everything passes around: offsets, stamps, tables, entries, receipts.

Owns plain, frozen values and the pure functions over them. Must never do input or output.
"""
