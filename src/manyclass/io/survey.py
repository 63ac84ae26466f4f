"""What a file of data says about its size before it is read."""

from __future__ import annotations

import os
import zipfile
from typing import NamedTuple

import numpy as np

from ._archives import csr_sizes
from ._joined import Joined
from .errors import DataFormatError
from .formats import Format, detect_format
from .streams import StrPath, open_bytes
from .xmc import XMC_HEADER

__all__ = ["Survey", "survey"]

#: Bytes at the begin of a text file from which its rows and values are estimated.
_SAMPLE = 1 << 20


class Survey(NamedTuple):
    """The size of a data set.

    Attributes
    ----------
    rows, features, classes : int
        Their numbers; 0 where only reading tells.
    values : int
        Number of stored values.
    itemsize : int
        Bytes of a stored value with its index.
    estimated : bool
        Whether numbers are estimated from the begin of a text file.
    """

    rows: int
    features: int
    classes: int
    values: int
    itemsize: int
    estimated: bool = False


def survey(path: StrPath, format: Format | None = None) -> Survey | None:
    """Return the size of a file without reading it; None for formats that do not tell.

    Stores, ``.npy``, ``.npz`` and XMC files have headers; the rows of text files are estimated from their begin.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.xmc")
    ...     _ = path.write_text("2 3 4\\n0 0:1 2:0.5\\n1 1:2\\n")
    ...     survey(path)
    Survey(rows=2, features=3, classes=4, values=3, itemsize=8, estimated=True)
    """
    format = detect_format(path) if format is None else format
    if isinstance(path, Joined):
        return None
    if format == "store":
        from .store.rows import RowStore

        store = RowStore(path)
        size = store.dtype.itemsize + (store.index_dtype.itemsize if store.layout == "csr" else 0)
        return Survey(*store.shape, store.n_outputs if store.kind == "classes" else 0, store.n_stored, size)
    if format == "npy":
        try:
            n, d = np.load(path, mmap_mode="r", allow_pickle=False).shape
        except ValueError:  # reading it says what is wrong
            return None
        return Survey(n, d, 0, n * d, 0)  # it stays on disk
    if format == "npz":
        try:
            n, d, values, size = csr_sizes(path)
        except (ValueError, KeyError, zipfile.BadZipFile):
            return None
        return Survey(n, d, 0, values, size)
    if format in ("svmlight", "xmc"):
        return _of_lines(path, format)
    return None


def _of_lines(path: StrPath, format: str) -> Survey | None:
    with open_bytes(path) as source:
        try:
            sample = source.read(_SAMPLE)
        except DataFormatError:
            return None
        whole = len(sample) < _SAMPLE
        share = 1.0 if whole else source.fraction()
    header = XMC_HEADER.match(sample) if format == "xmc" else None
    rows, features, classes = map(int, header.groups()) if header else (0, 0, 0)
    # The file grows with the values, so that the share of the sample's bytes is that of its rows and values.
    share = share if whole or source.packing else len(sample) / max(1, os.path.getsize(path))
    values = int(sample.count(b":") / share)
    return Survey(rows or int(sample.count(b"\n") / share), features, classes, values, 8, True)
