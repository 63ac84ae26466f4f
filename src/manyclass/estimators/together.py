"""Fits an estimator on rows that several workers have, each some parts, for `manyclass.distributed.dask` and `.ray`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from manyclass.distributed import Communicator
from manyclass.io.streams import StrPath
from manyclass.models.linear import LinearModel
from manyclass.models.loading import load
from manyclass.models.partitioned import Columns, PartitionedModel
from manyclass.objective.losses import CrammerSinger
from manyclass.runtime.memory import require
from manyclass.solvers import DSMLR, DataParallelSDCA
from manyclass.solvers.base import Solver

if TYPE_CHECKING:
    from manyclass.estimators.classifier import LinearClassifier

__all__ = ["Part", "check_solver", "fit_on"]

#: Rows, labels and sample weights (or None).
Part: TypeAlias = tuple[Any, Any, Any]


def check_solver(estimator: LinearClassifier) -> Any:
    """The solver for several workers that have their own rows: "auto" is `DSMLR`, for Crammer-Singer
    `DataParallelSDCA`.

    Raises
    ------
    ValueError
        If the solver is not for several workers.
    """
    estimator._check_parameters()
    solver = estimator._asked_solver()
    if solver is None:
        return DataParallelSDCA() if isinstance(estimator._loss(), CrammerSinger) else DSMLR()
    if not (isinstance(solver, Solver) and solver.distributed and solver.partitions_rows):
        raise ValueError(
            f"solver must be 'auto' or one whose processes have their own rows, got {solver.name!r}: give 'ds_mlr', "
            "or 'sdca_dp' for Crammer-Singer"
        )
    return solver


def fit_on(
    estimator: LinearClassifier, comm: Communicator, parts: Sequence[Part], path: StrPath | None = None
) -> LinearClassifier | None:
    """Fit a copy of the estimator; all ranks call this together.

    Parameters
    ----------
    estimator : LinearClassifier
        Its solver is "auto" or one for several processes, without ``comm``.
    comm : Communicator
        The ranks.
    parts : sequence of tuple
        The rows of this rank: rows, labels, sample weights or None. Several parts are copied into one.
    path : path, optional
        Where the model is saved, each rank its classes; None: rank 0 gathers the weights.

    Returns
    -------
    LinearClassifier or None
        The fitted copy on rank 0; with ``path`` its model is that on disk. None on other ranks.
    """
    solver = check_solver(estimator)
    fitted: LinearClassifier = clone(estimator).set_params(solver=clone(solver).set_params(comm=comm))
    X, y, weights = zip(*parts)
    fitted.fit(_joined(X), _joined(y), None if weights[0] is None else _joined(weights))
    model: Any = fitted.model_
    in_blocks = isinstance(model, PartitionedModel)
    if path is not None and (in_blocks or comm.rank == 0):
        fitted.save(path)
    elif in_blocks:
        W = _gathered(model.columns, comm)
        model = None if W is None else LinearModel(W, model.intercept, **model.common())
    comm.barrier()
    if comm.rank:
        return None
    fitted.model_ = model if path is None else load(path)
    fitted.set_params(solver=estimator.solver)
    return fitted


def _gathered(columns: Columns, comm: Communicator) -> Any:
    """All weights on rank 0, None on others."""
    whole = None
    if comm.rank == 0:
        size = columns.shape[0] * columns.shape[1] * columns.dtype.itemsize
        require({"all weights in one worker": size}, "give a path, to which each worker writes its classes")
        whole = np.empty(columns.shape, columns.dtype)
    for lo, hi, block in columns.each(comm):
        if whole is not None:
            whole[:, lo:hi] = block
    return whole


def _joined(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if sp.issparse(parts[0]):
        return sp.vstack(parts, format="csr")
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(parts[0], (pandas.DataFrame, pandas.Series)):
        return pandas.concat(parts)
    return np.concatenate([np.asarray(part) for part in parts])
