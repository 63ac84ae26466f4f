"""Fits whose rows and weights need not fit in memory."""

from manyclass.solvers.out_of_core.fit import fit_blocks

__all__ = ["fit_blocks"]
