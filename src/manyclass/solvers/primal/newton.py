"""Truncated Newton: the linear systems are solved inexactly by conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from manyclass.kernels import newton as kernels
from manyclass.kernels.sdca import weighted_sums
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Progress, State
from manyclass.solvers.primal.base import ROWS, constant, fill_scores, respond_to
from manyclass.solvers.primal.dense import sweep_nbytes
from manyclass.solvers.primal.descent import DescentSolver, Found, line_search, rounding

__all__ = ["Newton"]


class Newton(DescentSolver):
    """Truncated Newton for a smooth loss and a smooth penalty; the Hessian is never formed.

    The system H D = -g, with H v = X^T (c * phi''(S) X v) / n + lam v, is solved by conjugate gradients to a residual
    of at most a fraction of ||g|| that decreases with ||g|| (Eisenstat & Walker 1996, choice 2), so that convergence is
    superlinear. A loss whose gradient has kinks (smooth hinges, Huber) has a one-sided Hessian, with which the method
    is slower than others.

    The line search along D works on the scores, S + t X D, at no pass over the data; it ends when the slope is at most
    a tenth of that at the start. The objective decreases in every iteration.

    Passes over the data: one per Hessian-vector product, one per iteration for scores and gradient at the new point,
    and one at the start.

    Raises
    ------
    ValueError
        If the loss has a kink, or the penalty has no gradient (l1 and elastic net).

    References
    ----------
    Nocedal and Wright, "Numerical Optimization", 2nd edition, Springer 2006, algorithm 7.1. Eisenstat and Walker,
    "Choosing the forcing terms in an inexact Newton method", SIAM J. Scientific Computing 1996, equation 2.6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import Newton
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=Newton(), alpha=0.1, tol=1e-8).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-8)
    True
    """

    name = "newton"
    summary = "truncated Newton: Hessian-vector products, conjugate gradients"
    synonyms = ("newton_cg", "newton_cholesky", "trust_ncg")
    needs_loss = DescentSolver.needs_loss | {"hessian"}
    default_max_iter = 300  # smoothed hinges with gamma <= 0.1 were seen to take up to 263

    def state(self, problem: Problem) -> State:
        return {
            **self._first(problem),
            # The relative residual of the last system, and the norm of its gradient (0: there is none yet).
            "forcing": np.zeros(()),
            "size": np.zeros(()),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        return {
            "weights (two points, a gradient, a direction, three for conjugate gradients)": 7
            * (problem.n_features + 1)
            * size,
            "scores, scores of two directions, gradients of the losses": 4 * problem.n_samples * size,
            **sweep_nbytes(problem),
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        trial, gradient, direction, residual, search = (np.empty_like(state["point"]) for _ in range(5))
        scores, moves, along = (np.empty_like(state["dual"]) for _ in range(3))
        if state["iteration"] == 0:  # a new run, possibly a warm start
            state["passes"], state["forcing"], state["size"] = np.ones(()), np.zeros(()), np.zeros(())
        # Not in the state: a warm start may have other data, and so another objective.
        value = self._respond(problem, state["point"], state, scores, gradient)
        while True:
            size = math.sqrt(problem.inner_product(gradient, gradient))
            forcing = _forcing(size, float(state["size"]), float(state["forcing"]))
            passes = self._solve(problem, state, gradient, forcing, scores, direction, moves, along, residual, search)
            fall = problem.inner_product(gradient, direction)
            found = Found(0.0, value, 0)
            if fall < 0:
                found = self._search_scores(problem, state["point"], direction, scores, moves, value, fall)
            if found.step:
                np.multiply(direction, found.step, out=trial)
                np.add(trial, state["point"], out=trial)
                # Scores are recomputed, so that a resumed run gives the same bits and rounding does not accumulate.
                value = self._respond(problem, trial, state, scores, gradient)
                state["point"], trial = trial, state["point"]
                passes += 1
            state["size"], state["forcing"] = np.asarray(size), np.asarray(forcing)
            yield self._ended(state, passes, self._estimate(problem, gradient, value))

    def _respond(self, problem: Problem, point: Array, state: State, scores: Array, gradient: Array) -> float:
        """P at ``point``; writes its ``scores`` and its ``gradient``."""
        W, bias = self._split(problem, point)
        fill_scores(problem, W, bias, scores)
        state["dual"][:] = scores
        losses = respond_to(problem, state["dual"])
        self._slope(problem, state)
        self._add_penalty(problem, point, state, gradient)
        return problem.objective(losses, problem.penalty_value(W))

    def _solve(
        self,
        problem: Problem,
        state: State,
        gradient: Array,
        forcing: float,
        scores: Array,
        direction: Array,
        moves: Array,
        along: Array,
        residual: Array,
        search: Array,
    ) -> int:
        """Write ``direction`` with ``||H direction + gradient|| <= forcing ||gradient||``, and its scores ``moves``.

        Returns the number of products with H. ``along``, ``residual``, ``search``, and ``dual`` and ``slope`` of the
        state are overwritten.
        """
        bent = state["slope"]
        # The intercept is not penalized, and the loss may have no curvature along it (all margins outside the quadratic
        # part of a smooth hinge): a fraction of lam, which vanishes towards the optimum, keeps H positive definite.
        damping = forcing * problem.lam
        direction[:], moves[:] = 0, 0
        np.negative(gradient, out=residual)
        search[:] = residual
        square = problem.inner_product(residual, residual)
        enough = forcing * math.sqrt(square)
        for product in range(_PRODUCTS):
            if math.sqrt(square) <= enough:
                return product
            self._bend(problem, state, search, scores, along, damping)
            curved = problem.inner_product(search, bent)
            if not curved > 0:
                return product + 1  # rounding: without it the curvature is at least lam, or the damping
            step = square / curved
            _add(direction, search, step)
            _add(moves, along, step)
            _add(residual, bent, -step)
            old, square = square, problem.inner_product(residual, residual)
            search *= square / old
            search += residual
        return _PRODUCTS

    def _bend(self, problem: Problem, state: State, search: Array, scores: Array, along: Array, damping: float) -> None:
        """Set ``state["slope"] = H search``, and ``along`` to the scores of ``search``; one pass."""
        W, bias = self._split(problem, search)
        dual, bent = state["dual"], state["slope"]
        fill_scores(problem, W, bias, along)
        run(
            lambda b, e: kernels.bend_at(problem.targets, problem.loss, scores, along, dual, b, e),
            ranges(problem.n_samples, ROWS),
            problem.n_threads,
        )
        problem.pull(dual, bent[:-1])
        bent[:-1] += W
        bent[:-1] *= problem.lam
        bent[-1] = 0
        if problem.intercept:
            bent[-1] = constant(problem) / problem.n_samples * weighted_sums(problem.sample_weight, dual)
            bent[-1] += problem.dtype.type(damping) * search[-1]

    def _search_scores(
        self,
        problem: Problem,
        point: Array,
        direction: Array,
        scores: Array,
        moves: Array,
        value: float,
        fall: float,
    ) -> Found:
        """`line_search` along ``direction``, whose scores are ``moves``; takes no pass over the data."""
        pieces = ranges(problem.n_samples, ROWS)
        W, D = point[:-1], direction[:-1]
        flat = problem.penalty_value(W)
        tilt = problem.inner_product(W, D)
        if problem.shift is not None:
            tilt -= problem.inner_product(D, problem.shift)
        square = problem.inner_product(D, D)

        def evaluate(step: float) -> tuple[float, float]:
            parts = run(
                lambda b, e: kernels.slope_at(
                    problem.targets, problem.sample_weight, problem.loss, scores, moves, step, b, e
                ),
                pieces,
                problem.n_threads,
            )
            losses, slope = np.sum(np.asarray(parts), axis=0).tolist()
            penalty = flat + step * (tilt + 0.5 * step * square)
            return (
                problem.objective(float(losses), penalty),
                float(slope) / problem.n_samples + problem.lam * (tilt + step * square),
            )

        return line_search(evaluate, value, fall, rounding(problem.dtype, value), within=_WITHIN)


def _forcing(size: float, last: float, old: float) -> float:
    """The relative residual for the next system (Eisenstat & Walker 1996, equation 2.6, with their safeguards)."""
    if not last > 0:
        return _LOOSE
    chosen = 0.9 * (size / last) ** 2
    safe = 0.9 * old**2
    return min(_LOOSE, max(chosen, safe) if safe > 0.1 else chosen)


def _add(total: Array, part: Array, share: float) -> None:
    """``total += share * part`` without a temporary array of that size."""
    for begin, end in ranges(len(total), _PIECE):
        total[begin:end] += total.dtype.type(share) * part[begin:end]


#: Maximum Hessian-vector products per iteration; relative residual of the first system; ``within`` of the line search.
_PRODUCTS, _LOOSE, _WITHIN = 250, 0.25, 0.1
#: Rows per block in `_add`.
_PIECE = 128
