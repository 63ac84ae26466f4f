"""`LinearClassifier.fit` on a row store, with a solver that fits by itself."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from manyclass.io.store.rows import RowStore
from manyclass.kernels.targets import ClassTargets
from manyclass.optimize.loop import Outcome
from manyclass.optimize.scale import bad_norm, warn_of_zeros
from manyclass.optimize.validation import FRACTION, Judge, Validation, held_out_rows
from manyclass.runtime.memory import require
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers.base import StoreSolver, StoreTask
from manyclass.solvers.out_of_core.fit import class_weights

if TYPE_CHECKING:
    from manyclass.estimators.classifier import LinearClassifier
    from manyclass.estimators.watched import Watch
    from manyclass.objective.problem import Array

__all__ = ["fit_store", "refuse_store"]


def fit_store(
    estimator: LinearClassifier, solver: StoreSolver, watch: Watch, checkpoint: Any, settings: dict[str, Any]
) -> None:
    """Refuse, before any work, what the solver cannot fit; fit, and leave on the estimator what a fit leaves."""
    X, rank = watch.X, watch.comm.rank
    _refuse(estimator, solver, X, watch.y, watch.sample_weight)
    estimator.classes_, estimator.n_features_in_ = X.classes, X.shape[1]
    estimator.__dict__.pop("feature_names_in_", None)  # those of the store are the model's
    validation, held = _validation(estimator, watch, settings["seed"])
    task = StoreTask(
        store=X,
        alpha=None if estimator.alpha is None else float(estimator.alpha),
        intercept=estimator._takes_intercept(X.layout == "csr", solver),
        dtype=np.dtype(X.dtype if estimator.dtype is None else estimator.dtype),
        class_weight=estimator.class_weight,
        parameters=estimator._recorded(),
        checkpoint=checkpoint,
        validation=validation,
        callback=watch.callback,
        held_out=held,
        **settings,
    )
    found = solver.fit_store(task)
    estimator.model_, estimator.history_, estimator.alpha_ = found.model, found.history, found.alpha
    estimator.objective_, estimator.duality_gap_ = found.certificate.primal, found.certificate.relative_gap
    estimator.n_iter_, estimator.solver_ = found.n_iter, solver.name
    estimator._stream = estimator._warm = None
    estimator._certified, estimator._sparsified = solver.certified, False
    outcome = Outcome[found.history.outcome.upper()]
    if outcome is Outcome.CONVERGED and not rank:
        warn_of_zeros(found.mean_norm, found.alpha, stacklevel=4)
    if rank or outcome in (Outcome.CONVERGED, Outcome.PATIENCE, Outcome.STOPPED):
        return
    if outcome is Outcome.MAX_ITER and not solver.certified:
        return
    told = f"{outcome.value} (after {found.n_iter} epochs)"
    if outcome is Outcome.MAX_ITER:
        told += (
            f": the certified relative gap is {estimator.duality_gap_:.2e}, tol is {estimator.tol:g}; "
            f"{bad_norm(found.mean_norm) or 'raise max_iter or alpha, or accept a larger tol'}"
        )
    warnings.warn(told, ConvergenceWarning, stacklevel=3)


def _validation(estimator: LinearClassifier, watch: Watch, seed: int) -> tuple[Validation | None, Array | None]:
    """What scores the held-out rows, and the rows of the store that are held out, where none are given."""
    patience, held = estimator._patience, None
    if watch.judges:
        if isinstance(watch.X_val, RowStore) and watch.y_val is None:
            data = watch.X_val.dataset()
            watch = watch._replace(X_val=data.X, y_val=data.y)
        judge = estimator._judge(watch, "multiclass", watch.X.n_outputs, resolve_n_jobs(estimator.n_jobs))
    elif patience is not None:
        judge, held = _drawn(estimator, watch, seed)
    else:
        return None, None
    return Validation(judge, patience), held


def _drawn(estimator: LinearClassifier, watch: Watch, seed: int) -> tuple[Judge, Array]:
    """The judge on a part of each class, of which each process has those of its own rows; and the rows of all."""
    store, comm, instead = watch.X, watch.comm, "X_val and y_val in place of early_stopping alone"
    require({"labels, weights and order of all rows, to choose those held out": 64 * len(store)}, instead)
    bounds = store.shard_bounds
    found = [store.targets_of(shard, 0, end - begin) for shard, (begin, end) in enumerate(zip(bounds, bounds[1:]))]
    y = np.concatenate([part for part, _ in found])
    weights = np.concatenate([np.ones(len(part)) if given is None else given for part, given in found])
    if estimator.class_weight is not None:
        counts = np.bincount(y, minlength=store.n_outputs)
        weights = weights * class_weights(estimator.class_weight, store.classes, counts)[y]
    rng = np.random.default_rng([seed, len(store)])
    wanted_by = f"early_stopping={estimator.early_stopping!r}"
    held = held_out_rows(ClassTargets(y, store.n_outputs), weights, rng, FRACTION, wanted_by)
    view = store.parts(comm.rank, comm.size)
    mine = held[slice(*np.searchsorted(held, [view.begin, view.end]))]
    require({"held-out rows": store.nbytes * len(mine) // len(store)}, instead)
    return Judge(view.take(mine), y[mine], weights[mine], resolve_n_jobs(estimator.n_jobs), comm), held


def refuse_store(X: Any) -> None:
    """Refuse a row store where rows in memory are expected."""
    if isinstance(X, RowStore):
        raise ValueError(
            f"X is a row store, {X.path}; expected rows in memory: give data = store.dataset(), data.X and data.y, or "
            "slices store.rows()[begin:end]. LinearClassifier(solver=OutOfCore(path)) fits a store as it is"
        )


def _refuse(estimator: LinearClassifier, solver: StoreSolver, X: Any, y: Any, sample_weight: Any) -> None:
    """Raise a ValueError for what a solver of row stores does not take."""
    who, loss, ratio = f"solver {solver.name!r}", estimator._loss().name, estimator.l1_ratio
    takes = " or ".join(sorted(solver.losses))
    if loss not in solver.losses:
        raise ValueError(f"{who} is for {takes}, got loss {loss!r}: choose another solver ('auto' chooses for you)")
    if ratio:
        raise ValueError(
            f"{who} needs a penalty that is l2 alone, got {'l1' if ratio == 1 else 'elastic net'} "
            f"(l1_ratio={ratio:g}): give l1_ratio=0, or choose another solver"
        )
    if not isinstance(X, RowStore):
        raise ValueError(
            f"{who} fits {takes} to a row store, got X of type {type(X).__name__}: write the rows with "
            "manyclass.io.store.write_store(path, X, y) and give RowStore(path), or choose another solver"
        )
    if X.kind != "classes" or X.n_outputs < 2:
        what = "one class" if X.kind == "classes" else f"targets of kind {X.kind!r}"
        raise ValueError(
            f"{X.path} has {what}; expected a class for each row, two different ones at least: write the store again "
            "with such targets"
        )
    if estimator.standardize:
        raise ValueError(f"{who} does not support standardize=True: scale the columns before write_store")
    if estimator.warm_start:
        raise ValueError(f"{who} has no warm start, got warm_start=True: fit(store, checkpoint=FOLDER) goes on")
    for name, value in {"y": y, "sample_weight": sample_weight}.items():
        if value is not None:
            raise ValueError(
                f"{who} takes labels and weights of rows from the store, got {name}: leave it out, and write the store "
                "with it (write_store(path, X, y, sample_weight=...))"
            )
