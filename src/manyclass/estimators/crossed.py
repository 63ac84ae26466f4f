"""Calibration by cross-validation: models of the folds, and the rows that each of them has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from manyclass.estimators.base import LinearEstimator
from manyclass.estimators.labels import read_indicator
from manyclass.objective.problem import Array

__all__ = ["in_order", "split_models", "splits"]


#: The rows that a model is fitted to, and the rows that it is judged on.
Split: TypeAlias = tuple[Array, Array]


def splits(X: Any, y: Any, cv: Any, groups: Any, random_state: Any, classes: Array) -> list[Split]:
    """The training rows and the test rows of each fold; of a vector y, all training rows have all classes.

    Raises
    ------
    ValueError
        If ``cv`` is neither a number of folds nor a splitter nor splits, or the splits cannot be used.
    """
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool) and cv >= 2:
        if groups is not None:
            raise ValueError(f"groups are for splitters such as GroupKFold(5), got them with cv={cv}: pass one as cv")
        tests = _folds(y, int(cv), random_state)
        found = [(np.setdiff1d(np.arange(X.shape[0]), test), test) for test in tests]
    elif isinstance(cv, Real | str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise ValueError(
            "cv must be a number of folds, an integer of at least 2, or a splitter of scikit-learn, or an iterable of "
            f"(train, test), got {cv!r}"
        )
    else:
        made = check_cv(cv).split(X, y, groups)
        found = [(_rows("training", train, X), _rows("test", test, X)) for train, test in made]
    if not found:
        raise ValueError("cv must give at least one split, got none")
    for number, (train, test) in enumerate(found):
        if np.intersect1d(train, test).size:
            raise ValueError(f"split {number} of cv has test rows that are training rows: they must be disjoint")
        missing = np.setdiff1d(classes, y[train]) if np.ndim(y) == 1 else classes[:0]
        if len(missing):
            raise ValueError(
                f"the training rows of split {number} of cv have no row of the class {missing[:1].tolist()[0]!r}, so "
                "that its model would have other classes: pass a number of folds, a stratified splitter, or held-out "
                "rows without cv"
            )
    return found


def _rows(what: str, given: Any, X: Any) -> Array:
    """Row numbers of a split, from numbers or a mask."""
    rows, n = np.asarray(given), X.shape[0]
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 1 or not len(rows) or rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"the {what} rows of each split of cv must be numbers from 0 to {n - 1}, at least one")
    return rows


def _folds(y: Any, cv: int, random_state: Any) -> list[Array]:
    """The rows of each fold: about the same number of each class; the only row of a class is in none.

    An indicator is divided by the first label of each row.
    """
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
    return [np.sort(order[fold::cv]) for fold in range(cv)]


def split_models(
    estimator: Any, X: Any, y: Any, sample_weight: Array | None, parts: list[Split]
) -> Iterator[tuple[Any, Any]]:
    """For each split the model of a fit to its training rows, with the parameters of ``estimator``, and test rows."""
    pattern = estimator._estimator(estimator.l1_ratio_) if hasattr(estimator, "_plain") else clone(estimator)
    changed: dict[str, Any] = {"verbose": 0, "warm_start": False, "n_jobs": estimator.n_jobs}
    if isinstance(estimator, LinearEstimator):  # the alpha that was chosen, or is 1 / (all rows)
        changed.update(alpha=estimator.alpha_, alphas=None)
    known = pattern.get_params(deep=False)
    pattern.set_params(**{name: value for name, value in changed.items() if name in known})
    for train, test in parts:
        weights = None if sample_weight is None else sample_weight[train]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit to all rows has told
            model = clone(pattern).fit(X[train], y[train], sample_weight=weights).model_
        yield model, X[test]


def in_order(y: Any, parts: list[Split]) -> Any:
    """The entries of the test rows of all splits, one after the other."""
    rows = np.concatenate([test for _, test in parts])
    return sp.csr_matrix(y)[rows] if sp.issparse(y) else np.asarray(y)[rows]
