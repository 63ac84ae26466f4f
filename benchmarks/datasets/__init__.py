"""Data sets, one file each.

A file has ``FILES`` (raw files within the data folder), ``SOURCE`` (how to get them), optionally ``VARIANTS`` (the
first is the default), ``GROUP`` (so many training rows in succession belong together) and ``sources()`` (more files
that decide its content), and ``build(folder, variant) -> Split``. The first line of its documentation is what ``list``
shows.
"""
