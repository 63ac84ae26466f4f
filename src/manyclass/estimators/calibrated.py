"""`CalibratedLeastSquaresClassifier`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.estimators.base import check_sample_weight, penalty_strength
from manyclass.estimators.elsewhere import ClassScore
from manyclass.estimators.labels import coded
from manyclass.estimators.named import Named
from manyclass.estimators.predicting import PredictingMixin
from manyclass.estimators.stagewise_base import make_stage, require_same
from manyclass.estimators.streamed import StreamedMixin, class_weighted, error_rate, mean_one, rows_of
from manyclass.estimators.watched import Watch
from manyclass.models.staged import Stage
from manyclass.objective.history import FitProgress, Reporter, tell
from manyclass.objective.links.calibrated import check_basis
from manyclass.objective.problem import Array
from manyclass.optimize.scale import warn_of_zeros
from manyclass.runtime.arrays import is_foreign
from manyclass.runtime.memory import require
from manyclass.solvers.least_squares.calibrated import calibrated_rounds
from manyclass.solvers.least_squares.stagewise import BlockFit, HeldOut, StageRecord, clock
from manyclass.solvers.least_squares.systems import SYSTEMS, is_factored

__all__ = ["CalibratedLeastSquaresClassifier"]

#: Number of rounds if ``max_iter`` is None.
_ROUNDS = 20


class CalibratedLeastSquaresClassifier(StreamedMixin, ClassScore, Named, PredictingMixin):
    """Classifier that learns weights and link alternately, both by least squares.

    Each round fits weights to the residuals y - yhat of the current predictions, then refits the predictions on simple
    functions of themselves (a constant, the scores, their squares and cubes) and projects them on the simplex, or for
    multilabel y on the hypercube. No half-round increases the squared error on the training rows, whatever alpha is,
    because weights of zero and the identity are among the candidates. X'X is factored once; a round costs two passes of
    n d K operations. Predicting repeats the rounds; `decision_function` returns the projected predictions.

    Parameters
    ----------
    basis : {"cubic", "quadratic", "linear"} or callable, default="cubic"
        The functions of the scores: a constant and their powers up to degree 3, 2 or 1. A callable maps scores (n, K)
        to features (n, q); a model with a callable cannot be saved.
    alpha : float or None, default=None
        Ridge penalty of the weights of a round relative to the mean loss, >= 0. None: 1 / n_samples; the paper has 0.
    fit_intercept : bool, default=True
        Whether to fit an unpenalized intercept.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    features : str or FeatureBlock, optional
        Features that replace the columns of X, see `GeneralizedLeastSquaresClassifier`.
    system : {"auto", "cholesky", "cg"}, default="auto"
        Method for the linear systems, see `GeneralizedLeastSquaresClassifier`.
    early_stopping : bool, default=False
        Whether to hold out validation rows, unless ``fit`` is given X_val, and keep the number of
        rounds with the lowest error on them.
    validation_fraction : float, default=0.1
        Fraction of the rows that is held out with ``early_stopping``, in (0, 1).
    patience : int, default=5
        With ``early_stopping``, the fit stops after this number of rounds without a lower validation error, >= 1.
    tol : float, default=1e-3
        The fit stops after a round that decreases the mean squared error by less than this, in [0, 1].
    max_iter : int, optional
        Maximum number of rounds, >= 1. None: 20.
    random_state : int, RandomState or None, default=None
        Seed of the validation split and of ``features``.
    n_jobs : int, optional
        Number of threads of kernels and predictions: None means 1, -1 all cores. Does not change the result.
    warm_start : bool, default=False
        Whether to add rounds to those of the previous fit; its ``features`` are kept.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Type of products and weights; None uses that of X. Linear systems are solved in float64.
    verbose : int, default=0
        1 shows a line for each round on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    alpha_ : float
        The ridge penalty used.
    errors_ : ndarray of shape (n_iter_, 2)
        Mean squared error on the training rows after each half-round.
    n_iter_ : int
        Number of rounds; the model has those up to the best.
    stage_records_ : list of StageRecord
        Loss and validation error after each round.
    outcome_ : {"converged", "max_iter", "stopped early", "stopped", "interrupted"}
        Why the fit ended; "stopped": the callback ended it.
    model_ : StagedModel
        The fitted model.

    Raises
    ------
    ValueError
        If a parameter is out of range, y has fewer than two classes, or the input has NaN or infinity.
    MemoryError
        If the fit would need more memory than is available; raised before anything is allocated.

    See Also
    --------
    GeneralizedLeastSquaresClassifier : Generalized least squares for a given link.
    StagewiseClassifier : Calibrated least squares on blocks of generated features.

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

    #: The rounds of the last fit.
    _stages: Sequence[BlockFit] = ()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StreamedMixin._parameter_constraints,
        "system": [StrOptions(set(SYSTEMS))],
        "warm_start": ["boolean"],
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
        warm_start: bool = False,
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
        self.warm_start = warm_start
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
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> CalibratedLeastSquaresClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows, finite. Read in chunks: may be memory-mapped, or an array of another library, which then computes the
            matrix products.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; an integer weight is equivalent to that many copies of the row.
        X_val, y_val : as X and y, optional
            Held-out rows, whose score after each round is in ``stage_records_``. With ``early_stopping`` they end the
            fit, and no row of X is held out.
        callback : callable, optional
            Called after each round, see `LinearClassifier.fit`: ``objective`` is the loss, ``validation`` the
            accuracy (of label sets: the fraction of right labels). ``weights()`` returns the stages so far, as
            ``model_.members`` has them.

        Returns
        -------
        CalibratedLeastSquaresClassifier
            The fitted estimator.
        """
        self._check_parameters()
        watch = Watch(X_val, y_val, callback, X, y, sample_weight)
        classes, width = getattr(self, "classes_", None), getattr(self, "n_features_in_", None)
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        labels, task = self._read_targets(y)
        earlier = list(self._stages) if self.warm_start else []
        if earlier:
            require_same(classes, self.classes_, width, self.n_features_in_)
        weights = class_weighted(self.class_weight, self.classes_, labels, weights)
        self._seeds = check_random_state(self.random_state)
        # One column for each of two classes: predictions are on the simplex.
        task, domain = ("multilabel", "box") if task == "multilabel" else ("multiclass", "simplex")
        n, K, dtype = int(X.shape[0]), len(self.classes_), self._working_dtype(X)
        require({"targets, predictions and residuals": 3 * n * K * dtype.itemsize}, "dtype=np.float32, or fewer rows")
        targets, predictions = coded(labels, K, dtype), np.zeros((n, K), dtype)
        given = self._held_out_rows(X_val, y_val, task, K) if watch.judges else None
        held: HeldOut | None = None
        kept, threshold = weights, 0.5 if domain == "box" else 0.0
        if given is None and self.early_stopping:
            rows, kept = self._hold_out(n, weights, labels, bool(earlier))
            right, own = labels[rows], rows_of(weights, rows)
            held = HeldOut(lambda scores: error_rate(scores, right, task, own, threshold), rows)
        block = earlier[0].block if earlier else self._fitted_block(self.features, X)
        design = self._design(X, block, mean_one(kept))
        self._replayed(X, earlier, predictions)
        if given is not None:
            beside, truth = given
            held = HeldOut(
                lambda scores: error_rate(scores, truth, task, None, threshold),
                design=lambda made: self._design(beside, made, None),
                scores=self._replayed(beside, earlier, np.zeros((beside.shape[0], K), dtype)),
            )
        self.alpha_ = penalty_strength(self.alpha, n, kept)
        if self.features is None and not is_foreign(X):
            norm = float(np.linalg.norm(X.data if sp.issparse(X) else X))
            warn_of_zeros(norm * norm / n, self.alpha_)
        rounds = calibrated_rounds(
            design,
            targets,
            predictions,
            self.alpha_,
            basis=self.basis,
            domain=domain,
            factored=is_factored(self.system, design.q),
        )

        def made(stages: list[BlockFit]) -> tuple[tuple[Stage, ...], ...]:
            return (tuple(make_stage(fit, bool(self.fit_intercept), dtype) for fit in stages),)

        def settle(trial: Any, members: tuple[tuple[Stage, ...], ...]) -> None:
            record = {"outcome": trial.outcome_, "stages": [record.to_dict() for record in trial.stage_records_]}
            trial._keep_staged(members, task=task, link="identity", record=record, classes=self.classes_)

        n_iter = _ROUNDS if self.max_iter is None else int(self.max_iter)
        run = partial(self._run, rounds, earlier, block, design.n_features, predictions, held, made)
        stages = self._run_watched(run, made, settle, watch, n_iter)()
        self._stages = stages
        design.release()
        settle(self, made(stages))
        return self

    def _run(
        self,
        rounds: Any,
        stages: list[BlockFit],
        block: Any,
        width: int,
        predictions: Array,
        held: HeldOut | None,
        made: Callable[[list[BlockFit]], Any],
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> list[BlockFit]:
        """The earlier and new rounds up to that with the lowest validation error, or all without early stopping."""
        elapsed = clock()
        patience = None if held is None else self._patience
        best, best_error, before = len(stages), math.inf, math.inf
        if stages and held is not None:
            best_error = held.look(predictions)
        count = best + (_ROUNDS if self.max_iter is None else int(self.max_iter))
        errors: list[tuple[float, float]] = []
        self.stage_records_: list[StageRecord] = []
        self.outcome_ = "max_iter"
        try:
            with Reporter(int(self.verbose), 0.0, count, counted=True) as shown:
                for number, found in zip(range(1 + best, 1 + count), rounds):
                    if held is not None:
                        held.add(block, found.weights, found.calibration)
                    error = math.nan if held is None else held.look(predictions)
                    stages.append(BlockFit(block, found.weights, found.calibration))
                    errors.append(found.errors)
                    if patience is None or error < best_error:
                        best, best_error = number, error
                    record = StageRecord(1, number, width, found.errors[1], error, elapsed())
                    self.stage_records_.append(record)
                    if patience is not None and number - best >= patience:
                        self.outcome_ = "stopped early"
                    elif before - found.errors[1] <= float(self.tol):
                        self.outcome_ = "converged"
                    before = found.errors[1]
                    finished = self.outcome_ != "max_iter"
                    stop = tell(
                        shown,
                        callback,
                        record.as_record(number),
                        score=None if held is None else 1.0 - error,
                        finished=finished or number == count,
                        weights=partial(made, list(stages)),
                    )
                    if stop and not finished:
                        self.outcome_ = "stopped"
                    if stop or finished:
                        break
        except KeyboardInterrupt:
            if not best:
                raise  # no stage has been fitted
            self.outcome_ = "interrupted"
            warnings.warn(
                f"interrupted after {len(stages)} rounds; the model has the rounds up to the best",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.errors_, self.n_iter_ = np.array(errors), len(errors)
        return stages[:best]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_basis(self.basis)

    def _gives_probabilities(self) -> bool:
        return not hasattr(self, "model_") or super()._gives_probabilities()  # predictions are on the simplex

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
