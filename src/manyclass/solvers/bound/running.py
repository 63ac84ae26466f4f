"""Curvatures of bound majorization to which batches of samples are added, and passes over batches that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from scipy import linalg

from manyclass.runtime.threads import ranges
from manyclass.solvers.bound.forms import Form
from manyclass.solvers.bound.labels import Labels
from manyclass.solvers.bound.low_rank import LowRankDiagonal
from manyclass.solvers.bound.steps import Steps, residuals, solve_definite

__all__ = [
    "Curvature",
    "LowRank",
    "OnlineCurvature",
    "Running",
    "batches",
    "default_batch",
    "low_rank_curvature",
    "online_pass",
    "printed_pass",
    "running_curvature",
]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Curvature(Protocol):
    """A curvature to which batches of samples are added, with a linear system to solve after each batch."""

    def add(self, part: Form, C: Array) -> None:
        """Add the curvature of some samples, with their matrices C."""

    def penalize(self, form: Form, lam: float, *, intercept: bool = False) -> None:
        """Add the Hessian of lam ||theta||^2 / 2, with ``intercept`` including the intercept."""

    def move(self, form: Form, slope: Array) -> Array:
        """The inverse of the curvature times a gradient; both have the shape of a point."""


class LowRank:
    """A `Curvature` of low rank plus a diagonal, k + 1 numbers for each number of a point.

    Adding a sample takes O(k K size) operations.

    Parameters
    ----------
    matrix : LowRankDiagonal
        The sum, changed in place.
    """

    def __init__(self, matrix: LowRankDiagonal) -> None:
        self.matrix = matrix

    @classmethod
    def zero(cls, form: Form, rank: int, *, safe: bool) -> LowRank:
        """The zero matrix; ``safe`` as in `LowRankDiagonal`."""
        return cls(LowRankDiagonal(np.zeros(form.shape[0] * form.shape[1]), rank, safe=safe))

    def add(self, part: Form, C: Array) -> None:
        """Add the curvature of some samples, with their matrices C."""
        for rows in part.factor_rows(C, len(self.matrix.rows)):
            self.matrix.add(rows)

    def penalize(self, form: Form, lam: float, *, intercept: bool = False) -> None:
        """Add the Hessian of lam ||theta||^2 / 2, with ``intercept`` including the intercept."""
        once = np.ones_like(form.penalized) if intercept else form.penalized
        self.matrix.diagonal += lam * np.broadcast_to(once, form.shape).reshape(-1)

    def move(self, form: Form, slope: Array) -> Array:
        """The inverse of the curvature times a gradient."""
        return self.matrix.solve(slope.reshape(-1)).reshape(form.shape)


class Running:
    """A curvature to which batches of samples are added, with a linear system to solve after each batch.

    For large batches the sum is kept, and factored after each; for small batches the inverse M is kept, and updated by
    Woodbury's formula: M - M Z (I + Z' M Z)^-1 Z' M.

    Parameters
    ----------
    matrix : ndarray of shape (size, size)
        The sum, changed in place, or its inverse.
    inverse : bool
        Whether ``matrix`` is the inverse.
    """

    def __init__(self, matrix: Array, inverse: bool) -> None:
        self.matrix, self.inverse = matrix, inverse

    @staticmethod
    def updates(form: Form, batch: int) -> bool:
        """Whether updating the inverse is cheaper for batches of this size."""
        labels = float(np.diff(form.offsets).mean()) if form.n else 1.0
        return batch * max(labels - 1.0, 1.0) < form.reduced / 6

    @staticmethod
    def first(form: Form, lam: float, inverse: bool) -> Array:
        """The first matrix: the Hessian of the penalty, including the intercept to be regular, or its inverse."""
        G = np.zeros((form.reduced, form.reduced))
        form.add_penalty(lam, G, intercept=True)
        return np.ascontiguousarray(linalg.inv(G)) if inverse else G

    def add(self, part: Form, C: Array) -> None:
        """Add the curvature of some samples, with their matrices C."""
        if not self.inverse:
            G = np.zeros_like(self.matrix)
            part.add_gram(C, 0, part.n, G)
            part.finish_gram(G)
            self.matrix += G
            return
        Y, T = part.times(self.matrix, C)
        T[np.diag_indices_from(T)] += 1.0
        half = linalg.solve_triangular(linalg.cholesky(T, lower=True), Y.T, lower=True).T
        # M is symmetric, so its transpose can be passed to BLAS, which uses column-major order, without a copy.
        self.matrix = linalg.blas.dgemm(-1.0, half, half, beta=1.0, c=self.matrix.T, trans_b=True, overwrite_c=True).T

    def penalize(self, form: Form, lam: float, *, intercept: bool = False) -> None:
        """Add the Hessian of lam ||theta||^2 / 2 to a sum."""
        form.add_penalty(lam, self.matrix, intercept=intercept)

    def solve(self, u: Array) -> Array:
        """The inverse of the curvature times ``u``."""
        if self.inverse:
            found: Array = self.matrix @ u
            return found
        return solve_definite(self.matrix.copy(), u)

    def move(self, form: Form, slope: Array) -> Array:
        """The inverse of the curvature times a gradient."""
        return form.expand(self.solve(form.reduce(slope)))


def running_curvature(form: Form, lam: float, batch: int, rank: int | None, *, safe: bool) -> Curvature:
    """The first curvature of a pass with batches of a given size: that of the penalty, including the intercept.

    ``rank``: that of a `LowRank` curvature, with ``safe`` as in `LowRankDiagonal`; None: the full one.
    """
    if rank is None:
        inverse = Running.updates(form, batch)
        return Running(Running.first(form, lam, inverse), inverse)
    found = LowRank.zero(form, rank, safe=safe)
    found.penalize(form, lam, intercept=True)
    return found


def low_rank_curvature(steps: Steps, S: Array, rank: int) -> LowRank:
    """An upper bound of low rank plus a diagonal on the bound of all samples; ``S`` are their scores."""
    form = steps.form
    found = LowRank.zero(form, rank, safe=True)
    found.penalize(form, steps.lam)
    for begin, end in form.pieces():
        found.add(form.take(np.arange(begin, end)), steps.labels(S, begin, end).blocks(1.0))
    # Keeps the diagonal positive: a parameter without any curvature has gradient 0 as well.
    matrix = found.matrix
    matrix.diagonal += 1e-6 * float((matrix.diagonal + np.einsum("ks,ks->s", matrix.rows, matrix.rows)).mean())
    return found


def batches(n: int, size: int, seed: Sequence[int]) -> list[Array]:
    """A random permutation of the samples, divided into batches of ``size``."""
    order = np.random.default_rng(list(seed)).permutation(n)
    return [order[b:e] for b, e in ranges(n, size)]


def online_pass(steps: Steps, point: Array, batches: Sequence[Array], running: Curvature) -> None:
    """One pass of steps M_t grad_t: grad_t is the gradient of batch t only, M_t the inverse of the sum of all bounds.

    For quadratic losses and a full curvature this is recursive least squares, which ends at the optimum. A step with a
    `LowRank` curvature that is too long for its batch is shortened. ``point`` and ``running``, at first the curvature
    of the penalty, are changed in place.
    """
    form = steps.form
    pull = steps.lam * form.penalized * point
    for index in batches:
        part, labels, slope = _batch(steps, point, index)
        running.add(part, labels.blocks(1.0))
        slope += pull
        pull = np.zeros_like(pull)
        move = running.move(form, slope)
        if isinstance(running, LowRank):
            move *= _shortened(part, labels, 1.0, move, slope)
        point -= move


class OnlineCurvature:
    """The sum of the curvatures of a stream of samples, and a point that is updated by it.

    Of the first samples, as many as there are parameters, the bound is added. Of later ones the share of the bound
    decreases as 1 / (samples so far), because a sum of loose bounds would make the steps too short. Every sample also
    adds its part of the penalty, so that the objective is a mean over the samples so far.

    Parameters
    ----------
    form : Form
        The first samples; later forms must have the same shape.
    rank : int, optional
        Rank of a curvature of low rank plus a diagonal; None: the full curvature.

    Attributes
    ----------
    point : ndarray
        The parameters, of shape ``form.shape``.
    curvature : Curvature
        The sum of the curvatures.
    seen : int
        Number of samples so far.
    """

    def __init__(self, form: Form, rank: int | None = None) -> None:
        self.point = np.zeros(form.shape)
        self.curvature: Curvature
        if rank is None:
            self.curvature = Running(np.zeros((form.reduced, form.reduced)), inverse=False)
        else:
            self.curvature = LowRank.zero(form, rank, safe=False)
        self.rank, self.seen = rank, 0

    def take(self, form: Form, lam: float, order: str, batch_size: int | None) -> None:
        """Update the point by some samples, in order; ``batch_size`` as in `BoundMajorization`."""
        steps = Steps(form, lam, order)
        for begin, end in ranges(form.n, batch_size or default_batch(form, self.rank)):
            part, labels, slope = _batch(steps, self.point, np.arange(begin, end))
            share = min(1.0, form.reduced / (self.seen + 1.0))
            self.curvature.add(part, labels.blocks(share))
            # The first batch penalizes the intercept too, as its samples may not determine it.
            self.curvature.penalize(form, lam * (end - begin), intercept=self.seen == 0)
            slope += lam * (end - begin) * form.penalized * self.point
            move = self.curvature.move(form, slope)
            if self.rank is not None:
                move *= _shortened(part, labels, share, move, slope)
            self.point = self.point - move
            self.seen += end - begin


def default_batch(form: Form, rank: int | None) -> int:
    """The number of samples of a step with which a curvature costs no more to invert than to sum."""
    return max(1, form.reduced // 3) if rank is None else _BATCH


#: Samples of a step with a curvature of low rank, whose cost hardly depends on it.
_BATCH = 16


def printed_pass(
    steps: Steps, point: Array, batches: Sequence[Array], running: Curvature, mean: Array, eta: float
) -> None:
    """One pass of Choromanska and Jebara's algorithm 2, with the corrections that `BoundMajorization` lists.

    Per sample point -= (eta / n) M_t mu_t, with mu_t the sum of the gradients so far, each at the point of its time.
    ``point``, ``mean``, which is mu, and ``running``, which is M, are changed in place.
    """
    form = steps.form
    for index in batches:
        share = len(index) / form.n
        part, labels, slope = _batch(steps, point, index)
        running.add(part, labels.blocks(1.0))
        slope += share * steps.lam * form.penalized * point
        mean += slope
        point -= eta * share * running.move(form, mean)


def _shortened(part: Form, labels: Labels, share: float, move: Array, slope: Array) -> float:
    """The factor, at most 1, of a step that is too long for a batch.

    A step of an upper bound satisfies move' C move <= slope' move, also with C the curvature of the last batch alone.
    """
    along = part.spread(part.scores(move, 0, part.n))
    bend = float(along @ labels.apply(share, along))
    return min(1.0, float(np.vdot(slope, move)) / bend) if bend > 0 else 1.0


def _batch(steps: Steps, point: Array, index: Array) -> tuple[Form, Labels, Array]:
    """The form of some samples, their labels at a point, and the gradient of their losses."""
    part = steps.form.take(index)
    inner = Steps(part, steps.lam, steps.order)
    labels = inner.labels(part.scores(point, 0, part.n), 0, part.n)
    slope = np.zeros_like(point)
    part.add_slope(part.gather(residuals(labels, part, 0, part.n)), 0, part.n, slope)
    return part, labels, slope
