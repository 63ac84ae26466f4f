"""Stagewise least squares: thousands of features, a block at a time."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from manyclass import features as blocks
from manyclass.estimators.base import _number, checked_weights
from manyclass.estimators.labels import coded
from manyclass.estimators.predicting import PredictingMixin
from manyclass.estimators.streamed import (
    StreamedMixin,
    class_weighted,
    error_rate,
    mean_one,
    validation_rows,
)
from manyclass.least_squares.arrays import is_foreign, to_numpy
from manyclass.least_squares.calibrated import squared_error
from manyclass.least_squares.generalised import named_link
from manyclass.least_squares.stagewise import (
    BlockFit,
    StageRecord,
    StagewiseRun,
    Update,
    calibrated,
    clock,
    linear,
    link_loss,
    logistic,
    report,
)
from manyclass.links.calibrated import check_basis
from manyclass.memory import require
from manyclass.parallel import resolve_n_jobs
from manyclass.problem import Array
from manyclass.staged import Stage

__all__ = ["StagewiseClassifier", "StagewiseRegressor", "check_count", "make_stage"]

_UPDATES = ("linear", "calibrated", "logistic")


class _Stagewise(StreamedMixin, BaseEstimator):  # type: ignore[misc]
    """What the stagewise classifier and regressor share: blocks, members, passes, stopping."""

    features: Any
    prepare: Any
    block_size: int | None
    n_blocks: int | None
    passes: int
    n_models: int
    alpha: float
    early_stopping: bool
    validation_fraction: float
    patience: int
    random_state: Any
    warm_start: bool
    verbose: int

    #: The stages of each member of the last fit.
    _stages: tuple[tuple[BlockFit, ...], ...] = ()

    def _check_parameters(self) -> None:
        _number("alpha", self.alpha, low=0.0)
        _number("validation_fraction", self.validation_fraction, low=0.0, low_open=True, high=1.0, high_open=True)
        counts = ["passes", "n_models", "patience"]
        counts += [name for name in ("block_size", "n_blocks") if getattr(self, name) is not None]
        for name in counts:
            check_count(name, getattr(self, name))
        if self.dtype is not None and np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be None, float32 or float64, got {self.dtype!r}")
        resolve_n_jobs(self.n_jobs)

    def _seeded(self) -> np.random.RandomState:
        """Random numbers of this fit; those of one that goes on go on too."""
        if self.warm_start and self._stages:
            return self._seeds
        seeds: np.random.RandomState = check_random_state(self.random_state)
        return seeds

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _pattern(self) -> Any:
        return blocks.RandomFourier() if self.features is None else self.features

    def _prepared(self, X: Any) -> Any:
        """X, or what `prepare` makes of it, in full; sets ``prepare_``."""
        if self.prepare is None:
            self.prepare_ = None
            return X
        kept = getattr(self, "prepare_", None) if self._goes_on else None
        self.prepare_ = self._fitted_block(self.prepare, X) if kept is None else kept
        width = int(self.prepare_.n_features_out_)
        size = self._working_dtype(X).itemsize * X.shape[0] * width
        require({"prepared rows": size}, "a smaller preparation, or the preparation as the first part of a Chain")
        made = np.empty((X.shape[0], width), self._working_dtype(X))
        for begin, end, part in self._design(X, self.prepare_, None).chunks():
            made[begin:end] = to_numpy(part) if not isinstance(part, np.ndarray) else part
        return made

    def _blocks(self, X: Any, run: StagewiseRun, previous: Any) -> Iterator[Any]:
        """The blocks of a member, all passes; each fitted when it is asked for."""
        pattern, plain = self._pattern(), to_numpy(X) if is_foreign(X) else X
        own: list[Any] = []
        for number in range(int(self.passes)):
            if number and own and not _reorders(own[0]):
                yield from own
                continue
            taken = 0
            while self.n_blocks is None or taken < int(self.n_blocks):
                block = blocks.fresh(pattern, self._next_seed(), previous, size=self.block_size)
                residuals = run.targets - run.scores
                if run.weights is not None:
                    residuals *= run.weights[:, None].astype(residuals.dtype)
                block = self._fit_block(block, plain, residuals)
                own.append(block)
                previous, taken = block, taken + 1
                self._previous = block
                yield block
                if getattr(getattr(block, "second_", block), "exhausted_", False) and self.n_blocks is None:
                    break
                if self.n_blocks is None and taken >= self._share(block, X.shape[1]):
                    break

    def _share(self, block: Any, n_features: int) -> int:
        """Blocks of a member where the number is left open: the features of X, once, over all members."""
        if not hasattr(getattr(block, "second_", block), "exhausted_"):
            return 10
        in_all = math.ceil(n_features / max(1, int(block.n_features_out_)))
        return math.ceil(in_all / int(self.n_models))

    # --- the fit ----------------------------------------------------------------------------------------------------

    def _fit_block(self, block: Any, X: Any, residuals: Array) -> Any:
        with config_context(assume_finite=True):  # X has been checked
            return block.fit(X, residuals)

    def _fit_members(
        self,
        X: Any,
        targets: Array,
        weights: Array | None,
        *,
        update: Update,
        additive: bool,
        loss: Callable[[Array, Array, Array | None], float],
        judge: Callable[[Array, Array], float],
    ) -> list[list[BlockFit]]:
        """The stages of each member; ``judge`` takes scores of the held-out rows and their numbers."""
        n, K = targets.shape
        self._goes_on = bool(self.warm_start and self._stages)
        require(
            {"targets, scores and residuals": 3 * targets.nbytes},
            "dtype=np.float32, or fewer rows",
        )
        elapsed = clock()
        X = self._prepared(X)
        held = None
        if self.early_stopping:
            held = validation_rows(n, float(self.validation_fraction), self._seeds)
            weights = np.ones(n) if weights is None else np.array(weights, np.float64)
            weights[held] = 0.0
            if not weights.any():
                raise ValueError("validation_fraction leaves no row of positive weight to fit on: take a smaller one")
        weights = mean_one(weights)
        before = self._stages if self._goes_on else ()
        self.stage_records_: list[StageRecord] = list(self.stage_records_) if self._goes_on else []
        self._previous = self._previous if self._goes_on else None
        members: list[list[BlockFit]] = []
        self.outcome_ = "complete"
        for number in range(int(self.n_models)):
            stages = list(before[number]) if number < len(before) else []
            scores = np.zeros((n, K), targets.dtype)
            run = StagewiseRun(
                targets=targets,
                scores=self._replayed(X, stages, scores),
                alpha=float(self.alpha),
                update=update,
                additive=additive,
                design=lambda block: self._design(X, block, weights),
                loss=lambda scores: loss(targets, scores, weights),
                judge=None if held is None else (lambda scores: judge(scores[held], held)),
                weights=weights,
                patience=int(self.patience),
                stages=stages,
            )
            try:
                fits = run.run(self._blocks(X, run, self._previous))
                for count, (width, error, validated) in enumerate(fits, 1 + len(stages)):
                    record = StageRecord(number + 1, count, width, error, validated, elapsed())
                    self.stage_records_.append(record)
                    report(record, int(self.verbose))
            except KeyboardInterrupt:
                if not run.best and not members:
                    raise  # nothing has been fitted
                self.outcome_ = "interrupted"
                warnings.warn(
                    f"interrupted after {len(run.stages)} stages of model {number + 1} of {self.n_models}; the best "
                    "model so far is kept; fit again with warm_start=True to go on",
                    ConvergenceWarning,
                    stacklevel=4,
                )
            if run.best:
                members.append(run.best)
            if self.outcome_ == "interrupted":
                break
        self._stages = tuple(tuple(stages) for stages in members)
        return members

    def _replayed(self, X: Any, stages: list[BlockFit], scores: Array) -> Array:
        """Scores of the stages of an earlier fit."""
        for stage in stages:
            design = self._design(X, stage.block, None)
            design.add_scores(stage.weights, scores)
            design.release()
            if stage.calibration is not None:
                stage.calibration(scores, out=scores)
        return scores

    def _settle(self, members: list[list[BlockFit]], dtype: Any, *, task: str, link: str, classes: Any) -> None:
        """The model of the stages."""
        made = tuple(tuple(make_stage(fit, bool(self.fit_intercept), dtype) for fit in stages) for stages in members)
        record = {"outcome": self.outcome_, "stages": [record.to_dict() for record in self.stage_records_]}
        self.n_stages_ = [len(stages) for stages in made]
        self._keep_staged(made, task=task, link=link, record=record, classes=classes, prepare=self.prepare_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class StagewiseClassifier(ClassifierMixin, _Stagewise, PredictingMixin):  # type: ignore[misc]
    """Classifier on blocks of features, each fitted by least squares to what the blocks before it have left.

    For block t = 1, 2, ...: make its features (random, or a subset of those of X), fit their weights, bring the scores
    up to date, drop the features. Cost of a block of p features: n p^2 + p^3 / 3. Memory: a chunk of rows times p,
    p^2, and the scores; features are made again from a seed when they are needed, never stored for all rows.

    Parameters
    ----------
    features : FeatureBlock, optional
        Pattern of the blocks (`manyclass.features`); a `RandomFourier` by default. Block t is a copy with a seed of its
        own; a `FeatureSubset` goes on where the last block has ended. Any transformer of scikit-learn that works row by
        row will do.
    prepare : FeatureBlock, optional
        Applied once before all blocks, and kept for all rows: principal components, say.
    block_size : int, optional
        Features of a block; None leaves it to ``features``.
    n_blocks : int, optional
        Blocks of a pass. None: a `FeatureSubset` goes through all features of X, anything else has 10 blocks.
    passes : int
        Times the blocks are gone through. From the second on a block is fitted again to what all the others have left;
        with additive updates its weights grow, so that the passes descend on the joint problem of all blocks. A
        `FeatureSubset` ordered by gradient is ordered anew.
    update : {"linear", "calibrated", "logistic"}
        ``linear``: ridge regression of the residuals y - yhat. ``calibrated``: that, then predictions refitted on
        functions of themselves and projected on the simplex (the hypercube for multi-label targets). ``logistic``: a
        few steps of generalised least squares for the softmax link (sigmoid for two classes and multi-label targets),
        with the scores so far as offsets.
    basis : {"linear", "quadratic", "cubic"} or callable
        Of the calibrated update; see `manyclass.links.calibrated.Calibration`. The paper's stagewise experiments take
        the linear one.
    inner_steps : int
        Most steps of a logistic update; a pass over the data each.
    alpha : float
        Ridge of each block, >= 0, beside the mean loss.
    n_models : int
        Models on features of their own, whose scores are averaged.
    fit_intercept : bool
        An unpenalised constant feature in each block.
    early_stopping : bool
        Hold out a part of the rows, keep the number of blocks that does best on it.
    validation_fraction : float
        That part.
    patience : int
        Blocks without a better validation error after which a model is done.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn.
    random_state : int, RandomState or None
        Of all features, and of the validation part.
    n_jobs : int, optional
        Threads of kernels and predictions; never changes the result. Products run on the threads of the BLAS.
    warm_start : bool
        Go on from the stages of the previous fit: more blocks.
    dtype : {None, numpy.float32, numpy.float64}
        Of features, products and weights; None takes that of X. Systems are factored in float64 always.
    verbose : int
        1 shows a line for each block on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    n_stages_ : list of int
        Stages of each model.
    stage_records_ : list of StageRecord
        Loss and validation error after each block.
    outcome_ : {"complete", "interrupted"}
        After Ctrl-C the best model so far is kept.
    model_ : StagedModel
    n_features_in_ : int

    Raises
    ------
    ValueError
        On parameters out of range, fewer than two classes, NaN or infinite input.
    MemoryError
        Before anything is allocated, if a block or the scores would not fit into memory.

    References
    ----------
    Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
    prediction", ICML 2014, algorithm 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import StagewiseClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = StagewiseClassifier(block_size=100, n_blocks=5, update="calibrated", random_state=0).fit(X / 16, y)
    >>> model.n_stages_, model.score(X / 16, y) > 0.97
    ([5], True)
    """

    def __init__(
        self,
        features: Any = None,
        *,
        prepare: Any = None,
        block_size: int | None = None,
        n_blocks: int | None = None,
        passes: int = 1,
        update: str = "linear",
        basis: Any = "linear",
        inner_steps: int = 5,
        alpha: float = 1e-5,
        n_models: int = 1,
        fit_intercept: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.prepare = prepare
        self.block_size = block_size
        self.n_blocks = n_blocks
        self.passes = passes
        self.update = update
        self.basis = basis
        self.inner_steps = inner_steps
        self.alpha = alpha
        self.n_models = n_models
        self.fit_intercept = fit_intercept
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.dtype = dtype
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StagewiseClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Read chunk by chunk: may be memory-mapped. An array of another library (PyTorch, CuPy, any that follows the
            array API) makes the products of its features; random features are drawn in NumPy.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        StagewiseClassifier
            Itself.
        """
        self._check_parameters()
        classes = getattr(self, "classes_", None)
        width = getattr(self, "n_features_in_", None)
        X, y = self._check_fit_input(X, y)
        weights = checked_weights(sample_weight, X)
        labels, task = self._read_targets(y)
        weights = class_weighted(self.class_weight, self.classes_, labels, weights)
        if self.warm_start and self._stages:
            _require_same(classes, self.classes_, width, self.n_features_in_)
        self._seeds = self._seeded()
        dtype = self._working_dtype(X)
        if task == "binary" and self.update == "calibrated":
            task = "multiclass"  # a column for each of two classes: predictions are on the simplex
        K = 1 if task == "binary" else len(self.classes_)
        link = "identity"
        if self.update == "logistic":
            link = "softmax" if task == "multiclass" else "sigmoid"
        signs = self.update == "linear" and task != "multiclass"
        domain = "box" if task == "multilabel" else "simplex"
        update: Update
        if self.update == "linear":
            update = linear
        elif self.update == "calibrated":
            update = calibrated(self.basis, domain)
        else:
            update = logistic(*named_link(link), int(self.inner_steps), 1e-4)
        threshold = 0.5 if (self.update, task) == ("calibrated", "multilabel") else 0.0
        members = self._fit_members(
            X,
            coded(labels, K, dtype, signs=signs),
            weights,
            update=update,
            additive=self.update != "calibrated",
            loss=link_loss(link),
            judge=lambda scores, rows: error_rate(
                scores, labels[rows], task, None if weights is None else weights[rows], threshold
            ),
        )
        self._settle(members, dtype, task=task, link=link, classes=self.classes_)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.update not in _UPDATES:
            raise ValueError(f"update must be one of {', '.join(map(repr, _UPDATES))}, got {self.update!r}")
        check_count("inner_steps", self.inner_steps)
        check_basis(self.basis)

    @available_if(lambda self: self.update == "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Probabilities, (n_samples, n_classes), of the logistic update."""
        X = self._check_predict_input(X)
        return np.asarray(self.model_.probabilities(X, n_jobs=self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class StagewiseRegressor(MultiOutputMixin, RegressorMixin, _Stagewise):  # type: ignore[misc]
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

    def __init__(
        self,
        features: Any = None,
        *,
        prepare: Any = None,
        block_size: int | None = None,
        n_blocks: int | None = None,
        passes: int = 1,
        alpha: float = 1e-5,
        n_models: int = 1,
        fit_intercept: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.prepare = prepare
        self.block_size = block_size
        self.n_blocks = n_blocks
        self.passes = passes
        self.alpha = alpha
        self.n_models = n_models
        self.fit_intercept = fit_intercept
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.dtype = dtype
        self.verbose = verbose

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
        weights = checked_weights(sample_weight, X)
        self._flat = y.ndim == 1
        dtype = self._working_dtype(X)
        try:
            targets = np.ascontiguousarray(y.reshape(len(y), -1), dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must hold numbers, got dtype {y.dtype}") from error
        if self.warm_start and self._stages:
            _require_same(None, None, width, self.n_features_in_)
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


def make_stage(fit: BlockFit, intercept: bool, dtype: Any) -> Stage:
    """A stage of the model."""
    weights = fit.weights[:-1] if intercept else fit.weights
    bias = fit.weights[-1] if intercept else np.zeros(weights.shape[1])
    return Stage(fit.block, np.ascontiguousarray(weights, dtype), np.ascontiguousarray(bias, dtype), fit.calibration)


def _reorders(block: Any) -> bool:
    """Whether a later pass makes other blocks, by the gradient there."""
    return getattr(getattr(block, "second_", block), "order", None) == "gradient"


def _require_same(classes: Any, now: Any, width: Any, width_now: Any) -> None:
    if width != width_now or not (classes is None or np.array_equal(classes, now)):
        raise ValueError(
            "warm_start goes on from the previous fit, which had other classes or another number of features: fit with "
            "warm_start=False"
        )


def check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
