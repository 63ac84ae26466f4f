"""How ill-conditioned a problem is for dual ascent, and whether acceleration is expected to pay."""

from __future__ import annotations

import numpy as np

from manyclass.objective.losses import CrammerSingerLoss
from manyclass.objective.problem import Problem

__all__ = ["condition", "is_ill_conditioned", "largest_kappa"]

#: Minimum number of rows for which Crammer and Singer's loss and the hinge are accelerated; of rows per feature for a
#: loss that is not smooth: 20 Newsgroups and RCV1 with fewer take 2 to 4 times as long as by SDCA, a9a and dense data
#: with more do not. With an intercept and a worse condition than the third number the hinge is accelerated all the
#: same: 77 intents, alpha 1e-6, 461 iterations and 24 s, where SDCA has a gap of 3e-3 after 1000 and 21 s.
_MANY, _ROWS_PER_FEATURE, _HARD = 300, 2, 50.0


def condition(problem: Problem, gamma: float) -> float:
    """R^2 / (gamma lam n), with R^2 = max_i c_i ||x_i||^2."""
    radius = float((np.asarray(problem.sample_weight) * problem.norms).max(initial=0.0))
    return radius * problem.inv_lam_n / gamma


def is_ill_conditioned(problem: Problem) -> bool:
    """Whether acceleration is expected to be faster: R^2 / (gamma lam n) > 10.

    For `CrammerSingerLoss` and for a loss that is not smooth, whose gamma decreases, R^2 / (lam n) > 10 decides, from
    `_MANY` rows on; without smoothness also the number of rows: with few rows per feature, which can be separated
    by a wide margin, plain SDCA is faster, but for the hinge with an intercept and R^2 / (lam n) > 50. The thresholds
    are rules of thumb, see docs/choosing.md.
    """
    gamma = float(problem.loss.smoothness)
    few = problem.n_samples < _MANY
    if few and (isinstance(problem.loss, CrammerSingerLoss) or not gamma):
        return False
    if not gamma and problem.n_samples < _ROWS_PER_FEATURE * problem.n_features:
        return problem.intercept and not problem.loss.joint and condition(problem, 1.0) > _HARD
    return condition(problem, 1.0 if isinstance(problem.loss, CrammerSingerLoss) else gamma or 1.0) > 10.0


def largest_kappa(problem: Problem, gamma: float) -> float:
    """R^2 / (gamma n) - lam, at least 0."""
    return max((condition(problem, gamma) - 1.0) * problem.lam, 0.0)
