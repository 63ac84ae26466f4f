"""Second moments of sparse rows, straight into a dense matrix."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit

__all__ = ["add_sparse_gram"]


@jit
def add_sparse_gram(data, indices, indptr, weights, first, last, G):
    """``G[j, l] += c_i x_ij x_il`` for the entries first <= j < last, l <= j: the lower triangle, in float64.

    Rows of a range of features belong to one thread; the sums do not depend on the threads.
    """
    for i in range(indptr.shape[0] - 1):
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            if first <= j < last:
                x = np.float64(weights[i]) * np.float64(data[t])
                row = G[j]
                for u in range(indptr[i], indptr[i + 1]):
                    if indices[u] <= j:
                        row[indices[u]] += x * np.float64(data[u])
