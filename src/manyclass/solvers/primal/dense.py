"""Passes over dense rows: two matrix products for each block of rows, on threads that call the BLAS.

Rows are divided into shards, a shard into blocks that stay in the cache between the two products. A thread takes whole
shards, whose sums are added in their order: results do not depend on the number of threads, which is that of the fit
(``n_jobs``) or, if larger, that of the BLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import DenseRows
from manyclass.kernels.targets import ClassTargets, SoftTargets, Targets, alike, of_rows, soft_matrix
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.objective.respond import responder
from manyclass.runtime.threads import blas_threads, ranges, run, single_blas

__all__ = [
    "Measure",
    "Sweep",
    "at_zero",
    "certify",
    "changes_along",
    "set_image",
    "suits_sweep",
    "sweep",
    "sweep_nbytes",
    "those",
]

#: Bytes of a block of rows.
_BLOCK = 1 << 20
#: Every so many rows tell of the objective along a direction, from so many rows on.
_EVERY, _LEAST = 16, 1 << 13
#: Arrays of scores of these rows: at the weights, of the direction, that weighted, and gradients.
_SCORES = 4
#: Most shards; fewest multiply-adds in one; rows of a shard per feature, so that the sums of all shards together take
#: at most half of the memory of the gradients of the losses.
_SHARDS, _WORK, _ROWS_PER_FEATURE = 32, 1 << 22, 4


class Sweep(NamedTuple):
    """What a pass finds.

    Attributes
    ----------
    losses : float
        The weighted sum of the losses.
    image : ndarray of shape (d, K)
        ``X' (c * a)`` in float64, with the negative gradients a of the losses.
    sums : ndarray of shape (K,)
        ``sum_i c_i a_i`` in float64.
    measured : float
        The sum of ``measure`` over all rows, estimated from the first block of each shard.
    """

    losses: float
    image: Array
    sums: Array
    measured: float


#: A number for m rows, from the negative gradients of their losses (m, K), their sample weights, and their targets: an
#: array of classes, a CSR matrix of distributions, or None.
Measure = Callable[[Array, Array, Any], float]


def suits_sweep(problem: Problem) -> bool:
    """Whether the rows of a problem are dense, as they are."""
    return isinstance(problem.rows, DenseRows) and problem.standard is None


def _rows(problem: Problem) -> Array:
    assert isinstance(problem.rows, DenseRows)
    return problem.rows.x


def _shards(problem: Problem) -> int:
    n, d = problem.n_samples, problem.n_features
    work = n * d * problem.n_outputs
    return max(1, min(_SHARDS, n // max(1, _ROWS_PER_FEATURE * d), work // _WORK))


def sweep_nbytes(problem: Problem) -> dict[str, int]:
    """Size in bytes of the sums of a pass, a product for each thread and a total for each shard, by a description.

    With what comes before and between passes: a gradient for each class, scores of some rows.
    """
    if not suits_sweep(problem):
        return {}
    shards = _shards(problem)
    weights = problem.n_features * problem.n_outputs
    threads = min(shards, max(problem.n_threads, blas_threads()))
    K, n = problem.n_outputs, problem.n_samples
    other = max(K * K if _has_short_cut(problem) else 0, _SCORES * K * -(-n // _EVERY) if n >= _LEAST else 0)
    return {
        "sums of a pass over the rows": weights * (8 * (shards + 1) + problem.dtype.itemsize * threads),
        "gradients of the classes, scores of every sixteenth row": problem.dtype.itemsize * other,
    }


def sweep(
    problem: Problem, dual: Array, weights: tuple[Array, Array] | None = None, measure: Measure | None = None
) -> Sweep:
    """One pass over dense rows.

    Parameters
    ----------
    problem : Problem
        One for which `suits_sweep`.
    dual : ndarray of shape (n, K)
        With ``weights`` it is set to the negative gradients of the losses there; else they are given.
    weights : tuple of W and b, optional
        Weights, and intercept.
    measure : callable, optional
        See `Measure`.
    """
    x, c, K = _rows(problem), np.asarray(problem.sample_weight), problem.n_outputs
    flat, real = bool(np.all(c == 1)), problem.dtype
    respond = responder(problem.loss, problem.targets)
    size = max(16, _BLOCK // max(1, problem.n_features * real.itemsize))

    def shard(first: int, last: int) -> Sweep:
        losses = measured = 0.0
        total, sums = np.zeros((K, problem.n_features)), np.zeros(K)
        product = np.empty(total.shape, real)
        for begin in range(first, last, size):
            end = min(begin + size, last)
            block, a = np.asarray(x[begin:end], real), dual[begin:end]
            if weights is not None:
                np.matmul(block, weights[0], out=a)
                if problem.intercept:
                    a += weights[1]
                losses += float(respond(problem.targets, problem.sample_weight, problem.loss, dual, begin, end))
                if measure is not None and begin == first:
                    found = measure(a, c[begin:end], those(problem.targets, slice(begin, end)))
                    measured = found * (last - first) / (end - begin)
            if not flat:
                a = c[begin:end, None] * a
            total += np.matmul(a.T, block, out=product)
            if problem.intercept:
                sums += a.sum(axis=0, dtype=np.float64)
        return Sweep(losses, total.T, sums, measured)

    pieces = ranges(problem.n_samples, max(1, -(-problem.n_samples // _shards(problem))))
    with single_blas():
        found = run(shard, pieces, max(problem.n_threads, blas_threads()))
    image, sums = found[0].image, found[0].sums
    for part in found[1:]:
        image += part.image
        sums += part.sums
    return Sweep(sum(part.losses for part in found), image, sums, sum(part.measured for part in found))


def set_image(problem: Problem, image: Array, V: Array) -> None:
    """Set ``V`` to the dual image of the negative gradients whose `Sweep` has this ``image``."""
    np.multiply(image, problem.inv_lam_n, out=V, casting="same_kind")
    if problem.shift is not None:
        V += problem.shift


def those(targets: Targets, rows: slice) -> Any:
    """The targets of some rows as a `Measure` takes them."""
    if isinstance(targets, SoftTargets):
        return soft_matrix(targets)[rows]
    return targets.y[rows] if isinstance(targets, ClassTargets) else None


def _has_short_cut(problem: Problem) -> bool:
    return isinstance(problem.targets, ClassTargets) and problem.n_samples >= 4 * problem.n_outputs


def at_zero(problem: Problem, bias: Array, measure: Measure | None = None) -> Sweep | None:
    """`sweep` at weights of zero, for classes: all rows of a class have the same gradient; None: there is no short cut.

    Takes one addition for each value of the rows.
    """
    targets, K = problem.targets, problem.n_outputs
    if not _has_short_cut(problem) or not isinstance(targets, ClassTargets):
        return None
    x, c = _rows(problem), np.asarray(problem.sample_weight)
    sums = np.zeros((K, problem.n_features))
    size = max(16, _BLOCK // max(1, problem.n_features))
    for begin, end in ranges(problem.n_samples, size):
        members = sp.csc_matrix(
            (c[begin:end].astype(problem.dtype), targets.y[begin:end], np.arange(end - begin + 1)), (K, end - begin)
        )
        sums += members @ np.asarray(x[begin:end], problem.dtype)
    mass = np.bincount(targets.y, weights=c, minlength=K)
    a = np.tile(bias.astype(problem.dtype), (K, 1)) if problem.intercept else np.zeros((K, K), problem.dtype)
    classes = ClassTargets(alike(targets.y, np.arange(K)), K)
    losses = responder(problem.loss, classes)(classes, alike(c, mass), problem.loss, a, 0, K)
    measured = 0.0 if measure is None else measure(a, mass, classes.y)
    return Sweep(float(losses), sums.T @ a, mass @ a, measured)


def certify(problem: Problem, W: Array, bias: Array, dual: Array, V: Array, found: Sweep | None = None) -> Certificate:
    """The certificate at ``(W, b)``; overwrites ``dual`` (n, K) and ``V`` (d, K).

    ``found``, if given, is the `sweep` there, and ``dual`` what it has written.
    """
    if not suits_sweep(problem):
        return problem.certify(W, bias, problem.respond(W, bias, dual), dual, V)
    if found is None:
        found = sweep(problem, dual, (W, bias))

    def image(dual: Array, V: Array) -> None:  # an intercept has changed the dual vectors
        set_image(problem, sweep(problem, dual).image if problem.intercept else found.image, V)

    return problem.certify(W, bias, found.losses, dual, V, image)


def changes_along(
    problem: Problem, weights: tuple[Array, Array], direction: tuple[Array, Array]
) -> Callable[[float], tuple[float, float]] | None:
    """How the mean loss bends along a direction, by every sixteenth row; None: there are too few rows.

    Returns a function of t: the mean loss of these rows at t less its linear approximation at 0, and the derivative.

    Parameters
    ----------
    problem : Problem
        One for which `suits_sweep`.
    weights, direction : tuple of W and b
        The weights at t = 0, and by what they change.
    """
    x, c = _rows(problem)[::_EVERY], alike(problem.sample_weight, np.asarray(problem.sample_weight)[::_EVERY])
    total = float(c.sum(dtype=np.float64))
    if problem.n_samples < _LEAST or not total > 0:
        return None
    targets = of_rows(problem.targets, np.arange(0, problem.n_samples, _EVERY))
    respond = responder(problem.loss, problem.targets)

    def scores(W: Array, bias: Array) -> Array:
        S = np.empty((len(x), problem.n_outputs), problem.dtype)
        run(
            lambda b, e: np.matmul(np.asarray(x[b:e], problem.dtype), W, out=S[b:e]),
            ranges(len(S), -(-len(S) // 8)),
            max(problem.n_threads, blas_threads()),
        )
        return S + bias if problem.intercept else S

    with single_blas():
        S, moves = scores(*weights), scores(*direction)
    weighted = c[:, None] * moves

    def at(t: float) -> tuple[float, float]:
        a = S + problem.dtype.type(t) * moves
        losses = float(respond(targets, c, problem.loss, a, 0, len(a)))
        return losses / total, -problem.inner_product(a, weighted) / total

    loss, slope = at(0.0)

    def change(t: float) -> tuple[float, float]:
        later, steeper = at(t)
        return later - loss - t * slope, steeper - slope

    return change
