"""Other libraries, one file each.

A file has ``PACKAGE`` (as pip calls it), ``OBJECTIVES`` (what it can minimize, see `benchmarks.task.Task`),
``skip_reason()`` (None, or why it cannot run on this machine) and ``fit(data, task, stop, *, threads, seed) -> Fit``;
optionally ``MULTILABEL = True`` (rows may have several classes), ``refuses(task)`` (None, or why it cannot solve that
task), ``python()`` (the interpreter of an environment of its own), ``memory(data, task, itemsize)`` (an estimate of the
bytes it needs besides the data) and ``fit_classes`` (see `benchmarks.catalog.Method`). The first line of its
documentation is what ``list`` shows.
"""
