"""Stochastic steps of softmax regression with the rows of a window, on the weights of a block of classes."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import get_blas_funcs

from manyclass.kernels import block_sgd
from manyclass.kernels.rows import CSRRows, make_rows
from manyclass.solvers.base import PLAIN
from manyclass.solvers.out_of_core.state import BlockState

__all__ = ["Schedule", "accumulate", "batch_of", "curvature", "steps_of", "visit"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Maximum batch size for dense rows: enough for efficient matrix products.
_BATCH = 64
#: Minimum number of steps per pass for batches of more than one row.
_LEAST = 512
#: For dense rows the mean is over every eighth step.
_MEAN_EVERY = 8
#: Multiply-adds after which the kernel returns to Python, which handles Ctrl-C: about a second.
_WORK = 2e9


class Schedule(NamedTuple):
    """Step sizes ``eta_t = rate (1 + decay t)^-power``, for the sum of the gradients of a batch."""

    rate: float
    decay: float
    power: float
    lam: float  # strength of the penalty
    gain: float  # factor of the step size of the intercept; 0: there is no intercept
    batch: int  # rows per step

    def sizes(self, first: int, count: int) -> Array:
        """The step sizes of ``count`` steps from ``first`` on."""
        found: Array = self.rate * (1.0 + self.decay * (first + np.arange(count))) ** -self.power
        return found


def batch_of(rows: int, dense: bool) -> int:
    """The batch size for a number of rows in all; 1 for sparse rows."""
    return min(_BATCH, max(1, rows // _LEAST)) if dense else 1


def steps_of(rows: int, batch: int) -> int:
    """The number of steps for the rows of a window."""
    return -(-rows // batch)


def curvature(X: Any, weights: Array, batch: int) -> tuple[float, float]:
    """The maximum curvature of the loss of a batch along the weights, and, per unit of gain, along the intercept.

    For sparse rows max c_i ||x_i||^2 / 2 and max c_i / 2. For batches of dense rows half the largest eigenvalue of
    X' diag(c) X, estimated from some of the batches: slightly too long steps do no harm.
    """
    if not isinstance(X, np.ndarray):
        before = np.zeros(len(X.data) + 1)
        np.cumsum(np.square(X.data, dtype=np.float64), out=before[1:])
        squares = before[X.indptr[1:]] - before[X.indptr[:-1]]
        return float((weights * squares).max(initial=0.0)) / 2, float(weights.max(initial=0.0)) / 2
    largest = ones = 0.0
    for begin in range(0, len(X), max(batch, len(X) // max(4, 256 // batch))):
        c = weights[begin : begin + batch]
        part = np.asarray(X[begin : begin + batch], np.float64) * np.sqrt(c)[:, None]
        largest = max(largest, float(np.linalg.eigvalsh(part @ part.T)[-1]))
        ones = max(ones, float(c.sum()))
    return largest / 2, ones / 2


def visit(
    X: Any,
    y: Array,
    lo: int,
    weights: Array,
    others: Array,
    order: Array,
    state: BlockState,
    schedule: Schedule,
    first: int,
    averaged: float,
) -> Array:
    """Take steps with all rows of a window, in the given order.

    Parameters
    ----------
    X : CSR matrix or ndarray of shape (n, d)
        The rows.
    y : int32 ndarray of shape (n,)
        Their classes.
    lo : int
        First class of the block.
    weights, others : float64 ndarray of shape (n,)
        Sample weights, and log-sum-exps of the scores in the other blocks.
    order : int32 ndarray of shape (n,)
        Order of the rows.
    state : BlockState
        Weights of the block; changed in place.
    schedule : Schedule
        Step sizes.
    first : int
        Number of the first step.
    averaged : float
        Number of points in the mean so far; 0: there is no mean.

    Returns
    -------
    ndarray of shape (n,)
        The log-sum-exp of the scores of each row in this block, just before its step.
    """
    if isinstance(X, np.ndarray):
        return _visit_dense(X, y, lo, weights, others, order, state, schedule, first, averaged)
    rows = make_rows(X)
    own = np.empty(len(order))
    carry = np.array([1.0, 1.0, 0.0])
    sizes = schedule.sizes(first, len(order))
    most = max(1, int(_WORK * len(order) / max(1.0, 3.0 * len(X.data) * len(state.bias))))
    done = 0
    while done < len(order):
        if min(carry[:2]) < block_sgd.FOLD:
            block_sgd.fold(state.W, state.mean, carry[0], carry[1], carry[2], averaged > 0)
            carry[:] = 1.0, 1.0, 0.0
        part = slice(done, done + most)
        done += block_sgd.block_steps(
            rows, y, lo, weights, order[part], others, PLAIN, *state, schedule.lam, sizes[part], schedule.gain,
            averaged + done if averaged else 0.0, carry, own,
        )  # fmt: skip
    block_sgd.fold(state.W, state.mean, carry[0], carry[1], carry[2], averaged > 0)
    return own


def _visit_dense(
    X: Array,
    y: Array,
    lo: int,
    weights: Array,
    others: Array,
    order: Array,
    state: BlockState,
    schedule: Schedule,
    first: int,
    averaged: float,
) -> Array:
    W, bias, mean, mean_bias = state
    gemm = get_blas_funcs("gemm", (W,))
    own = np.empty(len(order))
    batch = schedule.batch
    sizes = schedule.sizes(first, steps_of(len(order), batch))
    for step, begin in enumerate(range(0, len(order), batch)):
        chosen = order[begin : begin + batch]
        part = np.asarray(X[chosen], W.dtype)
        scores = part @ W
        scores += bias
        top = scores.max(axis=1).astype(np.float64)
        P = np.exp(scores - top[:, None].astype(W.dtype))
        z = top + np.log(P.sum(axis=1, dtype=np.float64))
        own[chosen] = z
        total = np.logaddexp(z, others[chosen])
        P *= np.exp(top - total)[:, None].astype(W.dtype)
        inside = np.flatnonzero((y[chosen] >= lo) & (y[chosen] < lo + W.shape[1]))
        P[inside, y[chosen][inside] - lo] -= 1
        eta = float(sizes[step])
        P *= (weights[chosen] * -eta)[:, None].astype(W.dtype)
        if schedule.gain:
            bias += np.asarray(schedule.gain * P.sum(axis=0, dtype=np.float64), W.dtype)
        # W = (1 - eta m lam) W + X^T P in place: BLAS, which is column-major, gets the transposes.
        done = gemm(
            1.0, P.T, part.T, beta=1.0 - eta * len(chosen) * schedule.lam, c=W.T, trans_b=True, overwrite_c=True
        )
        if not np.shares_memory(done, W):
            W[:] = done.T
        if averaged and (step % _MEAN_EVERY == 0):
            share = min(1.0, _MEAN_EVERY / (averaged + step + _MEAN_EVERY))
            mean *= W.dtype.type(1 - share)
            mean += W.dtype.type(share) * W
            mean_bias += W.dtype.type(share) * (bias - mean_bias)
    return own


def accumulate(X: Any, R: Array, V: Array) -> None:
    """``V += X^T R`` in place."""
    if isinstance(X, np.ndarray):
        gemm = get_blas_funcs("gemm", (V,))
        done = gemm(1.0, R.T, np.asarray(X, V.dtype).T, beta=1.0, c=V.T, trans_b=True, overwrite_c=True)
        if not np.shares_memory(done, V):
            V[:] = done.T
        return
    rows = make_rows(X)
    assert isinstance(rows, CSRRows)
    block_sgd.add_outers(rows, 0, X.shape[0], R, V)
