"""A folder with a manifest: written whole or not at all, opened by the manifest, verified file by file."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyclass._version import __version__
from manyclass.io.streams import StrPath

from .container import Written, digest
from .errors import StoreError

__all__ = [
    "MANIFEST",
    "atomic_folder",
    "folder_format",
    "read_manifest",
    "refuse_existing",
    "verify_files",
    "write_manifest",
]

MANIFEST = "manifest.json"


@contextmanager
def atomic_folder(path: StrPath) -> Iterator[Path]:
    """Give a temporary folder beside ``path``; it takes the name on success and is removed on any failure.

    Raises
    ------
    FileNotFoundError
        If the folder around ``path`` does not exist.
    ValueError
        If there is something under that name: a folder is never written over.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist")
    refuse_existing(target)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        refuse_existing(target)
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def refuse_existing(target: Path) -> None:
    """Raise a ValueError if there is something under this name."""
    if target.exists():
        raise ValueError(f"{target} exists already: remove it first, or give another name")


def write_manifest(folder: Path, format: str, version: int, facts: dict[str, Any]) -> None:
    """Write the manifest, which makes the folder a whole one; over an older one in a single step."""
    text = json.dumps({"format": format, "version": version, "library_version": __version__, **facts}, indent=1)
    draft = folder / f".{MANIFEST}.tmp"
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, folder / MANIFEST)


def folder_format(path: StrPath) -> str | None:
    """What kind of folder this is, by its manifest; None if it is none of this library's.

    Examples
    --------
    >>> folder_format("no/such/folder") is None
    True
    """
    try:
        found = json.loads((Path(path) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    format = found.get("format") if isinstance(found, dict) else None
    return format if isinstance(format, str) and format.startswith("manyclass-") else None


def read_manifest(path: StrPath, format: str, version: int, what: str) -> dict[str, Any]:
    """The manifest of a folder of this format.

    Parameters
    ----------
    path : path
        The folder.
    format, version : str, int
        What is expected, and the newest version that can be read.
    what : str
        How to call such a folder.

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
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise StoreError(path, f"there is no {MANIFEST} in it; expected {what}, whole") from error
    except UnicodeDecodeError as error:
        raise StoreError(
            folder / MANIFEST, f"is damaged (not UTF-8: {error.reason}): write the folder again"
        ) from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(folder / MANIFEST, f"is damaged ({error}): write the folder again") from error
    if not isinstance(found, dict) or found.get("format") != format:
        other = found.get("format") if isinstance(found, dict) else None
        raise StoreError(path, f"its manifest is that of {other!r}; expected {what} ({format!r})")
    number = found.get("version")
    if type(number) is not int or number < 1:
        raise StoreError(folder / MANIFEST, f"is damaged (version {number!r}): write the folder again")
    if number > version:
        raise StoreError(
            path,
            f"has format version {number}, written by manyclass {found.get('library_version', 'of a later version')}; "
            f"this one reads up to version {version}: upgrade manyclass",
        )
    return found


def verify_files(folder: Path, files: Iterable[Written], progress: Callable[[str], None] | None = None) -> None:
    """Read every file and compare it with its checksum.

    Raises
    ------
    StoreError
        That names the first file which is missing, has another size or other content.
    """
    for file in files:
        path = folder / file.file
        if not path.is_file():
            raise StoreError(path, "the file is missing: copy the folder again, or write it again")
        size = path.stat().st_size
        if size != file.bytes:
            raise StoreError(path, f"has {size} bytes, expected {file.bytes}: copy or write it again")
        if digest(path) != file.sha256:
            raise StoreError(path, "its content is not what was written (other checksum): copy or write it again")
        if progress is not None:
            progress(file.file)
