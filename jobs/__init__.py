"""Ingestion jobs that are ready to run, each ``python -m jobs.NAME``; and the demo's story.

Owns how a source becomes batches. Must never write to a table but through the committer; the one
exception is the demo's foreign write, which is there to be found.
"""
