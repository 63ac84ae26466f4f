"""Reads ranges of rows from SciPy's archives of CSR matrices, so that the rest is never in memory."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from manyclass.runtime.memory import available, human

from .streams import StrPath

__all__ = ["check_indices", "check_sizes", "csr_sizes", "read_csr_rows"]


def read_csr_rows(path: StrPath, rank: int, size: int) -> tuple[csr_matrix, int]:
    """Read the rows of one of ``size`` processes, in equal numbers, and return them with the number of all rows.

    Arrays that are stored without compression are read from their place; of compressed ones, what comes before is
    decompressed and dropped.

    Raises
    ------
    ValueError
        If the archive has no CSR matrix of real numbers, or is damaged; other errors as `numpy.load`.
    """
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        form = _range(archive, file, "format")[()]
        if form not in (b"csr", "csr"):
            raise ValueError(f"it has a matrix of format {form!r}; several processes read CSR: convert it")
        n, d = (int(number) for number in _range(archive, file, "shape"))
        begin, end = n * rank // size, n * (rank + 1) // size
        ends = _range(archive, file, "indptr", begin, end + 1)
        low, high = (int(ends[0]), int(ends[-1])) if len(ends) == end - begin + 1 else (-1, -1)
        if low < 0 or np.any(ends[1:] < ends[:-1]):
            raise ValueError("its row pointers decrease, or are too few")
        data, indices = _range(archive, file, "data", low, high), _range(archive, file, "indices", low, high)
    if data.dtype.kind not in "fiub" or len(data) != high - low or len(indices) != high - low:
        raise ValueError(f"it has too few values for its row pointers, or values of type {data.dtype}")
    matrix = csr_matrix((data, indices, ends - ends[0]), shape=(end - begin, d))
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return matrix, n


def csr_sizes(path: StrPath) -> tuple[int, int, int, int]:
    """Return the numbers of rows, features and stored values, and the bytes of a value with its index."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        n, d = (int(number) for number in _range(archive, file, "shape"))
        with _opened(archive, file, "data.npy") as member:
            (values,), dtype = _header(member)
        with _opened(archive, file, "indices.npy") as member:
            size = dtype.itemsize + _header(member)[1].itemsize
    return n, d, values, size


def check_sizes(file: BinaryIO) -> None:
    """Raise a MemoryError if the arrays of an archive, unpacked and as a CSR matrix, do not fit in memory.

    A compressed array can be 1 000 times as long as its part of the file; a matrix that is not CSR has any number of
    rows, each of which takes a row pointer.
    """
    with zipfile.ZipFile(file) as archive:
        needed = sum(info.file_size for info in archive.infolist())
        if {"format.npy", "shape.npy"} <= {*archive.namelist()} and _range(archive, file, "format")[()] != b"csr":
            needed += 8 * (max(0, int(_range(archive, file, "shape")[0])) + 1)
    file.seek(0)
    there = available()
    if there is not None and needed > there:
        raise MemoryError(f"its arrays take {human(needed)}, and {human(there)} are available")


def check_indices(file: BinaryIO) -> None:
    """Raise a ValueError unless the indices in an archive are integers: SciPy would round other numbers."""
    with zipfile.ZipFile(file) as archive:
        for name in ("indices", "indptr", "row", "col", "offsets", "shape"):
            if f"{name}.npy" in archive.namelist():
                with archive.open(f"{name}.npy") as member:
                    dtype = _header(member)[1]
                if dtype.kind not in "iu":
                    raise ValueError(f"its array {name!r} has type {dtype}; expected integers")
    file.seek(0)


def _header(member: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of an array: shape and type."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype


def _range(
    archive: zipfile.ZipFile, file: BinaryIO, name: str, begin: int = 0, end: int | None = None
) -> npt.NDArray[Any]:
    """Read items ``begin`` to ``end - 1`` of an array of one dimension, or a scalar."""
    with _opened(archive, file, f"{name}.npy") as member:
        shape, dtype = _header(member)
        if dtype.hasobject or len(shape) > 1:
            raise ValueError(f"its array {name!r} has type {dtype} and {len(shape)} dimensions")
        length = int(np.prod(shape, dtype=np.int64))
        end = length if end is None else min(end, length)
        begin = min(begin, end)
        member.seek(member.tell() + begin * dtype.itemsize)
        found = np.frombuffer(member.read((end - begin) * dtype.itemsize), dtype)
        return found.reshape(shape) if not shape else found


@contextmanager
def _opened(archive: zipfile.ZipFile, file: BinaryIO, name: str) -> Iterator[Any]:
    """Open a member of an archive; one without compression as the file itself, at the place of the member."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        with archive.open(info) as member:
            yield member
        return
    file.seek(info.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise ValueError("the header of a member is damaged")
    names, extra = struct.unpack("<HH", header[26:30])
    file.seek(info.header_offset + 30 + names + extra)
    yield file
