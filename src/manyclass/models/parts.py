"""Checks of the constructor arguments of models."""

from __future__ import annotations

import json
import operator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import csr_fault
from manyclass.runtime.threads import ranges

__all__ = [
    "NO_PROBABILITIES",
    "check_feature_names",
    "check_meaning",
    "check_weights",
    "kind_of_rows",
    "plain",
    "plain_vectorizer",
    "positive",
    "require_rows",
    "to_csr",
    "type_name",
]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

NO_PROBABILITIES = (
    "this model has no probabilities (its link is 'identity'): calibrate it on held-out rows, fit with a loss that has "
    "them, such as 'multinomial' or 'log_loss', or use scores"
)

#: Task -> its links.
_TASKS = {
    "multiclass": ("identity", "softmax", "sigmoid"),
    "binary": ("identity", "sigmoid"),
    "multilabel": ("identity", "sigmoid"),
    "regression": ("identity",),
    "sequence": ("identity",),
}

#: Number of weights processed at a time.
_PIECE = 2**20


def require_rows(task: str) -> None:
    """Raise a ValueError if a model of this task does not score single rows."""
    if task == "sequence":
        raise ValueError(
            "this model has the weights of a LinearChainCRF, which labels whole sequences, not single rows: "
            "LinearChainCRF.load(path).predict(sequences)"
        )


def check_weights(weights: Any, intercept: Any) -> None:
    """Raise a ValueError unless these are weights d x K in a supported format and K intercepts of their dtype."""
    sparse = sp.issparse(weights) and weights.format == "csr"
    if not sparse and not isinstance(weights, np.ndarray):
        raise ValueError(f"weights must be an array or a CSR matrix, got {type(weights).__name__}")
    if weights.ndim != 2 or 0 in weights.shape or weights.dtype not in (np.float32, np.float64):
        raise ValueError(
            "weights must be float32 or float64 of shape (n_features, n_outputs), both at least 1, got "
            f"{_described(weights)}"
        )
    if sparse:
        fault = csr_fault(weights.data, weights.indices, weights.indptr, weights.shape)
        if fault:
            raise ValueError(f"weights must be a valid CSR matrix: {fault}")
    elif not weights.flags.c_contiguous:
        raise ValueError("weights must have the weights of a feature contiguous: pass np.ascontiguousarray(weights)")
    fits = isinstance(intercept, np.ndarray) and intercept.shape == weights.shape[1:]
    if not fits or intercept.dtype != weights.dtype:
        raise ValueError(
            f"intercept must be an array of {weights.dtype} and shape {weights.shape[1:]}, to match weights, got "
            f"{_described(intercept)}"
        )


def check_meaning(task: Any, link: Any, classes: Any, n_outputs: int, temperature: Any = 1.0) -> None:
    """Raise a ValueError unless task, link, temperature and classes are valid, and consistent with the outputs."""
    if not isinstance(temperature, float) or not 0 < temperature < np.inf:
        raise ValueError(f"temperature must be a positive finite float, got {temperature!r}")
    if task not in _TASKS:
        raise ValueError(f"task must be one of {', '.join(map(repr, _TASKS))}, got {task!r}")
    if link not in _TASKS[task]:
        raise ValueError(f"link of a {task} model must be one of {', '.join(map(repr, _TASKS[task]))}, got {link!r}")
    if task == "regression":
        if classes is not None:
            raise ValueError(f"classes of a regression model must be None, got {_described(classes)}")
        return
    if task == "binary" and n_outputs != 1:
        raise ValueError(
            f"weights of a binary model must have one column, got {n_outputs}: pass task='multiclass' or 'multilabel'"
        )
    expected = 2 if task == "binary" else n_outputs
    if not isinstance(classes, np.ndarray) or classes.shape != (expected,):
        raise ValueError(
            f"classes of a {task} model with {n_outputs} columns of weights must be an array of {expected} labels, got "
            f"{_described(classes)}"
        )


def check_feature_names(names: Any, n_features: int) -> None:
    """Raise a ValueError unless ``names`` is an array of n_features strings, or None."""
    fits = isinstance(names, np.ndarray) and names.dtype.kind == "U" and names.shape == (n_features,)
    if names is not None and not fits:
        raise ValueError(
            f"feature_names must be an array of {n_features} strings, one for each feature, got {_described(names)}"
        )


def plain(name: str, value: Any) -> dict[str, Any]:
    """``value`` converted to JSON and back, so that a model does not change when it is saved and loaded.

    Raises
    ------
    ValueError
        If it is not a dict, or JSON cannot represent it. Numbers and arrays of NumPy are converted.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a dict, got {type(value).__name__}")
    try:
        parsed: dict[str, Any] = json.loads(json.dumps(value, default=_number_or_list))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} must contain only strings, numbers, lists and dicts, for JSON: {error}") from error
    return parsed


def plain_vectorizer(vectorizer: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """The state of a vectorizer, with `plain` parameters.

    Raises
    ------
    ValueError
        If it is not a pair of a dict for JSON and a dict of arrays.
    """
    if not isinstance(vectorizer, tuple) or len(vectorizer) != 2 or not isinstance(vectorizer[1], dict):
        raise ValueError(f"vectorizer must be a tuple (dict, dict of arrays), got {vectorizer!r:.80}")
    parameters, arrays = vectorizer
    for name, array in arrays.items():
        if not isinstance(name, str) or not name.isprintable() or not isinstance(array, np.ndarray):
            raise ValueError(f"vectorizer[1] must map printable names to arrays, got {_described(array)} for {name!r}")
    return plain("vectorizer", parameters), arrays


def to_csr(weights: Array, threshold: float) -> Any:
    """The weights above the threshold as a CSR matrix, computed without another array of their size."""
    d, K = weights.shape
    pieces = ranges(d, max(1, _PIECE // K))
    # Negated, so that NaN is kept.
    counts = np.concatenate([np.count_nonzero(~(np.abs(weights[b:e]) <= threshold), axis=1) for b, e in pieces])
    total = int(counts.sum())
    index = np.int32 if max(total, K) <= np.iinfo(np.int32).max else np.int64
    indptr = np.zeros(d + 1, index)
    np.cumsum(counts, out=indptr[1:])
    data, indices = np.empty(total, weights.dtype), np.empty(total, index)
    for b, e in pieces:
        rows, columns = np.nonzero(~(np.abs(weights[b:e]) <= threshold))
        place = slice(indptr[b], indptr[e])
        indices[place] = columns
        data[place] = weights[b:e][rows, columns]
    return sp.csr_matrix((data, indices, indptr), shape=(d, K), copy=False)


def type_name(labels: Array) -> str:
    return "str" if labels.dtype.kind == "U" else labels.dtype.name


def kind_of_rows(X: Any) -> str:
    """ "texts", "dicts" (by row, or of columns) or "frame", for a data frame; empty for rows of features."""
    if isinstance(X, dict):
        return "dicts"
    if hasattr(X, "columns"):
        return "frame"
    if hasattr(X, "to_numpy") and getattr(X, "ndim", 2) == 1:
        X = X.to_numpy()
    if isinstance(X, np.ndarray):
        return "texts" if X.ndim == 1 and X.size > 0 and X.dtype.kind in "UO" and isinstance(X[0], str) else ""
    first = X[0] if isinstance(X, (list, tuple)) and len(X) > 0 else None
    return "texts" if isinstance(first, str) else "dicts" if isinstance(first, dict) else ""


def frame_rows(X: Any, names: Any) -> Any:
    """The values of a data frame of pandas or polars, whose columns must be those of the fit, if they had names."""
    found = [str(name) for name in X.columns]
    if names is not None and found != names.tolist():
        place = next((k for k, pair in enumerate(zip(found, names)) if pair[0] != pair[1]), min(len(found), len(names)))
        got, expected = (repr(each[place]) if place < len(each) else "none" for each in (found, names.tolist()))
        raise ValueError(
            f"X must have the columns of the fit in their order, column {place} is {got}, expected {expected}: pass "
            "X[list(model.feature_names)]"
        )
    values = X.to_numpy()
    if values.dtype.kind not in "fiub":
        raise ValueError(f"X must have columns of numbers, got some that make an array of {values.dtype}: convert them")
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def positive(name: str, value: Any) -> int:
    """``value`` as an int if it is an integer of at least 1; else a ValueError."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    return number


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray) or sp.issparse(value):
        return f"{type(value).__name__} of {value.dtype} and shape {value.shape}"
    return f"{value!r:.80}"


def _number_or_list(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")
