"""Patterns: how the rows of a batch get into a table on Spark's path.

Owns one module for each way (mirror, history, raw copy, dead letters, …), each a function from
frames to frames and conditions. Must never commit: the runner hands all of it to one batch.
"""
