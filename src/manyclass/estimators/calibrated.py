"""Classification with a link that is learned."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.estimators.base import Named, check_sample_weight, penalty_strength
from manyclass.estimators.labels import coded
from manyclass.estimators.predicting import PredictingMixin
from manyclass.estimators.stagewise_base import make_stage
from manyclass.estimators.streamed import StreamedMixin, class_weighted, error_rate, mean_one, validation_rows
from manyclass.objective.links.calibrated import check_basis
from manyclass.runtime.memory import require
from manyclass.solvers.least_squares.calibrated import calibrated_rounds
from manyclass.solvers.least_squares.stagewise import BlockFit, StageRecord, clock, report
from manyclass.solvers.least_squares.systems import SYSTEMS, is_factored

__all__ = ["CalibratedLeastSquaresClassifier"]

#: Rounds where ``max_iter`` is None.
_ROUNDS = 20


class CalibratedLeastSquaresClassifier(StreamedMixin, ClassifierMixin, Named, PredictingMixin):  # type: ignore[misc]
    """Classifier that learns weights and link in turn, both by least squares.

    Each round fits weights to the residuals y - yhat of what is predicted so far, then refits the predictions on simple
    functions of themselves (a constant, the scores, their squares and cubes) and projects them on the simplex, or for
    multi-label targets on the hypercube. The squared error never rises from one half-round to the next where ``alpha``
    is zero. X'X is factored once; a round costs two passes of n d K. To predict is to replay the rounds; the scores of
    the model, `decision_function`, are the projected predictions.

    Parameters
    ----------
    basis : {"cubic", "quadratic", "linear"} or callable, default="cubic"
        The functions of the scores: a constant and their powers up to the third, the second, the first. A callable
        gives features (n, q) of scores (n, K); a model with one cannot be saved.
    alpha : float or None, default=None
        Ridge of the weights of a round, >= 0, beside the mean loss. None: 1 / n_samples.
    fit_intercept : bool, default=True
        An unpenalized constant feature.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn.
    features : str or FeatureBlock, optional
        Features to fit on instead of the columns of X: "fourier", "logits", "nystrom", "polynomial", "subset", "pca",
        with ":N" behind for N of them ("fourier:1024"), or a block of `manyclass.features`. They are made chunk by
        chunk.
    system : {"auto", "cholesky", "cg"}, default="auto"
        See `GeneralizedLeastSquaresClassifier`.
    early_stopping : bool, default=False
        Hold out a part of the rows, keep the number of rounds that does best on it.
    validation_fraction : float, default=0.1
        That part, in (0, 1).
    patience : int, default=5
        Rounds without a better validation error after which the fit ends, >= 1.
    tol : float, default=1e-3
        What a round must take off the mean squared error, whose targets have length 1 for each label of a row; the fit
        ends with the first that does not. In [0, 1].
    max_iter : int, optional
        Most rounds, >= 1. None: 20.
    random_state : int, RandomState or None, default=None
        Of the validation part, and of ``features``.
    n_jobs : int, optional
        Threads of kernels and predictions; None is 1, -1 all cores. Never changes the result.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Of products and weights; None takes that of X. Systems are factored in float64 always.
    verbose : int, default=0
        1 shows a line for each round on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    alpha_ : float
        The ridge used.
    errors_ : ndarray of shape (n_iter_, 2)
        Mean squared error on the rows of the fit after each half-round.
    n_iter_ : int
        Rounds run; the model has those up to the best.
    stage_records_ : list of StageRecord
    outcome_ : {"converged", "max_iter", "stopped early", "interrupted"}
    model_ : StagedModel

    Raises
    ------
    ValueError
        On parameters out of range, fewer than two classes, NaN or infinite input.
    MemoryError
        Before anything is allocated, if the fit would not fit into memory.

    References
    ----------
    Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
    prediction", ICML 2014, algorithm 2 and theorem 2.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import CalibratedLeastSquaresClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = CalibratedLeastSquaresClassifier(alpha=1e-3, max_iter=10).fit(X / 16, y)
    >>> bool((model.errors_[1:, 1] <= model.errors_[:-1, 1]).all()), model.score(X / 16, y) > 0.95
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StreamedMixin._parameter_constraints,
        "system": [StrOptions(set(SYSTEMS))],
        "tol": [Interval(Real, 0, 1, closed="both")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        basis: Any = "cubic",
        *,
        alpha: float | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        features: Any = None,
        system: str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 5,
        tol: float = 1e-3,
        max_iter: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.basis = basis
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.features = features
        self.system = system
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CalibratedLeastSquaresClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Read chunk by chunk: may be memory-mapped, or an array of another library, which then makes the products.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators.
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        CalibratedLeastSquaresClassifier
            Itself.
        """
        self._check_parameters()
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        labels, task = self._read_targets(y)
        weights = class_weighted(self.class_weight, self.classes_, labels, weights)
        self._seeds = check_random_state(self.random_state)
        # A column for each of two classes as well: predictions are on the simplex.
        task, domain = ("multilabel", "box") if task == "multilabel" else ("multiclass", "simplex")
        n, K, dtype = int(X.shape[0]), len(self.classes_), self._working_dtype(X)
        require({"targets, predictions and residuals": 3 * n * K * dtype.itemsize}, "dtype=np.float32, or fewer rows")
        targets, predictions = coded(labels, K, dtype), np.zeros((n, K), dtype)
        held = validation_rows(n, float(self.validation_fraction), self._seeds) if self.early_stopping else None
        kept = weights
        if held is not None:
            kept = np.ones(n) if weights is None else np.array(weights, np.float64)
            kept[held] = 0.0
            if not kept.any():
                raise ValueError("validation_fraction leaves no row of positive weight to fit on: take a smaller one")

        def judge() -> float:
            if held is None:
                return math.nan
            of_rows = None if weights is None else weights[held]
            return error_rate(predictions[held], labels[held], task, of_rows, 0.5 if domain == "box" else 0.0)

        block = self._fitted_block(self.features, X)
        design = self._design(X, block, mean_one(kept))
        self.alpha_ = penalty_strength(self.alpha, n, kept)
        rounds = calibrated_rounds(
            design,
            targets,
            predictions,
            self.alpha_,
            basis=self.basis,
            domain=domain,
            factored=is_factored(self.system, design.q),
        )
        stages = self._run(rounds, block, design.n_features, judge)
        design.release()
        made = tuple(make_stage(fit, bool(self.fit_intercept), dtype) for fit in stages)
        record = {"outcome": self.outcome_, "stages": [record.to_dict() for record in self.stage_records_]}
        self._keep_staged((made,), task=task, link="identity", record=record, classes=self.classes_)
        return self

    def _run(self, rounds: Any, block: Any, width: int, judge: Any) -> list[BlockFit]:
        """The rounds up to the best, by the validation part where there is one."""
        elapsed = clock()
        stages: list[BlockFit] = []
        best, best_error, before = 0, math.inf, math.inf
        errors: list[tuple[float, float]] = []
        self.stage_records_: list[StageRecord] = []
        self.outcome_ = "max_iter"
        try:
            for number, found in zip(range(1, (_ROUNDS if self.max_iter is None else int(self.max_iter)) + 1), rounds):
                error = judge()
                stages.append(BlockFit(block, found.weights, found.calibration))
                errors.append(found.errors)
                if not error >= best_error:  # NaN without a validation part: the last is the best
                    best, best_error = number, error
                record = StageRecord(1, number, width, found.errors[1], error, elapsed())
                self.stage_records_.append(record)
                report(record, int(self.verbose))
                if number - best >= int(self.patience):
                    self.outcome_ = "stopped early"
                    break
                if before - found.errors[1] <= float(self.tol):
                    self.outcome_ = "converged"
                    break
                before = found.errors[1]
        except KeyboardInterrupt:
            if not best:
                raise  # nothing has been fitted
            self.outcome_ = "interrupted"
            warnings.warn(
                f"interrupted after {len(stages)} rounds; the best of them are kept", ConvergenceWarning, stacklevel=3
            )
        self.errors_, self.n_iter_ = np.array(errors), len(errors)
        return stages[:best]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_basis(self.basis)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
