"""Second moments of sparse rows, accumulated in a dense matrix."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit

__all__ = ["add_sparse_gram"]


@jit
def add_sparse_gram(data, indices, indptr, weights, first, last, G):
    """``G[j, l] += c_i x_ij x_il`` for the entries first <= j < last, l <= j: the lower triangle, in float64.

    One thread owns the rows of G of its range of features, so that the sums do not depend on the number of threads.
    """
    for i in range(indptr.shape[0] - 1):
        for t in range(indptr[i], indptr[i + 1]):
            j = indices[t]
            if j < first or j >= last:
                continue
            x = np.float64(weights[i]) * np.float64(data[t])
            row = G[j]
            for u in range(indptr[i], indptr[i + 1]):
                if indices[u] <= j:
                    row[indices[u]] += x * np.float64(data[u])
