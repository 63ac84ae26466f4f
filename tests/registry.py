"""The registries the laws run over. One line here puts a loss, a penalty or a row view under every law."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import helpers
from manyclass.objective.losses import CrammerSingerLoss, HuberLoss, LogisticLoss, MultinomialLoss, SmoothHingeLoss,
SquaredLoss, SquaredHingeLoss from manyclass.objective.penalties import L2, ElasticNet


class LossCase(NamedTuple):
    """A loss under test.

    ``formula``: the loss and its gradient in NumPy. ``domain``: where phi* is finite, one of "simplex", "box",
    "half_line", "line", "band" (see `helpers.infeasibility`). ``curved``: whether phi* is gamma-strongly convex over
    "all" entries of a, or over those of the "rivals" alone.
    """

    loss: Any
    formula: helpers.Formula
    domain: str
    curved: str = "all"


LOSSES = {
    "multinomial": LossCase(MultinomialLoss(), helpers.multinomial, "simplex"),
    "softmax_hinge": LossCase(MultinomialLoss(1.0), helpers.softmax_hinge, "simplex"),
    "crammer_singer-0": LossCase(CrammerSingerLoss(0.0), helpers.crammer_singer(0.0), "simplex", "rivals"),
    "crammer_singer-0.1": LossCase(CrammerSingerLoss(0.1), helpers.crammer_singer(0.1), "simplex", "rivals"),
    "crammer_singer-1": LossCase(CrammerSingerLoss(1.0), helpers.crammer_singer(1.0), "simplex", "rivals"),
    "hinge": LossCase(SmoothHingeLoss(0.0), helpers.smooth_hinge(0.0), "box"),
    "smooth_hinge-0.5": LossCase(SmoothHingeLoss(0.5), helpers.smooth_hinge(0.5), "box"),
    "smooth_hinge-1": LossCase(SmoothHingeLoss(1.0), helpers.smooth_hinge(1.0), "box"),
    "squared_hinge": LossCase(SquaredHingeLoss(), helpers.squared_hinge, "half_line"),
    "log_loss": LossCase(LogisticLoss(), helpers.log_loss, "box"),
    "softplus_hinge": LossCase(LogisticLoss(1.0), helpers.softplus_hinge, "box"),
    "squared": LossCase(SquaredLoss(), helpers.squared, "line"),
    "huber-0.5": LossCase(HuberLoss(0.5), helpers.huber(0.5), "band"),
}

PENALTIES = {
    "l2": L2(),
    "elastic_net-0": ElasticNet(0.0),
    "elastic_net-0.1": ElasticNet(0.1),
    "elastic_net-3": ElasticNet(3.0),
}

DTYPES = {"float32": np.float32, "float64": np.float64}


def _csr(X: Any, index: Any) -> sp.csr_matrix:
    found = sp.csr_matrix(X)
    found.indices, found.indptr = found.indices.astype(index), found.indptr.astype(index)
    return found


def _frozen(X: Any) -> Any:
    for array in (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,):
        array.flags.writeable = False
    return X


def _mapped(X: Any, folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


#: name -> (dense n x d array, folder to write in) -> what a user may hold the same rows in.
VIEWS: dict[str, Callable[[Any, Path], Any]] = {
    "csr-int32": lambda X, folder: _csr(X, np.int32),
    "csr-int64": lambda X, folder: _csr(X, np.int64),
    "csr-frozen": lambda X, folder: _frozen(_csr(X, np.int32)),
    "dense-c": lambda X, folder: np.ascontiguousarray(X),
    "dense-f": lambda X, folder: np.asfortranarray(X),
    "dense-frozen": lambda X, folder: _frozen(X.copy(order="C")),
    "dense-mapped": _mapped,
}
