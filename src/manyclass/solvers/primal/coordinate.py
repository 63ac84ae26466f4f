"""Primal coordinate descent with working sets, for penalties with sparse solutions.

Each output is a problem of its own. One pass over the data gives the gradient of the mean loss, and with it the duality
gap. Then a working set is solved to a fraction of the largest violation: the features with nonzero weights, and as many
others, those closest to the bound |gradient| <= l1 (by distance in the dual: Massias, Gramfort & Salmon 2018). No
feature is screened out: every certificate is computed over all of them.

The squared loss is its own quadratic model. Other separable smooth losses are modelled by their second derivative at
the current scores, with a line search (prox-Newton: Lee, Sun & Saunders 2014). `manyclass.solvers.primal._columns`
minimizes the models: on a Gram matrix if the features are few, else by cyclic descent on the residuals with Anderson
extrapolation (Bertrand & Massias 2021). An unpenalized intercept is eliminated from every model exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import coordinate as kernels
from manyclass.kernels.rows import CSRRows
from manyclass.kernels.targets import RealTargets, SignTargets, SoftTargets, soft_matrix
from manyclass.objective.intercept import first_intercept, lone_intercept
from manyclass.objective.losses import SquaredLoss
from manyclass.objective.penalties import L1
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.threads import run
from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.primal._columns import FULL, MOST, ColumnView, Gram, Model, column_view

__all__ = ["CoordinateDescent", "largest_penalty"]

#: Lower bound on second derivatives, relative to their maximum: models must be strictly convex.
_FLOOR = 1e-4
#: Minimum number of features in a working set.
_LEAST = 100
#: Maximum size (128 MiB) of the `_Point` of all outputs, up to which they are kept and not computed twice.
_KEPT = 1 << 24


class _Point(NamedTuple):
    """One output at its weights: scores, negative gradient of the mean loss, primal and dual objective."""

    s: Array
    pull: Array
    primal: float
    dual: float


class CoordinateDescent(Solver):
    """Coordinate descent on the weights, for a separable smooth loss with an l1, elastic net or l2 penalty.

    An iteration solves a working set of every output whose gap is at least a tenth of the mean gap, and computes the
    certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass import LinearRegressor
    >>> from manyclass.solvers import CoordinateDescent
    >>> lasso = LinearRegressor(solver=CoordinateDescent(), alpha=1 / 3, l1_ratio=1.0, fit_intercept=False, tol=1e-9)
    >>> np.round(lasso.fit(np.eye(3), [3.0, -6.0, 0.5]).coef_, 6)
    array([ 2., -5.,  0.])
    """

    name = "cd"
    summary = "coordinate descent with working sets; fast with an l1 part and few outputs"
    synonyms = ("coordinate_descent", "liblinear", "celer")
    needs_loss = frozenset({"gradient", "conjugate", "smooth_gradient", "separate_outputs"})
    needs_penalty = frozenset({"prox"})
    certifies = True

    def state(self, problem: Problem) -> State:
        return {
            "iteration": np.zeros((), np.int64),
            "passes": np.zeros(()),
            "W": np.zeros((problem.n_features, problem.n_outputs), problem.dtype),
            "bias": first_intercept(problem),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        n, d, K = problem.n_samples, problem.n_features, problem.n_outputs
        held = {
            "weights": d * K * problem.dtype.itemsize,
            "scores and slopes": 8 * (12 * n + 6 * d) * problem.n_threads,
        }
        if isinstance(problem.rows, CSRRows):
            stored = problem.rows.data.nbytes + problem.rows.indices.nbytes + problem.rows.indptr.itemsize * d
            held["a copy of X in column order"] = stored
        held["Gram matrices"] = 3 * 8 * min(d, MOST) ** 2 * min(problem.n_threads, K)
        return held

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        work = _Work(problem)
        points: dict[int, _Point] = {}
        keep = problem.n_outputs * (problem.n_samples + problem.n_features) <= _KEPT
        sides = np.empty((problem.n_outputs, 2))

        def evaluate(k: int) -> None:
            point = work.evaluate(k, state["W"], state["bias"])
            sides[k] = point.primal, point.dual
            if keep:
                points[k] = point

        def improve(k: int) -> float:
            point = points.pop(k) if keep else work.evaluate(k, state["W"], state["bias"])
            passes = work.improve(k, state["W"], state["bias"], point)
            evaluate(k)
            return passes + (1.0 if keep else 2.0)

        outputs = [(k, k + 1) for k in range(problem.n_outputs)]
        run(lambda k, _: evaluate(k), outputs, problem.n_threads)
        # A warm start counts from zero, a resumed run continues the count.
        passes = 1.0 + (float(state["passes"]) if int(state["iteration"]) else 0.0)
        while True:
            gaps = sides[:, 0] - sides[:, 1]
            # The gaps of the other outputs sum to less than a tenth of the whole gap.
            live = [outputs[k] for k in np.flatnonzero(gaps >= 0.1 * gaps.mean())]
            passes += sum(run(lambda k, _: improve(k), live, problem.n_threads)) / problem.n_outputs
            iteration = int(state["iteration"]) + 1
            state["iteration"], state["passes"] = np.asarray(iteration, np.int64), np.asarray(passes)
            primal, dual = sides.sum(axis=0).tolist()
            yield Progress(iteration, passes, problem.bounds(primal, dual))

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        dual = np.empty((problem.n_samples, problem.n_outputs), problem.dtype)
        losses = problem.respond(state["W"], state["bias"], dual)
        return problem.certify(state["W"], state["bias"], losses, dual, np.empty_like(state["W"]))

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return state["W"], state["bias"]


class _Work:
    """What a run derives from the problem: columns, their norms, the strengths of l1 and l2 part."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.view: ColumnView = column_view(problem)
        self.loss = type(problem.loss)(*(float(value) for value in problem.loss))
        self.share = np.asarray(problem.sample_weight, np.float64) / problem.n_samples
        self.l2 = 0.0 if isinstance(problem.penalty, L1) else problem.lam
        self.l1 = problem.lam
        if self.l2:
            self.l1 *= float(getattr(problem.penalty, "threshold", 0.0))
        self.quadratic = isinstance(self.loss, SquaredLoss)
        self.few = few = problem.n_features <= (FULL if self.quadratic else FULL // 4)
        #: Norms of the columns; empty if all features are always in the working set.
        self.norms = np.zeros(0) if few else np.sqrt(self.view.norms(self.share))
        self.gram: Gram | None = self.view.gram(self.view.all, self.share) if few and self.quadratic else None
        targets = problem.targets
        #: What of each output is not a constant, by columns, and this constant.
        self.stored, self.constant = None, 0.0
        if isinstance(targets, SoftTargets):
            self.stored = soft_matrix(targets).astype(np.float64).tocsc()
        elif isinstance(targets, SignTargets):
            stored, self.constant = (np.ones(len(targets.indices)), targets.indices, targets.indptr), -1.0
            self.stored = sp.csr_matrix(stored, shape=(problem.n_samples, problem.n_outputs)).tocsc()

    def target(self, k: int) -> Array:
        if self.stored is not None:
            y = np.full(self.problem.n_samples, self.constant)
            part = slice(self.stored.indptr[k], self.stored.indptr[k + 1])
            y[self.stored.indices[part]] = self.stored.data[part]
            return y
        assert isinstance(self.problem.targets, RealTargets)
        return np.ascontiguousarray(self.problem.targets.y[:, k], np.float64)

    def penalty_value(self, w: Array) -> float:
        return float(self.l1 * np.abs(w).sum() + 0.5 * self.l2 * (w @ w))

    def evaluate(self, k: int, W: Array, bias: Array) -> _Point:
        """The `_Point` of output k, with scores recomputed from the weights."""
        w, y = W[:, k].astype(np.float64), self.target(k)
        support = np.flatnonzero(w)
        s = self.view.scores(support, w[support]) + float(bias[k])
        u = np.empty(len(s))
        kernels.slopes(self.loss, s, y, self.share, u)
        primal = kernels.value(self.loss, s, y, self.share) + self.penalty_value(w[support])
        if self.problem.intercept:
            self._balance(u)
        pull = -self.view.dots(u)
        return _Point(s, pull, primal, self._dual(u, y, pull))

    def _balance(self, u: Array) -> None:
        """Change u to sum 0 within the domain of phi*, in place (as `Problem.balance`)."""
        if self.problem.loss.free_dual:
            u -= self.share * (u.sum() / self.share.sum())
            return
        positive, negative = float(np.maximum(u, 0).sum()), float(np.maximum(-u, 0).sum())
        if positive > negative:
            u[u > 0] *= negative / positive
        elif negative > positive:
            u[u < 0] *= positive / negative

    def _dual(self, u: Array, y: Array, pull: Array) -> float:
        """The larger dual objective of u (if g* is finite there) and of u scaled until |X' u| <= l1."""
        largest = float(np.abs(pull).max(initial=0.0))
        found = []
        if self.l1 > 0.0 or largest == 0.0:
            scale = min(1.0, self.l1 / largest) if largest > 0 else 1.0
            found.append(-kernels.conjugate(self.loss, u, y, self.share, scale))
        if self.l2:
            excess = np.maximum(np.abs(pull) - self.l1, 0.0)
            found.append(-kernels.conjugate(self.loss, u, y, self.share, 1.0) - float(excess @ excess) / (2 * self.l2))
        return float(max(found))

    def improve(self, k: int, W: Array, bias: Array, point: _Point) -> float:
        """Solve a working set of output k in place; returns the number of passes over the data."""
        whole = W[:, k].astype(np.float64)
        violations = self.violations(whole, point.pull)
        worst = float(violations.max(initial=0.0))
        features = self.working_set(whole, point.pull, violations)
        enough = max(0.3 * worst, 1e-13 * float(np.abs(point.pull).max(initial=0.0)))
        y, w, s, b = self.target(k), whole[features], point.s, float(bias[k])
        u = np.empty(len(s))
        kernels.slopes(self.loss, s, y, self.share, u)
        passes, left = 0.0, worst
        for _ in range(1 if self.quadratic else 20):
            if self.quadratic:
                model, finish = Model(u, self.share, -point.pull[features], self.gram), enough
            else:
                h = np.empty(len(s))
                kernels.curvatures(self.loss, s, y, self.share, _FLOOR / self.loss.smoothness, h)
                # The model is an approximation: minimizing it to higher accuracy would not reduce the violation.
                model, finish = Model(u, h), max(enough, 0.1 * left)
            new, shift, cost = self.view.minimize(features, w, model, self.l1, self.l2, finish)
            passes += cost
            if self.quadratic:
                w, b = new, b + shift
                break
            step = self.view.scores(features, new - w) + shift
            t = self.search(s, y, step, u, w, new)
            if t == 0.0:
                break
            w, s, b = w + t * (new - w), s + t * step, b + t * shift
            kernels.slopes(self.loss, s, y, self.share, u)
            left = self.left(features, w, u)
            if left <= enough:
                break
        W[features, k] = w
        bias[k] = b
        return passes

    def violations(self, w: Array, pull: Array) -> Array:
        """The violation of the optimality condition of each weight: the distance of -gradient to the subgradients."""
        pull = pull - self.l2 * w if self.l2 else pull
        return np.where(w == 0.0, np.maximum(np.abs(pull) - self.l1, 0.0), np.abs(pull - self.l1 * np.sign(w)))

    def working_set(self, w: Array, pull: Array, violations: Array) -> Array:
        """The features with nonzero weights, and as many others, those closest to the bound |gradient| <= l1."""
        size = max(_LEAST, 2 * int(np.count_nonzero(w)))
        if self.few or size >= len(w) <= self.view.most:
            return self.view.all
        # A column of zeros has weight 0, except in a warm start: it is ranked last, or its weight is set to 0.
        norms = np.where(self.norms > 0.0, self.norms, 1.0)
        rank = np.where(self.norms > 0.0, (np.abs(pull) - self.l1) / norms, -np.inf)
        if size <= self.view.most:
            rank[w != 0.0] = np.inf
        else:
            size = int(self.view.most)
            rank = np.where(w == 0.0, rank, violations / norms)
        return np.sort(np.argpartition(-rank, size - 1)[:size])

    def left(self, features: Array, w: Array, u: Array) -> float:
        """The largest violation over ``features``, and of the intercept."""
        lean = abs(float(u.sum())) if self.problem.intercept else 0.0
        return max(lean, float(self.violations(w, -self.view.part(features, u)).max(initial=0.0)))

    def search(self, s: Array, y: Array, step: Array, u: Array, w: Array, new: Array) -> float:
        """The largest step size of 1, 1/2, 1/4, ... that meets the Armijo condition; 0 if there is none."""
        before = kernels.value(self.loss, s, y, self.share) + self.penalty_value(w)
        promised = float(u @ step) + self.penalty_value(new) - self.penalty_value(w)
        rounding = 1e-15 * abs(before)
        t = 1.0
        for _ in range(40):
            after = kernels.value(self.loss, s + t * step, y, self.share) + self.penalty_value(w + t * (new - w))
            if after <= before + 0.01 * t * min(promised, 0.0) + rounding:
                return t
            t *= 0.5
        return 0.0


def largest_penalty(problem: Problem) -> float:
    """The smallest strength of an l1 penalty for which W = 0 is optimal.

    That is max |dL/dW_jk| of the mean loss L at W = 0 and the intercept that is optimal there. W = 0 is optimal if
    ``lam`` of an `L1` problem, or ``lam * threshold`` of an `ElasticNet`, is at least this.

    Parameters
    ----------
    problem : Problem
        The problem; its penalty is not used.

    Returns
    -------
    float
        The strength, in the unit of ``lam``.

    Raises
    ------
    ValueError
        If the problem has an intercept and a joint loss (multinomial, Crammer-Singer).

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.kernels.rows import make_rows
    >>> from manyclass.kernels.targets import RealTargets
    >>> from manyclass.objective.losses import SquaredLoss
    >>> from manyclass.objective.problem import Problem
    >>> from manyclass.objective.penalties import L1
    >>> X, y = np.array([[1.0], [3.0]]), np.array([[0.0], [4.0]])
    >>> problem = Problem(make_rows(X), RealTargets(y, 1), SquaredLoss(), L1(), 1.0, n_features=1, intercept=True)
    >>> largest_penalty(problem)
    2.0
    """
    if problem.intercept and problem.loss.joint:
        raise ValueError(
            f"problem must have a separable loss or no intercept, got loss {problem.loss.name!r} with an intercept: "
            "set intercept=False, or use a separable loss (one-vs-rest)"
        )
    shape = problem.n_features, problem.n_outputs
    dual = np.empty((problem.n_samples, problem.n_outputs), problem.dtype)
    V = np.zeros(shape, problem.dtype)
    problem.respond(V, lone_intercept(problem), dual)
    if problem.intercept:
        problem.balance(dual)
    problem.dual_image(dual, V)
    return float(np.abs(V).max(initial=0.0)) * problem.lam
