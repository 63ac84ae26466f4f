"""Dropping small weights of a linear model, with what that costs on some rows."""

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

#: Thresholds tried between none and the one that leaves nothing.
_HALVINGS = 20


def rate(W: Any, X: Any, y: Array, metric: str, n_jobs: int) -> float:
    """Accuracy or macro-F1 of weights."""
    predicted = Scorer(W, np.zeros(W.shape[1], W.dtype)).best(X, 1, n_jobs)[0][:, 0]
    return float(accuracy_score(y, predicted) if metric == "accuracy" else f1_score(y, predicted, average="macro"))


@dataclass(frozen=True)
class PruneReport:
    """What pruning has done.

    Attributes
    ----------
    threshold : float
        Weights of at most this magnitude were dropped.
    nonzeros_before, nonzeros : int
    accuracy_before, accuracy, f1_macro_before, f1_macro : float
        On the rows given.
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
    """A model without its small weights, and what that cost on some rows: see `LinearClassifier.prune`."""

    def judged(pruned: LinearModel) -> dict[str, float]:
        predicted = pruned.predict(X, n_jobs)
        return {
            "accuracy": float(accuracy_score(y, predicted)),
            "f1_macro": float(f1_score(y, predicted, average="macro")),
        }

    before = judged(model)
    if threshold is None:
        # Accuracy falls with the threshold, nearly always: halve between what is known to be good and known not to be.
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
