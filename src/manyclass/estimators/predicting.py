"""Prediction methods of classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from manyclass.estimators.base import check_number, check_sample_weight
from manyclass.estimators.crossed import in_order, split_models, splits
from manyclass.estimators.elsewhere import ClassScore, real_score, rows_to_predict
from manyclass.estimators.frames import plain_labels
from manyclass.kernels.targets import SignTargets
from manyclass.mips import SearchIndex
from manyclass.models.explain import Explanation
from manyclass.models.prune import PruneReport, prune
from manyclass.objective.losses import CLASSIFICATION
from manyclass.objective.problem import Array
from manyclass.runtime.arrays import namespace
from manyclass.runtime.threads import resolve_n_jobs

__all__ = ["ClassPredictions", "IndexedPredictions", "PredictingMixin", "RealPredictions", "binary_targets"]


_NEEDS_ALL = (
    "proba=True gives probabilities among all classes, and candidates restrict them: leave out one of them (the scores "
    "of candidates divided by temperature, through a softmax, are probabilities among the candidates)"
)


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
        array of shape (n_samples, n_classes), or (n_samples,) for two classes
            Scores, an array of the library of X; for two classes the score of ``classes_[1]``, which is predicted where
            it is positive.
        """
        X = rows_to_predict(self, X)
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
        array of shape (n_samples,)
            Labels, an array of the library of X (of NumPy if they are texts); for multilabel y a 0/1 indicator of shape
            (n_samples, n_classes), a CSR matrix if y was sparse and X is of NumPy or sparse.
        """
        X = rows_to_predict(self, X)
        predicted = self.model_.predict(X, n_jobs=self.n_jobs)
        if sp.issparse(predicted):
            predicted = predicted.astype(self._indicator[0])
            return predicted if self._indicator[1] else predicted.toarray()
        return predicted

    def _gives_probabilities(self) -> bool:
        """Whether a fit with these parameters gives probabilities, or `calibrate` has given them.

        Predictions of label sets that are projected on [0, 1] may be 0 or 1, which probabilities of labels are not.
        """
        model = getattr(self, "model_", None)
        return (
            model is not None and model.gives_probabilities and (model.task, model.link) != ("multilabel", "identity")
        )

    @available_if(lambda self: self._gives_probabilities())  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, where the loss, link or update gives them, and after `calibrate`.

        One-vs-rest probabilities of more than two classes are normalized to sum to one, as in scikit-learn; those of a
        multilabel fit are not.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        array of shape (n_samples, n_classes)
            One column per class, in the order of ``classes_``; an array of the library of X.
        """
        X = rows_to_predict(self, X)
        return self.model_.probabilities(X, n_jobs=self.n_jobs)  # type: ignore[no-any-return]

    @available_if(lambda self: self._gives_probabilities())  # type: ignore[untyped-decorator]
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
        found = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(found)) if isinstance(found, np.ndarray) else namespace(found).log(found)

    def predict_topk(self, X: Any, k: int = 5, *, proba: bool = False, candidates: Any = None) -> tuple[Array, Array]:
        """The k classes with the largest scores of each row, best first.

        Memory does not grow with n_samples x n_classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.
        k : int, default=5
            Number of classes, from 1 to the number of classes of the model, or of the candidates of a row.
        proba : bool, default=False
            Whether to return probabilities instead of scores; an error where there is no `predict_proba`.
        candidates : array of shape (m,), array of shape (n_samples, m), list of lists, or sparse matrix, optional
            Labels among which the rows are ranked: the same for all rows; for each row; or those with a non-zero in an
            indicator of shape (n_samples, n_classes). Only their scores are computed; not for probabilities.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Classes.
        scores : ndarray of shape (n_samples, k)
            Their scores, or probabilities.
        """
        X = rows_to_predict(self, X)
        if proba:
            if candidates is not None:
                raise ValueError(_NEEDS_ALL)
            labels, scores = self.model_.topk_probabilities(X, k, n_jobs=self.n_jobs)
        else:
            labels, scores = self.model_.topk(X, k, n_jobs=self.n_jobs, candidates=candidates)
        return labels, scores

    def calibrate(
        self, X: Any, y: Any, sample_weight: Any = None, *, bias: bool = False, cv: Any = None, groups: Any = None
    ) -> Any:
        """Give the fitted model probabilities, whatever its loss: a link of scores / T that fits the given rows.

        The link is softmax or the normalized sigmoid, for two classes and multilabel y the sigmoid; it and the
        temperature T minimize the log loss. The ranking of the classes does not change, unless ``bias`` is asked for.
        The next ``fit`` forgets both.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows that were not used in the fit; some hundreds are enough. With ``cv`` those of the fit.
        y : array of shape (n_samples,), or indicator of shape (n_samples, n_classes)
            Their labels.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0.
        bias : bool, default=False
            Whether the intercept of each class is found as well, see `Model.calibrate`: for classes that are more or
            less frequent than in the fit. Predictions change. For linear models.
        cv : int, splitter or iterable of (train, test), optional
            For calibration without held-out rows: X, y and ``sample_weight`` are then those of the fit. A number of
            folds, >= 2; an object with ``split``, such as `sklearn.model_selection.GroupKFold`; or row numbers. For
            each split a model is fitted to its training rows with the same parameters (and ``alpha_``), and link,
            temperature and intercepts fit the scores that they give to the test rows, which they have not seen. The
            model of the fit to all rows stays. Costs as many fits as splits, and the memory of their models. By a
            number, folds are stratified, and a row that is the only one of its class is not scored; the training rows
            of other splits must have all classes.
        groups : array of shape (n_samples,), optional
            Group of each row, for a splitter that takes them.

        Returns
        -------
        object
            The estimator, whose ``model_.temperature`` is T.

        Raises
        ------
        ValueError
            If y has labels that the model does not know; the model is already one of calibrated probabilities; or a
            split has rows in both parts, or training rows without some class.
        """
        X = self._check_predict_input(X)
        if cv is None:
            if groups is not None:
                raise ValueError(
                    "groups are for a splitter, and cv is None: pass cv=GroupKFold(5), or leave out groups"
                )
            self.model_ = self.model_.calibrate(X, y, sample_weight, n_jobs=self.n_jobs, bias=bias)
            return self
        y, weights = plain_labels(y), check_sample_weight(sample_weight, X)
        check_consistent_length(X, y)
        y = y.tocsr() if sp.issparse(y) else np.asarray(y)
        parts = splits(X, y, cv, groups, getattr(self, "random_state", None), self.classes_)
        of_rows = None if weights is None else in_order(weights, parts)
        sources = split_models(self, X, y, weights, parts)
        self.model_ = self.model_._calibrated_by(sources, in_order(y, parts), of_rows, self.n_jobs, bias=bias)
        return self


class RealPredictions:
    """Mixin with the prediction of real numbers, in the shape of y."""

    model_: Any
    n_jobs: int | None
    #: Whether y was a vector.
    _flat: bool

    def predict(self, X: Any) -> Array:
        """Predictions for the rows of X.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions, in the shape of y.
        """
        X = rows_to_predict(self, X)
        scores = self.model_.scores(X, n_jobs=self.n_jobs)
        return scores[:, 0] if self._flat else scores  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination R^2 of ``predict(X)``.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Their targets.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            R^2, at most 1; the mean over the targets.
        """
        return real_score(self, X, y, sample_weight)


def binary_targets(index: Array) -> SignTargets:
    """Targets of two classes with one column: +1 for class 1, -1 for class 0."""
    indptr = np.zeros(len(index) + 1, np.int64)
    np.cumsum(index, out=indptr[1:])
    return SignTargets(indptr, np.zeros(int(indptr[-1]), np.int32), 1)


class ClassPredictions(ClassScore, PredictingMixin):
    """Mixin with prediction methods, and with probabilities for losses that have them."""

    loss: Any

    def _gives_probabilities(self) -> bool:
        known = CLASSIFICATION.get(self.loss) if isinstance(self.loss, str) else type(self.loss)
        return super()._gives_probabilities() or bool(getattr(known, "probabilities", False))


class IndexedPredictions(ClassPredictions):
    """Mixin with what the weights of a linear model give besides: indexes of them, and pruning."""

    def prune(self, X: Any, y: Any, *, threshold: float | None = None, max_loss: float = 0.005) -> PruneReport:
        """Remove small weights of the model, and measure accuracy before and after on the given rows.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows that were not used in the fit.
        y : array of shape (n_samples,)
            Their labels.
        threshold : float, optional
            Weights of at most this magnitude are removed, >= 0. By default the largest threshold, found by bisection,
            that lowers the accuracy by at most ``max_loss``.
        max_loss : float, default=0.005
            Largest decrease of the accuracy, >= 0.

        Returns
        -------
        PruneReport
            The threshold, and the number of weights, accuracy and macro-F1 before and after.
        """
        check_is_fitted(self, "model_")
        X = self._check_predict_input(X)
        check_number("max_loss", max_loss, low=0.0)
        if threshold is not None:
            check_number("threshold", threshold, low=0.0)
        pruned, report = prune(self.model_, X, column_or_1d(y), threshold, float(max_loss), resolve_n_jobs(self.n_jobs))
        self.model_ = pruned
        self._stream, self._sparsified = None, False
        return report

    def explain(self, X: Any, top: int = 10, labels: Any = None) -> list[Explanation]:
        """Why each row gets its class: the features that contribute most to its lead over the best other class.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order; not densified.
        top : int, default=10
            Number of features per row, >= 1.
        labels : sequence of n_samples classes, optional
            The classes to explain; None: the predicted ones.

        Returns
        -------
        list of Explanation
            For each row class, rival, features and contributions; print shows one in a line.
        """
        X = self._check_predict_input(X)
        found: list[Explanation] = self.model_.explain(X, top, labels, n_jobs=self.n_jobs)
        return found

    def build_index(self, kind: str | SearchIndex = "exact") -> SearchIndex:
        """Build an index of the fitted weights for `predict_topk`; ``index.recall(X, k)`` measures its recall.

        Parameters
        ----------
        kind : {"exact", "lsh", "graph"} or SearchIndex, default="exact"
            `manyclass.mips.ExactSearch`, `SimpleLSH`, `SmallWorldGraph`, or an index with options.

        Returns
        -------
        SearchIndex
            An index built on a copy of the weights. If the model has an intercept, it is one more feature, the last
            one, which is 1 in all rows: `predict_topk` appends it, ``index.query`` and ``index.recall`` take rows that
            have it.

        Raises
        ------
        ValueError
            If the model has two classes, which share one column of weights; or kind is unknown.
        """
        check_is_fitted(self, "model_")
        found: SearchIndex = self.model_.build_index(kind, n_jobs=self.n_jobs)
        return found

    def predict_topk(
        self, X: Any, k: int = 5, *, proba: bool = False, candidates: Any = None, index: SearchIndex | None = None
    ) -> tuple[Array, Array]:
        """The k classes with the largest scores of each row, best first.

        Memory does not grow with n_samples x n_classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.
        k : int, default=5
            Number of classes, from 1 to the number of classes of the model, or of the candidates of a row.
        proba : bool, default=False
            Whether to return probabilities instead of scores; an error where there is no `predict_proba`.
        candidates : array of shape (m,), array of shape (n_samples, m), list of lists, or sparse matrix, optional
            Labels among which the rows are ranked: the same for all rows; for each row; or those with a non-zero in an
            indicator of shape (n_samples, n_classes). Only their scores are computed; not for probabilities.
        index : SearchIndex, optional
            An index from `build_index`, or one that was saved and loaded, which is searched instead of scoring all
            classes; not for probabilities and candidates.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Classes.
        scores : ndarray of shape (n_samples, k)
            Their scores, or probabilities.

        Raises
        ------
        ValueError
            If the index is of other weights: its shape, or its scores of the first rows, are not those of the model.
        """
        if index is None:
            return super().predict_topk(X, k, proba=proba, candidates=candidates)
        if proba:
            raise ValueError("proba=True needs the scores of all classes: leave index=None, or proba=False")
        if candidates is not None:
            raise ValueError("candidates are scored without an index: leave out candidates or index")
        labels, scores = self.model_.topk(self._check_predict_input(X), k, n_jobs=self.n_jobs, index=index)
        return np.asarray(labels), np.asarray(scores)
