"""`LinearClassifier`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d, validate_data

from manyclass.distributed import Communicator, SerialCommunicator, opened
from manyclass.distributed.agreement import require_same
from manyclass.estimators.base import check_rows, check_sample_weight, record_of
from manyclass.estimators.frames import check_frame, plain_labels
from manyclass.estimators.labels import check_labels, is_indicator, one_class, read_indicator, with_distinct
from manyclass.estimators.path_plot import Scored
from manyclass.estimators.pixels import advised
from manyclass.estimators.predicting import IndexedPredictions, binary_targets
from manyclass.estimators.prior import with_prior
from manyclass.estimators.ranks import all_classes, balanced_weights, mean_beside_all, require_alike, total_weight
from manyclass.estimators.soft import is_soft, refuse_indicator, soft_problem
from manyclass.estimators.watched import Watch, WatchedEstimator
from manyclass.kernels.rows import check_sparse
from manyclass.kernels.targets import ClassTargets, SignTargets, Targets
from manyclass.models.partitioned import Columns
from manyclass.objective.component import resolve
from manyclass.objective.history import FitProgress
from manyclass.objective.losses import CLASSIFICATION, ClassificationLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.arrays import plain_array
from manyclass.solvers import SOLVERS, BaseSolver, Solver, StoreSolver
from manyclass.solvers.base import Keeping
from manyclass.solvers.on_communicator import on_communicator

__all__ = ["LinearClassifier", "without_intercept"]

#: Number of classes from which ``fit_intercept="auto"`` fits no intercept for sparse rows.
_MANY = 1000


def without_intercept(n_classes: int, sparse: bool) -> bool:
    """Whether ``fit_intercept="auto"`` fits no intercept: sparse rows and 1000 classes or more."""
    return sparse and n_classes >= _MANY


def _streams(estimator: LinearClassifier) -> bool:
    solver = estimator.solver
    streams = getattr(SOLVERS.get(solver) if isinstance(solver, str) else solver, "streams", False)
    return bool(streams) and not hasattr(estimator, "_plain")  # a cross-validation has no alpha to stream with


class LinearClassifier(IndexedPredictions, Scored, WatchedEstimator):
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
        makes fits slower, and with solvers that cannot fit one; ``intercept_`` is then zero.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    standardize : bool, default=False
        Whether the penalty is that of columns with mean 0 and variance 1, as after scikit-learn's StandardScaler;
        ``coef_`` and ``intercept_`` are for X as it is. Sparse columns without an intercept keep their mean. Means and
        variances are of all rows, held-out rows included. "lbfgs", which "auto" takes for l2 and most losses without a
        kink, and "fista" read X as it is; for other solvers it is copied, during the fit. Needs all rows in one
        process.
    solver : str or solver object, default="auto"
        The algorithm. "auto" chooses "sdca_active" for crammer_singer with 100 classes or more, "cd" for a penalty with
        an l1 part and few outputs, "interior_point" for a hinge loss with few features and a weak penalty,
        "preconditioned_lbfgs" for softmax, and ill-conditioned log_loss and squared_hinge, on dense rows with not too
        many features per class, "accelerated" for another ill-conditioned problem, and else "sdca"; see ``solver_``.
        The documentation of solvers describes the others. Parameters of a solver are those of its object:
        ``SDCA(option="II")``, ``DSMLR(n_workers=4, comm="mpi")``, ``BoundMajorization(rank=8)``.
    tol : float, default=1e-3
        Relative duality gap at which the fit stops, (P - D) / max(abs(P), abs(D)), >= 0. Ignored by "memoir", which
        computes no duality gap.
    max_iter : int, optional
        Maximum number of iterations (epochs, for a stochastic solver), >= 1: of each call of ``fit`` with
        ``warm_start``, of all calls together that resume one ``checkpoint``. None: 100; 1000 for "sdca",
        "sdca_async", "accelerated" and "preconditioned_lbfgs", 300 for "sdca_active", "sdca_dp", "newton"
        and "ds_mlr", 8 for "memoir", 10 for "out_of_core".
    early_stopping : bool or int, default=False
        Number of iterations without a better score on held-out rows after which the fit ends, with the weights of the
        best score; True is 5. The held-out rows are those of ``fit(X_val=, y_val=)``, or else a tenth of each class, at
        most 20 000 (of the rows of each process). The score is the accuracy (micro-F1 for multilabel y). Where no
        duality gap is computed ("memoir", ``OutOfCore(certificate=None)``) the best weights are kept also where
        ``max_iter`` ends the fit. The same in every process.
    warm_start : bool, default=False
        Whether to start from the state of the previous fit if targets, loss and shapes are the same. Otherwise, for
        instance with more rows, the fit starts anew: `partial_fit` takes rows that are added.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows.
    n_jobs : int, optional
        Number of threads: None means 1, -1 all cores. Does not change the result, except with solvers whose
        documentation says so. Within ``joblib.parallel_config("dask")`` (or "ray", "loky") the classes of a one-vs-rest
        loss are fitted by the workers of that backend, 64 at a time, from 128 classes on.
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
        Of Crammer-Singer with many classes, the accuracy among the classes that the search used.
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
        **WatchedEstimator._parameter_constraints,
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
        standardize: bool = False,
        solver: str | Solver = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        early_stopping: bool | int = False,
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
        self.standardize = standardize
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.early_stopping = early_stopping
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
        X_val: Any = None,
        y_val: Any = None,
        prior: Any = None,
        callback: Callable[[FitProgress], Any] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> LinearClassifier:
        """Fit the model. With a distributed solver, each process calls this with its own rows, or with the same store.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features), or RowStore for the solver "out_of_core"
            Rows, finite. Not copied if float32 or float64; never densified. Half precision and arrays of PyTorch, CuPy
            and other libraries are fitted as they are with l2, a smooth loss and L-BFGS or "auto", and else copied.
        y : array of shape (n_samples,), or array or sparse matrix of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators for a one-vs-rest loss; or weights: of the classes, >= 0, for
            "multinomial", whose loss is then the cross-entropy (a row counts as often as its weights sum to), or
            probabilities of labels for "log_loss". Dense weights are floats. None for a store, which has labels.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows, >= 0; an integer weight is equivalent to that many copies of the row.
        X_val, y_val : as X and y, optional
            Held-out rows, whose score after each iteration is kept in ``history_.validation``; see ``early_stopping``.
            Unless that ends the fit, the model is the same, to the last bit, as without them. For "out_of_core" rows in
            memory, or a RowStore that fits there. Of several processes each gives rows of its own, or none: the score
            is that of the rows of all.
        prior : LinearModel or fitted estimator, optional
            A model whose weights Z replace zero in the l2 penalty, which becomes alpha (1 - l1_ratio)/2 ||W - Z||^2: a
            fit of few rows stays near a model of many others. It has the same features, and no class that y lacks;
            other classes have Z = 0. The intercept is free. `certify` measures a gap to the penalty without it. For
            the solvers "sdca", "lbfgs", "preconditioned_lbfgs", "newton" and "fista", in one process.
        callback : callable, optional
            Called after each iteration with an object that has the attributes ``iteration``, ``max_iter``,
            ``objective``, ``relative_gap``, ``seconds``, ``validation``, ``finished`` and ``weights``
            (`manyclass.objective.history.FitProgress`); if it returns True, the fit ends. Of several processes each
            calls its own, if it has one; if one returns True, the fit ends in all, and an error in one ends all.
        checkpoint : path, optional
            Where to save the state of the fit (a folder with several processes, else a file), after iterations and at
            the end. If it contains the state of a fit with the same data, parameters and seed, the fit is resumed from
            it, with the same result to the last bit; a finished fit (one that reached ``tol``) returns at once. Without
            a ``random_state`` the seed is taken from it. `save` removes it after it has written the model of a finished
            fit. ``max_iter`` includes the iterations before the fit was resumed. Another fit with the same checkpoint
            at the same time is a ValueError.
        checkpoint_seconds : float, default=60.0
            Minimum time between two checkpoints in seconds.

        Returns
        -------
        LinearClassifier
            The fitted estimator; after Ctrl-C, with the model reached so far.
        """
        watch = Watch(X_val, y_val, callback, X, y, sample_weight)
        with self._job() as (solver, comm):
            stored = isinstance(solver, StoreSolver)
            if comm.size > 1 or stored:
                who = f"solver {solver.name!r}" + f" on {comm.size} processes" * (comm.size > 1)
                watch = watch.shared(self, comm, who)
            settings = self._settings(checkpoint)
            require_same(comm, self._shared())
            if comm.size > 1:  # one seed for all, even if random_state is None
                settings["seed"] = int(comm.allreduce(np.int64(settings["seed"]), "max"))
            if stored:
                if prior is not None:
                    raise ValueError(f"prior is not supported by solver {solver.name!r}: choose 'sdca' or 'lbfgs'")
                from manyclass.estimators.stored import fit_store

                fit_store(self, solver, watch, checkpoint, settings)
                return self
            if checkpoint is not None and comm.size > 1 and not isinstance(solver, Keeping):
                raise ValueError(
                    f"checkpoint is not supported by solver {solver.name!r} on several processes, got "
                    f"{os.fspath(checkpoint)!r} on {comm.size}: leave it out, or choose solver 'ds_mlr'"
                )
            problem, facts = self._build(X, y, sample_weight, solver, comm)
            if prior is not None:
                problem = with_prior(problem, prior, facts["classes"], getattr(self, "feature_names_in_", None))
            if checkpoint is not None:
                settings["checkpoint_seconds"] = checkpoint_seconds
            if comm.rank:
                settings["verbose"] = 0
            with advised(problem):
                result = self._watched(problem, solver, facts, watch, settings, checkpoint)()
            self._keep(problem, result, None if comm.rank else checkpoint)
            W: Any = result.weights
            if isinstance(W, Columns) and len(self.classes_) == 2:
                W = W.difference(comm)
            if isinstance(W, Columns):
                facts["comm"] = self.solver.comm
            self._finish(W, result.intercept, facts, record_of(result, prior))
            self._certified = result.solver.certified
        return self

    def _together(self) -> Callable[..., LinearClassifier | None]:
        """The function by which `manyclass.distributed.dask` and `.ray` fit a copy on each worker."""
        from manyclass.estimators.together import check_solver, fit_on

        check_solver(self)
        return partial(fit_on, self)

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
        with opened(solver.comm) as comm:
            yield on_communicator(solver, (), comm), comm

    def _loss(self) -> ClassificationLoss:
        return resolve("loss", self.loss, CLASSIFICATION)

    def _compiled_loss(self) -> Any:
        return self._loss().compiled()

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
        apart = comm is not None and (solver is None or solver.partitions_rows)
        comm = comm if comm is not None and apart else SerialCommunicator()
        X, y = self._check_fit_input(X, y)
        y = with_distinct(y)
        weights = check_sample_weight(sample_weight, X)
        require_alike(comm, X)
        if is_soft(y, self._loss().joint):
            return soft_problem(self, X, y, weights, solver)
        if is_indicator(y):
            task, targets = "multilabel", self._indicator_targets(y)
            two_columns = False
        else:
            y = column_or_1d(y, warn=True)
            check_labels(y)
            self.classes_ = all_classes(comm, y)
            one_class(self.classes_)
            index = np.ascontiguousarray(np.searchsorted(self.classes_, y), np.int32)
            if self.class_weight is not None:
                by_class = balanced_weights(comm, self.class_weight, self.classes_, index)
                weights = by_class[index] * (1.0 if weights is None else weights)
            task = "binary" if len(self.classes_) == 2 else "multiclass"
            one = self._loss().one_margin and (solver is None or solver.one_margin)
            two_columns = task == "binary" and not one
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
            refuse_indicator(loss, y)
        if self.class_weight is not None:
            raise ValueError("class_weight is not defined for multi-label y: use sample_weight")
        self._indicator = y.dtype, bool(sp.issparse(y))
        labels = read_indicator(y)
        self.classes_ = np.arange(labels.shape[1])
        return SignTargets(labels.indptr.astype(np.int64), labels.indices.astype(np.int32), labels.shape[1])

    def _finish(self, W: Any, intercept: Array, facts: dict[str, Any], record: dict[str, Any]) -> None:
        """Set the model; two columns for two classes are replaced by their difference."""
        if facts["task"] == "binary" and len(intercept) == 2:
            intercept = intercept[1:] - intercept[:1]
            if not isinstance(W, Columns):
                W = W[:, 1:] - W[:, :1]
                W = W if sp.issparse(W) else np.ascontiguousarray(W)
        self._stream: Any = None
        self._wrap(W, intercept, record=record, **facts)

    # --- partial_fit ------------------------------------------------------------------------------------------------

    @available_if(_streams)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LinearClassifier:
        """Update the model with a batch of rows, in one pass in the given order.

        Supported by the solvers "sgd", "bound" and "memoir". No duality gap is computed, because earlier
        batches are not available. The first call after `fit` starts a new model, or, with "memoir", continues from that
        of `fit`. With ``alpha=None`` the penalty is 1/n for the n rows so far, and the step sizes of "sgd" and "memoir"
        decrease as the inverse square root of the number of steps.

        Rows of new classes alone cost the others accuracy, less with ``Memoir(rehearsal=True)``, the default: add rows
        of these to the batch, or fit all rows again.

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
        if self.standardize:
            raise ValueError(
                "standardize is not supported by partial_fit, which does not know the columns of later rows: use fit, "
                "or scikit-learn's StandardScaler"
            )
        if self._patience is not None:
            raise ValueError("early_stopping is not supported by partial_fit, which has no held-out rows: use fit")
        solver = self._asked_solver()
        assert solver is not None  # `_streams`
        first = not hasattr(self, "model_") or (getattr(self, "_stream", None) is None and not solver.grows)
        X, y = plain_array(X), plain_array(y)
        ordered = check_sparse(X)
        check_frame(X)
        X, y = validate_data(
            self,
            X,
            column_or_1d(plain_labels(y), warn=True),
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            reset=first,
        )
        with warnings.catch_warnings():
            # A batch may well have a row of each class; that of a fit is a hint at regression.
            warnings.filterwarnings("ignore", "The number of unique classes")
            check_labels(y)
        if self.class_weight is not None:
            raise ValueError("class_weight is not supported by partial_fit: pass sample_weight")
        take(self, solver, check_rows(X, ordered), y, classes, check_sample_weight(sample_weight, X), first)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        known = CLASSIFICATION.get(self.loss) if isinstance(self.loss, str) else type(self.loss)
        tags.classifier_tags.multi_label = not getattr(known, "joint", True)
        return tags
