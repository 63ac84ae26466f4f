"""Estimators that choose alpha, and l1_ratio, by cross-validation."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from manyclass.estimators.base import LinearEstimator
from manyclass.estimators.classifier import LinearClassifier
from manyclass.estimators.regressor import LinearRegressor
from manyclass.estimators.search import Search

__all__ = ["LinearClassifierCV", "LinearRegressorCV"]


class LinearClassifierCV(Search, LinearClassifier):
    """`LinearClassifier` that chooses alpha, and l1_ratio, by cross-validation along regularization paths.

    Each training fold is fitted at every alpha, from the largest down, each fit from where the last one ended, and
    scored on the rows it has not seen. The model is then fitted on all rows with the alpha chosen: it is the one that
    ``LinearClassifier(alpha=alpha_, l1_ratio=l1_ratio_, ...)`` gives.

    Parameters
    ----------
    loss : str or loss object, default="multinomial"
        See `LinearClassifier`.
    alphas : array of shape (n_alphas,), optional
        Positive numbers, in any order. None: chosen from all rows as `regularization_path` does, for each l1_ratio.
    n_alphas : int, default=50
        Number of alphas where none are given.
    eps : float, optional
        Least alpha over the largest, where none are given. None: 1e-3 with an l1 part, 1e-4 without.
    l1_ratio : float or list of float, default=0.0
        Part of the penalty that is l1, in [0, 1]; of several the best is chosen.
    cv : int, splitter or iterable of (train, test), optional
        None: 5 folds. A number: stratified folds, those of `sklearn.model_selection.StratifiedKFold` (plain ones for
        multi-label y). A class may be missing from a training fold: rows of it count as errors there, with probability
        zero.
    scoring : str or callable, optional
        A score of scikit-learn, or a function (estimator, X, y), and sample_weight if weights are given; greater is
        better. None: neg_log_loss where the loss gives probabilities, else accuracy.
    selection : {"best", "one_se"}, default="best"
        "best": the alpha of the best mean score. "one_se": the largest alpha whose mean score is within one standard
        error of it (at the same l1_ratio).
    fit_intercept : bool or "auto", default="auto"
        See `LinearClassifier`.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn.
    solver : str or solver object, default="auto"
        See `LinearClassifier`; for every fit.
    tol : float, default=1e-3
        Certified relative duality gap of every fit, >= 0.
    max_iter : int, optional
        Most iterations of every fit.
    random_state : int, RandomState or None, default=None
        Of the order of the rows, in every fit.
    n_jobs : int, optional
        Threads: over folds and l1_ratios, each with a copy of its fold and a state of its own; what is left over goes
        to the fits. Never changes the result, except with solvers that say so by name.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Of the weights and of the work; None takes that of X.
    verbose : int, default=0
        1 shows the fit on all rows, 2 the fits on folds too.

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        The choice.
    alpha_best_, alpha_one_se_ : float
        What the two kinds of selection choose.
    alphas_ : ndarray of shape (n_alphas,), or (n_l1_ratios, n_alphas) for a list of l1_ratio
        Decreasing.
    scores_path_ : ndarray of shape (n_alphas, n_folds), or (n_l1_ratios, n_alphas, n_folds)
        NaN for a fold whose rows all have weight zero.
    mean_scores_, standard_errors_ : ndarray of shape (n_alphas,), or (n_l1_ratios, n_alphas)
        Over the folds, weighted by the sample weights of their rows.
    coef_, intercept_, classes_, duality_gap_, objective_, n_iter_, history_, model_, n_features_in_, feature_names_in_
        Of the fit on all rows, see `LinearClassifier`.

    Raises
    ------
    ValueError
        As `LinearClassifier`; on alphas, n_alphas, eps, cv, scoring or selection out of range; if a training fold holds
        one class only.

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
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearClassifierCV:  # type: ignore[override]
        """Choose alpha and fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            See `LinearClassifier.fit`.
        y : array of shape (n_samples,), or indicator of shape (n_samples, n_classes)
            See `LinearClassifier.fit`.
        sample_weight : array of shape (n_samples,), optional
            Weighs the rows in the fits, in the scores, and the folds in the mean score.

        Returns
        -------
        LinearClassifierCV
            Itself.
        """
        self._search(X, y, sample_weight)
        return self


class LinearRegressorCV(Search, LinearRegressor):
    """`LinearRegressor` that chooses alpha, and l1_ratio, by cross-validation along regularization paths.

    Parameters
    ----------
    loss : str or loss object, default="squared"
        See `LinearRegressor`.
    alphas : array of shape (n_alphas,), optional
        Positive numbers, in any order. None: chosen from all rows as `regularization_path` does, for each l1_ratio.
    n_alphas : int, default=50
        Number of alphas where none are given.
    eps : float, optional
        Least alpha over the largest, where none are given. None: 1e-3 with an l1 part, 1e-4 without.
    l1_ratio : float or list of float, default=0.0
        Part of the penalty that is l1, in [0, 1]; of several the best is chosen.
    cv : int, splitter or iterable of (train, test), optional
        None: 5 folds. A number: those of `sklearn.model_selection.KFold`.
    scoring : str or callable, optional
        A score of scikit-learn, or a function (estimator, X, y); greater is better. None: neg_mean_squared_error.
    selection : {"best", "one_se"}, default="best"
        "best": the alpha of the best mean score. "one_se": the largest alpha whose mean score is within one standard
        error of it (at the same l1_ratio).
    fit_intercept : bool or "auto", default="auto"
        See `LinearRegressor`.
    solver : str or solver object, default="auto"
        See `LinearRegressor`; for every fit.
    tol : float, default=1e-3
        Certified relative duality gap of every fit, >= 0.
    max_iter : int, optional
        Most iterations of every fit.
    random_state : int, RandomState or None, default=None
        Of the order of the rows, in every fit.
    n_jobs : int, optional
        Threads: over folds and l1_ratios, each with a copy of its fold and a state of its own; what is left over goes
        to the fits. Never changes the result, except with solvers that say so by name.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Of the weights and of the work; None takes that of X.
    verbose : int, default=0
        1 shows the fit on all rows, 2 the fits on folds too.

    Attributes
    ----------
    alpha_, l1_ratio_, alpha_best_, alpha_one_se_, alphas_, scores_path_, mean_scores_, standard_errors_
        See `LinearClassifierCV`.
    coef_, intercept_, duality_gap_, objective_, n_iter_, history_, model_, n_features_in_, feature_names_in_
        Of the fit on all rows, see `LinearRegressor`.

    Raises
    ------
    ValueError
        As `LinearRegressor`; on alphas, n_alphas, eps, cv, scoring or selection out of range.

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
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegressorCV:  # type: ignore[override]
        """Choose alpha and fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            See `LinearRegressor.fit`.
        y : array of shape (n_samples,) or (n_samples, n_targets)
            See `LinearRegressor.fit`.
        sample_weight : array of shape (n_samples,), optional
            Weighs the rows in the fits, in the scores, and the folds in the mean score.

        Returns
        -------
        LinearRegressorCV
            Itself.
        """
        self._search(X, y, sample_weight)
        return self
