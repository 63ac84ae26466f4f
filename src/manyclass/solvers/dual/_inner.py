"""The inner problems of accelerated Prox-SDCA: the smoothed loss, a stronger penalty, and their gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from manyclass.kernels.respond import conjugate_rows
from manyclass.kernels.sdca import weighted_sums
from manyclass.objective.penalties import ElasticNet
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import State
from manyclass.solvers.dual.sdca import SHARE, bias_step

__all__ = ["ROWS", "conjugates", "inner_gap", "inner_problem", "smoothed"]

#: Rows (of V or of the dual variables) per task.
ROWS = 4096


def smoothed(problem: Problem, gamma: float) -> Problem:
    """The problem itself, or with its loss smoothed by gamma if that is not smooth."""
    return problem if problem.loss.smoothness else replace(problem, loss=problem.loss._replace(gamma=gamma))


def inner_problem(problem: Problem, kappa: float, gamma: float) -> Problem:
    """The problem with lam' = lam + kappa, and a loss smoothed by gamma if it is not smooth."""
    lam = problem.lam + kappa
    reg = problem.penalty
    if isinstance(reg, ElasticNet):
        reg = ElasticNet(float(reg.threshold) * problem.lam / lam)
    return replace(smoothed(problem, gamma), lam=lam, penalty=reg)


def inner_gap(inner: Problem, state: State, live: Array, pull: float) -> float:
    """The duality gap of an inner problem, including the proximal term of the intercept."""
    shifted = replace(inner, shift=inner.dtype.type(pull) * state["Y"][:, : inner.n_outputs])
    found = shifted.certificate(state["V"], live, state["dual"])
    gap = found.primal - found.dual
    if inner.intercept:
        kappa = 1.0 / (bias_step(inner, SHARE) * inner.n_samples)
        mean = weighted_sums(inner.sample_weight, state["dual"]) / inner.n_samples
        gap += 0.5 * kappa * float(np.sum((live - state["bias_center"]) ** 2, dtype=np.float64))
        gap += 0.5 * float(mean @ mean) / kappa + float(mean @ state["bias_center"])
    return max(gap, 0.0)


def conjugates(problem: Problem, dual: Array) -> float:
    """The weighted sum of the conjugate losses."""
    parts = run(
        lambda b, e: conjugate_rows(problem.targets, problem.sample_weight, problem.loss, dual, b, e),
        ranges(len(dual), ROWS),
        problem.n_threads,
    )
    return float(sum(parts))
