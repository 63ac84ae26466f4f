"""Soft targets: y as a matrix of the weights of the classes, or of the probabilities of labels."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import check_sparse
from manyclass.kernels.targets import SoftTargets
from manyclass.objective.losses import CLASSIFICATION, ClassificationLoss, SoftLogisticLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.arrays import is_foreign, is_half
from manyclass.solvers import Solver

__all__ = ["is_soft", "likely", "refuse_indicator", "soft_problem", "soft_targets"]


class _Soft(NamedTuple):
    """Numbers in [0, 1], and the weights of the rows (None: all 1) that distributions have been divided by."""

    shares: sp.csr_matrix[Any]
    weights: Array | None

    def targets(self, dtype: Any, *, one_column: bool = False) -> SoftTargets:
        """For the kernels; with ``one_column`` those of the second of two classes."""
        found = sp.csr_matrix(self.shares[:, 1:] if one_column else self.shares, dtype=dtype)
        return SoftTargets(
            found.data, found.indptr.astype(np.int64), found.indices.astype(np.int32), int(found.shape[1])
        )


def is_soft(y: Any, joint: bool) -> bool:
    """Whether y is a matrix of weights: it has other values than 0 and 1, or, for a joint loss, a single 1 in each row.

    A dense matrix of integers other than 0 and 1 is none: these may be codes of classes.
    """
    if not (sp.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2)) or y.shape[1] < 2:
        return False
    values = y.data if sp.issparse(y) else y
    if values.dtype.kind not in "biuf":
        return False
    if not np.all((values == 0) | (values == 1)):
        return values.dtype.kind == "f" or bool(sp.issparse(y))
    return joint and bool(np.all(np.asarray(y.sum(axis=1)).ravel() == 1))


def _read(y: Any, loss: ClassificationLoss) -> _Soft:
    """The targets and the weights of the rows for a matrix of weights (`is_soft`).

    Raises
    ------
    ValueError
        If the loss takes none; a weight is negative, or beyond 1 for a one-vs-rest loss; or a row has none for a joint
        one.
    """
    if loss.compiled_soft() is None:
        able = ", ".join(repr(name) for name, other in CLASSIFICATION.items() if other().compiled_soft() is not None)
        remedy = ": choose another loss"
        if loss.joint:
            remedy = (
                ", or repeat each row for its classes (y = y.tocoo(); fit(X[y.row], y.col, sample_weight=y.data) for a "
                "sparse y)"
            )
        raise ValueError(
            f"loss {loss.name!r} takes labels, and y is a matrix of shape {y.shape}: weights of classes are for "
            f"{able}{remedy}"
        )
    check_sparse(y, "y")
    shares = sp.csr_matrix(y).astype(np.float64, copy=True)
    shares.sum_duplicates()
    shares.eliminate_zeros()
    if not np.isfinite(shares.data).all():
        raise ValueError("y must have finite weights, got NaN or infinity")
    if shares.data.min(initial=0.0) < 0:
        raise ValueError(
            f"y must have weights of at least 0, got {shares.data.min():g} (instead of costs c give max(c) - c, by row)"
        )
    if not loss.joint:
        if shares.data.max(initial=0.0) > 1:
            raise ValueError(
                f"y must have probabilities of labels, at most 1, for the one-vs-rest loss {loss.name!r}, got "
                f"{shares.data.max():g}: divide y by its largest value, or choose 'multinomial'"
            )
        return _Soft(shares, None)
    sums = np.asarray(shares.sum(axis=1)).ravel()
    if not sums.all():
        raise ValueError(f"y has no weight in row {int(np.argmin(sums))}: leave out rows without a class")
    shares.data /= np.repeat(sums, np.diff(shares.indptr))
    return _Soft(shares, None if np.all(sums == 1) else sums)


def likely(y: Any, joint: bool) -> Any:
    """What is right for rows of weights: the class with the largest one, or the labels above one half, a 0/1 matrix."""
    if joint:
        return np.asarray(sp.csr_matrix(y).argmax(axis=1)).ravel().astype(np.int64)
    return sp.csr_matrix(sp.csr_matrix(y) > 0.5, dtype=np.int8)


def refuse_indicator(loss: ClassificationLoss, y: Any) -> NoReturn:
    """Raise the ValueError for several labels in a row, and a joint loss."""
    separable = ", ".join(repr(name) for name, other in CLASSIFICATION.items() if not other.joint)
    raise ValueError(
        f"loss {loss.name!r} takes one class per row, and y is a multi-label indicator of shape {y.shape}: choose a "
        f"one-vs-rest loss ({separable}), or divide each row by its sum, if they are the weights of the classes"
    )


def soft_targets(
    y: Any, loss: ClassificationLoss, weights: Array | None, class_weight: Any, dtype: Any, *, margin: bool
) -> tuple[SoftTargets, Any, Array | None]:
    """The targets for y of weights (`is_soft`), the compiled loss, and the weights of the rows, which y may change.

    ``margin``: for two classes that share one column of weights.
    """
    if class_weight is not None:
        raise ValueError("class_weight is not defined for y of weights: multiply the columns of y")
    soft = _read(y, loss)
    if soft.weights is not None:
        weights = soft.weights if weights is None else soft.weights * weights
    return soft.targets(dtype, one_column=margin), SoftLogisticLoss() if margin else loss.compiled_soft(), weights


def soft_problem(
    estimator: Any, X: Any, y: Any, weights: Array | None, solver: Solver | None
) -> tuple[Problem, dict[str, Any]]:
    """As `LinearClassifier._build` for y of weights (`is_soft`)."""
    if solver is not None and solver.distributed:
        raise ValueError(f"solver {solver.name!r} takes labels, and y is a matrix of weights: choose solver='auto'")
    if not sp.issparse(X) and (is_foreign(X) or is_half(X)):
        raise ValueError(
            f"X is {type(X).__name__} of {X.dtype}, and y is a matrix of weights: pass X as a NumPy array of float32 "
            "or float64"
        )
    loss: ClassificationLoss = estimator._loss()
    K = y.shape[1]
    task = "multilabel" if not loss.joint else "binary" if K == 2 else "multiclass"
    margin = task == "binary" and (solver is None or solver.one_margin)
    dtype = X.dtype if estimator.dtype is None else estimator.dtype
    targets, compiled, weights = soft_targets(y, loss, weights, estimator.class_weight, dtype, margin=margin)
    estimator._indicator = y.dtype, bool(sp.issparse(y))
    estimator.classes_ = np.arange(K)
    problem: Problem = estimator._problem(
        X,
        targets,
        compiled,
        weights,
        intercept=estimator._takes_intercept(sp.issparse(X), solver),
        two_columns=task == "binary" and not margin,
    )
    return problem, {"classes": estimator.classes_, "task": task, "link": estimator._link(task)}
