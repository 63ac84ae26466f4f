"""Fits of rows and weights that may be larger than memory."""

from manyclass.solvers.out_of_core.solver import OutOfCore

__all__ = ["OutOfCore"]
