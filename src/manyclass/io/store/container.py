"""One file of arrays: written once, opened by its header, and mapped window by window.

A file is a safetensors file, so that other programs read it too: the length of the header, the header (JSON), and the
arrays. Each array begins at a multiple of 64 bytes, for which the gaps are filled by arrays named ``pad.N``.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from .errors import StoreError

__all__ = ["ALIGNMENT", "Container", "Written", "digest", "map_range", "pack_strings", "unpack_strings", "write_arrays"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT = 64
_CHUNK = 1 << 22
_HEADER_LIMIT = 100_000_000

_TYPES = {
    "|b1": "BOOL",
    "|i1": "I8",
    "|u1": "U8",
    "<i2": "I16",
    "<u2": "U16",
    "<i4": "I32",
    "<u4": "U32",
    "<f4": "F32",
    "<i8": "I64",
    "<u8": "U64",
    "<f8": "F64",
}
_DTYPES = {name: np.dtype(dtype) for dtype, name in _TYPES.items()}


class Written(NamedTuple):
    """What a manifest keeps of a file."""

    file: str
    bytes: int
    sha256: str


class _Hashed:
    """A file and the hash of what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, content: Any) -> None:
        self._file.write(content)
        self._hash.update(content)
        self.size += len(content)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, Array | Sequence[Array]]) -> Written:
    """Write the arrays to a new file, in chunks; to disk before this returns.

    A sequence of arrays, of one type and width, is written as one array, one below the other.
    """
    header: dict[str, Any] = {}
    offset = 0
    order: list[Array] = []
    for name, given in arrays.items():
        pieces = [np.ascontiguousarray(piece) for piece in ([given] if isinstance(given, np.ndarray) else given)]
        shape = sum(len(piece) for piece in pieces), *pieces[0].shape[1:]
        size = sum(piece.nbytes for piece in pieces)
        header[name] = _entry(_TYPES[pieces[0].dtype.str], shape, offset, size)
        order.extend(pieces)
        offset += size
        gap = -offset % ALIGNMENT
        if gap:
            header[f"pad.{len(order)}"] = _entry("U8", (gap,), offset, gap)
            order.append(np.zeros(gap, np.uint8))
            offset += gap
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with open(path, "xb") as raw:
        file = _Hashed(raw)
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for array in order:
            content = array.reshape(-1).view(np.uint8).data
            for begin in range(0, len(content), _CHUNK):
                file.write(content[begin : begin + _CHUNK])
        raw.flush()
        os.fsync(raw.fileno())
    return Written(path.name, file.size, file.hexdigest())


def _entry(dtype: str, shape: tuple[int, ...], offset: int, size: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}


def digest(path: Path) -> str:
    """The SHA-256 of a file, read once and not kept in the page cache where the system can be told so."""
    found = hashlib.sha256()
    buffer = bytearray(_CHUNK)
    with open(path, "rb", buffering=0) as file:
        done = 0
        while size := file.readinto(buffer):
            found.update(memoryview(buffer)[:size])
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), done, size, os.POSIX_FADV_DONTNEED)
            done += size
    return found.hexdigest()


def map_range(path: Path, offset: int, dtype: np.dtype[Any], count: int) -> Array:
    """``count`` numbers of a file from ``offset`` on, mapped read-only; unmapped when the last view of them goes.

    Only the pages of the range take address space, whatever the size of the file.
    """
    if not count:
        return np.empty(0, dtype)
    base = offset - offset % mmap.ALLOCATIONGRANULARITY
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), offset - base + count * dtype.itemsize, access=mmap.ACCESS_READ, offset=base)
    if hasattr(mapped, "madvise"):
        # The system reads on in the background, while what comes first is worked on.
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        mapped.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(mapped, dtype, count, offset - base)


class Container:
    """The header of a file of arrays, checked; the file itself is open only while a window is being mapped.

    Parameters
    ----------
    path : Path

    Raises
    ------
    StoreError
        If the file is missing, cut short or not of this kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self._base, self._entries = _read_header(path, file)
        except FileNotFoundError as error:
            raise StoreError(path, "the file is missing: copy the folder again, or write it again") from error

    @property
    def names(self) -> list[str]:
        """Of the arrays."""
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array."""
        return self._entry(name)[1]

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of an array."""
        return self._entry(name)[0]

    def window(self, name: str, begin: int = 0, end: int | None = None) -> Array:
        """Rows ``begin`` to ``end - 1`` of an array, mapped read-only.

        Raises
        ------
        OSError
            If the file cannot be mapped: most often, for want of address space.
        """
        dtype, shape, offset = self._entry(name)
        end = shape[0] if end is None else end
        width = math.prod(shape[1:])
        found = map_range(self.path, offset + begin * width * dtype.itemsize, dtype, (end - begin) * width)
        return found.reshape(end - begin, *shape[1:])

    def _entry(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
        if name not in self._entries:
            raise StoreError(self.path, f"the file is damaged (it has no array {name!r}): write the folder again")
        return self._entries[name]


def _read_header(path: Path, file: BinaryIO) -> tuple[int, dict[str, tuple[np.dtype[Any], tuple[int, ...], int]]]:
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if len(start) < 8 or length > _HEADER_LIMIT or size < 8 + length:
        raise StoreError(path, f"the file is damaged or cut short (it has {size} bytes): copy or write it again")
    try:
        header = json.loads(file.read(length))
        entries = {name: _checked(entry, 8 + length, size) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(path, f"the file is damaged or cut short ({error}): copy or write it again") from error
    return 8 + length, {name: entry for name, entry in entries.items() if not name.startswith("pad.")}


def _checked(entry: dict[str, Any], base: int, size: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, begin, end)):
        raise ValueError("a shape or an offset is no whole number")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - begin} bytes for shape {shape}")
    if base + end > size:
        raise ValueError(f"it has {size} of {base + end} bytes")
    return dtype, shape, base + begin


def pack_strings(name: str, array: Array) -> dict[str, Array]:
    """A vector of numbers or of strings as arrays that a file can hold."""
    if array.dtype.kind != "U":
        return {name: array}
    encoded = [text.encode("utf-8", "surrogatepass") for text in array.tolist()]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return {f"{name}:text": np.frombuffer(b"".join(encoded), np.uint8), f"{name}:offsets": offsets}


def unpack_strings(file: Container, name: str) -> Array:
    """What `pack_strings` packed, in memory.

    Raises
    ------
    StoreError
        If the strings do not fit their offsets.
    """
    if name in file.names:
        return np.array(file.window(name))
    text, offsets = file.window(f"{name}:text").tobytes(), file.window(f"{name}:offsets")
    whole = offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) and offsets[0] == 0
    if not whole or offsets[-1] != len(text) or np.any(offsets[1:] < offsets[:-1]):
        raise StoreError(file.path, f"the file is damaged (the strings of {name} do not fit): write the folder again")
    bounds = offsets.tolist()
    try:
        strings = [text[a:b].decode("utf-8", "surrogatepass") for a, b in zip(bounds[:-1], bounds[1:])]
    except UnicodeDecodeError as error:
        raise StoreError(file.path, f"the file is damaged ({name} is not UTF-8): write the folder again") from error
    return np.array(strings, dtype=np.str_)
