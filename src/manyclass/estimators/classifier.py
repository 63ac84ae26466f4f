"""`LinearClassifier`."""

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

#: Number of classes from which ``fit_intercept="auto"`` fits no intercept for sparse rows.
_MANY = 1000


def without_intercept(n_classes: int, sparse: bool) -> bool:
    """Whether ``fit_intercept="auto"`` fits no intercept: sparse rows and 1000 classes or more."""
    return sparse and n_classes >= _MANY


def _streams(estimator: LinearClassifier) -> bool:
    solver = estimator.solver
    return bool(getattr(SOLVERS.get(solver) if isinstance(solver, str) else solver, "streams", False))


class LinearClassifier(ClassPredictions, Scored, LinearEstimator):
    """Linear classifier with any of seven losses and an l2, l1 or elastic net penalty, stopped by the duality gap.

    Minimizes ``(1/n) sum_i c_i phi(W^T x_i + b; y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)``, where c_i
    are the sample weights scaled to mean 1, and the intercept b is not penalized. scikit-learn's ``C`` is
    ``1 / (alpha * n_samples)``.

    Parameters
    ----------
    loss : str or loss object, default="multinomial"
        The loss phi. For one class per row: "multinomial" (softmax regression), "crammer_singer" (multiclass SVM),
        "softmax_hinge" (a smooth upper bound of it). One-vs-rest, also for multilabel y: "log_loss", "squared_hinge",
        "smooth_hinge", "hinge". Parameters of a loss are those of its object: ``CrammerSinger(gamma=0.0)``. Two classes
        have one score and one column of weights.
    alpha : float, "auto" or None, default=None
        Strength of the penalty, > 0. None: 1 / n_samples (1 / the sum of the sample weights), scikit-learn's ``C=1``.
        "auto": chosen on a fifth of the rows by three to six short fits, see ``alpha_`` and ``validation_scores_``.
    l1_ratio : float, default=0.0
        Fraction of the penalty that is l1, in [0, 1]; 0 is l2, 1 is l1.
    fit_intercept : bool or "auto", default="auto"
        Whether to fit an unpenalized intercept. "auto": yes, except for sparse rows with 1000 classes or more, where it
        made fits slower but not more accurate, and with solvers that cannot fit one; ``intercept_`` is then zero.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    solver : str or solver object, default="auto"
        The algorithm. "auto" chooses, by measured times, "sdca_active" for crammer_singer with 100 classes or more,
        "cd" for a penalty with an l1 part and few outputs, "accelerated" for an ill-conditioned problem, and else
        "sdca"; see ``solver_``. The documentation of solvers describes the others. Parameters of a solver are those of
        its object: ``SDCA(option="II")``, ``DSMLR(n_workers=4, comm="mpi")``, ``BoundMajorization(rank=8)``.
    tol : float, default=1e-3
        Relative duality gap at which the fit stops, (P - D) / max(abs(P), abs(D)), >= 0. Ignored by "memoir", which
        computes no duality gap.
    max_iter : int, optional
        Maximum number of iterations (epochs, for a stochastic solver), >= 1: of each call of ``fit`` with
        ``warm_start``, of all calls together that resume one ``checkpoint``. None: 100; 300 for "accelerated",
        "sdca_active", "newton" and "ds_mlr", 8 for "memoir", 10 for "out_of_core".
    warm_start : bool, default=False
        Whether to start from the state of the previous fit if targets, loss and shapes are the same.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows.
    n_jobs : int, optional
        Number of threads: None means 1, -1 all cores. Does not change the result, except with solvers whose
        documentation says so.
    dtype : {None, numpy.float32, numpy.float64}, default=None
        Type of the weights and of the computations; None uses that of X. float32 halves the memory and can certify gaps
        down to about 4e-6.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights.
    sparse_coef_ : CSR matrix of the same shape
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    alpha_ : float
        Strength of the penalty used.
    validation_scores_ : dict of float to float
        Accuracy (micro-F1 for multilabel y) on the held-out rows by alpha, with ``alpha="auto"``; see `plot`.
    solver_ : str
        Solver used.
    duality_gap_ : float
        Relative duality gap of the fitted model; NaN if the solver computes none.
    objective_ : float
        Objective of the fitted model; NaN if the solver does not compute it.
    n_iter_ : int
        Number of iterations.
    history_ : History
        The evaluations of the fit.
    model_ : LinearModel or ShardedModel
        The fitted model. With the solver "out_of_core" its weights are on disk, and ``coef_`` is an error.
    n_features_in_, feature_names_in_
        As in scikit-learn; the latter if X had column names.

    Raises
    ------
    ValueError
        If a parameter is out of range, the solver does not support the loss or the penalty, the loss does not support
        the targets, y has fewer than two classes, or the input has NaN or infinity.
    MemoryError
        If the fit would need more memory than is available; raised before anything is allocated.

    See Also
    --------
    LinearClassifierCV : Chooses alpha and l1_ratio by cross-validation.
    LinearRegressor : The same for regression.

    References
    ----------
    Shalev-Shwartz and Zhang, "Accelerated proximal stochastic dual coordinate ascent for regularized loss
    minimization", ICML 2014, for the duality gap and the default solvers; other solvers cite their own papers.

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
        """Fit the model. With a distributed solver, each process calls this with its own rows, or with the same store.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features), or RowStore for the solver "out_of_core"
            Rows, finite. Not copied if float32 or float64; never densified.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators for a one-vs-rest loss. None for a store, which has them.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; an integer weight is equivalent to that many copies of the row.
        checkpoint : path, optional
            Where to save the state of the fit (a folder with several processes, else a file), after iterations and at
            the end. If it contains the state of a fit with the same data, parameters and seed, the fit is resumed from
            it, with the same result to the last bit; a finished fit (one that reached ``tol``) returns at once. `save`
            removes it after it has written the model of a finished fit. ``max_iter`` includes the iterations before the
            fit was resumed.
        checkpoint_seconds : float, default=60.0
            Minimum time between two checkpoints in seconds.

        Returns
        -------
        LinearClassifier
            The fitted estimator; after Ctrl-C, with the model reached so far.
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
        """The solver (None for "auto") and its communicator; an error in one process ends the others."""
        self._check_parameters()
        solver = self._asked_solver()
        if solver is not None and solver.distributed and self.alpha == "auto":
            raise ValueError(
                f"alpha='auto' is not supported by distributed solvers, got solver {solver.name!r}: pass a number"
            )
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
        """The problem for the parameters and the data, and the fields of the model besides its weights."""
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
            separable = ", ".join(repr(name) for name, other in CLASSIFICATION.items() if not other.joint)
            raise ValueError(
                f"loss {loss.name!r} takes one class per row, and y is a multi-label indicator of shape "
                f"{y.shape}: choose a one-vs-rest loss ({separable})"
            )
        if self.class_weight is not None:
            raise ValueError("class_weight is not defined for multi-label y: use sample_weight")
        self._indicator = y.dtype, bool(sp.issparse(y))
        labels = read_indicator(y)
        self.classes_ = np.arange(labels.shape[1])
        return SignTargets(labels.indptr.astype(np.int64), labels.indices.astype(np.int32), labels.shape[1])

    def _finish(self, W: Any, intercept: Array, facts: dict[str, Any], record: dict[str, Any]) -> None:
        """Set the model; two columns for two classes are replaced by their difference."""
        if facts["task"] == "binary" and W.shape[1] == 2:
            W, intercept = W[:, 1:] - W[:, :1], intercept[1:] - intercept[:1]
            W = W if sp.issparse(W) else np.ascontiguousarray(W)
        self._stream: Any = None
        self._wrap(W, intercept, record=record, **facts)

    # --- partial_fit ------------------------------------------------------------------------------------------------

    @available_if(_streams)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LinearClassifier:
        """Update the model with a batch of rows, in one pass in the given order.

        Supported by the solvers "sgd", "bound" (of full rank) and "memoir". No duality gap is computed, because earlier
        batches are not available. The first call after `fit` starts a new model, or, with "memoir", continues from that
        of `fit`. With ``alpha=None`` the penalty is 1/n for the n rows so far, and the step sizes of "sgd" and "memoir"
        decrease as the inverse square root of the number of steps.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows, finite.
        y : array of shape (n_samples,)
            Labels, of the same type in all calls.
        classes : array of shape (n_classes,), optional
            All classes that will occur, in the first call; by default those in its y. With "memoir", new classes may
            occur in any call.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; not scaled, because the mean over all batches is not known.

        Returns
        -------
        LinearClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If y has an unknown label and the solver cannot add classes, or ``classes`` differs from the first call.
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
            raise ValueError("class_weight is not supported by partial_fit: pass sample_weight")
        take(self, solver, check_rows(X), y, classes, check_sample_weight(sample_weight, X), first)
        return self

    # --- after the fit ----------------------------------------------------------------------------------------------

    def prune(self, X: Any, y: Any, *, threshold: float | None = None, max_loss: float = 0.005) -> PruneReport:
        """Remove small weights of the model, and measure accuracy before and after on the given rows.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows that were not used in the fit.
        y : array of shape (n_samples,)
            Their labels.
        threshold : float, optional
            Weights of at most this magnitude are removed, >= 0. By default the largest threshold, found by bisection,
            that lowers the accuracy by at most ``max_loss``.
        max_loss : float, default=0.005
            Largest decrease of the accuracy, >= 0.

        Returns
        -------
        PruneReport
            The threshold, and the number of weights, accuracy and macro-F1 before and after.
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
        """Build an index of the fitted weights for `predict_topk`; ``index.recall(X, k)`` measures its recall.

        Parameters
        ----------
        kind : {"exact", "lsh", "graph"} or SearchIndex, default="exact"
            `manyclass.mips.ExactSearch`, `SimpleLSH`, `SmallWorldGraph`, or an index with options.

        Returns
        -------
        SearchIndex
            An index built on a copy of the weights.
        """
        check_is_fitted(self, "model_")
        return make_index(kind).build(self.model_.weights, n_jobs=self.n_jobs)

    def predict_topk(self, X: Any, k: int = 5, *, index: SearchIndex | None = None) -> tuple[Array, Array]:
        """The k classes with the largest scores of each row, best first.

        Memory does not grow with n_samples x n_classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.
        k : int, default=5
            Number of classes, from 1 to the number of classes of the model.
        index : SearchIndex, optional
            An index from `build_index`, which is searched instead of scoring all classes.

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
