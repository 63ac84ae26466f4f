"""Stagewise regression: ridge regression on a block of features at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from manyclass.estimators.base import check_sample_weight
from manyclass.estimators.stagewise_base import StagewiseEstimator, require_same
from manyclass.estimators.streamed import (
    mean_one,
)
from manyclass.objective.problem import Array
from manyclass.solvers.least_squares.calibrated import squared_error
from manyclass.solvers.least_squares.stagewise import (
    linear,
    link_loss,
)

__all__ = ["StagewiseRegressor"]


class StagewiseRegressor(MultiOutputMixin, RegressorMixin, StagewiseEstimator):  # type: ignore[misc]
    """Regression on blocks of features, each fitted by ridge regression to the residuals of those before it.

    As `StagewiseClassifier` with ``update="linear"``; see there for what the parameters do.

    Parameters
    ----------
    features, prepare, block_size, n_blocks, passes, alpha, n_models, fit_intercept, early_stopping, \
    validation_fraction, patience, random_state, n_jobs, warm_start, dtype, verbose
        See `StagewiseClassifier`. The validation error is the mean squared error.

    Attributes
    ----------
    n_stages_, stage_records_, outcome_, model_, n_features_in_
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
        sample_weight : array of shape (n_samples,), optional

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
        """Predictions, (n_samples,) or (n_samples, n_targets) as y was."""
        X = self._check_predict_input(X)
        scores = self.model_.scores(X, n_jobs=self.n_jobs)
        return np.asarray(scores[:, 0] if self._flat else scores)
