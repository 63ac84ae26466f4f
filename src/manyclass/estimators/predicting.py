"""Prediction methods of classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from manyclass.kernels.targets import SignTargets
from manyclass.objective.losses import CLASSIFICATION
from manyclass.objective.problem import Array

__all__ = ["ClassPredictions", "PredictingMixin", "binary_targets"]


class PredictingMixin:
    """Mixin with the prediction methods of a classifier, which use its ``model_``."""

    model_: Any
    classes_: Array
    n_jobs: int | None
    _indicator: tuple[Any, bool]

    if TYPE_CHECKING:  # of the estimator beside it

        def _check_predict_input(self, X: Any) -> Any: ...

    def decision_function(self, X: Any) -> Array:
        """Scores of the classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            Scores; for two classes the score of ``classes_[1]``, which is predicted where it is positive.
        """
        X = self._check_predict_input(X)
        scores: Array = self.model_.decision_function(X, n_jobs=self.n_jobs)
        if self.model_.task == "multiclass" and scores.shape[1] == 2:  # two classes with one column each
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Any) -> Any:
        """The class with the largest score of each row.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels; for multilabel y a 0/1 indicator of shape (n_samples, n_classes), a CSR matrix if y was sparse.
        """
        X = self._check_predict_input(X)
        predicted = self.model_.predict(X, n_jobs=self.n_jobs)
        if sp.issparse(predicted):
            predicted = predicted.astype(self._indicator[0])
            return predicted if self._indicator[1] else predicted.toarray()
        return predicted

    def predict_topk(self, X: Any, k: int = 5) -> tuple[Array, Array]:
        """The k classes with the largest scores of each row, best first.

        Memory does not grow with n_samples x n_classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.
        k : int, default=5
            Number of classes, from 1 to the number of classes of the model.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Classes.
        scores : ndarray of shape (n_samples, k)
            Their scores.
        """
        X = self._check_predict_input(X)
        labels, scores = self.model_.topk(X, k, n_jobs=self.n_jobs)
        return np.asarray(labels), np.asarray(scores)


def binary_targets(index: Array) -> SignTargets:
    """Targets of two classes with one column: +1 for class 1, -1 for class 0."""
    indptr = np.zeros(len(index) + 1, np.int64)
    np.cumsum(index, out=indptr[1:])
    return SignTargets(indptr, np.zeros(int(indptr[-1]), np.int32), 1)


def _has_probabilities(estimator: ClassPredictions) -> bool:
    loss = estimator.loss
    known = CLASSIFICATION.get(loss) if isinstance(loss, str) else type(loss)
    return bool(getattr(known, "probabilities", False))


class ClassPredictions(ClassifierMixin, PredictingMixin):  # type: ignore[misc]
    """Mixin with prediction methods, and with probabilities for losses that have them."""

    loss: Any

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, for the losses "multinomial" and "log_loss".

        One-vs-rest probabilities of more than two classes are normalized to sum to one, as in scikit-learn; those of a
        multilabel fit are not.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of ``classes_``.
        """
        X = self._check_predict_input(X)
        return np.asarray(self.model_.probabilities(X, n_jobs=self.n_jobs))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Logarithms of the probabilities; minus infinity where a probability is zero.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))
