"""Folders with a manifest: row stores, models in blocks of classes, checkpoints of several processes.

The manifest has the format of the folder and the name, size and SHA-256 of each file, which tells a file of one version
of a folder from that of another. Its last entry, ``crc32``, is the checksum of the text before that entry.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from manyclass._version import __version__
from manyclass.io.streams import StrPath
from manyclass.io.tensors import FileError, Kind, TensorFile, Written
from manyclass.runtime.files import atomic_path, special

__all__ = [
    "ANY",
    "MANIFEST",
    "StoreError",
    "digest",
    "folder_format",
    "open_file",
    "parse_manifest",
    "read_manifest",
    "verify",
    "verify_files",
    "write_manifest",
]

MANIFEST = "manifest.json"


class StoreError(FileError):
    """A folder is not of the expected format, or one of its files does not match the manifest.

    Examples
    --------
    >>> print(StoreError("train.store", "it has no manifest.json"))
    train.store: it has no manifest.json
    """


_SOURCE = "give a model, an index, a row store or a checkpoint"
_REMEDY = "copy it again from where it was written, or write it again"
#: A file of any format.
ANY = Kind("", 0, "file", _SOURCE, _REMEDY, StoreError)
_SUM = b',\n "crc32": '


def write_manifest(folder: Path, format: str, version: int, facts: dict[str, Any]) -> None:
    """Write the manifest, last of all files; an older one is replaced atomically."""
    text = json.dumps({"format": format, "version": version, "library_version": __version__, **facts}, indent=1)
    body = text.removesuffix("\n}").encode("ascii")
    with atomic_path(folder / MANIFEST) as temporary:
        temporary.write_bytes(body + _end(body))


def _end(body: bytes) -> bytes:
    """Return the end of a manifest: the checksum of all before it."""
    return _SUM + f"{zlib.crc32(body)}\n}}".encode("ascii")


def folder_format(path: StrPath) -> str | None:
    """Return the format of a folder according to its manifest; None if it is not a folder of this package.

    Examples
    --------
    >>> folder_format("no/such/folder") is None
    True
    """
    if special(Path(path) / MANIFEST):
        return None
    try:
        found = json.loads((Path(path) / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    format = found.get("format") if isinstance(found, dict) else None
    return format if isinstance(format, str) and format.startswith("manyclass-") else None


def read_manifest(path: StrPath, format: str, version: int, what: str) -> dict[str, Any]:
    """Read the manifest of a folder and check its format and version.

    Parameters
    ----------
    path : str or path
        The folder.
    format : str
        The expected format.
    version : int
        The newest version that can be read.
    what : str
        The name of such a folder in messages, such as "a row store".

    Raises
    ------
    OSError
        If there is no such folder.
    StoreError
        If it is another kind of folder, is damaged, or was written by a newer version.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
    if not folder.is_dir():
        raise StoreError(path, f"is a file; expected {what}, which is a folder with a {MANIFEST}")
    if special(folder / MANIFEST) or (folder / MANIFEST).is_dir():
        raise StoreError(folder / MANIFEST, f"is not a file; expected that of {what}: copy or write the folder again")
    try:
        content = (folder / MANIFEST).read_bytes()
    except FileNotFoundError as error:
        what = f"{what}: copy or write it again (a folder of other files, such as images, is not read)"
        raise StoreError(path, f"it has no {MANIFEST}; expected {what}") from error
    return parse_manifest(content, path, format, version, what)


def parse_manifest(content: bytes, path: StrPath, format: str, version: int, what: str) -> dict[str, Any]:
    """Parse and check the content of the manifest of the folder ``path``; see `read_manifest`."""
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise StoreError(Path(path) / MANIFEST, f"is damaged ({error}): write the folder again") from error
    if not isinstance(found, dict) or found.get("format") != format:
        other = found.get("format") if isinstance(found, dict) else None
        raise StoreError(path, f"its format is {other!r}; expected {what} ({format!r})")
    number = found.get("version")
    if type(number) is not int or number < 1:
        raise StoreError(Path(path) / MANIFEST, f"is damaged (version {number!r}): write the folder again")
    if number > version:
        raise StoreError(
            path,
            f"has format version {number}, written by manyclass {found.get('library_version', 'of a later version')}; "
            f"this one reads up to version {version}: upgrade manyclass",
        )
    body = content.rpartition(_SUM)[0]
    if content != body + _end(body):
        raise StoreError(Path(path) / MANIFEST, f"is damaged (its checksum differs): {_REMEDY}")
    for file in _files(found):
        name, size, sha256 = file
        # Only files in the folder itself are read, whoever wrote the manifest.
        plain = isinstance(name, str) and name not in ("", ".", "..") and not {*name} & {"/", "\\", "\0"}
        if not plain or type(size) is not int or not isinstance(sha256, str):
            raise StoreError(Path(path) / MANIFEST, f"is damaged (it names the file {name!r}): write the folder again")
    return found


def open_file(path: Path, kind: Kind) -> TensorFile:
    """Open a file of a folder; a missing one raises ``kind.error`` too."""
    try:
        return TensorFile(path, kind)
    except FileNotFoundError as error:
        raise kind.error(path, "the file is missing: copy the folder again, or write it again") from error


def digest(path: Path) -> str:
    """Return the SHA-256 of a file; where the system allows it, its pages do not stay in the cache."""
    if special(path):
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
    found = hashlib.sha256()
    buffer = bytearray(1 << 22)
    with open(path, "rb", buffering=0) as file:
        done = 0
        while size := file.readinto(buffer):
            found.update(memoryview(buffer)[:size])
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), done, size, os.POSIX_FADV_DONTNEED)
            done += size
    return found.hexdigest()


def verify_files(folder: Path, files: Iterable[Written]) -> None:
    """Read every file, and compare it with its size and its checksums.

    Raises
    ------
    StoreError
        Naming the first file that is missing or differs and, where it can be told, the array.
    """
    for file in files:
        path = folder / file.file
        if not path.is_file():
            raise StoreError(path, "the file is missing: copy the folder again, or write it again")
        size = path.stat().st_size
        if size != file.bytes:
            raise StoreError(path, f"has {size} bytes, expected {file.bytes}: copy or write it again")
        same = digest(path) == file.sha256
        with TensorFile(path, ANY) as opened:
            opened.verify()
        if not same:
            raise StoreError(
                path, f"its checksum differs from that in the {MANIFEST}, so it is another file: {_REMEDY}"
            )


def verify(path: StrPath) -> None:
    """Read a model, an index, a row store or a checkpoint, and compare it with its checksums.

    Parameters
    ----------
    path : str or path
        The file or folder.

    Raises
    ------
    OSError
        If the file or folder does not exist.
    FileError
        If a checksum differs, or weights are not finite; a ValueError that names the file and the array.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from manyclass.models.linear import LinearModel
    >>> path = os.path.join(tempfile.mkdtemp(), "eye.model")
    >>> LinearModel(np.eye(2), np.zeros(2), classes=None, task="regression").save(path)
    >>> verify(path)
    """
    if Path(path).is_dir():
        format = folder_format(path) or "manyclass"
        manifest = read_manifest(path, format, 1 << 62, "a folder of manyclass")
        listed = list(_files(manifest))
        verify_files(Path(path), listed)
        # The manifest of an out-of-core fit has versions of files in place of their checksums.
        for file in sorted({*Path(path).glob("*.safetensors")} - {Path(path) / entry.file for entry in listed}):
            with TensorFile(file, ANY) as opened:
                opened.verify()
    else:
        with TensorFile(path, ANY._replace(error=FileError)) as single:
            single.verify()


def _files(found: Any) -> Iterator[Written]:
    """Yield the files that a manifest names, at any depth."""
    if isinstance(found, dict):
        if {*Written._fields} <= found.keys():
            yield Written(*(found[name] for name in Written._fields))
        else:
            for part in found.values():
                yield from _files(part)
    elif isinstance(found, list):
        for part in found:
            yield from _files(part)
