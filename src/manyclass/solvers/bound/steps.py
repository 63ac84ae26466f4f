"""Steps of bound majorization for any `Form`: gradients, curvatures of all samples, exact line searches.

    P(theta) = sum_i scale_i (log Z_i - log a_i(true)) + lam ||theta||^2 / 2

A step uses the curvature C = (1 - share) Hessian + share bound. With share = 1, the bound of Jebara and Choromanska
(2012), the quadratic model is an upper bound on P. With a smaller share the step is closer to Newton's, and needs a
line search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy import linalg

from manyclass.kernels import bound as kernels
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.bound.forms import PIECE, Form
from manyclass.solvers.bound.labels import Labels
from manyclass.solvers.bound.low_rank import nystrom, woodbury

__all__ = ["Line", "Steps", "low_rank_step", "next_share", "residuals", "solve_definite"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Maximum number of Newton iterations of an exact line search, and of halvings of one of its steps.
_NEWTON, _HALVINGS = 60, 40


class Steps:
    """Scores, gradients and curvatures of P at given points.

    Parameters
    ----------
    form : Form
        Features and labels.
    lam : float
        Strength of the penalty.
    order : {"ascending", "descending", "given"}
        See `Labels`.
    n_threads : int, default=1
        Number of threads of line searches; the result does not depend on it.
    """

    def __init__(self, form: Form, lam: float, order: str, n_threads: int = 1) -> None:
        self.form, self.lam, self.order, self.n_threads = form, lam, order, n_threads

    def scores(self, V: Array) -> Array:
        """The scores of all samples at a point, see `Form.scores`; one pass over the data."""
        return np.concatenate([self.form.scores(V, b, e) for b, e in ranges(self.form.n, PIECE)])

    def labels(self, S: Array, begin: int, end: int) -> Labels:
        """The `Labels` of a range of samples; ``S`` are the scores of all samples."""
        form = self.form
        L = form.measured(S[form.rows_of(begin, end)], begin, end)
        return Labels(L, form.offsets[begin : end + 1] - form.offsets[begin], form.scale[begin:end], self.order)

    def gradient(self, point: Array, S: Array, G: Array | None = None, share: float = 1.0) -> Array:
        """The gradient of P at a point with scores ``S``; one pass over the data.

        If given, ``G`` is set to the curvature with this ``share``, in reduced parameters.
        """
        form = self.form
        slope = self.lam * form.penalized * point
        if G is not None:
            G[:] = 0
        for begin, end in form.pieces():
            labels = self.labels(S, begin, end)
            form.add_slope(form.gather(residuals(labels, form, begin, end)), begin, end, slope)
            if G is not None:
                form.add_gram(labels.blocks(share), begin, end, G)
        if G is not None:
            form.finish_gram(G)
            form.add_penalty(self.lam, G)
        return slope

    def value(self, point: Array, S: Array) -> float:
        """P at a point with scores ``S``."""
        return self.line(point, S, [(np.zeros_like(point), np.zeros_like(S))])(np.zeros(1))[0]

    def products(self, S: Array, share: float, ways: Array) -> tuple[Array, Array]:
        """The curvature (without the penalty) times q points, of shape (q, rows, n_outputs), and its diagonal.

        One pass over the data with q times as many outputs.
        """
        form = self.form
        q, rows, outputs = ways.shape
        V = np.ascontiguousarray(ways.transpose(1, 0, 2)).reshape(rows, q * outputs)
        image = np.zeros_like(V)
        diagonal = np.zeros(form.shape)
        for begin, end in form.pieces():
            labels = self.labels(S, begin, end)
            moved = form.scores(V, begin, end).reshape(-1, q, outputs)
            turned = [
                form.gather(labels.apply(share, form.spread(np.ascontiguousarray(moved[:, j])))) for j in range(q)
            ]
            form.add_slope(np.hstack(turned), begin, end, image)
            form.add_diagonal(labels, share, begin, end, diagonal)
        return np.ascontiguousarray(image.reshape(rows, q, outputs).transpose(1, 0, 2)), diagonal

    def line(self, point: Array, S: Array, ways: Sequence[tuple[Array, Array]]) -> Line:
        """P on the plane through a point along some ``ways``: directions, each with its scores."""
        return Line(self, point, S, ways)


def residuals(labels: Labels, form: Form, begin: int, end: int) -> Array:
    """The gradients of the scaled losses with respect to the scores of the labels, flat."""
    r: Array = labels.p * np.repeat(labels.scale, np.diff(labels.offsets))
    r[form.true[begin:end] - form.offsets[begin]] -= labels.scale
    return r


class Line:
    """The function t -> P(point + sum_q t_q V_q), computed from scores without a pass over the data."""

    def __init__(self, steps: Steps, point: Array, S: Array, ways: Sequence[tuple[Array, Array]]) -> None:
        form = steps.form
        self.steps, self.size = steps, len(ways)
        self._L = np.concatenate(
            [form.measured(S[form.rows_of(b, e)], b, e) for b, e in ranges(form.n, PIECE)] or [np.empty(0)]
        )
        self._D = np.stack([form.spread(scores) for _, scores in ways])
        moves = [form.penalized * V for V, _ in ways]
        self._bends = steps.lam * np.array([[np.vdot(v, u) for u in moves] for v in moves])
        self._tilts = steps.lam * np.array([np.vdot(v, point) for v in moves])
        self._penalty = 0.5 * steps.lam * float(np.vdot(form.penalized * point, point))

    def __call__(self, t: Array) -> tuple[float, Array, Array]:
        """P, and its gradient and Hessian with respect to t."""
        form, q = self.steps.form, self.size

        def part(begin: int, end: int) -> Array:
            gradient, hessian = np.empty(q), np.empty((q, q))
            value = kernels.along(
                self._L,
                self._D,
                t,
                form.true[begin:end],
                form.offsets[begin : end + 1],
                form.scale[begin:end],
                gradient,
                hessian,
            )
            return np.concatenate([[value], gradient, hessian.ravel()])

        parts = run(part, ranges(form.n, PIECE), self.steps.n_threads)
        found = np.sum(parts, axis=0)
        value = float(found[0]) + self._penalty + float(t @ self._tilts) + 0.5 * float(t @ self._bends @ t)
        gradient = found[1 : 1 + q] + self._tilts + self._bends @ t
        return value, gradient, found[1 + q :].reshape(q, q) + self._bends

    def minimum(self, start: Array) -> tuple[Array, float, float]:
        """The minimizer t, P there, and P at t = 0; by Newton's method with step halving from ``start``."""
        first, gradient, hessian = self(np.zeros(self.size))
        t, value = np.zeros(self.size), first
        tried = self(start)
        if tried[0] < value:
            t, (value, gradient, hessian) = start, tried
        for _ in range(_NEWTON):
            step = -_solve_small(hessian, gradient)
            fall = float(-gradient @ step)
            if not fall > 1e-10 * max(first - value, 0.0) + 4e-16 * abs(value):
                break
            for _ in range(_HALVINGS):
                tried = self(t + step)
                if tried[0] <= value - 1e-4 * fall:
                    break
                step, fall = 0.5 * step, 0.5 * fall
            else:
                break
            t, (value, gradient, hessian) = t + step, tried
        return t, value, first


def _solve_small(hessian: Array, gradient: Array) -> Array:
    """H^-1 g, or the solution of minimum norm if H is singular (linearly dependent directions)."""
    size = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    found: Array = (
        np.linalg.pinv(hessian / np.outer(size, size), rcond=1e-12, hermitian=True) @ (gradient / size) / size
    )
    return found


def solve_definite(G: Array, u: Array) -> Array:
    """``G^-1 u`` for a symmetric positive semidefinite G, which may be overwritten.

    If G is not numerically positive definite, 10^-14, 10^-13, ... times its mean diagonal is added to the diagonal.
    """
    if not u.size:  # SciPy 1.11 refuses a system of no equations
        return u
    diagonal = G.diagonal().copy()
    for power in range(-14, 1):
        try:
            factor = linalg.cholesky(G.T, lower=False, overwrite_a=False, check_finite=False)
            found: Array = linalg.cho_solve((factor, False), u, check_finite=False)
            return found
        except linalg.LinAlgError:
            ridge = 10.0**power * (float(diagonal.mean()) or 1.0)
            np.fill_diagonal(G, diagonal + ridge)
    raise ValueError("the curvature must be finite, got NaN or infinity: scale the features")


def next_share(share: float, step: float) -> float:
    """The share of the bound in the next curvature, after a line search that ended at step size ``step``."""
    return share / 10.0 if step > 0.5 else min(1.0, 3.0 * share + 1e-3)


def low_rank_step(steps: Steps, state: dict[str, Array], seed: int) -> None:
    """One iteration with a low-rank plus diagonal curvature, and an exact search over two directions.

    ``state`` has "point" and its "scores", "move" and "move_scores" of the last iteration, the "basis" of the curvature
    (k points), and the "share" of the bound. With basis V and curvature A, the low-rank part is the Nystrom
    approximation A V (V'A V)^-1 V'A <= A, the diagonal is that of the remainder, and the next basis spans A V.
    """
    form, point, S = steps.form, state["point"], state["scores"]
    size, share = point.size, float(state["share"])
    basis = state["basis"].reshape(len(state["basis"]), -1)
    if not basis.any():
        basis = _orthonormal(np.random.default_rng([seed]).normal(size=basis.shape))
    slope = steps.gradient(point, S)
    products, diagonal = steps.products(S, share, basis.reshape(-1, *form.shape))
    products, diagonal = products.reshape(len(basis), size), diagonal.reshape(size)
    rows = nystrom(basis, products)
    rest = np.maximum(diagonal - np.einsum("ks,ks->s", rows, rows), _REST * diagonal)
    penalty = steps.lam * np.broadcast_to(form.penalized, form.shape).reshape(size)
    rest += penalty
    # Keeps the diagonal positive: a parameter without any curvature has gradient 0 as well.
    rest += _REST**2 * (float(rest.mean()) or 1.0)
    move = -woodbury(rest, rows, slope.reshape(size)).reshape(form.shape)
    ways = [(move, steps.scores(move))]
    if state["move"].any():
        ways.append((state["move"], state["move_scores"]))
    t, _, _ = steps.line(point, S, ways).minimum(np.eye(len(ways))[0])
    moved, scores = (sum(a * way[part] for a, way in zip(t, ways)) for part in (0, 1))
    state.update(
        point=point + moved,
        scores=S + scores,
        move=np.asarray(moved),
        move_scores=np.asarray(scores),
        basis=_orthonormal(products).reshape(state["basis"].shape),
        share=np.asarray(next_share(share, float(t[0]))),
    )


def _orthonormal(rows: Array) -> Array:
    """An orthonormal basis of the span of the rows, as rows."""
    return np.ascontiguousarray(np.linalg.qr(rows.T)[0].T)


#: Lower bound on the diagonal of the remainder, relative to that of the curvature; differences below it are rounding.
_REST = 1e-3
