"""Pruning: removes small weights of a linear model, and measures the loss of accuracy on given rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import accuracy_score, f1_score

from manyclass.kernels.scoring import Scorer
from manyclass.models.linear import LinearModel

__all__ = ["PruneReport", "prune", "rate"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Number of bisection steps between threshold 0 and the one that removes all weights.
_HALVINGS = 20


def rate(W: Any, X: Any, y: Array, metric: str, n_jobs: int) -> float:
    """Accuracy or macro-F1 of weights on the rows X."""
    predicted = Scorer(W, np.zeros(W.shape[1], W.dtype)).best(X, 1, n_jobs)[0][:, 0]
    return float(accuracy_score(y, predicted) if metric == "accuracy" else f1_score(y, predicted, average="macro"))


@dataclass(frozen=True)
class PruneReport:
    """The result of pruning.

    Attributes
    ----------
    threshold : float
        Weights of at most this magnitude were removed.
    nonzeros_before, nonzeros : int
        Number of non-zero weights before and after pruning.
    accuracy_before, accuracy, f1_macro_before, f1_macro : float
        Accuracy and macro-F1 on the given rows, before and after pruning.
    """

    threshold: float
    nonzeros_before: int
    nonzeros: int
    accuracy_before: float
    accuracy: float
    f1_macro_before: float
    f1_macro: float


def prune(
    model: LinearModel, X: Any, y: Array, threshold: float | None, max_loss: float, n_jobs: int
) -> tuple[LinearModel, PruneReport]:
    """A model without its small weights, and a report: see `LinearClassifier.prune`."""

    def judged(pruned: LinearModel) -> dict[str, float]:
        predicted = pruned.predict(X, n_jobs)
        return {
            "accuracy": float(accuracy_score(y, predicted)),
            "f1_macro": float(f1_score(y, predicted, average="macro")),
        }

    before = judged(model)
    if threshold is None:
        # Bisection: accuracy decreases with the threshold, with rare exceptions.
        values: Any = model.weights.data if sp.issparse(model.weights) else model.weights
        low, high = 0.0, float(np.abs(values).max(initial=0.0))
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            good = judged(model.sparsify(middle))["accuracy"] >= before["accuracy"] - max_loss
            low, high = (middle, high) if good else (low, middle)
        threshold = low
    left = model.sparsify(threshold)
    after = judged(left)
    return left, PruneReport(
        threshold,
        model.n_nonzero,
        left.n_nonzero,
        before["accuracy"],
        after["accuracy"],
        before["f1_macro"],
        after["f1_macro"],
    )
