"""Strings as two arrays of numbers: no type of fixed width, which the longest one would set, and no pickle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._csr import row_pointers

__all__ = ["packed", "unpacked"]


def packed(texts: Iterable[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The texts as UTF-8, one behind the other, and their bounds, one more than there are texts."""
    # A lone half of a surrogate pair is no character, but Python's strings may hold one.
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), row_pointers([len(text) for text in encoded])


def unpacked(text: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> list[str]:
    """The texts that `packed` made these of.

    Raises
    ------
    ValueError
        If the arrays are damaged.

    Examples
    --------
    >>> unpacked(*packed(["naïve", ""]))
    ['naïve', '']
    """
    whole = offsets.ndim == text.ndim == 1 and offsets.dtype.kind in "iu" and text.dtype == np.uint8
    if not whole or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(text):
        raise ValueError("strings do not fit their offsets")
    if np.any(offsets[1:] < offsets[:-1]):
        raise ValueError("strings overlap")
    buffer, bounds = text.tobytes(), offsets.tolist()
    try:
        return [buffer[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip(bounds, bounds[1:])]
    except UnicodeDecodeError as error:
        raise ValueError("strings are not UTF-8") from error
