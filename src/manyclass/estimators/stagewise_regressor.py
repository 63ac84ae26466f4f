"""`StagewiseRegressor`: ridge regression on many generated features, one block at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from manyclass.estimators.base import check_sample_weight
from manyclass.estimators.predicting import RealPredictions
from manyclass.estimators.stagewise_base import StagewiseEstimator, require_same
from manyclass.estimators.streamed import mean_one
from manyclass.estimators.watched import Watch
from manyclass.objective.history import FitProgress
from manyclass.solvers.least_squares.calibrated import squared_error
from manyclass.solvers.least_squares.stagewise import linear, link_loss

__all__ = ["StagewiseRegressor"]


class StagewiseRegressor(RealPredictions, MultiOutputMixin, RegressorMixin, StagewiseEstimator):  # type: ignore[misc]
    """Regression on blocks of generated features, each fitted by ridge regression to the residuals of earlier blocks.

    The method is that of `StagewiseClassifier` with ``update="linear"``.

    Parameters
    ----------
    features : str or FeatureBlock, default="auto"
        See `StagewiseClassifier`.
    prepare : str or FeatureBlock, optional
        See `StagewiseClassifier`.
    block_size : int, optional
        See `StagewiseClassifier`.
    n_blocks : int, optional
        See `StagewiseClassifier`.
    passes : int, default=1
        See `StagewiseClassifier`.
    alpha : float or None, default=None
        See `StagewiseClassifier`.
    n_models : int, default=1
        See `StagewiseClassifier`.
    fit_intercept : bool, default=True
        Whether to fit an unpenalized intercept in each block.
    early_stopping : bool, default=False
        Whether to hold out validation rows, unless ``fit`` is given X_val, and keep the number of
        blocks with the lowest squared error on them.
    validation_fraction : float, default=0.1
        See `StagewiseClassifier`.
    patience : int, default=10
        See `StagewiseClassifier`.
    random_state : int, RandomState or None, default=None
        See `StagewiseClassifier`.
    n_jobs : int, optional
        See `StagewiseClassifier`.
    warm_start : bool, default=False
        See `StagewiseClassifier`.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        See `StagewiseClassifier`.
    verbose : int, default=0
        See `StagewiseClassifier`.

    Attributes
    ----------
    alpha_, features_, n_stages_, stage_records_, outcome_, model_, n_features_in_
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

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> StagewiseRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            See `StagewiseClassifier.fit`.
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Real targets.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; an integer weight is equivalent to that many copies of the row.
        X_val, y_val : as X and y, optional
            Held-out rows, whose score after each block is in ``stage_records_``. With ``early_stopping`` they end the
            fit, and no row of X is held out.
        callback : callable, optional
            Called after each block, see `LinearClassifier.fit`: ``objective`` is the loss, ``validation`` minus
            the mean squared error. ``weights()`` returns the stages so far, as ``model_.members`` has them.

        Returns
        -------
        StagewiseRegressor
            The fitted estimator.
        """
        self._check_parameters()
        watch = Watch(X_val, y_val, callback, X, y, sample_weight)
        width = getattr(self, "n_features_in_", None)
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        self._flat = y.ndim == 1
        dtype = self._working_dtype(X)
        try:
            targets = np.ascontiguousarray(y.reshape(len(y), -1), dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must contain numbers, got dtype {y.dtype}: convert it first") from error
        if self.warm_start and self._stages:
            require_same(None, None, width, self.n_features_in_)
        self._seeds = self._seeded()
        self._run_members(
            watch,
            dtype,
            {"task": "regression", "link": "identity", "classes": None},
            X,
            targets,
            weights,
            update=linear,
            additive=True,
            loss=link_loss("identity"),
            judge=lambda scores, truth, own: squared_error(truth, scores, mean_one(own)),
            given=self._held_out_rows(X_val, y_val, "regression", targets.shape[1]) if watch.judges else None,
        )
        return self
