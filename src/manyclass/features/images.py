"""Images as rows of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["image_shape", "pixel_rows"]


def image_shape(*blocks: Any) -> tuple[int, ...] | None:
    """Return the height, width and channels of the images that the first of these blocks takes which takes any.

    Examples
    --------
    >>> from manyclass.features import Chain, KMeansPatches, PrincipalComponents
    >>> image_shape(None, Chain(KMeansPatches(shape=(8, 8, 1)), PrincipalComponents(9)))
    (8, 8, 1)
    """
    for block in blocks:
        for part in (block, getattr(block, "first", None)):
            shape = getattr(part, "shape", None)
            if shape is not None:
                return tuple(map(int, shape))
    return None


def pixel_rows(X: Any, shape: tuple[int, ...] | None, name: str = "X") -> Any:
    """Return images (n, height, width) or (n, height, width, channels) as rows of pixels, anything else as it is.

    Integers, such as the bytes of pixels, become float32. Without a ``shape`` there are no images.

    Raises
    ------
    ValueError
        If the images have another shape.

    Examples
    --------
    >>> pixel_rows(np.zeros((5, 8, 8), np.uint8), (8, 8, 1)).shape
    (5, 64)
    """
    given = () if sp.issparse(X) else tuple(getattr(X, "shape", ()))
    if shape is None or len(given) not in (3, 4):
        return X
    if (*given[1:], 1)[:3] != shape:
        last = " (channels last)" if len(given) == 4 and given[2:] + given[1:2] == shape else ""
        raise ValueError(
            f"{name} must have images of shape {shape}, as height, width and channels of for_images say, got "
            f"{given[1:]}: move the axes{last}, resize the images, or make the estimator for images of this shape"
        )
    rows = X.reshape((given[0], -1))
    return rows.astype(np.float32) if isinstance(rows, np.ndarray) and rows.dtype.kind in "iub" else rows
