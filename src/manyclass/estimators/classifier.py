"""Classification with a certified optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight

from manyclass.estimators.base import LinearEstimator, _number
from manyclass.estimators.labels import is_indicator, read_indicator, read_labels
from manyclass.estimators.predicting import ClassPredictions, binary_targets
from manyclass.kernels.targets import ClassTargets, SignTargets, Targets
from manyclass.mips import SearchIndex
from manyclass.objective.losses import CrammerSinger, LogLoss, Multinomial, SmoothHinge, SquaredHinge
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.choice import SEARCHES, make_solver
from manyclass.solvers import Solver

__all__ = ["SDCAClassifier"]

#: name -> the loss of this gamma for many classes, and for two (one margin, one column of weights).
_LOSSES: dict[str, tuple[Any, Any]] = {
    "multinomial": (lambda gamma: Multinomial(), lambda gamma: LogLoss()),
    "softmax_hinge": (lambda gamma: Multinomial(1.0), lambda gamma: LogLoss(1.0)),
    "crammer_singer": (CrammerSinger, SmoothHinge),
    "log_loss": (lambda gamma: LogLoss(), lambda gamma: LogLoss()),
    "smooth_hinge": (SmoothHinge, SmoothHinge),
    "hinge": (lambda gamma: SmoothHinge(0.0), lambda gamma: SmoothHinge(0.0)),
    "squared_hinge": (lambda gamma: SquaredHinge(), lambda gamma: SquaredHinge()),
}
_JOINT = ("multinomial", "softmax_hinge", "crammer_singer")


class SDCAClassifier(ClassPredictions, LinearEstimator):
    """Linear classifier fitted by proximal stochastic dual coordinate ascent, stopped on a true duality gap.

    Minimises ``(1/n) sum_i c_i phi(W^T x_i + b; y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)`` with c_i
    the sample weights scaled to mean 1 and the intercept b free of penalty. scikit-learn's ``C`` is
    ``1 / (alpha n_samples)``.

    Parameters
    ----------
    loss : {"multinomial", "softmax_hinge", "crammer_singer", "log_loss", "smooth_hinge", "hinge", "squared_hinge"}
        ``multinomial``: softmax regression. ``crammer_singer``: the multiclass support vector machine, smoothed by
        ``gamma``; ``softmax_hinge``: its smooth upper bound, log(1 + sum_{j != y} exp(1 + s_j - s_y)). The others are
        one-vs-rest, and take multi-label targets as well. With two classes there is one margin m and one column of
        weights: multinomial is then log_loss, crammer_singer is smooth_hinge, softmax_hinge is log(1 + exp(1 - m)).
    alpha : float
        Strength of the penalty, > 0.
    l1_ratio : float
        Part of the penalty that is l1, in [0, 1]. With 1 (no l2 part) the certificate is that of the pure problem.
    tol : float
        Certified relative duality gap to stop at: (P - D) / max(|P|, |D|).
    max_iter : int
        Most epochs.
    fit_intercept : bool
        Fit an unpenalised intercept.
    gamma : float
        Smoothing of ``crammer_singer`` and ``smooth_hinge``, >= 0 (0: none). The smooth loss lies below the plain one
        by at most gamma/2.
    solver : str
        ``sdca``: exact dual steps on whole rows of scores. ``accelerated``: an accelerated proximal point method around
        it, for small alpha. ``sdca_active``: for crammer_singer, sparse duals on active sets of rivals. ``sdca_async``:
        threads share the weights without locks; faster on several threads, certified all the same, but not
        reproducible. ``cd``: coordinate descent with working sets, for one-vs-rest losses with an l1 part.
        ``preconditioned_lbfgs``: for smooth losses on dense, correlated features. ``fista``, ``lbfgs``, ``newton``,
        ``cg`` (nonlinear conjugate gradients), ``gd`` (steepest descent), ``sgd``, ``asgd`` (averaged), ``majorise``
        (see `LeastSquaresClassifier`), ``bound`` and ``bbm`` (bound majorisation, log-linear losses): for comparison,
        on the same objective and certificate. ``auto`` (the default): the fastest by measurement: sdca_active for
        crammer_singer with 100 classes or more; cd for a penalty with an l1 part and few outputs; accelerated where
        there is no l2 part, or R^2 / (gamma alpha n) > 10 with a smooth loss; or else sdca.
    option : {"I", "II", "III", "IV", "V"}
        Dual step of Prox-SDCA. "I", the exact one, is the fastest for every loss.
    sampling : {"permutation", "uniform", "importance"}
        Which examples an epoch of Prox-SDCA takes: each once in random order, n draws with replacement, or n draws with
        probability proportional to gamma alpha n + ||x_i||^2.
    search : {"exact", "lsh", "graph"} or SearchIndex
        For solver sdca_active: how rivals of the active sets are found. ``exact``: by exact passes, which certify as
        well. Otherwise by an index (`manyclass.mips`; one given is copied) between the certificates, which are exact
        all the same.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn.
    random_state : int, RandomState or None
        Of the order of the examples.
    n_jobs : int, optional
        Threads. Never changes the result (except with sdca_async): classes are split for one-vs-rest losses, the
        exact passes of the certificates are for the others.
    warm_start : bool
        Start from the duals of the previous fit where targets and shapes are the same.
    dtype : {None, numpy.float32, numpy.float64}
        Of the weights and of the work; None takes that of X. float32 halves the memory and certifies gaps down to
        about 4e-6.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
    sparse_coef_ : CSR matrix of the same shape
    solver_ : str
        The solver that ran.
    intercept_ : ndarray of shape (n_classes,) or (1,)
    classes_ : ndarray of shape (n_classes,)
    duality_gap_ : float
        Certified relative gap of the fitted model.
    objective_ : float
        Objective of the fitted model.
    n_iter_ : int
        Epochs run.
    history_ : History
        The evaluations of the fit.
    model_ : LinearModel
        What predicts; ``model_.save(path)`` keeps it.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X had column names

    Raises
    ------
    ValueError
        On parameters out of range, targets the loss does not take, fewer than two classes, NaN or infinite input.
    MemoryError
        Before anything is allocated, if the fit would not fit into memory.

    References
    ----------
    Shalev-Shwartz and Zhang, "Accelerated proximal stochastic dual coordinate ascent for regularized loss
    minimization", ICML 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import SDCAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SDCAClassifier(alpha=1e-3, random_state=0).fit(X / 16, y)
    >>> bool(model.duality_gap_ <= 1e-3)
    True
    >>> classes, scores = model.predict_topk(X[:2] / 16, k=3)
    >>> classes.shape
    (2, 3)
    """

    def __init__(
        self,
        loss: str = "multinomial",
        *,
        alpha: float = 1e-4,
        l1_ratio: float = 0.0,
        tol: float = 1e-3,
        max_iter: int = 100,
        fit_intercept: bool = True,
        gamma: float = 0.1,
        solver: str = "auto",
        option: str = "I",
        sampling: str = "permutation",
        search: str | SearchIndex = "exact",
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        dtype: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.gamma = gamma
        self.solver = solver
        self.option = option
        self.sampling = sampling
        self.search = search
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.dtype = dtype
        self.verbose = verbose

    # --- fitting ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SDCAClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Not copied if it is float32 or float64; never densified.
        y : array of shape (n_samples,), or indicator (dense or sparse) of shape (n_samples, n_classes)
            Labels of any sortable type, or 0/1 indicators for a one-vs-rest loss.
        sample_weight : array of shape (n_samples,), optional
            Non-negative; an integer weight acts as that many copies of the row.

        Returns
        -------
        SDCAClassifier
            Itself.
        """
        problem, facts = self._build(X, y, sample_weight)
        self._wrap(self._minimise(problem), **facts)
        return self

    def _build(self, X: Any, y: Any, sample_weight: Any) -> tuple[Problem, dict[str, Any]]:
        """The problem that the parameters and the data describe, and what the model is to know besides its weights."""
        self._check_parameters()
        X, y = self._check_fit_input(X, y)
        weights = self._weights(sample_weight, X)
        if is_indicator(y):
            targets = self._indicator_targets(y)
            many, task = True, "multilabel"
        else:
            targets, y_index = self._label_targets(y)
            many = len(self.classes_) > 2
            task = "multiclass" if many else "binary"
            if self.class_weight is not None:
                by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[y_index])
                weights = by_class[y_index] * (1.0 if weights is None else weights)
        loss = _LOSSES[self.loss][0 if many else 1](self.gamma)
        link = "identity" if self.loss == "softmax_hinge" else loss.probability or "identity"
        return self._problem(X, targets, loss, weights), {"classes": self.classes_, "task": task, "link": link}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(map(repr, _LOSSES))}, got {self.loss!r}")
        _number("gamma", self.gamma, low=0.0)
        if not isinstance(self.search, SearchIndex) and self.search not in tuple(SEARCHES):
            raise ValueError(
                f"search must be one of {', '.join(map(repr, SEARCHES))} or a SearchIndex, got {self.search!r}"
            )

    def _make_solver(self, name: str, problem: Problem) -> Solver:
        return make_solver(name, problem, option=self.option, sampling=self.sampling, search=self.search)

    def _label_targets(self, y: Any) -> tuple[Targets, Array]:
        self.classes_, index = read_labels(y)
        K = len(self.classes_)
        if K == 2:
            return binary_targets(index), index
        if self.loss in _JOINT:
            return ClassTargets(index, K), index
        return SignTargets(np.arange(len(index) + 1, dtype=np.int64), index, K), index

    def _indicator_targets(self, y: Any) -> Targets:
        if self.loss in _JOINT:
            raise ValueError(
                f"loss {self.loss!r} takes one class per example, and y is a multi-label indicator of shape "
                f"{y.shape}: choose a one-vs-rest loss (log_loss, smooth_hinge, hinge, squared_hinge)"
            )
        if self.class_weight is not None:
            raise ValueError("class_weight is not defined for multi-label y: use sample_weight")
        self._indicator = y.dtype, bool(sp.issparse(y))
        labels = read_indicator(y)
        self.classes_ = np.arange(labels.shape[1])
        return SignTargets(labels.indptr.astype(np.int64), labels.indices.astype(np.int32), labels.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.loss not in _JOINT
        return tags
