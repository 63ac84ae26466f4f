"""Rows that are an array of another library (PyTorch, CuPy, any that follows the array API), or of half precision.

Where the loss, the penalty and the solver allow it, such rows are fitted where they are and as they are, see
`manyclass.objective.array_problem`; else they are copied to a NumPy array of float32 or float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import _check_feature_names, check_consistent_length, check_is_fitted, validate_data

from manyclass.estimators.frames import plain_labels
from manyclass.kernels.rows import check_sparse, make_rows
from manyclass.objective.array_losses import has_array_loss
from manyclass.objective.array_problem import ArrayProblem, ArrayRows
from manyclass.objective.problem import Problem
from manyclass.runtime.arrays import as_type, detached, is_foreign, is_half, namespace, plain_array, to_numpy, type_of
from manyclass.runtime.threads import ranges
from manyclass.solvers import LBFGS, BaseSolver, PreconditionedLBFGS

__all__ = [
    "ClassScore",
    "check_foreign",
    "check_rows_to_fit",
    "fits_on_arrays",
    "make_problem",
    "real_score",
    "rows_to_predict",
    "working_dtype",
]

#: Numbers of rows that are checked at a time: of NumPy's, which are converted, and of other libraries'.
_PIECE, _PIECE_THERE = 1 << 20, 1 << 24


def fits_on_arrays(X: Any, loss: Any, l1_ratio: float, standardize: bool, solver: BaseSolver | None) -> bool:
    """Whether rows X are fitted where they are and as they are; ``loss`` is compiled, ``solver`` None for "auto"."""
    return (
        (is_foreign(X) or is_half(X))
        and has_array_loss(loss)
        and not (l1_ratio or standardize)
        and (solver is None or type(solver) in (LBFGS, PreconditionedLBFGS))
    )


def working_dtype(X: Any, dtype: Any) -> np.dtype[Any]:
    """The type of weights and computations for rows X: ``dtype``, or if that is None that of X.

    float32 for rows of half precision, float64 for integers.
    """
    name = type_of(X)
    if dtype is None:
        dtype = "float32" if name in ("float16", "bfloat16") else name if name.startswith("float") else "float64"
    found: np.dtype[Any] = np.dtype(dtype)
    return found


def make_problem(X: Any, on_arrays: bool, **given: Any) -> Problem:
    """The problem for rows X, an `ArrayProblem` if asked for; ``given`` are the other arguments of `Problem`."""
    make, rows = (ArrayProblem, ArrayRows) if on_arrays else (Problem, make_rows)
    return make(rows=rows(X), **given)  # type: ignore[arg-type]


def check_rows_to_fit(estimator: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """X without a copy, and y as a NumPy array; sets ``n_features_in_``.

    Raises
    ------
    ValueError
        If X is no matrix of finite real numbers, or y has another length or is none.
    """
    check_foreign(X)
    check_sparse(y, "y")
    _check_feature_names(estimator, X, reset=True)
    y = validate_data(estimator, "no_validation", plain_labels(plain_array(y)), multi_output=True, y_numeric=False)
    check_consistent_length(X, y)
    estimator.n_features_in_ = int(X.shape[1])
    return detached(X) if is_foreign(X) else X, y


def check_foreign(X: Any, name: str = "X", *, single: bool = False) -> None:
    """Raise a ValueError unless X is a matrix of finite real numbers; its own library computes what is needed.

    With ``single`` these must be float32 or float64.
    """
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got shape {tuple(X.shape)}")
    kind = type_of(X)
    if single and kind not in ("float32", "float64"):
        raise ValueError(f"{name} must have dtype float32 or float64, got {X.dtype}: convert it first")
    if not kind.startswith(("float", "bfloat", "int", "uint")):
        raise ValueError(f"{name} must hold real numbers, got {X.dtype}: convert it first")
    if not X.shape[0] or not X.shape[1]:
        raise ValueError(f"{name} must have at least one row and one feature, got shape {tuple(X.shape)}")
    if kind.startswith(("int", "uint")):
        return
    size = (_PIECE_THERE if is_foreign(X) else _PIECE) // int(X.shape[1])
    for begin, end in ranges(int(X.shape[0]), max(1, size)):
        part = _converted(X[begin:end, :], "float32" if kind in ("float16", "bfloat16") else kind)
        xp = namespace(part) if is_foreign(X) else np
        # Zero times NaN or infinity is NaN, and so are sums with it.
        with np.errstate(invalid="ignore"):
            sums = to_numpy(xp.zeros_like(part[:, 0])[None, :] @ part)[0]
        if not np.isfinite(sums).all():
            column = int(np.flatnonzero(~np.isfinite(sums))[0])
            raise ValueError(f"{name} has NaN or infinity in column {column}: replace such values or remove their rows")


def rows_to_predict(estimator: Any, X: Any) -> Any:
    """X for the prediction methods of a fitted model: checked, or an array of another library, which these check."""
    if not is_foreign(X):
        return estimator._check_predict_input(X)
    check_is_fitted(estimator)
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X must have shape (n, {estimator.n_features_in_}), with the features of the fit in their order, got "
            f"{tuple(X.shape)}"
        )
    return X


def _converted(rows: Any, name: str) -> Any:
    return as_type(detached(rows), name) if is_foreign(rows) else rows.astype(name)


class ClassScore(ClassifierMixin):  # type: ignore[misc]
    """scikit-learn's mixin of classifiers, with a ``score`` that takes arrays of any library."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean accuracy of ``predict(X)``; for multilabel y of whole label sets.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.
        y : array of shape (n_samples,), or indicator of shape (n_samples, n_classes)
            Their labels.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            The accuracy, in [0, 1].
        """
        y, sample_weight = plain_labels(plain_array(y)), plain_array(sample_weight)
        if not is_foreign(X):
            return float(super().score(X, y, sample_weight))
        return float(accuracy_score(y, to_numpy(self.predict(X)), sample_weight=sample_weight))


def real_score(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """The coefficient of determination of ``predict(X)``, for arrays of any library."""
    found = estimator.predict(X)
    found = to_numpy(found) if is_foreign(found) else found
    return float(r2_score(plain_array(y), found, sample_weight=plain_array(sample_weight)))
