"""What a fit says of badly scaled features."""

from __future__ import annotations

import warnings

import numpy as np

from manyclass.objective.problem import Array, Problem

__all__ = ["bad_norm", "bad_scale", "warn_of_zeros"]

_REMEDY = "scale the features (StandardScaler, or MaxAbsScaler for sparse rows)"
#: Bad scale: a mean squared norm of the rows outside of [1e-5, 1e5], or a feature with 1e5 times the median mean
#: square.
_SCALES = 1e5
#: A mean squared norm below this multiple of lam: scores of the optimum are as much smaller than the targets.
_NOTHING = 1e-8


def warn_of_zeros(mean: float, lam: float, stacklevel: int = 5) -> None:
    """Warn of a solution that is right, and zero for all purposes: rows of a tiny mean squared norm."""
    if 0 < mean < _NOTHING * lam:
        warnings.warn(
            f"the weights are near zero: the squared norms of the rows are about {mean:.1e}, the penalty is {lam:.1e}; "
            f"{_REMEDY}, or lower alpha",
            UserWarning,
            stacklevel=stacklevel,
        )


def bad_norm(mean: float) -> str | None:
    """Advice about the scale of all features, from the mean squared norm of the rows, if that makes the fit slow."""
    if mean and not 1 / _SCALES < mean < _SCALES:
        return f"the squared norms of the rows are about {mean:.1e}: {_REMEDY}"
    return None


def bad_scale(problem: Problem, mean: float, squares: Array) -> str | None:
    """Advice about the scale of the features if that makes the fit slow, see `Solver.scales`; else None."""
    advice = bad_norm(mean)
    if advice is not None:
        return advice
    if problem.standard is not None:
        return None
    typical = float(np.median(squares[squares > 0])) if squares.any() else 0.0
    if typical and float(squares.max()) > _SCALES * typical:
        times = (float(squares.max()) / typical) ** 0.5
        return f"feature {int(squares.argmax())} is {times:.0f} times as large as most: {_REMEDY}"
    return None
