"""From files of any known format to a row store."""

from __future__ import annotations

from typing import Any

from manyclass.io import reader
from manyclass.io.store.reading import StoreSpill
from manyclass.io.store.rows import RowStore
from manyclass.io.store.writer import SHARD_BYTES, RowStoreWriter
from manyclass.io.streams import StrPath

__all__ = ["convert"]


def convert(
    source: StrPath,
    path: StrPath,
    *,
    shard_rows: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    narrow: bool = False,
    **options: Any,
) -> RowStore:
    """Write a file of any known format as a row store.

    svmlight and XMC files, compressed or not, are read in blocks, and dense ``.npy`` files mapped: in memory are a
    shard and the labels (4 or 8 bytes each). ``.npz`` files and tables are read as a whole.

    Parameters
    ----------
    source : path
        The file.
    path : path
        The folder to make.
    shard_rows, shard_bytes
        See `RowStoreWriter`.
    narrow : bool
        Keep float64 values as float32 where that loses nothing.
    **options
        Of `manyclass.io.read`.

    Returns
    -------
    RowStore

    Raises
    ------
    DataFormatError
        If the file is not what it should be; no folder is left then.
    ValueError
        If there is something under the name of the folder.

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
