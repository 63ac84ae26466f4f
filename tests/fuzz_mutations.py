"""Mutations of files: of their bytes, or of what is in them, packed again with checksums that are right."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

import tensors

__all__ = ["mutated"]

_NUMBERS = [b"-1", b"0", b"1e999", b"nan", b"-inf", b"1e-320", b"2147483648", b"4294967297", b"9223372036854775807"]
_NUMBERS += [b"99999999999999999999999", b"0x10", b"1_0", b"", b"+", b"1e", b"\xef\xbc\x91", b"\0", b"\xff\xfe"]
_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    3,
    2**31,
    2**40,
    2**63,
    10**30,
    1e308,
    -1e-320,
    float("nan"),
    "",
    "x",
    "a\0b",
]
_VALUES += ["../../../../etc/passwd", "/etc/passwd", [], {}, [[]], [-1], {"": 0}, ["x"] * 3, "O", "F64", "<U9"]


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """A file a few changes away."""
    unpack, pack = _deep(content)
    if unpack is not None and rng.random() < 0.7:
        try:
            return pack(unpack, rng)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, struct.error):
            pass
    return _changed(content, rng)


def _deep(content: bytes) -> tuple[Any, Any]:
    """The parts of a packed file, and what packs them again after a change."""
    if content.startswith(b"\x1f\x8b"):
        return content, lambda packed, rng: gzip.compress(_changed(gzip.decompress(packed), rng), 1)
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(content)
        return unpacked, lambda text, rng: zstandard.ZstdCompressor().compress(_changed(text, rng))
    if content.startswith(b"PK\x03\x04"):
        return content, _archive
    if content[:1] == b"{":
        return content, _manifest
    if len(content) > 9 and content[8:9] == b"{":
        return content, _tensors
    return None, None


def _manifest(content: bytes, rng: np.random.Generator) -> bytes:
    """A manifest whose checksum is right."""
    facts = json.loads(content)
    facts.pop("crc32", None)
    body = json.dumps(_json_changed(facts, rng), indent=1).removesuffix("\n}").encode()
    return body + b',\n "crc32": ' + f"{zlib.crc32(body)}\n}}".encode()


def _archive(content: bytes, rng: np.random.Generator) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = list(members)
    chosen = names[rng.integers(len(names))]
    kind = rng.integers(6)
    if kind == 0:
        del members[chosen]
    elif kind == 1:
        members[names[rng.integers(len(names))]] = members[chosen]
    elif kind == 2:
        members["../../" + chosen] = members.pop(chosen)
    elif kind == 3:
        members[chosen] = _saved(members[chosen], rng)
    else:
        members[chosen] = _changed(members[chosen], rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[rng.integers(2)]) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return out.getvalue()


def _saved(member: bytes, rng: np.random.Generator) -> bytes:
    """Another array in NumPy's format."""
    array = np.load(io.BytesIO(member), allow_pickle=False)
    wild = np.array([np.nan, np.inf, -1, 2**31, 2**62, 1e300, 0])
    if array.size and rng.random() < 0.7 and array.dtype.kind in "iuf":
        array = array.astype(rng.choice(["i4", "i8", "u8", "f4", "f8", ">i4", "f2", "i1", "c16"]))
        with np.errstate(all="ignore"):
            array.reshape(-1)[rng.integers(array.size)] = wild[rng.integers(len(wild))].astype(array.dtype)
    else:
        array = array.reshape(-1)[: rng.integers(array.size + 1)]
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _tensors(content: bytes, rng: np.random.Generator) -> bytes:
    """A file of named arrays whose checksums are right: the header, the metadata or numbers differ."""
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    kind = rng.integers(4)
    if kind == 0:
        header = _json_changed(header, rng)
    elif kind == 1:
        metadata = header["__metadata__"]
        metadata["manyclass"] = json.dumps(_json_changed(json.loads(metadata["manyclass"]), rng))
    else:
        sizes = {"I32": "<i4", "I64": "<i8", "F32": "<f4", "F64": "<f8", "U32": "<u4", "U8": "u1", "U64": "<u8"}
        names = [n for n, e in header.items() if n not in ("__metadata__", "crc32") and e["dtype"] in sizes]
        entry = header[names[rng.integers(len(names))]]
        begin, end = entry["data_offsets"]
        values = np.frombuffer(bytes(body[begin:end]), sizes[entry["dtype"]]).copy()
        wild = [-1, 0, 1, 2**7, 2**31 - 1, 2**40, len(values), float("nan"), float("inf"), 1e300]
        with np.errstate(all="ignore"):
            values[rng.integers(len(values))] = np.float64(wild[rng.integers(len(wild))]).astype(values.dtype)
        body[begin:end] = values.tobytes()
    return tensors.assemble(header, bytes(body))


def _json_changed(value: Any, rng: np.random.Generator) -> Any:
    """JSON with one value replaced, removed, doubled or put elsewhere."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[rng.integers(len(value))]
        found = dict(value)
        if rng.random() < 0.1:
            del found[key]
        elif rng.random() < 0.05:
            found[f"{key}x"] = found.pop(key)
        else:
            found[key] = _json_changed(value[key], rng)
        return found
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = int(rng.integers(len(value)))
        kind = rng.random()
        if kind < 0.1:
            return value[:at] + value[at + 1 :]
        if kind < 0.2:
            return [*value, value[at]]
        return [*value[:at], _json_changed(value[at], rng), *value[at + 1 :]]
    if type(value) is int and rng.random() < 0.3:
        return value + int(rng.integers(-2, 3))
    return _VALUES[rng.integers(len(_VALUES))]


def _changed(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, removed, added, doubled or cut."""
    found = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        size = len(found)
        a = int(rng.integers(size + 1))
        b = min(size, a + int(rng.geometric(0.1)))
        kind = rng.integers(8)
        if kind == 0 and size:
            found[min(a, size - 1)] ^= 1 << int(rng.integers(8))
        elif kind == 1 and size:
            found[min(a, size - 1)] = int(rng.integers(256))
        elif kind == 2:
            del found[a:b]
        elif kind == 3:
            found[a:a] = found[a:b]
        elif kind == 4:
            found[a:a] = rng.bytes(int(rng.integers(1, 5)))
        elif kind == 5:
            found[a:b] = b" \n\t,;:#\"'0"[(c := int(rng.integers(10))) : c + 1]
        elif kind == 6:
            # A number becomes another one.
            begin = next((i for i in range(a, size) if 48 <= found[i] <= 57), size)
            end = next((i for i in range(begin, size) if not 48 <= found[i] <= 57), size)
            found[begin:end] = _NUMBERS[rng.integers(len(_NUMBERS))]
        elif rng.random() < 0.3:
            del found[a:]
    return bytes(found)
