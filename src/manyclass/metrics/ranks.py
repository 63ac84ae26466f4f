"""The distribution of the rank of the true label, from scores or from top-k lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyclass.metrics._labels import class_columns, label_vector, same_length
from manyclass.metrics.ranking import label_hits, topk_lists

__all__ = ["RankDistribution", "rank_distribution"]

#: Number of scores compared at a time, which bounds the size of the temporary array.
_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class RankDistribution:
    """The number of rows whose true label has each rank.

    Distributions of chunks of rows add up: ``sum(chunks[1:], chunks[0])``.

    Parameters
    ----------
    counts : array of shape (r,), int64
        ``counts[j]`` is the number of rows whose label has rank ``j + 1``.
    beyond : int, default=0
        Number of rows whose label has none of these ranks: not in the top-k list, or not a class.

    Examples
    --------
    >>> from manyclass.metrics import RankDistribution
    >>> ranks = RankDistribution([6, 2, 0], beyond=2)
    >>> ranks.recall.tolist(), ranks.median, ranks.mean_reciprocal_rank
    ([0.6, 0.8, 0.8], 1.0, 0.7)
    """

    counts: npt.NDArray[np.int64]
    beyond: int = 0

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.int64)
        if counts.ndim != 1 or counts.size == 0 or (counts < 0).any() or self.beyond < 0:
            raise ValueError("counts must be a vector of non-negative integers, the number of rows for each rank")
        if counts.sum() + self.beyond == 0:
            raise ValueError("counts and beyond are all zero; a distribution needs at least one row")
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "beyond", int(self.beyond))

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.counts.sum()) + self.beyond

    @property
    def recall(self) -> npt.NDArray[np.float64]:
        """Recall at k for k = 1 .. r: the fraction of rows whose label is among the first k (top-k accuracy)."""
        return np.asarray(np.cumsum(self.counts) / self.n)

    def recall_at(self, k: int) -> float:
        """The fraction of rows whose label is among the first k.

        Raises
        ------
        ValueError
            If k is not between 1 and the number of ranks kept.
        """
        if not 1 <= k <= self.counts.size:
            raise ValueError(f"k is {k}; expected 1 to {self.counts.size}, the ranks in counts")
        return float(self.counts[:k].sum() / self.n)

    @property
    def median(self) -> float:
        """The median rank; infinite if the label of half of the rows is beyond the ranks in counts."""
        reached = np.cumsum(self.counts)

        def rank_of(row: int) -> float:
            """The row-th smallest rank, from 1."""
            place = int(np.searchsorted(reached, row))
            return float(place + 1) if place < reached.size else float("inf")

        return (rank_of((self.n + 1) // 2) + rank_of(self.n // 2 + 1)) / 2

    @property
    def mean_reciprocal_rank(self) -> float:
        """``mean_i 1 / rank_i``; rows beyond the ranks in counts contribute 0, which gives a lower bound."""
        return float((self.counts / np.arange(1, self.counts.size + 1)).sum() / self.n)

    def __add__(self, other: RankDistribution) -> RankDistribution:
        if not isinstance(other, RankDistribution):
            return NotImplemented
        if self.counts.size != other.counts.size:
            raise ValueError(
                f"rank distributions must have the same number of ranks to be added, got {self.counts.size} and "
                f"{other.counts.size}"
            )
        return RankDistribution(self.counts + other.counts, self.beyond + other.beyond)


def rank_distribution(
    y_true: npt.ArrayLike,
    *,
    scores: npt.ArrayLike | None = None,
    topk: npt.ArrayLike | None = None,
    classes: npt.ArrayLike | None = None,
) -> RankDistribution:
    """The distribution of the rank of the true label.

    From ``scores`` the rank of label y is ``|{c : score_c >= score_y}|``: ties count against the label, so
    that a model with equal scores for all K classes has rank K, not 1. From ``topk`` the rank is the position in
    the list.

    Time is O(n K) for scores and O(n k) for lists; memory O(n + K) besides the input. Distributions of chunks of
    rows can be added, see `RankDistribution`.

    Parameters
    ----------
    y_true : array of shape (n,)
        Integer or string labels. A label without a column in ``scores`` is counted as beyond every rank.
    scores : array of shape (n, K), optional
        Scores, larger is better; infinite scores are allowed, NaN is not.
    topk : array of shape (n, k), optional
        Classes, best first, as returned by ``predict_topk``. Exactly one of ``scores`` and ``topk`` must be
        passed.
    classes : array of shape (K,), optional
        The class of each column of ``scores``; 0 .. K-1 by default.

    Returns
    -------
    RankDistribution
        The distribution, with K ranks from ``scores`` or k ranks from ``topk``.

    Raises
    ------
    ValueError
        If both or neither of ``scores`` and ``topk`` are passed, the input is empty, lengths differ, a score is
        NaN, or a row of ``topk`` has the true class twice.

    Examples
    --------
    >>> from manyclass.metrics import rank_distribution
    >>> ranks = rank_distribution([0, 1, 2], scores=[[3, 2, 1], [5, 4, 4], [0, 0, 0]])
    >>> ranks.counts.tolist(), ranks.median
    ([1, 0, 2], 3.0)
    >>> rank_distribution(["a", "b"], topk=[["a", "c"], ["c", "a"]]).beyond
    1
    """
    labels = label_vector("y_true", y_true)
    if (scores is None) == (topk is None):
        raise ValueError("pass exactly one of scores and topk")
    if topk is not None:
        hits = label_hits(labels, topk_lists(topk, labels.size, None, "topk"), "topk")
        counts = np.count_nonzero(hits, axis=0)
        return RankDistribution(counts, beyond=labels.size - int(counts.sum()))
    table = np.asarray(scores)
    if table.ndim != 2 or table.shape[1] == 0 or table.dtype.kind not in "iuf":
        raise ValueError(
            f"scores has shape {table.shape} and dtype {table.dtype}; expected numbers in shape (n, K), "
            "a column per class"
        )
    same_length("y_true", labels.size, "scores", table.shape[0])
    return _from_scores(class_columns(classes, table.shape[1], "y_true", labels), table)


def _from_scores(columns: npt.NDArray[np.int64], table: npt.NDArray[np.number]) -> RankDistribution:
    n, n_classes = table.shape
    counts = np.zeros(n_classes + 1, dtype=np.int64)
    step = max(1, _BLOCK // n_classes)
    for start in range(0, n, step):
        block, column = table[start : start + step], columns[start : start + step]
        if np.isnan(block).any():
            raise ValueError("scores has NaN; expected numbers, which have a rank")
        own = np.take_along_axis(block, np.maximum(column, 0)[:, np.newaxis], axis=1)
        rank = np.count_nonzero(block >= own, axis=1)
        counts += np.bincount(np.where(column >= 0, rank - 1, n_classes), minlength=n_classes + 1)
    return RankDistribution(counts[:-1], beyond=int(counts[-1]))
