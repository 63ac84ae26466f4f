"""Stagewise regression: ridge regression on a block of features at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from manyclass.estimators.base import check_sample_weight
from manyclass.estimators.stagewise_base import StagewiseEstimator, require_same
from manyclass.estimators.streamed import mean_one
from manyclass.objective.problem import Array
from manyclass.solvers.least_squares.calibrated import squared_error
from manyclass.solvers.least_squares.stagewise import linear, link_loss

__all__ = ["StagewiseRegressor"]


class StagewiseRegressor(MultiOutputMixin, RegressorMixin, StagewiseEstimator):  # type: ignore[misc]
    """Regression on blocks of features, each fitted by ridge regression to the residuals of those before it.

    As `StagewiseClassifier` with ``update="linear"``, for numbers.

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
        and its weights grow, so that the passes descend on the joint problem of all blocks. A `FeatureSubset` ordered
        by gradient is ordered anew.
    alpha : float or None, default=None
        Ridge of each block, >= 0, beside the mean loss. None: 1 / n_samples (1 / the sum of the sample weights).
    n_models : int, default=1
        Models on features of their own, >= 1, whose scores are averaged.
    fit_intercept : bool, default=True
        An unpenalized constant feature in each block.
    early_stopping : bool, default=False
        Hold out a part of the rows, keep the number of blocks with the least squared error on it.
    validation_fraction : float, default=0.1
        That part, in (0, 1).
    patience : int, default=10
        Blocks without a better validation error after which a model is done, >= 1.
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
    alpha_, n_stages_, stage_records_, outcome_, model_, n_features_in_
        See `StagewiseClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass import StagewiseRegressor
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1]
    >>> StagewiseRegressor(block_size=50, n_blocks=4, random_state=0).fit(X, y).score(X, y) > 0.99
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StagewiseRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            See `StagewiseClassifier.fit`.
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Numbers to predict.
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        StagewiseRegressor
            Itself.
        """
        self._check_parameters()
        width = getattr(self, "n_features_in_", None)
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        self._flat = y.ndim == 1
        dtype = self._working_dtype(X)
        try:
            targets = np.ascontiguousarray(y.reshape(len(y), -1), dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must hold numbers, got dtype {y.dtype}") from error
        if self.warm_start and self._stages:
            require_same(None, None, width, self.n_features_in_)
        self._seeds = self._seeded()
        members = self._fit_members(
            X,
            targets,
            weights,
            update=linear,
            additive=True,
            loss=link_loss("identity"),
            judge=lambda scores, rows: squared_error(
                targets[rows], scores, None if weights is None else mean_one(weights[rows])
            ),
        )
        self._settle(members, dtype, task="regression", link="identity", classes=None)
        return self

    def predict(self, X: Any) -> Array:
        """Predictions for rows.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            As y was.
        """
        X = self._check_predict_input(X)
        scores = self.model_.scores(X, n_jobs=self.n_jobs)
        return np.asarray(scores[:, 0] if self._flat else scores)
