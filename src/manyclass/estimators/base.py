"""Base classes of the estimators: checks of parameters and input, the `Problem`, the fitted model."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from manyclass._version import __version__
from manyclass.estimators.alpha_search import AlphaSearch, search_alpha
from manyclass.estimators.elsewhere import check_rows_to_fit, fits_on_arrays, make_problem, working_dtype
from manyclass.estimators.frames import check_frame, plain_labels
from manyclass.estimators.named import Named
from manyclass.estimators.signature import fit_signature, same
from manyclass.estimators.stored import refuse_store
from manyclass.kernels.rows import (
    check_largest,
    check_sparse,
    csr_fault,
    has_duplicates,
    read_only,
    scan_indices,
)
from manyclass.kernels.scoring import all_finite
from manyclass.kernels.targets import Targets
from manyclass.models.linear import LinearModel
from manyclass.models.partitioned import Columns, PartitionedModel
from manyclass.objective.component import resolve
from manyclass.objective.history import History
from manyclass.objective.penalties import make_penalty
from manyclass.objective.problem import Array, Problem
from manyclass.objective.standard import Standard
from manyclass.optimize.checkpoint import seed_of
from manyclass.optimize.choice import choose, in_ranges
from manyclass.optimize.columns import minimize_columns
from manyclass.optimize.loop import Result, minimize
from manyclass.runtime.arrays import is_foreign, is_half, plain_array
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers import SOLVERS, BaseSolver, Solver, State
from manyclass.solvers.dual.warm import lineage, warm_state

__all__ = [
    "LinearEstimator",
    "check_rows",
    "check_squares",
    "check_sample_weight",
    "check_number",
    "penalty_strength",
    "plain",
    "record_of",
]


class LinearEstimator(Named):
    """Base class of estimators that fit a linear model by minimizing the objective of a `Problem`."""

    loss: Any
    alpha: Any
    l1_ratio: Any
    fit_intercept: Any
    solver: Any
    tol: Any
    max_iter: Any
    warm_start: bool
    #: Not a parameter of the estimators that choose by cross-validation.
    standardize: Any = False
    random_state: Any
    n_jobs: int | None
    dtype: Any
    verbose: int

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="neither"), None],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "fit_intercept": ["boolean", StrOptions({"auto"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "standardize": ["boolean"],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    # --- parameters -------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise a ValueError if a parameter is invalid; called before any work."""
        self._validate_params()
        if self.dtype is not None and np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be None, float32 or float64, got {self.dtype!r}")
        resolve_n_jobs(self.n_jobs)

    def _asked_solver(self) -> Any:
        """The solver object for the parameter ``solver``, for the fitting loop or for row stores; None for "auto"."""
        if isinstance(self.solver, str) and self.solver == "auto":
            return None
        return resolve("solver", self.solver, SOLVERS, ("auto",))

    # --- input ------------------------------------------------------------------------------------------------------

    def _check_fit_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X as a CSR matrix or 2-D array of float32 or float64, validated and copied only if necessary; y unchanged."""
        refuse_store(X)
        if self._fits_on_arrays(X):
            return check_rows_to_fit(self, X, y)
        X, y = plain_array(X), plain_array(y)
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
        return check_rows(X, ordered), y

    def _compiled_loss(self) -> Any:
        """The compiled loss, for more than two classes."""
        raise NotImplementedError

    def _fits_on_arrays(self, X: Any) -> bool:
        """Whether X is fitted where it is and as it is."""
        if not (is_foreign(X) or is_half(X)):
            return False
        given = float(self.l1_ratio), bool(self.standardize), self._asked_solver()
        return fits_on_arrays(X, self._compiled_loss(), *given)

    def _check_predict_input(self, X: Any) -> Any:
        check_is_fitted(self)
        if self._ready(X):
            return X
        refuse_store(X)
        X = plain_array(X)
        check_sparse(X)
        check_frame(X)
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def _ready(self, X: Any) -> bool:
        """Whether X is plain, valid rows: scikit-learn's checks would return it, after 0.2 ms for a single row."""
        sparse = type(X) is sp.csr_matrix or type(X) is sp.csr_array
        return (
            (sparse or type(X) is np.ndarray)
            and X.ndim == 2
            and X.dtype in (np.float32, np.float64)
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and not (sparse and csr_fault(X.data, X.indices, X.indptr, X.shape))
            and all_finite(X.data if sparse else X)
        )

    # --- the problem ------------------------------------------------------------------------------------------------

    def _build(self, X: Any, y: Any, sample_weight: Any) -> tuple[Problem, dict[str, Any]]:
        """The problem for the parameters and the data, and the fields of the model besides its weights."""
        raise NotImplementedError

    def _problem(
        self,
        X: Any,
        targets: Targets,
        loss: Any,
        weights: Array | None,
        *,
        intercept: bool,
        two_columns: bool = False,
        total: float | None = None,
    ) -> Problem:
        """The `Problem` for these rows.

        With ``two_columns``, two classes have one column of weights each, w and -w, in place of the one column 2w. The
        l2 penalty of (w, -w) is half of that of 2w, so that it is doubled here. ``total`` is the sum of the sample
        weights of all processes if X has only some of the rows.
        """
        self.__dict__.pop("validation_scores_", None)  # of an earlier fit
        ratio = float(self.l1_ratio)
        own = penalty_strength(self.alpha, X.shape[0], weights)
        self.alpha_ = own if total is None or self.alpha is not None else 1.0 / total
        penalty, lam = make_penalty(self.alpha_, ratio, 2.0 if two_columns else 1.0)
        return make_problem(
            X,
            self._fits_on_arrays(X),
            targets=targets,
            loss=loss,
            penalty=penalty,
            lam=lam,
            n_features=X.shape[1],
            sample_weight=weights,
            intercept=intercept,
            standard=self._standard(X, weights, intercept) if self.standardize else None,
            dtype=working_dtype(X, self.dtype),
            n_threads=resolve_n_jobs(self.n_jobs),
        )

    @staticmethod
    def _standard(X: Any, weights: Array | None, intercept: bool) -> Standard:
        """The means and standard deviations of the columns.

        Where there is an intercept the means do not change the optimum, but the condition of the problem. Sparse
        columns without one are only scaled, as by ``StandardScaler(with_mean=False)``.
        """
        return Standard.of(X, weights, center=intercept or not sp.issparse(X))

    def _choose_alpha(
        self, problem: Problem, solver: Solver | None, settings: dict[str, Any]
    ) -> tuple[Problem, AlphaSearch]:
        """For ``alpha="auto"``: the problem (given for alpha = 1) with the chosen alpha, and the search."""
        found = search_alpha(
            problem, solver, seed=settings["seed"], max_iter=settings["max_iter"], verbose=settings["verbose"]
        )
        self.alpha_, self.validation_scores_ = found.alpha, found.scores
        if found.rising:
            warnings.warn(found.rising, UserWarning, stacklevel=4)
        return replace(problem, lam=problem.lam * found.alpha), found

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _settings(self, checkpoint: Any = None) -> dict[str, Any]:
        """Arguments of the fitting loop; without a ``random_state``, the seed of the checkpoint, if there is one."""
        limit = None if self.max_iter is None else int(self.max_iter)
        seed = None if checkpoint is None or self.random_state is not None else seed_of(checkpoint)
        seed = self._seed() if seed is None else seed
        return {"tol": float(self.tol), "max_iter": limit, "seed": seed, "verbose": int(self.verbose)}

    def _loop(
        self,
        problem: Problem,
        solver: Solver | None,
        checkpoint: Any = None,
        start: tuple[str, State] | None = None,
        whole: bool = False,
    ) -> Callable[..., Result]:
        """The fitting loop with its solver (the given one, or the one chosen for the problem) and its warm start.

        Many outputs of a separable loss are fitted one range after the other. This takes less memory and time, but
        keeps no dual variables for a later warm start. ``whole``, of fits with early stopping, forbids it.
        """
        ready = (choose(problem) if solver is None else solver).prepare(problem)
        problem = ready.readable(problem)
        self.solver_ = ready.name
        if checkpoint is None and not self.warm_start and not whole and in_ranges(problem, ready):
            return partial(minimize_columns, problem, ready)
        kept, state = getattr(self, "_warm", None), None
        if start is not None and start[0] == lineage(ready):
            state = warm_state(problem, ready, start[1], rough=whole)
        elif self.warm_start and kept is not None and same(kept[0], fit_signature(problem, ready)):
            state = warm_state(problem, ready, kept[1])
        return partial(minimize, problem, ready, state=state, checkpoint=checkpoint)

    def _keep(self, problem: Problem, result: Result, checkpoint: Any = None) -> None:
        """Set the fitted attributes other than the model."""
        self._checkpoint = checkpoint if result.outcome.finished else None
        self.history_: History = result.history
        self.duality_gap_ = result.certificate.relative_gap
        self.objective_ = result.certificate.primal
        self.n_iter_ = result.n_iter
        # Kept only with warm_start: the dual variables can be larger than the model.
        self._warm = (fit_signature(problem, result.solver), result.state) if self.warm_start else None

    def _wrap(self, W: Any, intercept: Array, *, record: dict[str, Any], **facts: Any) -> None:
        """Set ``model_`` from weights and intercept."""
        names = getattr(self, "feature_names_in_", None)
        self._sparsified = False
        partitioned = isinstance(W, Columns)
        make: Any = PartitionedModel if partitioned else LinearModel
        self.model_ = make(
            W if partitioned else self._kept_weights(W),
            np.array(intercept),
            parameters={**self._recorded(), "alpha": getattr(self, "alpha_", None)},
            record=record,
            feature_names=None if names is None else np.asarray(names, dtype=str),
            vectorizer=None,
            library_version=__version__,
            **facts,
        )

    def _recorded(self) -> dict[str, Any]:
        """The parameters for the model's record, without those that say where the solver runs and writes."""
        parameters, solver = self.get_params(deep=True), getattr(self, "solver", None)
        if isinstance(solver, BaseSolver):
            own = {name: value for name, value in solver.get_params(deep=False).items() if name not in solver.local}
            parameters["solver"] = type(solver)(**own)
            for name in solver.local:
                parameters.pop(f"solver__{name}", None)
        return {"estimator": type(self).__name__, **{name: plain(value) for name, value in parameters.items()}}

    def _shared(self) -> dict[str, Any]:
        """The parameters that must be the same in all processes of a fit."""
        own = {"n_jobs", "verbose", "random_state"}  # of the seeds, one is taken
        return {name: value for name, value in self._recorded().items() if name not in own}

    def _kept_weights(self, W: Any) -> Any:
        """The weights, as a CSR matrix if that takes less than half of the memory."""
        if sp.issparse(W) or not (self.l1_ratio or not self._certified):
            return W
        entry = W.dtype.itemsize + 4
        return sp.csr_matrix(W) if np.count_nonzero(W) * entry < 0.5 * W.nbytes else W

    #: Whether the solver of the last fit computes a duality gap.
    _certified = True

    # --- fitted attributes ------------------------------------------------------------------------------------------

    @property
    def coef_(self) -> Any:
        """Weights, (n_outputs, n_features): one row per class, a single row for two classes.

        A view of dense weights. If the weights are stored as a sparse matrix (an l1 penalty with few non-zero weights),
        this is a dense copy; use `sparse_coef_` to avoid it. A sparse matrix after `sparsify`.
        """
        check_is_fitted(self, "model_")
        weights: Any = self.model_.weights
        return weights.toarray().T if sp.issparse(weights) and not self._sparsified else weights.T

    @property
    def sparse_coef_(self) -> Any:
        """`coef_` as a CSR matrix, (n_outputs, n_features)."""
        check_is_fitted(self, "model_")
        return sp.csr_matrix(self.model_.weights.T)

    def _is_linear(self) -> bool:
        """Whether the features of the model are those of the rows."""
        return True

    @available_if(lambda self: self._is_linear())  # type: ignore[untyped-decorator]
    def sparsify(self) -> LinearEstimator:
        """Convert the weights and `coef_` to a sparse matrix; predictions do not change.

        Returns
        -------
        LinearEstimator
            The estimator.
        """
        check_is_fitted(self, "model_")
        self.model_ = self.model_.sparsify()
        self._sparsified = True
        return self

    @available_if(lambda self: self._is_linear())  # type: ignore[untyped-decorator]
    def densify(self) -> LinearEstimator:
        """Convert the weights to a dense array, the inverse of `sparsify`.

        Returns
        -------
        LinearEstimator
            The estimator.
        """
        check_is_fitted(self, "model_")
        self.model_ = self.model_.densify()
        self._sparsified = False
        return self

    @property
    def intercept_(self) -> Array:
        """Intercepts, (n_outputs,); zeros if none were fitted."""
        check_is_fitted(self, "model_")
        intercept: Array = self.model_.intercept
        return intercept


def record_of(result: Result, prior: Any = None) -> dict[str, Any]:
    """The training record of a model, and whether it had a prior."""
    known = math.isfinite(result.certificate.primal)
    return {
        **({} if prior is None else {"prior": True}),
        "outcome": result.outcome.name.lower(),
        "solver": result.solver.name,
        "objective": float(result.certificate.primal) if known else None,
        "relative_gap": float(result.certificate.relative_gap) if known else None,
        "n_iter": int(result.n_iter),
        "nbytes": int(result.nbytes),
        "history": result.history.to_dict(),
    }


def check_sample_weight(sample_weight: Any, X: Any) -> Array | None:
    """Validate sample weights, and convert them to float64.

    Raises
    ------
    ValueError
        If they are negative, not finite, all zero, or their number differs from that of the rows.
    """
    if sample_weight is None:
        return None
    sample_weight = plain_array(sample_weight)
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    if not weights.any():  # scikit-learn checks this itself from version 1.8 on
        raise ValueError("sample_weight must contain at least one non-zero number, got only zeros")
    return weights


def penalty_strength(alpha: float | str | None, n: int, weights: Array | None) -> float:
    """``alpha``; for None 1 / n, or 1 / the sum of the sample weights, which is scikit-learn's C = 1."""
    if alpha == "auto":
        return 1.0  # multiplied by the chosen alpha later
    if alpha is not None:
        return float(alpha)
    return 1.0 / (float(n) if weights is None else float(np.sum(weights)))


def check_rows(X: Any, ordered: bool) -> Any:
    """X without duplicate entries, which would falsify the norms of rows; copied only if there are any.

    ``ordered`` is what `check_sparse` returned for it.
    """
    if ordered or not sp.issparse(X):
        return X
    indices, indptr = read_only(X.indices[: X.indptr[-1]]), read_only(X.indptr)
    _, ordered = scan_indices(indices.view(f"u{indices.itemsize}"), indptr)
    # Only rows that are not in order need scratch, a number for each column.
    if not ordered and has_duplicates(indices, indptr, np.full(X.shape[1], -1, np.int64)):
        X = X.copy()
        X.sum_duplicates()
    return X


def check_squares(X: Any, dtype: np.dtype[Any], name: str = "X") -> None:
    """Raise a ValueError if sums of squares of the columns of X overflow ``dtype``, or squares of all values vanish.

    Values that are 1e10 times as large as most of about 1000 rows, or of as many entries, are a UserWarning: the digits
    of the others are lost in sums with them.
    """
    values = X.data if sp.issparse(X) else X
    if not values.size:
        return
    largest = max(float(values.max()), -float(values.min()))
    check_largest(largest, X.shape[0], dtype, name)
    part = np.abs(values[:: max(1, len(values) // 1000)])
    typical = float(np.median(part[part > 0])) if part.any() else 0.0
    if typical and largest > 1e10 * typical:
        warnings.warn(
            f"{name} has values of size {largest:.1e}, most are of size {typical:.1e}: scale the features, or "
            "remove the rows that are wrong",
            UserWarning,
            stacklevel=4,
        )


def check_number(
    name: str,
    value: Any,
    *,
    low: float,
    high: float = np.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> None:
    """Raise a ValueError unless ``value`` is a finite number within the bounds."""
    good = not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)
    if good:
        good = (value > low if low_open else value >= low) and (value < high if high_open else value <= high)
    if not good:
        below = f"greater than {low:g}" if low_open else f"at least {low:g}"
        above = "" if np.isinf(high) else f" and {'less than' if high_open else 'at most'} {high:g}"
        raise ValueError(f"{name} must be a finite number {below}{above}, got {value!r}")


#: Largest size of an array that is kept among the parameters of a model.
_PLAIN = 10_000


def plain(value: Any) -> Any:
    """A parameter as a value for JSON; as a string if JSON has no such value, or it would be large."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size <= _PLAIN else f"array of {value.size} numbers"
    return getattr(value, "__name__", None) or str(value)
