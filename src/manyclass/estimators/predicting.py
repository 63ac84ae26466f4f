"""What classifiers do with a fitted model: scores, labels, rankings."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.problem import Array

__all__ = ["PredictingMixin"]


class PredictingMixin:
    """Predictions of a classifier from its ``model_``."""

    model_: Any
    classes_: Array
    n_jobs: int | None
    _indicator: tuple[Any, bool]

    def _check_predict_input(self, X: Any) -> Any:
        raise NotImplementedError

    def decision_function(self, X: Any) -> Array:
        """Scores, (n_samples, n_classes); (n_samples,) for two classes, positive for ``classes_[1]``."""
        X = self._check_predict_input(X)
        scores: Array = self.model_.decision_function(X, n_jobs=self.n_jobs)
        if self.model_.task == "multiclass" and scores.shape[1] == 2:  # a model with a column for each of two classes
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Any) -> Any:
        """The best class of each row; for a multi-label fit a 0/1 indicator, sparse (CSR) if y was sparse."""
        X = self._check_predict_input(X)
        predicted = self.model_.predict(X, n_jobs=self.n_jobs)
        if sp.issparse(predicted):
            predicted = predicted.astype(self._indicator[0])
            return predicted if self._indicator[1] else predicted.toarray()
        return predicted

    def predict_topk(self, X: Any, k: int = 5) -> tuple[Array, Array]:
        """The k best classes of each row and their scores, best first: two arrays of shape (n_samples, k).

        Never holds an n_samples x n_classes array.
        """
        X = self._check_predict_input(X)
        labels, scores = self.model_.topk(X, k, n_jobs=self.n_jobs)
        return np.asarray(labels), np.asarray(scores)
