"""`LinearClassifierCV` and `LinearRegressorCV`, which choose alpha and l1_ratio by cross-validation."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from manyclass.estimators.base import LinearEstimator
from manyclass.estimators.classifier import LinearClassifier
from manyclass.estimators.regressor import LinearRegressor
from manyclass.estimators.search import Search

__all__ = ["LinearClassifierCV", "LinearRegressorCV"]


class LinearClassifierCV(Search, LinearClassifier):  # type: ignore[misc]
    """`LinearClassifier` that chooses alpha, and l1_ratio, by cross-validation along regularization paths.

    Each training fold is fitted for every alpha in descending order, each fit warm-started from the last, and scored on
    the test rows of the fold. The model is then fitted on all rows with the chosen alpha: it equals that of
    ``LinearClassifier(alpha=alpha_, l1_ratio=l1_ratio_, ...)``.

    Parameters
    ----------
    loss : str or loss object, default="multinomial"
        See `LinearClassifier`.
    alphas : array of shape (n_alphas,), optional
        Positive numbers in any order. None: chosen from all rows for each l1_ratio, as in `regularization_path`.
    n_alphas : int, default=50
        Number of alphas if ``alphas`` is None, >= 1.
    eps : float, optional
        Smallest alpha divided by the largest if ``alphas`` is None, in (0, 1). None: 1e-3 with an l1 part, 1e-4
        without.
    l1_ratio : float or list of float, default=0.0
        Fraction of the penalty that is l1, in [0, 1]; the best of a list is chosen.
    cv : int, splitter or iterable of (train, test), optional
        None: 5 folds. A number: as many stratified folds, those of `sklearn.model_selection.StratifiedKFold` (`KFold`
        for multilabel y). If a class is missing from a training fold, its test rows count as errors with probability
        zero.
    scoring : str or callable, optional
        Name of a scikit-learn score, or a function (estimator, X, y), also with ``sample_weight`` if weights are given;
        greater is better. None: neg_log_loss if the loss gives probabilities, else accuracy.
    selection : {"best", "one_se"}, default="best"
        "best": the alpha with the best mean score. "one_se": the largest alpha whose mean score is within one standard
        error of it (for the same l1_ratio).
    fit_intercept : bool or "auto", default="auto"
        See `LinearClassifier`.
    standardize : bool, default=False
        See `LinearClassifier`. Means and variances of a fold are those of its training rows.
    class_weight : dict or "balanced", optional
        See `LinearClassifier`.
    solver : str or solver object, default="auto"
        Solver of every fit, see `LinearClassifier`.
    tol : float, default=1e-3
        Relative duality gap of every fit, >= 0.
    max_iter : int, optional
        Maximum number of iterations of every fit, >= 1.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows in every fit.
    n_jobs : int, optional
        Number of threads: None means 1, -1 all cores. Folds and l1_ratios run in parallel, each with a copy of its
        fold; if there are more threads, the fits use them. Does not change the result, except with solvers whose
        documentation says so. Within ``joblib.parallel_config("dask")`` (or "ray", "loky") folds and l1_ratios run on
        the workers of that backend instead.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        See `LinearClassifier`.
    verbose : int, default=0
        1 shows the fit on all rows, 2 also the fits on folds.

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        The chosen values.
    alpha_best_, alpha_one_se_ : float
        The alphas for ``selection="best"`` and ``selection="one_se"``.
    alphas_ : ndarray of shape (n_alphas,), or (n_l1_ratios, n_alphas) for a list of l1_ratio
        The alphas, decreasing.
    scores_path_ : ndarray of shape (n_alphas, n_folds), or (n_l1_ratios, n_alphas, n_folds)
        Test scores; NaN for a fold whose rows all have weight zero.
    mean_scores_, standard_errors_ : ndarray of shape (n_alphas,), or (n_l1_ratios, n_alphas)
        Means and standard errors over the folds, weighted by the sample weights of their rows.
    coef_, intercept_, classes_, duality_gap_, objective_, n_iter_, history_, model_, n_features_in_, feature_names_in_
        Of the fit on all rows, see `LinearClassifier`.

    Raises
    ------
    ValueError
        As in `LinearClassifier`; if alphas, n_alphas, eps, cv, scoring or selection is invalid; if a training fold has
        only one class.

    See Also
    --------
    LinearClassifier : The estimator, and the meaning of its parameters.
    regularization_path : The models along a path, without cross-validation.

    References
    ----------
    The one-standard-error rule: Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", section 7.10.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import LinearClassifierCV
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LinearClassifierCV(alphas=[1e-1, 1e-2, 1e-3], cv=3, random_state=0).fit(X / 16, y)
    >>> model.alpha_, model.scores_path_.shape
    (0.001, (3, 3))
    """

    _plain: ClassVar[type[LinearEstimator]] = LinearClassifier
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearClassifier._parameter_constraints,
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), "array-like"],
    }

    def _default_scoring(self) -> str:
        return "neg_log_loss" if self._loss().probabilities else "accuracy"

    def __init__(
        self,
        loss: Any = "multinomial",
        *,
        alphas: Any = None,
        n_alphas: int = 50,
        eps: float | None = None,
        l1_ratio: Any = 0.0,
        cv: Any = None,
        scoring: Any = None,
        selection: str = "best",
        fit_intercept: bool | str = "auto",
        standardize: bool = False,
        class_weight: Any = None,
        solver: Any = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.l1_ratio = l1_ratio
        self.cv = cv
        self.scoring = scoring
        self.selection = selection
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose


class LinearRegressorCV(Search, LinearRegressor):  # type: ignore[misc]
    """`LinearRegressor` that chooses alpha, and l1_ratio, by cross-validation along regularization paths.

    Parameters
    ----------
    loss : str or loss object, default="squared"
        See `LinearRegressor`.
    alphas : array of shape (n_alphas,), optional
        See `LinearClassifierCV`.
    n_alphas : int, default=50
        See `LinearClassifierCV`.
    eps : float, optional
        See `LinearClassifierCV`.
    l1_ratio : float or list of float, default=0.0
        Fraction of the penalty that is l1, in [0, 1]; the best of a list is chosen.
    cv : int, splitter or iterable of (train, test), optional
        None: 5 folds. A number: as many folds, those of `sklearn.model_selection.KFold`.
    scoring : str or callable, optional
        Name of a scikit-learn score, or a function (estimator, X, y); greater is better. None: neg_mean_squared_error.
    selection : {"best", "one_se"}, default="best"
        See `LinearClassifierCV`.
    fit_intercept : bool or "auto", default="auto"
        See `LinearRegressor`.
    standardize : bool, default=False
        See `LinearClassifierCV`.
    solver : str or solver object, default="auto"
        Solver of every fit, see `LinearRegressor`.
    tol : float, default=1e-3
        Relative duality gap of every fit, >= 0.
    max_iter : int, optional
        Maximum number of iterations of every fit, >= 1.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows in every fit.
    n_jobs : int, optional
        See `LinearClassifierCV`.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        See `LinearRegressor`.
    verbose : int, default=0
        See `LinearClassifierCV`.

    Attributes
    ----------
    alpha_, l1_ratio_, alpha_best_, alpha_one_se_, alphas_, scores_path_, mean_scores_, standard_errors_
        See `LinearClassifierCV`.
    coef_, intercept_, duality_gap_, objective_, n_iter_, history_, model_, n_features_in_, feature_names_in_
        Of the fit on all rows, see `LinearRegressor`.

    Raises
    ------
    ValueError
        As in `LinearRegressor`; if alphas, n_alphas, eps, cv, scoring or selection is invalid.

    See Also
    --------
    LinearRegressor : The estimator, and the meaning of its parameters.
    LinearClassifierCV : The same for classification.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manyclass import LinearRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LinearRegressorCV(l1_ratio=0.9, n_alphas=20, selection="one_se", random_state=0).fit(X, y)
    >>> bool(model.alpha_ >= model.alpha_best_)
    True
    """

    _plain: ClassVar[type[LinearEstimator]] = LinearRegressor
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearRegressor._parameter_constraints,
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), "array-like"],
    }

    def _default_scoring(self) -> str:
        return "neg_mean_squared_error"

    def __init__(
        self,
        loss: Any = "squared",
        *,
        alphas: Any = None,
        n_alphas: int = 50,
        eps: float | None = None,
        l1_ratio: Any = 0.0,
        cv: Any = None,
        scoring: Any = None,
        selection: str = "best",
        fit_intercept: bool | str = "auto",
        standardize: bool = False,
        solver: Any = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.l1_ratio = l1_ratio
        self.cv = cv
        self.scoring = scoring
        self.selection = selection
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose
