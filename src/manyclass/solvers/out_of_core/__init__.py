"""Fits whose rows and weights need not fit in memory."""

from manyclass.solvers.out_of_core.solver import OutOfCore

__all__ = ["OutOfCore"]
