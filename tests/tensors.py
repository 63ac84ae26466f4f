"""Files of arrays to test with, and changed on purpose: their parts, and checksums that fit again."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import scipy.sparse as sp

from manyclass.io.folder import write_manifest
from manyclass.io.tensors import FileError, Kind, TensorFile, write_arrays


def parts(path):
    """The header, the description and the bytes of the arrays of a file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["manyclass"]), content[8 + length :]


def assemble(header, content):
    """A file of this header and these bytes of arrays, its checksums made to fit as far as the header is right."""
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    head = struct.pack("<Q", len(text)) + text
    if "crc32" not in header:
        return head + content
    begin, end = header["crc32"]["data_offsets"]
    sums = np.frombuffer(content[begin:end], np.uint32).copy()
    sums[0] = zlib.crc32(head)
    try:
        places = sorted(header[name]["data_offsets"] for name in header if name not in ("__metadata__", "crc32"))
        arrays = [content[first:last] for first, last in places]
    except (KeyError, TypeError, ValueError):
        arrays = []
    if len(arrays) == len(sums) - 1:
        sums[1:] = [zlib.crc32(array) for array in arrays]
    return head + content[:begin] + sums.tobytes() + content[end:]


def rewrite(path, change):
    """Write a file again after ``change(header, description)``."""
    header, description, content = parts(path)
    change(header, description)
    if "manyclass" in header.get("__metadata__", {}):
        header["__metadata__"]["manyclass"] = json.dumps(description)
    path.write_bytes(assemble(header, content))


def change_array(path, name, edit):
    """Change the values of one array of a file in place, as a writer would that has it wrong."""
    header, _, content = parts(path)
    kinds = {"I32": np.int32, "I64": np.int64, "U8": np.uint8, "F32": np.float32, "F64": np.float64}
    begin, end = header[name]["data_offsets"]
    array = np.frombuffer(content[begin:end], kinds[header[name]["dtype"]]).copy()
    edit(array)
    path.write_bytes(assemble(header, content[:begin] + array.tobytes() + content[end:]))


def change_manifest(folder, change):
    """Write the manifest of a folder again after ``change(facts)``, as a writer would that has them wrong."""
    facts = json.loads((folder / "manifest.json").read_bytes())
    del facts["crc32"]
    change(facts)
    write_manifest(folder, facts.pop("format"), facts.pop("version"), facts)


KIND = Kind("manyclass-test", 3, "test file", "give a test file", "write it again", FileError, {"told": str})
CSR = sp.random(6, 5, 0.4, format="csr", random_state=0)
ARRAYS = {
    "matrix": np.arange(15.0).reshape(5, 3),
    "words": np.array(["", "ä", "\U0001f600", "x" * 70]),
    "sparse": CSR,
    "flag": np.array(True),
    "numbers": np.arange(7, dtype=np.int16),
}


def read(path, mmap=False, kind=KIND, shape=CSR.shape):
    with TensorFile(path, kind) as file:
        return {name: file.read(name, mmap=mmap, shape=shape) for name in file.names}


def same(found, expected):
    if sp.issparse(expected):
        return found.shape == expected.shape and all(
            same(getattr(found, part), getattr(expected, part)) for part in ("data", "indices", "indptr")
        )
    expected = np.asarray(expected)
    return (found.dtype, found.shape) == (expected.dtype, expected.shape) and bool(np.all(found == expected))


def write(path, arrays=ARRAYS, **facts):
    return write_arrays(path, KIND, arrays, {"told": "x", **facts})
