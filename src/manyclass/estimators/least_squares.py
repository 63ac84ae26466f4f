"""`GeneralizedLeastSquaresClassifier`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.estimators.base import LinearEstimator, check_number, check_sample_weight, penalty_strength, record_of
from manyclass.estimators.elsewhere import ClassScore, make_problem, working_dtype
from manyclass.estimators.labels import coded, loss_of_link
from manyclass.estimators.predicting import PredictingMixin
from manyclass.estimators.streamed import (
    StreamedMixin,
    after_steps,
    class_weighted,
    error_rate,
    hold_out,
    mean_one,
    rows_of,
)
from manyclass.estimators.watched import STOPS, Watch, WatchedEstimator
from manyclass.models.staged import Stage
from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.history import FitProgress, History, Reporter
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.loop import Result, minimize
from manyclass.optimize.validation import Judge, Validation
from manyclass.runtime.arrays import is_foreign, is_half, scores_there
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers import GeneralizedLeastSquares
from manyclass.solvers.least_squares.generalized import (
    LINKS,
    GeneralizedFit,
    apply_link,
    fit_generalized,
    named_link,
    objective_of,
)
from manyclass.solvers.least_squares.systems import SYSTEMS, is_factored

__all__ = ["GeneralizedLeastSquaresClassifier"]


class GeneralizedLeastSquaresClassifier(StreamedMixin, ClassScore, WatchedEstimator, PredictingMixin):
    """Linear classifier fitted by generalized least squares: a sequence of least-squares problems, for any link.

    All least-squares problems have the matrix L Sigma + alpha I, which is factored once; the number of steps does not
    depend on the condition number of X. With ``link="identity"`` a single step is the solution: ridge regression on
    indicators of the classes. ``"softmax"`` and ``"sigmoid"`` minimize the objectives of
    ``LinearClassifier(loss="multinomial")`` and ``(loss="log_loss")``, with the same duality gap. Fast for up to some
    thousands of features.

    Parameters
    ----------
    link : {"identity", "softmax", "sigmoid"} or callable, default="identity"
        The function g from scores to predictions of the indicators of the classes. ``identity``: squared loss.
        ``softmax``: multinomial loss (sigmoid for two classes). ``sigmoid``: one-vs-rest log loss; supports multilabel
        y, as identity does. A callable takes scores (n, K) and returns predictions (n, K): the fit solves
        ``X'(g(X W) - Y) / n + alpha W = 0``. It must be monotone, and 1/2 at zero for multilabel y.
    alpha : float or None, default=None
        Strength of the penalty (alpha / 2) ||W||^2 relative to the mean loss, >= 0. None: 1 / the sum of the sample
        weights. 0, the paper's: dependent features get weight 0; the fit stops by its steps, as for a callable link.
    fit_intercept : bool, default=True
        Whether to fit an unpenalized intercept.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    alphas : sequence of float, optional
        Values to choose alpha from, each > 0, in place of ``alpha``. Each is fitted on the training rows, with second
        moments that are computed once, and evaluated by the error rate on the validation rows; the best (of equals the
        largest) is fitted on all rows.
    accelerated : bool, default=True
        Whether to use Nesterov's momentum in the metric of the problem.
    lipschitz : float, optional
        Lipschitz constant of a callable link, L > 0 with ||g(s) - g(s')|| <= L ||s - s'||. Required for a callable;
        must be None for the other links.
    features : str or FeatureBlock, optional
        Features that replace the columns of X: "fourier", "logits", "nystrom", "polynomial", "subset" or "pca",
        optionally with their number ("fourier:1024"), or a block of `manyclass.features`. They are computed for a chunk
        of rows at a time.
    system : {"auto", "cholesky", "cg"}, default="auto"
        Method for the linear systems: a Cholesky factor of (d + 1)^2 numbers, or conjugate gradients, which need only
        X. ``auto``: the factor for up to 10 000 features, if twice its memory is available.
    validation_fraction : float, default=0.1
        Fraction of the rows used for validation with ``alphas`` and with ``early_stopping``, in (0, 1); none if ``fit``
        is given X_val.
    tol : float, default=1e-3
        Relative duality gap at which the fit stops, >= 0. Without a duality gap (a callable link, ``features``): the
        squared length of a step in the metric of the problem, divided by that of the first step.
    max_iter : int, optional
        Maximum number of steps, >= 1. None: 100.
    early_stopping : bool or int, default=False
        Number of steps without a better score on held-out rows after which the fit stops, >= 1; True is 5. See
        `LinearClassifier`.
    warm_start : bool, default=False
        Whether to start from the weights of the previous fit if targets and shapes are the same (only where a duality
        gap is computed).
    random_state : int, RandomState or None, default=None
        Seed of the validation split and of ``features``.
    n_jobs : int, optional
        Number of threads of kernels and predictions: None means 1, -1 all cores. Does not change the result. Dense
        matrix products use the threads of the BLAS.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Type of the weights and of the computations; None uses that of X.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    coef_, intercept_ : ndarray
        As in `LinearClassifier`; not with ``features``.
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    alpha_ : float
        Strength of the penalty used.
    validation_errors_ : dict of float to float
        Error rate on the validation rows by alpha, with ``alphas``.
    duality_gap_, objective_ : float
        Relative duality gap, NaN if none is computed, see ``tol``; and objective, NaN for a callable link.
    n_iter_ : int
        Number of steps.
    history_ : History
        The evaluations of the fit.
    model_ : LinearModel, or StagedModel with ``features``
        The fitted model.

    Raises
    ------
    ValueError
        If a parameter is out of range, the link does not support the targets, y has fewer than two classes, or the
        input has NaN or infinity.
    MemoryError
        If the fit would need more memory than is available; raised before anything is allocated.

    See Also
    --------
    CalibratedLeastSquaresClassifier : Learns the link from the data.
    LinearClassifier : The same models with other losses, penalties and solvers.

    References
    ----------
    Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
    prediction", ICML 2014, algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import GeneralizedLeastSquaresClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = GeneralizedLeastSquaresClassifier("softmax", alpha=1e-3).fit(X / 16, y)
    >>> bool(model.duality_gap_ <= 1e-3), model.score(X / 16, y) > 0.97
    (True, True)
    """

    #: The penalty is l2; used by the methods of `LinearEstimator`.
    l1_ratio = 0.0
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearEstimator._parameter_constraints,
        **StreamedMixin._parameter_constraints,
        "early_stopping": STOPS,
        "link": [StrOptions(set(LINKS)), callable],
        "alpha": [Interval(Real, 0, None, closed="left"), None],
        "alphas": ["array-like", None],
        "accelerated": ["boolean"],
        "lipschitz": [Interval(Real, 0, None, closed="neither"), None],
        "system": [StrOptions(set(SYSTEMS))],
    }

    def __init__(
        self,
        link: Any = "identity",
        *,
        alpha: float | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        alphas: Any = None,
        accelerated: bool = True,
        lipschitz: float | None = None,
        features: Any = None,
        system: str = "auto",
        validation_fraction: float = 0.1,
        tol: float = 1e-3,
        max_iter: int | None = None,
        early_stopping: bool | int = False,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.link = link
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.alphas = alphas
        self.accelerated = accelerated
        self.lipschitz = lipschitz
        self.features = features
        self.system = system
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> GeneralizedLeastSquaresClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows, finite. Not copied if float32 or float64; never densified. May be memory-mapped, of half precision, or
            an array of PyTorch, CuPy or another library that follows the array API, which then computes the products.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators for the links identity and sigmoid and for callables.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; an integer weight is equivalent to that many copies of the row.
        X_val, y_val : as X and y, optional
            Held-out rows, see `LinearClassifier.fit`. ``alphas`` are judged on them, too.
        callback : callable, optional
            Called after each step, see `LinearClassifier.fit`.

        Returns
        -------
        GeneralizedLeastSquaresClassifier
            The fitted estimator.
        """
        self._check_parameters()
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        labels, task = self._read_targets(y)
        if task == "multilabel" and self.link == "softmax":
            raise ValueError(
                "link 'softmax' takes one class per row, and y is a multi-label indicator: choose link 'sigmoid' "
                "or 'identity'"
            )
        weights = class_weighted(self.class_weight, self.classes_, labels, weights)
        self._seeds = check_random_state(self.random_state)
        fit = self._fit_certified if self._certifies(X) else self._fit_streamed
        watch = Watch(X_val, y_val, callback, X, y, sample_weight, labels)
        held: tuple[Any, Any] | None = None
        if watch.judges:
            held = self._held_out_rows(X_val, y_val, task, len(self.classes_))
        kept = weights
        if held is None and (self.alphas is not None or self._patience is not None):
            rows, kept = hold_out(X.shape[0], float(self.validation_fraction), self._seeds, weights, labels)
            watch = watch._replace(held=rows)
        fit(X, labels, task, weights, kept, watch, held)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if callable(self.link) and self.lipschitz is None:
            raise ValueError(
                "lipschitz must be a number if link is a callable, got None: pass L with ||g(s) - g(t)|| <= L ||s - t||"
            )
        if not callable(self.link) and self.lipschitz is not None:
            raise ValueError(f"lipschitz must be None for link {self.link!r}, got {self.lipschitz!r}")
        for alpha in () if self.alphas is None else self._alphas():
            check_number("alphas", alpha, low=0.0, low_open=True)

    def _certifies(self, X: Any) -> bool:
        """Whether a duality gap is computed: for a loss that is known, of the features of X, with a penalty.

        Rows of other libraries also need a system that is factored.
        """
        known = not callable(self.link) and self.features is None and self.alpha != 0
        return known and (not is_foreign(X) or is_factored(self.system, int(X.shape[1]) + 1))

    def _certifies_arrays(self, X: Any) -> bool:
        factored = X.ndim == 2 and is_factored(self.system, int(X.shape[1]) + 1) if is_half(X) else is_foreign(X)
        return factored and X.ndim == 2 and self._certifies(X)

    def _limit(self) -> int:
        """Maximum number of steps."""
        return GeneralizedLeastSquares.default_max_iter if self.max_iter is None else int(self.max_iter)

    def _alphas(self) -> list[Any]:
        alphas = sorted(np.unique(np.asarray(self.alphas)).tolist(), reverse=True)
        if not alphas:
            raise ValueError("alphas must have at least one number, got none")
        return alphas

    # --- fits with a duality gap: a Problem and the fitting loop ----------------------------------------------------

    def _fit_certified(
        self, X: Any, labels: Any, task: str, weights: Array | None, kept: Array | None, watch: Watch, held: Any
    ) -> None:
        self.alpha_ = penalty_strength(self.alpha, X.shape[0], weights)
        if self.alphas is not None:
            self.alpha_ = self._chosen(X, labels, task, weights, kept, watch.held, held)
        problem = self._certified_problem(X, labels, task, weights, self.alpha_)
        link = "sigmoid" if task == "binary" and self.link == "softmax" else self.link
        facts = {"classes": self.classes_, "task": task, "link": link}
        result = self._watched(problem, self._solver(), facts, watch, self._settings(), None)()
        self._keep(problem, result)
        self._finish(result.weights, result.intercept, facts, record_of(result))

    def _finish(self, W: Any, intercept: Array, facts: dict[str, Any], record: dict[str, Any]) -> None:
        """Set the model."""
        self._wrap(W, intercept, record=record, **facts)

    def _solver(self, *, keep: bool = False) -> GeneralizedLeastSquares:
        return GeneralizedLeastSquares(accelerated=bool(self.accelerated), system=self.system, keep=keep)

    def _certified_problem(self, X: Any, labels: Any, task: str, weights: Array | None, alpha: float) -> Problem:
        dtype, K = working_dtype(X, self.dtype), 1 if task == "binary" else len(self.classes_)
        loss, targets = loss_of_link(self.link, labels, task, K, dtype)
        return make_problem(
            X,
            is_foreign(X) or is_half(X),
            targets=targets,
            loss=loss,
            penalty=L2(),
            lam=alpha,
            n_features=int(X.shape[1]),
            sample_weight=weights,
            intercept=bool(self.fit_intercept),
            dtype=dtype,
            n_threads=resolve_n_jobs(self.n_jobs),
        )

    def _chosen(
        self, X: Any, labels: Any, task: str, weights: Array | None, kept: Array | None, rows: Any, held: Any
    ) -> float:
        """The alpha with the lowest error on held-out rows; the second moments are computed once."""
        solver = self._solver(keep=True)
        result: Result | None = None
        errors: dict[float, float] = {}
        first = self._certified_problem(X, labels, task, kept, self._alphas()[0])
        judged, truth, of_rows = (*held, None) if held is not None else (None, None, None)
        if held is None:
            judged = first.taken(rows) if isinstance(first, ArrayProblem) else X[rows]
            truth, of_rows = labels[rows], rows_of(weights, rows)
        for alpha in self._alphas():
            problem = replace(first, lam=alpha)
            state = None
            if result is not None:
                state = {**result.state, "iteration": np.zeros((), np.int64)}
            result = minimize(problem, solver, tol=float(self.tol), max_iter=self._limit(), state=state, warn=False)
            parts = result.weights, result.intercept
            scores = scores_there(judged, *parts) if is_foreign(judged) else np.asarray(judged @ parts[0] + parts[1])
            errors[alpha] = error_rate(scores, truth, task, of_rows)
        return self._best_alpha(errors)

    def _best_alpha(self, errors: dict[float, float]) -> float:
        self.validation_errors_ = errors
        return min(errors, key=lambda alpha: (errors[alpha], -alpha))

    # --- fits without a duality gap: passes over chunks of rows -----------------------------------------------------

    def _fit_streamed(
        self, X: Any, labels: Any, task: str, weights: Array | None, kept: Array | None, watch: Watch, held: Any
    ) -> None:
        block = self._fitted_block(self.features, X)
        K = 1 if task == "binary" and not callable(self.link) else len(self.classes_)
        name: Any = "sigmoid" if task == "binary" and self.link == "softmax" else self.link
        link, lipschitz = (self.link, float(self.lipschitz or 0)) if callable(name) else named_link(name)
        dtype = self._working_dtype(X)
        targets = coded(labels, K, dtype, signs=name == "identity" and task != "multiclass")
        if callable(name) and task == "multilabel":
            at_zero = apply_link(link, np.zeros((1, K), dtype))
            if not np.allclose(at_zero, 0.5, atol=1e-3):
                raise ValueError(
                    "link must be 1/2 at zero for multi-label y, whose labels are predicted where scores are positive, "
                    f"got {at_zero.min():g} to {at_zero.max():g}"
                )

        def run(weights: Array | None, alpha: float, **more: Any) -> GeneralizedFit:
            design = self._design(X, block, weights)
            return fit_generalized(
                design,
                targets,
                link,
                lipschitz,
                alpha,
                tol=float(self.tol),
                max_iter=self._limit(),
                accelerated=bool(self.accelerated),
                factored=is_factored(self.system, design.q),
                **more,
            )

        scored: Callable[[Array], Array] | None = None
        truth = of_rows = None
        if held is not None:
            scored, truth = self._scorer(held[0], block, K), held[1]
        elif watch.held is not None:
            scored = self._scorer(X, block, K, watch.held)
            truth, of_rows = labels[watch.held], rows_of(weights, watch.held)
        self.alpha_ = penalty_strength(self.alpha, X.shape[0], weights)
        if self.alphas is not None and scored is not None:
            design = self._design(X, block, mean_one(kept))
            moments = design.moments(0.0) if is_factored(self.system, design.q) else None
            errors, start = {}, None
            for alpha in self._alphas():
                start = run(mean_one(kept), alpha, moments=moments, start=start).weights
                errors[alpha] = error_rate(scored(start), truth, task, of_rows)
            self.alpha_ = self._best_alpha(errors)
        patience = self._patience
        validation: Validation | None = None
        if scored is not None and (held is not None or patience is not None):
            judge = Judge(None, truth, of_rows, 1)
            validation = Validation(lambda W, b: judge.of_scores(scored(W)), patience)
        fitted = weights if patience is None or held is not None else kept

        def final(callback: Any) -> GeneralizedFit:
            with Reporter(int(self.verbose), float(self.tol), self._limit(), counted=True) as shown:
                each = after_steps(self.history_, shown, validation, callback, self._parts)
                return run(mean_one(fitted), self.alpha_, each=each)

        def settle(trial: Any, parts: Any) -> None:
            trial._settle(parts, block, task, name, dtype, {})

        self.history_ = History()
        found = self._run_watched(final, lambda fit: self._parts(fit.weights), settle, watch, self._limit())()
        best = None if validation is None else validation.best
        if found.outcome == "patience" and best is not None:
            found = replace(found, weights=best[0])
        self._conclude(found)
        if not callable(name):
            design = self._design(X, block, mean_one(fitted))
            self.objective_ = objective_of(design, targets, name, found.weights, self.alpha_)
        record = {
            "outcome": found.outcome,
            "objective": None if callable(name) else self.objective_,
            "n_iter": found.n_iter,
            "relative_decrement": found.relative_decrement,
            "alpha": self.alpha_,
            **({"history": self.history_.to_dict()} if validation is not None else {}),
        }
        self._settle(self._parts(found.weights), block, task, name, dtype, record)

    def _parts(self, weights: Array) -> tuple[Array, Array]:
        """Weights and intercept of a fit over chunks of rows."""
        return (weights[:-1], weights[-1]) if self.fit_intercept else (weights, np.zeros(weights.shape[1]))

    def _conclude(self, found: GeneralizedFit) -> None:
        """Set the fitted attributes, besides the model, after a fit over chunks of rows."""
        self.solver_, self.n_iter_ = GeneralizedLeastSquares.name, found.n_iter
        self.duality_gap_ = self.objective_ = float("nan")
        self.history_.outcome = found.outcome
        self._warm = None
        if found.outcome not in ("converged", "patience", "stopped"):
            warnings.warn(
                f"{found.outcome}: after {found.n_iter} steps the squared length of a step relative to the first is "
                f"{found.relative_decrement:.2e}, tol is {self.tol:g}: raise max_iter, alpha or tol",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _settle(
        self, parts: tuple[Array, Array], block: Any, task: str, link: Any, dtype: Any, record: dict[str, Any]
    ) -> None:
        """Set the model after a fit over chunks of rows."""
        weights, intercept = parts
        if task == "binary" and weights.shape[1] == 2:
            weights, intercept = weights[:, 1:] - weights[:, :1], intercept[1:] - intercept[:1]
        weights, intercept = np.ascontiguousarray(weights, dtype), np.ascontiguousarray(intercept, dtype)
        facts: dict[str, Any] = {"task": task, "link": link if isinstance(link, str) else "identity", "record": record}
        if block is None:
            self._wrap(weights, intercept, classes=self.classes_, **facts)
        else:
            self._keep_staged(((Stage(block, weights, intercept, None),),), classes=self.classes_, **facts)

    # --- the model --------------------------------------------------------------------------------------------------

    def _is_linear(self) -> bool:
        return self.features is None

    def _gives_probabilities(self) -> bool:
        return super()._gives_probabilities() or (isinstance(self.link, str) and self.link in ("softmax", "sigmoid"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.link != "softmax"
        return tags
