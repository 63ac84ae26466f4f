"""How good predictions are, in NumPy: accuracy, macro- and micro-averaged F1."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["quality"]


def quality(truth: Any, predicted: Any) -> dict[str, float]:
    """accuracy (of whole label sets, where rows have several), macro_f1 and micro_f1.

    The mean of macro_f1 is over the classes that occur in the truth or in the predictions.
    """
    if sp.issparse(truth):
        truth, predicted = sp.csr_matrix(truth, dtype=np.int64), sp.csr_matrix(predicted, dtype=np.int64)
        hits, true, said = (
            np.asarray(part.sum(axis=0)).ravel() for part in (truth.multiply(predicted), truth, predicted)
        )
        wrong = np.asarray(abs(truth - predicted).sum(axis=1)).ravel()
        accuracy = float(np.mean(wrong == 0))
    else:
        truth, predicted = np.asarray(truth), np.asarray(predicted)
        classes, codes = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
        t, p = codes[: len(truth)], codes[len(truth) :]
        true, said, hits = (np.bincount(part, minlength=len(classes)) for part in (t, p, t[t == p]))
        accuracy = float(np.mean(truth == predicted))
    total = true + said
    occurs = total > 0
    return {
        "accuracy": accuracy,
        "macro_f1": float(np.mean(2 * hits[occurs] / total[occurs])) if occurs.any() else 0.0,
        "micro_f1": float(2 * hits.sum() / max(total.sum(), 1)),
    }
