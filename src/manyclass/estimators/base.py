"""What the SDCA estimators share: parameters, the fit from a Problem to a model, prediction."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from manyclass._version import __version__
from manyclass.kernels.rows import check_sparse, has_duplicates, make_rows, read_only
from manyclass.kernels.targets import Targets
from manyclass.models.linear import LinearModel
from manyclass.objective.history import History
from manyclass.objective.losses import OPTIONS
from manyclass.objective.penalties import L1, L2, ElasticNet
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.choice import DUAL, SOLVERS, choose, in_ranges, lineage, make_solver
from manyclass.optimize.columns import WIDTH, minimise_columns
from manyclass.optimize.loop import Result, minimise
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers import Solver, State
from manyclass.solvers.dual.sdca import SAMPLINGS
from manyclass.solvers.dual.warm import warm_state

__all__ = ["LinearEstimator", "checked_weights"]


class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """A linear model fitted by minimising a `Problem`."""

    loss: str
    solver: str
    option: str
    sampling: str
    alpha: float
    l1_ratio: float
    tol: float
    max_iter: int
    fit_intercept: bool
    random_state: Any
    n_jobs: int | None
    warm_start: bool
    dtype: Any
    verbose: int

    # --- parameters -------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        _number("alpha", self.alpha, low=0.0, low_open=True)
        _number("l1_ratio", self.l1_ratio, low=0.0, high=1.0)
        _number("tol", self.tol, low=0.0)
        max_iter: Any = self.max_iter
        if isinstance(max_iter, bool) or not isinstance(max_iter, numbers.Integral) or int(max_iter) < 1:
            raise ValueError(f"max_iter must be an integer of at least 1, got {max_iter!r}")
        if self.dtype is not None and np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be None, float32 or float64, got {self.dtype!r}")
        resolve_n_jobs(self.n_jobs)
        for name, known in (("solver", ("auto", *SOLVERS)), ("option", OPTIONS), ("sampling", SAMPLINGS)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
        if (self.option, self.sampling) != ("I", "permutation") and self.solver not in ("auto", *DUAL):
            raise ValueError(
                f"option and sampling belong to Prox-SDCA: solver {self.solver!r} has none; take one of "
                f"{', '.join(map(repr, DUAL))}"
            )

    # --- fitting ----------------------------------------------------------------------------------------------------

    def _check_fit_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X as CSR or 2-D array of float32 or float64, y still as given; nothing is copied that need not be."""
        check_sparse(X)
        check_sparse(y, "y")
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], multi_output=True, y_numeric=False
        )
        return _as_rows(X), y

    def _check_predict_input(self, X: Any) -> Any:
        check_is_fitted(self)
        check_sparse(X)
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def _weights(self, sample_weight: Any, X: Any) -> Array | None:
        return checked_weights(sample_weight, X)

    def _build(self, X: Any, y: Any, sample_weight: Any) -> tuple[Problem, dict[str, Any]]:
        """The problem that the parameters and the data describe, and what the model is to know besides its weights."""
        raise NotImplementedError

    def _problem(self, X: Any, targets: Targets, loss: Any, weights: Array | None) -> Problem:
        ratio, alpha = float(self.l1_ratio), float(self.alpha)
        return Problem(
            rows=make_rows(X),
            targets=targets,
            loss=loss,
            regularizer=L1() if ratio == 1 else ElasticNet(ratio / (1.0 - ratio)) if ratio else L2(),
            lam=alpha if ratio == 1 else alpha * (1.0 - ratio),
            n_features=X.shape[1],
            weights=weights,
            intercept=bool(self.fit_intercept),
            dtype=np.dtype(X.dtype if self.dtype is None else self.dtype),
            n_threads=resolve_n_jobs(self.n_jobs),
        )

    def _minimise(self, problem: Problem) -> Result:
        """Run the solver, keep what the run tells."""
        make = self._maker(problem)
        solver = make(problem)
        self.solver_ = solver.name
        settings: dict[str, Any] = {
            "tol": float(self.tol),
            "max_iter": int(self.max_iter),
            "seed": int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            "verbose": int(self.verbose),
            **self._keeping(),
        }
        # Ranges of outputs by themselves take less memory and time, but keep no duals to start from another time.
        if problem.n_outputs >= 2 * WIDTH and not self.warm_start and in_ranges(problem, solver):
            result = minimise_columns(problem, make, **settings)
        else:
            result = minimise(problem, solver, state=self._warm_state(problem, solver), **settings)
        self.history_: History = result.history
        self.duality_gap_ = result.certificate.relative_gap
        self.objective_ = result.certificate.primal
        self.n_iter_ = result.n_iter
        # Kept only on request: the duals can be larger than the model.
        self._warm = (_signature(problem, solver), result.state) if self.warm_start else None
        return result

    def _keeping(self) -> dict[str, Any]:
        """What the driver is to know of checkpoints."""
        return {}

    def _maker(self, problem: Problem) -> Callable[[Problem], Solver]:
        """What makes the solver that the parameters name, for the problem or for a part of its outputs."""
        name = choose(self.solver, problem, plain=(self.option, self.sampling) == ("I", "permutation"))
        return lambda part: self._make_solver(name, part)

    def _make_solver(self, name: str, problem: Problem) -> Solver:
        return make_solver(name, problem, option=self.option, sampling=self.sampling)

    def _warm_state(self, problem: Problem, solver: Solver) -> State | None:
        """The duals of the last fit, where they are feasible for this problem: same targets, loss and shape."""
        kept = getattr(self, "_warm", None)
        if not self.warm_start or kept is None or not _same(kept[0], _signature(problem, solver)):
            return None
        return warm_state(problem, solver, kept[1])

    def _wrap(self, result: Result, *, classes: Array | None, task: str, link: str) -> None:
        names = getattr(self, "feature_names_in_", None)
        parameters = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        self._sparsified = False
        self.model_ = LinearModel(
            weights=self._kept_weights(result.weights),
            intercept=np.array(result.intercept),
            classes=classes,
            task=task,
            link=link,
            parameters={"estimator": type(self).__name__, **parameters},
            record={
                "outcome": result.outcome.name.lower(),
                "objective": float(result.certificate.primal),
                "relative_gap": float(result.certificate.relative_gap),
                "n_iter": int(result.n_iter),
                "history": result.history.to_dict(),
            },
            feature_names=None if names is None else np.asarray(names, dtype=str),
            vectorizer=None,
            library_version=__version__,
        )

    def _kept_weights(self, W: Array) -> Any:
        """The weights, sparse where a penalty with an l1 part has left few: where that takes less memory."""
        if not self.l1_ratio:
            return W
        entry = W.dtype.itemsize + 4
        return sp.csr_matrix(W) if np.count_nonzero(W) * entry < 0.5 * W.nbytes else W

    # --- what a fit leaves ------------------------------------------------------------------------------------------

    @property
    def coef_(self) -> Any:
        """Weights, (n_outputs, n_features): one row a class, a single row for two classes.

        A view, not a copy, of dense weights. A fit with an l1 part that leaves few weights keeps them sparse: then this
        is a dense copy, and `sparse_coef_` the weights as they are. After `sparsify`, a sparse matrix.
        """
        check_is_fitted(self, "model_")
        weights: Any = self.model_.weights
        return weights.toarray().T if sp.issparse(weights) and not self._sparsified else weights.T

    @property
    def sparse_coef_(self) -> Any:
        """`coef_` as a CSR matrix, (n_outputs, n_features), always."""
        check_is_fitted(self, "model_")
        return sp.csr_matrix(self.model_.weights.T)

    def sparsify(self) -> LinearEstimator:
        """Keep the weights sparse, and `coef_` with them; predictions stay the same."""
        check_is_fitted(self, "model_")
        self.model_ = self.model_.sparsify()
        self._sparsified = True
        return self

    def densify(self) -> LinearEstimator:
        """Keep the weights as a dense array, as before `sparsify`."""
        check_is_fitted(self, "model_")
        self.model_ = self.model_.densify()
        self._sparsified = False
        return self

    @property
    def intercept_(self) -> Array:
        """Intercepts, (n_outputs,); zeros without an intercept."""
        check_is_fitted(self, "model_")
        intercept: Array = self.model_.intercept
        return intercept

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def checked_weights(sample_weight: Any, X: Any) -> Array | None:
    """Sample weights as float64.

    Raises
    ------
    ValueError
        If they are negative, not finite, all zero, or not one for each row.
    """
    if sample_weight is None:
        return None
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    if not weights.any():  # scikit-learn checks this itself from version 1.8 on
        raise ValueError("sample_weight must contain at least one non-zero number, all are zero")
    return weights


def _as_rows(X: Any) -> Any:
    """CSR without duplicate entries (a dual step needs the norm of a row); copied only where there are some."""
    if not sp.issparse(X):
        return X
    if has_duplicates(read_only(X.indices), read_only(X.indptr), np.full(X.shape[1], -1, np.int64)):
        X = X.copy()
        X.sum_duplicates()
    return X


def _number(
    name: str,
    value: Any,
    *,
    low: float,
    high: float = np.inf,
    low_open: bool = False,
    high_open: bool = False,
    hint: str = "",
) -> None:
    """Refuse what is not a finite number within the bounds."""
    good = not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)
    if good:
        good = (value > low if low_open else value >= low) and (value < high if high_open else value <= high)
    if not good:
        below = f"greater than {low:g}" if low_open else f"at least {low:g}"
        above = "" if np.isinf(high) else f" and {'less than' if high_open else 'at most'} {high:g}"
        raise ValueError(f"{name} must be a finite number {below}{above}, got {value!r}{hint}")


def _signature(problem: Problem, solver: Solver) -> tuple[Any, ...]:
    """What must be unchanged for old duals to be feasible."""
    arrays = tuple(np.array(part) for part in problem.targets if isinstance(part, np.ndarray))
    return (
        lineage(solver),
        type(problem.loss),
        tuple(problem.loss),
        problem.n_samples,
        problem.n_features,
        problem.n_outputs,
        problem.intercept,
        problem.dtype,
        arrays,
    )


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return (
        one[:-1] == other[:-1]
        and len(one[-1]) == len(other[-1])
        and all(np.array_equal(a, b) for a, b in zip(one[-1], other[-1]))
    )


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it; the text of what it cannot."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return getattr(value, "__name__", None) or str(value)
