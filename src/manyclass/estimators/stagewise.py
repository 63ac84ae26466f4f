"""Stagewise least squares: thousands of features, a block at a time."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from manyclass.estimators.base import check_sample_weight
from manyclass.estimators.labels import coded
from manyclass.estimators.predicting import PredictingMixin
from manyclass.estimators.stagewise_base import StagewiseEstimator, require_same
from manyclass.estimators.streamed import class_weighted, error_rate
from manyclass.objective.links.calibrated import check_basis
from manyclass.objective.problem import Array
from manyclass.solvers.least_squares.generalized import named_link
from manyclass.solvers.least_squares.stagewise import Update, calibrated, linear, link_loss, logistic

__all__ = ["StagewiseClassifier"]


class StagewiseClassifier(ClassifierMixin, StagewiseEstimator, PredictingMixin):  # type: ignore[misc]
    """Classifier on blocks of features, each fitted by least squares to what the blocks before it have left.

    For block t = 1, 2, ...: make its features (random, or a subset of those of X), fit their weights, bring the scores
    up to date, drop the features. Cost of a block of p features: n p^2 + p^3 / 3. Memory: a chunk of rows times p,
    p^2, and the scores; features are made again from a seed when they are needed, never stored for all rows.

    Parameters
    ----------
    features : str or FeatureBlock, default="fourier"
        Pattern of the blocks: "fourier", "logits", "nystrom", "polynomial", "subset", "pca", with ":N" behind for N
        features a block ("fourier:1024"), or a block of `manyclass.features`. Block t is a copy with a seed of its
        own; a `FeatureSubset` goes on where the last block has ended. Any transformer of scikit-learn that works row by
        row will do.
    prepare : str or FeatureBlock, optional
        Applied once before all blocks, and kept for all rows: "pca:50", say. As ``features``.
    block_size : int, optional
        Features of a block, >= 1; None leaves it to ``features``.
    n_blocks : int, optional
        Blocks of a pass, >= 1. None: a `FeatureSubset` goes through all features of X, anything else has 10 blocks.
    passes : int, default=1
        Times the blocks are gone through, >= 1. From the second on a block is fitted again to what all others left;
        with additive updates its weights grow, so that the passes descend on the joint problem of all blocks. A
        `FeatureSubset` ordered by gradient is ordered anew.
    update : {"linear", "calibrated", "logistic"}, default="linear"
        ``linear``: ridge regression of the residuals y - yhat. ``calibrated``: that, then predictions refitted on
        functions of themselves and projected on the simplex (the hypercube for multi-label targets). ``logistic``: a
        few steps of generalized least squares for the softmax link (sigmoid for two classes and multi-label targets),
        with the scores so far as offsets.
    basis : {"linear", "quadratic", "cubic"} or callable, default="linear"
        Of the calibrated update; see `CalibratedLeastSquaresClassifier`. The paper's stagewise experiments take the
        linear one.
    inner_steps : int, default=5
        Most steps of a logistic update, >= 1; a pass over the data each.
    alpha : float or None, default=None
        Ridge of each block, >= 0, beside the mean loss. None: 1 / n_samples (1 / the sum of the sample weights).
    n_models : int, default=1
        Models on features of their own, >= 1, whose scores are averaged.
    fit_intercept : bool, default=True
        An unpenalized constant feature in each block.
    early_stopping : bool, default=False
        Hold out a part of the rows, keep the number of blocks that does best on it.
    validation_fraction : float, default=0.1
        That part, in (0, 1).
    patience : int, default=10
        Blocks without a better validation error after which a model is done, >= 1.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn.
    random_state : int, RandomState or None, default=None
        Of all features, and of the validation part.
    n_jobs : int, optional
        Threads of kernels and predictions; None is 1, -1 all cores. Never changes the result. Products run on the
        threads of the BLAS.
    warm_start : bool, default=False
        Go on from the stages of the previous fit: more blocks.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Of features, products and weights; None takes that of X. Systems are factored in float64 always.
    verbose : int, default=0
        1 shows a line for each block on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    alpha_ : float
        The ridge used.
    n_stages_ : list of int
        Stages of each model.
    stage_records_ : list of StageRecord
        Loss and validation error after each block.
    outcome_ : {"complete", "interrupted"}
        After Ctrl-C the best model so far is kept.
    model_ : StagedModel
    n_features_in_ : int

    Raises
    ------
    ValueError
        On parameters out of range, fewer than two classes, NaN or infinite input.
    MemoryError
        Before anything is allocated, if a block or the scores would not fit into memory.

    References
    ----------
    Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
    prediction", ICML 2014, algorithm 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import StagewiseClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = StagewiseClassifier(block_size=100, n_blocks=5, update="calibrated", random_state=0).fit(X / 16, y)
    >>> model.n_stages_, model.score(X / 16, y) > 0.97
    ([5], True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StagewiseEstimator._parameter_constraints,
        "update": [StrOptions({"linear", "calibrated", "logistic"})],
        "inner_steps": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        features: Any = "fourier",
        *,
        prepare: Any = None,
        block_size: int | None = None,
        n_blocks: int | None = None,
        passes: int = 1,
        update: str = "linear",
        basis: Any = "linear",
        inner_steps: int = 5,
        alpha: float | None = None,
        n_models: int = 1,
        fit_intercept: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            features,
            prepare=prepare,
            block_size=block_size,
            n_blocks=n_blocks,
            passes=passes,
            alpha=alpha,
            n_models=n_models,
            fit_intercept=fit_intercept,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            random_state=random_state,
            n_jobs=n_jobs,
            warm_start=warm_start,
            dtype=dtype,
            verbose=verbose,
        )
        self.update = update
        self.basis = basis
        self.inner_steps = inner_steps
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StagewiseClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Read chunk by chunk: may be memory-mapped. An array of another library (PyTorch, CuPy, any that follows the
            array API) makes the products of its features; random features are drawn in NumPy.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators.
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        StagewiseClassifier
            Itself.
        """
        self._check_parameters()
        classes = getattr(self, "classes_", None)
        width = getattr(self, "n_features_in_", None)
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        labels, task = self._read_targets(y)
        weights = class_weighted(self.class_weight, self.classes_, labels, weights)
        if self.warm_start and self._stages:
            require_same(classes, self.classes_, width, self.n_features_in_)
        self._seeds = self._seeded()
        dtype = self._working_dtype(X)
        if task == "binary" and self.update == "calibrated":
            task = "multiclass"  # a column for each of two classes: predictions are on the simplex
        K = 1 if task == "binary" else len(self.classes_)
        link = "identity"
        if self.update == "logistic":
            link = "softmax" if task == "multiclass" else "sigmoid"
        signs = self.update == "linear" and task != "multiclass"
        domain = "box" if task == "multilabel" else "simplex"
        update: Update
        if self.update == "linear":
            update = linear
        elif self.update == "calibrated":
            update = calibrated(self.basis, domain)
        else:
            update = logistic(*named_link(link), int(self.inner_steps), 1e-4)
        threshold = 0.5 if (self.update, task) == ("calibrated", "multilabel") else 0.0
        members = self._fit_members(
            X,
            coded(labels, K, dtype, signs=signs),
            weights,
            update=update,
            additive=self.update != "calibrated",
            loss=link_loss(link),
            judge=lambda scores, rows: error_rate(
                scores, labels[rows], task, None if weights is None else weights[rows], threshold
            ),
        )
        self._settle(members, dtype, task=task, link=link, classes=self.classes_)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_basis(self.basis)

    @available_if(lambda self: self.update == "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Probabilities; of the logistic update alone.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Those of several classes sum to one; those of a multi-label fit do not.
        """
        X = self._check_predict_input(X)
        return np.asarray(self.model_.probabilities(X, n_jobs=self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
