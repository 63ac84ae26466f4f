"""Certificates of every loss, penalty, intercept and solver against the objective of better points.

Any point bounds the optimum from above, whoever found it, if its objective is evaluated by the definition of the loss
(`helpers.objective`, in float64): here the least of all solvers, of many more iterations and, for smooth losses, of
SciPy's L-BFGS-B. A dual value above it, or a gap below the difference to it, is a certificate that lies.

`nox -s certificates` adds the elastic net, a small penalty and float32, for which most kernels are compiled anew.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from helpers import Data, make_data, make_problem, objective
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.optimize.loop import minimize
from references import quasi_newton
from registry import LOSSES, SOLVERS

#: Whether everything is tested.
ALL = bool(os.environ.get("MANYCLASS_CERTIFICATES"))
PENALTIES = {"l2": L2(), "elastic_net": ElasticNet(0.25)}


def representable(data: Data) -> Data:
    """The same numbers in float32 and float64."""
    real = data.T.astype(np.float32).astype(np.float64) if data.T.dtype == np.float64 else data.T
    return data._replace(X=data.X.astype(np.float32).astype(np.float64), T=real)


def fits(case: Any, data: Data, penalty: Any, lam: float, intercept: bool, dtype: Any, max_iter: int) -> Any:
    """Name -> result, of every certified solver that takes the problem; those at the default of their parameters."""
    problem = make_problem(case.loss, data, reg=penalty, lam=lam, dtype=dtype, intercept=intercept)
    for name, solver in SOLVERS.items():
        if solver.certified:
            try:
                solver.prepare(problem)
            except ValueError:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                yield name, minimize(problem, solver, tol=0.0, max_iter=max_iter, check_every=1, seed=0)


@pytest.mark.slow  # every case compiles the kernels of all solvers for its loss
@pytest.mark.parametrize("lam", [0.05, 1e-4] if ALL else [0.05], ids=lambda lam: f"lam-{lam}")
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("penalty", PENALTIES if ALL else ["l2"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", ["float64", "float32"] if ALL else ["float64"])
def test_no_certificate_lies(loss, penalty, intercept, lam, dtype):
    case, reg = LOSSES[loss], PENALTIES[penalty]
    K = 1 if loss == "softplus_hinge" else 3
    data = representable(make_data(case.loss.targets, n=6, d=3, K=K, seed=3, weighted=True, density=0.8))
    found = [
        (name, result) for steps in (3, 40) for name, result in fits(case, data, reg, lam, intercept, dtype, steps)
    ]
    assert len({name for name, _ in found}) >= 2
    reached = {}
    for k, (_, result) in enumerate(found):
        W = result.weights.toarray() if sp.issparse(result.weights) else result.weights
        reached[k] = objective(case.formula, data, reg, lam, W, np.asarray(result.intercept, np.float64))
    best = min(value for value in reached.values() if np.isfinite(value))
    if case.loss.smoothness > 0:
        best = min(best, quasi_newton(case, data, reg, lam, intercept))
    for k, (name, result) in enumerate(found):
        certificate = result.certificate
        slack = 1e-12 * max(abs(best), 1e-12)
        assert abs(certificate.primal - reached[k]) <= max(certificate.resolution, 1e-12) * abs(reached[k]) + slack, (
            name
        )
        assert certificate.gap >= reached[k] - best - slack, name
        # What float32 claims: no relative gap below its resolution.
        assert certificate.relative_gap >= 32 * np.finfo(dtype).eps, name
        for record in result.history:
            assert record.dual <= best + max(certificate.resolution, 1e-12) * max(abs(best), 1e-12), (name, record)


@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.parametrize("loss", [name for name in LOSSES if "hinge" in name or "singer" in name])
def test_float32_says_how_well_it_knows_a_small_objective(loss, scale):
    """Hinge losses of separable rows: 1 minus a score keeps the rounding of a score, however small the objective is."""
    case, lam = LOSSES[loss], 1e-4
    for seed in range(10):
        data = make_data(case.loss.targets, n=40, d=60, K=1 if loss == "softplus_hinge" else 3, seed=seed)
        rows = scale * np.random.default_rng(seed).normal(size=data.X.shape)
        data = representable(data._replace(X=rows))
        problem = make_problem(case.loss, data, lam=lam, dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = minimize(problem, SOLVERS["sdca"], tol=0.0, max_iter=300, seed=0)
        exact = objective(case.formula, data, L2(), lam, result.weights, np.asarray(result.intercept, np.float64))
        certificate = result.certificate
        assert exact < 0.1
        assert abs(certificate.primal - exact) <= certificate.resolution * max(exact, certificate.primal)
