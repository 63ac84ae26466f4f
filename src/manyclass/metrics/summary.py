"""All metrics that apply to one set of predictions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass.metrics import ranking
from manyclass.metrics._labels import (
    LabelsLike,
    indicator,
    is_indicator,
    label_vector,
    positions,
    row_weights,
    same_kind,
    same_length,
    unique_classes,
)
from manyclass.metrics.propensity import inverse_propensity
from manyclass.metrics.ranks import rank_distribution

__all__ = ["report"]


def report(
    y_true: LabelsLike,
    y_pred: LabelsLike | None = None,
    topk: npt.ArrayLike | None = None,
    *,
    ks: Sequence[int] = (1, 3, 5),
    classes: npt.ArrayLike | None = None,
    train_counts: npt.ArrayLike | None = None,
    n_train: int | None = None,
    A: float = 0.55,
    B: float = 1.5,
    sample_weight: npt.ArrayLike | None = None,
) -> dict[str, float]:
    """Compute all metrics that apply, by name.

    Parameters
    ----------
    y_true : array of shape (n,), or 0/1 matrix of shape (n, K), dense or sparse
        The label of each row, or the indicator of its labels.
    y_pred : as ``y_true``, optional
        Predicted labels. By default the first column of ``topk`` if there is one label per row.
    topk : array of shape (n, k), optional
        Classes, best first, as returned by ``predict_topk``.
    ks : sequence of int, default=(1, 3, 5)
        Lengths of the lists to evaluate; those larger than the number of columns of ``topk`` are ignored.
    classes : array of shape (K,), optional
        The classes of ``train_counts`` (and of the columns of an indicator); 0 .. K-1 by default.
    train_counts : array of shape (K,), optional
        Number of training rows of each class (see `class_counts`), for the propensity-scored metrics. Labels of
        ``y_true`` that are none of ``classes`` have count zero.
    n_train : int, optional
        Number of training rows; by default the sum of ``train_counts`` if there is one label per row. Required
        for indicators.
    A, B : float, default=0.55, 1.5
        Parameters of the propensity model, see `inverse_propensity`.
    sample_weight : array of shape (n,), optional
        A non-negative weight per row. ``mrr`` and ``median_rank`` do not support weights and are left out with
        it.

    Returns
    -------
    dict of str to float
        ``n_samples``; from ``y_pred`` ``accuracy``, ``f1_macro``, ``f1_micro``, ``f1_weighted``; from
        ``topk``, for each k, ``precision@k`` and ``ndcg@k``, with single labels also ``recall@k`` (top-k
        accuracy), ``mrr`` and ``median_rank``; with ``train_counts`` also ``psp@k`` and ``psndcg@k``.

    Raises
    ------
    ValueError
        If neither ``y_pred`` nor ``topk`` is passed, or one of the metrics raises it.

    Examples
    --------
    >>> from manyclass.metrics import report
    >>> for name, value in report(["a", "b"], topk=[["a", "c"], ["c", "b"]], ks=[1, 2]).items():
    ...     print(f"{name:12} {value:.3f}")
    n_samples    2.000
    accuracy     0.500
    f1_macro     0.333
    f1_micro     0.500
    f1_weighted  0.500
    precision@1  0.500
    ndcg@1       0.500
    recall@1     0.500
    precision@2  0.500
    ndcg@2       0.815
    recall@2     1.000
    mrr          0.750
    median_rank  1.500
    """
    if y_pred is None and topk is None:
        raise ValueError("y_pred and topk are both None; pass at least one of them")
    single = not is_indicator("y_true", y_true)
    truth: Any = label_vector("y_true", y_true) if single else y_true
    n = truth.size if single else np.shape(truth)[0]
    lists = None if topk is None else ranking.topk_lists(topk, n, None, "topk")
    if y_pred is None and single and lists is not None:
        y_pred = lists[:, 0]

    out = {"n_samples": float(n)}
    if y_pred is not None:
        if is_indicator("y_pred", y_pred) == single:
            sorts = ["a 0/1 matrix", "a vector of labels"]
            raise ValueError(f"y_true is {sorts[single]} but y_pred is {sorts[not single]}; both must have one format")
        if single:
            guess: Any = label_vector("y_pred", y_pred)
            same_kind("y_true", truth, "y_pred", guess)
        else:
            truth, guess = indicator("y_true", y_true), indicator("y_pred", y_pred)
            if truth.shape[1] != guess.shape[1]:
                raise ValueError(
                    f"y_true has {truth.shape[1]} columns but y_pred has {guess.shape[1]}; both must have one per class"
                )
        same_length("y_true", n, "y_pred", guess.shape[0])
        from sklearn.metrics import accuracy_score, f1_score  # two seconds, which those who only load a model save

        weights = row_weights(sample_weight, n)
        with warnings.catch_warnings():
            # Some versions take labels for numbers to predict where few rows have many classes.
            warnings.filterwarnings("ignore", "The number of unique classes is greater than", UserWarning)
            out["accuracy"] = float(accuracy_score(truth, guess, sample_weight=weights))
            for average in ("macro", "micro", "weighted"):
                found = f1_score(truth, guess, average=average, sample_weight=weights, zero_division=0)
                out[f"f1_{average}"] = float(found)
    if lists is None:
        return out

    if any(k < 1 for k in ks):
        raise ValueError(f"ks is {tuple(ks)}; expected integers of at least 1")
    fitting = sorted({k for k in ks if k <= lists.shape[1]})
    if fitting:
        plain = ranking.gains(truth, lists, fitting[-1], classes=None if single else classes)
        scored = None
        if train_counts is not None:
            known, worth = _propensities(truth, single, classes, train_counts, n_train, A, B)
            scored = ranking.gains(truth, lists, fitting[-1], classes=known, inv_propensity=worth)
        for k in fitting:
            precision = ranking.mean_precision(plain, k, sample_weight)
            out[f"precision@{k}"] = precision
            out[f"ndcg@{k}"] = ranking.mean_ndcg(plain, k, sample_weight)
            if single:
                out[f"recall@{k}"] = precision * k
            if scored is not None:
                out[f"psp@{k}"] = ranking.propensity_precision(scored, k, sample_weight)
                out[f"psndcg@{k}"] = ranking.propensity_ndcg(scored, k, sample_weight)
    if single and sample_weight is None:
        ranks = rank_distribution(truth, topk=lists)
        out["mrr"] = ranks.mean_reciprocal_rank
        out["median_rank"] = ranks.median
    return out


def _propensities(
    truth: Any,
    single: bool,
    classes: npt.ArrayLike | None,
    train_counts: npt.ArrayLike,
    n_train: int | None,
    A: float,
    B: float,
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[np.float64]]:
    """The classes, with those that occur only in ``truth`` at the end, and the inverse propensity of each."""
    counts = np.asarray(train_counts)
    if n_train is None:
        if not single:
            raise ValueError("n_train is None; it is required for rows with several labels")
        n_train = int(counts.sum())
    worth = inverse_propensity(counts, n_train, A=A, B=B)
    if not single:
        return None if classes is None else unique_classes("classes", classes), worth
    known = np.arange(worth.size) if classes is None else unique_classes("classes", classes)
    if known.size != worth.size:
        raise ValueError(f"classes has {known.size} entries and train_counts has {worth.size}; both must be equal")
    same_kind("classes", known, "y_true", truth)
    occurring = np.unique(truth)
    unseen = occurring[positions(known, occurring) < 0]
    never = inverse_propensity([0.0], n_train, A=A, B=B)
    return (
        np.concatenate([known.astype(unseen.dtype), unseen]),
        np.concatenate([worth, np.repeat(never, unseen.size)]),
    )
