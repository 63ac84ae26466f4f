"""The state of a distributed run on disk: one file a rank, and a manifest that says which files belong together.

Every rank writes its classes and rows to a file of a new name; when all are there, rank 0 renames the manifest into
place. Whatever is interrupted, the manifest names a whole state. What was saved by some number of ranks is loaded by
any other: arrays are asked for by ranges of classes or rows, and put together from the files that hold them.

The folder must be one that all ranks see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyclass.distributed.communicator import Communicator
from manyclass.io.folder import MANIFEST, digest as sha256, open_file, parse_manifest, write_manifest
from manyclass.io.tensors import FileError, Kind, write_arrays

__all__ = ["Piece", "Snapshot", "digest", "load", "remove", "save"]

_REMEDY = "remove the folder to start afresh"
_STATE = Kind("manyclass-checkpoint", 1, "file of a checkpoint", _REMEDY, _REMEDY)
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
                tensors[f"{kind}:{begin}:{end}:{name}"] = array
    # A state may be written anew at the same epoch, after a resume, by another number of ranks.
    version = _version(comm, folder)
    written = write_arrays(folder / f"{version}-{comm.rank}{_SUFFIX}", _STATE, tensors)
    entry = {**written._asdict(), "arrays": list(tensors)}
    entries = comm.gather(np.frombuffer(json.dumps(entry).encode(), np.uint8))
    if entries is not None:
        _finish(folder, epoch, [json.loads(bytes(e)) for e in entries], dict(scalars or {}), dict(identity or {}))
    comm.barrier()


def _version(comm: Communicator, folder: Path) -> int:
    """A number that no file in the folder has."""
    version = np.zeros(1, np.int64)
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [file.name.partition("-")[0] for file in folder.glob(f"*{_SUFFIX}")]
        version[0] = 1 + max((int(name) for name in taken if name.isdecimal()), default=0)
    return int(comm.broadcast(version)[0])


def _finish(
    folder: Path, epoch: int, entries: list[dict[str, Any]], scalars: dict[str, Any], identity: dict[str, Any]
) -> None:
    """Write the manifest, and remove what it does not name."""
    for rank, entry in enumerate(entries):
        file = folder / entry["file"]
        if not file.exists() or file.stat().st_size != entry["bytes"]:
            raise OSError(
                f"{file}, written by rank {rank}, is not to be seen by rank 0: give a folder that all hosts share"
            )
    facts = {"epoch": int(epoch), "ranks": len(entries), "identity": identity, "scalars": scalars, "files": entries}
    write_manifest(folder, _STATE.format, _STATE.version, facts)
    _tidy(folder, {entry["file"] for entry in entries})


def _tidy(folder: Path, keep: Set[str]) -> None:
    """Remove earlier states, and what interrupted writes have left."""
    for file in [*folder.glob(f"*{_SUFFIX}"), *folder.glob(f".*{_SUFFIX}.*.tmp"), *folder.glob(f".{MANIFEST}.*.tmp")]:
        if file.name not in keep:
            file.unlink(missing_ok=True)


def remove(folder: str | Path) -> None:
    """Remove the state in a folder, and the folder if it holds nothing else; one process calls this."""
    folder = Path(folder)
    (folder / MANIFEST).unlink(missing_ok=True)  # first: what it names must be there as long as it is
    _tidy(folder, set())
    if not any(folder.iterdir()):
        folder.rmdir()


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
            try:
                for key in entry["arrays"]:
                    _, first, last, name = key.split(":", 3)
                    low, high = max(begin, int(first)), min(end, int(last))
                    if not key.startswith(f"{kind}:") or low >= high:
                        continue
                    with open_file(self._folder / entry["file"], _STATE) as file:
                        # Of what is mapped, only the range is read.
                        part = np.moveaxis(file.read(key, mmap=True), axis, 0)[low - int(first) : high - int(first)]
                    if name not in found:
                        found[name] = np.moveaxis(np.empty((end - begin, *part.shape[1:]), part.dtype), 0, axis)
                    np.moveaxis(found[name], axis, 0)[low - begin : high - begin] = part
                    filled[name] = filled.get(name, 0) + high - low
            except (FileError, OSError) as error:
                raise ValueError(_damaged(self._folder / entry["file"], str(error))) from error
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
    content = _manifest(comm, folder)
    if not content:
        return None
    try:
        manifest = parse_manifest(content, folder, _STATE.format, _STATE.version, "a checkpoint")
        snapshot = Snapshot(
            manifest["epoch"],
            manifest["scalars"],
            manifest["ranks"],
            folder,
            [dict(entry) for entry in manifest["files"]],
        )
        found = manifest["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(_damaged(folder / MANIFEST, str(error))) from error
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
            bad[k] = sha256(folder / entry["file"]) != entry["sha256"]
        except OSError:
            bad[k] = 1
    bad = comm.allreduce(bad)
    if bad.any():
        raise ValueError(_damaged(folder / snapshot._files[int(np.argmax(bad))]["file"], "missing, or changed since"))
    return snapshot


def _manifest(comm: Communicator, folder: Path) -> bytes:
    """The content of the manifest as rank 0 sees it; none if there is no manifest."""
    found = b""
    if comm.rank == 0 and (folder / MANIFEST).exists():
        found = (folder / MANIFEST).read_bytes()
    size = int(comm.broadcast(np.array([len(found)]))[0])
    return bytes(comm.broadcast(np.frombuffer(found, np.uint8) if comm.rank == 0 else np.zeros(size, np.uint8)))


def _damaged(path: Path, why: str) -> str:
    return f"checkpoint {path} cannot be read ({why}): remove {path.parent} to start afresh"


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
