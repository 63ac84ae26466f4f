"""The state of an out-of-core fit: files of blocks that replace each other, and a log-sum-exp a row and block."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manyclass.io.folder import MANIFEST, StoreError, digest, open_file, read_manifest, write_manifest
from manyclass.io.tensors import Kind, write_arrays

__all__ = ["BlockState", "LogSums", "Work"]

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
    """A block of classes in memory: weights d x width and intercept, and the mean of both once there is one."""

    W: Array
    bias: Array
    mean: Array
    mean_bias: Array

    @property
    def averaging(self) -> bool:
        """Whether there is a mean."""
        return bool(self.mean.size)


class Work:
    """The folder of a fit under way.

    A visit to a block reads its file and writes a new one, beside it; the manifest, which says which files count, is
    replaced when a step is done. Whatever interrupts the fit, it goes on from the last whole step to the same bits.

    Parameters
    ----------
    path : Path
    identity : dict
        Of the problem and the parameters; a folder of another fit is refused.
    bounds : list of int
        First class of each block, and the number of classes.
    n_features : int
    dtype : dtype
    steps : int
        Of an epoch.
    """

    def __init__(
        self, path: Path, identity: dict[str, Any], bounds: list[int], n_features: int, dtype: np.dtype[Any], steps: int
    ) -> None:
        self.path = path
        self.bounds = bounds
        self.n_features = n_features
        self.dtype = dtype
        self.steps = steps
        self.done = 0
        self._left: str | None = None
        self.history: list[list[float]] = []
        self._versions = [0] * self.n_blocks
        self._identity = json.loads(json.dumps(identity))

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.bounds) - 1

    def resume(self) -> None:
        """Go on where the folder says, if it is one of this fit.

        Raises
        ------
        ValueError
            If it belongs to another fit.
        """
        if not (self.path / MANIFEST).exists():
            return
        found = read_manifest(self.path, _BLOCK.format, _BLOCK.version, "the folder of a fit under way")
        if found.get("identity") != self._identity:
            raise ValueError(
                f"{self.path} belongs to another fit (found {found.get('identity')}, expected {self._identity}): "
                "remove it, or give the same data and parameters"
            )
        self.done = int(found["done"])
        self._versions = [int(version) for version in found["versions"]]
        self.history = [[float(value) for value in row] for row in found["history"]]
        self._left = found["left"]

    def settle(self, blocks: list[int], *, write: bool) -> None:
        """One more step is done, in which these blocks were saved. One of the ranks writes it down."""
        stale = [self._file(block) for block in blocks]
        self.done += 1
        for block in blocks:
            self._versions[block] = self.done
        if write:
            self.write()
            for file in stale:
                file.unlink(missing_ok=True)

    def write(self) -> None:
        """Write the manifest."""
        facts = {"epoch": self.done // self.steps, "done": self.done, "versions": self._versions}
        facts |= {"history": self.history, "left": self._left}
        write_manifest(self.path, _BLOCK.format, _BLOCK.version, {"identity": self._identity, **facts})

    def leave(self, path: Path) -> None:
        """Write down the model that was made of what is done so far: to go on may replace it."""
        self._left = digest(path / MANIFEST)
        self.write()

    def has_left(self, path: Path) -> bool:
        """Whether there is a model under this name, as this fit has left it."""
        return self._left is not None and (path / MANIFEST).is_file() and digest(path / MANIFEST) == self._left

    def _file(self, block: int, version: int | None = None) -> Path:
        version = self._versions[block] if version is None else version
        return self.path / f"block-{block:05d}-{version:06d}.safetensors"

    def load(self, block: int, *, averaging: bool) -> BlockState:
        """A block in memory; with a mean, which begins at the weights, from the first time it is asked for."""
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
        """Write a block as it is after the step under way."""
        arrays = {"W": state.W, "bias": state.bias}
        if state.averaging:
            arrays.update(mean=state.mean, mean_bias=state.mean_bias)
        write_arrays(self._file(block, self.done + 1), _BLOCK, arrays)

    def result(self, block: int) -> tuple[Array, Array]:
        """The weights and the intercept that are the fit's, mapped: the mean once there is one."""
        width = self.bounds[block + 1] - self.bounds[block]
        if not self._versions[block]:
            return np.zeros((self.n_features, width), self.dtype), np.zeros(width, self.dtype)
        with open_file(self._file(block), _BLOCK) as file:
            names = ("mean", "mean_bias") if "mean" in file.names else ("W", "bias")
            return file.window(names[0]), file.read(names[1])

    def remove(self) -> None:
        """At the end of a finished fit."""
        shutil.rmtree(self.path, ignore_errors=True)


class LogSums:
    """For each block and row the log of the sum of exp of the row's scores in the block, float32, in a file.

    Parameters
    ----------
    path : Path
    n : int
        Rows of this rank.
    widths : list of int
        Classes of the blocks: at weights of zero a block's number is the log of its width.
    fresh : bool
        Make it anew, even if there is one.
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

    def others(self, block: int, begin: int, end: int) -> Array:
        """The log of the sum of exp over all other blocks, float64; -inf if there is none."""
        found = np.full(end - begin, -np.inf)
        if self._blocks > 1:
            with open(self._path, "rb") as file:
                for other in range(self._blocks):
                    if other != block:
                        file.seek(4 * (other * self._n + begin))
                        np.logaddexp(found, np.fromfile(file, np.float32, end - begin), out=found)
        return found

    def put(self, block: int, begin: int, values: Array) -> None:
        """Keep the numbers of a block for the rows from ``begin`` on."""
        if self._blocks > 1:
            with open(self._path, "r+b") as file:
                file.seek(4 * (block * self._n + begin))
                file.write(values.astype(np.float32).tobytes())
