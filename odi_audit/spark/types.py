"""Spark's types under names that other layers may use in signatures.

Owns nothing; it keeps ``pyspark`` imports inside this package. Must never grow code.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

__all__ = ["DataFrame", "SparkSession", "StructType"]
