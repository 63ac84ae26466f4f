"""Preconditioners: the second moments of the rows, scaled for each class, or the diagonal of the Hessian."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from manyclass.distributed import Communicator
from manyclass.kernels import ds_mlr as kernels
from manyclass.kernels.rows import CSRRows
from manyclass.objective.problem import Array
from manyclass.runtime.threads import ranges
from manyclass.solvers.ds_mlr.views import Scores
from manyclass.solvers.ds_mlr.worker import Share, Worker

__all__ = ["CHUNK", "REFRESH", "Diagonal", "Metric", "Spectral", "Spectrum", "bends", "curvatures", "spectrum"]

#: Elements of dense rows that are processed at a time.
CHUNK = 1 << 22
#: Pairs of L-BFGS after which the preconditioner is computed anew.
REFRESH = {"spectrum": 10, "diagonal": 5}


class Spectrum(NamedTuple):
    """The decomposition (1/n) sum_i c_i x_i x_i^T = vectors diag(values) vectors^T; x includes the constant feature."""

    values: Array
    vectors: Array


class Metric(Protocol):
    """The initial inverse Hessian of the two-loop recursion."""

    def times(self, Q: Array, block: int, lo: int) -> Array:
        """The product with a block Q, whose classes start at ``lo``; may overwrite Q."""


class Spectral(NamedTuple):
    """For class k, the matrix (bend_k (1/n) sum_i c_i x_i x_i^T + lam I)^-1.

    The block of class k in the Hessian is (1/n) sum_i c_i p_ik (1 - p_ik) x_i x_i^T + lam I; ``bend_k``, the mean of
    c_i p_ik (1 - p_ik), replaces the p_ik (1 - p_ik).
    """

    spectrum: Spectrum
    bends: Array
    lam: float

    def times(self, Q: Array, block: int, lo: int) -> Array:
        values, vectors = self.spectrum
        inner = vectors.T @ Q.astype(np.float64)
        inner /= np.maximum(values, 0.0)[:, None] * self.bends[lo : lo + Q.shape[1]] + self.lam
        return np.ascontiguousarray(vectors @ inner, Q.dtype)


class Diagonal(NamedTuple):
    """For feature j and class k, 1 / ((1/n) sum_i c_i p_ik (1 - p_ik) x_ij^2 + lam), from the diagonal of the Hessian.

    ``curvature`` has the denominators, for the blocks of this process.
    """

    curvature: Mapping[int, Array]

    def times(self, Q: Array, block: int, lo: int) -> Array:
        return np.divide(Q, self.curvature[block], out=Q)


def spectrum(share: Share, comm: Communicator, n: int, d: int) -> Spectrum:
    """The `Spectrum` of the rows of all processes, with ``d`` features; computed in every process."""
    total = comm.allreduce(_moments(share, d))
    total /= n
    # In place, and with no workspace of the size of the matrix (dsyevr; NumPy's dsyevd has twice that).
    return Spectrum(*scipy.linalg.eigh(total.T, driver="evr", overwrite_a=True, check_finite=False))


def _moments(share: Share, d: int) -> Array:
    """The sum of c_i x_i x_i^T over the rows of this process, its constant feature included."""
    total = np.zeros((d + 1, d + 1))
    rows = share.rows
    many = len(share.weights)
    for begin, end in ranges(many, max(1, CHUNK // (d + 1))):
        c = np.asarray(share.weights[begin:end], np.float64)
        if isinstance(rows, CSRRows):
            at = rows.indptr[begin : end + 1]
            parts = (rows.data[at[0] : at[-1]], rows.indices[at[0] : at[-1]], at - at[0])
            X = sp.csr_matrix(parts, shape=(end - begin, d)).astype(np.float64)
            weighted = sp.diags(c) @ X
            total[:d, :d] += (X.T @ weighted).toarray()
        else:
            X = np.asarray(rows.x[begin:end], np.float64)
            weighted = c[:, None] * X
            total[:d, :d] += X.T @ weighted
        total[d, :d] += share.constant * np.asarray(weighted.sum(axis=0)).reshape(-1)
        total[d, d] += share.constant**2 * c.sum()
    total[:d, d] = total[d, :d]
    return total


def curvatures(worker: Worker, scores: Scores, blocks: Mapping[int, tuple[Array, Array]], n: int) -> None:
    """Compute the denominators of `Diagonal`; ``blocks`` are the weights, whose scores are known, and the outputs."""
    for block, H in scores.bend({block: W for block, (W, _) in blocks.items()}).items():
        out = blocks[block][1]
        np.multiply(H, H.dtype.type(1.0 / n), out=out)
        out += H.dtype.type(worker.share.lam)


def bends(worker: Worker, scores: Scores, weights: Mapping[int, Array], n: int) -> Array:
    """The mean of c_i p_ik (1 - p_ik) for each class."""
    table = np.zeros(worker.grid.n_classes)

    def see(shard: int, S: Array, lo: int) -> None:
        kernels.spreads(S, worker.local(shard)[0], worker.share.weights, worker.total[shard], lo, table)

    scores.each(weights, see)
    return np.asarray(worker.comm.allreduce(table) / n)
