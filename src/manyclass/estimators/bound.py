"""Softmax regression by bound majorisation."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from manyclass._version import __version__
from manyclass.estimators.base import LinearEstimator, _as_rows, _number, _plain
from manyclass.estimators.predicting import ClassPredictions, binary_targets
from manyclass.kernels.rows import check_sparse, make_rows
from manyclass.kernels.targets import ClassTargets, Targets
from manyclass.models.linear import LinearModel
from manyclass.objective.losses import LogLoss, Multinomial
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.memory import require
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers import BatchBound, BoundMajorization, Solver
from manyclass.solvers.bound.forms import KroneckerForm
from manyclass.solvers.bound.labels import ORDERS
from manyclass.solvers.bound.majorization import SCHEDULES, reduced_size
from manyclass.solvers.bound.steps import Stream

__all__ = ["BoundMajorizationClassifier"]

#: Parameters up to which ``rank=None`` takes the full curvature: 128 MB of it, and a second or two for its factor.
_FULL = 4000
#: The rank it takes beyond.
_RANK = 8


def _keeps_sums(estimator: BoundMajorizationClassifier) -> bool:
    """Sums of bounds are of full rank here: a number for a rank asks for less."""
    return estimator.rank in (None, "full")


class BoundMajorizationClassifier(ClassPredictions, LinearEstimator):
    """Multinomial logistic regression by bound majorisation, stopped on a true duality gap.

    Minimises ``(1/n) sum_i c_i log(1/p(y_i | x_i)) + (alpha/2) ||W||^2`` with c_i the sample weights scaled to mean 1
    and an intercept free of penalty, as `SDCAClassifier` with ``loss="multinomial"`` does: the optimum is the same.
    With two classes there is one margin and one column of weights.

    The curvature of a step comes from a quadratic that lies above the log-partition function everywhere and touches it
    at the point. Nothing is to be tuned; a handful of iterations, each at the cost of the curvature, reach any
    accuracy. That pays where there are few parameters (up to a few thousand) and the problem is ill-conditioned.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, > 0.
    stochastic : bool
        True: `BoundMajorization`. False: `BatchBound`, the plain batch method: monotone, linear, slow at the end.
    rank : int, "full" or None
        Of the curvature. "full": all (d K)^2 numbers; k: k directions and a diagonal, k + 1 numbers a weight. None:
        full up to 4000 parameters, 8 beyond. ``rank_`` says which it was.
    batch_size : int, optional
        Examples of a stochastic step of the first pass. None: as many as make the step cost what its examples do; 1 is
        the paper's choice.
    eta : float
        Length of the steps in (0, 2), where no search is made: with ``stochastic=False`` and the schedules "restart"
        and "literal".
    schedule : {"tightening", "restart", "literal"}
        What follows the first pass, see `BoundMajorization`. The last two are the paper's and, reset in each pass, a
        variant of it; for comparison.
    order : {"ascending", "descending", "given"}
        In which order the bound takes the labels: by score, lowest or highest first, or as they are numbered.
    tol : float
        Certified relative duality gap to stop at: (P - D) / max(|P|, |D|).
    max_iter : int
        Most iterations.
    fit_intercept : bool
        Fit an unpenalised intercept.
    random_state : int, RandomState or None
        Of the batches of stochastic passes.
    n_jobs : int, optional
        Threads. Never changes the result.
    warm_start : bool
        Start from the weights of the previous fit where targets and shapes are the same.
    dtype : {None, numpy.float32, numpy.float64}
        Of the weights; curvature and search are float64 always. None takes that of X.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
    intercept_ : ndarray of shape (n_classes,) or (1,)
    classes_ : ndarray of shape (n_classes,)
    rank_ : int or "full"
        Of the curvature used.
    duality_gap_ : float
        Certified relative gap of the fitted model; not after `partial_fit`.
    objective_ : float
        Objective of the fitted model; not after `partial_fit`.
    n_iter_ : int
        Iterations run.
    history_ : History
        The evaluations of the fit.
    model_ : LinearModel
        What predicts; ``model_.save(path)`` keeps it.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X had column names

    Raises
    ------
    ValueError
        On parameters out of range, fewer than two classes, NaN or infinite input.
    MemoryError
        Before anything is allocated, if the curvature would not fit into memory.

    References
    ----------
    Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012. Choromanska and Jebara,
    "Stochastic bound majorization", arXiv:1309.5605.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import BoundMajorizationClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BoundMajorizationClassifier(alpha=1e-3, tol=1e-8, random_state=0).fit(X, y)
    >>> model.rank_, bool(model.duality_gap_ <= 1e-8), model.n_iter_ <= 12
    ('full', True, True)
    """

    # What `LinearEstimator` asks for besides the parameters.
    loss = "multinomial"
    solver = "bound"
    option = "I"
    sampling = "permutation"
    l1_ratio = 0.0
    rank_: int | str
    _stream: Stream | None

    def __init__(
        self,
        alpha: float = 1e-4,
        *,
        stochastic: bool = True,
        rank: int | str | None = None,
        batch_size: int | None = None,
        eta: float = 1.0,
        schedule: str = "tightening",
        order: str = "ascending",
        tol: float = 1e-4,
        max_iter: int = 100,
        fit_intercept: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.stochastic = stochastic
        self.rank = rank
        self.batch_size = batch_size
        self.eta = eta
        self.schedule = schedule
        self.order = order
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.dtype = dtype
        self.verbose = verbose

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BoundMajorizationClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Not copied if it is float32 or float64; of sparse rows a few at a time are made dense where that is faster.
        y : array of shape (n_samples,)
            Labels of any sortable type.
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        BoundMajorizationClassifier
            Itself.
        """
        problem, facts = self._build(X, y, sample_weight)
        self._wrap(self._minimise(problem), **facts)
        self._stream = None
        return self

    @available_if(_keeps_sums)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> BoundMajorizationClassifier:
        """Take in some examples of a stream, in their order, each once.

        The curvatures of all examples so far are kept as one sum (bounds at first, then ever more of the Hessian), and
        each batch moves the weights by its inverse times the gradient of the batch. On a stream of independent examples
        the weights approach those of the optimum; no certificate is made, since past examples are gone. `fit` ends a
        stream. There for the full curvature only: not where ``rank`` is a number.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        classes : array of shape (n_classes,), optional
            All classes there will be; in the first call, or those of its y.
        sample_weight : array of shape (n_samples,), optional
            Non-negative, as they are: the mean of a stream is not known.

        Returns
        -------
        BoundMajorizationClassifier
            Itself.

        Raises
        ------
        ValueError
            If y has a label that is none of the classes, or the classes are not those of the first call.
        MemoryError
            If the full curvature would not fit into memory.
        """
        self._check_parameters()
        stream = getattr(self, "_stream", None)
        first = stream is None
        check_sparse(X)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=first)
        X = _as_rows(X)
        weights = self._weights(sample_weight, X)
        index = self._stream_index(column_or_1d(y, warn=True), classes, first)
        K = len(self.classes_)
        form = KroneckerForm(
            make_rows(X),
            index,
            1 if K == 2 else K,
            np.ones(len(index)) if weights is None else weights,
            n_features=X.shape[1],
            constant=1.0 if self.fit_intercept else 0.0,
            binary=K == 2,
            n_threads=resolve_n_jobs(self.n_jobs),
        )
        if stream is None:
            require({"curvature": 3 * 8 * form.reduced**2}, "fewer features, or fit with rank=8")
            self._stream = stream = Stream(form)
            self._dtype = np.dtype(X.dtype if self.dtype is None else self.dtype)
        stream.take(form, float(self.alpha), self.order, self.batch_size)
        self.rank_ = "full"
        point = stream.point
        names = getattr(self, "feature_names_in_", None)
        parameters = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        self._sparsified = False
        self.model_ = LinearModel(
            weights=np.ascontiguousarray(point[:-1], self._dtype),
            intercept=np.ascontiguousarray(form.constant * point[-1], self._dtype),
            classes=self.classes_,
            task="binary" if K == 2 else "multiclass",
            link="sigmoid" if K == 2 else "softmax",
            parameters={"estimator": type(self).__name__, **parameters},
            record={"outcome": "stream", "n_seen": int(stream.seen)},
            feature_names=None if names is None else np.asarray(names, dtype=str),
            library_version=__version__,
        )
        for name in ("duality_gap_", "objective_", "n_iter_", "history_"):
            self.__dict__.pop(name, None)
        return self

    def _stream_index(self, y: Array, classes: Any, first: bool) -> Array:
        """The class numbers of some labels of a stream; the first call settles the classes."""
        check_classification_targets(y)
        if first:
            self.classes_ = np.unique(y if classes is None else np.asarray(classes))
            if len(self.classes_) < 2:
                raise ValueError(
                    f"a classifier needs at least 2 classes, got {self.classes_.tolist()}: name all classes of the "
                    "stream in the first call of partial_fit"
                )
        elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(
                f"classes must be those of the first call, {self.classes_.tolist()}, got {np.unique(classes).tolist()}"
            )
        index = np.searchsorted(self.classes_, y)
        index[index == len(self.classes_)] = 0
        strange = np.flatnonzero(self.classes_[index] != y)
        if len(strange):
            raise ValueError(
                f"y has the label {y[strange[:1]].tolist()[0]!r} in row {strange[0]}, which is none of the classes "
                f"{self.classes_.tolist()}: name all classes of the stream in the first call of partial_fit"
            )
        return index.astype(np.int64)

    def _build(self, X: Any, y: Any, sample_weight: Any) -> tuple[Problem, dict[str, Any]]:
        self._check_parameters()
        X, y = self._check_fit_input(X, y)
        weights = self._weights(sample_weight, X)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        index = np.ascontiguousarray(index.reshape(-1), np.int32)
        K = len(self.classes_)
        if K < 2:
            raise ValueError(
                f"y holds one class only ({self.classes_[0]!r}); a classifier needs examples of at least 2 classes"
            )
        targets: Targets = binary_targets(index) if K == 2 else ClassTargets(index, K)
        facts = {
            "classes": self.classes_,
            "task": "binary" if K == 2 else "multiclass",
            "link": "sigmoid" if K == 2 else "softmax",
        }
        return self._problem(X, targets, LogLoss() if K == 2 else Multinomial(), weights), facts

    def _maker(self, problem: Problem) -> Callable[[Problem], Solver]:
        if not self.stochastic:
            self.rank_ = "full"
            return lambda part: BatchBound(eta=float(self.eta), order=self.order)
        rank: Any = self.rank
        if rank is None:
            rank = "full" if reduced_size(problem) <= _FULL or self.schedule != "tightening" else _RANK
        self.rank_ = rank
        return lambda part: BoundMajorization(
            schedule=self.schedule,
            batch_size=self.batch_size,
            eta=float(self.eta),
            order=self.order,
            rank=None if isinstance(rank, str) else int(rank),
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _number("eta", self.eta, low=0.0, high=2.0, low_open=True, high_open=True)
        counts: tuple[tuple[str, Any], ...] = (("rank", self.rank), ("batch_size", self.batch_size))
        for name, value in counts:
            if value is None or (name == "rank" and isinstance(value, str) and value == "full"):
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
                other = "'full' or None" if name == "rank" else "or None"
                raise ValueError(f"{name} must be an integer of at least 1, {other}, got {value!r}")
        for name, known in (("schedule", SCHEDULES), ("order", ORDERS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}")
        if self.rank not in (None, "full") and (not self.stochastic or self.schedule != "tightening"):
            raise ValueError(
                f"rank={self.rank!r} goes with stochastic=True and schedule='tightening': the others are of full rank"
            )
