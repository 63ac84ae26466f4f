"""Mixin of the estimators that fit in passes over chunks of rows: input, targets, blocks of features, the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from manyclass import features as blocks
from manyclass.estimators.base import check_rows, check_squares, plain
from manyclass.estimators.elsewhere import check_foreign, check_rows_to_fit, working_dtype
from manyclass.estimators.frames import check_frame, plain_labels
from manyclass.estimators.labels import is_indicator, read_indicator, read_labels
from manyclass.estimators.watched import Watched
from manyclass.features.images import image_shape, pixel_rows
from manyclass.kernels.rows import check_sparse
from manyclass.models.staged import StagedModel
from manyclass.objective.history import FitProgress, History, Record, Reporter, tell
from manyclass.objective.problem import Array
from manyclass.optimize.validation import Validation
from manyclass.runtime.arrays import is_foreign, plain_array, to_numpy
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.least_squares.stagewise import BlockFit, clock

__all__ = [
    "BLOCK",
    "StreamedMixin",
    "after_steps",
    "class_weighted",
    "error_rate",
    "hold_out",
    "mean_one",
    "rows_of",
]

#: Constraint on parameters for features.
BLOCK = [str, HasMethods(["fit", "transform"])]


class StreamedMixin(Watched):
    """Mixin with the checks of input and targets, and the design matrices, of a fit over chunks of rows."""

    n_jobs: int | None
    dtype: Any
    fit_intercept: bool
    validation_fraction: float
    n_features_in_: int
    _seeds: np.random.RandomState

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left"), None],
        "fit_intercept": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "features": [*BLOCK, None],
        "prepare": [*BLOCK, None],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    # --- parameters -------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise a ValueError if a parameter is invalid; called before any work."""
        self._validate_params()  # type: ignore[attr-defined]
        if self.dtype is not None and np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be None, float32 or float64, got {self.dtype!r}")
        resolve_n_jobs(self.n_jobs)
        for name in ("features", "prepare"):
            if not (name == "features" and self._has_auto_features()):
                blocks.make_block(getattr(self, name, None), name, self._other_features if name == "features" else ())

    #: The name, if any, that the parameter ``features`` may have besides those of blocks.
    _other_features: tuple[str, ...] = ()

    def _has_auto_features(self) -> bool:
        """Whether the features are chosen by the data."""
        return False

    # --- input ------------------------------------------------------------------------------------------------------

    def _check_fit_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X as a CSR matrix, a float32 or float64 array, or another library's array, validated; y unchanged."""
        X = self._pixels(X)
        if self._certifies_arrays(X):
            return check_rows_to_fit(self, X, y)
        if is_foreign(X):
            check_foreign(X, single=True)
            check_consistent_length(X, y)
            self.n_features_in_ = int(X.shape[1])
            return X, y if sp.issparse(y) else np.asarray(to_numpy(y) if is_foreign(y) else y)
        X = plain_array(X)
        ordered = check_sparse(X)
        check_frame(X)
        check_sparse(y, "y")
        X, y = validate_data(
            self,
            X,
            plain_labels(y),
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=False,
        )
        check_squares(X, self._working_dtype(X))
        return check_rows(X, ordered), y

    def _pixels(self, X: Any, name: str = "X") -> Any:
        """Images as rows of pixels, where a block of features tells their shape."""
        return pixel_rows(X, image_shape(getattr(self, "prepare", None), getattr(self, "features", None)), name)

    def _held_out_matrix(self, X_val: Any) -> Any:
        return super()._held_out_matrix(self._pixels(X_val, "X_val"))

    def _certifies_arrays(self, X: Any) -> bool:
        """Whether X, of another library or of half precision, is fitted as it is, by a solver with a certificate."""
        return False

    def _check_predict_input(self, X: Any) -> Any:
        """X for the model; another library's array is converted to NumPy."""
        check_is_fitted(self)
        X = self._pixels(X)
        if is_foreign(X):
            check_foreign(X)
        X = plain_array(X)
        check_sparse(X)
        check_frame(X)
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def _read_targets(self, y: Any) -> tuple[Any, str]:
        """Class indices (n,) or a CSR indicator, and the task; sets ``classes_``."""
        if is_indicator(y):
            self._indicator = y.dtype, bool(sp.issparse(y))
            labels = read_indicator(y)
            self.classes_ = np.arange(labels.shape[1])
            return labels, "multilabel"
        self.classes_, index = read_labels(y)
        return index, "binary" if len(self.classes_) == 2 else "multiclass"

    def _working_dtype(self, X: Any) -> np.dtype[Any]:
        if is_foreign(X):
            return working_dtype(X, None)
        dtype: np.dtype[Any] = np.dtype(X.dtype if self.dtype is None else self.dtype)
        return dtype

    # --- passes -----------------------------------------------------------------------------------------------------

    def _design(self, X: Any, block: Any, weights: Array | None) -> Design:
        return Design(
            X,
            block,
            weights=weights,
            intercept=bool(self.fit_intercept),
            dtype=self._working_dtype(X),
            n_threads=resolve_n_jobs(self.n_jobs),
        )

    def _scorer(self, X: Any, block: Any, K: int, rows: Array | None = None) -> Callable[[Array], Array]:
        """The function from weights to the scores of all rows of X, or of some."""
        some = rows is not None and not is_foreign(X)
        design = self._design(X[rows] if some else X, block, None)

        def scored(weights: Array) -> Array:
            scores = np.zeros((design.n_samples, K), design.dtype)
            design.add_scores(weights, scores)
            return scores if rows is None or some else scores[rows]

        return scored

    def _replayed(self, X: Any, stages: Sequence[BlockFit], scores: Array) -> Array:
        """Scores by the stages of an earlier fit."""
        for stage in stages:
            design = self._design(X, stage.block, None)
            design.add_scores(stage.weights, scores)
            design.release()
            if stage.calibration is not None:
                stage.calibration(scores, out=scores)
        return scores

    def _hold_out(self, n: int, weights: Array | None, labels: Any, goes_on: bool) -> tuple[Array, Array]:
        """`hold_out` for early stopping; a continued fit has the same rows: the model so far knows the others."""
        drawn = getattr(self, "_held_out", None) if goes_on else None
        again = drawn[1] if drawn is not None and drawn[0] == n else None
        held, kept = hold_out(n, float(self.validation_fraction), self._seeds, weights, labels, again)
        self._held_out = n, held
        return held, kept

    def _next_seed(self) -> int:
        return int(self._seeds.randint(np.iinfo(np.int32).max))

    def _fitted_block(self, pattern: Any, X: Any) -> Any:
        """A fitted copy of a block of features with a new seed; None if there is no block."""
        if pattern is None:
            return None
        block = blocks.fresh(blocks.make_block(pattern), self._next_seed())
        with config_context(assume_finite=True):  # X has been checked
            block.fit(to_numpy(X) if is_foreign(X) else X)
        return block

    # --- the model --------------------------------------------------------------------------------------------------

    def _keep_staged(
        self, members: Any, *, task: str, link: str, record: dict[str, Any], classes: Array | None, prepare: Any = None
    ) -> None:
        names = getattr(self, "feature_names_in_", None)
        parameters = {name: plain(value) for name, value in self.get_params(deep=False).items()}  # type: ignore[attr-defined]
        self.model_: Any = StagedModel(
            members=members,
            width=self.n_features_in_,
            classes=classes,
            task=task,
            link=link,
            prepare=prepare,
            parameters={"estimator": type(self).__name__, **parameters},
            record=record,
            feature_names=None if names is None else np.asarray(names, dtype=str),
        )


def class_weighted(class_weight: Any, classes: Array, labels: Any, weights: Array | None) -> Array | None:
    """Sample weights multiplied by the weights of the classes."""
    if class_weight is None:
        return weights
    if sp.issparse(labels):
        raise ValueError("class_weight is not defined for multi-label y: use sample_weight")
    by_class = compute_class_weight(class_weight, classes=classes, y=classes[labels])
    found: Array = by_class[labels] * (1.0 if weights is None else weights)
    return found


def mean_one(weights: Array | None) -> Array | None:
    """Sample weights scaled to mean 1."""
    return None if weights is None else np.asarray(weights, np.float64) / np.mean(weights)


def rows_of(weights: Array | None, rows: Array) -> Array | None:
    """The sample weights of some rows."""
    return None if weights is None else weights[rows]


def after_steps(
    history: History,
    shown: Reporter,
    validation: Validation | None,
    callback: Callable[[FitProgress], Any] | None,
    parts: Callable[[Array], Any],
) -> Callable[[int, Array, float, bool], str | None]:
    """What is done after each step of `fit_generalized`: it is recorded, judged, shown and told.

    ``parts`` makes of the weights what ``weights()`` of a `FitProgress` returns.
    """
    elapsed = clock()

    def each(step: int, weights: Array, decrement: float, finished: bool) -> str | None:
        seconds, nan, score = elapsed(), math.nan, None
        history.records.append(
            Record(step, step, nan, nan, nan, nan, seconds, seconds, {"relative decrement": decrement})
        )
        if validation is not None:
            history.validation.append(validation.look(step, seconds, weights, np.zeros(0)))
            score = history.validation[-1].score
        over = validation is not None and validation.over(step)
        finished = finished or over
        stop = tell(shown, callback, history.last, score=score, finished=finished, weights=partial(parts, weights))
        return "patience" if over else "stopped" if stop else None

    return each


def hold_out(
    n: int, fraction: float, random_state: Any, weights: Array | None, labels: Any = None, again: Array | None = None
) -> tuple[Array, Array]:
    """Indices of the validation rows, sorted, at least one; and sample weights that are zero for them.

    Rows of weight zero are not drawn, nor is the last row of a class, if ``labels`` are class numbers. With ``again``
    these rows are taken instead: those of the fit that this one continues.

    Raises
    ------
    ValueError
        If no row can be drawn, or none with a positive weight is left.
    """
    if n < 2:
        raise ValueError(f"X must have at least 2 rows for a validation split, got {n}")
    kept = np.ones(n) if weights is None else np.array(weights, np.float64)
    order = check_random_state(random_state).permutation(n)
    order = order[kept[order] > 0]
    size = max(1, round(fraction * len(order)))
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        order = np.delete(order, len(order) - 1 - np.unique(labels[order[::-1]], return_index=True)[1])
    held = np.sort(order[:size]) if again is None else again
    kept[held] = 0.0
    if not len(held):
        raise ValueError("a validation split needs a class with two rows of positive weight, got none: pass more rows")
    if not kept.any():
        raise ValueError(
            f"validation_fraction must leave training rows with positive weight, got {fraction}: pass a smaller one"
        )
    return held, kept


def error_rate(scores: Array, labels: Any, task: str, weights: Array | None = None, threshold: float = 0.0) -> float:
    """The fraction of rows with a wrong class; for multilabel y the fraction of wrong labels."""
    if task == "multilabel":
        wrong = np.mean((scores > threshold) != (labels.toarray() > 0), axis=1)
    elif scores.shape[1] == 1:
        wrong = (scores[:, 0] > threshold) != labels
    else:
        wrong = scores.argmax(axis=1) != labels
    if weights is not None and not weights.sum() > 0:
        weights = None
    return float(np.average(wrong, weights=weights))
