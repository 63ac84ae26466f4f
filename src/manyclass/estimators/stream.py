"""Implements `LinearClassifier.partial_fit`: the classes so far, and the update of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.objective.problem import Array
from manyclass.solvers import Solver

__all__ = ["take"]


def take(
    estimator: Any,
    solver: Solver,
    X: Any,
    y: Array,
    classes: Any,
    weights: Array | None,
    first: bool,
) -> None:
    """Update the model of a `LinearClassifier` with validated rows."""
    if first:
        stream, known, seen = None, np.empty(0, y.dtype), 0
    else:
        stream, known, seen = getattr(estimator, "_stream", None) or (None, estimator.classes_, 0)
        X = X.astype(estimator.model_.weights.dtype, copy=False)
    order = _order(known, y, classes, solver, fresh=first)
    seen += len(y)
    # The learner numbers classes in the order of their first occurrence, so that existing numbers do not change.
    by_label = np.argsort(order, kind="stable")
    index = by_label[np.searchsorted(order, y, sorter=by_label)].astype(np.int32)
    estimator.classes_ = order
    two_columns = len(order) == 2 and not (solver.one_margin and estimator._loss().one_margin)
    problem = estimator._problem(
        X,
        estimator._label_targets(index, two_columns),
        estimator._loss().compiled(len(order) == 2 and not two_columns),
        None,
        intercept=estimator._takes_intercept(sp.issparse(X), solver),
        two_columns=two_columns,
        total=float(seen),
    )
    ready = solver.prepare(problem)
    if stream is None:
        stream = ready.open_stream(problem, vanishing=estimator.alpha is None)
        if not first:
            growing: Any = stream  # supports new classes: `Solver.grows`
            growing.start(_columns(estimator, len(order)))
    stream.take(problem, weights)
    W, intercept = stream.weights()
    estimator.classes_ = order[by_label]
    if not np.array_equal(by_label, np.arange(len(order))) and W.shape[1] == len(order):
        W = W[:, by_label] if sp.issparse(W) else np.ascontiguousarray(W[:, by_label])
        intercept = intercept[by_label]
    task = "binary" if len(order) == 2 else "multiclass"
    facts = {"classes": estimator.classes_, "task": task, "link": estimator._link(task)}
    estimator.solver_, estimator._certified = ready.name, False
    estimator._finish(W, intercept, facts, {"outcome": "stream", "n_seen": seen})
    estimator._stream = stream, order, seen
    for name in ("duality_gap_", "objective_", "n_iter_", "history_"):
        estimator.__dict__.pop(name, None)


def _order(known: Array, y: Array, classes: Any, solver: Solver, *, fresh: bool) -> Array:
    """The classes in the order of their first occurrence."""
    named = np.unique(y) if classes is None else np.unique(np.concatenate([np.asarray(classes), y]))
    if not fresh and (known.dtype.kind in "US") != (named.dtype.kind in "US"):
        raise ValueError(f"y must have labels of the same type as the classes so far, {known.dtype}, got {named.dtype}")
    new = named[~np.isin(named, known)]
    if not solver.grows and not fresh:
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), np.sort(known)):
            raise ValueError(
                f"classes must be those of the first call, {known.tolist()}, got {np.unique(classes).tolist()}"
            )
        if len(new):
            raise ValueError(
                f"y must have labels of the classes {known.tolist()}, got label {new[:1].tolist()[0]!r} in row "
                f"{int(np.argmax(y == new[0]))}: pass all classes in the first call of partial_fit (classes=), or use "
                "solver='memoir', which can add classes"
            )
    elif fresh and classes is not None and not solver.grows:
        strange = np.setdiff1d(y, np.asarray(classes))
        if len(strange):
            raise ValueError(
                f"y must have labels of the classes {np.unique(classes).tolist()}, got label "
                f"{strange[:1].tolist()[0]!r} in row {int(np.argmax(y == strange[0]))}: pass all classes in the first "
                "call of partial_fit (classes=)"
            )
    order = np.concatenate([known, new])
    if len(order) < 2:
        raise ValueError(
            f"y must have at least 2 classes, got {order.tolist()}: pass all classes in the first call of partial_fit "
            "(classes=)"
        )
    return order


def _columns(estimator: Any, n_classes: int) -> Any:
    """The weights of the fitted model, with one column per class, zero for new classes."""
    W: Any = estimator.model_.weights
    if W.shape[1] == 1:  # one score s: columns for -s/2 and s/2
        W = (sp.hstack if sp.issparse(W) else np.hstack)([-0.5 * W, 0.5 * W])
    more = (W.shape[0], n_classes - W.shape[1])
    if sp.issparse(W):
        return sp.hstack([W, sp.csr_matrix(more, dtype=W.dtype)], format="csr")
    return np.hstack([W, np.zeros(more, W.dtype)])
