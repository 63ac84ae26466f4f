"""The file of an index: one safetensors file whose header carries a JSON description. No code, no pickle.

``__metadata__`` of the header has one entry, ``manyclass``, a JSON text: ``format`` ("manyclass-index"), ``version``
(1; a reader refuses what is newer than itself), ``library_version`` of the writer, and ``kind``, ``n_features`` and
``options`` of the index.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from manyclass._version import __version__
from manyclass.runtime.files import atomic_path

__all__ = ["FORMAT", "VERSION", "IndexFileError", "read_index", "write_index"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FORMAT, VERSION = "manyclass-index", 1
_KEY = "manyclass"
_DTYPES = {
    "BOOL": np.dtype(bool),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "F32": np.dtype(np.float32),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
    "F64": np.dtype(np.float64),
}


class IndexFileError(ValueError):
    """A file is not a search index, or not a whole one.

    Examples
    --------
    >>> print(IndexFileError("a.index", "not an index file"))
    a.index: not an index file
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        # Both are handed to the base class so that the exception survives pickling (a worker process).
        super().__init__(os.fspath(path), what)
        self.path = os.fspath(path)
        self.what = what

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def write_index(path: str | os.PathLike[str], described: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a description (of what JSON can hold) and arrays."""
    text = json.dumps({"format": FORMAT, "version": VERSION, "library_version": __version__, **described})
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_path(Path(path)) as temporary:
        save_file(tensors, temporary, {_KEY: text})


def read_index(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The description and the arrays of an index file, the arrays as read-only maps of the file."""
    with open(path, "rb") as file:
        try:
            # The library's own reader knows the rules: types, sizes, no holes, no overlaps.
            with safe_open(os.fspath(path), framework="numpy") as whole:
                metadata = whole.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise IndexFileError(path, f"not an index file, or a damaged one: {error}") from error
        try:
            described: Any = json.loads(metadata.get(_KEY, "null"))
        except ValueError as error:
            raise IndexFileError(path, f"the index file is damaged ({error})") from error
        if not isinstance(described, dict) or described.get("format") != FORMAT:
            raise IndexFileError(path, "a safetensors file, but not of a search index: give one that save() wrote")
        version = described.get("version")
        if type(version) is not int or version < 1 or not {"kind", "n_features", "options"} <= described.keys():
            raise IndexFileError(path, "the index file is damaged (its description): save the index again")
        if version > VERSION:
            raise IndexFileError(
                path,
                f"the index file has format version {version}, and this manyclass reads up to version {VERSION}: "
                "upgrade manyclass",
            )
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        arrays: dict[str, Array] = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in _DTYPES:
                raise IndexFileError(path, f"the index file is damaged ({name} has type {entry['dtype']})")
            dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
            if math.prod(shape):
                arrays[name] = np.memmap(file, dtype, "r", 8 + length + entry["data_offsets"][0], shape)
            else:
                arrays[name] = np.empty(shape, dtype)
    return described, arrays
