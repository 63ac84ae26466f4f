"""`certify`: the duality gap of any linear model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import column_or_1d

from manyclass.estimators.base import check_number, check_rows, check_sample_weight
from manyclass.estimators.labels import coded, is_indicator, read_indicator
from manyclass.estimators.predicting import binary_targets
from manyclass.estimators.soft import is_soft, soft_targets
from manyclass.kernels.rows import check_sparse, make_rows
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets, Targets
from manyclass.metrics._labels import class_labels, first, positions, same_kind
from manyclass.models.external import External, read_external
from manyclass.objective.component import resolve
from manyclass.objective.losses import CLASSIFICATION, REGRESSION, ClassificationLoss, Loss
from manyclass.objective.penalties import make_penalty
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.optimize.choice import choose
from manyclass.optimize.columns import WIDTH, Columns
from manyclass.optimize.loop import Outcome, minimize
from manyclass.runtime.memory import require
from manyclass.runtime.threads import ranges, resolve_n_jobs
from manyclass.solvers import SDCA, SlightL2, Solver, State
from manyclass.solvers.dual.warm import lineage, warm_state

__all__ = ["Suboptimality", "certify"]

#: The bound is improved until it is wrong by at most this fraction of the gap,
_SHARE = 0.1
#: or by this fraction of the objective.
_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class Suboptimality(Certificate):
    """How far the objective of a model is above its minimum: between ``primal - best`` and ``gap``.

    Parameters
    ----------
    primal : float
        The objective of the model.
    dual : float
        A lower bound on the minimum of the objective.
    resolution : float
        The smallest relative gap that exceeds rounding errors.
    best : float
        An upper bound on the minimum: the smallest objective found, at most ``primal``.
    loss : str
        The loss.
    alpha, l1_ratio : float
        The penalty, as in `LinearClassifier`.

    Attributes
    ----------
    gap : float
        ``primal - dual``, an upper bound on ``primal`` minus the minimum.
    relative_gap : float
        The gap divided by max(abs(primal), abs(dual)).
    """

    best: float
    loss: str
    alpha: float
    l1_ratio: float

    def __repr__(self) -> str:
        least, most = max(self.primal - self.best, 0.0), self.gap
        range_ = f"at most {most:.2g}" if least < 1e-3 * most else f"{least:.2g} to {most:.2g}"
        penalty = f"alpha={self.alpha:.4g}" + (f", l1_ratio={self.l1_ratio:g}" if self.l1_ratio else "")
        return (
            f"Suboptimality(relative gap {self.relative_gap:.1e}: the objective {self.primal:.6g} is {range_} above "
            f"its minimum; loss={self.loss}, {penalty})"
        )

    def to_dict(self) -> dict[str, Any]:
        """The numbers as a dict for JSON.

        Returns
        -------
        dict
            By the names of the attributes.
        """
        names = ("primal", "dual", "best", "gap", "relative_gap", "loss", "alpha", "l1_ratio")
        return {name: getattr(self, name) for name in names}


def certify(
    model: Any,
    X: Any,
    y: Any,
    *,
    loss: Any = None,
    alpha: float | None = None,
    l1_ratio: float | None = None,
    intercept_scaling: float | None = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    refine: int = 100,
    n_jobs: int | None = None,
) -> Suboptimality:
    """How far the objective of a fitted linear model is above its minimum, on the rows that it was fitted on.

    The objective is that of `LinearClassifier` and `LinearRegressor`. The lower bound on its minimum is the dual
    objective, first at the negative gradients of the losses at the model, then improved by a solver until the bound is
    within a tenth of the gap. What the model says of its objective need not be passed.

    Parameters
    ----------
    model : estimator, model, array or tuple
        A fitted estimator or a `LinearModel` of this package; of scikit-learn LogisticRegression, LinearSVC,
        RidgeClassifier, SGDClassifier, Ridge, Lasso, ElasticNet, SGDRegressor, their CV forms, or a pipeline that ends
        in one of these; a ``torch.nn.Linear``; coefficients of shape (n_outputs, n_features); or a tuple (coefficients,
        intercept), whose intercept may be None.
    X : array or CSR matrix of shape (n_samples, n_features), or list of str
        The rows of the fit; not densified. Texts for a model of texts.
    y : array of shape (n_samples,), (n_samples, n_outputs), indicator, or matrix of weights of the classes
        Their targets.
    loss : str or loss object, optional
        A loss of `LinearClassifier` or `LinearRegressor`; "squared" and "huber" code classes as -1 and 1, as
        scikit-learn's RidgeClassifier. None: that of the model.
    alpha : float, optional
        Strength of the penalty on the mean loss, > 0: 1 / (C * n_samples) in terms of C, for a torch optimizer its
        ``weight_decay``. None: that of the model.
    l1_ratio : float, optional
        Fraction of the penalty that is l1. None: that of the model, else 0.
    intercept_scaling : float, optional
        If given, the intercept is penalized, as the weight of a feature with this value: LIBLINEAR's option -B. None:
        as LinearSVC and LogisticRegression(solver="liblinear") say, else not penalized.
    sample_weight : array of shape (n_samples,), optional
        The weights of the rows in the fit, >= 0.
    class_weight : dict or "balanced", optional
        Weights of the classes. None: those of the model.
    refine : int, default=100
        Maximum number of epochs that improve the bound, >= 0. 0 takes two passes over the data, but its bound may be
        far from the minimum, above all for losses with a kink.
    n_jobs : int, optional
        Threads: None is 1, -1 all cores.

    Returns
    -------
    Suboptimality
        The objective, bounds on its minimum, and the relative gap.

    Raises
    ------
    ValueError
        If the objective is not known, is not one of this package, or does not match the targets.
    MemoryError
        If the dual variables (float64, of n_samples x n_outputs; of 64 outputs at a time for a one-vs-rest loss) would
        need more memory than is available.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from manyclass import certify
    >>> X, y = load_digits(return_X_y=True)
    >>> loose = LogisticRegression(C=0.01, tol=1e-1, max_iter=1000).fit(X / 16, y)
    >>> tight = LogisticRegression(C=0.01, tol=1e-6, max_iter=1000).fit(X / 16, y)
    >>> found = certify(loose, X / 16, y)
    >>> found.relative_gap > 1e-5, certify(tight, X / 16, y).relative_gap < 1e-6
    (True, True)
    >>> round(found.alpha * 0.01 * len(X), 12)  # C = 1 / (alpha n)
    1.0
    """
    check_number("refine", refine, low=0)
    resolve_n_jobs(n_jobs)
    model, X = _last_step(model, X)
    known = read_external(model)
    objective = _objective(known, loss, alpha, l1_ratio, intercept_scaling)
    X = _texts(model, X)
    ordered = check_sparse(X)
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X")
    check_consistent_length(X, y)
    if X.shape[1] != known.weights.shape[0]:
        raise ValueError(f"X has {X.shape[1]} features, and the model has weights for {known.weights.shape[0]}")
    weights = check_sample_weight(sample_weight, X)
    by_class = known.class_weight if class_weight is None else class_weight
    asked, K = objective.loss, known.weights.shape[1]
    targets: Targets
    if isinstance(asked, ClassificationLoss) and is_soft(y, asked.joint):
        if y.shape[1] != max(K, 2):
            raise ValueError(f"y must have {max(K, 2)} columns, as the model has classes, got shape {y.shape}")
        targets, compiled, weights = soft_targets(y, asked, weights, by_class, np.float64, margin=K == 1)
    else:
        if by_class is not None:
            if is_indicator(y):
                raise ValueError("class_weight is not defined for multi-label y: use sample_weight")
            weights = _row_weights(by_class, known, y, weights) * (1.0 if weights is None else weights)
        targets, compiled = _targets(objective, y, known)
    strength = objective.alpha(X.shape[0], float(X.shape[0] if weights is None else weights.sum()))
    check_number("alpha", strength, low=0.0, low_open=True)
    penalty, lam = make_penalty(strength, float(objective.l1_ratio))
    W, bias = known.weights, known.intercept
    intercept = bias is not None and objective.intercept_scaling is None
    if bias is not None and objective.intercept_scaling is not None:
        X, W = _with_constant(X, W, bias, objective.intercept_scaling)
    problem = Problem(
        rows=make_rows(check_rows(X, ordered)),
        targets=targets,
        loss=compiled,
        penalty=penalty,
        lam=lam,
        n_features=X.shape[1],
        sample_weight=weights,
        intercept=intercept,
        n_threads=resolve_n_jobs(n_jobs),
    )
    start = bias if intercept and bias is not None else np.zeros(problem.n_outputs)
    primal, dual, best = _bounds(problem, W, np.array(start, np.float64), int(refine))
    return Suboptimality(
        primal=primal,
        dual=dual,
        best=best,
        resolution=problem.bounds(primal, dual).resolution,
        loss=str(objective.loss.name),
        alpha=strength,
        l1_ratio=float(objective.l1_ratio),
    )


# --- the objective --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Objective:
    loss: Loss
    alpha: Any
    l1_ratio: float
    intercept_scaling: float | None


def _objective(known: External, loss: Any, alpha: Any, l1_ratio: Any, scaling: Any) -> _Objective:
    """What was passed, and what the model says of the rest."""
    found = known.loss if loss is None else resolve("loss", loss, {**CLASSIFICATION, **REGRESSION})
    ratio = known.l1_ratio if l1_ratio is None else l1_ratio
    strength = known.alpha
    if alpha is not None:
        check_number("alpha", alpha, low=0.0, low_open=True)
        strength = lambda n, total: float(alpha)  # noqa: E731
    for name, value in (("loss", found), ("alpha", strength), ("l1_ratio", ratio)):
        if value is None:
            raise ValueError(f"{name} must be given: the model does not say which {name} it was fitted with")
    check_number("l1_ratio", ratio, low=0.0, high=1.0)
    if scaling is not None:
        check_number("intercept_scaling", scaling, low=0.0, low_open=True)
    assert found is not None
    return _Objective(
        found, strength, float(ratio or 0.0), known.intercept_scaling if scaling is None else float(scaling)
    )


def _last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """The last step of a pipeline, and the rows that it gets."""
    steps = getattr(model, "steps", None)
    if steps is None:
        return model, X
    return steps[-1][1], model[:-1].transform(X) if len(steps) > 1 else X


def _texts(model: Any, X: Any) -> Any:
    rows = getattr(getattr(model, "model_", model), "rows", None)
    return X if rows is None else rows(X)


def _with_constant(X: Any, W: Any, bias: Array, scaling: float) -> tuple[Any, Any]:
    """Rows and weights with the constant feature of a penalized intercept."""
    column = np.full((X.shape[0], 1), scaling, X.dtype)
    W = sp.csr_matrix(W) if sp.issparse(W) else W
    extra = bias[None, :] / scaling
    whole = sp.vstack([W, sp.csr_matrix(extra)], format="csr") if sp.issparse(W) else np.vstack([W, extra])
    if sp.issparse(X):
        return sp.hstack([X, sp.csr_matrix(column)], format="csr"), whole
    return np.hstack([X, column]), whole


def _row_weights(class_weight: Any, known: External, y: Any, weights: Array | None) -> Array:
    """The weights of the classes of the rows."""
    labels = column_or_1d(y)
    if class_weight == "balanced" and known.balances_weights and weights is not None:
        classes, index = np.unique(labels, return_inverse=True)
        counts = np.bincount(index, weights)
        return np.asarray(weights.sum() / (len(classes) * counts)[index], np.float64)
    if isinstance(class_weight, dict) and known.classes is not None:
        # Models in files have their labels as text there.
        spelled = {str(label): float(weight) for label, weight in class_weight.items()}
        class_weight = {label: spelled.get(str(label), 1.0) for label in known.classes.tolist()}
    return np.asarray(compute_sample_weight(class_weight, labels), np.float64)


def _targets(objective: _Objective, y: Any, known: External) -> tuple[Targets, Any]:
    """The targets, and the compiled loss."""
    K, loss = known.weights.shape[1], objective.loss
    classifies = isinstance(loss, ClassificationLoss)
    if not classifies and known.classes is None:
        values = np.asarray(y, np.float64).reshape(len(y), -1)
        if values.shape[1] != K:
            raise ValueError(f"y must have {K} targets, as the model has outputs, got shape {np.shape(y)}")
        return RealTargets(np.ascontiguousarray(values), K), loss.compiled()
    if is_indicator(y):
        labels = read_indicator(y)
        if labels.shape[1] != K:
            raise ValueError(f"y must have {K} columns, as the model has outputs, got shape {labels.shape}")
        if not classifies:
            return RealTargets(coded(labels, K, np.float64, signs=True), K), loss.compiled()
        return SignTargets(labels.indptr.astype(np.int64), labels.indices.astype(np.int32), K), loss.compiled()
    index = _class_index(column_or_1d(y), known.classes, K)
    if not classifies:
        return RealTargets(coded(index, K, np.float64, signs=True), K), loss.compiled()
    if K == 1:
        return binary_targets(index), loss.compiled(True)
    if loss.joint:
        return ClassTargets(index, K), loss.compiled()
    return SignTargets(np.arange(len(index) + 1, dtype=np.int64), index, K), loss.compiled()


def _class_index(y: Array, classes: Array | None, K: int) -> Array:
    """The column of the class of each row; 0 and 1 for one column."""
    n_classes, y = max(K, 2), class_labels("y", y)
    if classes is None:
        numbers = y.dtype.kind == "i" and y.min(initial=0) >= 0 and y.max(initial=0) < n_classes
        classes = np.arange(n_classes) if numbers else np.unique(y)
    if len(classes) != n_classes:
        raise ValueError(f"y must have labels of {n_classes} classes, as the model has {K} outputs, got {len(classes)}")
    classes = class_labels("the classes of the model", classes)
    if y.dtype.kind == "i" and classes.dtype.kind != "i":
        y = y.astype(str)  # as files have them
    same_kind("y", y, "the model", classes)
    index = positions(classes, y)
    if (index < 0).any():
        raise ValueError(f"y must have the classes of the model, got the label {first(y, index < 0)} besides")
    return np.ascontiguousarray(index, np.int32)


# --- the bounds -----------------------------------------------------------------------------------------------------


def _bounds(problem: Problem, W: Any, bias: Array, refine: int) -> tuple[float, float, float]:
    """P of the model, and a lower and an upper bound on its minimum."""
    pieces = [(0, problem.n_outputs)]
    if not problem.loss.joint and problem.n_outputs >= 2 * WIDTH:
        pieces = ranges(problem.n_outputs, WIDTH)
    width = max(hi - lo for lo, hi in pieces)
    require(
        {"dual variables": problem.n_samples * width * 8, "weights (four arrays)": 4 * problem.n_features * width * 8},
        "fewer rows, or more memory",
    )
    columns = Columns(problem) if len(pieces) > 1 else None
    total = np.zeros(3)
    for lo, hi in pieces:
        part = problem if columns is None else replace(problem, targets=columns.targets(lo, hi))
        block = W[:, lo:hi]
        block = block.toarray() if sp.issparse(block) else np.array(block, np.float64, order="C")
        total += _bounds_of(part, np.asarray(block, np.float64), np.ascontiguousarray(bias[lo:hi]), refine)
    primal, dual, best = total.tolist()
    return primal, dual, best


def _bounds_of(problem: Problem, W: Array, bias: Array, refine: int) -> tuple[float, float, float]:
    dual, V = np.empty((problem.n_samples, problem.n_outputs)), problem.zeros()
    first = problem.certify(W, bias, problem.respond(W, bias, dual), dual, V)
    known = first
    best = known.primal
    solver: Solver = choose(problem).prepare(problem)
    state: State | None = None
    if lineage(solver) == "dual" or isinstance(solver, SlightL2):
        state = warm_state(problem, solver, {**SDCA().state(problem), "dual": dual, "bias": bias.copy(), "V": V})
    left = refine
    # Each round asks for a tenth of the gap that is left: its dual objective is then within a tenth of the minimum.
    while left > 0 and known.relative_gap > _FLOOR:
        tol = max(_SHARE * known.relative_gap, _FLOOR)
        found = minimize(problem, solver, tol=tol, max_iter=left, state=state, warn=False)
        left, state = refine - found.n_iter, found.state
        known = problem.bounds(first.primal, max(known.dual, found.certificate.dual))
        best = min(best, found.certificate.primal)
        near = best - known.dual <= max(_SHARE * known.gap, _FLOOR * abs(known.primal))
        if near or found.outcome is not Outcome.CONVERGED:
            break
    return first.primal, known.dual, best
