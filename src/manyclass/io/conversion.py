"""Conversion of files of any format to row stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manyclass.io import reader
from manyclass.io.store.reading import StoreSpill
from manyclass.io.store.rows import RowStore
from manyclass.io.store.writer import SHARD_BYTES, RowStoreWriter
from manyclass.io.streams import StrPath

__all__ = ["convert"]


def convert(
    source: StrPath | Sequence[StrPath],
    path: StrPath,
    *,
    shard_rows: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    narrow: bool = False,
    **options: Any,
) -> RowStore:
    """Convert a file of any known format, or several of the same format, to a row store.

    svmlight and XMC files, compressed or not, are read in blocks, and dense ``.npy`` files are mapped: only a shard and
    the labels (4 or 8 bytes each) are in memory. ``.npz`` files and tables are read as a whole.

    Parameters
    ----------
    source : str, path or sequence of them
        The file to read, or the files: see `manyclass.io.read`.
    path : str or path
        The folder to create.
    shard_rows : int >= 1, default=None
        Maximum number of rows of a shard; see `RowStoreWriter`.
    shard_bytes : int >= 1, default=2**28
        Approximate maximum size of a shard in bytes.
    narrow : bool, default=False
        Store the float64 values of a shard as float32 if float32 represents all of them exactly.
    **options
        The other parameters of `manyclass.io.read`.

    Returns
    -------
    RowStore
        The new row store.

    Raises
    ------
    DataFormatError
        If the file does not conform to its format; no folder is created then.
    ValueError
        If `path` exists.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.svm").write_text("ham 1:0.5 3:2\\nspam 1:2.5e-1\\n")
    >>> store = convert(folder / "train.svm", folder / "train.store")
    >>> store.shape, store.classes.tolist(), store.rows()[:].toarray().tolist()
    ((2, 3), ['ham', 'spam'], [[0.5, 0.0, 2.0], [0.25, 0.0, 0.0]])
    """
    with RowStoreWriter(path, shard_rows=shard_rows, shard_bytes=shard_bytes) as writer:
        spill = StoreSpill(writer, narrow=narrow)
        spill.finish(reader.read(source, spill=spill, **options))
    return RowStore(path)
