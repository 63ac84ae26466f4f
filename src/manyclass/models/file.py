"""The file of a model: one safetensors file whose header carries a JSON description. No code, no pickle.

Layout (format version 1; 2 for models in stages)
-------------------------------------------------
A safetensors file is the length of its header (8 bytes, little-endian), the header (JSON: name, type, shape and place
of every array) and the arrays. ``__metadata__`` of the header has one entry, ``manyclass``, a JSON text::

    format           "manyclass-model"
    version          1; a reader refuses what is newer than itself
    library_version  of the writer
    kind             "linear" (or absent), "staged"
    task, link       as in `LinearModel`
    shape            [n_features, n_outputs] of the weights
    arrays           name -> how it is stored: "array" under its name; "text" as UTF-8 bytes NAME.text, one string
                     behind the other, and NAME.offsets, one more than there are strings; "csr" as NAME.data,
                     NAME.indices, NAME.indptr
    vectorizer       what `LinearModel.vectorizer` says besides its arrays, or null
    parameters, record
    parts            of a model in stages: what its blocks of features and its calibrations say besides their arrays

The arrays are ``weights`` ("array" or "csr"), ``intercept``, where the model has them ``classes`` and
``feature_names``, and ``vectorizer.NAME``; of a model in stages ``stage.NAME`` in place of weights and intercept.
Numbers in the JSON text may be NaN and Infinity, as Python's json module writes them. The header is padded with spaces
so that the weights lie at a multiple of 64 bytes and can be mapped.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from safetensors import SafetensorError, safe_open

from manyclass.kernels.rows import csr_fault
from manyclass.runtime.files import atomic_path

if TYPE_CHECKING:
    from manyclass.models.base import Model

__all__ = ["FORMAT", "VERSION", "ModelFileError", "Stored", "read_model", "write_model"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FORMAT, VERSION = "manyclass-model", 2

_KEY = "manyclass"
_ALIGNMENT = 64
_CHUNK = 2**24
#: The longest header that a safetensors reader takes.
_HEADER_LIMIT = 100_000_000

#: numpy's name of a type -> the header's.
_TYPES = {
    "|b1": "BOOL",
    "|i1": "I8",
    "|u1": "U8",
    "<i2": "I16",
    "<u2": "U16",
    "<f2": "F16",
    "<i4": "I32",
    "<u4": "U32",
    "<f4": "F32",
    "<i8": "I64",
    "<u8": "U64",
    "<f8": "F64",
}
_DTYPES = {name: np.dtype(dtype) for dtype, name in _TYPES.items()}

#: How an array is stored -> the names of its parts.
_PARTS = {"array": ("",), "text": (".text", ".offsets"), "csr": (".data", ".indices", ".indptr")}
_KINDS = {
    "weights": ("array", "csr"),
    "intercept": ("array",),
    "classes": ("array", "text"),
    "feature_names": ("text",),
}

_REMEDY = "copy it again from where it was saved, or save the model again"


class ModelFileError(ValueError):
    """A file is not a model, or not a whole one.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    what : str
        What is wrong with it, and what to do.

    Examples
    --------
    >>> print(ModelFileError("m.model", "not a model file"))
    m.model: not a model file
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        # Both are handed to the base class so that the exception survives pickling (a worker process).
        super().__init__(os.fspath(path), what)
        self.path = os.fspath(path)
        self.what = what

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


# --- writing ----------------------------------------------------------------------------------------------------------


def write_model(path: str | os.PathLike[str], model: Model) -> None:
    """Write ``model``; the arrays go from where they are to the file, in chunks.

    Raises
    ------
    ValueError
        If the model has labels or arrays of a type that the file cannot hold, before anything is written.
    """
    described, arrays = model.parts()
    arrays = dict(arrays)
    if model.classes is not None:
        arrays["classes"] = model.classes
    if model.feature_names is not None:
        arrays["feature_names"] = model.feature_names
    specification = None
    if model.vectorizer is not None:
        specification, state = model.vectorizer
        arrays.update({f"vectorizer.{name}": array for name, array in state.items()})
    kinds: dict[str, str] = {}
    tensors: dict[str, Array] = {}
    for name, array in arrays.items():
        kinds[name], parts = _pack(name, array)
        if parts.keys() & tensors.keys():
            raise ValueError(f"two arrays of the model would both be stored as {name!r}: rename one")
        tensors.update(parts)
    description = {
        "format": FORMAT,
        "version": VERSION if described else 1,
        "kind": model.kind,
        "library_version": model.library_version,
        "task": model.task,
        "link": model.link,
        "shape": [model.n_features, model.n_outputs],
        "arrays": kinds,
        "vectorizer": specification,
        "parameters": model.parameters,
        "record": model.record,
        **({"parts": described} if described else {}),
    }
    # By falling item size every array lies at a multiple of its own, and no bytes between arrays are needed.
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, not name.startswith("weights")))
    header = _header(description, {name: tensors[name] for name in order})
    with atomic_path(Path(path)) as temporary, open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(header)))
        file.write(header)
        for name in order:
            content = tensors[name].reshape(-1).view(np.uint8).data
            for begin in range(0, len(content), _CHUNK):
                file.write(content[begin : begin + _CHUNK])


def _pack(name: str, array: Any) -> tuple[str, dict[str, Array]]:
    """How an array is stored, and the arrays of numbers that this takes."""
    if sp.issparse(array):
        parts = {"data": array.data, "indices": array.indices, "indptr": array.indptr}
        return "csr", {f"{name}.{part}": _storable(name, value) for part, value in parts.items()}
    array = np.asarray(array)
    if array.dtype.kind == "U" or (array.dtype == object and all(isinstance(item, str) for item in array.flat)):
        if array.ndim != 1:
            raise ValueError(f"{name} is an array of strings of shape {array.shape}: only vectors can be stored")
        # A lone half of a surrogate pair is no character, but Python's strings may hold one.
        encoded = [text.encode("utf-8", "surrogatepass") for text in array.tolist()]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return "text", {f"{name}.text": np.frombuffer(b"".join(encoded), np.uint8), f"{name}.offsets": offsets}
    return "array", {name: _storable(name, array)}


def _storable(name: str, array: Array) -> Array:
    if array.dtype.str not in _TYPES:
        raise ValueError(
            f"{name} has dtype {array.dtype}, which a model file cannot hold: convert it to str or to a number type"
        )
    return np.asarray(array, order="C")


def _header(description: dict[str, Any], tensors: Mapping[str, Array]) -> bytes:
    """The header, padded so that the weights are aligned."""
    header: dict[str, Any] = {"__metadata__": {_KEY: json.dumps(description)}}
    offset = weights = 0
    for name, array in tensors.items():
        if name in ("weights", "weights.data"):
            weights = offset
        header[name] = {
            "dtype": _TYPES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text) + weights) % _ALIGNMENT)
    if len(text) > _HEADER_LIMIT:
        raise ValueError(
            f"the parameters and the training record take {len(text)} bytes, a model file has room for "
            f"{_HEADER_LIMIT}: shorten the record"
        )
    return text


# --- reading ----------------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """What a file holds: the kind of the model, the fields that all kinds have, and those of its kind."""

    kind: str
    common: dict[str, Any]
    described: dict[str, Any]
    arrays: dict[str, Any]


def read_model(path: str | os.PathLike[str], mmap: bool) -> Stored:
    """What the file of a model holds.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ModelFileError
        If it is not a model of this format version or an older one, or is damaged.
    """
    with open(path, "rb") as file:
        reader = _Reader(path, file)
        described = reader.description
        arrays = {name: reader.array(name, kind, mmap) for name, kind in described["arrays"].items()}
    specification = described["vectorizer"]
    state = {name.removeprefix("vectorizer."): arrays.pop(name) for name in [*arrays] if name.startswith("vectorizer.")}
    common = {
        "classes": arrays.pop("classes", None),
        "feature_names": arrays.pop("feature_names", None),
        "vectorizer": None if specification is None else (specification, state),
        **{name: described[name] for name in ("task", "link", "parameters", "record", "library_version")},
    }
    return Stored(described["kind"], common, {**described["parts"], "shape": described["shape"]}, arrays)


class _Reader:
    """One open file: its header, checked, and its arrays."""

    def __init__(self, path: str | os.PathLike[str], file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.map: Array | None = None
        header = self._read_header()
        self.description = self._describe(header.pop("__metadata__", None))
        self._check_container(header)
        self.tensors = header
        self._check_names()

    def error(self, what: str) -> ModelFileError:
        return ModelFileError(self.path, what)

    def damaged(self, what: str) -> ModelFileError:
        return self.error(f"the model file is damaged ({what}): {_REMEDY}")

    def _read_header(self) -> dict[str, Any]:
        size = os.fstat(self.file.fileno()).st_size
        start = self.file.read(9)
        length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
        if size and (length > _HEADER_LIMIT or (len(start) == 9 and start[8:] != b"{")):
            raise self.error("not a model file: give a file that LinearModel.save or `manyclass fit` wrote")
        if size < 8 + max(length, 2):
            raise self.error(f"the model file is cut short (it has {size} bytes and ends within its header): {_REMEDY}")
        self.base = 8 + length
        self.file.seek(8)
        header = self._parse(self.file.read(length), "its header")
        ends = [_end_of(entry) for name, entry in header.items() if name != "__metadata__"]
        if size < self.base + max(ends, default=0):
            raise self.error(f"the model file is cut short (it has {size} of {self.base + max(ends)} bytes): {_REMEDY}")
        return header

    def _parse(self, text: bytes | str, where: str) -> dict[str, Any]:
        try:
            text = text.decode("utf-8") if isinstance(text, bytes) else text
            parsed = json.loads(text, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise self.damaged(f"{where} is not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise self.damaged(f"{where} is not a JSON object")
        return parsed

    def _describe(self, metadata: Any) -> dict[str, Any]:
        text = metadata.get(_KEY) if isinstance(metadata, dict) else None
        if not isinstance(text, str):
            raise self.error(
                "a safetensors file, but not of a manyclass model: give a file that LinearModel.save or "
                "`manyclass fit` wrote"
            )
        described = self._parse(text, "its description")
        version = described.get("version")
        if described.get("format") != FORMAT or type(version) is not int or version < 1:
            raise self.damaged(f"format {described.get('format')!r}, version {version!r}")
        if version > VERSION:
            raise self.error(
                f"the model file has format version {version}, written by manyclass "
                f"{described.get('library_version', 'of a later version')}, and this manyclass reads up to version "
                f"{VERSION}: upgrade manyclass"
            )
        expected = {"task": str, "link": str, "library_version": str, "shape": list, "arrays": dict}
        expected |= {"parameters": dict, "record": dict}
        for name, kind in expected.items():
            if not isinstance(described.get(name), kind):
                raise self.damaged(f"its description has no valid {name!r}")
        for name, usual, kind in (("kind", "linear", str), ("parts", {}, dict)):
            if not isinstance(described.setdefault(name, usual), kind):
                raise self.damaged(f"its description has no valid {name!r}")
        if not isinstance(described.get("vectorizer", 0), dict | None):
            raise self.damaged("its description has no valid 'vectorizer'")
        shape = described["shape"]
        if len(shape) != 2 or any(type(size) is not int or not 1 <= size < 2**63 for size in shape):
            raise self.damaged(f"the weights have shape {shape}")
        return described

    def _check_container(self, header: dict[str, Any]) -> None:
        # The library's own reader knows the rules: types, sizes, no holes, no overlaps.
        try:
            with safe_open(os.fspath(self.path), framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise self.damaged(str(error)) from error
        for name, entry in header.items():
            if entry["dtype"] not in _DTYPES:
                raise self.damaged(f"{name} has type {entry['dtype']}")
            begin, end = entry["data_offsets"]
            if end - begin != math.prod(entry["shape"]) * _DTYPES[entry["dtype"]].itemsize:
                raise self.damaged(f"{name} has {end - begin} bytes for shape {entry['shape']}")

    def _check_names(self) -> None:
        kinds = self.description["arrays"]
        wrong = {name: kind for name, kind in kinds.items() if kind not in _kinds_of(name)}
        if self.description["kind"] == "linear":
            wrong.update({name: None for name in ("weights", "intercept") if name not in kinds})
        if wrong:
            raise self.damaged(f"its arrays are described wrongly: {wrong}")
        expected = {name + part for name, kind in kinds.items() for part in _PARTS[kind]}
        if expected != self.tensors.keys():
            missing, unknown = expected - self.tensors.keys(), self.tensors.keys() - expected
            raise self.damaged(f"arrays missing: {sorted(missing)}, arrays unknown: {sorted(unknown)}")

    def array(self, name: str, kind: str, mmap: bool) -> Any:
        """One array as `_pack` took it apart. Only weights are mapped."""
        mmap = mmap and (name == "weights" or name.endswith(".weights"))
        shape = tuple(self.description["shape"])
        if kind == "text":
            return self._strings(name)
        if kind == "csr":
            data, indices, indptr = (self._tensor(f"{name}.{part}", mmap) for part in ("data", "indices", "indptr"))
            if {indices.dtype, indptr.dtype} - {np.dtype(np.int32), np.dtype(np.int64)}:
                raise self.damaged(f"{name} has indices of type {indices.dtype} and {indptr.dtype}")
            fault = csr_fault(data, indices, indptr, shape)
            if fault:
                raise self.damaged(f"{name}: {fault}")
            return sp.csr_matrix((data, indices, indptr), shape=shape, copy=False)
        array = self._tensor(name, mmap)
        if name == "weights" and array.shape != shape:
            raise self.damaged(f"the weights have shape {array.shape}, expected {shape}")
        return array

    def _tensor(self, name: str, mmap: bool) -> Array:
        entry = self.tensors[name]
        dtype, shape, begin = _DTYPES[entry["dtype"]], tuple(entry["shape"]), self.base + entry["data_offsets"][0]
        count = math.prod(shape)
        if mmap and count:
            # One map of the whole file: each holds it open.
            if self.map is None:
                self.map = np.memmap(self.file, np.uint8, "r")
            return self.map[begin : begin + count * dtype.itemsize].view(dtype).reshape(shape)
        self.file.seek(begin)
        array = np.fromfile(self.file, dtype, count)
        if array.size != count:
            raise self.damaged(f"{name} ends early")
        return array.reshape(shape)

    def _strings(self, name: str) -> Array:
        text, offsets = self._tensor(f"{name}.text", False), self._tensor(f"{name}.offsets", False)
        whole = offsets.ndim == text.ndim == 1 and offsets.dtype == np.int64 and text.dtype == np.uint8
        if not whole or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(text):
            raise self.damaged(f"the strings of {name} do not fit their offsets")
        if np.any(offsets[1:] < offsets[:-1]):
            raise self.damaged(f"the strings of {name} overlap")
        buffer, bounds = text.tobytes(), offsets.tolist()
        try:
            strings = [buffer[a:b].decode("utf-8", "surrogatepass") for a, b in zip(bounds[:-1], bounds[1:])]
        except UnicodeDecodeError as error:
            raise self.damaged(f"{name} is not UTF-8: {error.reason}") from error
        return np.array(strings, dtype=np.str_)


def _kinds_of(name: str) -> tuple[str, ...]:
    if name.startswith("stage."):
        return ("array", "text", "csr")
    return ("array", "text") if name.startswith("vectorizer.") else _KINDS.get(name, ())


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers differ in which of two entries of one name they take.
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise ValueError("a name occurs twice")
    return parsed


def _end_of(entry: Any) -> int:
    """Where an array ends, as far as its entry in the header says so; the container's check judges the entry."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    end = offsets[-1] if isinstance(offsets, list) and offsets else 0
    return end if type(end) is int else 0
