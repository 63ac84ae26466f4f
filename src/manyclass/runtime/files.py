"""Atomic writes: a file or a folder is seen under its name only when it is whole and on disk."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

__all__ = ["FolderWriter", "atomic_folder", "atomic_path", "refuse_existing", "sweep", "to_disk"]

W = TypeVar("W", bound="FolderWriter")

#: A temporary says who writes it: the machine and the process.
_TEMPORARY = re.compile(r"\..*\.([0-9a-f]{8})-(\d{1,9})-[0-9a-f]{12}\.tmp")
#: Names of the temporaries that this process is writing now.
_OWN: set[str] = set()


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside ``path``; rename it to ``path`` on success, remove it on any failure.

    File and folder are synced to disk. Temporaries that killed processes have left in the folder are removed.

    Raises
    ------
    FileNotFoundError
        If the folder of ``path`` does not exist.
    """
    target = Path(path)
    with _temporary(target) as temporary:
        yield temporary
        to_disk(temporary)
        os.replace(temporary, target)
    to_disk(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder beside ``path``; it takes the name on success and is removed on any failure.

    Raises
    ------
    FileNotFoundError
        If the folder around ``path`` does not exist.
    ValueError
        If there is something under that name: a folder is never written over.
    """
    target = Path(path)
    refuse_existing(target)
    with _temporary(target) as temporary:
        temporary.mkdir()
        yield temporary
        for file in (*temporary.iterdir(), temporary):
            to_disk(file)
        refuse_existing(target)
        os.rename(temporary, target)
    to_disk(target.parent)


class FolderWriter(ABC):
    """Writes a folder, ``_folder``, piece by piece; it takes its name when the block ends without an error."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __enter__(self: W) -> W:
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(atomic_folder(self._path))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._stack:
            if error is not None:
                raise error
            self.finish()

    @abstractmethod
    def finish(self) -> None:
        """Write what is left, at the end of the block."""


def refuse_existing(target: Path) -> None:
    """Raise a ValueError if there is something under this name."""
    if target.exists():
        raise ValueError(f"{target} exists already: remove it first, or give another name")


def sweep(folder: Path) -> None:
    """Remove the temporaries in a folder whose writers, processes of this machine, do not run any more."""
    with suppress(OSError):
        for name in os.listdir(folder):
            found = _TEMPORARY.fullmatch(name)
            if found and found[1] == _machine() and not _runs(int(found[2]), name):
                _remove(folder / name)


def to_disk(path: Path) -> None:
    """Write a file, or the names in a folder, from the caches of the system to disk.

    Raises
    ------
    OSError
        If the disk is full or fails. Systems that cannot sync folders are no error.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # folders, on Windows
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):  # Windows, some network file systems
            raise
    finally:
        os.close(handle)


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist")
    sweep(target.parent)
    # Cut, as file systems limit the length of names.
    name = f".{target.name[:40]}.{_machine()}-{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp"
    _OWN.add(name)
    try:
        yield target.with_name(name)
    except OSError as error:
        if error.filename is not None:
            raise
        told = OSError(f"cannot write {target}: {error.strerror or error}")  # a full disk does not say of which file
        told.errno = error.errno
        raise told from error
    finally:
        _remove(target.with_name(name))
        _OWN.discard(name)


def _machine() -> str:
    """What tells apart the hosts, and the containers of a host, that share a folder: the same number means other
    processes there."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{zlib.crc32(f'{platform.node()} {space}'.encode()):08x}"


def _runs(process: int, name: str) -> bool:
    if process == os.getpid():  # or a process before it that had the same number
        return name in _OWN
    if os.name != "posix":  # there, signal 0 ends the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
