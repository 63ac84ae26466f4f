"""`PartitionedModel`: a linear model whose blocks of classes are in the memory of the processes that have fitted it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from manyclass._version import __version__
from manyclass.distributed import Communicator, opened
from manyclass.io.streams import StrPath
from manyclass.io.tensors import Written
from manyclass.kernels.scoring import Scorer
from manyclass.models.base import Model
from manyclass.models.blocks import BlockModel
from manyclass.models.linear import LinearModel
from manyclass.models.sharded import Block, ShardedModel, finish, write_block
from manyclass.models.splitting import block_width
from manyclass.runtime.files import atomic_folder
from manyclass.runtime.memory import require
from manyclass.runtime.threads import ranges

__all__ = ["ClassBlocks", "Columns", "PartitionedModel"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class ClassBlocks(ABC):
    """Weights in blocks of classes, which are whole in no process: they are in several processes, or on disk.

    Attributes
    ----------
    shape : tuple of int
        Numbers of features and of classes.
    dtype : dtype
        Of the weights.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @abstractmethod
    def each(self, comm: Communicator) -> Iterator[tuple[int, int, Array]]:
        """First class, last class + 1, and weights of each block, in the order of the classes; all processes of
        ``comm`` call this together."""

    @abstractmethod
    def copy(self) -> ClassBlocks:
        """The same weights, which later iterations do not change."""

    def assemble(self, comm: Communicator) -> Array:
        """All weights, (n_features, n_classes), in every process; all processes of ``comm`` call this together."""
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        require({"all weights in every process": size}, "save the model, and open it with manyclass.load")
        whole = np.empty(self.shape, self.dtype)
        for lo, hi, block in self.each(comm):
            whole[:, lo:hi] = block
        return whole


@dataclass(frozen=True)
class Columns(ClassBlocks):
    """Columns of weights in blocks, each in one process; of this object every process has one.

    Attributes
    ----------
    bounds : tuple of int
        First column of each block, followed by the number of columns.
    owners : tuple of int
        Process of each block.
    blocks : dict of ndarray of shape (n_features, width)
        The blocks of this process, by number.
    shape : tuple of int
        Numbers of features and of columns.
    dtype : dtype
        Of the weights.
    """

    bounds: tuple[int, ...]
    owners: tuple[int, ...]
    blocks: dict[int, Array]
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def each(self, comm: Communicator) -> Iterator[tuple[int, int, Array]]:
        """First column, last column + 1, and weights of each block, sent to all processes one after the other."""
        for number, (lo, hi) in enumerate(zip(self.bounds[:-1], self.bounds[1:])):
            owner = self.owners[number]
            # Of other processes only shape and dtype matter: no memory is used for these weights.
            own = self.blocks.get(number, np.broadcast_to(self.dtype.type(0), (self.shape[0], hi - lo)))
            yield lo, hi, comm.broadcast(own, owner)

    def copy(self) -> Columns:
        """The same, with copies of the blocks of this process."""
        return replace(self, blocks={number: block.copy() for number, block in self.blocks.items()})

    def difference(self, comm: Communicator) -> Columns:
        """The second of two columns minus the first, as one column of the first process."""
        both = self.assemble(comm)
        blocks = {} if comm.rank else {0: np.ascontiguousarray(both[:, 1:] - both[:, :1])}
        return Columns((0, 1), (0,), blocks, (self.shape[0], 1), self.dtype)


@dataclass(frozen=True, eq=False)
class PartitionedModel(BlockModel):
    """A linear model whose weights are in the memory of several processes, each with some blocks of the classes.

    All processes call its methods together, each with its own rows: blocks are sent to all processes one after the
    other, so that none has more than its own blocks and one of another. Scores, rankings and probabilities equal those
    of the `LinearModel` with the same weights. `save` writes a folder, to which each process writes its blocks.

    Parameters
    ----------
    columns : Columns
        The weights of this process.
    intercept : ndarray of shape (n_outputs,)
        Intercepts of all classes.
    comm : Communicator, "mpi", "torch" or "auto"
        The processes.
    classes, task, link, parameters, record, feature_names, vectorizer, library_version, temperature
        As in `LinearModel`.

    See Also
    --------
    manyclass.load : Opens the folder that `save` writes, as a `ShardedModel`.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import DSMLR, LinearClassifier, load
    >>> from manyclass.distributed import run_threads
    >>> X, y = load_iris(return_X_y=True)
    >>> folder = os.path.join(tempfile.mkdtemp(), "iris.blocks")
    >>> def fit(comm):
    ...     rows = slice(comm.rank, None, comm.size)
    ...     model = LinearClassifier(solver=DSMLR(comm=comm, block_classes=1), alpha=0.1).fit(X[rows], y[rows])
    ...     model.save(folder)
    ...     return type(model.model_).__name__, model.score(X[rows], y[rows]) > 0.7
    >>> run_threads(3, fit)
    [('PartitionedModel', True), ('PartitionedModel', True), ('PartitionedModel', True)]
    >>> len(load(folder).blocks), load(folder).predict(X).shape
    (3, (150,))
    """

    columns: Columns
    intercept: Array
    comm: Communicator | str
    classes: Array | None
    task: str
    link: str = "identity"
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    record: dict[str, Any] = field(default_factory=dict, repr=False)
    feature_names: Array | None = field(default=None, repr=False)
    vectorizer: tuple[dict[str, Any], dict[str, Array]] | None = field(default=None, repr=False)
    library_version: str = __version__
    temperature: float = 1.0
    kind = "partitioned"

    def __getstate__(self) -> Any:
        raise TypeError(
            "the weights of this model are in several processes, and one of them cannot be pickled alone: save it, and "
            "open it with manyclass.load"
        )

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.columns.shape

    @property
    def weight_dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        return self.columns.dtype

    @property
    def weights(self) -> Any:
        """Those of a `LinearModel`; here they are in several processes.

        Raises
        ------
        AttributeError
            Always; it names `save` and `assemble`.
        """
        raise AttributeError(
            "the weights are in blocks of classes in several processes, and never whole in one: columns.blocks has "
            "those of this one; save(path) writes all to a folder; assemble().weights gathers all in every process"
        )

    @property
    def nbytes(self) -> int:
        """Size of the blocks of this process in bytes."""
        return sum(block.nbytes for block in self.columns.blocks.values())

    def summary(self) -> dict[str, Any]:
        """A description of the model as a dict for JSON; of the weights, those of this process."""
        return {
            "task": self.task,
            "link": self.link,
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "dtype": self.dtype.name,
            "n_blocks": len(self.columns.owners),
            "blocks_here": sorted(self.columns.blocks),
            "nbytes_here": self.nbytes,
        }

    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"blocks": len(self.columns.owners)}, {}

    def _scorers(self) -> Iterator[tuple[int, int, Scorer]]:
        with opened(self.comm) as comm:
            for lo, hi, block in self.columns.each(comm):
                yield lo, hi, Scorer(block, self.intercept[lo:hi])

    def assemble(self) -> LinearModel:
        """The same model in memory, as a `LinearModel`, in every process.

        Raises
        ------
        MemoryError
            If there is not enough memory for all weights.
        """
        with opened(self.comm) as comm:
            return LinearModel(self.columns.assemble(comm), self.intercept, **self.common())

    def _calibrated_by(
        self,
        sources: Iterable[tuple[Model, Any]],
        y: Any,
        sample_weight: Any = None,
        n_jobs: int | None = None,
        *,
        bias: bool = False,
    ) -> PartitionedModel:
        """Not supported: each process would find another temperature, from its own rows."""
        raise ValueError(
            "calibrate is for one process: save the model, open it with manyclass.load, and calibrate that"
        )

    def save(self, path: StrPath) -> None:
        """Write the model to a folder, that of a `ShardedModel`, to which each process writes its blocks.

        The folder gets its name last, when all blocks and the manifest are on disk.

        Parameters
        ----------
        path : path
            The folder, which must not exist, on a file system that all processes share.

        Raises
        ------
        ValueError
            If the path exists already.
        OSError
            If a file cannot be written, or the first process does not find the file of another one.
        """
        facts = {"classes": self.classes, "task": self.task, "link": self.link}
        with opened(self.comm) as comm:
            with atomic_folder(path) if comm.rank == 0 else nullcontext(Path()) as made:
                folder = Path(comm.broadcast_bytes(str(made.absolute()).encode()).decode())
                own = []
                for number, weights in self.columns.blocks.items():
                    for lo, hi in ranges(weights.shape[1], block_width(self.n_features, weights.shape[1], self.dtype)):
                        first = self.columns.bounds[number] + lo
                        part = np.ascontiguousarray(weights[:, lo:hi])
                        bias = np.ascontiguousarray(self.intercept[first : first + hi - lo])
                        own.append(write_block(folder, f"{number:05d}-{lo}", first, part, bias, facts))
                        comm.progress()
                entries = [[block.lo, block.hi, block.file._asdict()] for block in own]
                found = comm.gather(np.frombuffer(json.dumps(entries).encode(), np.uint8))
                if found is not None:
                    blocks = [
                        Block(lo, hi, Written(**file)) for part in found for lo, hi, file in json.loads(bytes(part))
                    ]
                    blocks.sort()
                    for block in blocks:
                        file = folder / block.file.file
                        if not file.exists() or file.stat().st_size != block.file.bytes:
                            raise OSError(
                                f"the first process cannot access {file}, written by another one: use a folder on a "
                                "file system that all hosts share"
                            )
                    layout = (tuple(blocks), self.shape, self.dtype, "dense")
                    finish(folder, ShardedModel(folder, *layout, **self.common()))
            comm.barrier()
