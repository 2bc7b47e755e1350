"""Lineage as a graph: what feeds a table and what a table feeds, read from the ledger alone.

Owns the graph, the questions that are put to it, and its forms (JSON, Mermaid, Graphviz, one HTML
page). Must never look at a table, start a JVM or reach a network: an old version is answered for
like the present one (docs/guide/lineage.md).
"""
