"""Formats: how the bytes of a record become columns of a row.

Owns the decoders. They run inside Spark's tasks, on many records at once, and take no record down
with another: what cannot be read is handed back with the reason. Must never import pyspark.
"""
