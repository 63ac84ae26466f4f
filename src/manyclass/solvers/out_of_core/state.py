"""The state of an out-of-core fit on disk: versioned files of blocks, and a log-sum-exp for each row and block."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manyclass.distributed import Communicator, SerialCommunicator
from manyclass.io.folder import MANIFEST, StoreError, digest, open_file, read_manifest, write_manifest
from manyclass.io.tensors import Kind, write_arrays
from manyclass.models.partitioned import ClassBlocks

__all__ = ["BlockState", "LogSums", "StoredBlocks", "Work"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_BLOCK = Kind(
    "manyclass-training",
    1,
    "file of a fit under way",
    "remove the folder to start afresh",
    "remove the folder to start afresh",
    StoreError,
)


class BlockState(NamedTuple):
    """A block of classes in memory: weights of shape (d, width), intercept, and the means of both, or empty arrays."""

    W: Array
    bias: Array
    mean: Array
    mean_bias: Array

    @property
    def averaging(self) -> bool:
        """Whether there is a mean."""
        return bool(self.mean.size)


class StoredBlocks(ClassBlocks):
    """The weights after an epoch, in blocks of classes on disk, which every process of the fit can read.

    Parameters
    ----------
    work : Work
        The folder with their files.
    versions : tuple of int
        The version of the file of each block.
    epoch : int
        Number of epochs.
    whole : bool
        Whether the last epoch is complete; else some blocks have had more steps.
    """

    def __init__(self, work: Work, versions: tuple[int, ...], epoch: int, whole: bool = True) -> None:
        self.versions, self.epoch, self.whole, self._work = versions, epoch, whole, work
        self.shape, self.dtype = (work.n_features, work.bounds[-1]), work.dtype

    def block(self, number: int) -> tuple[Array, Array]:
        """Weights (a memory map) and intercept of a block."""
        return self._work.result(number, self.versions[number])

    def each(self, comm: Communicator | None = None) -> Iterator[tuple[int, int, Array]]:
        """First class, last class + 1, and weights (a memory map) of each block."""
        for number, (lo, hi) in enumerate(zip(self._work.bounds[:-1], self._work.bounds[1:])):
            yield lo, hi, self.block(number)[0]

    def assemble(self, comm: Communicator | None = None) -> Array:
        """All weights, in memory."""
        return super().assemble(SerialCommunicator() if comm is None else comm)

    def copy(self) -> StoredBlocks:
        """The same: no file is ever changed, and `Work.best` keeps those of the best score."""
        return self

    def intercept(self) -> Array:
        """The intercepts of all classes."""
        return np.concatenate([self.block(number)[1] for number in range(self._work.n_blocks)])


class Work:
    """The folder of a running fit, which is also its checkpoint.

    A visit of a block reads its file and writes a new version. The manifest, which lists the current versions, is
    replaced atomically at the end of a step. A fit that is interrupted at any time is resumed from the last complete
    step, with the same result to the last bit.

    Parameters
    ----------
    path : Path
        The folder.
    identity : dict
        Store, parameters and seed; a folder with another identity is an error.
    bounds : list of int
        First class of each block, and the number of classes.
    n_features : int
        Number of features.
    dtype : dtype
        Type of the weights.
    steps : int
        Steps per epoch.
    ranks : int
        Number of processes.

    Attributes
    ----------
    done : int
        Steps so far. A fit that goes on with another number of processes begins the epoch anew that was interrupted.
    sums_of : int
        Number of processes that have written the log-sum-exps of the rows.
    history, validation : list
        The evaluations so far, and the scores of the held-out rows, as lists of numbers.
    best : (float, StoredBlocks), optional
        The best of these scores, and its weights, if they are kept; `settle` does not remove their files.
    """

    def __init__(
        self,
        path: Path,
        identity: dict[str, Any],
        bounds: list[int],
        n_features: int,
        dtype: np.dtype[Any],
        steps: int,
        ranks: int,
    ) -> None:
        self.path = path
        self.bounds = bounds
        self.n_features = n_features
        self.dtype = dtype
        self.steps = steps
        self.ranks = self.sums_of = ranks
        self.done = self._base = 0  # versions of files count from the base
        self._left: str | None = None
        self.history: list[list[float]] = []
        self.validation: list[list[float]] = []
        self.best: tuple[float, StoredBlocks] | None = None
        self._versions = [0] * self.n_blocks
        self._identity = json.loads(json.dumps(identity))

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.bounds) - 1

    @property
    def begun(self) -> bool:
        """Whether a block has been saved."""
        return any(self._versions)

    def resume(self) -> None:
        """Continue from the manifest, if the folder exists.

        Raises
        ------
        ValueError
            If the folder belongs to another fit.
        """
        if not (self.path / MANIFEST).exists():
            return
        found = read_manifest(self.path, _BLOCK.format, _BLOCK.version, "the folder of a fit under way")
        if found.get("identity") != self._identity:
            raise ValueError(
                f"checkpoint {self.path} belongs to another fit (found {found.get('identity')}, expected "
                f"{self._identity}): remove it, or give the same data and parameters"
            )
        self.done, self._base, self.sums_of = (int(found[name]) for name in ("done", "base", "ranks"))
        self._versions = [int(version) for version in found["versions"]]
        self.history = [[float(value) for value in row] for row in found["history"]]
        self._left = found["left"]
        self.validation = [[float(value) for value in row] for row in found.get("validation", ())]
        if found.get("best") is not None:
            score, epoch, versions = (found["best"][name] for name in ("score", "epoch", "versions"))
            self.best = float(score), StoredBlocks(self, tuple(int(version) for version in versions), int(epoch))
        if self.sums_of != self.ranks:
            last = self._base + self.done
            self.done = self.done // int(found["steps"]) * self.steps
            self._base = last - self.done

    def settle(self, blocks: list[int], *, write: bool) -> None:
        """Count a step, in which these blocks were saved; one of the ranks has ``write`` and writes the manifest."""
        stale = [self._file(block) for block in blocks]
        self.done += 1
        for block in blocks:
            self._versions[block] = self._base + self.done
        if write:
            self.write()
            self._remove(stale)

    def weights(self) -> StoredBlocks:
        """The weights of the model after the steps so far."""
        epoch, more = divmod(self.done, self.steps)
        return StoredBlocks(self, tuple(self._versions), epoch, not more)

    def judged(self, best: tuple[float, StoredBlocks] | None, *, write: bool) -> None:
        """Keep the weights with the best score from now on, in place of those that were kept before."""
        before, self.best = self.best, best
        if write:
            self.write()
            if before is not None:
                self._remove([self._file(block, version) for block, version in enumerate(before[1].versions)])

    def _remove(self, stale: list[Path]) -> None:
        """Remove these files, but none of the current weights or of the best ones."""
        kept = [*enumerate(self._versions), *(() if self.best is None else enumerate(self.best[1].versions))]
        for file in {*stale} - {self._file(*block) for block in kept}:
            file.unlink(missing_ok=True)

    def write(self) -> None:
        """Write the manifest."""
        facts = {"epoch": self.done // self.steps, "done": self.done, "base": self._base, "versions": self._versions}
        facts |= {"ranks": self.ranks, "steps": self.steps}
        facts |= {"history": self.history, "left": self._left, "validation": self.validation}
        if self.best is not None:
            score, kept = self.best
            facts["best"] = {"score": score, "epoch": kept.epoch, "versions": list(kept.versions)}
        write_manifest(self.path, _BLOCK.format, _BLOCK.version, {"identity": self._identity, **facts})

    def leave(self, path: Path) -> None:
        """Record the digest of the model written from the current weights, which a resumed fit may replace."""
        self._left = digest(path / MANIFEST)
        self.write()

    def has_left(self, path: Path) -> bool:
        """Whether the model in this folder is the one that this fit has written."""
        return self._left is not None and (path / MANIFEST).is_file() and digest(path / MANIFEST) == self._left

    def _file(self, block: int, version: int | None = None) -> Path:
        version = self._versions[block] if version is None else version
        return self.path / f"block-{block:05d}-{version:06d}.safetensors"

    def load(self, block: int, *, averaging: bool) -> BlockState:
        """Read a block; with ``averaging`` including the mean, which starts as the weights."""
        width = self.bounds[block + 1] - self.bounds[block]
        empty = np.empty((0, 0), self.dtype), np.empty(0, self.dtype)
        if not self._versions[block]:
            return BlockState(np.zeros((self.n_features, width), self.dtype), np.zeros(width, self.dtype), *empty)
        with open_file(self._file(block), _BLOCK) as file:
            found = {name: file.read(name) for name in file.names if averaging or name in ("W", "bias")}
            W, bias = found["W"], found["bias"]
            if W.shape != (self.n_features, width):
                raise file.damaged(f"weights of shape {W.shape}")
        if not averaging:
            return BlockState(W, bias, *empty)
        if "mean" in found:
            return BlockState(W, bias, found["mean"], found["mean_bias"])
        return BlockState(W, bias, W.copy(), bias.copy())

    def save(self, block: int, state: BlockState) -> None:
        """Write a block after the current step."""
        arrays = {"W": state.W, "bias": state.bias}
        if state.averaging:
            arrays.update(mean=state.mean, mean_bias=state.mean_bias)
        write_arrays(self._file(block, self._base + self.done + 1), _BLOCK, arrays)

    def result(self, block: int, version: int) -> tuple[Array, Array]:
        """Weights (a memory map) and intercept of the model: the mean, if there is one."""
        width = self.bounds[block + 1] - self.bounds[block]
        if not version:
            return np.zeros((self.n_features, width), self.dtype), np.zeros(width, self.dtype)
        with open_file(self._file(block, version), _BLOCK) as file:
            names = ("mean", "mean_bias") if "mean" in file.names else ("W", "bias")
            return file.window(names[0]), file.read(names[1])

    def sums_file(self, rank: int, ranks: int) -> Path:
        """The file of `LogSums` of one of so many processes."""
        return self.path / f"sums-{ranks}-{rank:05d}.bin"

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


class LogSums:
    """A file with the log-sum-exp of the scores of each row in each block, in float32.

    Parameters
    ----------
    path : Path
        The file.
    n : int
        Number of rows of this rank.
    widths : list of int
        Number of classes of each block; its logarithm is the log-sum-exp at zero weights.
    fresh : bool
        Whether to write the file for zero weights even if it exists.
    """

    _PIECE = 1 << 20

    def __init__(self, path: Path, n: int, widths: list[int], *, fresh: bool) -> None:
        self._path = path
        self._n = n
        self._blocks = len(widths)
        if self._blocks > 1 and (fresh or not path.exists() or path.stat().st_size != 4 * n * len(widths)):
            with open(path, "wb") as file:
                for width in widths:
                    for begin in range(0, n, self._PIECE):
                        size = min(self._PIECE, n - begin)
                        file.write(np.full(size, np.log(width), np.float32).tobytes())

    def take(self, path: Path, n: int, begin: int, first: int, last: int) -> None:
        """Copy rows ``first`` to ``last - 1`` of a file with n rows to the rows from ``begin`` on."""
        if self._blocks > 1:
            with open(path, "rb") as file:
                for block in range(self._blocks):
                    for at in range(first, last, self._PIECE):
                        file.seek(4 * (block * n + at))
                        values = np.fromfile(file, np.float32, min(self._PIECE, last - at))
                        self.put(block, begin + at - first, values)

    def others(self, block: int, begin: int, end: int) -> Array:
        """The log-sum-exp over all other blocks, for rows begin to end - 1, in float64; -inf if there is none."""
        found = np.full(end - begin, -np.inf)
        if self._blocks > 1:
            with open(self._path, "rb") as file:
                for other in range(self._blocks):
                    if other != block:
                        file.seek(4 * (other * self._n + begin))
                        np.logaddexp(found, np.fromfile(file, np.float32, end - begin), out=found)
        return found

    def put(self, block: int, begin: int, values: Array) -> None:
        """Write the log-sum-exps of a block for the rows from ``begin`` on."""
        if self._blocks > 1:
            with open(self._path, "r+b") as file:
                file.seek(4 * (block * self._n + begin))
                file.write(values.astype(np.float32).tobytes())
