"""Metrics of the first k classes of a ranking, with or without propensity scores; one or several labels per row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass.metrics._labels import (
    LabelsLike,
    class_columns,
    class_labels,
    first,
    indicator,
    is_indicator,
    label_vector,
    row_weights,
    same_kind,
    same_length,
)

__all__ = [
    "Gains",
    "gains",
    "label_hits",
    "mean_ndcg",
    "mean_precision",
    "ndcg_at_k",
    "precision_at_k",
    "propensity_ndcg",
    "propensity_precision",
    "psndcg_at_k",
    "psp_at_k",
    "topk_lists",
]

FloatArray = npt.NDArray[np.float64]


def precision_at_k(
    y_true: LabelsLike,
    topk_classes: npt.ArrayLike,
    k: int,
    *,
    classes: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """P@k, the fraction of the first k classes that are true: ``mean_i |top_k(i) & Y_i| / k``.

    O(n k) time and memory for labels, O(n k log(non-zeros)) for indicators, independent of the number of
    classes. For a row with one label, P@k is at most 1/k.

    Parameters
    ----------
    y_true : array of shape (n,), or 0/1 matrix of shape (n, K), dense or sparse
        The label of each row, or the indicator of its labels.
    topk_classes : array of shape (n, at least k)
        Classes, best first, as returned by ``predict_topk``. An entry that is not a class (such as -1 as a
        filler) is a miss.
    k : int
        Number of columns of ``topk_classes`` that are evaluated, >= 1.
    classes : array of shape (K,), optional
        With an indicator: the class of each of its columns; 0 .. K-1 by default.
    sample_weight : array of shape (n,), optional
        A non-negative weight per row.

    Returns
    -------
    float
        Between 0 and 1. A row without a true label counts as 0.

    Raises
    ------
    ValueError
        If the input is empty, lengths differ, ``k`` is larger than the lists, a list has a true class twice, or
        labels and classes have different types.

    Examples
    --------
    >>> from manyclass.metrics import precision_at_k
    >>> precision_at_k(["a", "b"], [["a", "c"], ["c", "b"]], k=1)
    0.5
    >>> precision_at_k([[1, 1, 0], [0, 1, 0]], [[0, 1], [0, 1]], k=2)
    0.75
    """
    return mean_precision(gains(y_true, topk_classes, k, classes=classes), k, sample_weight)


def ndcg_at_k(
    y_true: LabelsLike,
    topk_classes: npt.ArrayLike,
    k: int,
    *,
    classes: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """nDCG@k, the discounted cumulative gain of the first k classes, divided by the largest possible one.

    ``DCG@k(i) = sum_{j <= k} [class j of the list is true] / log2(j + 1)``; each row is divided by the same
    sum over the first ``min(k, |Y_i|)`` ranks, and averaged.

    Parameters, errors and cost are those of `precision_at_k`. A row without a true label counts as 0, as in
    `sklearn.metrics.ndcg_score`.

    Returns
    -------
    float
        Between 0 and 1.

    References
    ----------
    K. Jarvelin and J. Kekalainen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4), 2002.

    Examples
    --------
    >>> from manyclass.metrics import ndcg_at_k
    >>> round(ndcg_at_k(["a", "b"], [["a", "c"], ["c", "b"]], k=2), 4)
    0.8155
    """
    return mean_ndcg(gains(y_true, topk_classes, k, classes=classes), k, sample_weight)


def psp_at_k(
    y_true: LabelsLike,
    topk_classes: npt.ArrayLike,
    k: int,
    inv_propensity: npt.ArrayLike,
    *,
    classes: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """PSP@k, propensity-scored precision: P@k with weight ``1 / p_c`` of class c, divided by the largest possible one.

    ``sum_i sum_{c in top_k(i) & Y_i} 1/p_c``, divided by the same sum for the ideal lists, which have the k
    true classes with the largest ``1/p_c`` of each row. This is a quotient of sums over all rows, not a mean of
    quotients, as in the Extreme Classification Repository.

    Parameters
    ----------
    y_true, topk_classes, k, sample_weight
        As in `precision_at_k`.
    inv_propensity : array of shape (K,)
        ``1 / p_c`` of each class, > 0: see `inverse_propensity`.
    classes : array of shape (K,), optional
        The classes of ``inv_propensity`` (and of the columns of an indicator); 0 .. K-1 by default.

    Returns
    -------
    float
        Between 0 and 1; 0 if no row has a true label.

    Raises
    ------
    ValueError
        As in `precision_at_k`; also if a label of ``y_true`` is none of ``classes`` (include classes that do not
        occur in training, with a count of zero).

    References
    ----------
    H. Jain, Y. Prabhu, M. Varma, Extreme multi-label loss functions for recommendation, tagging, ranking
    and other missing label applications, KDD 2016, section 4. K. Bhatia et al., The Extreme Classification
    Repository, 2016.

    Examples
    --------
    >>> from manyclass.metrics import inverse_propensity, psp_at_k
    >>> weights = inverse_propensity([90, 10], n_samples=100)
    >>> round(psp_at_k([0, 1], [[0], [0]], 1, weights), 4)
    0.3693
    """
    return propensity_precision(
        gains(y_true, topk_classes, k, classes=classes, inv_propensity=inv_propensity), k, sample_weight
    )


def psndcg_at_k(
    y_true: LabelsLike,
    topk_classes: npt.ArrayLike,
    k: int,
    inv_propensity: npt.ArrayLike,
    *,
    classes: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """PSnDCG@k, propensity-scored nDCG, divided by the largest possible one.

    nDCG@k in which the true class c at rank j gains ``1 / (p_c log2(j + 1))`` and a row is divided by
    ``sum_{j <= min(k, |Y_i|)} 1 / log2(j + 1)``; the mean over the rows is divided by the mean for the ideal
    lists (true classes in the order of ``1/p_c``).

    Parameters, errors and references are those of `psp_at_k`.

    Returns
    -------
    float
        Between 0 and 1; 0 if no row has a true label.

    Examples
    --------
    >>> from manyclass.metrics import inverse_propensity, psndcg_at_k
    >>> weights = inverse_propensity([90, 10], n_samples=100)
    >>> round(psndcg_at_k([0, 1], [[0, 1], [0, 1]], 2, weights), 4)
    0.7672
    """
    return propensity_ndcg(
        gains(y_true, topk_classes, k, classes=classes, inv_propensity=inv_propensity), k, sample_weight
    )


class Gains(NamedTuple):
    """The gains of the ranks 1 .. k of each row's list, and of its ideal list; n x k each."""

    found: FloatArray
    ideal: FloatArray


def topk_lists(topk: npt.ArrayLike, n: int, k: int | None, name: str = "topk_classes") -> npt.NDArray[Any]:
    """The checked first k columns of top-k lists for n rows; all columns if k is None."""
    lists = class_labels(name, topk)
    if lists.ndim != 2 or lists.shape[1] == 0:
        raise ValueError(f"{name} has shape {lists.shape}; expected (n, k), a list of classes per row, best first")
    same_length("y_true", n, name, lists.shape[0])
    if k is None:
        return lists
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= lists.shape[1]:
        raise ValueError(f"k is {k!r}; expected 1 to {lists.shape[1]}, the number of columns of {name}")
    return lists[:, :k]


def label_hits(labels: npt.NDArray[Any], lists: npt.NDArray[Any], name: str = "topk_classes") -> npt.NDArray[np.bool_]:
    """Where the lists have the true label of their row."""
    same_kind("y_true", labels, name, lists)
    hits = np.asarray(lists == labels[:, np.newaxis], dtype=np.bool_)
    repeated = np.count_nonzero(hits, axis=1) > 1
    if repeated.any():
        _refuse_repeated(name, int(np.argmax(repeated)))
    return hits


def _refuse_repeated(name: str, row: int) -> None:
    raise ValueError(f"{name} has a true class of row {row} twice; a list must not repeat a class")


def gains(
    y_true: LabelsLike,
    topk_classes: npt.ArrayLike,
    k: int,
    *,
    classes: npt.ArrayLike | None = None,
    inv_propensity: npt.ArrayLike | None = None,
) -> Gains:
    """The gains of lists, 1 for a true class or its inverse propensity; arguments as in `psp_at_k`."""
    worth = None
    if inv_propensity is not None:
        worth = np.asarray(inv_propensity, dtype=np.float64)
        if worth.ndim != 1 or not (np.isfinite(worth).all() and (worth > 0).all()):
            raise ValueError("inv_propensity must be a vector of finite positive numbers, one per class")
    if is_indicator("y_true", y_true):
        return _gains_of_sets(indicator("y_true", y_true), topk_classes, k, classes, worth)
    return _gains_of_labels(label_vector("y_true", y_true), topk_classes, k, classes, worth)


def _gains_of_labels(
    labels: npt.NDArray[Any],
    topk_classes: npt.ArrayLike,
    k: int,
    classes: npt.ArrayLike | None,
    worth: FloatArray | None,
) -> Gains:
    lists = topk_lists(topk_classes, labels.size, k)
    hits = label_hits(labels, lists)
    ideal = np.zeros(lists.shape)
    ideal[:, 0] = 1.0
    if worth is not None:
        columns = class_columns(classes, worth.size, "y_true", labels)
        if (columns < 0).any():
            raise ValueError(
                f"y_true has the label {first(labels, columns < 0)}, which is none of the {worth.size} classes of "
                "inv_propensity; add it to classes, with the propensity for a count of zero"
            )
        ideal[:, 0] = worth[columns]
    return Gains(hits * ideal[:, :1], ideal)


def _gains_of_sets(
    truth: Any, topk_classes: npt.ArrayLike, k: int, classes: npt.ArrayLike | None, worth: FloatArray | None
) -> Gains:
    n, n_classes = truth.shape
    lists = topk_lists(topk_classes, n, k)
    if worth is None:
        worth = np.ones(n_classes)
    elif worth.size != n_classes:
        raise ValueError(f"inv_propensity has {worth.size} entries but y_true has {n_classes} columns")
    columns = class_columns(classes, n_classes, "topk_classes", lists)

    # Row and column as one number: those of the true labels are sorted, for a binary search of the listed classes.
    row_of = np.repeat(np.arange(n, dtype=np.int64), np.diff(truth.indptr))
    keys = row_of * n_classes + truth.indices
    asked = np.arange(n, dtype=np.int64)[:, np.newaxis] * n_classes + columns
    at = np.searchsorted(keys, asked)
    hits = (columns >= 0) & (at < keys.size)
    hits[hits] = keys[at[hits]] == asked[hits]
    met = np.sort(asked[hits])
    repeated = met[1:] == met[:-1]
    if repeated.any():
        _refuse_repeated("topk_classes", int(met[1:][repeated][0] // n_classes))

    order = np.lexsort((-worth[truth.indices], row_of))
    place = np.arange(keys.size) - truth.indptr[row_of]
    near = place < k
    ideal = np.zeros((n, k))
    ideal[row_of[near], place[near]] = worth[truth.indices[order[near]]]
    return Gains(np.where(hits, worth[columns], 0.0), ideal)


def mean_precision(of: Gains, k: int, sample_weight: npt.ArrayLike | None) -> float:
    """P@k from unit gains of at least k ranks."""
    return _mean(of.found[:, :k].sum(axis=1) / k, sample_weight)


def mean_ndcg(of: Gains, k: int, sample_weight: npt.ArrayLike | None) -> float:
    """nDCG@k from unit gains of at least k ranks."""
    discount = _discounts(k)
    best = of.ideal[:, :k] @ discount
    found = of.found[:, :k] @ discount
    return _mean(np.divide(found, best, out=np.zeros_like(found), where=best > 0), sample_weight)


def propensity_precision(of: Gains, k: int, sample_weight: npt.ArrayLike | None) -> float:
    """PSP@k from propensity-scored gains of at least k ranks."""
    return _quotient(of.found[:, :k].sum(axis=1), of.ideal[:, :k].sum(axis=1), sample_weight)


def propensity_ndcg(of: Gains, k: int, sample_weight: npt.ArrayLike | None) -> float:
    """PSnDCG@k from propensity-scored gains of at least k ranks."""
    discount = _discounts(k)
    attainable = (of.ideal[:, :k] > 0) @ discount
    attainable[attainable == 0] = 1.0  # no true label: both gains are 0
    return _quotient(of.found[:, :k] @ discount / attainable, of.ideal[:, :k] @ discount / attainable, sample_weight)


def _discounts(k: int) -> FloatArray:
    return np.asarray(1.0 / np.log2(np.arange(2, k + 2)))


def _mean(values: FloatArray, sample_weight: npt.ArrayLike | None) -> float:
    return float(np.average(values, weights=row_weights(sample_weight, values.size)))


def _quotient(found: FloatArray, ideal: FloatArray, sample_weight: npt.ArrayLike | None) -> float:
    best = _mean(ideal, sample_weight)
    return _mean(found, sample_weight) / best if best > 0 else 0.0
