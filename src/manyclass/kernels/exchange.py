"""Kernels of dual ascent on several processes: which rows have changed, and what the changes of all add to the weights.

Rows, rivals and dual variables as in `manyclass.kernels.active`.
"""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit
from manyclass.kernels.table import add_at, slots_for

__all__ = ["add_columns", "changed_rows", "slots_for_columns"]

# mypy: disable-error-code="no-untyped-def"


@jit
def changed_rows(order, y, weights, scale, indptr, rivals, b, old, which, bounds, classes, coefs):
    """The rows of ``order`` whose dual variables are not ``old``, and ``scale * c_i`` times the changes of a_i.

    ``which`` receives the rows, ``classes`` and ``coefs`` the classes with a change, from ``bounds[r]`` to
    ``bounds[r + 1]`` those of ``which[r]``. Returns the number of rows.
    """
    real = b.dtype.type
    count, at = 0, 0
    bounds[0] = 0
    for position in range(order.shape[0]):
        i = order[position]
        c = real(scale) * real(weights[i])
        total = real(0)
        before = at
        for entry in range(indptr[i], indptr[i + 1]):
            change = b[entry] - old[entry]
            if change != 0:
                classes[at] = rivals[entry]
                coefs[at] = -c * change
                total += change
                at += 1
        if at == before:
            continue
        if total != 0:
            classes[at] = y[i]
            coefs[at] = c * total
            at += 1
        which[count] = i
        count += 1
        bounds[count] = at
    return count


@jit
def slots_for_columns(V, indptr, rows, bounds, n_outputs):
    """How many free slots of a table are enough for `add_columns`."""
    needed = np.int64(0)
    for j in range(indptr.shape[0] - 1):
        count = np.int64(0)
        for t in range(indptr[j], indptr[j + 1]):
            count += bounds[rows[t] + 1] - bounds[rows[t]]
        if count > 0:
            needed += slots_for(V, j, count, n_outputs)
    return needed


@jit
def add_columns(V, n_outputs, indptr, rows, data, bounds, classes, coefs, first_own, last_own, sigma, first, last):
    """``V += sum_i x_i c_i^T - sigma times its part of the rows first_own <= i < last_own``, for some features.

    The rows x_i by columns: values ``data`` of the feature j in ``rows`` from ``indptr[j]`` to ``indptr[j + 1]``, first
    <= j < last. ``V`` is an array or a `WeightTable` with free slots (`slots_for_columns`). Returns the squared norms
    of the sum and of that part, in float64.
    """
    whole = part = 0.0
    real = coefs.dtype.type
    seen, found = np.full((2, n_outputs), -1, np.int32)
    sums = np.empty((n_outputs, 2), coefs.dtype)  # of all, of the own: side by side in one cache line
    for j in range(first, last):
        count = 0
        for t in range(indptr[j], indptr[j + 1]):
            i, x = rows[t], real(data[t])
            own = x if first_own <= i < last_own else real(0)
            for entry in range(bounds[i], bounds[i + 1]):
                k = classes[entry]
                if seen[k] != j:
                    seen[k] = j
                    found[count] = k
                    count += 1
                    sums[k, 0] = x * coefs[entry]
                    sums[k, 1] = own * coefs[entry]
                else:
                    sums[k, 0] += x * coefs[entry]
                    sums[k, 1] += own * coefs[entry]
        for a in range(count):
            k = found[a]
            total, own = sums[k, 0], sums[k, 1]
            whole += np.float64(total) * np.float64(total)
            part += np.float64(own) * np.float64(own)
            add_at(V, j, k, total - real(sigma) * own)
    return whole, part
