"""Softmax regression with rows and classes partitioned over workers."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from manyclass.distributed import Communicator, SerialCommunicator
from manyclass.estimators.base import LinearEstimator, _number
from manyclass.estimators.predicting import ClassPredictions
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import Multinomial
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.loop import Result
from manyclass.solvers import DSMLR, Solver
from manyclass.solvers.ds_mlr import ALGORITHMS, PRECONDITIONERS, SCHEDULES

__all__ = ["DSMLRClassifier"]


class DSMLRClassifier(ClassPredictions, LinearEstimator):
    """Multinomial logistic regression on workers that share out rows and classes (DS-MLR), stopped on a duality gap.

    Minimises ``(1/n) sum_i c_i log(1/p(y_i | x_i)) + (alpha/2) ||W||^2`` with c_i the sample weights scaled to mean 1
    and an intercept free of penalty, as `SDCAClassifier` with ``loss="multinomial"`` does: the optimum is the same.

    Neither the data nor the model is whole anywhere: a worker has a part of the rows and, at any time, some blocks of
    classes. Workers are threads of this process, or of several (``comm``), each of which calls `fit` with its own rows;
    on every process the model is the same.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, > 0.
    n_workers : int
        Threads of each process that are workers.
    schedule : {"ring", "queue"}
        ring: blocks of classes go round in step; the number of workers does not change the result beyond rounding, as
        long as it does not change the blocks (see ``block_classes``). queue: workers take what has come, and none waits
        for a slow one in the first phase; not reproducible.
    comm : Communicator, "mpi" or None
        Of the processes. "mpi": all of the job (``mpiexec -n 4 python -m mpi4py ...``). None: there is one.
    block_classes : int, optional
        Most classes of a block. None: at least 16, in up to 12 blocks; or as many blocks as workers, where that is
        more.
    n_shards : int, optional
        In how many parts the rows are cut. None: 12, or one for each worker.
    algorithm : {"two_phase", "stochastic", "printed"}
        two_phase: stochastic steps for a fast start, then L-BFGS, all of it partitioned. The others are for comparison:
        the first phase alone, and the paper's algorithms 1 and 2, which stall.
    start : int, optional
        Iterations of the first phase. None: 2, or none where L-BFGS begins with a spectrum.
    eta0 : float
        Size of the stochastic steps, > 0; 1 is the largest with which no example overshoots.
    memory : int
        Pairs that L-BFGS keeps; each takes twice the memory of the weights.
    keep_scores : bool, optional
        Keep 2 n K / P scores for each of P workers. False: make them anew, at three times the work. None: where they
        fit.
    precondition : {"auto", "spectrum", "diagonal", "none"}
        What the recursion of L-BFGS begins with. spectrum: the inverse of the features' second moments, scaled for each
        class: d^2 numbers on every process, and far fewer iterations where features are correlated. diagonal: the
        inverse of the Hessian's diagonal, as much memory as the weights; fewer iterations where features or classes
        are of very different frequency. none: neither. auto: spectrum with fewer than 1000 features, else diagonal.
    tol : float
        Certified relative duality gap to stop at: (P - D) / max(|P|, |D|).
    max_iter : int
        Most iterations.
    fit_intercept : bool
        Fit an unpenalised intercept.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn.
    random_state : int, RandomState or None
        Of the order of the examples in the first phase. With several processes, an int.
    checkpoint : path, optional
        Folder that keeps the state of the fit, written anew at ends of iterations; all processes must see it. Where it
        holds one of the same problem, the fit goes on from it, with any number of processes and workers. Removed at the
        end of a fit that met ``tol``.
    checkpoint_seconds : float
        Least time between two writes.
    n_jobs : int, optional
        Threads of predictions.
    warm_start : bool
        Start from the weights of the previous fit where targets and shapes are the same.
    dtype : {None, numpy.float32, numpy.float64}
        Of the weights and of the work; None takes that of X.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
    intercept_ : ndarray of shape (n_classes,) or (1,)
    classes_ : ndarray of shape (n_classes,)
        Of all processes.
    duality_gap_ : float
        Certified relative gap of the fitted model.
    objective_ : float
        Objective of the fitted model.
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
        On parameters out of range, fewer than two classes, NaN or infinite input, processes whose data do not fit
        together.
    MemoryError
        Before anything is allocated, if the fit would not fit into memory.

    References
    ----------
    Raman, Srinivasan, Matsushima, Zhang, Yun and Vishwanathan, "Scaling multinomial logistic regression via hybrid
    parallelism", KDD 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import DSMLRClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DSMLRClassifier(alpha=1e-3, n_workers=2, random_state=0).fit(X / 16, y)
    >>> bool(model.duality_gap_ <= 1e-3)
    True
    """

    # What `LinearEstimator` asks for besides the parameters.
    loss = "multinomial"
    solver = "auto"
    option = "I"
    sampling = "permutation"
    l1_ratio = 0.0

    def __init__(
        self,
        alpha: float = 1e-4,
        *,
        n_workers: int = 1,
        schedule: str = "ring",
        comm: Any = None,
        block_classes: int | None = None,
        n_shards: int | None = None,
        algorithm: str = "two_phase",
        start: int | None = None,
        eta0: float = 1.0,
        memory: int = 10,
        keep_scores: bool | None = None,
        precondition: str = "auto",
        tol: float = 1e-3,
        max_iter: int = 300,
        fit_intercept: bool = True,
        class_weight: Any = None,
        random_state: Any = None,
        checkpoint: Any = None,
        checkpoint_seconds: float = 60.0,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.n_workers = n_workers
        self.schedule = schedule
        self.comm = comm
        self.block_classes = block_classes
        self.n_shards = n_shards
        self.algorithm = algorithm
        self.start = start
        self.eta0 = eta0
        self.memory = memory
        self.keep_scores = keep_scores
        self.precondition = precondition
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.dtype = dtype
        self.verbose = verbose

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DSMLRClassifier:
        """Fit the model; with several processes, each calls this with its own rows.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Not copied if it is float32 or float64; never densified.
        y : array of shape (n_samples,)
            Labels of any sortable type; numbers or strings where there are several processes.
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        DSMLRClassifier
            Itself.
        """
        self._check_parameters()
        # First of all: what is wrong with the rows of one process must reach the others.
        comm = self._comm = self._communicator()
        try:
            self._fit(X, y, sample_weight)
        except BaseException as error:
            if comm is not self.comm and comm.size > 1:
                comm.abort(error)
            raise
        finally:
            del self._comm  # what is fitted can be pickled
        if comm is not self.comm:
            comm.close()
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        problem, facts = self._build(X, y, sample_weight)
        verbose, self.verbose = self.verbose, self.verbose if self._comm.rank == 0 else 0
        try:
            result = self._minimise(problem)
        finally:
            self.verbose = verbose
        if problem.n_outputs == 2:
            result = _one_margin(result)
        self._wrap(result, **facts)

    def _build(self, X: Any, y: Any, sample_weight: Any) -> tuple[Problem, dict[str, Any]]:
        X, y = self._check_fit_input(X, y)
        weights = self._weights(sample_weight, X)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        comm = self._comm
        _require_alike(comm, X)
        self.classes_ = _all_classes(comm, y)
        K = len(self.classes_)
        if K < 2:
            raise ValueError(
                f"y holds one class only ({self.classes_[0]!r}); a classifier needs examples of at least 2 classes"
            )
        index = np.ascontiguousarray(np.searchsorted(self.classes_, y), np.int32)
        if self.class_weight is not None:
            by_class = self._class_weights(comm, index)
            weights = by_class[index] * (1.0 if weights is None else weights)
        self._scale = _mean_beside_all(comm, weights, len(index))
        problem = self._problem(X, ClassTargets(index, K), Multinomial(), weights)
        if K == 2:
            # Two columns w and -w have half the penalty of their difference 2w, which is the one margin.
            problem = replace(problem, lam=2.0 * problem.lam)
        return problem, {
            "classes": self.classes_,
            "task": "binary" if K == 2 else "multiclass",
            "link": "sigmoid" if K == 2 else "softmax",
        }

    def _class_weights(self, comm: Communicator, index: Array) -> Array:
        if comm.size > 1 and self.class_weight == "balanced":
            counts = comm.allreduce(np.bincount(index, minlength=len(self.classes_)))
            return np.asarray(counts.sum() / (len(counts) * counts))
        labels = self.classes_ if comm.size > 1 else self.classes_[index]
        return np.asarray(compute_class_weight(self.class_weight, classes=self.classes_, y=labels))

    def _communicator(self) -> Communicator:
        if self.comm is None:
            return SerialCommunicator()
        if isinstance(self.comm, str):
            from manyclass.distributed.mpi import MPICommunicator

            return MPICommunicator()
        return self.comm  # type: ignore[no-any-return]

    def _keeping(self) -> dict[str, Any]:
        return {"checkpoint": self.checkpoint, "checkpoint_seconds": float(self.checkpoint_seconds)}

    def _maker(self, problem: Problem) -> Callable[[Problem], Solver]:
        return lambda part: DSMLR(
            n_workers=int(self.n_workers),
            schedule=self.schedule,
            comm=self._comm,
            block_classes=self.block_classes,
            n_shards=self.n_shards,
            algorithm=self.algorithm,
            start=self.start,
            eta0=float(self.eta0),
            memory=int(self.memory),
            keep_scores=self.keep_scores,
            precondition=self.precondition,
            scale=self._scale,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _number("eta0", self.eta0, low=0.0, low_open=True)
        _number("checkpoint_seconds", self.checkpoint_seconds, low=0.0)
        counts: tuple[tuple[str, Any, int, bool], ...] = (
            ("n_workers", self.n_workers, 1, False),
            ("block_classes", self.block_classes, 1, True),
            ("n_shards", self.n_shards, 1, True),
            ("start", self.start, 0, True),
            ("memory", self.memory, 1, False),
        )
        for name, value, least, optional in counts:
            if value is None and optional:
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
                other = " or None" if optional else ""
                raise ValueError(f"{name} must be an integer of at least {least}{other}, got {value!r}")
        for name, known in (
            ("schedule", SCHEDULES),
            ("algorithm", ALGORITHMS),
            ("precondition", PRECONDITIONERS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}")
        if not (self.comm is None or self.comm == "mpi" or isinstance(self.comm, Communicator)):
            raise ValueError(f"comm must be a Communicator, 'mpi' or None, got {self.comm!r}")
        if self.keep_scores not in (None, True, False):
            raise ValueError(f"keep_scores must be True, False or None, got {self.keep_scores!r}")


def _one_margin(result: Result) -> Result:
    """Of two classes, the column of their difference."""
    W, b = result.weights, result.intercept
    return replace(result, weights=np.ascontiguousarray(W[:, 1:] - W[:, :1]), intercept=b[1:] - b[:1])


def _require_alike(comm: Communicator, X: Any) -> None:
    """Refuse, on every process, rows of different widths or types."""
    if comm.size == 1:
        return
    facts = np.array([X.shape[1], X.dtype.itemsize], np.int64)
    most, least = comm.allreduce(facts, "max"), -comm.allreduce(-facts, "max")
    if (most != least).any():
        raise ValueError(
            f"every process must have rows of the same number of features and the same dtype; this one has "
            f"{X.shape[1]} of {X.dtype}, others from {least[0]} to {most[0]}"
        )


def _all_classes(comm: Communicator, y: Array) -> Array:
    """The labels of all processes, sorted."""
    own = np.unique(y)
    if comm.size == 1:
        return own
    # What they have in common: numbers of a kind, or strings as long as the longest. Not objects: nothing is pickled.
    if own.dtype.kind == "O":
        own = own.astype(str)
    kinds = np.zeros(128, np.int64)
    kinds[ord(own.dtype.kind)] = own.dtype.itemsize
    sizes = comm.allreduce(kinds, "max")
    found = [chr(kind) for kind in np.flatnonzero(sizes)]
    if len(found) > 1 and not set(found) <= set("iub"):
        raise ValueError(f"every process must have labels of the same type, got the kinds {', '.join(found)}")
    dtype = np.dtype(f"{found[0]}{sizes.max() // (4 if found[0] == 'U' else 1)}") if len(found) == 1 else np.int64
    own = np.ascontiguousarray(own.astype(dtype))
    counts = np.zeros(comm.size, np.int64)
    counts[comm.rank] = len(own)
    counts = comm.allreduce(counts)
    # Every process puts its bytes in their place among zeros.
    size = own.dtype.itemsize
    table = np.zeros(int(counts.sum()) * size, np.int64)
    at = int(counts[: comm.rank].sum()) * size
    table[at : at + len(own) * size] = own.view(np.uint8).reshape(-1)
    together = comm.allreduce(table).astype(np.uint8).view(own.dtype)
    return np.unique(together)


def _mean_beside_all(comm: Communicator, weights: Array | None, n: int) -> float:
    """The mean of this process's sample weights where that of all of them is 1."""
    if comm.size == 1:
        return 1.0
    total = float(n) if weights is None else float(np.sum(weights))
    whole, rows = comm.allreduce(np.array([total, float(n)])).tolist()
    return float((total / n) / (whole / rows))
