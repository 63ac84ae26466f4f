"""Files of named arrays with a header, for models, indexes, checkpoints and shards of row stores. No code, no pickle.

Layout
------
A safetensors file, which other programs can read: the length of the header (8 bytes, little-endian), the header
(JSON: type, shape and offsets of every array) and the arrays. ``__metadata__`` of the header has one entry,
``manyclass``, a JSON text::

    format           "manyclass-model", "manyclass-index", ...
    version          of the format; readers refuse newer versions than their own
    library_version  of the writer
    arrays           name -> how it is stored: "array" under its name; "text" as concatenated UTF-8 bytes NAME.text and
                     NAME.offsets, one more than there are strings; "csr" as NAME.data, NAME.indices, NAME.indptr
    ...              other entries of this format

Its numbers may be NaN and Infinity, as Python's json module writes them. Every array begins at a multiple of 64 bytes,
so that it can be mapped; arrays named ``pad.N`` fill the gaps. The last array, ``crc32``, has checksums (uint32) of the
file up to the end of the header and of each array before it.

CRC-32 finds what disks and copies do to a file (every change within 32 consecutive bits, and all but one in 2^32 of the
others) at several times the speed of SHA-256. It does not stop a person: who changes an array can change its checksum.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass._version import __version__
from manyclass.io._kinds import FileError, Kind, Written
from manyclass.io._packed import packed, unpacked
from manyclass.kernels.rows import csr_fault
from manyclass.runtime.files import atomic_path

__all__ = ["ALIGNMENT", "SMALL", "FileError", "Kind", "TensorFile", "Written", "write_arrays"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT = 64
#: Size in bytes up to which files are compared with their checksums as a whole when they are opened.
SMALL = 1 << 26

#: Format -> the arrays whose numbers must be finite, by parts of their names. The state of a fit may have infinities.
_FINITE = {"manyclass-model": {"weights", "intercept"}, "manyclass-index": {"weights", "data", "x"}}

_KEY, _SUMS, _PAD = "manyclass", "crc32", "pad."
_CHUNK = 1 << 22
#: The longest header in bytes that safetensors readers accept.
_HEADER_LIMIT = 100_000_000

#: NumPy's name of a type -> that in the header.
_TYPES = {"|b1": "BOOL", "|i1": "I8", "|u1": "U8"} | {
    f"<{kind}{size}": f"{kind.upper()}{8 * size}" for kind in "iuf" for size in (2, 4, 8)
}
_DTYPES = {name: np.dtype(dtype) for dtype, name in _TYPES.items()}
#: Type, shape and offset in the file of an array.
_Entry: TypeAlias = "tuple[np.dtype[Any], tuple[int, ...], int]"
#: How an array is stored -> the names of its parts.
_PARTS = {"array": ("",), "text": (".text", ".offsets"), "csr": (".data", ".indices", ".indptr")}


# --- writing ----------------------------------------------------------------------------------------------------------


def write_arrays(
    path: str | os.PathLike[str], kind: Kind, arrays: Mapping[str, Any], facts: Mapping[str, Any] | None = None
) -> Written:
    """Write a file of arrays atomically, in chunks, without copying the arrays.

    Parameters
    ----------
    path : str or path
        The file.
    kind : Kind
        Its format and version are written.
    arrays : mapping
        Name -> array of numbers, vector of strings, CSR matrix, or list of arrays of one type and width, which are
        written as one array, concatenated along the first axis.
    facts : mapping, default=None
        Other entries of the header: values for JSON.

    Raises
    ------
    ValueError
        If the file cannot store the type of an array, the header is too long, or weights are not finite; nothing is
        written then.
    OSError
        If the file cannot be written.
    """
    kinds: dict[str, str] = {}
    tensors: dict[str, list[Array]] = {}
    for name, array in arrays.items():
        kinds[name], parts = _pack(kind, name, array)
        if parts.keys() & {*tensors, _SUMS} or name.startswith(_PAD):
            raise ValueError(f"the name {name!r} is reserved or already used by a part of another array: rename one")
        if not all(_finite(kind.format, part, piece) for part, pieces in parts.items() for piece in pieces):
            raise ValueError(f"{name} has NaN or infinity, which a {kind.name} cannot hold: fit again")
        tensors.update(parts)
    described = {"format": kind.format, "version": kind.version, "library_version": __version__, **(facts or {})}
    placed, sums, head = _place(kind, {**described, "arrays": kinds}, tensors)
    whole = hashlib.sha256(head)
    sums[0] = zlib.crc32(head)
    with atomic_path(path) as temporary, open(temporary, "xb") as file:
        file.write(head)
        for number, piece in placed:
            content = piece.reshape(-1).view(np.uint8).data
            for begin in range(0, len(content), _CHUNK):
                chunk = content[begin : begin + _CHUNK]
                file.write(chunk)
                whole.update(chunk)
                if number < len(sums):
                    sums[number] = zlib.crc32(chunk, int(sums[number]))
        size = file.tell()
    return Written(Path(path).name, size, whole.hexdigest())


def _pack(kind: Kind, name: str, array: Any) -> tuple[str, dict[str, list[Array]]]:
    """Return how an array is stored, and the arrays of numbers that are written for it."""

    def storable(given: Any) -> Array:
        array = np.asarray(given, order="C")
        if array.dtype.str not in _TYPES:
            raise ValueError(
                f"{name} has dtype {array.dtype}, which a {kind.name} cannot hold: convert it to str or to a type of "
                f"{', '.join(map(str, _DTYPES.values()))}"
            )
        return array

    if sp.issparse(array):
        return "csr", {f"{name}.{part}": [storable(getattr(array, part))] for part in ("data", "indices", "indptr")}
    if isinstance(array, list):
        return "array", {name: [storable(piece) for piece in array]}
    array = np.asarray(array)
    if array.dtype.kind == "U" or (array.dtype == object and all(isinstance(item, str) for item in array.flat)):
        if array.ndim != 1:
            raise ValueError(f"{name} is an array of strings of shape {array.shape}; expected a vector")
        text, offsets = packed(array.tolist())
        return "text", {f"{name}.text": [text], f"{name}.offsets": [offsets]}
    return "array", {name: [storable(array)]}


def _place(
    kind: Kind, described: dict[str, Any], tensors: Mapping[str, list[Array]]
) -> tuple[list[tuple[int, Array]], Array, bytes]:
    """Return the pieces to write, each with the number of its array from 1; the array of checksums, which is filled
    while writing; and the start of the file, with a header padded with spaces so that the arrays are aligned."""
    header: dict[str, Any] = {"__metadata__": {_KEY: json.dumps(described)}}
    placed: list[tuple[int, Array]] = []
    offset = 0

    def put(name: str, pieces: list[Array]) -> None:
        nonlocal offset
        first, end = pieces[0], offset + sum(piece.nbytes for piece in pieces)
        rows = [sum(len(piece) for piece in pieces)] if first.ndim else []
        shape = [*rows, *first.shape[1:]]
        placed.extend((len(header), piece) for piece in pieces)
        header[name] = {"dtype": _TYPES[first.dtype.str], "shape": shape, "data_offsets": [offset, end]}
        offset = end

    for name, pieces in tensors.items():
        put(name, pieces)
        if offset % ALIGNMENT:
            put(f"{_PAD}{len(header)}", [np.zeros(-offset % ALIGNMENT, np.uint8)])
    sums = np.zeros(len(header), "<u4")
    put(_SUMS, [sums])
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    if len(text) > _HEADER_LIMIT:
        raise ValueError(
            f"the header takes {len(text)} bytes; expected at most {_HEADER_LIMIT} in a {kind.name}: shorten what is "
            "stored besides arrays, such as the record of the fit"
        )
    return placed, sums, struct.pack("<Q", len(text)) + text


# --- reading ----------------------------------------------------------------------------------------------------------


class TensorFile:
    """An open file of arrays; a context manager, which closes the file.

    Opening reads and checks the header, and compares a file of at most `SMALL` bytes with its checksums. An array of a
    larger file is compared when it is read into memory. Wherever numbers are compared, weights must be finite. Mapped
    arrays and `window` can be used after the file is closed.

    Parameters
    ----------
    path : str or path
        The file.
    kind : Kind
        The expected kind.

    Attributes
    ----------
    facts : dict
        The metadata of the header.
    names : list of str
        The names of the arrays.

    Raises
    ------
    OSError
        If the file cannot be opened.
    FileError
        The ``error`` of ``kind``, if the file is of another kind or a newer version, damaged or truncated.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Kind) -> None:
        self.path = Path(path)
        self.kind = kind
        self._given = path
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise self.error(f"not a regular file, as a {kind.name} is: {kind.source}")
        self._file = open(path, "rb")
        self._map: Array | None = None
        self._sums: dict[str, int] | None = None
        try:
            head = self._read_head()
            header = self._parsed(head[8:], "its header")
            self.facts = self._described(header.pop("__metadata__", None))
            self._entries = self._placed(header, len(head))
            self._check(head)
        except BaseException:
            self._file.close()
            raise
        self.names = list(self.facts["arrays"])

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def error(self, what: str) -> FileError:
        """Return the exception for this file with a message."""
        return self.kind.error(self._given, what)

    def damaged(self, what: str) -> FileError:
        """Return the exception for a damaged file."""
        return self.error(f"the {self.kind.name} is damaged ({what}): {self.kind.remedy}")

    # --- arrays -----------------------------------------------------------------------------------------------------

    def read(self, name: str, *, mmap: bool = False, shape: tuple[int, ...] | None = None) -> Any:
        """Return an array, a vector of strings or a CSR matrix.

        Parameters
        ----------
        name : str
            The name of the array.
        mmap : bool, default=False
            Whether to map it, read-only; all arrays of a file share a map. Strings are always read into memory.
        shape : tuple of int, default=None
            The shape of a CSR matrix.
        """
        kind = self.facts["arrays"].get(name)
        if kind == "text":
            return self._strings(name)
        if kind == "csr":
            data, indices, indptr = (self._tensor(f"{name}{part}", mmap) for part in _PARTS["csr"])
            if {indices.dtype, indptr.dtype} - {np.dtype(np.int32), np.dtype(np.int64)}:
                raise self.damaged(f"{name} has indices of type {indices.dtype} and {indptr.dtype}")
            fault = csr_fault(data, indices, indptr, shape or (0, 0))
            if fault:
                raise self.damaged(f"{name}: {fault}")
            return sp.csr_matrix((data, indices, indptr), shape=shape, copy=False)
        return self._tensor(name, mmap)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array of numbers."""
        return self._entry(name)[1]

    def window(self, name: str, begin: int = 0, end: int | None = None) -> Array:
        """Map rows ``begin`` to ``end - 1`` of an array, read-only, until the last view of them is deleted.

        Only these rows take address space. They are not compared with the checksum.

        Raises
        ------
        OSError
            If the file cannot be mapped, for example because the address space is limited.
        """
        dtype, shape, offset = self._entry(name)
        begin, end, width = int(begin), shape[0] if end is None else int(end), math.prod(shape[1:])
        if not 0 <= begin <= end <= shape[0]:
            raise self.damaged(f"{name} has {shape[0]} rows, not {end}")
        found = _mapped(self.path, offset + begin * width * dtype.itemsize, dtype, (end - begin) * width)
        return found.reshape(end - begin, *shape[1:])

    def verify(self) -> None:
        """Read the file, which must be open.

        Raises
        ------
        FileError
            Naming the first array that differs from its checksum, or whose numbers must be finite and are not.
        """
        if self._sums is None:
            raise self.error(f"the {self.kind.name} has no checksums: write it again")
        buffer = bytearray(min(_CHUNK, self.size))
        for name, (dtype, shape, offset) in self._entries.items():
            left, found, finite = math.prod(shape) * dtype.itemsize, 0, True
            self._file.seek(offset)
            while left:
                piece = memoryview(buffer)[: min(_CHUNK, left)]
                if self._file.readinto(piece) != len(piece):
                    raise self.damaged(f"{name} ends early")
                found = zlib.crc32(piece, found)
                finite = finite and _finite(self.facts["format"], name, np.frombuffer(piece, dtype))
                left -= len(piece)
            self._compare(name, found, finite)

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise self.damaged(f"it has no array {name!r}")
        return self._entries[name]

    def _tensor(self, name: str, mmap: bool) -> Array:
        dtype, shape, offset = self._entry(name)
        count = math.prod(shape)
        if mmap and count:
            # One map for all arrays, because every map keeps a file handle.
            if self._map is None:
                self._map = np.memmap(self._file, np.uint8, "r")
            array = self._map[offset : offset + count * dtype.itemsize].view(dtype).reshape(shape)
        else:
            self._file.seek(offset)
            array = np.fromfile(self._file, dtype, count)
            if array.size != count:
                raise self.damaged(f"{name} has {array.size} numbers, expected {count}")
            array = array.reshape(shape)
        if not mmap and (self.size > SMALL or self._sums is None):  # else `verify` has read it
            found = zlib.crc32(array.reshape(-1).view(np.uint8).data) if self._sums is not None else 0
            self._compare(name, found, _finite(self.facts["format"], name, array))
        return array

    def _compare(self, name: str, found: int, finite: bool) -> None:
        if self._sums is not None and self._sums[name] != found:
            raise self.damaged(f"the checksum of {name} differs")
        if not finite:
            raise self.damaged(f"{name} has NaN or infinity")

    def _strings(self, name: str) -> Array:
        parts = [self._tensor(f"{name}{part}", False) for part in _PARTS["text"]]
        try:
            return np.array(unpacked(*parts), dtype=np.str_)
        except ValueError as error:
            raise self.damaged(f"{name}: {error}") from error

    # --- header -----------------------------------------------------------------------------------------------------

    def _read_head(self) -> bytes:
        """Read the file up to the end of the header."""
        self.size = os.fstat(self._file.fileno()).st_size
        start = self._file.read(9)
        length = int.from_bytes(start[:8], "little") if len(start) > 8 else 0
        if length > _HEADER_LIMIT or start[8:] not in (b"{", b""):
            raise self.error(f"not a {self.kind.name}: {self.kind.source}")
        if self.size < 8 + max(length, 2):
            raise self._cut("bytes and ends within its header")
        self._file.seek(0)
        return self._file.read(8 + length)

    def _cut(self, where: str) -> FileError:
        return self.error(f"the {self.kind.name} is cut short (it has {self.size} {where}): {self.kind.remedy}")

    def _parsed(self, text: bytes | str, where: str) -> dict[str, Any]:
        try:
            parsed = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
        except (ValueError, RecursionError) as error:
            raise self.damaged(f"{where} is not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise self.damaged(f"{where} is not a JSON object")
        return parsed

    def _described(self, metadata: Any) -> dict[str, Any]:
        kind = self.kind
        text = metadata.get(_KEY) if isinstance(metadata, dict) else None
        if not isinstance(text, str):
            raise self.error(f"a safetensors file, but not a {kind.name}: {kind.source}")
        described = self._parsed(text, "its description")
        format, version = described.get("format"), described.get("version")
        known = isinstance(format, str) and kind.format in (format, "")
        if not known or type(version) is not int or version < 1:
            raise self.error(f"not a {kind.name} (format {format!r}, version {version!r}): {kind.source}")
        if kind.format and version > kind.version:
            writer = described.get("library_version", "of a later version")
            raise self.error(
                f"the {kind.name} has format version {version}, written by manyclass {writer}, and this manyclass "
                f"reads up to version {kind.version}: upgrade manyclass"
            )
        for name, expected in {"library_version": str, "arrays": dict, **kind.facts}.items():
            if not isinstance(described.get(name, ...), expected):
                raise self.damaged(f"its description has no valid {name!r}")
        return described

    def _placed(self, header: dict[str, Any], base: int) -> dict[str, _Entry]:
        """Return name -> type, shape and offset of the arrays, in order; check that there are no gaps or overlaps."""
        found, place = {}, 0
        try:
            for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
                whole = all(type(number) is int and 0 <= number < 1 << 63 for number in (*shape, begin, end))
                size = math.prod(shape) * dtype.itemsize if whole and len(shape) <= 32 else -1
                if begin != place or end - begin != size:
                    raise ValueError(f"{name} of shape {shape} has offsets {begin} to {end}, expected from {place}")
                found[name] = dtype, shape, base + begin
                place = end
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.damaged(f"the header describes an array wrongly: {error}") from error
        if self.size < base + place:
            raise self._cut(f"of {base + place} bytes")
        if self.size > base + place:
            raise self.damaged(f"it has {self.size} bytes, expected {base + place}")
        return found

    def _check(self, head: bytes) -> None:
        """Compare the header with its checksum, and the arrays with those of the metadata and, if small, read them."""
        if _SUMS in self._entries:  # files of other programs have none
            sums = self._tensor(_SUMS, False)
            del self._entries[_SUMS]
            if sums.dtype != np.uint32 or sums.shape != (1 + len(self._entries),):
                raise self.damaged(f"checksums of shape {sums.shape} for {len(self._entries)} arrays")
            if sums[0] != zlib.crc32(head):
                raise self.damaged("the checksum of its header differs")
            self._sums = dict(zip(self._entries, sums[1:].tolist()))
        kinds = self.facts["arrays"]
        wrong = {name: kind for name, kind in kinds.items() if kind not in list(_PARTS)}
        if wrong:
            raise self.damaged(f"its metadata describes arrays wrongly: {wrong}")
        expected = {name + part for name, kind in kinds.items() for part in _PARTS[kind]}
        there = {name for name in self._entries if not name.startswith(_PAD)}
        if expected != there:
            missing, unknown = sorted(expected - there), sorted(there - expected)
            raise self.damaged(f"arrays missing: {missing}, arrays unknown: {unknown}")
        if self.size <= SMALL and self._sums is not None:
            self.verify()


def _finite(format: str, name: str, values: Array) -> bool:
    """Whether the numbers of an array in a file of this format are finite, or need not be."""
    must = _FINITE.get(format, ())
    if not values.size or values.dtype.kind != "f" or not any(part in must for part in name.split(".")):
        return True
    # The minimum and the maximum of an array with NaN are NaN: this allocates no array of the size of the weights.
    return bool(np.isfinite(values.min()) and np.isfinite(values.max()))


def _mapped(path: Path, offset: int, dtype: np.dtype[Any], count: int) -> Array:
    """Map a range of a file; only its own pages take address space."""
    if not count:
        return np.empty(0, dtype)
    found = np.memmap(path, dtype, "r", offset, count)
    system: Any = found._mmap  # type: ignore[attr-defined]
    if hasattr(system, "madvise"):
        # The system then reads ahead while the caller uses the first pages.
        system.madvise(mmap.MADV_SEQUENTIAL)
        system.madvise(mmap.MADV_WILLNEED)
    return found.view(np.ndarray)
