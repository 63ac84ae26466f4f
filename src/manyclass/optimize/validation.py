"""Held-out rows of a fit: their choice, their score at given weights, and the weights with the best score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.distributed import Communicator, SerialCommunicator
from manyclass.kernels.mixed import make_mixed
from manyclass.kernels.scoring import Scorer
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets, SoftTargets, Targets, soft_matrix
from manyclass.models.partitioned import ClassBlocks
from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.history import Validated
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.arrays import is_foreign, scores_there
from manyclass.solvers.base import Solver, row_matrix

__all__ = ["FRACTION", "Judge", "Score", "Validation", "held_out_rows", "truth_of"]

#: Fraction of the rows that early stopping holds out: scikit-learn's default.
FRACTION = 0.1
#: Maximum number of held-out rows: enough for a small standard error.
_MOST = 20_000


def held_out_rows(
    targets: Targets,
    weights: Array | None,
    rng: np.random.Generator,
    fraction: float,
    wanted_by: str,
    comm: Communicator | None = None,
) -> Array:
    """Indices of the held-out rows, sorted: this fraction of each class, but never the only row of a class.

    Rows of weight zero are not held out. With ``comm`` the rows are those of one of several processes, which call this
    together; one that cannot leave out any of its own holds out none.

    Raises
    ------
    ValueError
        If fewer than two rows can be left out; the message names the parameter ``wanted_by``.
    """
    weights = np.asarray(weights)
    n = len(weights)
    order = rng.permutation(n)
    if isinstance(targets, ClassTargets):
        group = targets.y
    elif isinstance(targets, SignTargets | SoftTargets):
        indptr, indices = targets.indptr, targets.indices
        first = np.minimum(indptr[:-1], max(len(indices) - 1, 0))
        group = np.where(np.diff(indptr) > 0, indices[first] if len(indices) else 0, -1)
    else:
        group = np.zeros(n, np.int64)
    order = order[np.argsort(group[order], kind="stable")]
    sizes = np.unique(group, return_counts=True)
    alone = np.isin(group, sizes[0][sizes[1] == 1]) if len(sizes[0]) > 1 else np.zeros(n, bool)
    order = order[(weights[order] > 0) & ~alone[order]]
    size = min(_MOST, max(1, round(fraction * len(order)))) if len(order) > 1 else 0
    if not (size if comm is None else comm.allreduce(np.int64(size))):
        raise ValueError(
            f"{wanted_by} needs rows to hold out, got {len(order)} rows that can be left out: pass more rows, or leave "
            f"out {wanted_by}"
        )
    if not size:
        return np.empty(0, np.int64)
    places = (np.arange(size) + rng.random()) * (len(order) / size)
    return np.sort(order[places.astype(np.int64)])


def truth_of(targets: Targets, held: Array, joint: bool = False) -> Any:
    """What is right for the rows ``held``: class numbers, a 0/1 CSR matrix of label sets, or real targets (n, K).

    One-vs-rest targets with one label for each row are classes. Of a distribution, that of a ``joint`` loss, the class
    with the largest share is right; of probabilities the labels above one half.
    """
    if isinstance(targets, SoftTargets):
        shares = soft_matrix(targets)[held]
        if joint:
            return np.asarray(shares.argmax(axis=1)).ravel()
        likely = sp.csr_matrix(shares > 0.5, dtype=np.int8)
        return np.diff(likely.indptr).astype(np.int32) if targets.n_outputs == 1 else likely
    if isinstance(targets, RealTargets):
        return targets.y[held]
    if isinstance(targets, ClassTargets):
        return targets.y[held]
    counts, K = np.diff(targets.indptr), targets.n_outputs
    if K == 1:
        return counts[held].astype(np.int32)
    ones = np.ones(len(targets.indices), np.int8)
    found = sp.csr_matrix((ones, targets.indices, targets.indptr), shape=(len(counts), K))[held]
    return found.indices if np.all(counts == 1) else found


class Score(NamedTuple):
    """A score, and those of the held-out rows if it is their mean."""

    score: float
    parts: Array | None = None


class Judge:
    """The score on held-out rows: accuracy, micro-F1 (multilabel) or minus the mean squared error (regression).

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        The rows.
    truth : array or CSR matrix
        What is right for them, see `truth_of`; a negative class number is never right.
    weights : array of shape (n,), optional
        Sample weights.
    n_threads : int
        Number of threads.
    comm : Communicator, optional
        Several processes, each with a judge of its own rows, which may be none: they call it together, and get the
        score of the rows of all. Only for classes.
    """

    def __init__(
        self, X: Any, truth: Any, weights: Array | None, n_threads: int, comm: Communicator | None = None
    ) -> None:
        self._X, self._truth, self._n_threads = X, truth, n_threads
        self._comm = SerialCommunicator() if comm is None else comm
        self._weights = None if weights is None else np.asarray(weights, np.float64)

    @classmethod
    def of(
        cls, problem: Problem, held: Array, labels: Any = None, comm: Communicator | None = None, scale: float = 1.0
    ) -> Judge:
        """The judge on some rows of a problem, with their weights; by ``labels`` of all rows if they are given.

        ``scale`` is the mean weight of the rows of this process where that of all processes is 1.
        """
        weights = np.asarray(problem.sample_weight, np.float64)[held] * scale
        truth = truth_of(problem.targets, held, problem.loss.joint) if labels is None else labels[held]
        rows = problem.taken(held) if isinstance(problem, ArrayProblem) else row_matrix(problem)[held]
        return cls(rows, truth, weights, problem.n_threads, comm)

    def __call__(self, W: Any, intercept: Array) -> Score:
        if isinstance(W, ClassBlocks):
            return self._mean(self._best_of_blocks(W, intercept) == self._truth)
        if is_foreign(self._X):
            return self.of_scores(scores_there(self._X, W, np.asarray(intercept)))
        scorer, truth, n = Scorer(W, np.asarray(intercept)), self._truth, self._n_threads
        if sp.issparse(truth):
            return _micro_f1(scorer.positive(self._X, n), truth)
        if truth.ndim == 2:
            return self._mean(-((scorer.scores(self._X, n) - truth) ** 2).mean(axis=1))
        if scorer.n_outputs == 1:
            return self._mean(np.diff(scorer.positive(self._X, n).indptr) == truth)
        if sp.issparse(W) and sp.issparse(self._X):
            W.sum_duplicates()  # in place: a sorted list of the same numbers
            return self._mean(scorer.best_mixed(self._X, 1, n, make_mixed(W, full=False))[0][:, 0] == truth)
        return self._mean(scorer.best(self._X, 1, n)[0][:, 0] == truth)

    def of_scores(self, scores: Array) -> Score:
        """As a call, for the scores of the rows."""
        truth = self._truth
        if sp.issparse(truth):
            return _micro_f1(sp.csr_matrix(scores > 0, dtype=np.int8), truth)
        if truth.ndim == 2:
            return self._mean(-((scores - truth) ** 2).mean(axis=1))
        return self._mean((scores.argmax(axis=1) if scores.shape[1] > 1 else scores[:, 0] > 0) == truth)

    def _best_of_blocks(self, W: ClassBlocks, intercept: Array) -> Array:
        """The class with the largest score of each row; of equal scores the lower class."""
        best, found = np.full(self._X.shape[0], -np.inf), np.zeros(self._X.shape[0], np.int64)
        for lo, hi, block in W.each(self._comm):
            number, value = (part[:, 0] for part in Scorer(block, intercept[lo:hi]).best(self._X, 1, self._n_threads))
            better = value > best
            best[better], found[better] = value[better], number[better] + lo
            self._comm.progress()
        return found

    def _mean(self, parts: Array) -> Score:
        parts = parts.astype(np.float64)
        if self._comm.size == 1:
            return Score(float(np.average(parts, weights=self._weights)), parts)
        weights = np.ones(len(parts)) if self._weights is None else self._weights
        total, whole = self._comm.allreduce(np.array([parts @ weights, weights.sum()])).tolist()
        return Score(total / whole, parts)


def _micro_f1(found: Any, truth: Any) -> Score:
    common = float(found.multiply(truth).sum())
    return Score(2.0 * common / max(float(found.sum() + truth.sum()), 1.0))


class Validation:
    """The scores of held-out rows along a fit, and the weights of the best one.

    Parameters
    ----------
    judge : callable
        Gives the score of weights and intercept, as `Judge`.
    patience : int, optional
        Number of iterations without a better score after which the fit ends, >= 1. None: scores are recorded only.
    """

    def __init__(self, judge: Callable[[Any, Array], Score], patience: int | None) -> None:
        self.patience = patience
        self._judge = judge
        self._best: tuple[int, float, Any, Array] | None = None

    def resume(self, iteration: int, score: float, W: Any, intercept: Array) -> None:
        """Take over the weights with the best score of an earlier part of the fit."""
        if self.patience is not None:
            self._best = iteration, score, W, intercept

    def look(self, iteration: int, seconds: float, W: Any, intercept: Array) -> Validated:
        """The score of these weights, which are kept if it is the best so far and the fit may end early."""
        score = self._judge(W, intercept).score
        if self.patience is not None and (self._best is None or score > self._best[1]):
            self._best = iteration, score, W.copy(), np.array(intercept)
        return Validated(iteration, seconds, score)

    def over(self, iteration: int) -> bool:
        """Whether the fit is to end after this iteration."""
        return self.patience is not None and self._best is not None and iteration - self._best[0] >= self.patience

    def kept(self, *, ended: bool, certified: bool) -> tuple[Any, Array] | None:
        """The best ``(W, b)`` if they are the result of the fit: it was ``ended`` by the scores, or has no certificate.

        None: the result is that of the last iteration.
        """
        return self.best if ended or not certified else None

    @property
    def best(self) -> tuple[Any, Array] | None:
        """``(W, b)`` of the best score; None if they are not kept."""
        return None if self._best is None else self._best[2:]

    def nbytes(self, problem: Problem, solver: Solver) -> dict[str, int]:
        """Size in bytes of the weights that are kept: at most what the solver needs, as they may be sparse."""
        if self.patience is None:
            return {}
        dense = solver.weight_bytes(problem)
        return {"best weights on held-out rows": min(dense, sum(solver.nbytes(problem).values()))}

    @property
    def found_best(self) -> tuple[int, float, Any, Array] | None:
        """Iteration, score, W and b of the best score, if they are kept: the arguments of `resume`."""
        return self._best

    def pack(self) -> dict[str, Array]:
        """What is kept, as arrays, for a checkpoint."""
        if self._best is None:
            return {}
        iteration, score, W, intercept = self._best
        found = {"best": np.array([iteration, score], np.float64), "intercept": intercept}
        if not sp.issparse(W):
            return {**found, "weights": W}
        shape = np.array(W.shape, np.int64)
        return {**found, "data": W.data, "indices": W.indices, "indptr": W.indptr, "shape": shape}

    def unpack(self, arrays: dict[str, Array]) -> None:
        """Load what `pack` returned; nothing, from the checkpoint of a fit that could not end early."""
        if "best" not in arrays:
            return
        W = arrays.get("weights")
        if W is None:
            W = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
        iteration, score = arrays["best"].tolist()
        self.resume(int(iteration), score, W, arrays["intercept"])
