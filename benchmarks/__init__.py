"""Measurements of manyclass beside its peers: a data set, a peer and an experiment are one file each.

Run from the repository root: ``python -m benchmarks list``, ``python -m benchmarks run NAME``. See docs/benchmarks.md.
"""
