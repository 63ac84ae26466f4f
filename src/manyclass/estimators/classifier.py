"""The linear classifier: one objective, any loss, any solver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from manyclass.distributed import Communicator, SerialCommunicator
from manyclass.estimators.base import (
    LinearEstimator,
    check_number,
    check_rows,
    check_sample_weight,
    record_of,
)
from manyclass.estimators.labels import is_indicator, one_class, read_indicator
from manyclass.estimators.path_plot import Scored
from manyclass.estimators.predicting import ClassPredictions, binary_targets
from manyclass.estimators.ranks import all_classes, balanced_weights, mean_beside_all, require_alike, total_weight
from manyclass.kernels.rows import check_sparse
from manyclass.kernels.targets import ClassTargets, SignTargets, Targets
from manyclass.mips import SearchIndex, make_index
from manyclass.models.prune import PruneReport, prune
from manyclass.objective.component import resolve
from manyclass.objective.losses import CLASSIFICATION, ClassificationLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers import SOLVERS, BaseSolver, Solver, StoreSolver
from manyclass.solvers.ds_mlr.on_communicator import communicator_of, on_communicator

__all__ = ["LinearClassifier", "without_intercept"]

#: Classes from which ``fit_intercept="auto"`` leaves the intercept out for sparse rows.
_MANY = 1000


def without_intercept(n_classes: int, sparse: bool) -> bool:
    """Whether ``fit_intercept="auto"`` leaves the intercept out: sparse rows and 1000 classes or more."""
    return sparse and n_classes >= _MANY


def _streams(estimator: LinearClassifier) -> bool:
    solver = estimator.solver
    return bool(getattr(SOLVERS.get(solver) if isinstance(solver, str) else solver, "streams", False))


class LinearClassifier(ClassPredictions, Scored, LinearEstimator):
    """Linear classifier: any of seven losses, l2, l1 or elastic net, stopped on a true duality gap.

    Minimizes ``(1/n) sum_i c_i phi(W^T x_i + b; y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)`` with c_i
    the sample weights scaled to mean 1 and the intercept b free of penalty. scikit-learn's ``C`` is
    ``1 / (alpha * n_samples)``.

    Parameters
    ----------
    loss : str or loss object, default="multinomial"
        What is minimized. For one class a row: "multinomial" (softmax regression), "crammer_singer" (multiclass SVM),
        "softmax_hinge" (its smooth upper bound). One-vs-rest, for label sets as well: "log_loss", "squared_hinge",
        "smooth_hinge", "hinge". A parameter of a loss is one of its object: ``CrammerSinger(gamma=0.0)``. With two
        classes there is one margin and one column of weights.
    alpha : float, "auto" or None, default=None
        Strength of the penalty, > 0. None: 1 / n_samples (1 / the sum of the sample weights), scikit-learn's ``C=1``.
        "auto": chosen on held-out rows along a path from strong to weak, see ``alpha_`` and ``validation_scores_``.
    l1_ratio : float, default=0.0
        Part of the penalty that is l1, in [0, 1]. With 1 (no l2 part) the certificate is that of the pure problem.
    fit_intercept : bool or "auto", default="auto"
        Fit an unpenalized intercept. "auto": yes, except for sparse rows with 1000 classes or more, where it brought
        nothing on held-out rows and slows the fit down, and with solvers that fit none; ``intercept_`` is then zero.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn.
    solver : str or solver object, default="auto"
        How it is minimized. "auto" takes the fastest by measurement for the problem at hand: "sdca_active" for
        crammer_singer with 100 classes or more, "cd" for a penalty with an l1 part and few outputs, "accelerated" where
        the problem is ill-conditioned, "sdca" otherwise; ``solver_`` tells which. The others are described in the
        documentation of solvers. What only one solver understands is a parameter of its object: ``SDCA(option="II")``,
        ``DSMLR(n_workers=4, comm="mpi")``, ``BoundMajorization(rank=8)``.
    tol : float, default=1e-3
        Certified relative duality gap to stop at: (P - D) / max(abs(P), abs(D)), >= 0. Without meaning for a solver
        without certificate ("memoir").
    max_iter : int, optional
        Most iterations (epochs, for a stochastic solver), >= 1: of each call of ``fit`` with ``warm_start``, of all
        calls that go on from one ``checkpoint``. None: 100; 300 for "ds_mlr", 8 for "memoir", 10 for "out_of_core".
    warm_start : bool, default=False
        Start from the state of the previous fit where targets, loss and shapes are the same.
    random_state : int, RandomState or None, default=None
        Of the order of the rows.
    n_jobs : int, optional
        Threads; None is 1, -1 all cores. Never changes the result, except with solvers that say so by name.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Of the weights and of the work; None takes that of X. float32 halves the memory and certifies gaps down to about
        4e-6.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
    sparse_coef_ : CSR matrix of the same shape
    intercept_ : ndarray of shape (n_classes,) or (1,)
    classes_ : ndarray of shape (n_classes,)
    alpha_ : float
        Strength of the penalty used.
    validation_scores_ : dict of float to float
        Accuracy (micro-F1 of label sets) on the held-out rows by alpha, with ``alpha="auto"``; `plot` draws them.
    solver_ : str
        The solver that ran.
    duality_gap_ : float
        Certified relative gap of the fitted model; NaN where the solver gives none.
    objective_ : float
        Objective of the fitted model; NaN where the solver does not compute it.
    n_iter_ : int
        Iterations run.
    history_ : History
        The evaluations of the fit.
    model_ : LinearModel or ShardedModel
        What predicts; ``save`` keeps it. With the solver "out_of_core" its weights are on disk, and ``coef_`` says so.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X had column names

    Raises
    ------
    ValueError
        On parameters out of range, a loss and a solver that do not fit together, targets the loss does not take, fewer
        than two classes, NaN or infinite input.
    MemoryError
        Before anything is allocated, if the fit would not fit into memory.

    References
    ----------
    Shalev-Shwartz and Zhang, "Accelerated proximal stochastic dual coordinate ascent for regularized loss
    minimization", ICML 2014, for the certificate and the default solvers; each solver names its own paper.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import LinearClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LinearClassifier(alpha=1e-3, random_state=0).fit(X / 16, y)
    >>> bool(model.duality_gap_ <= 1e-3)
    True
    >>> classes, scores = model.predict_topk(X[:2] / 16, k=3)
    >>> classes.shape
    (2, 3)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearEstimator._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"}), None],
    }

    def __init__(
        self,
        loss: str | ClassificationLoss = "multinomial",
        *,
        alpha: float | str | None = None,
        l1_ratio: float = 0.0,
        fit_intercept: bool | str = "auto",
        class_weight: Any = None,
        solver: str | Solver = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> LinearClassifier:
        """Fit the model; with a distributed solver, each process calls this with its own rows, or with the same store.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features), or RowStore for the solver "out_of_core"
            Not copied if it is float32 or float64; never densified.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators for a one-vs-rest loss. None for a store, which has them.
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.
        checkpoint : path, optional
            Keeps the state of the fit on disk (a folder with several processes, else a file), written anew at ends of
            iterations and at the end of the fit. Where it holds a fit of the same data, parameters and seed, the fit
            goes on from it, to the same bits; from that of a finished fit (one that met ``tol``) the same call returns
            at once. `save` removes it when the model of a finished fit is on disk. ``max_iter`` counts all iterations,
            those before the fit was resumed too.
        checkpoint_seconds : float, default=60.0
            Least time between two writes.

        Returns
        -------
        LinearClassifier
            Itself. After Ctrl-C too, with the model reached so far.
        """
        with self._job() as (solver, comm):
            if isinstance(solver, StoreSolver):
                from manyclass.estimators.stored import fit_store

                fit_store(self, solver, X, y, sample_weight, checkpoint, comm.rank)
                return self
            problem, facts = self._build(X, y, sample_weight, solver, comm)
            start = None
            if self.alpha == "auto":
                problem, start = self._choose_alpha(problem, solver)
            settings = self._settings()
            if checkpoint is not None:
                settings["checkpoint_seconds"] = checkpoint_seconds
            if comm.rank:
                settings["verbose"] = 0
            result = self._loop(problem, solver, checkpoint, start)(**settings)
            self._keep(problem, result, checkpoint)
            self._finish(result.weights, result.intercept, facts, record_of(result))
            self._certified = result.solver.certified
        return self

    @contextmanager
    def _job(self) -> Iterator[tuple[Any, Communicator]]:
        """The solver asked for, and the processes that run it: an error of one of them ends the others."""
        self._check_parameters()
        solver = self._asked_solver()
        if solver is not None and solver.distributed and self.alpha == "auto":
            raise ValueError(f"alpha='auto' is for solvers of one process, got solver {solver.name!r}: give a number")
        if solver is None or not solver.distributed:
            yield solver, SerialCommunicator()
            return
        comm = communicator_of(solver)
        own = on_communicator(solver, (), comm)
        opened = comm is not solver.comm
        try:
            yield own, comm
        except BaseException as error:
            if opened and comm.size > 1:
                comm.abort(error)
            raise
        if opened:
            comm.close()

    def _loss(self) -> ClassificationLoss:
        return resolve("loss", self.loss, CLASSIFICATION)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._loss()
        self._asked_solver()

    def _build(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        solver: Solver | None = None,
        comm: Communicator | None = None,
    ) -> tuple[Problem, dict[str, Any]]:
        """The problem that the parameters and the data describe, and what the model is to know besides its weights."""
        comm = SerialCommunicator() if comm is None else comm
        X, y = self._check_fit_input(X, y)
        weights = check_sample_weight(sample_weight, X)
        require_alike(comm, X)
        if is_indicator(y):
            task, targets = "multilabel", self._indicator_targets(y)
            two_columns = False
        else:
            y = column_or_1d(y, warn=True)
            check_classification_targets(y)
            self.classes_ = all_classes(comm, y)
            one_class(self.classes_)
            index = np.ascontiguousarray(np.searchsorted(self.classes_, y), np.int32)
            if self.class_weight is not None:
                by_class = balanced_weights(comm, self.class_weight, self.classes_, index)
                weights = by_class[index] * (1.0 if weights is None else weights)
            task = "binary" if len(self.classes_) == 2 else "multiclass"
            two_columns = task == "binary" and solver is not None and not solver.one_margin
            targets = self._label_targets(index, two_columns)
        if solver is not None and solver.distributed:
            solver.scale = mean_beside_all(comm, weights, X.shape[0])
        problem = self._problem(
            X,
            targets,
            self._loss().compiled(task == "binary" and not two_columns),
            weights,
            intercept=self._takes_intercept(sp.issparse(X), solver),
            two_columns=two_columns,
            total=total_weight(comm, weights, X.shape[0]),
        )
        return problem, {"classes": self.classes_, "task": task, "link": self._link(task)}

    def _takes_intercept(self, sparse: bool, solver: BaseSolver | None) -> bool:
        if self.fit_intercept != "auto":
            return bool(self.fit_intercept)
        fits = solver is None or solver.takes_intercept
        return fits and not without_intercept(len(self.classes_), sparse)

    def _link(self, task: str) -> str:
        loss = self._loss()
        if not loss.probabilities:
            return "identity"
        return "softmax" if loss.joint and task != "binary" else "sigmoid"

    def _label_targets(self, index: Array, two_columns: bool) -> Targets:
        K = len(self.classes_)
        if K == 2 and not two_columns:
            return binary_targets(index)
        if self._loss().joint or two_columns:
            return ClassTargets(index, K)
        return SignTargets(np.arange(len(index) + 1, dtype=np.int64), index, K)

    def _indicator_targets(self, y: Any) -> Targets:
        loss = self._loss()
        if loss.joint:
            separable = ", ".join(name for name, other in CLASSIFICATION.items() if not other.joint)
            raise ValueError(
                f"loss {loss.name!r} takes one class per example, and y is a multi-label indicator of shape "
                f"{y.shape}: choose a one-vs-rest loss ({separable})"
            )
        if self.class_weight is not None:
            raise ValueError("class_weight is not defined for multi-label y: use sample_weight")
        self._indicator = y.dtype, bool(sp.issparse(y))
        labels = read_indicator(y)
        self.classes_ = np.arange(labels.shape[1])
        return SignTargets(labels.indptr.astype(np.int64), labels.indices.astype(np.int32), labels.shape[1])

    def _finish(self, W: Any, intercept: Array, facts: dict[str, Any], record: dict[str, Any]) -> None:
        """Make the model; of two columns for two classes their difference, the one margin."""
        if facts["task"] == "binary" and W.shape[1] == 2:
            W, intercept = W[:, 1:] - W[:, :1], intercept[1:] - intercept[:1]
            W = W if sp.issparse(W) else np.ascontiguousarray(W)
        self._stream: Any = None
        self._wrap(W, intercept, record=record, **facts)

    # --- streams ----------------------------------------------------------------------------------------------------

    @available_if(_streams)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LinearClassifier:
        """Learn some rows of a stream, in their order, each once.

        With solvers that stream: "sgd", "bound" (of full rank) and "memoir". No certificate is made, since past rows
        are gone. The first call starts afresh, or, with "memoir", from the model of `fit`; `fit` ends a stream. With
        ``alpha=None`` the penalty is 1/n of the n rows so far, and the steps of "sgd" and "memoir" fall as the inverse
        root of their number.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            The rows.
        y : array of shape (n_samples,)
            Labels, of one sort in all calls.
        classes : array of shape (n_classes,), optional
            All classes there will be, in the first call; by default those of its y. With "memoir" classes may be new at
            any time.
        sample_weight : array of shape (n_samples,), optional
            Non-negative, as they are: the mean of a stream is not known.

        Returns
        -------
        LinearClassifier
            Itself.

        Raises
        ------
        ValueError
            If y has a label that is none of the classes, where they cannot grow, or the classes are not those of the
            first call.
        """
        from manyclass.estimators.stream import take

        self._check_parameters()
        solver = self._asked_solver()
        assert solver is not None  # `_streams`
        first = not hasattr(self, "model_") or (getattr(self, "_stream", None) is None and not solver.grows)
        check_sparse(X)
        X, y = validate_data(
            self, X, column_or_1d(y, warn=True), accept_sparse="csr", dtype=[np.float64, np.float32], reset=first
        )
        check_classification_targets(y)
        if self.class_weight is not None:
            raise ValueError("class_weight is not known for a stream: give sample_weight")
        take(self, solver, check_rows(X), y, classes, check_sample_weight(sample_weight, X), first)
        return self

    # --- after the fit ----------------------------------------------------------------------------------------------

    def prune(self, X: Any, y: Any, *, threshold: float | None = None, max_loss: float = 0.005) -> PruneReport:
        """Drop small weights, and measure what that costs on some rows; use rows that were not fitted.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            The rows.
        y : array of shape (n_samples,)
            Their labels.
        threshold : float, optional
            Weights of at most this magnitude go, >= 0. By default the largest that lowers the accuracy by at most
            ``max_loss``, found by halving.
        max_loss : float, default=0.005
            See above; at least 0.

        Returns
        -------
        PruneReport
            The threshold, and weights, accuracy and macro-F1 before and after. The model is the pruned one.
        """
        check_is_fitted(self, "model_")
        X = self._check_predict_input(X)
        check_number("max_loss", max_loss, low=0.0)
        if threshold is not None:
            check_number("threshold", threshold, low=0.0)
        pruned, report = prune(self.model_, X, column_or_1d(y), threshold, float(max_loss), resolve_n_jobs(self.n_jobs))
        self.model_ = pruned
        self._stream, self._sparsified = None, False
        return report

    def build_index(self, kind: str | SearchIndex = "exact") -> SearchIndex:
        """An index of the fitted weights, for rankings by `predict_topk` with measured recall (``index.recall(X, k)``).

        Parameters
        ----------
        kind : {"exact", "lsh", "graph"} or SearchIndex, default="exact"
            ``exact``: `manyclass.mips.ExactSearch`, pruned by bounds where the weights are sparse.

        Returns
        -------
        SearchIndex
            Built on a copy of the weights.
        """
        check_is_fitted(self, "model_")
        return make_index(kind).build(self.model_.weights, n_jobs=self.n_jobs)

    def predict_topk(self, X: Any, k: int = 5, *, index: SearchIndex | None = None) -> tuple[Array, Array]:
        """The k best classes of each row and their scores, best first.

        Never holds an n_samples x n_classes array.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.
        k : int, default=5
            How many, 1 to the number of classes.
        index : SearchIndex, optional
            What `build_index` made, to search instead of scoring all classes.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Classes.
        scores : ndarray of shape (n_samples, k)
            Their scores.
        """
        if index is None:
            return super().predict_topk(X, k)
        numbers, scores = index.query(self._check_predict_input(X), k, n_jobs=self.n_jobs)
        return np.asarray(self.classes_[numbers]), scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        known = CLASSIFICATION.get(self.loss) if isinstance(self.loss, str) else type(self.loss)
        tags.classifier_tags.multi_label = not getattr(known, "joint", True)
        return tags
