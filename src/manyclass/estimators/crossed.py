"""Calibration by cross-validation: models of the folds, and the rows that each of them has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from manyclass.estimators.base import LinearEstimator
from manyclass.estimators.labels import read_indicator
from manyclass.objective.problem import Array

__all__ = ["fold_models", "folds", "in_order"]


def folds(y: Any, cv: int, random_state: Any) -> list[Array]:
    """The rows of each fold: about the same number of each class; the only row of a class is in none.

    An indicator is divided by the first label of each row.

    Raises
    ------
    ValueError
        If ``cv`` is not an integer of at least 2, or some fold has no row.
    """
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer) or cv < 2:
        raise ValueError(f"cv must be a number of folds, an integer of at least 2, got {cv!r}")
    if np.ndim(y) == 2:
        rows = read_indicator(y)
        group = np.full(rows.shape[0], -1)
        some = np.diff(rows.indptr) > 0
        group[some] = rows.indices[rows.indptr[:-1][some]]
    else:
        group = np.unique(y, return_inverse=True)[1].reshape(-1)
    order = check_random_state(random_state).permutation(len(group))
    order = order[np.argsort(group[order], kind="stable")]
    values, counts = np.unique(group, return_counts=True)
    order = order[~np.isin(group[order], values[counts == 1])]
    if len(order) < cv:
        raise ValueError(
            f"cv={cv} needs as many rows of classes with two rows or more, got {len(order)}: pass fewer folds, or "
            "calibrate on other rows without cv"
        )
    return [np.sort(order[fold::cv]) for fold in range(int(cv))]


def fold_models(
    estimator: Any, X: Any, y: Any, sample_weight: Array | None, parts: list[Array]
) -> Iterator[tuple[Any, Any]]:
    """For each fold the model of a fit to all other rows, with the parameters of ``estimator``, and its own rows."""
    pattern = estimator._estimator(estimator.l1_ratio_) if hasattr(estimator, "_plain") else clone(estimator)
    changed: dict[str, Any] = {"verbose": 0, "warm_start": False, "n_jobs": estimator.n_jobs}
    if isinstance(estimator, LinearEstimator):  # the alpha that was chosen, or is 1 / (all rows)
        changed.update(alpha=estimator.alpha_, alphas=None)
    known = pattern.get_params(deep=False)
    pattern.set_params(**{name: value for name, value in changed.items() if name in known})
    for held in parts:
        kept = np.setdiff1d(np.arange(X.shape[0]), held)
        weights = None if sample_weight is None else sample_weight[kept]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit to all rows has told
            model = clone(pattern).fit(X[kept], y[kept], sample_weight=weights).model_
        yield model, X[held]


def in_order(y: Any, parts: list[Array]) -> Any:
    """The entries of all folds, one after the other."""
    return sp.csr_matrix(y)[np.concatenate(parts)] if sp.issparse(y) else np.asarray(y)[np.concatenate(parts)]
