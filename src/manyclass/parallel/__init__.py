"""Running kernels on several threads."""

from manyclass.parallel.threads import ranges, resolve_n_jobs, run

__all__ = ["ranges", "resolve_n_jobs", "run"]
