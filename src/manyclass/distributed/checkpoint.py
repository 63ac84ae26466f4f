"""The state of a distributed run on disk: one file a rank, and a manifest that says which files belong together.

Every rank writes its classes and rows to a file of a new name; when all are there, rank 0 renames the manifest into
place. Whatever is interrupted, the manifest names a whole state. What was saved by some number of ranks is loaded by
any other: arrays are asked for by ranges of classes or rows, and put together from the files that hold them.

The folder must be one that all ranks see.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from manyclass.distributed.communicator import Communicator
from manyclass.runtime.files import atomic_path

__all__ = ["Piece", "Snapshot", "digest", "load", "remove", "save"]

_MANIFEST, _FORMAT = "manifest.json", 1
_SUFFIX = ".rank.safetensors"
_AXES = {"class": -1, "row": 0}


class Piece(NamedTuple):
    """Arrays of a range of classes, along their last axis, or of rows, along their first.

    Attributes
    ----------
    begin, end : int
        The range.
    arrays : mapping of str to ndarray
        Name -> array, ``end - begin`` long along that axis.
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
) -> None:
    """Write a state; every rank calls this at the same point, with all blocks home.

    Parameters
    ----------
    comm : Communicator
    folder : path
        Made if it does not exist; what it held of earlier epochs goes when the new state is whole.
    epoch : int
    classes, rows : sequence of Piece
        What this rank holds. Together the ranks' pieces of a kind cover a range without overlap.
    scalars : mapping, optional
        What goes into JSON, the same on every rank.
    identity : mapping, optional
        What the state belongs to, as JSON: data, loss, parameters; `load` refuses another.

    Raises
    ------
    ValueError
        If an array is not as long as its range.
    OSError
        If the folder cannot be written to, or rank 0 does not see what another rank has written.
    """
    folder = Path(folder)
    tensors: dict[str, NDArray[Any]] = {}
    for kind, pieces in (("class", classes), ("row", rows)):
        for begin, end, arrays in pieces:
            for name, array in arrays.items():
                if array.shape[_AXES[kind]] != end - begin:
                    raise ValueError(
                        f"{name!r} of {kind} {begin} to {end} has the shape {array.shape}: "
                        f"expected {end - begin} along axis {_AXES[kind]}"
                    )
                tensors[f"{kind}:{begin}:{end}:{name}"] = np.ascontiguousarray(array)
    # A state may be written anew at the same epoch, after a resume, by another number of ranks.
    version = _version(comm, folder)
    file = folder / f"{version}-{comm.rank}{_SUFFIX}"
    with atomic_path(file) as temporary:
        try:
            save_file(tensors, str(temporary))
        except SafetensorError as error:  # a full disk, say
            raise OSError(f"cannot write {file}: {error}") from error
        _to_disk(temporary)
    entry = {"file": file.name, "bytes": file.stat().st_size, "sha256": _sha256(file), "tensors": _forms(tensors)}
    entries = comm.gather(np.frombuffer(json.dumps(entry).encode(), np.uint8))
    if entries is not None:
        _write_manifest(folder, epoch, version, [json.loads(bytes(e)) for e in entries], scalars or {}, identity or {})
    comm.barrier()


def _version(comm: Communicator, folder: Path) -> int:
    """A number that no file in the folder has."""
    version = np.zeros(1, np.int64)
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [file.name.partition("-")[0] for file in folder.glob(f"*{_SUFFIX}")]
        version[0] = 1 + max((int(name) for name in taken if name.isdecimal()), default=0)
    return int(comm.broadcast(version)[0])


def _forms(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {name: [array.dtype.str, list(array.shape)] for name, array in tensors.items()}


def _write_manifest(
    folder: Path,
    epoch: int,
    version: int,
    entries: list[dict[str, Any]],
    scalars: Mapping[str, Any],
    identity: Mapping[str, Any],
) -> None:
    for rank, entry in enumerate(entries):
        file = folder / entry["file"]
        if not file.exists() or file.stat().st_size != entry["bytes"]:
            raise OSError(
                f"{file}, written by rank {rank}, is not to be seen by rank 0: give a folder that all hosts share"
            )
    manifest = {
        "format": _FORMAT,
        "epoch": int(epoch),
        "ranks": len(entries),
        "identity": dict(identity),
        "scalars": dict(scalars),
        "files": entries,
    }
    with atomic_path(folder / _MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        _to_disk(temporary)
    _to_disk(folder)
    _tidy(folder, {entry["file"] for entry in entries})


def _tidy(folder: Path, keep: Set[str]) -> None:
    """Remove earlier states, and what interrupted writes have left."""
    for file in [*folder.glob(f"*{_SUFFIX}"), *folder.glob(f".*{_SUFFIX}.*.tmp"), *folder.glob(f".{_MANIFEST}.*.tmp")]:
        if file.name not in keep:
            file.unlink(missing_ok=True)


def remove(comm: Communicator, folder: str | Path) -> None:
    """Remove the state in a folder, and the folder if it holds nothing else; every rank calls this."""
    folder = Path(folder)
    comm.barrier()
    if comm.rank == 0 and folder.is_dir():
        (folder / _MANIFEST).unlink(missing_ok=True)  # first: what it names must be there as long as it is
        _tidy(folder, set())
        if not any(folder.iterdir()):
            folder.rmdir()
    comm.barrier()


@dataclass(frozen=True)
class Snapshot:
    """A state on disk.

    Attributes
    ----------
    epoch : int
    scalars : dict
        As they were given to `save`.
    ranks : int
        How many wrote it.
    """

    epoch: int
    scalars: dict[str, Any]
    ranks: int
    _folder: Path
    _files: list[dict[str, Any]]

    def classes(self, begin: int, end: int) -> dict[str, NDArray[Any]]:
        """The arrays of a range of classes, name -> array, each put together along its last axis."""
        return self._range("class", begin, end)

    def rows(self, begin: int, end: int) -> dict[str, NDArray[Any]]:
        """The arrays of a range of rows, name -> array, each put together along its first axis."""
        return self._range("row", begin, end)

    def _range(self, kind: Literal["class", "row"], begin: int, end: int) -> dict[str, NDArray[Any]]:
        axis = _AXES[kind]
        found: dict[str, NDArray[Any]] = {}
        filled: dict[str, int] = {}
        for entry in self._files:
            here = [(key, *key.split(":", 3)) for key in entry["tensors"] if key.startswith(f"{kind}:")]
            wanted = [
                (key, name, int(first), max(begin, int(first)), min(end, int(last)))
                for key, _, first, last, name in here
                if max(begin, int(first)) < min(end, int(last))
            ]
            if not wanted:
                continue
            path = self._folder / entry["file"]
            try:
                with safe_open(str(path), framework="numpy") as stored:
                    for key, name, first, low, high in wanted:
                        dtype, shape = entry["tensors"][key]
                        if name not in found:
                            shape = list(shape)
                            shape[axis] = end - begin
                            found[name] = np.empty(shape, dtype)
                        source, target = [slice(None)] * len(shape), [slice(None)] * len(shape)
                        source[axis], target[axis] = slice(low - first, high - first), slice(low - begin, high - begin)
                        found[name][tuple(target)] = stored.get_slice(key)[tuple(source)]
                        filled[name] = filled.get(name, 0) + high - low
            except (SafetensorError, OSError) as error:
                raise ValueError(_damaged(path, str(error))) from error
        for name, count in filled.items():
            if count != end - begin:
                raise ValueError(f"checkpoint {self._folder} holds {count} of {kind} {begin} to {end} of {name!r}")
        return found


def load(comm: Communicator, folder: str | Path, identity: Mapping[str, Any] | None = None) -> Snapshot | None:
    """The last whole state in a folder, or None if there is none; every rank calls this.

    Parameters
    ----------
    comm : Communicator
        Of any number of ranks.
    folder : path
    identity : mapping, optional
        What the run is about, as it was given to `save`.

    Raises
    ------
    ValueError
        If the state belongs to another run, or is damaged: on every rank alike.
    """
    folder = Path(folder)
    text = _broadcast_text(comm, _read_manifest(folder) if comm.rank == 0 else "")
    if not text:
        return None
    try:
        manifest = json.loads(text)
        if manifest["format"] != _FORMAT:
            raise ValueError(f"format {manifest['format']}, expected {_FORMAT}")
        snapshot = Snapshot(
            manifest["epoch"],
            manifest["scalars"],
            manifest["ranks"],
            folder,
            [dict(entry) for entry in manifest["files"]],
        )
        found = manifest["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(_damaged(folder / _MANIFEST, str(error))) from error
    expected = json.loads(json.dumps(dict(identity or {})))
    if found != expected:
        names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        told = ", ".join(f"{name}: found {found.get(name)}, expected {expected.get(name)}" for name in names)
        raise ValueError(
            f"checkpoint {folder} belongs to another run ({told}): "
            "remove it to start afresh, or give the same data and parameters"
        )
    # Each rank reads some of the files; all learn of the first that is damaged.
    bad = np.zeros(len(snapshot._files), np.int64)
    for k in range(comm.rank, len(snapshot._files), comm.size):
        entry = snapshot._files[k]
        comm.progress()
        try:
            bad[k] = _sha256(folder / entry["file"]) != entry["sha256"]
        except OSError:
            bad[k] = 1
    bad = comm.allreduce(bad)
    if bad.any():
        raise ValueError(_damaged(folder / snapshot._files[int(np.argmax(bad))]["file"], "missing, or changed since"))
    return snapshot


def _read_manifest(folder: Path) -> str:
    try:
        return (folder / _MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _broadcast_text(comm: Communicator, text: str) -> str:
    data = np.frombuffer(text.encode(), np.uint8)
    size = int(comm.broadcast(np.array([data.size]))[0])
    return bytes(comm.broadcast(data if comm.rank == 0 else np.zeros(size, np.uint8))).decode()


def _damaged(path: Path, why: str) -> str:
    return f"checkpoint {path} cannot be read ({why}): remove {path.parent} to start afresh"


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def _to_disk(path: Path) -> None:
    """Out of the caches of the system: a rename must not arrive before what it names."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # folders, on Windows
        return
    try:
        os.fsync(handle)
    except OSError:  # some network file systems
        pass
    finally:
        os.close(handle)


def digest(comm: Communicator, begin: int, *columns: NDArray[Any]) -> str:
    """A number for the data of a run, the same however its rows are divided among the ranks.

    Parameters
    ----------
    comm : Communicator
    begin : int
        Number of this rank's first row among all.
    *columns : ndarray of shape (n_rows_here,)
        Numbers for each row of this rank: targets, weights, norms.

    Returns
    -------
    str
        Of 16 hexadecimal digits: a sum, modulo 2^64, of a hash of every number and its place.
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
