"""The base class of the stagewise estimators: blocks, members, passes, early stopping."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from manyclass import features as blocks
from manyclass.estimators import dense
from manyclass.estimators.base import penalty_strength
from manyclass.estimators.named import Named
from manyclass.estimators.streamed import BLOCK, StreamedMixin, mean_one, rows_of
from manyclass.estimators.watched import Watch
from manyclass.models.staged import Stage
from manyclass.objective.history import FitProgress, Reporter, tell
from manyclass.objective.problem import Array
from manyclass.runtime.arrays import is_foreign, namespace, to_numpy
from manyclass.runtime.memory import require
from manyclass.solvers.least_squares.stagewise import BlockFit, HeldOut, StageRecord, StagewiseRun, Update, clock

__all__ = ["StagewiseEstimator", "make_stage", "require_same"]

_COUNT = Interval(Integral, 1, None, closed="left")


class StagewiseEstimator(StreamedMixin, Named):
    """Base class of `StagewiseClassifier` and `StagewiseRegressor`."""

    #: The stages of each member of the last fit.
    _stages: tuple[tuple[BlockFit, ...], ...] = ()
    #: Bandwidth, and alpha relative to the default, that were chosen for dense rows.
    _kernel: tuple[float, float] | None = None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StreamedMixin._parameter_constraints,
        "features": BLOCK,
        "block_size": [_COUNT, None],
        "n_blocks": [_COUNT, None],
        "passes": [_COUNT],
        "n_models": [_COUNT],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        features: Any = "auto",
        *,
        prepare: Any = None,
        block_size: int | None = None,
        n_blocks: int | None = None,
        passes: int = 1,
        alpha: float | None = None,
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

    def _seeded(self) -> np.random.RandomState:
        """The random number generator of this fit; with ``warm_start``, that of the previous fit."""
        if self.warm_start and self._stages:
            return self._seeds
        seeds: np.random.RandomState = check_random_state(self.random_state)
        return seeds

    # --- blocks -----------------------------------------------------------------------------------------------------

    _other_features = ("auto",)

    def _has_auto_features(self) -> bool:
        return isinstance(self.features, str) and self.features == "auto"

    def _is_dense_default(self, X: Any) -> bool:
        """Whether the blocks are those of `manyclass.estimators.dense`."""
        return self._has_auto_features() and not sp.issparse(X)

    def _set_pattern(self, X: Any, targets: Array, weights: Array | None) -> None:
        """Set ``features_``, of which each block is a copy, and ``alpha_``."""
        self.alpha_ = penalty_strength(self.alpha, len(targets), weights)
        if not self._is_dense_default(X):
            pattern = "fourier" if self._has_auto_features() else self.features
            self.features_, self._kernel = blocks.make_block(pattern), None
            return
        if not self._goes_on or self._kernel is None:
            rows = to_numpy(X) if is_foreign(X) else X
            self._kernel = dense.choose_kernel(rows, targets, weights, self._next_seed(), self.alpha)
        self.features_ = blocks.Nystrom(dense.BLOCK_SIZE, bandwidth=self._kernel[0], centers="residual")
        self.alpha_ *= self._kernel[1]

    def _prepared(self, X: Any) -> Any:
        """X, or X transformed by ``prepare``, for all rows; sets ``prepare_``."""
        pattern = self.prepare
        if pattern is None and self._is_dense_default(X) and (p := dense.n_components(X.shape[1])):
            pattern = blocks.PrincipalComponents(p)
        if pattern is None:
            self.prepare_ = None
            return X
        kept = getattr(self, "prepare_", None) if self._goes_on else None
        self.prepare_ = self._fitted_block(pattern, X) if kept is None else kept
        return self._transformed(X)

    def _transformed(self, X: Any) -> Any:
        """X transformed by ``prepare_``, if there is one."""
        if self.prepare_ is None:
            return X
        width = int(self.prepare_.n_features_out_)
        size = self._working_dtype(X).itemsize * X.shape[0] * width
        require({"prepared rows": size}, "a smaller preparation, or the preparation as the first part of a Chain")
        chunks = self._design(X, self.prepare_, None).chunks()
        if is_foreign(X):  # they stay where X is
            parts = [part for _, _, part in chunks]
            return namespace(X).concat(parts, axis=0) if is_foreign(parts[0]) else np.concatenate(parts)
        made = np.empty((X.shape[0], width), self._working_dtype(X))
        for begin, end, part in chunks:
            made[begin:end] = part
        return made

    def _blocks(self, X: Any, run: StagewiseRun, previous: Any) -> Iterator[tuple[Any, bool]]:
        """Yield the fitted blocks of a member for all passes, and of each whether it is the last."""
        pattern, plain = self.features_, to_numpy(X) if is_foreign(X) else X
        own: list[Any] = []
        for number in range(int(self.passes)):
            final, over = number == int(self.passes) - 1, False
            if number and own and not _reorders(own[0]):
                yield from ((block, final and block is own[-1]) for block in own)
                continue
            taken = 0
            while not over:
                block = blocks.fresh(pattern, self._next_seed(), previous, size=self.block_size)
                residuals = run.targets - run.scores
                if run.weights is not None:
                    residuals *= run.weights[:, None].astype(residuals.dtype)
                with config_context(assume_finite=True):  # X has been checked
                    block = block.fit(plain, residuals)
                own.append(block)
                previous, taken = block, taken + 1
                self._previous = block
                exhausted = getattr(getattr(block, "second_", block), "exhausted_", False)
                over = taken >= self._share(block, X) or (exhausted and self.n_blocks is None)
                yield block, final and over

    def _share(self, block: Any, X: Any) -> int:
        """Number of blocks of a member; with ``n_blocks=None`` all members together use each feature of X once."""
        if self.n_blocks is not None:
            return int(self.n_blocks)
        if self._kernel is not None:
            return dense.n_blocks(int(X.shape[0]), int(block.n_features_out_))
        if not hasattr(getattr(block, "second_", block), "exhausted_"):
            return 10
        in_all = math.ceil(int(X.shape[1]) / max(1, int(block.n_features_out_)))
        return math.ceil(in_all / int(self.n_models))

    # --- the fit ----------------------------------------------------------------------------------------------------

    def _fit_members(
        self,
        X: Any,
        targets: Array,
        weights: Array | None,
        *,
        update: Update,
        additive: bool,
        loss: Callable[[Array, Array, Array | None], float],
        judge: Callable[[Array, Any, Array | None], float],
        labels: Any = None,
        given: tuple[Any, Any] | None = None,
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> list[list[BlockFit]]:
        """Fit the stages of each member; ``judge`` maps scores, truth and sample weights of held-out rows to an error.

        ``labels`` are class numbers or an indicator, None for a regression; ``given`` are X_val and what is right.
        """
        n, K = targets.shape
        self._goes_on = bool(self.warm_start and self._stages)
        require({"targets, scores and residuals": 3 * targets.nbytes}, "dtype=np.float32, or fewer rows")
        elapsed = clock()
        X = self._prepared(X)
        beside = None if given is None else self._transformed(given[0])
        held: HeldOut | None = None
        if given is not None:
            truth = given[1]
            held = HeldOut(lambda scores: judge(scores, truth, None), design=lambda b: self._design(beside, b, None))
        elif self.early_stopping:
            rows, kept = self._hold_out(n, weights, labels, self._goes_on)
            right, own = (targets if labels is None else labels)[rows], rows_of(weights, rows)
            held, weights = HeldOut(lambda scores: judge(scores, right, own), rows), kept
        self._set_pattern(X, targets, weights)
        weights = mean_one(weights)
        before = self._stages if self._goes_on else ()
        self.stage_records_: list[StageRecord] = list(self.stage_records_) if self._goes_on else []
        self._previous = self._previous if self._goes_on else None
        members: list[list[BlockFit]] = []
        self.outcome_ = "complete"
        begun, whole = len(self.stage_records_), int(self.n_models) * int(self.passes)
        with Reporter(int(self.verbose), 0.0, 1, counted=True) as shown:
            for number in range(int(self.n_models)):
                stages = list(before[number]) if number < len(before) else []
                scores = np.zeros((n, K), targets.dtype)
                if held is not None and beside is not None:
                    held.scores = self._replayed(beside, stages, np.zeros((beside.shape[0], K), targets.dtype))
                run = StagewiseRun(
                    targets=targets,
                    scores=self._replayed(X, stages, scores),
                    alpha=self.alpha_,
                    update=update,
                    additive=additive,
                    design=lambda block: self._design(X, block, weights),
                    loss=lambda scores: loss(targets, scores, weights),
                    held=held,
                    weights=weights,
                    patience=None if held is None else self._patience,
                    stages=stages,
                )
                try:
                    fits = run.run(self._blocks(X, run, self._previous))
                    for count, (width, error, validated, last) in enumerate(fits, 1 + len(stages)):
                        record = StageRecord(number + 1, count, width, error, validated, elapsed())
                        self.stage_records_.append(record)
                        done = len(self.stage_records_)
                        shown.max_iter = begun + whole * self._share(self._previous, X)
                        if tell(
                            shown,
                            callback,
                            record.as_record(done, **({"model": number + 1} if int(self.n_models) > 1 else {})),
                            score=None if held is None else (-validated / K if labels is None else 1.0 - validated),
                            finished=last and number + 1 == int(self.n_models),
                            weights=partial(self._made, [*members, run.stages], targets.dtype),
                        ):
                            self.outcome_ = "stopped"
                            break
                    if run.over and self.outcome_ != "stopped":
                        self.outcome_ = "stopped early"
                except KeyboardInterrupt:
                    if not run.best and not members:
                        raise  # no stage has been fitted
                    self.outcome_ = "interrupted"
                    warnings.warn(
                        f"interrupted after {len(run.stages)} stages of model {number + 1} of {self.n_models}; the "
                        "best model so far is kept: fit again with warm_start=True to continue",
                        ConvergenceWarning,
                        stacklevel=5,
                    )
                if run.best:
                    members.append(run.best)
                if self.outcome_ in ("interrupted", "stopped"):
                    break
        self._stages = tuple(tuple(stages) for stages in members)
        return members

    def _made(self, members: list[list[BlockFit]], dtype: Any) -> tuple[tuple[Stage, ...], ...]:
        """The stages of the model."""
        return tuple(tuple(make_stage(fit, bool(self.fit_intercept), dtype) for fit in stages) for stages in members)

    def _run_members(self, watch: Watch, dtype: Any, facts: dict[str, Any], *args: Any, **how: Any) -> None:
        """`_fit_members`, watched, and the model; ``facts`` are those of `_settle`."""
        n_iter = None if self.n_blocks is None else int(self.n_models) * int(self.passes) * int(self.n_blocks)
        made = partial(self._made, dtype=dtype)
        run = partial(self._fit_members, *args, **how)
        members = self._run_watched(run, made, lambda trial, found: trial._settle(found, **facts), watch, n_iter)()
        self._settle(made(members), **facts)

    def _settle(self, made: tuple[tuple[Stage, ...], ...], *, task: str, link: str, classes: Any) -> None:
        """Set the model and the fitted attributes from the stages."""
        record = {"outcome": self.outcome_, "stages": [record.to_dict() for record in self.stage_records_]}
        self.n_stages_ = [len(stages) for stages in made]
        self._keep_staged(made, task=task, link=link, record=record, classes=classes, prepare=self.prepare_)


def make_stage(fit: BlockFit, intercept: bool, dtype: Any) -> Stage:
    """The model's stage for a fitted block."""
    weights = fit.weights[:-1] if intercept else fit.weights
    bias = fit.weights[-1] if intercept else np.zeros(weights.shape[1])
    return Stage(fit.block, np.ascontiguousarray(weights, dtype), np.ascontiguousarray(bias, dtype), fit.calibration)


def _reorders(block: Any) -> bool:
    """Whether a later pass has other blocks, because they are ordered by gradient."""
    return getattr(getattr(block, "second_", block), "order", None) == "gradient"


def require_same(classes: Any, now: Any, width: Any, width_now: Any) -> None:
    if width != width_now or not (classes is None or np.array_equal(classes, now)):
        raise ValueError(
            "warm_start=True needs the classes and the number of features of the previous fit, got others: fit with "
            "warm_start=False"
        )
