"""Regression with a certified optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import MultiOutputMixin, RegressorMixin

from manyclass.estimators.base import LinearEstimator, _number
from manyclass.kernels.targets import RealTargets
from manyclass.objective.losses import Huber, Squared
from manyclass.objective.problem import Array, Problem

__all__ = ["SDCARegressor"]

_LOSSES = ("squared", "huber")


class SDCARegressor(MultiOutputMixin, RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Linear regression fitted by proximal stochastic dual coordinate ascent, stopped on a true duality gap.

    Minimises ``(1/n) sum_i c_i phi(W^T x_i + b - y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)``. With
    phi(r) = ||r||^2 / 2 that is the objective of scikit-learn's ElasticNet and Lasso, and of its Ridge with
    ``alpha * n_samples``.

    Parameters
    ----------
    loss : {"squared", "huber"}
        ``squared``: ridge regression, elastic net and Lasso by ``l1_ratio``. ``huber``: phi is r^2 / 2 up to
        ``epsilon`` and epsilon |r| - epsilon^2 / 2 beyond, so that outliers pull no harder than that.
    alpha : float
        Strength of the penalty, > 0.
    l1_ratio : float
        Part of the penalty that is l1, in [0, 1]; 1 is the Lasso.
    tol : float
        Certified relative duality gap to stop at.
    max_iter : int
        Most epochs.
    fit_intercept : bool
        Fit an unpenalised intercept.
    epsilon : float
        Where the Huber loss turns linear, in units of y, > 0.
    solver : {"auto", "sdca", "accelerated", "sdca_async", "cd", "fista", "lbfgs", "newton", "cg", "gd", "sgd", "asgd"}
        See `SDCAClassifier`; "auto" is cd for up to ten targets and a penalty with an l1 part, else one of the two.
    option, sampling
        See `SDCAClassifier`.
    random_state, n_jobs, warm_start, dtype, verbose
        See `SDCAClassifier`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), or (n_targets, n_features) for 2-D y
    intercept_ : float, or ndarray of shape (n_targets,)
    sparse_coef_ : CSR matrix of shape (n_targets, n_features)
    duality_gap_, objective_, solver_, n_iter_, history_, model_, n_features_in_, feature_names_in_
        See `SDCAClassifier`.

    Raises
    ------
    ValueError
        On parameters out of range, NaN or infinite input.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manyclass import SDCARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SDCARegressor(alpha=1e-3, random_state=0).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-3), bool(model.score(X, y) > 0.4)
    (True, True)
    """

    def __init__(
        self,
        loss: str = "squared",
        *,
        alpha: float = 1e-4,
        l1_ratio: float = 0.0,
        tol: float = 1e-3,
        max_iter: int = 100,
        fit_intercept: bool = True,
        epsilon: float = 1.35,
        solver: str = "auto",
        option: str = "I",
        sampling: str = "permutation",
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.epsilon = epsilon
        self.solver = solver
        self.option = option
        self.sampling = sampling
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.dtype = dtype
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SDCARegressor:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Not copied if it is float32 or float64; never densified.
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        SDCARegressor
            Itself.
        """
        problem, facts = self._build(X, y, sample_weight)
        self._wrap(self._minimise(problem), **facts)
        return self

    def _build(self, X: Any, y: Any, sample_weight: Any) -> tuple[Problem, dict[str, Any]]:
        """The problem that the parameters and the data describe, and what the model is to know besides its weights."""
        self._check_parameters()
        X, y = self._check_fit_input(X, y)
        weights = self._weights(sample_weight, X)
        dtype = X.dtype if self.dtype is None else self.dtype
        self._flat = y.ndim == 1
        values = np.ascontiguousarray(y.reshape(len(y), -1), dtype)
        loss: Any = Squared() if self.loss == "squared" else Huber(float(self.epsilon))
        problem = self._problem(X, RealTargets(values, values.shape[1]), loss, weights)
        return problem, {"classes": None, "task": "regression", "link": "identity"}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(map(repr, _LOSSES))}, got {self.loss!r}")
        _number("epsilon", self.epsilon, low=0.0, low_open=True)

    def _check_fit_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = super()._check_fit_input(X, y)
        try:
            y = np.asarray(y, np.float64) if y.dtype.kind not in "f" else y
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must hold numbers, got dtype {y.dtype}") from error
        return X, y

    @property
    def coef_(self) -> Any:
        """Weights, (n_features,) for 1-D y, else (n_targets, n_features).

        A view, not a copy, of dense weights. A fit with an l1 part that leaves few weights keeps them sparse: then this
        is a dense copy, and `sparse_coef_` the weights as they are. After `sparsify`, a (n_targets, n_features) sparse
        matrix.
        """
        coef = super().coef_
        return coef if sp.issparse(coef) else np.asarray(coef[0] if self._flat else coef)

    @property
    def intercept_(self) -> Any:
        """Intercept: a number for 1-D y, else (n_targets,)."""
        intercept = super().intercept_
        return intercept[0] if self._flat else intercept

    def predict(self, X: Any) -> Array:
        """Predictions, (n_samples,) or (n_samples, n_targets) as y was."""
        X = self._check_predict_input(X)
        scores = self.model_.scores(X, n_jobs=self.n_jobs)
        return np.asarray(scores[:, 0] if self._flat else scores)
