"""Softmax regression on rows and weights that may be larger than memory."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.distributed import Communicator, opened
from manyclass.distributed.opening import ENGINES
from manyclass.solvers.base import StoreFit, StoreSolver, StoreTask
from manyclass.solvers.out_of_core.fit import BlockFit

__all__ = ["OutOfCore"]

_COUNT = Interval(Integral, 1, None, closed="left")


class OutOfCore(StoreSolver):
    """Softmax regression on a row store that may be larger than memory, by windows of rows and blocks of classes.

    ``LinearClassifier(solver=OutOfCore(path)).fit(store)`` takes a `manyclass.io.store.RowStore` and writes a
    `ShardedModel` to the folder ``path``. In memory are one block of the weights and of their mean, two windows of
    rows, and 8 bytes per row for the certificate. An epoch takes stochastic steps on each block of classes with all
    rows. The scores of a row in the other blocks enter by their log-sum-exps, which are stored on disk. Two classes are
    two columns of weights.

    Windows are read in random order, and the rows of a window are used in random order: if rows are sorted by class,
    shuffle them when the store is written. ``fit(checkpoint=FOLDER)`` writes a checkpoint after each visit of a block,
    to a folder that all processes can access. Otherwise that folder is next to the model, and removed at the end.

    Held-out rows are scored, and a callback is called, with the model of each epoch, which is read from disk. With
    ``early_stopping`` the blocks of the best epoch are kept there beside the current ones: room for as many again.

    Parameters
    ----------
    path : path
        Folder of the model, required by ``fit``. It must not exist, unless a fit with the same checkpoint wrote it.
    average : bool, default=True
        Whether the model is the mean of the weights from the second epoch on.
    certificate : {"end", "epoch"} or None, default="end"
        When the duality gap is computed, which takes up to four passes over rows and weights. "end": after the last
        epoch. "epoch": after each, and the fit stops if it is at most ``tol``. None: never; ``tol`` has no effect.
    block_classes : int, optional
        Classes per block, >= 1. None: as many as ``block_bytes`` allows.
    block_bytes : int, default=134217728
        Size of a block of the weights in bytes, >= 1.
    window_bytes : int, default=67108864
        Size of a window of rows in bytes, >= 1.
    comm : Communicator, "mpi", "torch" or "auto", optional
        The processes, each of which has some shards of the store, and in each step of an epoch one block. Blocks are
        passed on in files. None: one process. "mpi": all processes of the MPI job. "torch": all processes of a group of
        `torch.distributed`. "auto": all processes that a launcher has started, connected by one of these, or this one;
        an error if they cannot be connected.

    References
    ----------
    Gemulla, Nijkamp, Haas and Sismanis, "Large-scale matrix factorization with distributed stochastic gradient
    descent", KDD 2011, for the strata of processes and blocks; Raman, Srinivasan, Matsushima, Zhang, Yun and
    Vishwanathan, "Scaling multinomial logistic regression via hybrid parallelism", KDD 2019, for blocks of classes; Xu,
    arXiv:1107.2490, for the steps and their mean.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import LinearClassifier, OutOfCore
    >>> from manyclass.io.store import RowStore, write_store
    >>> X, y = load_digits(return_X_y=True)
    >>> folder = tempfile.mkdtemp()
    >>> write_store(os.path.join(folder, "digits.store"), (X / 16).astype("float32"), y, shard_rows=500)
    >>> store = RowStore(os.path.join(folder, "digits.store"))
    >>> solver = OutOfCore(os.path.join(folder, "digits.blocks"), block_classes=4)
    >>> model = LinearClassifier(solver=solver, alpha=1e-2, tol=0.1, random_state=0).fit(store)
    >>> len(model.model_.blocks), model.duality_gap_ < 0.1, model.score(X / 16, y) > 0.9
    (3, True, True)
    """

    name = "out_of_core"
    summary = "softmax regression on a row store, larger than memory"
    synonyms = ("external_memory",)
    losses = frozenset({"multinomial"})
    default_max_iter = 10
    distributed = True
    local = ("comm", "path")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "path": [str, os.PathLike, None],
        "average": ["boolean"],
        "certificate": [StrOptions({"end", "epoch"}), None],
        "block_classes": [_COUNT, None],
        "block_bytes": [_COUNT],
        "window_bytes": [_COUNT],
        "comm": [Communicator, StrOptions(set(ENGINES)), None],
    }
    _comm: Communicator | None = None

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        average: bool = True,
        certificate: str | None = "end",
        block_classes: int | None = None,
        block_bytes: int = 1 << 27,
        window_bytes: int = 1 << 26,
        comm: Communicator | str | None = None,
    ) -> None:
        self.path = path
        self.average = average
        self.certificate = certificate
        self.block_classes = block_classes
        self.block_bytes = block_bytes
        self.window_bytes = window_bytes
        self.comm = comm

    @property
    def certified(self) -> bool:  # type: ignore[override]
        """Whether a duality gap is computed."""
        return self.certificate is not None

    def fit_store(self, task: StoreTask) -> StoreFit:
        """See `StoreSolver.fit_store`."""
        self.check()
        if self.path is None:
            raise ValueError(
                f"solver {self.name!r} needs path, the folder of the model, got None: give it, as in "
                "solver=OutOfCore('codes.blocks')"
            )
        with opened(self.comm if self._comm is None else self._comm) as comm:
            return BlockFit(self, task, comm).run()
