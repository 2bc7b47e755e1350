"""Side-by-side measurements, each ``python -m benchmarks.NAME``.

Owns how things are timed. Must never be imported by the library.
"""
