"""Metrics of one prediction per row, of single labels or of sets of labels: accuracy, F1, log loss."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias, get_args, overload

import numpy as np
import numpy.typing as npt

from manyclass.metrics._labels import (
    LabelsLike,
    class_columns,
    distinct,
    first,
    indicator,
    is_indicator,
    label_vector,
    positions,
    row_weights,
    same_kind,
    same_length,
    unique_classes,
)

__all__ = ["Average", "ClassTotals", "accuracy", "class_totals", "f1", "log_loss", "mean_f1"]

#: How the F1 of the classes become one number.
Average: TypeAlias = Literal["macro", "micro", "weighted"]


def accuracy(y_true: LabelsLike, y_pred: LabelsLike, *, sample_weight: npt.ArrayLike | None = None) -> float:
    """The fraction of rows predicted exactly: ``mean_i [y_true_i == y_pred_i]``.

    For indicators a row counts only if its whole set of labels is right (subset accuracy), as in
    `sklearn.metrics.accuracy_score`. O(n) time and memory for labels, O(non-zeros + n) for indicators.

    Parameters
    ----------
    y_true, y_pred : array of shape (n,), or 0/1 matrix of shape (n, K), dense or sparse
        Integer or string labels, or indicators; both of the same sort.
    sample_weight : array of shape (n,), optional
        A non-negative weight per row.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    ValueError
        Empty input, different lengths, labels that are neither integers nor strings, a matrix that is no
        indicator, or unfit weights.

    Examples
    --------
    >>> from manyclass.metrics import accuracy
    >>> accuracy(["cat", "dog", "cat", "eel"], ["cat", "dog", "dog", "eel"])
    0.75
    >>> accuracy([[1, 0, 1], [0, 1, 0]], [[1, 0, 0], [0, 1, 0]])
    0.5
    """
    truth, guess = _pair(y_true, y_pred)
    if isinstance(truth, np.ndarray):
        right = truth == guess
    else:
        right = np.diff((truth - guess).indptr) == 0
    return float(np.average(right, weights=row_weights(sample_weight, right.size)))


@overload
def f1(
    y_true: LabelsLike,
    y_pred: LabelsLike,
    *,
    average: Average = ...,
    labels: npt.ArrayLike | None = ...,
    zero_division: float = ...,
    sample_weight: npt.ArrayLike | None = ...,
) -> float: ...


@overload
def f1(
    y_true: LabelsLike,
    y_pred: LabelsLike,
    *,
    average: None,
    labels: npt.ArrayLike | None = ...,
    zero_division: float = ...,
    sample_weight: npt.ArrayLike | None = ...,
) -> npt.NDArray[np.float64]: ...


def f1(
    y_true: LabelsLike,
    y_pred: LabelsLike,
    *,
    average: Average | None = "macro",
    labels: npt.ArrayLike | None = None,
    zero_division: float = 0.0,
    sample_weight: npt.ArrayLike | None = None,
) -> float | npt.NDArray[np.float64]:
    """The F1 score, ``2 tp / (2 tp + fp + fn)`` of each class, averaged.

    Equal to `sklearn.metrics.f1_score`, in O(n + K) time and memory for labels (O(non-zeros + K) for
    indicators): no confusion matrix, no row per class.

    Parameters
    ----------
    y_true, y_pred : array of shape (n,), or 0/1 matrix of shape (n, K), dense or sparse
        Integer or string labels, or indicators; both of the same sort.
    average : {"macro", "micro", "weighted"} or None
        ``"macro"``: the plain mean over the classes. ``"micro"``: F1 of the summed counts. ``"weighted"``:
        the mean weighted by the number of rows of each class in ``y_true``. None: the score of each class.
    labels : array, optional
        The classes to average over (or to list), in this order; for indicators, numbers of columns. By
        default those that occur in ``y_true`` or ``y_pred``, sorted, and for indicators all columns.
    zero_division : 0.0, 1.0 or nan
        The score of a class that neither is there nor is predicted; nan leaves it out of the mean.
    sample_weight : array of shape (n,), optional
        A non-negative weight per row.

    Returns
    -------
    float, or array of shape (n_labels,) if ``average`` is None

    Raises
    ------
    ValueError
        As `accuracy`, and for an unknown ``average`` or ``zero_division``, or unfit ``labels``.

    References
    ----------
    C. J. van Rijsbergen, Information Retrieval, 1979, chapter 7. Of the two definitions of macro-F1 in use
    this is the averaged F1, the mean of the scores of the classes: J. Opitz and S. Burst, Macro F1 and Macro
    F1, arXiv:1911.03347, 2019.

    Examples
    --------
    >>> from manyclass.metrics import f1
    >>> f1(["cat", "dog", "cat", "eel"], ["cat", "dog", "dog", "eel"], average=None).round(3).tolist()
    [0.667, 0.667, 1.0]
    >>> round(f1(["cat", "dog", "cat", "eel"], ["cat", "dog", "dog", "eel"]), 3)
    0.778
    """
    if average is not None and average not in get_args(Average):
        raise ValueError(f"average is {average!r}; expected 'macro', 'micro', 'weighted' or None")
    if not (zero_division in (0, 1) or zero_division != zero_division):
        raise ValueError(f"zero_division is {zero_division!r}; expected 0.0, 1.0 or nan")
    totals = class_totals(y_true, y_pred, labels=labels, sample_weight=sample_weight)
    if average is None:
        return _scores(totals, zero_division)
    return mean_f1(totals, average, zero_division)


class ClassTotals(NamedTuple):
    """Of each class: how often it was predicted and true, predicted, true (counts or sums of weights)."""

    both: npt.NDArray[Any]
    predicted: npt.NDArray[Any]
    true: npt.NDArray[Any]


def class_totals(
    y_true: LabelsLike,
    y_pred: LabelsLike,
    *,
    labels: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> ClassTotals:
    """All that F1 needs, by class; arguments as in `f1`."""
    truth, guess = _pair(y_true, y_pred)
    weights = row_weights(sample_weight, truth.shape[0])
    if isinstance(truth, np.ndarray):
        classes = distinct(truth, guess)
        true, predicted = positions(classes, truth), positions(classes, guess)
        right = true == predicted
        codes: tuple[Any, ...] = (true[right], predicted, true)
        shares: tuple[Any, ...] = () if weights is None else (weights[right], weights, weights)
    else:
        classes = np.arange(truth.shape[1])
        matrices = (truth.multiply(guess).tocsr(), guess, truth)
        codes = tuple(matrix.indices for matrix in matrices)
        shares = tuple(np.repeat(weights, np.diff(m.indptr)) for m in matrices if weights is not None)
    totals = ClassTotals(
        *(
            np.bincount(code, weights=share, minlength=classes.size)
            for code, share in zip(codes, shares or (None, None, None))
        )
    )
    if labels is None:
        return totals
    wanted = unique_classes("labels", labels)
    same_kind("labels", wanted, "y_true", classes)
    at = positions(classes, wanted)
    if not isinstance(truth, np.ndarray) and (at < 0).any():
        raise ValueError(f"labels names column {first(wanted, at < 0)}, but y_true has columns 0 to {classes.size - 1}")
    # A label that occurs nowhere has counts of zero, as in scikit-learn.
    return ClassTotals(*(np.where(at >= 0, total[at], 0) for total in totals))


def _scores(totals: ClassTotals, zero_division: float) -> npt.NDArray[np.float64]:
    occurrences = totals.true + totals.predicted
    scores = np.full(occurrences.shape, zero_division, dtype=np.float64)
    np.divide(2 * totals.both, occurrences, out=scores, where=occurrences != 0)
    return scores


def mean_f1(totals: ClassTotals, average: Average, zero_division: float = 0.0) -> float:
    """One F1 score from the totals of the classes; see `f1`."""
    if average == "micro":
        totals = ClassTotals(*(np.array([total.sum()]) for total in totals))
    scores = _scores(totals, zero_division)
    defined = ~np.isnan(scores)
    if not defined.any():
        return float("nan")
    if average == "weighted" and totals.true[defined].any():
        return float(np.average(scores[defined], weights=totals.true[defined]))
    return float(np.nanmean(scores))


def log_loss(
    y_true: npt.ArrayLike,
    proba: npt.ArrayLike,
    *,
    classes: npt.ArrayLike | None = None,
    normalize: bool = True,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """The negative log-likelihood of the true labels: ``mean_i -log proba[i, y_i]``.

    Reads one probability per row, in O(n + K) time and memory beside ``proba`` itself, and so serves for
    chunks of rows: with ``normalize=False`` the sums of the chunks add up. (scikit-learn's `log_loss`,
    which gives the same number, builds an n x K indicator of the labels.)

    Parameters
    ----------
    y_true : array of shape (n,)
        Integer or string labels.
    proba : array of shape (n, K)
        Probabilities; rows are taken as they are and not rescaled to sum to one.
    classes : array of shape (K,), optional
        The class of each column; 0 .. K-1 by default.
    normalize : bool
        Whether to divide the sum over the rows by their number (or by the sum of the weights).
    sample_weight : array of shape (n,), optional
        A non-negative weight per row.

    Returns
    -------
    float
        In nats. Probabilities are clipped to ``[eps, 1 - eps]`` of the type of ``proba``, so that a
        probability of zero costs 36 nats in float64 and 16 in float32.

    Raises
    ------
    ValueError
        Empty input, different lengths, a label that is no class, or a probability outside [0, 1] at a true
        label.

    Examples
    --------
    >>> from manyclass.metrics import log_loss
    >>> round(log_loss(["a", "b"], [[0.5, 0.5], [0.75, 0.25]], classes=["a", "b"]), 4)
    1.0397
    """
    labels = label_vector("y_true", y_true)
    table = np.asarray(proba)
    if table.ndim != 2:
        raise ValueError(f"proba has {table.ndim} dimensions; expected shape (n, K), a column per class")
    same_length("y_true", labels.size, "proba", table.shape[0])
    columns = class_columns(classes, table.shape[1], "y_true", labels)
    if (columns < 0).any():
        raise ValueError(
            f"y_true holds {first(labels, columns < 0)}, which is none of the {table.shape[1]} classes; "
            "leave out rows whose class has no column in proba"
        )
    picked = table[np.arange(labels.size), columns]
    if picked.dtype.kind != "f":
        picked = picked.astype(np.float64)
    if not ((picked >= 0) & (picked <= 1)).all():
        raise ValueError("proba holds numbers that are not between 0 and 1; pass probabilities, not scores")
    eps = np.finfo(picked.dtype).eps
    losses = -np.log(np.clip(picked, eps, 1 - eps)).astype(np.float64)
    weights = row_weights(sample_weight, labels.size)
    if normalize:
        return float(np.average(losses, weights=weights))
    return float(losses.sum() if weights is None else losses @ weights)


def _pair(y_true: LabelsLike, y_pred: LabelsLike) -> tuple[Any, Any]:
    """Both as label vectors (NumPy arrays), or both as indicators (CSR arrays), of the same rows."""
    matrices = is_indicator("y_true", y_true), is_indicator("y_pred", y_pred)
    if matrices[0] != matrices[1]:
        sorts = ["a 0/1 matrix" if matrix else "a vector of labels" for matrix in matrices]
        raise ValueError(f"y_true is {sorts[0]} but y_pred is {sorts[1]}; both must be of one sort")
    if matrices[0]:
        truth, guess = indicator("y_true", y_true), indicator("y_pred", y_pred)
        same_length("y_true", truth.shape[0], "y_pred", guess.shape[0])
        if truth.shape != guess.shape:
            raise ValueError(
                f"y_true has {truth.shape[1]} columns but y_pred has {guess.shape[1]}; a column is a class"
            )
        return truth, guess
    labels, predicted = label_vector("y_true", y_true), label_vector("y_pred", y_pred)
    same_length("y_true", labels.size, "y_pred", predicted.size)
    same_kind("y_true", labels, "y_pred", predicted)
    return labels, predicted
