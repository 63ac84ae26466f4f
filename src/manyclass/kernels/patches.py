"""Activations of filter responses, summed over the cells of a grid, in one pass over the responses."""

from __future__ import annotations

import numpy as np

from manyclass.kernels.jit import jit

__all__ = ["pool_rectified", "pool_triangle"]


@jit
def pool_rectified(responses, cells, threshold, out):
    """Add up max(0, r - threshold) and max(0, -r - threshold) over the places of each cell.

    Parameters
    ----------
    responses : (images * places, filters)
    cells : (places,) int64
        The cell of each place.
    out : (images, cells, 2, filters)
        The sums are added to what it contains.
    """
    places = cells.shape[0]
    n_filters = responses.shape[1]
    zero = threshold - threshold
    for image in range(out.shape[0]):
        for place in range(places):
            r = responses[image * places + place]
            above, below = out[image, cells[place], 0], out[image, cells[place], 1]
            for k in range(n_filters):
                above[k] += max(zero, r[k] - threshold)
            for k in range(n_filters):
                below[k] += max(zero, -r[k] - threshold)


@jit
def pool_triangle(responses, squares, filter_squares, share, cells, out):
    """Add up max(0, mean distance - distance) over the places of each cell; the mean is over the filters.

    Coates, Ng and Lee, "An analysis of single-layer networks in unsupervised feature learning", 2011, section 3.2.2.

    Parameters
    ----------
    responses : (images * places, filters)
        Inner products with the filters; overwritten with distances.
    squares : (images * places,)
        Squared norms of the patches.
    filter_squares : (filters,)
        Squared norms of the filters.
    share : float
        1 / filters, in the dtype of the responses, in which everything is computed.
    cells : (places,) int64
        The cell of each place.
    out : (images, cells, 1, filters)
        The sums are added to what it contains.
    """
    places = cells.shape[0]
    n_filters = responses.shape[1]
    zero = responses[0, 0] - responses[0, 0]
    for image in range(out.shape[0]):
        for place in range(places):
            at = image * places + place
            r = responses[at]
            for k in range(n_filters):
                r[k] = np.sqrt(max(zero, squares[at] + filter_squares[k] - r[k] - r[k]))
            total = zero
            for k in range(n_filters):
                total += r[k]
            mean = total * share
            cell = out[image, cells[place], 0]
            for k in range(n_filters):
                cell[k] += max(zero, mean - r[k])
