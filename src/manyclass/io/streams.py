"""Reads plain, gzip and Zstandard files in blocks of whole lines; writes such files atomically."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

from manyclass.runtime.files import atomic_path, special

from ._joined import Joined
from .errors import DataFormatError

__all__ = [
    "BLOCK_BYTES",
    "ROOM",
    "Block",
    "StrPath",
    "atomic_files",
    "check_regular",
    "compression",
    "line_blocks",
    "open_bytes",
    "refuse_bomb",
]

StrPath: TypeAlias = "str | os.PathLike[str]"

#: Bytes of a block, which with the numbers parsed from it fits in the L2 cache of a processor.
BLOCK_BYTES = 1 << 19

#: A compressed file may unpack to this many times its size, or to `ROOM` bytes: text is seldom packed 50-fold, while a
#: file that was made to fill memory and disk can unpack 1 000-fold (gzip) or 30 000-fold (Zstandard).
RATIO = 200
ROOM = 1 << 26

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def _zstandard(path: StrPath) -> Any:
    """The optional package zstandard; a ValueError that says how to install it if it is missing."""
    try:
        import zstandard
    except ImportError:
        raise ValueError(
            f"{os.fspath(path)} is compressed with Zstandard, which needs the package 'zstandard': "
            "install it with  python -m pip install 'manyclass[zstd]'"
        ) from None
    return zstandard


def _zstd_member(module: Any) -> Any:
    return module.ZstdDecompressor().decompressobj()


def check_regular(path: StrPath) -> None:
    """Raise a DataFormatError for a pipe, a device or a socket: reading may wait, or never end.

    Files are opened more than once, so that a pipe could not be read anyway.
    """
    kind = special(path)
    if kind:
        raise DataFormatError(
            path, f"is {kind}; expected a file: write what comes out of it to a file, or pipe it to the command line"
        )


def refuse_bomb(path: StrPath, size: int, unpacked: int) -> None:
    """Raise a DataFormatError if a file of ``size`` bytes has been unpacked to more than `RATIO` times that."""
    if unpacked > max(ROOM, RATIO * size):
        raise DataFormatError(
            path,
            f"unpacks to more than {RATIO} times its size, as files do that are made to fill memory; expected data: if "
            "you know where it is from, unpack it first and read that",
        )


def compression(path: StrPath) -> str | None:
    """The compression of a file: ``"gzip"``, ``"zstd"`` or None. Its first bytes decide, not its name.

    Every reader of lines begins here, also with a file that is not compressed.
    """
    check_regular(path)
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if magic == _ZSTD_MAGIC else None


class _Unpacked(io.RawIOBase):
    """A raw stream of the decompressed bytes of a file of one or more gzip members or Zstandard frames.

    A truncated file raises an EOFError. Zstandard's own stream reader would end silently, and gzip's reads such small
    pieces that a second thread mostly waits for the interpreter lock.

    Parameters
    ----------
    file : binary file
        The compressed file.
    start : callable
        Returns a new decompressor, with ``decompress``, ``eof`` and ``unused_data`` as in zlib.
    check : callable
        Called with the number of bytes decompressed so far; may raise an error.
    """

    _CHUNK = 1 << 14  # bytes read at a time; decompressed, they may be a thousand times as many

    def __init__(self, file: BinaryIO, start: Callable[[], Any], check: Callable[[int], None]) -> None:
        self._file = file
        self._check = check
        self._start = start
        self._member: Any = None
        self._unread = b""  # compressed bytes after the end of a member
        self._waiting = memoryview(b"")  # decompressed bytes not yet returned
        self.made = 0  # bytes decompressed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting:
            chunk = self._unread or self._file.read(self._CHUNK)
            self._unread = b""
            if not chunk:
                if self._member is not None:
                    raise EOFError("it ends within a compressed block")
                return 0
            if self._member is None:
                chunk = chunk.lstrip(b"\0")  # zero padding may follow a member
                if not chunk:
                    continue
                self._member = self._start()
            self._waiting = memoryview(self._member.decompress(chunk))
            self.made += len(self._waiting)
            self._check(self.made)
            if self._member.eof:
                self._unread = self._member.unused_data
                self._member = None
        size = min(len(buffer), len(self._waiting))
        buffer[:size] = self._waiting[:size]
        self._waiting = self._waiting[size:]
        return size


class Source:
    """An open file: its decompressed bytes, and the fraction of the file on disk that has been read."""

    def __init__(self, path: StrPath, stack: ExitStack) -> None:
        self.path = path
        self.packing = compression(path)
        self._file: BinaryIO = stack.enter_context(open(path, "rb"))
        self._size = os.fstat(self._file.fileno()).st_size
        self._damage: tuple[type[Exception], ...] = ()
        self._stream: BinaryIO = self._file
        self._unpacked: _Unpacked | None = None
        self._given = 0
        if self.packing is not None:
            if self.packing == "gzip":
                start = partial(zlib.decompressobj, 16 + zlib.MAX_WBITS)  # 16: with gzip's header and checksum
                self._damage = (EOFError, zlib.error)
            else:
                module = _zstandard(path)
                start = partial(_zstd_member, module)
                self._damage = (EOFError, module.ZstdError)
            self._unpacked = _Unpacked(self._file, start, partial(refuse_bomb, path, self._size))
            self._stream = cast(BinaryIO, io.BufferedReader(self._unpacked, 1 << 17))

    def _checked(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except self._damage as error:
            raise DataFormatError(
                self.path, f"the {self.packing} data is damaged or cut short ({error}): copy or download the file again"
            ) from error

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; no bytes at the end of the file."""
        chunk = self._checked(lambda: self._stream.read(size))
        self._given += len(chunk)
        return chunk

    def text_lines(self) -> Iterator[str]:
        """The lines of a UTF-8 file, each with its line end; a byte order mark at the start is left out."""
        lines = iter(lambda: self._checked(self._stream.readline), b"")
        for number, line in enumerate(lines, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                what = f"not UTF-8 text ({error.reason}): convert the file to UTF-8"
                raise DataFormatError(self.path, what, number) from error

    def fraction(self) -> float:
        """The fraction of the file on disk that `read` has returned so far, in (0, 1]."""
        # Bytes decompressed but not yet returned do not count: sizes estimated from the fraction would be too small.
        given = self._given / max(self._unpacked.made, 1) if self._unpacked else 1.0
        return min(max(given * self._file.tell(), 1) / max(self._size, 1), 1.0)


@contextmanager
def open_bytes(path: StrPath) -> Iterator[Source]:
    """Open a file for reading; a compressed one is decompressed."""
    with ExitStack() as stack:
        yield Source(path, stack)


class Block(NamedTuple):
    """Whole lines of a file."""

    data: bytes  # ends in a newline
    fraction: float  # of the file on disk that has been read so far, in (0, 1]


def line_blocks(path: StrPath, block_bytes: int = BLOCK_BYTES) -> Generator[Block, None, None]:
    """Yield the file in blocks of whole lines, each of about ``block_bytes`` bytes or one longer line.

    A thread reads and decompresses the next block (without the interpreter lock) while the caller uses the last one. A
    byte order mark at the start is left out; a newline missing at the end is added. A `Joined` path yields those of all
    its files.
    """
    if isinstance(path, Joined):
        yield from _joined_blocks(path, block_bytes)
        return
    with open_bytes(path) as source, ThreadPoolExecutor(1) as ahead:

        def fetch() -> tuple[bytes, float]:
            return source.read(block_bytes), source.fraction()

        def chunks() -> Iterator[tuple[bytes, float]]:
            pending = ahead.submit(fetch)
            while (chunk := pending.result())[0]:
                pending = ahead.submit(fetch)
                yield chunk

        pieces: list[bytes] = []  # of a line whose end has not been read
        fraction = 1.0
        bom = True
        for chunk, fraction in chunks():
            cut = chunk.rfind(b"\n") + 1
            if not cut:
                pieces.append(chunk)
                continue
            data = b"".join([*pieces, memoryview(chunk)[:cut]])
            pieces = [chunk[cut:]]
            if bom:
                data, bom = data.removeprefix(b"\xef\xbb\xbf"), False
            yield Block(data, fraction)
        data = b"".join(pieces)
        if bom:
            data = data.removeprefix(b"\xef\xbb\xbf")
        if data:
            yield Block(data + b"\n", fraction)


def _joined_blocks(path: Joined, block_bytes: int) -> Generator[Block, None, None]:
    sizes = path.sizes()
    lines, before, total = 0, 0, max(sum(sizes), 1)
    for place, (file, size) in enumerate(zip(path.files, sizes)):
        path.begin(lines, first=not place)
        for data, fraction in line_blocks(file, block_bytes):
            lines += data.count(b"\n")
            yield Block(data, max(before + fraction * size, 1) / total)
        before += size


@contextmanager
def atomic_files(*paths: StrPath) -> Iterator[list[BinaryIO]]:
    """Open files for writing; each replaces its target only after all were written without an error.

    A file whose name ends in ``.gz`` or ``.zst`` is compressed, without name and date: equal content gives equal bytes.
    """
    targets = [Path(path) for path in paths]
    with ExitStack() as whole:
        drafts = [whole.enter_context(atomic_path(target)) for target in targets]
        with ExitStack() as stack:
            files: list[BinaryIO] = []
            for target, draft in zip(targets, drafts):
                file: BinaryIO = stack.enter_context(open(draft, "xb"))
                if target.suffix == ".gz":
                    packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
                    file = cast(BinaryIO, stack.enter_context(packed))
                elif target.suffix == ".zst":
                    packer = _zstandard(target).ZstdCompressor(level=3)
                    file = stack.enter_context(packer.stream_writer(file, closefd=False))
                files.append(file)
            yield files
