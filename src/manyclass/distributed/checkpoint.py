"""Checkpoints of distributed fits: one file per rank, and a manifest that lists the files of one state.

Every rank writes its classes and rows to a file with a new name; when all files exist, rank 0 replaces the manifest
atomically. After an interruption at any point the manifest therefore lists a complete state. A checkpoint can be loaded
by another number of ranks than wrote it: arrays are read by ranges of classes or rows, and assembled from the files.

The folder must be accessible to all ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyclass.distributed.communicator import Communicator
from manyclass.io.folder import MANIFEST, digest as sha256, open_file, parse_manifest, write_manifest
from manyclass.io.tensors import FileError, Kind, write_arrays

__all__ = ["Piece", "Snapshot", "digest", "load", "remove", "save"]

_REMEDY = "remove the folder to start afresh"
_STATE = Kind("manyclass-checkpoint", 1, "file of a checkpoint", _REMEDY, _REMEDY)
_SUFFIX = ".rank.safetensors"
_BY_CLASS, _BY_ROW = "class", "row"


class Piece(NamedTuple):
    """Arrays for a range of classes (their last axis), of rows or of the entries of a list (their first axis).

    Attributes
    ----------
    begin, end : int
        The range begin <= k < end.
    arrays : mapping of str to ndarray
        Name -> array, of length ``end - begin`` along that axis.
    """

    begin: int
    end: int
    arrays: Mapping[str, NDArray[Any]]


def save(
    comm: Communicator,
    folder: str | Path,
    epoch: int,
    classes: Sequence[Piece] = (),
    rows: Sequence[Piece] = (),
    scalars: Mapping[str, Any] | None = None,
    identity: Mapping[str, Any] | None = None,
    lists: Mapping[str, Sequence[Piece]] | None = None,
) -> None:
    """Write a checkpoint. Every rank calls this at the same point, when no block is in transit.

    Parameters
    ----------
    comm : Communicator
    folder : path
        Created if it does not exist. Files of earlier checkpoints are removed when the new one is complete.
    epoch : int
        Number of the epoch.
    classes, rows : sequence of Piece
        The arrays of this rank. The pieces of all ranks must cover a range of classes, and one of rows, without
        overlap.
    scalars : mapping, optional
        Values for JSON, the same on every rank.
    identity : mapping, optional
        Data, loss and parameters of the fit, for JSON; `load` raises an error if they differ.
    lists : mapping of str to sequence of Piece, optional
        Name -> arrays of this rank whose entries belong neither to one row nor to one class each, with their range
        among the entries of all ranks.

    Raises
    ------
    ValueError
        If the length of an array does not match its range, or a list has the name "class" or "row".
    OSError
        If the folder cannot be written to, or rank 0 cannot access the file of another rank.
    """
    folder = Path(folder)
    tensors: dict[str, NDArray[Any]] = {}
    lists = lists or {}
    if taken := {_BY_CLASS, _BY_ROW} & lists.keys():
        raise ValueError(f"a list of a checkpoint must not have the name {min(taken)!r}: give it another")
    for kind, pieces in ((_BY_CLASS, classes), (_BY_ROW, rows), *lists.items()):
        for begin, end, arrays in pieces:
            for name, array in arrays.items():
                if array.shape[_axis(kind)] != end - begin:
                    raise ValueError(
                        f"array {name!r} of {kind} {begin} to {end} must have length {end - begin} along axis "
                        f"{_axis(kind)}, got shape {array.shape}"
                    )
                tensors[f"{kind}:{begin}:{end}:{name}"] = array
    # Not named after the epoch: after a resume, another number of ranks may write the same epoch again.
    version = _version(comm, folder)
    written = write_arrays(folder / f"{version}-{comm.rank}{_SUFFIX}", _STATE, tensors)
    entry = {**written._asdict(), "arrays": list(tensors)}
    entries = comm.gather(np.frombuffer(json.dumps(entry).encode(), np.uint8))
    if entries is not None:
        _finish(folder, epoch, [json.loads(bytes(e)) for e in entries], dict(scalars or {}), dict(identity or {}))
    comm.barrier()


def _axis(kind: str) -> int:
    return -1 if kind == _BY_CLASS else 0


def _version(comm: Communicator, folder: Path) -> int:
    """A version number that no file in the folder has."""
    version = np.zeros(1, np.int64)
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [file.name.partition("-")[0] for file in folder.glob(f"*{_SUFFIX}")]
        version[0] = 1 + max((int(name) for name in taken if name.isdecimal()), default=0)
    return int(comm.broadcast(version)[0])


def _finish(
    folder: Path, epoch: int, entries: list[dict[str, Any]], scalars: dict[str, Any], identity: dict[str, Any]
) -> None:
    """Write the manifest, and remove files that it does not list."""
    for rank, entry in enumerate(entries):
        file = folder / entry["file"]
        if not file.exists() or file.stat().st_size != entry["bytes"]:
            raise OSError(
                f"rank 0 cannot access {file}, written by rank {rank}: use a checkpoint folder that all hosts share"
            )
    facts = {"epoch": int(epoch), "ranks": len(entries), "identity": identity, "scalars": scalars, "files": entries}
    write_manifest(folder, _STATE.format, _STATE.version, facts)
    _tidy(folder, {entry["file"] for entry in entries})


def _tidy(folder: Path, keep: Set[str]) -> None:
    """Remove the files of earlier checkpoints, and temporary files of interrupted writes."""
    for file in [*folder.glob(f"*{_SUFFIX}"), *folder.glob(f".*{_SUFFIX}.*.tmp"), *folder.glob(f".{MANIFEST}.*.tmp")]:
        if file.name not in keep:
            file.unlink(missing_ok=True)


def remove(folder: str | Path) -> None:
    """Remove the checkpoint in a folder, and the folder if it is empty then; one process calls this."""
    folder = Path(folder)
    (folder / MANIFEST).unlink(missing_ok=True)  # first: the files that it lists must exist as long as it does
    _tidy(folder, set())
    if not any(folder.iterdir()):
        folder.rmdir()


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint on disk.

    Attributes
    ----------
    epoch : int
        Number of the epoch.
    scalars : dict
        Those passed to `save`.
    ranks : int
        Number of ranks that wrote it.
    """

    epoch: int
    scalars: dict[str, Any]
    ranks: int
    _folder: Path
    _files: list[dict[str, Any]]

    def classes(self, begin: int, end: int) -> dict[str, NDArray[Any]]:
        """The arrays for a range of classes, name -> array, each assembled along its last axis."""
        return self._range(_BY_CLASS, begin, end)

    def rows(self, begin: int, end: int) -> dict[str, NDArray[Any]]:
        """The arrays for a range of rows, name -> array, each assembled along its first axis."""
        return self._range(_BY_ROW, begin, end)

    def entries(self, name: str, begin: int, end: int) -> dict[str, NDArray[Any]]:
        """The arrays for a range of the entries of a list, name -> array."""
        return self._range(name, begin, end)

    def _range(self, kind: str, begin: int, end: int) -> dict[str, NDArray[Any]]:
        axis = _axis(kind)
        found: dict[str, NDArray[Any]] = {}
        filled: dict[str, int] = {}
        for entry in self._files:
            try:
                keys = [(key, *key.split(":", 3)) for key in entry["arrays"] if key.startswith(f"{kind}:")]
                if not any(int(first) < end and begin < int(last) for _, _, first, last, _ in keys):
                    continue
                with open_file(self._folder / entry["file"], _STATE) as file:
                    for key, _, first, last, name in keys:
                        low, high = max(begin, int(first)), min(end, int(last))
                        if low >= high:
                            continue
                        # Memory-mapped: only the range is read.
                        part = np.moveaxis(file.read(key, mmap=True), axis, 0)[low - int(first) : high - int(first)]
                        if name not in found:
                            found[name] = np.moveaxis(np.empty((end - begin, *part.shape[1:]), part.dtype), 0, axis)
                        np.moveaxis(found[name], axis, 0)[low - begin : high - begin] = part
                        filled[name] = filled.get(name, 0) + high - low
            except (FileError, OSError) as error:
                raise ValueError(_damaged(self._folder / entry["file"], str(error))) from error
        for name, count in filled.items():
            if count != end - begin:
                raise ValueError(
                    f"checkpoint {self._folder} must contain {end - begin} entries of {name!r} for {kind} {begin} to "
                    f"{end}, got {count}: {_REMEDY}"
                )
        return found


def load(comm: Communicator, folder: str | Path, identity: Mapping[str, Any] | None = None) -> Snapshot | None:
    """The checkpoint in a folder, or None if there is none; every rank calls this.

    Parameters
    ----------
    comm : Communicator
        Of any number of ranks.
    folder : path
    identity : mapping, optional
        Data, loss and parameters of the fit, compared with those passed to `save`.

    Raises
    ------
    ValueError
        On every rank, if the checkpoint belongs to another fit, or is damaged.
    """
    folder = Path(folder)
    content = _manifest(comm, folder)
    if not content:
        return None
    try:
        manifest = parse_manifest(content, folder, _STATE.format, _STATE.version, "a checkpoint")
        snapshot = Snapshot(
            manifest["epoch"],
            dict(manifest["scalars"]),
            manifest["ranks"],
            folder,
            [dict(entry) for entry in manifest["files"]],
        )
        if not all({"file", "sha256", "arrays"} <= entry.keys() for entry in snapshot._files):
            raise ValueError("it describes a file wrongly")
        found = dict(manifest["identity"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(_damaged(folder / MANIFEST, str(error))) from error
    expected = json.loads(json.dumps(dict(identity or {})))
    if found != expected:
        names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        told = ", ".join(f"{name}: found {found.get(name)}, expected {expected.get(name)}" for name in names)
        raise ValueError(
            f"checkpoint {folder} belongs to another run ({told}): "
            "remove it to start afresh, or pass the same data and parameters"
        )
    # Each rank checks some of the files; all raise the error for the first damaged one.
    bad = np.zeros(len(snapshot._files), np.int64)
    for k in range(comm.rank, len(snapshot._files), comm.size):
        entry = snapshot._files[k]
        comm.progress()
        try:
            bad[k] = sha256(folder / entry["file"]) != entry["sha256"]
        except OSError:
            bad[k] = 1
    bad = comm.allreduce(bad)
    if bad.any():
        raise ValueError(_damaged(folder / snapshot._files[int(np.argmax(bad))]["file"], "missing, or changed since"))
    return snapshot


def _manifest(comm: Communicator, folder: Path) -> bytes:
    """The content of the manifest, read by rank 0; empty if there is no manifest.

    Where a file, a pipe or a device has the name of the folder or of the manifest, the content is none that parses, so
    that every rank raises the error, before the fit.
    """
    found = b""
    if comm.rank == 0 and folder.exists():
        path = folder / MANIFEST
        if path.is_file():
            found = path.read_bytes()
        elif path.exists() or not folder.is_dir():
            found = b"not the folder of a checkpoint"
    return comm.broadcast_bytes(found)


def _damaged(path: Path, why: str) -> str:
    return f"checkpoint {path} cannot be read ({why}): remove {path.parent} to start afresh"


def digest(comm: Communicator, begin: int, *columns: NDArray[Any]) -> str:
    """A hash of the data of a fit that does not depend on how the rows are distributed over the ranks.

    Parameters
    ----------
    comm : Communicator
    begin : int
        Index of this rank's first row among the rows of all ranks.
    *columns : ndarray of shape (n_rows_here,)
        Numbers for each row of this rank: targets, weights, norms.

    Returns
    -------
    str
        16 hexadecimal digits: the sum, modulo 2^64, of a hash of every number and its position.
    """
    total = np.zeros(1, np.uint64)
    for place, column in enumerate(columns):
        floating = np.issubdtype(column.dtype, np.floating)
        bits = np.ascontiguousarray(column, np.float64 if floating else np.int64).view(np.uint64)
        index = np.arange(begin, begin + len(bits), dtype=np.uint64) * np.uint64(len(columns)) + np.uint64(place)
        total += np.sum(_mix(bits ^ _mix(index)), dtype=np.uint64)
    return f"{int(comm.allreduce(total)[0]):016x}"


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
