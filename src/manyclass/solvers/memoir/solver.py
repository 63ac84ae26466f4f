"""MEMOIR as a solver, and for streams of rows."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.kernels.rows import CSRRows
from manyclass.mips import PROPOSERS, SearchIndex, proposer
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import Progress, Solver, State, row_matrix
from manyclass.solvers.memoir.learner import BALLS, TRUNCATIONS, MemoirLearner, Passed, takes_table
from manyclass.solvers.memoir.rehearsal import interleaved, made_rows

__all__ = ["Memoir", "MemoirStream"]

#: Default batch size: minimum, maximum, and number of classes per row. With many classes the rows of a batch rarely
#: affect each other's rivals.
_LEAST, _MOST, _CLASSES = 16, 1024, 8
#: With search="auto": the blocks of classes that are scored, and the number of classes from which on.
_BLOCKS, _MISSING = 16, 20_000


class Memoir(Solver):
    """Multiclass SVM for very many classes by MEMOIR: stochastic steps on the class of a row and its best rival [1]_.

    For loss ``CrammerSinger(gamma=0)`` without an intercept. A step changes two columns of W per row; the rival, the
    class other than its own with the largest score, is found by maximum inner product search. For sparse rows memory is
    proportional to the number of nonzero weights.

    It finds a good classifier fast and in little memory, but not the optimum, and computes no duality gap.
    `ActiveSetSDCA` minimizes the same objective with an l2 penalty to a certified gap, and is usually more accurate.

    Parameters
    ----------
    search : {"auto", "exact", "lsh", "graph"}, int or SearchIndex, default="auto"
        How rivals are found. "exact": by scoring all classes that can be the best one. int, >= 1: of the blocks of 16
        classes that can hold the best one, at most so many, those with the highest bounds; others are missed (with
        less than 512 classes or weights in an array: as "exact"). "auto": 16 from 20 000 classes on, else "exact".
        "lsh": by a `manyclass.mips.SimpleLSH`. "graph": by a
        `manyclass.mips.SmallWorldGraph`, as in the paper. An index, which is copied if given as an object, is updated
        after each batch, and what it returns is scored with the current weights. A fit that is resumed from a
        checkpoint builds a new index, and a new graph may return other rivals.
    batch_size : int, optional
        Rows per step, >= 1. None: an eighth of the number of classes, from 16 to 1024.
    eta0 : float, optional
        The first step size, > 0, for the sum of the gradients of a batch. None: 1 / (mean squared norm of the rows),
        divided by the number of rows in a batch per class if that exceeds 1, and reduced if a step would shrink the
        weights by more than half.
    eta_step : float, optional
        eta_t = eta0 / (1 + eta_step t) after t batches, as in the paper; >= 0. None: eta0 / (1 + alpha eta0 i) after i
        rows; in a stream (``partial_fit``) without alpha, eta0 (1 + i / 1000)^(-1/2).
    average : bool or "auto", default="auto"
        Whether to return the mean of the weights after the steps of the last half of the run. "auto": only without an
        l1 part, because then the mean is as sparse as the last weights.
    truncation : {"lazy", "touched"}, default="lazy"
        How an l1 part is applied. "lazy": exactly, when a row has the feature. "touched": as in the paper, to the
        classes R_t of a batch, K / abs(R_t) times as much.
    ball : {"optimum", "printed"}, default="optimum"
        The radius of the ball on which weights without an l1 part are projected after a step. "optimum": 1 /
        sqrt(alpha), which contains the optimum. "printed": 1 / sqrt(lambda) as in the paper, whose lambda is alpha
        times the rows of the batch; if the optimum is outside, the result is far from it.
    rehearsal : bool, default=True
        Whether a batch of ``partial_fit`` with a new class gets as many rows again, for classes that it lacks: their
        features are drawn from the weights of these classes, which would else be forgotten. Takes twice the time.

    References
    ----------
    .. [1] A. Belyy and A. Sholokhov, MEMOIR: multi-class extreme classification with inexact margin, 2018.

    Examples
    --------
    >>> from manyclass import CrammerSinger, LinearClassifier, Memoir
    >>> from manyclass.datasets import make_many_classes
    >>> X, y = make_many_classes(4000, 2000, 300, random_state=0)
    >>> model = LinearClassifier(CrammerSinger(gamma=0), solver=Memoir(search="lsh"), alpha=1e-6, random_state=0)
    >>> model.fit(X[:3500], y[:3500]).score(X[3500:], y[3500:]) > 0.3
    True
    """

    name = "memoir"
    summary = "stochastic SVM for very many classes in little memory; no certificate"
    needs_loss = frozenset({"sparse_dual"})
    needs_penalty = frozenset()
    default_max_iter = 8
    certified = False
    one_margin = False
    takes_intercept = False
    streams = True
    grows = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "search": [StrOptions({"auto", *PROPOSERS}), Interval(Integral, 1, None, closed="left"), SearchIndex],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "eta0": [Interval(Real, 0, None, closed="neither"), None],
        "eta_step": [Interval(Real, 0, None, closed="left"), None],
        "average": ["boolean", StrOptions({"auto"})],
        "truncation": [StrOptions(set(TRUNCATIONS))],
        "ball": [StrOptions(set(BALLS))],
        "rehearsal": ["boolean"],
    }

    def __init__(
        self,
        *,
        search: str | int | SearchIndex = "auto",
        batch_size: int | None = None,
        eta0: float | None = None,
        eta_step: float | None = None,
        average: bool | str = "auto",
        truncation: str = "lazy",
        ball: str = "optimum",
        rehearsal: bool = True,
    ) -> None:
        self.search = search
        self.batch_size = batch_size
        self.eta0 = eta0
        self.eta_step = eta_step
        self.average = average
        self.truncation = truncation
        self.ball = ball
        self.rehearsal = rehearsal

    def check_problem(self, problem: Problem) -> None:
        if problem.loss.name != "crammer_singer" or problem.loss.gamma:
            raise ValueError(
                f"solver 'memoir' needs loss=CrammerSinger(gamma=0), got loss {problem.loss.name!r}"
                f"{f' with gamma={float(problem.loss.gamma):g}' if problem.loss.name == 'crammer_singer' else ''}: "
                "give loss=CrammerSinger(gamma=0), or choose another solver"
            )
        if len(problem.loss.costs):
            raise ValueError(
                "solver 'memoir' needs errors that all cost 1, got CrammerSinger(costs=): leave costs=None, or choose "
                "another solver ('sdca_active')"
            )
        super().check_problem(problem)
        if self.average is True and _split(problem)[1]:
            raise ValueError(
                "average=True needs l1_ratio=0, got an l1 part, whose truncated weights have no sparse mean: give "
                "average='auto'"
            )
        eta0, batch = self._eta0(problem), self._batch(problem.n_outputs)
        decay = eta0 * _split(problem)[0] * batch
        if not decay < 1:
            raise ValueError(
                f"1 - eta0 * alpha * (1 - l1_ratio) * batch_size must be positive, got {1 - decay:.3g} with "
                f"eta0={eta0:.3g} and batch_size={batch}: lower one of them"
            )

    # --- a fit ------------------------------------------------------------------------------------------------------

    def state(self, problem: Problem) -> State:
        state: Any = {"iteration": np.zeros((), np.int64), "learner": self.learner(problem), "met": Passed()}
        return state  # type: ignore[no-any-return]

    def nbytes(self, problem: Problem) -> dict[str, int]:
        d, K = problem.n_features, problem.n_outputs
        if isinstance(problem.rows, CSRRows) and takes_table(d, K):
            return {}
        copies = 3 if self._averages(problem) else 2
        return {"weights": copies * d * K * problem.dtype.itemsize}

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        X, y, c = row_matrix(problem), problem.targets.y, np.asarray(problem.sample_weight)  # type: ignore[union-attr]
        kept = np.flatnonzero(c > 0)  # rows of weight 0, such as held-out ones, take no part
        weights = None if np.all(c[kept] == c[kept[0]]) else c / c[kept].mean()
        learner: Any = state["learner"]
        while True:
            epoch = int(state["iteration"])
            # Depends on seed and epoch only, so that a resumed run draws the same order.
            order = kept[np.random.default_rng([seed, epoch]).permutation(len(kept))]
            size = self._batch(problem.n_outputs)
            state["met"] = learner.epoch(X, y, order, batch_size=size, weights=weights, judge_seed=seed)
            state["iteration"] = np.asarray(epoch + 1, np.int64)
            yield Progress(epoch + 1, float(epoch + 1))

    def report(self, problem: Problem, state: State) -> dict[str, float]:
        """Statistics of the last epoch."""
        learner: Any = state["learner"]
        met: Any = state["met"]
        return {
            "loss": met.loss,
            "update_rate": met.updates / max(met.rows, 1),
            "recall": met.recall,
            "margin_error": met.margin_error,
            "nonzeros": float(learner.U.nonzeros()),
            "nbytes": float(learner.nbytes),
        }

    def pack(self, state: State) -> dict[str, Array]:
        learner: Any = state["learner"]
        return {"iteration": state["iteration"], **{f"learner.{name}": part for name, part in learner.pack().items()}}

    def unpack(self, problem: Problem, state: State, arrays: dict[str, Array]) -> None:
        learner: Any = state["learner"]
        parts = {name.removeprefix("learner."): array for name, array in arrays.items() if name != "iteration"}
        learner.unpack(parts)
        state["iteration"] = arrays["iteration"]

    def weights(self, problem: Problem, state: State) -> tuple[Any, Array]:
        learner: Any = state["learner"]
        # Valid within an epoch too, after an interrupt.
        return learner.weights(), np.zeros(problem.n_outputs, problem.dtype)

    def warm(self, problem: Problem, state: State) -> State:
        """Continue from the weights of another run."""
        W = self.weights(problem, state)[0]
        fresh: Any = self.state(problem)
        fresh["learner"].start(W)
        return fresh  # type: ignore[no-any-return]

    # --- a stream ---------------------------------------------------------------------------------------------------

    def open_stream(self, problem: Problem, *, vanishing: bool = False) -> MemoirStream:
        """A stream whose first rows are those of ``problem``."""
        return MemoirStream(self, problem, vanishing)

    # --- the learner ------------------------------------------------------------------------------------------------

    def _batch(self, n_classes: int) -> int:
        return min(_MOST, max(_LEAST, n_classes // _CLASSES)) if self.batch_size is None else int(self.batch_size)

    def _search(self, n_classes: int) -> SearchIndex | int | None:
        if self.search == "auto":
            return _BLOCKS if n_classes >= _MISSING else None
        return proposer(self.search) if isinstance(self.search, str | SearchIndex) else int(self.search)

    def _averages(self, problem: Problem) -> bool:
        return not _split(problem)[1] if self.average == "auto" else bool(self.average)

    def _eta0(self, problem: Problem) -> float:
        """The first step size."""
        if self.eta0 is not None:
            return float(self.eta0)
        batch = self._batch(problem.n_outputs)
        size = float(problem.norms.mean(dtype=np.float64)) if problem.n_samples else 0.0
        return 1.0 / max((size or 1.0) * max(1.0, batch / problem.n_outputs), 2.0 * _split(problem)[0] * batch)

    def learner(self, problem: Problem) -> MemoirLearner:
        """The `MemoirLearner` for this problem."""
        d, K = problem.n_features, problem.n_outputs
        l2, l1 = _split(problem)
        return MemoirLearner(
            d,
            K,
            problem.dtype,
            alpha=l2 + l1,
            l1_ratio=l1 / (l2 + l1),
            eta0=self._eta0(problem),
            eta_step=None if self.eta_step is None else float(self.eta_step),
            average=self._averages(problem),
            truncation=self.truncation,
            ball=self.ball,
            search=self._search(K),
            sparse=isinstance(problem.rows, CSRRows) and takes_table(d, K),
            n_threads=problem.n_threads,
        )


class MemoirStream:
    """MEMOIR on rows that arrive in a stream, each used once, in order; they may have new classes at any time.

    Parameters
    ----------
    solver : Memoir
        The options.
    problem : Problem
        The problem of the first rows.
    vanishing : bool
        See `Solver.open_stream`.
    """

    def __init__(self, solver: Memoir, problem: Problem, vanishing: bool) -> None:
        self._solver = solver
        self._learner = solver.learner(problem)
        self._learner.vanishing = vanishing
        #: Whether each class has had rows.
        self._known = np.zeros(self._learner.n_classes, bool)

    def start(self, weights: Any) -> None:
        """Start from the weights of a model, of shape (n_features, n_classes)."""
        self._learner.start(weights)
        self._known = np.asarray(abs(weights).sum(axis=0)).ravel() > 0

    def take(self, problem: Problem, weights: Array | None) -> None:
        """Update the weights by the rows of a problem with sample weights ``weights``, not scaled."""
        learner = self._learner
        if learner.n_classes < problem.n_outputs:
            learner.grow(problem.n_outputs)
        learner.l2, learner.l1 = _split(problem)
        learner.alpha = learner.l2 + learner.l1
        batch = self._solver._batch(problem.n_outputs)
        X, y = row_matrix(problem), np.asarray(problem.targets.y)  # type: ignore[union-attr]
        order = np.arange(len(y))
        self._known = np.append(self._known, np.zeros(problem.n_outputs - len(self._known), bool))
        there = np.unique(y)
        lacking = np.setdiff1d(np.flatnonzero(self._known), there)
        if self._solver.rehearsal and len(lacking) and not self._known[there].all():
            X, y, order, weights = self._rehearsed(X, y, weights, lacking)
        self._known[there] = True
        learner.epoch(X, y, order, batch_size=batch, weights=weights)

    def _rehearsed(
        self, X: Any, y: Array, weights: Array | None, lacking: Array
    ) -> tuple[Any, Array, Array, Array | None]:
        """The rows with others for the classes that they lack, the order of all, and their sample weights."""
        rng = np.random.default_rng([self._learner.seen, len(y)])
        lacking = np.resize(rng.permutation(lacking), len(y))  # each about as often
        chosen, place = np.unique(lacking, return_inverse=True)
        made, which = made_rows(self._learner.U.vectors(chosen)[place], X, rng)
        order = interleaved(len(y), len(which), rng)
        if weights is not None:
            weights = np.concatenate([weights, np.full(len(which), weights.mean())])
        X = sp.vstack([X, made], format="csr") if sp.issparse(X) else np.concatenate([X, made])
        return X, np.concatenate([y, lacking[which].astype(y.dtype)]), order, weights

    def weights(self) -> tuple[Any, Array]:
        """``(W, b)``."""
        W = self._learner.weights()
        return W, np.zeros(W.shape[1], W.dtype)


def _split(problem: Problem) -> tuple[float, float]:
    """The strengths of the l2 and the l1 part of the penalty."""
    if isinstance(problem.penalty, L1):
        return 0.0, problem.lam
    if isinstance(problem.penalty, L2):
        return problem.lam, 0.0
    return problem.lam, problem.lam * float(problem.penalty.threshold)
