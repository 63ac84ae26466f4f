"""Experiments, one file each: ``run(bench)``. The first line of a file's documentation is what ``list`` shows."""
