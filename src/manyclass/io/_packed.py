"""Strings stored as two arrays: UTF-8 bytes and offsets. This needs neither a fixed width nor pickle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._csr import row_pointers

__all__ = ["packed", "unpacked"]


def packed(texts: Iterable[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Concatenate the strings as UTF-8 bytes; also return their offsets, one more than there are strings."""
    # Python's strings may hold lone surrogates, which strict UTF-8 refuses.
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), row_pointers([len(text) for text in encoded])


def unpacked(text: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> list[str]:
    """Return the strings that `packed` made these arrays from; a ValueError if the arrays are damaged.

    Examples
    --------
    >>> unpacked(*packed(["naïve", ""]))
    ['naïve', '']
    """
    whole = offsets.ndim == text.ndim == 1 and offsets.dtype.kind in "iu" and text.dtype == np.uint8
    if not whole or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(text):
        raise ValueError("the offsets of its strings do not match their bytes")
    if np.any(offsets[1:] < offsets[:-1]):
        raise ValueError("the offsets of its strings decrease")
    buffer, bounds = text.tobytes(), offsets.tolist()
    try:
        return [buffer[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip(bounds, bounds[1:])]
    except UnicodeDecodeError as error:
        raise ValueError("its strings are not UTF-8") from error
