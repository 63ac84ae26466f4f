"""What the fit of an estimator must share with the last one for a warm start from its state."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.objective.losses.base import signature
from manyclass.objective.problem import Problem
from manyclass.solvers import Solver
from manyclass.solvers.dual.warm import lineage

__all__ = ["fit_signature", "same"]


def fit_signature(problem: Problem, solver: Solver) -> tuple[Any, ...]:
    """What must not change for dual variables of an earlier fit to be feasible."""
    arrays = tuple(np.array(part) for part in problem.targets if isinstance(part, np.ndarray))
    return (
        lineage(solver),
        type(problem.loss),
        signature(problem.loss),
        problem.n_samples,
        problem.n_features,
        problem.n_outputs,
        problem.intercept,
        problem.dtype,
        problem.shift is None,
        arrays if problem.shift is None else (*arrays, problem.shift),
    )


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two signatures are equal."""
    return (
        one[:-1] == other[:-1]
        and len(one[-1]) == len(other[-1])
        and all(np.array_equal(a, b) for a, b in zip(one[-1], other[-1]))
    )
