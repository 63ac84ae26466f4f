"""Column access to sparse and dense rows for coordinate descent.

For a set of ``features`` a view computes products with X, and the minimum of a quadratic model

    u.delta + delta' diag(h) delta / 2 + l1 ||w||_1 + l2 ||w||^2 / 2,      delta = X (w - w_0) + shift,

over the weights w of these features and, with an intercept, over the shift, which is eliminated exactly. Sparse rows
are copied once into CSC format. Dense rows are not copied: their Gram matrix is computed in blocks of rows by BLAS, and
the cost of a coordinate step on it does not depend on the number of rows. Small sets of sparse features use a Gram
matrix too. With it the weights of a known support follow from one Cholesky factorization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dposv

from manyclass.kernels import columns, coordinate
from manyclass.kernels.rows import CSRRows, DenseRows, n_stored
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import row_matrix

__all__ = ["FULL", "ColumnView", "DenseColumns", "Gram", "Model", "SparseColumns", "column_view"]

#: Maximum number of features of a Gram matrix of dense rows: 128 MiB.
MOST = 4096
#: Maximum number of features that are all solved for at once, without choosing a working set. A quarter of it if the
#: Gram matrix changes from model to model.
FULL = 512
#: Maximum number of features of a Gram matrix of sparse rows.
MOST_SPARSE = 400
#: Elements of a block of dense rows (2 MiB in float64); features per task of a product with a vector.
_BLOCK, _FEATURES = 1 << 18, 1 << 14
#: Sparse rows after which a kernel returns to Python, which handles Ctrl-C.
_ROWS = 1 << 16
#: Epochs between two extrapolations.
_DEPTH = 5


class Gram:
    """``X' diag(h) X`` of some features, centered if there is an intercept."""

    def __init__(self, products: Array, moments: Array, spread: float) -> None:
        self.matrix = products
        #: With an intercept ``X' h`` and 1 / sum h; without one ``spread`` is 0, and ``moments`` is not used.
        self.moments = moments
        self.spread = spread

    def descend(self, w: Array, slope: Array, l1: float, l2: float, enough: float) -> None:
        """Minimize the model over ``w`` in place until violations are at most ``enough``.

        ``slope`` is the gradient without the penalties. Cyclic descent finds the support, Cholesky the weights on it.
        """
        G = self.matrix
        if l2:
            G = G.copy()
            G.flat[:: len(G) + 1] += l2
        slope = slope + l2 * w
        start, begin = slope.copy(), w.copy()
        everything = np.arange(len(w))
        for number in range(100):
            # The first epoch does not count: with similar columns it underestimates the violations that it leaves.
            if coordinate.gram_epochs(G, slope, w, l1, everything, 1) <= enough and number:
                return
            _settle(G, slope, w, l1)
            # `_settle` updates the gradient on the support only.
            slope[:] = start + G @ (w - begin)


def _settle(G: Array, slope: Array, w: Array, l1: float) -> None:
    """Approach the minimum over the support of ``w``: epochs that cost as much as a factorization, then `_jump`."""
    support = np.flatnonzero(w)
    if not len(support):
        return
    G, slope, inner = G[np.ix_(support, support)], slope[support], w[support]
    coordinate.gram_epochs(G, slope, inner, l1, np.arange(len(support)), 1 + len(support) // 12)
    _jump(G, slope, inner, l1)
    w[support] = inner


def _jump(G: Array, slope: Array, w: Array, l1: float) -> None:
    """Move ``w`` to the minimum for its signs, or, if a sign changes on the way, to the better of two truncations."""
    support = np.flatnonzero(w)
    if not len(support):
        return
    old, part = w[support], G if len(support) == len(w) else G[np.ix_(support, support)]
    rise = slope[support] + l1 * np.sign(old)
    step, failed = dposv(part, -rise)[1:]
    if failed:
        part = part.copy()
        part.flat[:: len(part) + 1] += 1e-9 * part.diagonal().max()
        step, failed = dposv(part, -rise)[1:]
        if failed:
            return
    turned = (old + step) * old < 0
    if l1 == 0.0 or not turned.any():
        w[support] = old + step
        return
    share = np.min(old[turned] / -step[turned])
    near = np.where(old / np.where(turned, -step, np.inf) == share, 0.0, old + share * step)
    far = np.where(turned, 0.0, old + step)

    def value(new: Array) -> float:
        move = new - old
        return float(slope[support] @ move + 0.5 * move @ (part @ move) + l1 * (np.abs(new).sum() - np.abs(old).sum()))

    w[support] = min((near, far), key=value)


class Model(NamedTuple):
    """A quadratic model of the mean loss as a function of the scores: gradient ``u``, diagonal Hessian ``h``.

    If known, ``slope`` is X' u of its features, with u centered if there is an intercept, and ``gram`` their Gram
    matrix.
    """

    u: Array
    h: Array
    slope: Array | None = None
    gram: Gram | None = None


class ColumnView(Protocol):
    """Interface of both views; ``all`` are all features, ``most`` is the maximum size of a working set."""

    all: Array
    most: float

    def norms(self, share: Array) -> Array:
        """``sum_i share_i x_ij^2`` for all features."""

    def dots(self, u: Array) -> Array:
        """``X' u`` for all features."""

    def part(self, features: Array, u: Array) -> Array:
        """``X' u`` for some features."""

    def scores(self, features: Array, w: Array) -> Array:
        """``X w`` for weights of some features."""

    def gram(self, features: Array, h: Array) -> Gram:
        """``X' diag(h) X`` of some features."""

    def minimize(
        self, features: Array, w: Array, model: Model, l1: float, l2: float, enough: float
    ) -> tuple[Array, float, float]:
        """Minimize a model; returns the weights of the features, the shift, and the number of passes over the data."""


def column_view(problem: Problem) -> ColumnView:
    return SparseColumns(problem) if isinstance(problem.rows, CSRRows) else DenseColumns(problem)


class SparseColumns:
    """Sparse rows, with a copy in CSC format."""

    most: float = np.inf

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.rows, CSRRows)
        self.rows = problem.rows
        self.n, self.d, self.intercept = problem.n_samples, problem.n_features, problem.intercept
        self.n_threads = problem.n_threads if problem.n_outputs == 1 else 1
        X = row_matrix(problem).tocsc()
        self.X = X.data, X.indices, X.indptr
        self.stored = max(1, n_stored(problem.rows))
        self.all = np.arange(self.d)

    def norms(self, share: Array) -> Array:
        return self._moments(self.all, share)[1]

    def _moments(self, features: Array, h: Array) -> tuple[Array, Array]:
        first, second = np.empty(len(features)), np.empty(len(features))
        columns.column_moments(*self.X, features, h, first, second)
        return first, second

    def dots(self, u: Array) -> Array:
        out = np.empty(self.d)
        run(
            lambda lo, hi: columns.column_dots(*self.X, self.all[lo:hi], u, out[lo:hi]),
            ranges(self.d, _FEATURES),
            self.n_threads,
        )
        return out

    def scores(self, features: Array, w: Array) -> Array:
        s = np.zeros(self.n)
        columns.add_columns(*self.X, features, w, s)
        return s

    def gram(self, features: Array, h: Array) -> Gram:
        place = np.full(self.d, -1, np.int64)
        place[features] = np.arange(len(features))
        G = np.zeros((len(features), len(features)))
        for begin, end in ranges(self.n, _ROWS):
            columns.row_gram(*self.rows, place, h, G, begin, end)
        G += np.tril(G, -1).T
        moments = self._moments(features, h)[0]
        spread = 1.0 / h.sum() if self.intercept else 0.0
        G -= spread * np.outer(moments, moments)
        return Gram(G, moments, spread)

    def minimize(
        self, features: Array, w: Array, model: Model, l1: float, l2: float, enough: float
    ) -> tuple[Array, float, float]:
        if model.gram is not None or len(features) <= MOST_SPARSE:
            return _on_gram(self, features, w, model, l1, l2, enough)
        return self._by_epochs(features, w, model.u, model.h, l1, l2, enough)

    def part(self, features: Array, u: Array) -> Array:
        out = np.empty(len(features))
        columns.column_dots(*self.X, features, u, out)
        return out

    def _by_epochs(
        self, features: Array, w: Array, u: Array, h: Array, l1: float, l2: float, enough: float
    ) -> tuple[Array, float, float]:
        """Cyclic descent on the residuals, with extrapolation on the support (Bertrand & Massias 2021, Algorithm 2)."""
        first, second = self._moments(features, h)
        spread = 1.0 / h.sum() if self.intercept else 0.0
        curvature = second - spread * first * first
        curvature[curvature < 1e-14 * second] = 0.0  # a constant column is 0 after centering, up to rounding
        indptr = self.X[2]
        sizes = (indptr[features + 1] - indptr[features]).astype(np.float64)
        flat = bool(np.all(h == h[0]))
        w, u, shift = w.copy(), u.copy(), -spread * float(u.sum())
        everything = np.arange(len(features))
        nothing = np.empty((0, 0))
        work = 1.0

        def epochs(positions: Array, keep_w: Array, keep_u: Array) -> tuple[float, float]:
            return columns.column_epochs(  # type: ignore[no-any-return]
                *self.X, features, positions, w, u, h, flat, first, curvature, spread, shift, l1, l2, keep_w, keep_u
            )

        def value(weights: Array, slope: Array, moved: float) -> float:
            whole = slope + moved * h
            square = np.divide(whole * whole, h, out=np.zeros(self.n), where=h > 0).sum()
            return float(0.5 * square + l1 * np.abs(weights).sum() + 0.5 * l2 * (weights @ weights))

        first_worst: float | None = None
        keep_u = np.empty((_DEPTH + 1, self.n + 1))
        for _ in range(100):
            worst, shift = epochs(everything, nothing, nothing)
            work += sizes.sum()
            if first_worst is None:
                first_worst = worst
            # As in `Gram.descend`, the first epoch does not count.
            if worst <= enough and worst <= 0.3 * first_worst:
                break
            support = np.flatnonzero(w)
            size = sizes[support].sum()
            keep_w = np.empty((_DEPTH + 1, len(support)))
            for _ in range(20):
                keep_w[0], keep_u[0, :-1], keep_u[0, -1] = w[support], u, shift
                worst, shift = epochs(support, keep_w[1:], keep_u[1:])
                work += _DEPTH * size
                mix = _mixture(keep_w)
                if mix is not None:
                    ahead, slope = mix @ keep_w[1:], mix @ keep_u[1:]
                    if value(ahead, slope[:-1], slope[-1]) < value(w[support], u, shift):
                        w[support], shift = ahead, float(slope[-1])
                        u[:] = slope[:-1]
                if worst <= 0.3 * enough:
                    break
        return w, shift, work / self.stored


class DenseColumns:
    """Dense rows, converted to float64 a block at a time."""

    most: float = MOST

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.rows, DenseRows)
        self.x = problem.rows.x
        self.n, self.d, self.intercept = problem.n_samples, problem.n_features, problem.intercept
        self.all = np.arange(self.d)
        self.means = np.zeros(self.d)
        if self.intercept:
            self.means = self.dots(np.asarray(problem.sample_weight, np.float64) / self.n)

    def _blocks(self, width: int) -> Iterator[tuple[slice, Array]]:
        size = max(256, _BLOCK // max(1, width))
        for begin, end in ranges(self.n, size):
            yield slice(begin, end), self.x[begin:end]

    def norms(self, share: Array) -> Array:
        total = np.zeros(self.d)
        for rows, x in self._blocks(self.d):
            block = np.asarray(x, np.float64)
            total += np.einsum("i,ij,ij->j", share[rows], block, block)
        return total

    def dots(self, u: Array) -> Array:
        total = np.zeros(self.d)
        for rows, x in self._blocks(self.d):
            total += u[rows] @ np.asarray(x, np.float64)
        return total

    def scores(self, features: Array, w: Array) -> Array:
        s = np.empty(self.n)
        for rows, x in self._blocks(len(features)):
            s[rows] = self._taken(x, features) @ w
        return s

    def _taken(self, x: Array, features: Array) -> Array:
        if len(features) == self.d:
            return np.asarray(x, np.float64)
        out = np.empty((len(x), len(features)))
        columns.gather(x, features, out)
        return out

    def gram(self, features: Array, h: Array) -> Gram:
        G = np.zeros((len(features), len(features)))
        moments = np.zeros(len(features))
        # A constant h (squared loss without sample weights) is multiplied in at the end.
        flat = bool(np.all(h == h[0]))
        root, means = np.ones(self.n) if flat else np.sqrt(h), self.means[features]
        for rows, x in self._blocks(len(features)):
            # Centered by approximate means, so that the correction by the exact ones below loses no digits.
            if flat and not self.intercept:
                block = self._taken(x, features)
            else:
                block = np.empty((len(x), len(features)))
                columns.gather_scaled(x, features, means, root[rows], block)
            if self.intercept:
                moments += root[rows] @ block
            G += block.T @ block
        if flat:
            G *= h[0]
            moments *= h[0]
        spread = 1.0 / h.sum() if self.intercept else 0.0
        G -= spread * np.outer(moments, moments)
        return Gram(G, moments + means * h.sum(), spread)

    def part(self, features: Array, u: Array) -> Array:
        total = np.zeros(len(features))
        for rows, x in self._blocks(len(features)):
            total += u[rows] @ self._taken(x, features)
        return total

    def minimize(
        self, features: Array, w: Array, model: Model, l1: float, l2: float, enough: float
    ) -> tuple[Array, float, float]:
        return _on_gram(self, features, w, model, l1, l2, enough)


def _on_gram(
    view: ColumnView, features: Array, w: Array, model: Model, l1: float, l2: float, enough: float
) -> tuple[Array, float, float]:
    gram, slope, passes = model.gram, model.slope, 0.0
    if gram is None:
        gram = view.gram(features, model.h)
        passes += len(features) / len(view.all)
    else:
        enough *= 1e-5  # steps on a known Gram matrix are cheap
    lean = float(model.u.sum())
    if slope is None:
        slope = view.part(features, model.u - gram.spread * lean * model.h)
        passes += 0.5 * len(features) / len(view.all)
    new = w.copy()
    gram.descend(new, slope, l1, l2, 0.1 * enough)
    return new, -gram.spread * (lean + float(gram.moments @ (new - w))), passes


def _mixture(kept: Array) -> Array | None:
    """Anderson extrapolation: coefficients with sum 1 that minimize the norm of the combined differences."""
    moves = np.diff(kept, axis=0)
    products = moves @ moves.T
    scale = float(np.trace(products))
    if not scale > 0:
        return None
    products.flat[:: len(products) + 1] += 1e-12 * scale
    solved, failed = dposv(products, np.ones(len(products)))[1:]
    total = solved.sum()
    return None if failed or not abs(total) > 0 else np.asarray(solved / total)
