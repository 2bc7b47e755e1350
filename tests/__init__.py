"""Tests, by tier: unit, contract, property, crash, spark, stack."""
