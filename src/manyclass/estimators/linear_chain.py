"""`LinearChainCRF`: conditional random fields over sequences of labels, such as taggers and segmenters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from manyclass.estimators.base import check_squares, penalty_strength, plain
from manyclass.estimators.chain_parts import ChainJudge, Space
from manyclass.estimators.iterations import DescentEngine, run
from manyclass.estimators.label_sets import scale_of
from manyclass.estimators.named import Named
from manyclass.estimators.sequences import read_label_sequences, read_sequences
from manyclass.estimators.streamed import hold_out
from manyclass.estimators.watched import STOPS, Watch, Watched
from manyclass.io.streams import StrPath
from manyclass.models.linear import LinearModel
from manyclass.objective.component import resolve
from manyclass.objective.history import FitProgress, History
from manyclass.objective.problem import Array
from manyclass.optimize.validation import Validation
from manyclass.runtime.memory import require
from manyclass.runtime.threads import resolve_n_jobs
from manyclass.solvers.chain import ChainProblem, Chains, parts
from manyclass.solvers.chain_stream import ChainStream
from manyclass.solvers.primal.descent import DescentSolver
from manyclass.solvers.primal.on_values import DESCENTS

__all__ = ["LinearChainCRF"]


class LinearChainCRF(Watched, Named):
    """Linear-chain conditional random field: the probability of a sequence of labels given one of tokens.

    p(y | x) is proportional to ``exp(sum_t coef[y_t] . x_t + sum_t transitions[y_t, y_t+1] + start[y_1] + end[y_T])``
    (Lafferty, McCallum and Pereira 2001). The fit minimizes ``(1/n) sum_i c_i (-log p(y_i | x_i)) + (alpha/2)
    ||theta||^2`` over n sequences, where theta is all of the four. log p and its gradient are exact, by
    forward-backward recursions; L-BFGS needs no step size.

    Parameters
    ----------
    alpha : float or None, default=None
        Strength of the penalty, > 0. None: 1 / n (1 / the sum of the sample weights). c2 of CRFsuite is alpha n / 2.
    solver : {"lbfgs", "cg", "gd"} or object, default="lbfgs"
        ``LBFGS(history_size=)`` has the number of pairs that it keeps; ``ConjugateGradient()`` and
        ``GradientDescent()`` are for comparison.
    tol : float, default=1e-3
        Relative gap at which the fit stops, >= 0; see ``duality_gap_``.
    max_iter : int, optional
        Maximum number of iterations, >= 1. None: 1000.
    early_stopping : bool or int, default=False
        Number of iterations without a greater share of right labels in held-out sequences after which the fit stops,
        with the best parameters, >= 1; True is 5. They are X_val of `fit`, or a tenth of the sequences, chosen by
        ``random_state``.
    warm_start : bool, default=False
        Whether to start from the parameters of the previous fit, or of `load`. Features and labels that these did not
        have start at 0.
    random_state : int, RandomState or None, default=None
        Seed of the choice of held-out sequences.
    n_jobs : int, optional
        Number of threads: None means 1, -1 all cores. Does not change the result.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The labels, sorted.
    coef_ : ndarray of shape (K, d)
        Weights of the features of a token, for each label.
    transitions_ : ndarray of shape (K, K)
        Weight of each label (row) followed by each label (column).
    start_, end_ : ndarray of shape (K,)
        Weights of the first and of the last label of a sequence.
    n_features_in_ : int
        d.
    feature_names_ : ndarray of str of shape (d,), or None
        Names of the features, in the order of their first token; None for sequences that were matrices.
    alpha_ : float
        Strength of the penalty used.
    objective_ : float
        Objective of the fitted model.
    duality_gap_ : float
        ||gradient||^2 / (2 alpha), divided by the objective: an upper bound on the relative suboptimality.
    n_iter_ : int
        Number of iterations.
    history_ : History
        The evaluations of the fit.
    model_ : LinearModel
        The model that `save` writes. Its rows of weights are those of the features, of the label before (K rows), of
        the first token and of the last one: ``model_.top_features(label)`` ranks all of them.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the input is invalid; the message names the sequence.
    MemoryError
        If the fit would need more memory than is available; raised before anything is allocated.

    See Also
    --------
    LogLinearModel : Label sets of any kind, whose features are given for each label.

    Notes
    -----
    To the penalty belong also features that were never observed with a label, as in CRFsuite with
    ``feature.possible_states`` and ``feature.possible_transitions``.

    References
    ----------
    Lafferty, McCallum and Pereira, "Conditional random fields: probabilistic models for segmenting and labeling
    sequence data", ICML 2001.

    Examples
    --------
    Words and their tags, each word with two features:

    >>> from manyclass import LinearChainCRF
    >>> def features(words):
    ...     return [{"word": word, "end": word[-1]} for word in words]
    >>> texts = ["the dog runs", "a man sees the dog", "the man walks", "dogs run"]
    >>> tags = ["DET NOUN VERB", "DET NOUN VERB DET NOUN", "DET NOUN VERB", "NOUN VERB"]
    >>> X, y = [features(text.split()) for text in texts], [tag.split() for tag in tags]
    >>> model = LinearChainCRF().fit(X, y)
    >>> model.predict([features(["a", "dog", "sits"])])[0].tolist()
    ['DET', 'NOUN', 'VERB']
    >>> model.predict_proba([features(["a", "dog", "sits"])])[0].round(2)
    array([[0.79, 0.12, 0.09],
           [0.08, 0.85, 0.07],
           [0.07, 0.13, 0.81]])
    """

    classes_: Array
    _made: LinearModel | None
    _facts: dict[str, Any]
    _point: Array
    _space: Space
    _stream: ChainStream | None = None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="neither"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "early_stopping": STOPS,
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        alpha: float | None = None,
        *,
        solver: str | DescentSolver = "lbfgs",
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
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        callback: Callable[[FitProgress], Any] | None = None,
    ) -> LinearChainCRF:
        """Fit the model.

        Parameters
        ----------
        X : list of n sequences
            Each a list of tokens, or an array or CSR matrix of shape (T_i, d). A token is a dict of names of features
            and their values, a list of names (value 1), or one name. A value is a number or a boolean, or a string,
            which becomes a part of the name: ``{"word": "dog"}`` is ``["word=dog"]``.
        y : list of n sequences of labels
            One label for each token: all strings, or all integers.
        sample_weight : array of shape (n,), optional
            Weights of the sequences, >= 0; scaled to mean 1.
        X_val, y_val : list of m sequences, and list of m sequences of labels, optional
            Held-out sequences; the share of right labels after each iteration is kept in ``history_.validation``.
        callback : callable, optional
            Called after each iteration, see `LinearClassifier.fit`; ``weights()`` returns the weights of ``model_``.

        Returns
        -------
        LinearChainCRF
            The fitted estimator.
        """
        self._check()
        tokens = read_sequences(X, grow=True)
        check_squares(tokens.X, np.dtype(np.float64))
        classes, index = read_label_sequences(y, tokens.edges)
        n, K, width = len(tokens.edges) - 1, len(classes), tokens.X.shape[1]
        space, threads = Space(width, tokens.columns, classes), resolve_n_jobs(self.n_jobs)
        scale, judge = scale_of(sample_weight, n), None
        if X_val is not None or y_val is not None:
            judge = ChainJudge.given(X_val, y_val, space, threads)
        elif self._patience is not None:
            held, kept = hold_out(n, 0.1, self.random_state, scale)
            judge, scale = ChainJudge.of_rows(tokens, index, held, scale, threads), scale_of(kept, n)
            sample_weight = kept * n
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        alpha = penalty_strength(self.alpha, n, weights)
        solver = self._solver()
        points = 6 + 2 * getattr(solver, "history_size", 0)
        require(
            {
                f"{points} points (parameters, gradients, pairs of such)": 8 * points * space.shape[0] * K,
                "marginals": 16 * len(index) * K,
                "features by column": 12 * tokens.X.nnz if sp.issparse(tokens.X) else 0,
            },
            "solver=LBFGS(history_size=3)",
        )
        problem = ChainProblem(tokens.X, tokens.edges, index, K, scale, alpha, threads)
        warm = self.warm_start and hasattr(self, "_point")
        engine = DescentEngine(solver, problem, space.carry(self._point, self._space) if warm else None)
        self.alpha_, self._space, self._stream, self.history_ = alpha, space, None, History()
        validation = None if judge is None else Validation(judge, self._patience)
        watch = Watch(X_val, y_val, callback, X, y, sample_weight)

        def settle(trial: Any, weights: tuple[Array, Array]) -> None:
            trial._settle(weights[0].copy(), History())

        limit = self._limit()
        loop = partial(run, engine, self.history_, validation, float(self.tol), limit, int(self.verbose))
        self._run_watched(loop, lambda _: (engine.point, np.zeros(K)), settle, watch, limit)()
        self.n_iter_, certificate = self.history_.last.iteration, engine.certificate()
        self.objective_, self.duality_gap_ = certificate.primal, certificate.relative_gap
        self._settle(engine.point.copy(), self.history_)
        return self

    def partial_fit(self, X: Any, y: Any, *, sample_weight: Any = None) -> LinearChainCRF:
        """Update the model with a batch of sequences, in one pass.

        Nothing has to be tuned: a batch moves each parameter the less the more earlier batches have said of it, see
        `manyclass.solvers.chain_stream.ChainStream`. New features and new labels may occur in any call; parameters that
        are not known yet are 0. No duality gap is computed, because earlier batches are not available. The first call
        after `fit` or `load` starts a new model. With ``alpha=None`` the penalty is 1/n for the n sequences so far.

        Parameters
        ----------
        X : list of n sequences
            See `fit`.
        y : list of n sequences of labels
            See `fit`; of the same type in all calls.
        sample_weight : array of shape (n,), optional
            Weights of the sequences, >= 0; not scaled, because the mean over all batches is not known.

        Returns
        -------
        LinearChainCRF
            The fitted estimator.
        """
        self._check()
        if self._patience is not None:
            raise ValueError("early_stopping is not supported by partial_fit, which has no held-out sequences: use fit")
        stream, old = self._stream, None if self._stream is None else self._space
        named = None if old is None else old.columns
        tokens = read_sequences(X, named, old.width if old is not None and named is None else None, grow=True)
        check_squares(tokens.X, np.dtype(np.float64))
        classes, _ = read_label_sequences(y, tokens.edges)
        space = Space(tokens.X.shape[1], tokens.columns, classes if old is None else old.with_classes(classes))
        index, n = read_label_sequences(y, tokens.edges, space.classes)[1], len(tokens.edges) - 1
        weights = scale_of(sample_weight, n) * (n if sample_weight is None else np.sum(sample_weight))
        if stream is None:
            stream = ChainStream(space.shape, None if self.alpha is None else float(self.alpha))
        elif old is not None and space.shape != stream.point.shape:
            stream.grow(*(space.carry(part, old, fill, longer=True) for part, fill in stream.known()))
        threads = resolve_n_jobs(self.n_jobs)
        stream.take(self._solver(), tokens.X, tokens.edges, index, weights, n_threads=threads)
        self.alpha_, self._space = penalty_strength(self.alpha, stream.seen, None), space
        self._settle(stream.point, History(outcome="stream"))
        self._stream = stream
        for name in ("duality_gap_", "objective_", "n_iter_", "history_"):
            self.__dict__.pop(name, None)
        return self

    def _limit(self) -> int:
        """Maximum number of iterations."""
        return 1000 if self.max_iter is None else int(self.max_iter)

    def _settle(self, point: Array, history: History) -> None:
        """Set the model."""
        self._point, self.classes_ = point, self._space.classes
        W, self.transitions_, self.start_, self.end_ = parts(point)
        self.coef_, self.n_features_in_ = W.T, len(W)
        parameters = {name: plain(value) for name, value in self.get_params(deep=True).items()}
        parameters = {"estimator": type(self).__name__, **parameters, "alpha": self.alpha_}
        record = {"outcome": history.outcome, "history": history.to_dict()}
        self._made, self._facts = None, {"parameters": parameters, "record": record}

    @property
    def feature_names_(self) -> Array | None:
        """Names of the features, in the order of their first token; None for sequences that were matrices."""
        check_is_fitted(self)
        return None if self._space.columns is None else np.array([*self._space.columns], dtype=np.str_)

    @property
    def model_(self) -> LinearModel:
        """The model that `save` writes."""
        check_is_fitted(self)
        if self._made is None:
            names = self.feature_names_
            if names is not None:
                more = (f"label before: {label}" for label in self.classes_.tolist())
                names = np.concatenate([names, [*more, "first token", "last token"]])
            self._made = LinearModel(
                self._point,
                np.zeros(len(self.classes_)),
                classes=self.classes_,
                task="sequence",
                feature_names=names,
                **self._facts,
            )
        return self._made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_point")

    @classmethod
    def load(cls, path: StrPath) -> LinearChainCRF:
        """The fitted model that ``save`` has written, ready to predict; no code is loaded.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        LinearChainCRF
            The attributes of the model are those of the fit; parameters other than ``alpha`` are the defaults.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If it is not a model file, or has a model of another class.
        """
        model = LinearModel.load(path, mmap=False)
        name = model.parameters.get("estimator")
        if name != cls.__name__ or model.classes is None:
            raise ValueError(f"the file must have a {cls.__name__}, got a model of {name}: read it by manyclass.load")
        found = cls(float(model.parameters["alpha"]))
        found.alpha_ = float(found.alpha or 0.0)
        point, names = np.array(model.weights), model.feature_names
        width = len(point) - len(model.classes) - 2
        columns = None if names is None else {name: column for column, name in enumerate(names[:width].tolist())}
        found._space = Space(width, columns, model.classes)
        found._settle(point, History())
        found._made = model
        return found

    def predict(self, X: Any) -> list[Array]:
        """The most probable sequence of labels for each sequence, by Viterbi's algorithm; of equal ones the first.

        Parameters
        ----------
        X : list of n sequences
            See `fit`. Names of features that the fit did not have are left out.

        Returns
        -------
        list of n ndarrays of shape (T_i,)
            Labels.
        """
        chains = self._read(X)
        return np.split(self.classes_[chains.best(self._point)], chains.edges[1:-1])

    def predict_proba(self, X: Any) -> list[Array]:
        """The probabilities of the labels of each token, given its whole sequence (the marginals).

        Parameters
        ----------
        X : list of n sequences
            See `predict`.

        Returns
        -------
        list of n ndarrays of shape (T_i, K)
            Probabilities, in the order of ``classes_``; rows sum to one.
        """
        chains = self._read(X)
        return np.split(chains.read(self._point)[0], chains.edges[1:-1])

    def log_likelihood(self, X: Any, y: Any) -> Array:
        """The log-likelihood log p(y_i | x_i) of each sequence of labels.

        Parameters
        ----------
        X : list of n sequences
            See `predict`.
        y : list of n sequences of labels
            Labels of the fit.

        Returns
        -------
        ndarray of shape (n,)
            Log-likelihoods, <= 0.

        Raises
        ------
        ValueError
            If a label is none of the fit.
        """
        chains = self._read(X)
        _, index = read_label_sequences(y, chains.edges, self.classes_)
        if (index < 0).any():
            i = int(np.searchsorted(chains.edges, np.argmax(index < 0), side="right")) - 1
            raise ValueError(f"y[{i}] has a label that is none of the {len(self.classes_)} of the fit: remove it")
        return -chains.read(self._point, index)[1]

    def score(self, X: Any, y: Any) -> float:
        """The share of all tokens whose label on the most probable path is right.

        Parameters
        ----------
        X : list of n sequences
            See `predict`.
        y : list of n sequences of labels
            The right ones.

        Returns
        -------
        float
            Between 0 and 1.
        """
        chains = self._read(X)
        _, index = read_label_sequences(y, chains.edges, self.classes_)
        return float(np.mean(chains.best(self._point) == index))

    def objective(self, X: Any, y: Any, *, sample_weight: Any = None) -> float:
        """The objective of the fitted parameters on the given sequences.

        Parameters
        ----------
        X : list of n sequences
            See `predict`.
        y : list of n sequences of labels
            Labels of the fit.
        sample_weight : array of shape (n,), optional
            See `fit`.

        Returns
        -------
        float
            The mean loss plus the penalty.
        """
        losses = -self.log_likelihood(X, y)
        penalty = 0.5 * self.alpha_ * float(np.vdot(self._point, self._point))
        return float(scale_of(sample_weight, len(losses)) @ losses) + penalty

    def _read(self, X: Any) -> Chains:
        check_is_fitted(self)
        width = self.n_features_in_ if self._space.columns is None else None
        tokens = read_sequences(X, self._space.columns, width)
        return Chains(tokens.X, tokens.edges, resolve_n_jobs(self.n_jobs))

    def _solver(self) -> DescentSolver:
        return resolve("solver", self.solver, DESCENTS)

    def _check(self) -> None:
        self._validate_params()
        resolve_n_jobs(self.n_jobs)
        self._solver()
