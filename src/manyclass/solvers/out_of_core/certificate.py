"""The duality gap of a softmax regression whose rows and weights are on disk.

With the scores s_i at weights W, the simplex points p_i = softmax(s_i) give the dual point a_i = e_{y_i} - p_i, and

    P = (1/n) sum_i c_i (log sum exp s_i - s_{i y_i}) + (lam/2) ||W||^2
    D = -(1/n) sum_i c_i sum_k p_ik log p_ik - (lam/2) ||V||^2,      V = X^T (c * a) / (lam n).

An unpenalized intercept requires sum_i c_i a_i = 0, for which the p_i are balanced (see `Problem.balance`). All sums
are computed in float64, over windows of rows and blocks of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manyclass.distributed import Communicator
from manyclass.io.store.view import RowView, Window
from manyclass.kernels.scoring import Scorer
from manyclass.objective.problem import Certificate, balancing
from manyclass.runtime.threads import ranges
from manyclass.solvers.out_of_core.steps import accumulate

__all__ = ["Rows", "certify", "resolution"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Number of scores, in float64, that are held at a time.
_TILE = 1 << 20


class Rows(NamedTuple):
    """The rows of a rank.

    Attributes
    ----------
    view : RowView
        The rows.
    window_bytes : int
        Size of a window of rows in bytes.
    scale : float
        Factor that brings the mean of the sample weights of all ranks to 1.
    n : int
        Number of rows of all ranks.
    by_class : ndarray of shape (n_classes,), optional
        The weight of each class.
    held_out : ndarray, optional
        Rows of the store, ascending, whose weight is zero.
    """

    view: RowView
    window_bytes: int
    scale: float
    n: int
    by_class: Array | None = None
    held_out: Array | None = None

    def weights(self, window: Window) -> Array:
        """The scaled weights of the rows of a window, in float64."""
        given = np.ones(window.end - window.begin) if window.weights is None else window.weights
        found = given * self.scale if self.by_class is None else given * self.by_class[window.y] * self.scale
        if self.held_out is not None:
            first, last = np.searchsorted(self.held_out, [window.begin, window.end])
            found[self.held_out[first:last] - window.begin] = 0.0
        return np.asarray(found)


class _Tile(NamedTuple):
    """The scores of some rows for a block of classes."""

    at: slice  # the rows, as indices into the view
    X: Any
    y: Array  # classes minus the first one of the block
    c: Array  # sample weights
    S: Array  # scores, float64


def _tiles(rows: Rows, lo: int, W: Array, bias: Array) -> Iterator[_Tile]:
    scorer = Scorer(W, bias)
    for window in rows.view.windows(rows.window_bytes):
        c = rows.weights(window)
        for begin, end in ranges(window.end - window.begin, max(1, _TILE // len(bias))):
            X = window.X[begin:end]
            S = X @ W + bias if isinstance(X, np.ndarray) else scorer.scores(X, None)
            first = window.begin - rows.view.begin
            yield _Tile(slice(first + begin, first + end), X, window.y[begin:end] - lo, c[begin:end], S.astype(float))


def certify(
    rows: Rows,
    bounds: list[int],
    block: Callable[[int], tuple[Array, Array]],
    lam: float,
    intercept: bool,
    comm: Communicator,
) -> Certificate:
    """P and D at weights on disk; the ranks call this together.

    Parameters
    ----------
    rows : Rows
        The rows of this rank.
    bounds : list of int
        First class of each block, and the number of classes.
    block : callable
        Returns weights and intercept of a block, given its number.
    lam : float
        Strength of the penalty.
    intercept : bool
        Whether there is an intercept, which is not penalized.
    comm : Communicator
        The ranks.

    Returns
    -------
    Certificate
        The duality gap, the same for every rank.
    """
    blocks = [(number, lo, hi) for number, (lo, hi) in enumerate(zip(bounds[:-1], bounds[1:]))]
    log_sums = np.full(len(rows.view), -np.inf)
    losses = penalty = 0.0
    dtype = np.dtype(np.float64)
    for number, lo, hi in blocks:
        W, bias = block(number)
        dtype = W.dtype
        penalty += sum(float(np.sum(np.square(W[b:e], dtype=np.float64))) for b, e in _pieces(W))
        for tile in _tiles(rows, lo, W, bias):
            top = tile.S.max(axis=1)
            sums = top + np.log(np.exp(tile.S - top[:, None]).sum(axis=1))
            np.logaddexp(log_sums[tile.at], sums, out=log_sums[tile.at])
            inside = np.flatnonzero((tile.y >= 0) & (tile.y < hi - lo))
            losses -= float(np.sum(tile.c[inside] * tile.S[inside, tile.y[inside]]))
    for window in rows.view.windows(rows.window_bytes):
        at = slice(window.begin - rows.view.begin, window.end - rows.view.begin)
        losses += float(np.sum(rows.weights(window) * log_sums[at]))
    losses = float(comm.allreduce(np.float64(losses)))
    remove, share, taken = _balance(rows, blocks, block, log_sums, comm) if intercept else (None, None, None)

    entropy = square = 0.0
    for number, lo, hi in blocks:
        W, bias = block(number)
        V = np.zeros(W.shape)
        for tile in _tiles(rows, lo, W, bias):
            P = np.exp(tile.S - log_sums[tile.at, None])
            if remove is not None and share is not None and taken is not None:
                P *= 1.0 - remove[lo:hi]
                P += taken[tile.at, None] * share[lo:hi]
            entropy -= float(np.sum(tile.c[:, None] * P * np.log(np.maximum(P, 1e-300))))
            inside = np.flatnonzero((tile.y >= 0) & (tile.y < hi - lo))
            np.negative(P, out=P)
            P[inside, tile.y[inside]] += 1.0
            P *= tile.c[:, None]
            accumulate(tile.X, P, V)
        if comm.size > 1:
            V = comm.allreduce(V)
        square += sum(float(np.sum(np.square(V[b:e]))) for b, e in _pieces(V))
    entropy = float(comm.allreduce(np.float64(entropy)))
    return Certificate(
        primal=losses / rows.n + lam / 2 * penalty,
        dual=entropy / rows.n - square / (2 * lam * rows.n**2),
        resolution=resolution(dtype),
    )


def resolution(dtype: np.dtype[Any]) -> float:
    """The smallest relative gap that is distinguished from 0, for weights of this dtype."""
    return 4.0 * float(np.finfo(dtype).eps)


def _pieces(W: Array) -> list[tuple[int, int]]:
    return ranges(len(W), max(1, _TILE // W.shape[1]))


def _balance(
    rows: Rows,
    blocks: list[tuple[int, int, int]],
    block: Callable[[int], tuple[Array, Array]],
    log_sums: Array,
    comm: Communicator,
) -> tuple[Array, Array, Array] | tuple[None, None, None]:
    """The fraction of its probability that each class loses, its share of what is removed, and what each row loses."""
    masses = np.zeros((2, blocks[-1][2]))
    wanted, present = masses
    for number, lo, hi in blocks:
        for tile in _tiles(rows, lo, *block(number)):
            present[lo:hi] += tile.c @ np.exp(tile.S - log_sums[tile.at, None])
            inside = np.flatnonzero((tile.y >= 0) & (tile.y < hi - lo))
            wanted[lo:hi] += np.bincount(tile.y[inside], tile.c[inside], minlength=hi - lo)
    moves = balancing(*comm.allreduce(masses))
    if moves is None:
        return None, None, None
    taken = np.zeros(len(rows.view))
    for number, lo, hi in blocks:
        for tile in _tiles(rows, lo, *block(number)):
            taken[tile.at] += np.exp(tile.S - log_sums[tile.at, None]) @ moves[0][lo:hi]
    return *moves, taken
