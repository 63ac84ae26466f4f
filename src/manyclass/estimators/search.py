"""Cross-validation for `LinearClassifierCV` and `LinearRegressorCV`: a warm-started path for each fold."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from manyclass.estimators.aligned import align
from manyclass.estimators.base import LinearEstimator
from manyclass.estimators.classifier import LinearClassifier
from manyclass.estimators.path_plot import ScoreCurve, Scored
from manyclass.estimators.walk import Checked, alpha_grid, check, check_grid, check_parameters, walk
from manyclass.metrics import log_loss
from manyclass.objective.problem import Array
from manyclass.runtime.backends import chosen, spread
from manyclass.runtime.threads import resolve_n_jobs

__all__ = ["Search"]

_SELECTIONS = ("best", "one_se")


class _Task(NamedTuple):
    """One path: a fold and an l1_ratio."""

    estimator: LinearEstimator
    alphas: Array
    train: Array
    test: Array


class Search(Scored, LinearEstimator):
    """Base class with the search, the choice of alpha and l1_ratio, and the fit on all rows."""

    alphas: Any
    n_alphas: int
    eps: float | None
    l1_ratio: Any
    cv: Any
    scoring: Any
    selection: str

    #: The estimator without cross-validation.
    _plain: ClassVar[type[LinearEstimator]]

    def _default_scoring(self) -> str:
        """The score for ``scoring=None``."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Choose alpha and l1_ratio by cross-validation, and fit the model on all rows.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            The rows, as for the estimator without cross-validation.
        y : array of shape (n_samples,), or of shape (n_samples, n_outputs)
            Their labels, indicators or targets, likewise.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0, in the fits and the scores; they also weight the folds in the mean score.

        Returns
        -------
        object
            The fitted estimator.
        """
        self._check_parameters()
        given = check_grid(self.alphas, self.n_alphas, self.eps)
        if self.selection not in _SELECTIONS:
            raise ValueError(f"selection must be one of {', '.join(map(repr, _SELECTIONS))}, got {self.selection!r}")
        ratios = list(self.l1_ratio) if np.ndim(self.l1_ratio) else [self.l1_ratio]
        if not ratios:
            raise ValueError("l1_ratio must be a number or a list of at least one number, got an empty list")
        scorer = _scorer(self._default_scoring() if self.scoring is None else self.scoring, sample_weight is not None)
        estimators = [self._estimator(ratio) for ratio in ratios]
        for estimator in estimators:
            check_parameters(estimator)
        data = check(estimators[0], X, y, sample_weight)
        if self._plain is LinearClassifier and data.y.shape[1:] == (1,) and not sp.issparse(data.y):
            data = data._replace(y=data.y[:, 0])  # the fit on all rows warns about the column vector
        splitter = check_cv(self.cv, data.y, classifier=self._plain is LinearClassifier)
        folds = list(splitter.split(data.X, data.y))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one warning for all: below
            grids = [
                alpha_grid(estimator, data, self.n_alphas, self.eps) if given is None else given
                for estimator in estimators
            ]
            tasks = [_Task(e, grid, *fold) for e, grid in zip(estimators, grids) for fold in folds]
            found = _run(tasks, data, scorer, resolve_n_jobs(self.n_jobs))
        missed = sum(part[1] for part in found)
        if missed:
            warnings.warn(
                f"{missed} of {len(found) * len(grids[0])} fits on folds ended above tol={self.tol:g}: raise "
                "max_iter, eps or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        scores = np.array([part[0] for part in found]).reshape(len(ratios), len(folds), -1).transpose(0, 2, 1)
        weights = np.ones(len(folds))
        if data.sample_weight is not None:
            weights = np.array([data.sample_weight[test].sum() for _, test in folds])
        self._choose(scores, weights, ratios, np.stack(grids))
        best = self._estimator(self.l1_ratio_).set_params(alpha=self.alpha_, n_jobs=self.n_jobs, verbose=self.verbose)
        self._take_over(best.fit(X, y, sample_weight=sample_weight))
        return self

    def _estimator(self, l1_ratio: Any) -> LinearEstimator:
        """The estimator for the folds: with the same parameters, on one thread."""
        shared = set(self._plain._get_param_names()) & set(self._get_param_names())
        parameters = {name: getattr(self, name) for name in shared}
        parameters.update(l1_ratio=l1_ratio, n_jobs=None, verbose=max(0, int(self.verbose) - 1))
        made: LinearEstimator = self._plain(**parameters)
        return made

    def _choose(self, scores: Array, weights: Array, ratios: list[Any], grids: Array) -> None:
        """Set the choice, means and standard errors from scores (n_l1_ratios, n_alphas, n_folds) and fold weights."""
        counted = weights > 0  # a fold whose rows all have weight zero has no score
        share = weights[counted] / weights[counted].sum()
        mean = scores[:, :, counted] @ share
        spread = (scores[:, :, counted] - mean[:, :, None]) ** 2 @ share
        error = np.sqrt(spread / max(1, np.count_nonzero(counted) - 1))
        rank = np.where(np.isnan(mean), -np.inf, mean)
        if not np.isfinite(rank).any():
            raise ValueError(f"scoring must give a finite score for some alpha, got none with {self.scoring!r}")
        row, column = np.unravel_index(int(np.argmax(rank)), rank.shape)  # of equal scores the largest alpha
        simplest = int(np.flatnonzero(rank[row] >= rank[row, column] - error[row, column])[0])
        self.l1_ratio_ = float(ratios[row])
        self.alpha_best_, self.alpha_one_se_ = float(grids[row, column]), float(grids[row, simplest])
        self.alpha_ = self.alpha_best_ if self.selection == "best" else self.alpha_one_se_
        single = not np.ndim(self.l1_ratio)
        self.alphas_: Array = grids[0] if single else grids
        self.scores_path_: Array = scores[0] if single else scores
        self.mean_scores_: Array = mean[0] if single else mean
        self.standard_errors_: Array = error[0] if single else error

    def _take_over(self, best: LinearEstimator) -> None:
        """Copy the fitted attributes of the fit on all rows."""
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        parameters = set(best._get_param_names())
        for name, value in vars(best).items():
            if name not in parameters:
                setattr(self, name, value)

    def _score_curves(self) -> tuple[str, list[ScoreCurve], dict[str, float]]:
        check_is_fitted(self)
        ratios = list(self.l1_ratio) if np.ndim(self.l1_ratio) else [self.l1_ratio]
        rows = zip(ratios, *map(np.atleast_2d, (self.alphas_, self.mean_scores_, self.standard_errors_)))
        curves = [ScoreCurve(f"l1_ratio={ratio:g}", *row) for ratio, *row in rows]
        scoring = self._default_scoring() if self.scoring is None else self.scoring
        name = f"score on the folds: {getattr(scoring, '__name__', scoring)}"
        return name, curves, {"best": self.alpha_best_, "one standard error": self.alpha_one_se_}


#: Seconds after which Ctrl-C is noticed at the latest, besides the fits that run.
_TICK = 0.2

# --- the folds ------------------------------------------------------------------------------------------------------


def _run(tasks: list[_Task], data: Checked, scorer: Any, n_threads: int) -> list[tuple[list[float], int]]:
    """Scores along each path, and the number of its fits that missed tol.

    Paths run on threads, or on the backend that `joblib.parallel_config` has chosen.
    """
    stopped = threading.Event()
    classes = np.unique(data.y) if _is_labels(tasks[0].estimator, data.y) else None
    inner = max(1, n_threads // len(tasks))
    if chosen():
        return list(spread(_quiet_scores, ((task, *data, scorer, classes) for task in tasks)))

    def scores(task: _Task) -> tuple[list[float], int]:
        return _scores(task, *data, scorer, classes, inner, stopped.is_set)

    if min(n_threads, len(tasks)) <= 1:
        return [scores(task) for task in tasks]
    with ThreadPoolExecutor(min(n_threads, len(tasks))) as pool:
        try:
            futures = [pool.submit(scores, task) for task in tasks]
            done: set[Any] = set()
            while len(done) < len(futures) and not any(future.exception() for future in done):
                # A signal between the check for signals and the start of a wait does not end the wait: begin a new one.
                done = wait(futures, timeout=_TICK, return_when=FIRST_EXCEPTION).done
            for future in done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            stopped.set()  # ends the other paths after their current fit
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _scores(
    task: _Task,
    X: Any,
    y: Any,
    sample_weight: Any,
    names: Any,
    scorer: Any,
    classes: Array | None,
    n_jobs: int = 1,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[list[float], int]:
    """The scores along one path, and the number of its fits that missed tol."""
    found: list[float] = []
    missed = 0
    data = Checked(X, y, sample_weight, names)
    train, test = data.rows(task.train), data.rows(task.test)
    estimator = _for_fold(task.estimator, train.y, classes).set_params(n_jobs=n_jobs)
    for fitted in walk(estimator, train, task.alphas):
        if fitted.history_.outcome == "interrupted":
            raise KeyboardInterrupt
        if stopped():
            break
        missed += fitted._certified and not fitted.duality_gap_ <= fitted.tol
        if classes is not None:
            fitted.model_ = align(fitted.model_, classes)
            fitted.classes_ = classes
        weights = {} if test.sample_weight is None else {"sample_weight": test.sample_weight}
        with config_context(assume_finite=True):
            weightless = bool(weights) and not weights["sample_weight"].any()
            found.append(np.nan if weightless else float(scorer(fitted, test.X, test.y, **weights)))
    return found, missed


def _quiet_scores(*given: Any) -> tuple[list[float], int]:
    """`_scores` in another process, whose warnings of single fits would be printed there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _scores(*given)


def _is_labels(estimator: LinearEstimator, y: Any) -> bool:
    return isinstance(estimator, LinearClassifier) and np.ndim(y) == 1


def _for_fold(estimator: LinearEstimator, y: Any, classes: Array | None) -> Any:
    """A clone whose class weights are restricted to the classes of the fold, which may lack some."""
    estimator = clone(estimator)
    if classes is None:
        return estimator
    present = np.unique(y)
    if len(present) < 2:
        raise ValueError(
            f"every training fold must have at least 2 classes, got one class only ({present[0]!r}): pass fewer folds, "
            "or a stratified or shuffled splitter, as cv"
        )
    by_class: Any = estimator.get_params(deep=False)["class_weight"]
    if isinstance(by_class, dict):
        kept = {label: weight for label, weight in by_class.items() if label in set(present.tolist())}
        estimator.set_params(class_weight=kept)
    return estimator


def _scorer(scoring: Any, weighted: bool) -> Callable[..., Any]:
    """The scoring function (estimator, X, y) -> score, greater is better."""
    if not (isinstance(scoring, str) or callable(scoring)):
        raise ValueError(f"scoring must be the name of a score, a callable or None, got {scoring!r}")
    if scoring == "neg_log_loss":
        return _neg_log_loss
    scorer: Callable[..., Any] = get_scorer(scoring)
    metric = getattr(scorer, "_score_func", scorer)
    parameters = inspect.signature(metric).parameters
    takes = "sample_weight" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if weighted and not takes:
        raise ValueError(
            f"scoring must support sample_weight if it is passed, got {scoring!r}: use another score, or no weights"
        )
    return scorer


def _neg_log_loss(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Minus the log loss. scikit-learn's needs every class in every fold, and an n x K indicator of y."""
    proba = estimator.predict_proba(X)
    if np.ndim(y) == 1:
        return -log_loss(y, proba, classes=estimator.classes_, sample_weight=sample_weight)
    truth = y.toarray() if sp.issparse(y) else np.asarray(y)
    eps = np.finfo(proba.dtype).eps
    found = (truth * np.log(np.clip(proba, eps, 1.0))).sum(axis=1)
    if estimator.model_.task == "multilabel":
        found += ((1 - truth) * np.log(np.clip(1.0 - proba, eps, 1.0))).sum(axis=1)
        return float(np.average(found, weights=sample_weight))
    rows = truth.sum(axis=1)  # of weights of classes: a row counts as often as they sum to
    return float(np.average(found / rows, weights=rows if sample_weight is None else rows * sample_weight))
