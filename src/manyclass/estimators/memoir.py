"""The multi-class SVM by MEMOIR: steps on a class and its best rival, sparse weights, classes that come later."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from manyclass._version import __version__
from manyclass.estimators.base import LinearEstimator, _as_rows, _number, _plain
from manyclass.estimators.labels import read_labels
from manyclass.estimators.predicting import PredictingMixin
from manyclass.estimators.streamed import mean_one, validation_rows
from manyclass.kernels.rows import check_sparse, make_rows
from manyclass.kernels.sdca import row_norms
from manyclass.mips import SearchIndex, SimpleLSH, SmallWorldGraph
from manyclass.models.linear import LinearModel
from manyclass.objective.problem import Array
from manyclass.runtime.memory import require
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers.memoir.learner import TRUNCATIONS, Memoir, takes_table
from manyclass.solvers.memoir.run import METRICS, EpochRecord, PruneReport, Run, prune

__all__ = ["MemoirClassifier"]

#: Name of a search -> the index that proposes rivals; none for the exact search of the live weights.
_SEARCHES: dict[str, Any] = {"auto": None, "exact": None, "lsh": SimpleLSH, "graph": SmallWorldGraph}
#: Rows of a batch by default: at least, at most, and classes for each. A row's rival is little changed by the others'.
_LEAST, _MOST, _CLASSES = 16, 1024, 8


class MemoirClassifier(ClassifierMixin, PredictingMixin, LinearEstimator):  # type: ignore[misc]
    """Multi-class SVM for very many classes by MEMOIR: stochastic steps on a row's class and its best rival [1]_.

    Minimises ``(1/n) sum_i c_i max(0, 1 + max_{r != y_i} x_i.(w_r - w_{y_i})) + alpha ((1 - l1_ratio)/2 ||W||^2 +
    l1_ratio ||W||_1)`` with c_i the sample weights scaled to mean 1: MEMOIR-l2 of the paper for ``l1_ratio=0``,
    MEMOIR-l1 for ``l1_ratio=1``. There is no intercept. A step moves two columns of W; the rival is found by
    maximum-inner-product search. Weights of sparse rows are held, saved and used sparsely: memory in proportion to
    the weights that are not zero.

    This is the fast and small way to a good classifier, not to the optimum: `SDCAClassifier` with
    ``loss="crammer_singer"`` solves the same problem (l2) to a certified gap, and is as a rule the more accurate.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, > 0.
    l1_ratio : float
        Part of the penalty that is l1, in [0, 1].
    search : {"auto", "exact", "lsh", "graph"} or SearchIndex
        How rivals are found. ``exact``: on the live weights, with no index. ``lsh``: `manyclass.mips.SimpleLSH`,
        ``graph``: `manyclass.mips.SmallWorldGraph`, or an index of one's own (it is copied): they propose rivals,
        which are scored on the live weights, and take in the classes that a batch has touched. ``auto``: exact, the
        faster by measurement for sparse rows up to 100 000 classes.
    batch_size : int, optional
        Rows whose rivals are searched at the same weights. By default an eighth of the classes, 16 to 1024.
    eta0 : float, optional
        The first step, on the sum of a batch, > 0. By default the inverse of the mean squared norm of the rows, divided
        by the rows of a batch for each class where these are more than one.
    eta_step : float, optional
        eta_t = eta0 / (1 + eta_step t) after t batches. None: eta0 / (1 + alpha eta0 i) after i rows.
    average : bool or "auto"
        Predict with the mean of the weights after each step of the last half of the run. "auto": without an l1 part,
        where the mean is as sparse as the last point.
    truncation : {"lazy", "touched"}
        How the l1 part acts: exactly (lazily, when a feature is met), or as the paper prints it, on the classes that a
        batch has touched, K / |R_t| times as much.
    max_iter : int
        Most epochs. The mean of the weights covers half of them where their number is a power of two.
    early_stopping : bool
        Hold out a part of the rows; keep the weights of the epoch that is best on them.
    validation_fraction : float
        That part, in (0, 1).
    validation_metric : {"accuracy", "f1_macro"}
    patience : int
        Epochs without a better validation after which the fit ends.
    class_weight : dict or "balanced", optional
    random_state : int, RandomState or None
        Of the order of the rows and of the held-out part.
    n_jobs : int, optional
        Threads of the search. Never changes the result.
    dtype : {None, numpy.float32, numpy.float64}
        Of the weights and of the work; None takes that of X.
    verbose : int
        1 shows a line for each epoch on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        One row a class, for two classes too. A dense copy: see ``sparse_coef_``.
    sparse_coef_ : CSR matrix of the same shape
    classes_ : ndarray of shape (n_classes,)
        Sorted.
    history_ : list of EpochRecord
        Of each epoch: loss, update rate, recall@1 and margin error of the search, weights that are not zero, bytes,
        validation, seconds.
    n_iter_ : int
        Epochs run.
    outcome_ : str
        "max_iter", "patience" or "interrupted"; "stream" after partial_fit.
    model_ : LinearModel
        What predicts; ``model_.save(path)`` keeps it, 8 bytes a weight in float32.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X had column names

    Raises
    ------
    ValueError
        On parameters out of range, fewer than two classes, NaN or infinite input, or a first step under which the decay
        would turn the weights round (``eta0 alpha batch_size >= 1``).
    MemoryError
        Before anything is allocated, if the fit would not fit into memory.

    References
    ----------
    .. [1] A. Belyy and A. Sholokhov, MEMOIR: multi-class extreme classification with inexact margin, 2018.

    Examples
    --------
    >>> from manyclass import MemoirClassifier
    >>> from manyclass.datasets import make_many_classes
    >>> X, y = make_many_classes(4000, 2000, 300, random_state=0)
    >>> model = MemoirClassifier(max_iter=5, random_state=0).fit(X[:3500], y[:3500])
    >>> model.score(X[3500:], y[3500:]) > 0.3
    True
    >>> classes, scores = model.predict_topk(X[3500:3502], k=3)
    >>> classes.shape
    (2, 3)
    """

    def __init__(
        self,
        *,
        alpha: float = 1e-6,
        l1_ratio: float = 0.0,
        search: Any = "auto",
        batch_size: int | None = None,
        eta0: float | None = None,
        eta_step: float | None = None,
        average: bool | str = "auto",
        truncation: str = "lazy",
        max_iter: int = 8,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        validation_metric: str = "accuracy",
        patience: int = 5,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.search = search
        self.batch_size = batch_size
        self.eta0 = eta0
        self.eta_step = eta_step
        self.average = average
        self.truncation = truncation
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.validation_metric = validation_metric
        self.patience = patience
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.verbose = verbose

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MemoirClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Not copied if it is float32 or float64; never densified.
        y : array of shape (n_samples,)
            Labels of any sortable type.
        sample_weight : array of shape (n_samples,), optional
            Non-negative.

        Returns
        -------
        MemoirClassifier
            Itself. After Ctrl-C too, with what was reached.
        """
        self._check_parameters()
        X, y = self._check_fit_input(X, y)
        weights = self._weights(sample_weight, X)
        self.classes_, index = read_labels(y)
        if self.class_weight is not None:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[index])
            weights = by_class[index] * (1.0 if weights is None else weights)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        held_out = None
        if self.early_stopping:
            part = validation_rows(X.shape[0], float(self.validation_fraction), seed)
            held_out = X[part], index[part]
            kept = np.setdiff1d(np.arange(X.shape[0]), part)
            X, index, weights = X[kept], index[kept], None if weights is None else weights[kept]
        learner = self._learner(X, len(self.classes_))
        run = Run(
            learner,
            int(self.max_iter),
            self._batch,
            seed,
            int(self.verbose),
            held_out,
            self.validation_metric,
            int(self.patience),
            learner.n_threads,
        )
        W = run.train(X, index, mean_one(weights))
        self.history_: list[EpochRecord] = run.records  # type: ignore[assignment]
        self.n_iter_, self.outcome_ = len(run.records), run.outcome
        self._stream: tuple[Memoir, Array] | None = None
        self._wrap_weights(W)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> MemoirClassifier:
        """Learn some rows of a stream, in their order, each once. Classes may be new at any time.

        The first call starts afresh, or from the model of `fit`; later ones go on.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Labels, of one sort in all calls.
        classes : array of shape (n_classes,), optional
            Classes to have besides those of y; may be left out.
        sample_weight : array of shape (n_samples,), optional
            Non-negative, as they are: the mean of a stream is not known.

        Returns
        -------
        MemoirClassifier
            Itself.
        """
        self._check_parameters()
        first = not hasattr(self, "model_")
        check_sparse(X)
        X, y = validate_data(
            self, X, column_or_1d(y, warn=True), accept_sparse="csr", dtype=[np.float64, np.float32], reset=first
        )
        X = _as_rows(X)
        check_classification_targets(y)
        if self.class_weight is not None:
            raise ValueError("class_weight is not known for a stream: give sample_weight")
        weights = self._weights(sample_weight, X)
        named = np.unique(y) if classes is None else np.unique(np.concatenate([np.asarray(classes), y]))
        known = np.empty(0, named.dtype) if first else self.classes_
        if not first and (known.dtype.kind in "US") != (named.dtype.kind in "US"):
            raise ValueError(
                f"y has labels of {named.dtype}, and the classes so far are of {known.dtype}: give one sort"
            )
        new = named[~np.isin(named, known)]
        learner, order = self._streaming(X, known, new)
        # Numbers of classes are given in the order of their coming: those of the learner never move.
        by_label = np.argsort(order, kind="stable")
        index = by_label[np.searchsorted(order, y, sorter=by_label)].astype(np.int32)
        learner.epoch(X, index, np.arange(len(y)), batch_size=self._batch, weights=weights)
        self.classes_ = order[by_label]
        self._stream = learner, order
        self.outcome_ = "stream"
        for name in ("history_", "n_iter_"):
            self.__dict__.pop(name, None)
        W = learner.weights()
        if not np.array_equal(by_label, np.arange(len(order))):
            W = W[:, by_label] if sp.issparse(W) else np.ascontiguousarray(W[:, by_label])
        self._wrap_weights(W)
        return self

    def _streaming(self, X: Any, known: Array, new: Array) -> tuple[Memoir, Array]:
        """What learns the stream, with a number for each class, and the classes in the order of these numbers."""
        stream = getattr(self, "_stream", None)
        if stream is not None:
            learner, order = stream
        else:
            order = known
            learner = self._learner(X, max(len(known) + len(new), 1))
            if len(known):
                W, more = self.model_.weights, (X.shape[1], len(new))
                stack = sp.hstack if sp.issparse(W) else np.hstack
                learner.start(stack([W, sp.csr_matrix(more) if sp.issparse(W) else np.zeros(more)]))
        order = np.concatenate([order, new])
        if len(order) < 2:
            raise ValueError(f"a classifier needs at least 2 classes, got {order.tolist()}: name more in classes")
        if learner.n_classes < len(order):
            learner.grow(len(order))
        return learner, order

    def _learner(self, X: Any, n_classes: int) -> Memoir:
        d, K = X.shape[1], n_classes
        dtype = np.dtype(X.dtype if self.dtype is None else self.dtype)
        batch = min(_MOST, max(_LEAST, K // _CLASSES)) if self.batch_size is None else int(self.batch_size)
        self._batch = batch
        norms = np.empty(X.shape[0], dtype)
        row_norms(make_rows(X), norms)
        size = float(norms.mean(dtype=np.float64))
        eta0 = 1.0 / ((size or 1.0) * max(1.0, batch / K)) if self.eta0 is None else float(self.eta0)
        decay = eta0 * float(self.alpha) * (1.0 - float(self.l1_ratio)) * batch
        if not decay < 1:
            raise ValueError(
                f"eta0 alpha (1 - l1_ratio) batch_size must be below 1, and is {decay:.3g} (eta0 is {eta0:.3g}, "
                f"batch_size {batch}): the decay would turn the weights round; lower one of them"
            )
        average = not self.l1_ratio if self.average == "auto" else bool(self.average)
        sparse = sp.issparse(X) and takes_table(d, K)
        if not sparse:
            require({"weights": (3 if average else 2) * d * K * dtype.itemsize}, "dtype=np.float32")
        return Memoir(
            d,
            K,
            dtype,
            alpha=float(self.alpha),
            l1_ratio=float(self.l1_ratio),
            eta0=eta0,
            eta_step=None if self.eta_step is None else float(self.eta_step),
            average=average,
            truncation=self.truncation,
            search=self._index(),
            sparse=sparse,
            n_threads=resolve_n_jobs(self.n_jobs),
        )

    def _index(self) -> SearchIndex | None:
        if isinstance(self.search, SearchIndex):
            return copy.deepcopy(self.search)
        made = _SEARCHES[self.search]
        return None if made is None else made()

    def _wrap_weights(self, W: Any) -> None:
        names = getattr(self, "feature_names_in_", None)
        parameters = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        entry = W.dtype.itemsize + 4
        if not sp.issparse(W) and np.count_nonzero(W) * entry < 0.5 * W.nbytes:
            W = sp.csr_matrix(W)
        self._sparsified = False
        self.model_ = LinearModel(
            weights=W,
            intercept=np.zeros(W.shape[1], W.dtype),
            classes=self.classes_,
            task="multiclass",
            link="identity",
            parameters={"estimator": type(self).__name__, **parameters},
            record={
                "outcome": self.outcome_,
                "epochs": [record.to_dict() for record in getattr(self, "history_", [])],
            },
            feature_names=None if names is None else np.asarray(names, dtype=str),
            library_version=__version__,
        )

    # --- after the fit ----------------------------------------------------------------------------------------------

    def prune(self, X: Any, y: Any, *, threshold: float | None = None, max_loss: float = 0.005) -> PruneReport:
        """Drop small weights, and measure what that costs on some rows; those that were not fitted tell the truth.

        Parameters
        ----------
        X, y
            Rows and their labels.
        threshold : float, optional
            Weights of at most this magnitude go. By default the largest that lowers the accuracy by at most
            ``max_loss``, found by halving.
        max_loss : float
            See above; at least 0.

        Returns
        -------
        PruneReport
            The threshold, and weights, accuracy and macro-F1 before and after. The model is the pruned one.
        """
        check_is_fitted(self, "model_")
        X = self._check_predict_input(X)
        _number("max_loss", max_loss, low=0.0)
        if threshold is not None:
            _number("threshold", threshold, low=0.0)
        y = column_or_1d(y)
        at = np.searchsorted(self.classes_, y)
        at[at == len(self.classes_)] = 0
        # A label that was never fitted is predicted by nobody, and counts as a mistake before and after.
        at = np.where(self.classes_[at] == y, at, len(self.classes_))
        W, report = prune(
            sp.csr_matrix(self.model_.weights), X, at, threshold, float(max_loss), resolve_n_jobs(self.n_jobs)
        )
        self._stream = None
        self._wrap_weights(W)
        return report

    def build_index(self, kind: Any = "exact") -> SearchIndex:
        """An index of the fitted weights, for rankings by `predict_topk` with measured recall (``index.recall(X, k)``).

        Parameters
        ----------
        kind : {"exact", "lsh", "graph"} or SearchIndex
            ``exact``: `manyclass.mips.ExactSearch`, pruned by bounds where the weights are sparse.
        """
        from manyclass.mips import ExactSearch

        check_is_fitted(self, "model_")
        kinds = {**_SEARCHES, "exact": ExactSearch}
        if not isinstance(kind, SearchIndex) and kind not in ("exact", "lsh", "graph"):
            raise ValueError(f"kind must be 'exact', 'lsh', 'graph' or a SearchIndex, got {kind!r}")
        index = copy.deepcopy(kind) if isinstance(kind, SearchIndex) else kinds[kind]()
        return index.build(self.model_.weights, n_jobs=self.n_jobs)

    def predict_topk(self, X: Any, k: int = 5, *, index: SearchIndex | None = None) -> tuple[Array, Array]:
        """The k best classes of each row and their scores, best first: two arrays of shape (n_samples, k).

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
        k : int
        index : SearchIndex, optional
            What `build_index` made, to search instead of scoring all classes.
        """
        if index is None:
            return super().predict_topk(X, k)
        numbers_, scores = index.query(self._check_predict_input(X), k, n_jobs=self.n_jobs)
        return np.asarray(self.classes_[numbers_]), scores

    # --- parameters -------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        _number("alpha", self.alpha, low=0.0, low_open=True)
        _number("l1_ratio", self.l1_ratio, low=0.0, high=1.0)
        for name, low_open in (("eta0", True), ("eta_step", False)):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), low=0.0, low_open=low_open)
        _number("validation_fraction", self.validation_fraction, low=0.0, high=1.0, low_open=True, high_open=True)
        for name in ("max_iter", "patience", "batch_size"):
            value: Any = getattr(self, name)
            if value is None and name == "batch_size":
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        for name, known in (("truncation", TRUNCATIONS), ("validation_metric", METRICS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}")
        if not isinstance(self.search, SearchIndex) and self.search not in tuple(_SEARCHES):
            raise ValueError(
                f"search must be one of {', '.join(map(repr, _SEARCHES))} or a SearchIndex, got {self.search!r}"
            )
        if self.average != "auto" and not isinstance(self.average, bool | np.bool_):
            raise ValueError(f"average must be True, False or 'auto', got {self.average!r}")
        if self.average is True and self.l1_ratio:
            raise ValueError("average=True is for l1_ratio=0: the mean of truncated weights is not sparse")
        if self.dtype is not None and np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be None, float32 or float64, got {self.dtype!r}")
        resolve_n_jobs(self.n_jobs)
