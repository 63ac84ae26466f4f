"""FISTA: accelerated proximal gradient descent with backtracking and restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from manyclass.kernels import primal as kernels, respond
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Progress, State
from manyclass.solvers.primal.base import ROWS, BatchSolver, curvature, fill_scores, momentum, respond_to
from manyclass.solvers.primal.dense import sweep_nbytes
from manyclass.solvers.primal.descent import rounding

__all__ = ["FISTA"]


class FISTA(BatchSolver):
    """Accelerated proximal gradient descent (Beck & Teboulle 2009) with backtracking and adaptive restart.

    For a smooth loss and any penalty with a prox. With F = f + lam g, f the mean loss, each iteration takes

        y = x_k + (t_{k-1} - 1) / t_k (x_k - x_{k-1}),      x_{k+1} = prox_{lam g / L}(y - grad f(y) / L)

    with the smallest of L, 2 L, 4 L, ... for which, up to the rounding error of f,

        f(x_{k+1}) <= f(y) + <grad f(y), x_{k+1} - y> + (L/2) ||x_{k+1} - y||^2

    The momentum restarts, t = 1, if F(x_{k+1}) > F(x_k) (function scheme) or <y - x_{k+1}, x_{k+1} - x_k> > 0 (gradient
    scheme; O'Donoghue & Candes 2015). L is then halved, because the curvature may have become smaller, unless the steps
    are so short that rounding would decide the test of L.

    Scores are linear in the weights: those at y follow from those at x_k and x_{k-1}, which are kept (n x K each).
    Passes over the data: one per iteration (the gradient at y and the scores at x_{k+1}), one for each further L that
    is tried, and one at the start.

    Raises
    ------
    ValueError
        If the loss has a kink (hinge, Crammer-Singer with gamma = 0), or the penalty has no prox.

    References
    ----------
    Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems", SIAM J. Imaging
    Sciences 2009, section 4. O'Donoghue and Candes, "Adaptive restart for accelerated gradient schemes", Found. Comput.
    Math. 2015, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass import LinearRegressor
    >>> from manyclass.solvers import FISTA
    >>> X = np.random.default_rng(0).normal(size=(50, 5))
    >>> lasso = LinearRegressor(solver=FISTA(), alpha=0.1, l1_ratio=1.0).fit(X, X[:, 0] - 2 * X[:, 1])
    >>> np.flatnonzero(lasso.coef_).tolist()
    [0, 1]
    """

    name = "fista"
    summary = "accelerated proximal gradient descent"
    synonyms = ("apg", "proximal_gradient")
    needs_penalty = frozenset({"prox"})
    takes_standard = True

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        return {
            **state,
            "last": state["point"].copy(),
            "momentum": np.ones(()),
            "L": np.asarray(curvature(problem) / _OPTIMISM),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        return {
            "weights (the last two points, the next, the extrapolated one, a gradient)": 5
            * (problem.n_features + 1)
            * size,
            "scores at the last two points, gradients of the losses": 3 * problem.n_samples * size,
            **sweep_nbytes(problem),
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        if state["iteration"] == 0:  # a new run, possibly a warm start
            fresh = {"passes": 1.0, "momentum": 1.0, "L": curvature(problem) / _OPTIMISM}
            state.update({name: np.asarray(number) for name, number in fresh.items()})
            state["last"][:] = state["point"]
        start, new = np.empty_like(state["point"]), np.empty_like(state["point"])
        # Not in the state: a warm start may have other data, and so another objective.
        scores, earlier = np.empty_like(state["dual"]), np.empty_like(state["dual"])
        value = self._evaluate(problem, state["point"], scores)
        if state["iteration"] == 0:
            earlier[:] = scores
        else:
            self._evaluate(problem, state["last"], earlier)
        while True:
            point, last = state["point"], state["last"]
            beta, later = momentum(float(state["momentum"]))
            _extrapolate(point, last, beta, start)
            _extrapolate(scores, earlier, beta, state["dual"])
            smooth = self._respond(problem, start, state)
            taken = self._step(problem, state, start, new, earlier, smooth)
            L = taken.L
            if taken.value > value + taken.noise or taken.uphill > 0:
                later = 1.0
                # Where rounding decides the test any L passes, and the steps would become too long.
                if taken.quadratic > _TOLD * taken.noise:
                    L *= 0.5
            state["last"], state["point"] = point, new
            new = last
            scores, earlier = earlier, scores
            value = taken.value
            state["momentum"], state["L"] = np.asarray(later), np.asarray(L)
            yield self._ended(state, taken.tried)

    def _evaluate(self, problem: Problem, point: Array, scores: Array) -> float:
        """F at a point; writes its ``scores``."""
        W, bias = self._split(problem, point)
        fill_scores(problem, W, bias, scores)
        losses = run(
            lambda b, e: kernels.losses_at(problem.targets, problem.sample_weight, problem.loss, scores, b, e),
            ranges(problem.n_samples, ROWS),
            problem.n_threads,
        )
        return problem.objective(float(np.sum(losses)), problem.penalty_value(W))

    def _respond(self, problem: Problem, start: Array, state: State) -> float:
        """f at ``start``, whose scores in ``dual`` are replaced by the negative loss gradients; writes the slope."""
        losses = respond_to(problem, state["dual"])
        self._slope(problem, state)
        value = problem.objective(losses, problem.penalty_value(start[:-1]))
        return value - problem.lam * _penalty(problem, start)

    def _step(self, problem: Problem, state: State, start: Array, new: Array, scores: Array, smooth: float) -> _Step:
        """Write ``new``, the proximal step from ``start``, where f is ``smooth``, and its ``scores``."""
        pieces = ranges(len(start), ROWS)
        slope, point, reg = state["slope"], state["point"], problem.penalty
        noise = rounding(problem.dtype, smooth)
        # An upper bound on L (the smoothness of Crammer and Singer's loss is per output, hence K): it needs no test, so
        # that the search ends even if the rounding error of a small f exceeds ``noise``.
        safe = problem.n_outputs * curvature(problem)
        L, tried = min(float(state["L"]), safe), 0
        while True:
            step, penalty = 1.0 / L, problem.lam / L
            run(
                lambda b, e, step=step, penalty=penalty: kernels.proximal_step(  # type: ignore[misc]
                    start, slope, reg, step, penalty, new, b, e
                ),
                pieces,
                problem.n_threads,
            )
            sums = run(lambda b, e: kernels.step_sums(start, slope, new, point, b, e), pieces, problem.n_threads)
            linear, square, uphill = np.sum(np.asarray(sums), axis=0).tolist()
            value, tried = self._evaluate(problem, new, scores), tried + 1
            quadratic = 0.5 * L * square
            bound = smooth + linear + quadratic + noise
            if safe <= L or value - problem.lam * _penalty(problem, new) <= bound:
                return _Step(L, value, uphill, quadratic, noise, tried)
            L = min(2.0 * L, safe)


class _Step(NamedTuple):
    """L, F at the end, the test of the gradient scheme, (L/2) ||x - y||^2, rounding of f, number of L tried."""

    L: float
    value: float
    uphill: float
    quadratic: float
    noise: float
    tried: int


def _extrapolate(new: Array, old: Array, share: float, out: Array) -> None:
    """``out = new + share (new - old)``."""
    np.subtract(new, old, out=out)
    out *= share
    out += new


#: The first L is `curvature` divided by this: backtracking increases it if it is too small.
_OPTIMISM = 64.0
#: The test of L is meaningful if its quadratic term is at least this many times the rounding error of f.
_TOLD = 10.0


def _penalty(problem: Problem, point: Array) -> float:
    """g of the weights, without the shift of the problem, which is smooth and part of f."""
    pieces = ranges(problem.n_features, ROWS)
    return float(
        np.sum(run(lambda b, e: respond.penalty_value(point, problem.penalty, b, e), pieces, problem.n_threads))
    )
