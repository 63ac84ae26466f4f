"""Paths and files that were made to harm: ``python tests/hostile_paths.py nodes|bombs|writes|full FOLDER``.

``nodes``: every reader is given pipes, devices, sockets, folders and broken links. ``bombs``: compressed files that
unpack to much more than their size, and short files that announce large arrays. ``writes``: everything that is written
goes to folders, pipes, devices, links, folders that are not there or may not be written to, and to full disks.
``full``: everything is written to a file system without space, which needs a mount namespace: ``unshare -rm python
...``.

The process prints a line of JSON for every case; it ends itself when one takes too long. tests/test_hostile_paths.py
reads the lines.
"""

from __future__ import annotations

import faulthandler
import gzip
import io
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fuzzing
import manyclass
from manyclass.cli.main import main
from manyclass.io import Dataset, read, streams, write
from manyclass.mips import ExactSearch
from manyclass.models.splitting import split_model

#: Seconds that a case may take, compilation included.
PATIENCE = 100
#: Bytes that a bomb unpacks to, with the room that this needs to be refused: small, so that the tests are fast.
BOMB, ROOM = 4 << 20, 1 << 16
#: Address space, of which a reader that allocates what is announced has too little.
SPACE = 3 << 30


def say(case: str, use: Callable[[], object], kind: str = "") -> None:
    """Run a case; print its name, how it ended, seconds of processor time and bytes of memory that it took."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    before, begun = _peak(), time.process_time()
    try:
        with _limited(kind):
            use()
        found, text = "none", ""
    except Exception as error:
        found, text = type(error).__name__, str(error)
        found = "own" if isinstance(error, ValueError) else "os" if isinstance(error, OSError) else found
    told = {"case": case, "error": found, "text": text, "seconds": time.process_time() - begun}
    sys.stdout.write(json.dumps(told | {"bytes": _peak() - before}) + "\n")
    sys.stdout.flush()


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# --- what is not a file -----------------------------------------------------------------------------------------------


def _nodes(folder: Path, suffix: str) -> Iterator[tuple[str, Path]]:
    (folder / f"folder{suffix}").mkdir()
    (folder / f"folder{suffix}" / "content").write_text("1 1:1\n")
    os.mkfifo(folder / f"pipe{suffix}")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.fspath(folder / f"socket{suffix}"))
    (folder / f"loop{suffix}").symlink_to(folder / f"loop{suffix}")
    (folder / f"below a file{suffix}").symlink_to(Path(__file__) / "nothing")
    for name in ("folder", "pipe", "socket", "loop", "below a file"):
        yield name, folder / f"{name}{suffix}"
    for name in ("zero", "null", "full"):
        (folder / f"{name}{suffix}").symlink_to(f"/dev/{name}")
        yield f"/dev/{name}", folder / f"{name}{suffix}"
    if suffix in (".store", ".blocks", ".ckpt"):
        for name in ("pipe", "folder"):
            place = folder / f"manifest {name}{suffix}"
            place.mkdir()
            (os.mkfifo if name == "pipe" else os.mkdir)(place / "manifest.json")
            yield f"its manifest a {name}", place


def nodes(folder: Path) -> None:
    """Readers."""
    for name, target in fuzzing.TARGETS.items():
        (folder / name).mkdir()
        for kind, path in _nodes(folder / name, target.suffix):
            say(f"{name}: {kind}", partial(target.use, path, 0))


# --- what unpacks to much more ----------------------------------------------------------------------------------------


def _packed(suffix: str, content: bytes) -> bytes:
    if suffix == "gz":
        return gzip.compress(content, 9)
    import zstandard

    return bytes(zstandard.ZstdCompressor(level=3).compress(content))


def _archive(path: Path, arrays: dict[str, Any], announced: int = 0) -> None:
    """An archive of arrays, as SciPy and NumPy write them; the first announces more bytes than there are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array))
        archive.infolist()[0].file_size += announced


def _bombs(folder: Path) -> Iterator[tuple[str, Path]]:
    lines = {
        "svm": b"1 1:1 2:1\n",
        "csv": b"same text,label\n",
        "jsonl": b'{"text": "a", "label": "b"}\n',
        "txt": b"1\n",
    }
    for pack in ("gz", "zst"):
        for suffix, line in lines.items():
            for kind, chunk in (("lines", line * (BOMB // len(line))), ("one line", line[:-1] + b" " * BOMB)):
                path = folder / f"{kind}.{suffix}.{pack}"
                path.write_bytes(_packed(pack, chunk))
                yield f"{pack}: {suffix}, {kind}", path
    (path := folder / "labels.xmc").write_bytes(b"1 2 999999999\n0 0:1\n")
    yield "announced: labels of xmc", path
    csr = {"format": b"csr", "shape": np.array([1, 3]), "data": np.ones(1), "indices": [0], "indptr": [0, 1]}
    _archive(folder / "long.npz", csr, 1 << 40)
    yield "announced: npz", folder / "long.npz"
    _archive(folder / "dense.npz", {"X": np.ones((1, 1)), "y": np.ones(1)}, 1 << 40)
    yield "announced: npz of dense rows", folder / "dense.npz"
    for format in ("csc", "coo", "dia"):
        parts = {"csc": {"indices": [0], "indptr": [0, 1]}, "coo": {"row": [0], "col": [0]}, "dia": {"offsets": [0]}}
        arrays = {"format": format.encode(), "shape": np.array([1 << 32, 1]), "data": np.ones(1), **parts[format]}
        arrays |= {"data": np.ones((1, 1))} if format == "dia" else {}
        _archive(folder / f"{format}.npz", arrays)
        yield f"announced: rows of npz, {format}", folder / f"{format}.npz"
    np.save(folder / "rows.npy", np.zeros((2, 2)))
    sp.save_npz(folder / "rows.labels.npz", sp.csr_matrix((2, 1 << 40), dtype=np.int8))
    yield "announced: labels of npz", folder / "rows.npy"
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return
    table = pa.table({"text": ["a text of some words"] * (1 << 20), "label": ["b"] * (1 << 20)})
    pq.write_table(table, folder / "long.parquet", compression="zstd")
    yield "parquet: one text", folder / "long.parquet"


def bombs(folder: Path) -> None:
    """Readers."""
    read_labels = fuzzing.TARGETS["labels.txt"].use
    made = list(_bombs(folder))
    for target in ("svmlight", "csv", "npz"):  # compiles and imports what is needed, before anything is measured
        files = fuzzing.TARGETS[target].seeds(folder)
        read(fuzzing.put(files[0], folder / f"first{fuzzing.TARGETS[target].suffix}"))
    streams.ROOM = ROOM
    resource.setrlimit(resource.RLIMIT_AS, (fuzzing._space() + SPACE, resource.RLIM_INFINITY))
    for case, path in made:
        use = partial(read_labels, path, 0) if ".txt" in path.name else partial(read, path)
        say(f"{case} ({path.stat().st_size} bytes)", use)


# --- what is written --------------------------------------------------------------------------------------------------


def _writers() -> dict[str, tuple[str, Callable[[Path], object]]]:
    """Name -> suffix, and what writes a file or folder of that name."""
    X, Y, K = fuzzing.X, fuzzing.Y, fuzzing.K
    indicator = Dataset(X, fuzzing.INDICATOR, np.arange(K))
    dense = Dataset(np.tile(X.toarray(), (40, 1)), np.tile(Y, 40))
    fitted = manyclass.LinearClassifier(max_iter=2, tol=1.0, random_state=0).fit(X, Y)
    staged = manyclass.StagewiseClassifier(manyclass.RandomFourier(99), n_blocks=1, random_state=0).fit(X.toarray(), Y)
    index = ExactSearch().build(np.ones((300, 9)))
    return {
        "svmlight": (".svm", lambda path: write(path, dense)),
        "svmlight.gz": (".svm.gz", lambda path: write(path, dense)),
        "svmlight.zst": (".svm.zst", lambda path: write(path, dense)),
        "xmc": (".xmc", lambda path: write(path, indicator)),
        "npz": (".npz", lambda path: write(path, Dataset(sp.csr_matrix(dense.X), dense.y))),
        "npy": (".npy", lambda path: write(path, dense)),
        "store": (".store", lambda path: write(path, dense)),
        "linear": (".model", fitted.save),
        "staged": (".model", staged.save),
        "blocks": (".blocks", lambda path: split_model(fitted.model_, path, block_classes=2)),
        "index": (".index", index.save),
        "history": (".csv", fitted.history_.to_csv),
        "checkpoint": (".ckpt", lambda path: fuzzing._fit("sdca")(path, 0)),
    }


@contextmanager
def _limited(kind: str) -> Iterator[None]:
    """No file may be longer than 100 bytes, or a user who is not root."""
    user = os.geteuid()
    if kind == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    if kind == "read-only" and user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def writes(folder: Path) -> None:
    """Writers: what is left in the folder is part of what is printed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.chmod(folder, 0o777)
    for name, (suffix, put) in _writers().items():
        put(folder / f"sound{suffix}")  # it can be written, and everything is compiled
        fuzzing.shutil.rmtree(folder / f"sound{suffix}", ignore_errors=True)
        (folder / name).mkdir(mode=0o777)
        os.chmod(folder / name, 0o777)
        kept = {}
        for kind in ("folder", "pipe", "/dev/full", "/dev/null", "no folder", "in a file", "full disk", "read-only"):
            place = folder / name / kind.strip("/").replace("/", " ")
            place.mkdir(mode=0o777)
            path = place / f"it{suffix}"
            if kind == "folder":
                path.mkdir()
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind.startswith("/dev"):
                path.symlink_to(kind)
            elif kind == "no folder":
                path = place / "nothing" / f"it{suffix}"
            elif kind == "in a file":
                (place / "file").write_text("old")
                path = place / "file" / f"it{suffix}"
            elif kind == "read-only":
                os.chmod(place, 0o555)
            before = sorted(entry.name for entry in place.iterdir())
            say(f"{name}: {kind}", partial(put, path), kind)
            kept[kind] = sorted(entry.name for entry in place.iterdir()) == before
        sys.stdout.write(json.dumps({"case": f"{name}: left as it was", "kept": kept}) + "\n")


# --- a file system without space --------------------------------------------------------------------------------------


def _command(*argv: str) -> None:
    """A command in this process; what it says is an OSError if it fails as commands should."""
    told = io.StringIO()
    with redirect_stderr(told), redirect_stdout(io.StringIO()):
        code = main(list(argv))
    if code == 2:
        raise OSError(told.getvalue().splitlines()[-1])
    assert code == 0, told.getvalue()


def _commands(folder: Path) -> dict[str, tuple[str, Callable[[Path], object]]]:
    """As `_writers`: commands that write a file or folder."""
    data, model = os.fspath(folder / "data.svm"), os.fspath(folder / "model")
    write(data, Dataset(sp.csr_matrix(np.tile(fuzzing.X.toarray(), (40, 1))), np.tile(fuzzing.Y, 40)))
    fit = ("fit", data, "--max-iter", "2", "--tol", "1", "-o")
    _command(*fit, model)
    return {
        "manyclass fit": (".model", lambda path: _command(*fit, os.fspath(path))),
        "manyclass convert": (".svm", lambda path: _command("convert", data, "-o", os.fspath(path))),
        "manyclass convert to a store": (".store", lambda path: _command("convert", data, "-o", os.fspath(path))),
        "manyclass predict": (".txt", lambda path: _command("predict", model, data, "-o", os.fspath(path))),
    }


def full(folder: Path) -> None:
    """Writers and commands: first with space, then without; whether all is as it was is part of what is printed."""
    made = _writers() | _commands(folder)
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=True)
    for name, (suffix, put) in made.items():
        path = disk / f"it{suffix}"
        put(path)
        if path.is_dir() or name == "checkpoint":  # not replaced
            fuzzing.shutil.rmtree(path) if path.is_dir() else path.unlink()
        with suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        before = {entry: entry.is_file() and entry.read_bytes() for entry in disk.rglob("*")}
        say(name, partial(put, path))
        kept = before == {entry: entry.is_file() and entry.read_bytes() for entry in disk.rglob("*")}
        sys.stdout.write(json.dumps({"case": f"{name}: left as it was", "kept": kept}) + "\n")
        for entry in disk.iterdir():
            fuzzing.shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"nodes": nodes, "bombs": bombs, "writes": writes, "full": full}[sys.argv[1]](Path(sys.argv[2]))
