"""`LogLinearModel`: log-linear models with joint features, such as conditional random fields over small label sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from manyclass.estimators.base import penalty_strength, plain
from manyclass.estimators.iterations import BoundEngine, DescentEngine, Engine, run
from manyclass.estimators.label_sets import LabelSets, observed, read_held_out, read_label_sets, scale_of
from manyclass.estimators.named import Named
from manyclass.estimators.streamed import hold_out
from manyclass.estimators.watched import STOPS, Watch, Watched
from manyclass.io.streams import StrPath
from manyclass.models.linear import LinearModel
from manyclass.objective.component import resolve
from manyclass.objective.history import FitProgress, History
from manyclass.objective.problem import Array
from manyclass.optimize.validation import Score, Validation
from manyclass.runtime.memory import require
from manyclass.runtime.threads import ranges, resolve_n_jobs
from manyclass.solvers.base import Solver
from manyclass.solvers.bound.features import FeatureForm
from manyclass.solvers.bound.forms import PIECE
from manyclass.solvers.bound.labels import Labels
from manyclass.solvers.bound.majorization import BoundMajorization
from manyclass.solvers.bound.objective import FormObjective
from manyclass.solvers.bound.running import OnlineCurvature
from manyclass.solvers.bound.steps import Steps
from manyclass.solvers.primal.descent import DescentSolver
from manyclass.solvers.primal.on_values import DESCENTS

__all__ = ["LogLinearModel"]


class LogLinearModel(Watched, Named):
    """Log-linear model p(y | x) = h_x(y) exp(theta^T f_x(y)) / Z_x(theta), by penalized conditional likelihood.

    Minimizes ``(1/n) sum_i c_i (-log p(y_i | x_i)) + (alpha/2) ||theta||^2`` over one vector theta. The joint features
    f and, optionally, a base measure h are given for every label of every example. Label sets may differ in size and
    meaning between examples: sequences of a chain, or candidates of a ranking. The solver is bound majorization
    (Jebara and Choromanska 2012), which with full curvature has no parameters to tune.

    Parameters
    ----------
    alpha : float or None, default=None
        Strength of the penalty, > 0. None: 1 / n (1 / the sum of the sample weights). alpha = 0 is not supported,
        because for separable examples the optimum would be at infinity; use a small alpha instead.
    solver : {"bound", "lbfgs", "cg", "gd"} or object, default="bound"
        ``BoundMajorization()``: a stochastic pass, then increasingly tight curvatures with an exact line search.
        ``BoundMajorization(stochastic=False)``: the batch bound only; every step decreases the objective, slowly near
        the optimum. See `BoundMajorization` for its other parameters, such as ``rank``. "lbfgs", "cg" and "gd" are
        those of `LinearClassifier`, for comparison; L-BFGS needs less memory than the full curvature.
    tol : float, default=1e-3
        Relative gap at which the fit stops, >= 0; see ``duality_gap_``.
    max_iter : int, optional
        Maximum number of iterations, >= 1. None: 100, or 1000 with "lbfgs", "cg" and "gd".
    early_stopping : bool or int, default=False
        Number of iterations without a greater mean log-likelihood of held-out examples after which the fit stops, with
        the best theta, >= 1; True is 5. They are X_val of `fit`, or a tenth of the examples, chosen by
        ``random_state``.
    warm_start : bool, default=False
        Whether to start from ``coef_``, of the previous fit or of `load`, by the names of the features if they have
        any; without a stochastic pass.
    random_state : int, RandomState or None, default=None
        Seed of the batches.
    n_jobs : int, optional
        Number of threads of the line searches: None means 1, -1 all cores. Does not change the result.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    coef_ : ndarray of shape (D,)
        theta.
    feature_names_ : ndarray of str of shape (D,), or None
        Names of the features; None for matrices.
    alpha_ : float
        Strength of the penalty used.
    objective_ : float
        Objective of the fitted model.
    duality_gap_ : float
        ||gradient||^2 / (2 alpha), divided by the objective. This is the relative duality gap at the dual point given
        by the labels' probabilities, an upper bound on the relative suboptimality.
    n_iter_ : int
        Number of iterations.
    rank_ : int or "full"
        Rank of the curvature used by "bound"; not there with other solvers.
    history_ : History
        The evaluations of the fit.
    model_ : LinearModel
        The model that `save` writes; its ``scores`` of rows of joint features are theta . f.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the input is invalid; the message names the example.
    MemoryError
        If the curvature would need more memory than is available; raised before anything is allocated.

    Examples
    --------
    Choices between three or four candidates with two features each:

    >>> import numpy as np
    >>> from manyclass import LogLinearModel
    >>> rng = np.random.default_rng(0)
    >>> features = [rng.normal(size=(size, 2)) for size in rng.integers(3, 5, 100)]
    >>> y = [int(np.argmax(f @ [2.0, -1.0] + rng.gumbel(size=len(f)))) for f in features]
    >>> model = LogLinearModel(alpha=1e-3, tol=1e-9).fit(features, y)
    >>> model.coef_.round(1)
    array([ 2.1, -0.8])
    >>> np.allclose([p.sum() for p in model.predict_proba(features)], 1)
    True
    """

    coef_: Array
    feature_names_: Array | None
    _columns: dict[str, int] | None = None
    _stream: OnlineCurvature | None = None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="neither"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "early_stopping": STOPS,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        alpha: float | None = None,
        *,
        solver: str | BoundMajorization | DescentSolver = "bound",
        tol: float = 1e-3,
        max_iter: int | None = None,
        early_stopping: bool | int = False,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.early_stopping = early_stopping
        self.verbose = verbose

    def fit(
        self,
        features: Any,
        y: Any,
        *,
        offsets: Any = None,
        log_measure: Any = None,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        log_measure_val: Any = None,
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> LogLinearModel:
        """Fit the model.

        Parameters
        ----------
        features : list of n arrays or CSR matrices of shape (m_i, D), or one of shape (N, D) with ``offsets``
            f_x(y) for every label of every example, one row per label. Also data frames, or n lists of m_i dicts of
            names and values, or of lists of names, as for `LinearChainCRF.fit`.
        y : array of n integers
            The observed label of each example, as a row index into its features.
        offsets : array of n + 1 integers, optional
            First row of each example if ``features`` is one matrix; the last entry is N. The matrix is not copied.
        log_measure : list of n arrays of shape (m_i,), or one array of shape (N,), optional
            log h_x(y), minus infinity for impossible labels. 0 by default.
        sample_weight : array of shape (n,), optional
            Weights of the examples, >= 0; scaled to mean 1.
        X_val, y_val : list of m arrays or CSR matrices of shape (m_i, D), and array of m integers, optional
            Held-out examples, whose mean log-likelihood after each iteration is kept in ``history_.validation``.
        log_measure_val : list of m arrays of shape (m_i,), optional
            As ``log_measure``, for X_val.
        callback : callable, optional
            Called after each iteration, see `LinearClassifier.fit`; ``weights()`` returns theta, as a column.

        Returns
        -------
        LogLinearModel
            The fitted estimator.
        """
        self._check()
        sets = read_label_sets(features, offsets, log_measure)
        y = observed(sets, y)
        scale, held = scale_of(sample_weight, len(y)), None
        if X_val is not None or y_val is not None:
            apart, truth = read_held_out(X_val, y_val, log_measure_val, sets)
            held = FeatureForm(apart.features, apart.offsets, truth, scale_of(None, len(truth)), apart.log_measure)
        elif self._patience is not None:
            rows, kept = hold_out(len(y), 0.1, self.random_state, scale)
            own = np.zeros(len(y))
            own[rows] = scale[rows]
            held = FeatureForm(sets.features, sets.offsets, y, scale_of(own, len(y)), sets.log_measure)
            sample_weight, scale = kept * len(y), scale_of(kept, len(y))
        form = FeatureForm(sets.features, sets.offsets, y, scale, sets.log_measure)
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        self.alpha_ = penalty_strength(self.alpha, len(y), weights)
        engine = self._engine(form, sets)
        validation: Validation | None = None
        if held is not None:
            judged = Steps(held, 0.0, "ascending", resolve_n_jobs(self.n_jobs))
            validation = Validation(lambda W, b: Score(-judged.value(W, judged.scores(W))), self._patience)
        watch, self.history_ = Watch(X_val, y_val, callback, features, y, sample_weight), History()

        def settle(trial: Any, weights: tuple[Array, Array]) -> None:
            trial._settle(weights[0].reshape(-1).copy(), History())

        limit = self._limit()
        loop = partial(run, engine, self.history_, validation, float(self.tol), limit, int(self.verbose))
        self._run_watched(loop, lambda _: (engine.point, np.zeros(1)), settle, watch, limit)()
        self.n_iter_, certificate = self.history_.last.iteration, engine.certificate()
        self.objective_, self.duality_gap_ = certificate.primal, certificate.relative_gap
        self._columns, self._stream = sets.columns, None
        self._settle(engine.point.reshape(-1).copy(), self.history_)
        return self

    def partial_fit(
        self, features: Any, y: Any, *, offsets: Any = None, log_measure: Any = None, sample_weight: Any = None
    ) -> LogLinearModel:
        """Update the model with a batch of examples, in one pass in the given order.

        For the solver "bound", see `BoundMajorization`. No duality gap is computed, because earlier batches are not
        available. The first call after `fit` or `load` starts a new model. With ``alpha=None`` the penalty is 1/n for
        the n examples so far.

        Parameters
        ----------
        features : list of n arrays or CSR matrices of shape (m_i, D), or one of shape (N, D) with ``offsets``
            See `fit`; with the features of the first call, in their order. Other names are left out.
        y : array of n integers
            See `fit`.
        offsets : array of n + 1 integers, optional
            See `fit`.
        log_measure : list of n arrays of shape (m_i,), or one array of shape (N,), optional
            See `fit`.
        sample_weight : array of shape (n,), optional
            Weights of the examples, >= 0; not scaled, because the mean over all batches is not known.

        Returns
        -------
        LogLinearModel
            The fitted estimator.
        """
        self._check()
        solver = self._solver()
        if not isinstance(solver, BoundMajorization):
            raise ValueError(f"partial_fit needs solver 'bound', got {solver.name!r}: choose it, or call fit")
        if self._patience is not None:
            raise ValueError("early_stopping is not supported by partial_fit, which has no held-out examples: use fit")
        stream = self._stream
        known: Any = (None, None) if stream is None else (len(self.coef_), self._columns)
        sets = read_label_sets(features, offsets, log_measure, *known)
        y = observed(sets, y)
        weights = scale_of(sample_weight, len(y)) * (len(y) if sample_weight is None else np.sum(sample_weight))
        form = FeatureForm(sets.features, sets.offsets, y, weights, sets.log_measure)
        solver = solver.with_rank(form.reduced)
        if stream is None:
            rank: Any = None if isinstance(solver.rank, str) else solver.rank
            size = 3 * form.reduced if rank is None else 6 * (int(rank) + 1)
            require({"curvature": 8 * size * form.reduced}, "solver=BoundMajorization(rank=8)")
            stream, self._columns, self.rank_ = OnlineCurvature(form, rank), sets.columns, solver.rank
        self.alpha_ = penalty_strength(self.alpha, stream.seen + len(y), None)
        stream.take(form, self.alpha_, solver.order, solver.batch_size)
        self._settle(stream.point.reshape(-1).copy(), History(outcome="stream"))
        self._stream = stream
        for name in ("duality_gap_", "objective_", "n_iter_", "history_"):
            self.__dict__.pop(name, None)
        return self

    def _engine(self, form: FeatureForm, sets: LabelSets) -> Engine:
        """The solver, at the point where the fit starts."""
        solver, first = self._solver(), None
        if self.warm_start and hasattr(self, "coef_"):
            named, known = sets.columns, getattr(self, "_columns", None)
            if named is not None and known is not None:
                first = np.array([[self.coef_[known[name]] if name in known else 0.0] for name in named])
            elif len(self.coef_) == form.reduced:
                first = self.coef_[:, None].astype(np.float64)
            else:
                raise ValueError(
                    f"features must have the {len(self.coef_)} columns of the previous fit with warm_start=True, got "
                    f"{form.reduced}: give these, or warm_start=False"
                )
        needs = {"scores": 8 * 10 * int(sets.offsets[-1])}
        values = form.features.data if sp.issparse(form.features) else form.features
        mean = float(np.vdot(values, values)) / form.features.shape[0]
        threads = resolve_n_jobs(self.n_jobs)
        self.__dict__.pop("rank_", None)
        if not isinstance(solver, BoundMajorization):
            points = 6 + 2 * getattr(solver, "history_size", 0)
            require({"parameters and gradients": 8 * points * form.reduced, **needs}, "fewer features")
            return DescentEngine(solver, FormObjective(Steps(form, self.alpha_, "given", threads), mean), first)
        solver = solver.with_rank(form.reduced)
        rank: Any = solver.rank
        self.rank_ = rank
        size = 2 * form.reduced if isinstance(rank, str) else 4 * int(rank) + 10
        require({"curvature": 8 * form.reduced * size, **needs}, "solver=BoundMajorization(rank=8)")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return BoundEngine(solver, Steps(form, self.alpha_, solver.order, threads), mean, seed, first)

    def _limit(self) -> int:
        """Maximum number of iterations."""
        if self.max_iter is not None:
            return int(self.max_iter)
        solver = self._solver()
        return solver.default_max_iter if isinstance(solver, BoundMajorization) else 1000

    def _settle(self, theta: Array, history: History) -> None:
        """Set the model."""
        self.coef_ = theta
        self.feature_names_ = None if self._columns is None else np.array([*self._columns], dtype=np.str_)
        parameters = {name: plain(value) for name, value in self.get_params(deep=True).items()}
        self.model_ = LinearModel(
            theta[:, None],
            np.zeros(1),
            classes=None,
            task="regression",
            parameters={"estimator": type(self).__name__, **parameters, "alpha": self.alpha_},
            record={"outcome": history.outcome, "history": history.to_dict()},
            feature_names=self.feature_names_,
        )

    @classmethod
    def load(cls, path: StrPath) -> LogLinearModel:
        """The fitted model that ``save`` has written, ready to predict; no code is loaded.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        LogLinearModel
            The attributes of the model are those of the fit; parameters other than ``alpha`` are the defaults.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If it is not a model file, or has a model of another class.
        """
        model = LinearModel.load(path)
        name = model.parameters.get("estimator")
        if name != cls.__name__:
            raise ValueError(f"the file must have a {cls.__name__}, got a model of {name}: read it by manyclass.load")
        found = cls(float(model.parameters["alpha"]))
        found.model_, found.coef_ = model, np.asarray(model.weights)[:, 0].copy()
        found.alpha_, names = float(found.alpha or 0.0), model.feature_names
        found._columns = None if names is None else {name: column for column, name in enumerate(names.tolist())}
        found.feature_names_ = names
        return found

    def predict(self, features: Any, *, offsets: Any = None, log_measure: Any = None) -> Array:
        """The most probable label of each example; of equal probabilities the first label.

        Parameters
        ----------
        features : list of n arrays or CSR matrices of shape (m_i, D), or one of shape (N, D) with ``offsets``
            See `fit`.
        offsets : array of n + 1 integers, optional
            See `fit`.
        log_measure : list of n arrays of shape (m_i,), or one array of shape (N,), optional
            See `fit`.

        Returns
        -------
        ndarray of int of shape (n,)
            Row index of the label within the example's features.
        """
        found = self.predict_proba(features, offsets=offsets, log_measure=log_measure)
        return np.array([int(np.argmax(p)) for p in found])

    def predict_proba(self, features: Any, *, offsets: Any = None, log_measure: Any = None) -> list[Array]:
        """Probabilities p(y | x) of all labels for each example.

        Parameters
        ----------
        features : list of n arrays or CSR matrices of shape (m_i, D), or one of shape (N, D) with ``offsets``
            See `fit`.
        offsets : array of n + 1 integers, optional
            See `fit`.
        log_measure : list of n arrays of shape (m_i,), or one array of shape (N,), optional
            See `fit`.

        Returns
        -------
        list of n ndarrays of shape (m_i,)
            Probabilities of the labels of each example; each array sums to one.
        """
        sets = self._read(features, offsets, log_measure)
        L = self._log_potentials(sets)
        p = Labels(L, sets.offsets, np.ones(len(sets.offsets) - 1)).p
        return np.split(p, sets.offsets[1:-1])

    def score(self, features: Any, y: Any, *, offsets: Any = None, log_measure: Any = None) -> float:
        """The mean log-likelihood, mean_i log p(y_i | x_i).

        Parameters
        ----------
        features : list of n arrays or CSR matrices of shape (m_i, D), or one of shape (N, D) with ``offsets``
            See `fit`.
        y : array of n integers
            See `fit`.
        offsets : array of n + 1 integers, optional
            See `fit`.
        log_measure : list of n arrays of shape (m_i,), or one array of shape (N,), optional
            See `fit`.

        Returns
        -------
        float
            The score, <= 0; greater is better.
        """
        return -self._loss(features, y, offsets, log_measure, None)

    def objective(
        self, features: Any, y: Any, *, offsets: Any = None, log_measure: Any = None, sample_weight: Any = None
    ) -> float:
        """The objective of the fitted parameters on the given examples.

        Parameters
        ----------
        features : list of n arrays or CSR matrices of shape (m_i, D), or one of shape (N, D) with ``offsets``
            See `fit`.
        y : array of n integers
            See `fit`.
        offsets : array of n + 1 integers, optional
            See `fit`.
        log_measure : list of n arrays of shape (m_i,), or one array of shape (N,), optional
            See `fit`.
        sample_weight : array of shape (n,), optional
            See `fit`.

        Returns
        -------
        float
            The mean loss plus the penalty.
        """
        penalty = 0.5 * self.alpha_ * float(self.coef_ @ self.coef_)
        return self._loss(features, y, offsets, log_measure, sample_weight) + penalty

    def _loss(self, features: Any, y: Any, offsets: Any, log_measure: Any, sample_weight: Any) -> float:
        sets = self._read(features, offsets, log_measure)
        y = observed(sets, y)
        scale = scale_of(sample_weight, len(y))
        form = FeatureForm(sets.features, sets.offsets, y, scale, sets.log_measure)
        steps = Steps(form, 0.0, "ascending")
        point = self.coef_[:, None]
        return steps.value(point, steps.scores(point))

    def _read(self, features: Any, offsets: Any, log_measure: Any) -> LabelSets:
        check_is_fitted(self, "coef_")
        return read_label_sets(features, offsets, log_measure, len(self.coef_), self._columns)

    def _log_potentials(self, sets: LabelSets) -> Array:
        n = len(sets.offsets) - 1
        form = FeatureForm(sets.features, sets.offsets, np.zeros(n, np.int64), np.ones(n), sets.log_measure)
        point = self.coef_[:, None]
        return np.concatenate([form.measured(form.scores(point, b, e), b, e) for b, e in ranges(n, PIECE)])

    def _solver(self) -> BoundMajorization | DescentSolver:
        known: dict[str, type[Solver]] = {BoundMajorization.name: BoundMajorization, **DESCENTS}
        found: Any = resolve("solver", self.solver, known)
        return found  # type: ignore[no-any-return]

    def _check(self) -> None:
        self._validate_params()
        resolve_n_jobs(self.n_jobs)
        self._solver()
