"""Atomic writes of files and folders: they are renamed to their target when complete and synced to disk."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

__all__ = [
    "IN_USE",
    "Claim",
    "FolderWriter",
    "atomic_folder",
    "atomic_path",
    "exposed",
    "refuse_existing",
    "special",
    "sweep",
    "to_disk",
]

#: The end of an error message about a path that is claimed.
IN_USE = "is in use by another fit: wait until that has ended, or give another path"
#: Numbers of the errors of a disk, a quota or a limit that leaves no space.
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
W = TypeVar("W", bound="FolderWriter")

#: Names of temporary files: they contain the machine and the process that write them.
_TEMPORARY = re.compile(r"\..*\.([0-9a-f]{8})-(\d{1,9})-[0-9a-f]{12}\.tmp")
#: Names of the temporary files that this process is writing.
_OWN: set[str] = set()


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it to ``path`` on success, remove it on failure.

    File and folder are synced to disk. Temporary files of killed processes in the folder are removed. A symbolic link
    is replaced; the file that it leads to stays as it is.

    Raises
    ------
    OSError
        If the folder of ``path`` does not exist, or ``path`` is a folder.
    ValueError
        If ``path`` is a pipe, a device or a socket.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; expected the name of a file", os.fspath(path))
    kind = special(target)
    if kind:
        raise ValueError(f"{target} is {kind}; expected the name of a file, which is replaced: pass another path")
    with _temporary(target) as temporary:
        yield temporary
        to_disk(temporary)
        os.replace(temporary, target)
    to_disk(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder next to ``path``; rename it to ``path`` on success, remove it on failure.

    Raises
    ------
    FileNotFoundError
        If the parent folder of ``path`` does not exist.
    ValueError
        If ``path`` exists: folders are not overwritten.
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
    """Writes files to a temporary ``_folder``, which is renamed when the context ends without an error."""

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
        """Write the remaining files, when the context ends."""


class Claim:
    """A path that one fit at a time writes to: a lock of the operating system on an empty file beside it, .NAME.lock.

    It ends with `close`, or with the process, however that ends. Where there are no such locks (Windows, some network
    file systems), or the file cannot be made, every claim is ``held``.
    """

    def __init__(self, path: Path) -> None:
        #: Whether no other fit has it.
        self.held = True
        self._path, self._file = path.absolute(), -1
        try:
            import fcntl

            self._path = self._path.with_name(f".{self._path.name}.lock")
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.held = False
            os.close(self._file)
            self._file = -1
        except (ImportError, OSError, ValueError):  # the root has no name
            self.close()

    def close(self) -> None:
        """Give the path up."""
        if self._file >= 0:
            import fcntl

            self._path.unlink(missing_ok=True)
            fcntl.flock(self._file, fcntl.LOCK_UN)  # forked processes have the file, too
            os.close(self._file)
            self._file = -1


def refuse_existing(target: Path) -> None:
    """Raise a ValueError if a file, folder or symbolic link of this name exists."""
    if os.path.lexists(target):
        raise ValueError(f"{target} exists already; expected a new name: remove it, or pass another path")


def special(path: str | os.PathLike[str]) -> str | None:
    """Say what is at ``path`` if it is a pipe, a device or a socket: reading may wait, or have no end.

    None for files and folders, and where there is nothing. Symbolic links are followed.

    Examples
    --------
    >>> special("/dev/null"), special("/")
    ('a device', None)
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def sweep(folder: Path) -> None:
    """Remove the temporary files in a folder that were written by processes of this machine that have ended."""
    with suppress(OSError):
        for name in os.listdir(folder):
            found = _TEMPORARY.fullmatch(name)
            if found and found[1] == _machine() and not _runs(int(found[2]), name):
                _remove(folder / name)


def to_disk(path: Path) -> None:
    """Sync a file, or the directory entries of a folder, to disk.

    Raises
    ------
    OSError
        If the disk is full or fails, but not on systems that cannot sync folders.
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


def exposed(path: Path, code: Path) -> str | None:
    """Say how another user could change what is at ``path``, for files that are run as code; None: not at all.

    Parameters
    ----------
    path : Path
        A file or folder.
    code : Path
        A folder of code that this process runs anyway: who can change it is trusted.

    Returns
    -------
    str or None
        The first of ``path`` and the folders around it that another user owns or may write to, and why. None also where
        nothing is there, and where the system has no such permissions (Windows).
    """
    if os.name != "posix":
        return None
    trusted = os.stat(code)
    path = path.resolve()
    for place in (path, *path.parents):
        if place in (code, *code.parents):
            return None
        try:
            found = os.stat(place)
        except FileNotFoundError:
            return None
        # In a sticky folder such as /tmp, only the owner of an entry replaces it.
        loose = place == path or not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid(), trusted.st_uid):
            return f"{place} belongs to another user (number {found.st_uid})"
        if loose and found.st_mode & stat.S_IWOTH:
            return f"every user may write to {place}"
        shared = found.st_gid == trusted.st_gid and trusted.st_mode & stat.S_IWGRP
        if loose and found.st_mode & stat.S_IWGRP and not shared and not _alone(found.st_gid):
            return f"the users of group {found.st_gid} may write to {place}"
    return None


def _alone(group: int) -> bool:
    """Whether a group is the administrator's, or the one that systems make for this user alone."""
    import grp
    import pwd

    if group == 0:
        return True
    try:
        user, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (group, members.gr_name) == (user.pw_gid, user.pw_name) and {*members.gr_mem} <= {user.pw_name}


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    sweep(target.parent)
    # Shortened, because file systems limit the length of names.
    name = f".{target.name[:40]}.{_machine()}-{os.getpid()}-{os.urandom(6).hex()}.tmp"
    _OWN.add(name)
    try:
        yield target.with_name(name)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno is not None and error.errno in _FULL:  # its error has no file name, or that of a temporary file
            why = f"{os.strerror(error.errno)}: free space there, or write to another disk"
        elif error.filename is not None:
            raise
        told = OSError(f"cannot write {target}: {why}")
        told.errno = error.errno
        raise told from error
    finally:
        _remove(target.with_name(name))
        _OWN.discard(name)


def _machine() -> str:
    """An identifier of this host or container, because other hosts that share a folder have their own process ids."""
    import platform

    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{zlib.crc32(f'{platform.node()} {space}'.encode()):08x}"


def _runs(process: int, name: str) -> bool:
    if process == os.getpid():  # or an earlier process with the same id
        return name in _OWN
    if os.name != "posix":  # on Windows, signal 0 would end the process
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
