"""The methods of ours: every solver of the registry, and solver objects with other parameters, by name.

A method is a solver behind `LinearClassifier` or `LinearRegressor`; what it can minimize is what the library takes.
Names are those of the registry, but for the two that rows of earlier versions have under another one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from benchmarks.data import Data, shrink
from benchmarks.measure import Stopwatch, quiet
from benchmarks.problem import OBJECTIVES, loss_of, make_problem
from benchmarks.task import Fit, Stop, Task
from manyclass.solvers import SDCA, SGD, SOLVERS, BoundMajorization, GeneralizedLeastSquares, Memoir, Solver

__all__ = ["METHODS", "Ours", "compile_memoir"]

#: What earlier rows call a solver.
_EARLIER = {"generalized_least_squares": "majorise", "log_concavity": "lc"}
#: Most weights that are made an array to be judged.
_JUDGED = 2**30
#: Most iterations of a primal solver, whose iteration is a pass or two.
_MOST = 1000


@dataclass(frozen=True)
class Ours:
    """A method of ours.

    Attributes
    ----------
    solver : Solver, optional
        None: the library chooses.
    about : str
        A line for the list.
    l1_ratio : float, optional
        Instead of the task's.
    """

    solver: Solver | None
    about: str
    l1_ratio: float | None = None

    @cached_property
    def objectives(self) -> tuple[str, ...]:
        """What it can minimize, smoothed where it must be."""
        return tuple(name for name in OBJECTIVES if self.refuses(Task(name, gamma=1.0)) is None)

    @property
    def multilabel(self) -> bool:
        """Whether rows may have several classes."""
        return "log_loss" in self.objectives

    def refuses(self, task: Task) -> str | None:
        """None, or why it cannot solve a task of more than two classes: what the library says."""
        if task.objective not in OBJECTIVES or (task.objective == "margin") != isinstance(self.solver, Memoir):
            return f"does not minimize {task.objective}"
        return _refusal(self.solver, task.objective, self._l1_ratio(task), task.gamma, task.intercept)

    def fit(self, data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
        """``fit`` of the estimator; compiled, or loaded from the cache, on a few rows first.

        ``task.options`` are parameters of the solver.
        """
        from manyclass.solvers.dual import _image

        # Few rows have few classes: compiled is what the weights of all of them are held in.
        large = task.objective != "squared" and (
            data.X.shape[1] * data.n_classes * data.X.dtype.itemsize > _image._DENSE_BYTES
        )
        few = _few(data, task)
        with quiet():
            with patch.object(_image, "_DENSE_BYTES", -1 if large else _image._DENSE_BYTES):
                self._estimator(task, Stop(0.0, 2), threads, seed).fit(few.X, few.y)
            if isinstance(self.solver, Memoir):
                compile_memoir(few.X)
            model = self._estimator(task, stop, threads, seed)
            with Stopwatch() as watch:
                model.fit(data.X, data.y)
        last = model.history_.last
        certified = self.solver is None or self.solver.certified
        certificate = {"primal": last.primal, "dual": last.dual, "relative_gap": last.relative_gap}
        return Fit(
            seconds=watch.seconds,
            cpu_seconds=watch.cpu_seconds,
            predict=model.predict,
            weights=_to_judge(model.model_.weights) if certified else None,
            intercept=np.asarray(model.model_.intercept),
            model_bytes=model.model_.nbytes,
            iterations=int(model.n_iter_),
            solver_seconds=last.seconds,
            compile_seconds=model.history_.compile_seconds,
            certificate=certificate if certified else {},
            facts=_memoir_facts(model, data) if isinstance(self.solver, Memoir) else {},
        )

    def _estimator(self, task: Task, stop: Stop, threads: int, seed: int) -> Any:
        from manyclass import LinearClassifier, LinearRegressor

        solver: Any = "auto" if self.solver is None else clone(self.solver).set_params(**dict(task.options))
        if "n_workers" in getattr(solver, "get_params", dict)():
            solver.set_params(n_workers=threads)
        limit = {} if _default_limit(self.solver) is None else {"max_iter": _default_limit(self.solver)}
        make = LinearRegressor if task.objective == "squared" else LinearClassifier
        return make(
            loss=loss_of(task),
            alpha=task.alpha,
            l1_ratio=self._l1_ratio(task),
            fit_intercept=task.intercept,
            solver=solver,
            random_state=seed,
            n_jobs=threads,
            **{**limit, **stop.given()},
        )

    def _l1_ratio(self, task: Task) -> float:
        return task.l1_ratio if self.l1_ratio is None else self.l1_ratio


def _default_limit(solver: Solver | None) -> int | None:
    """Most iterations where the caller sets none; None: the solver's default."""
    return None if solver is None or isinstance(solver, SDCA) or not solver.certified else _MOST


@cache
def _refusal(solver: Solver | None, objective: str, l1_ratio: float, gamma: float, intercept: bool) -> str | None:
    task = Task(objective, alpha=0.1, l1_ratio=l1_ratio, gamma=gamma, intercept=intercept)
    try:
        loss_of(task).check()
        if solver is not None:
            problem = make_problem(sp.eye(3, format="csr"), np.arange(3), task)
            solver.prepare(problem)
    except ValueError as error:
        return str(error)
    return None


def _few(data: Data, task: Task) -> Data:
    if task.objective == "squared":  # y may be any numbers
        return Data(data.name, data.X[:200], data.y[:200], data.X_test, data.y_test)
    return shrink(data, 200)


def _to_judge(weights: Any) -> Any:
    """Weights as the judge of objectives reads them, an array, where that has a size that fits."""
    if not sp.issparse(weights):
        return weights
    return weights.toarray() if math.prod(weights.shape) <= _JUDGED else None


def _memoir_facts(model: Any, data: Data) -> dict[str, Any]:
    """How the search for rivals went: these are not in the model."""
    records = [record.info for record in model.history_]
    return {
        "nonzeros": int(records[-1]["nonzeros"]),
        "held_bytes": int(max(record["nbytes"] for record in records)),
        "update_rate": records[-1]["update_rate"],
        "search_recall": records[-1]["recall"],
        "margin_error": records[-1]["margin_error"],
        "batch_size": model.solver._batch(data.n_classes),
    }


def compile_memoir(X: Any) -> None:
    """Have what large fits alone need compiled, or loaded from the cache: tables, and searches of sorted copies."""
    from manyclass.mips import ExactSearch
    from manyclass.solvers.memoir.learner import MemoirLearner

    if sp.issparse(X):
        y = np.arange(X.shape[0]) % 2
        for l1_ratio in (0.0, 1.0):
            learner = MemoirLearner(X.shape[1], 2, X.dtype, l1_ratio=l1_ratio, average=not l1_ratio, sparse=True)
            learner.epoch(X, y, np.arange(len(y)), batch_size=10)
        ExactSearch().build(learner.weights() + sp.eye(*learner.weights().shape, dtype=X.dtype)).query(X, 1, y)


METHODS: Mapping[str, Ours] = {
    "auto": Ours(None, "the solver that the library chooses"),
    **{
        _EARLIER.get(name, name): Ours(kind(), kind.summary)
        for name, kind in SOLVERS.items()
        if issubclass(kind, Solver)
    },
    "sdca_rounds": Ours(SDCA(sampling="rounds"), "sdca, in rounds of rows whose steps threads share"),
    "asgd": Ours(SGD(average=True), "sgd, the mean of the weights after the first pass"),
    "bbm": Ours(BoundMajorization(stochastic=False), "bound, the batch method"),
    "majorise_cg": Ours(GeneralizedLeastSquares(system="cg"), "majorise, its systems solved by conjugate gradients"),
    "memoir_l1": Ours(Memoir(), "memoir with an l1 penalty: weights truncated lazily", l1_ratio=1.0),
    "memoir_lsh": Ours(Memoir(search="lsh"), "memoir, rivals proposed by codes of random bits"),
}
