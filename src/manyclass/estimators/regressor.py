"""`LinearRegressor`."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.estimators.base import check_sample_weight, record_of
from manyclass.estimators.elsewhere import working_dtype
from manyclass.estimators.path_plot import Scored
from manyclass.estimators.pixels import advised
from manyclass.estimators.predicting import RealPredictions
from manyclass.estimators.prior import with_prior
from manyclass.estimators.watched import Watch, WatchedEstimator
from manyclass.kernels.targets import RealTargets
from manyclass.objective.component import resolve
from manyclass.objective.history import FitProgress
from manyclass.objective.losses import REGRESSION, RegressionLoss
from manyclass.objective.problem import Array, Problem
from manyclass.solvers import Solver

__all__ = ["LinearRegressor"]


class LinearRegressor(RealPredictions, MultiOutputMixin, RegressorMixin, Scored, WatchedEstimator):  # type: ignore[misc]
    """Linear regression with squared or Huber loss and an l2, l1 or elastic net penalty, stopped by the duality gap.

    Minimizes ``(1/n) sum_i c_i phi(W^T x_i + b - y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)``. With
    phi(r) = ||r||^2 / 2 this is the objective of scikit-learn's ElasticNet and Lasso, and of its Ridge with
    ``alpha * n_samples``.

    Parameters
    ----------
    loss : str or loss object, default="squared"
        "squared": ridge regression, elastic net or Lasso, depending on ``l1_ratio``. "huber", or
        ``Huber(epsilon=1.35)``: squared for residuals up to epsilon and linear beyond, robust to outliers.
    alpha : float, "auto" or None, default=None
        Strength of the penalty, > 0. None: 1 / n_samples (1 / the sum of the sample weights). "auto": chosen on
        held-out rows, see `LinearClassifier`; ``validation_scores_`` are minus the mean squared errors, see `plot`.
    l1_ratio : float, default=0.0
        Fraction of the penalty that is l1, in [0, 1]; 0 is ridge regression, 1 the Lasso.
    fit_intercept : bool or "auto", default="auto"
        Whether to fit an unpenalized intercept; "auto" is True.
    standardize : bool, default=False
        See `LinearClassifier`.
    solver : str or solver object, default="auto"
        See `LinearClassifier`. "auto" is "cd" for up to ten targets and a penalty with an l1 part, else "accelerated"
        for an ill-conditioned problem, and else "sdca".
    tol : float, default=1e-3
        Relative duality gap at which the fit stops, >= 0.
    max_iter : int, optional
        Maximum number of iterations, >= 1, see `LinearClassifier`. None: 100; 1000 for "sdca",
        "accelerated" and "preconditioned_lbfgs", 300 for "newton".
    early_stopping : bool or int, default=False
        Number of iterations without a better score on held-out rows after which the fit ends, with the weights of the
        best score; True is 5. The held-out rows are those of ``fit(X_val=, y_val=)``, or else a tenth of the rows, at
        most 20 000. The score is minus the mean squared error.
    warm_start : bool, default=False
        See `LinearClassifier`.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows.
    n_jobs : int, optional
        See `LinearClassifier`.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        See `LinearClassifier`.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), or (n_targets, n_features) for 2-D y
        Weights.
    intercept_ : float, or ndarray of shape (n_targets,)
        Intercepts.
    sparse_coef_ : CSR matrix of shape (n_targets, n_features)
        Weights as a sparse matrix.
    alpha_, duality_gap_, objective_, solver_, n_iter_, history_, model_, n_features_in_, feature_names_in_
        See `LinearClassifier`.

    Raises
    ------
    ValueError
        If a parameter is out of range, the solver does not support the loss or the penalty, or the input has NaN or
        infinity.
    MemoryError
        If the fit would need more memory than is available; raised before anything is allocated.

    See Also
    --------
    LinearRegressorCV : Chooses alpha and l1_ratio by cross-validation.
    LinearClassifier : The same for classification.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manyclass import LinearRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LinearRegressor(alpha=1e-3, random_state=0).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-3), bool(model.score(X, y) > 0.4)
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **WatchedEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"}), None],
    }

    def __init__(
        self,
        loss: str | RegressionLoss = "squared",
        *,
        alpha: float | str | None = None,
        l1_ratio: float = 0.0,
        fit_intercept: bool | str = "auto",
        standardize: bool = False,
        solver: str | Solver = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        early_stopping: bool | int = False,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        prior: Any = None,
        callback: Callable[[FitProgress], Any] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> LinearRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows, finite. Not copied if float32 or float64; never densified. Arrays of float16, of bfloat16 and of other
            libraries: as for `LinearClassifier.fit`.
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Real targets.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; an integer weight is equivalent to that many copies of the row.
        X_val, y_val : as X and y, optional
            Held-out rows, see `LinearClassifier.fit`.
        prior : LinearModel or fitted estimator, optional
            A model whose weights replace zero in the l2 penalty, see `LinearClassifier.fit`.
        callback : callable, optional
            Called after each iteration, see `LinearClassifier.fit`.
        checkpoint : path, optional
            Where to save the state of the fit, see `LinearClassifier.fit`.
        checkpoint_seconds : float, default=60.0
            Minimum time between two checkpoints in seconds.

        Returns
        -------
        LinearRegressor
            The fitted estimator; after Ctrl-C, with the model reached so far.
        """
        self._check_parameters()
        problem, facts = self._build(X, y, sample_weight)
        if prior is not None:
            problem = with_prior(problem, prior, None, getattr(self, "feature_names_in_", None))
        settings = self._settings(checkpoint)
        if checkpoint is not None:
            settings["checkpoint_seconds"] = checkpoint_seconds
        watch = Watch(X_val, y_val, callback, X, y, sample_weight)
        with advised(problem):
            result = self._watched(problem, self._asked_solver(), facts, watch, settings, checkpoint)()
        self._keep(problem, result, checkpoint)
        self._finish(result.weights, result.intercept, facts, record_of(result, prior))
        return self

    def _finish(self, W: Any, intercept: Array, facts: dict[str, Any], record: dict[str, Any]) -> None:
        """Set the model."""
        self._wrap(W, intercept, record=record, **facts)

    def _build(self, X: Any, y: Any, sample_weight: Any) -> tuple[Problem, dict[str, Any]]:
        """The problem for the parameters and the data, and the fields of the model besides its weights."""
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        dtype = working_dtype(X, self.dtype)
        self._flat = y.ndim == 1
        values = np.ascontiguousarray(y.reshape(len(y), -1), dtype)
        targets = RealTargets(values, values.shape[1])
        intercept = bool(self.fit_intercept)  # "auto" means True
        problem = self._problem(X, targets, self._loss().compiled(), weights, intercept=intercept)
        return problem, {"classes": None, "task": "regression", "link": "identity"}

    def _loss(self) -> RegressionLoss:
        return resolve("loss", self.loss, REGRESSION)

    def _compiled_loss(self) -> Any:
        return self._loss().compiled()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        loss, solver = self._loss(), self._asked_solver()
        if solver is not None and not (solver.one_margin and solver.certified):
            raise ValueError(
                f"solver {solver.name!r} is for classification losses, got loss {loss.name!r}: use another solver, or "
                "'auto'"
            )

    def _check_fit_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = super()._check_fit_input(X, y)
        try:
            y = np.asarray(y, np.float64) if y.dtype.kind not in "f" else y
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must contain numbers, got dtype {y.dtype}: convert it first") from error
        return X, y

    @property
    def coef_(self) -> Any:
        """Weights, (n_features,) for 1-D y, else (n_targets, n_features).

        A view or a copy, see `LinearClassifier.coef_`; after `sparsify`, a sparse matrix (n_targets, n_features).
        """
        coef = super().coef_
        return coef if sp.issparse(coef) else np.asarray(coef[0] if self._flat else coef)

    @property
    def intercept_(self) -> Any:
        """Intercept: a number for 1-D y, else (n_targets,)."""
        intercept = super().intercept_
        return intercept[0] if self._flat else intercept
