"""Column lineage from Spark's analysed plan (docs/column-lineage.md).

Owns the way from a data frame, or from the SQL of a change, to the fact that an intent keeps. Must
never make a commit fail: what cannot be told is said to be unknown.
"""

from odi_audit.spark.plan.changes import of_change, of_frame, of_rows, of_unseen

__all__ = ["of_change", "of_frame", "of_rows", "of_unseen"]
