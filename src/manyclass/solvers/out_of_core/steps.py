"""Stochastic steps of softmax regression on the rows of a window and the classes of a block."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import get_blas_funcs

from manyclass.kernels import block_sgd
from manyclass.kernels.rows import CSRRows, make_rows
from manyclass.objective.penalties import L2
from manyclass.solvers.out_of_core.state import BlockState

__all__ = ["Schedule", "accumulate", "batch_of", "curvature", "steps_of", "visit"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Dense rows of a step, at most: enough for matrix products at the speed of the processor.
_BATCH = 64
#: Steps of a pass over the rows, at least, before a step takes more rows: a descent needs steps.
_LEAST = 512
#: Steps on dense rows from one point of their mean to the next.
_MEAN_EVERY = 8
#: Multiply-adds of a call of the kernel.
_WORK = 2e9
#: Its primal map is the identity: says to the kernel that it is given the weights themselves.
_PLAIN = L2()


class Schedule(NamedTuple):
    """Sizes of steps: ``eta_t = rate (1 + decay t)^-power`` on the sum of the gradients of a step's rows.

    lam : strength of the penalty of a row.
    gain : times the step, that of the intercept; 0: there is none.
    batch : rows of a step.
    """

    rate: float
    decay: float
    power: float
    lam: float
    gain: float
    batch: int

    def sizes(self, first: int, count: int) -> Array:
        """Those of the steps ``first``, ``first + 1``, ..."""
        found: Array = self.rate * (1.0 + self.decay * (first + np.arange(count))) ** -self.power
        return found


def batch_of(rows: int, dense: bool) -> int:
    """Rows of a step, for so many rows in all: one where they are sparse."""
    return min(_BATCH, max(1, rows // _LEAST)) if dense else 1


def steps_of(rows: int, batch: int) -> int:
    """Steps that so many rows of a window take."""
    return -(-rows // batch)


def curvature(X: Any, weights: Array, batch: int) -> tuple[float, float]:
    """The largest curvature that a step on such rows meets, from their features, and from an intercept for each unit
    of its gain.

    For sparse rows, max c_i ||x_i||^2 / 2 and max c_i / 2; for dense ones, of which a step takes several, half the
    largest eigenvalue of the sums of some steps (a few tell: a step that is a little long does no harm).
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
    """Steps on all rows of a window in the given order; the state is changed in place.

    Parameters
    ----------
    X : CSR matrix or ndarray of shape (n, d)
    y : int32 (n,)
        Classes, of which lo is the first of the block.
    lo : int
    weights, others : float64 (n,)
        Weights of the rows, and the log of the sum of exp of their scores in the other blocks.
    order : int32 (n,)
    state : BlockState
    schedule : Schedule
    first : int
        The number of the first step.
    averaged : float
        Points in the mean so far; 0: no mean is kept.

    Returns
    -------
    ndarray of shape (n,)
        The log of the sum of exp of a row's scores in this block, as it was just before the row's step.
    """
    if isinstance(X, np.ndarray):
        return _visit_dense(X, y, lo, weights, others, order, state, schedule, first, averaged)
    rows = make_rows(X)
    own = np.empty(len(order))
    carry = np.array([1.0, 1.0, 0.0])
    sizes = schedule.sizes(first, len(order))
    # The kernel returns to Python within about a second, so that Ctrl-C is heard.
    most = max(1, int(_WORK * len(order) / max(1.0, 3.0 * len(X.data) * len(state.bias))))
    done = 0
    while done < len(order):
        if min(carry[:2]) < block_sgd.FOLD:
            block_sgd.fold(state.W, state.mean, carry[0], carry[1], carry[2], averaged > 0)
            carry[:] = 1.0, 1.0, 0.0
        part = slice(done, done + most)
        done += block_sgd.block_steps(
            rows, y, lo, weights, order[part], others, _PLAIN, *state, schedule.lam, sizes[part], schedule.gain,
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
        # W = (1 - eta m lam) W + X^T P in one pass: BLAS sees the transposes, whose columns are contiguous.
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
