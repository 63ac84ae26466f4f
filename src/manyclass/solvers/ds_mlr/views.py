"""The scores of the rows of a worker: kept in memory, or recomputed when they are needed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from manyclass.kernels import ds_mlr as kernels
from manyclass.objective.problem import Array
from manyclass.solvers.ds_mlr.rounds import Visit
from manyclass.solvers.ds_mlr.worker import Worker
from manyclass.solvers.primal.descent import Found, line_search

__all__ = ["Kept", "Line", "Made", "Scores"]

#: The line search ends when the slope is at most this fraction of that at the start.
_WITHIN = 0.1
#: Step sizes that are evaluated together if scores are not kept, as powers of two.
_POWERS = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
#: Maximum number of such evaluations per line search.
_LOOKS = 6

#: ``see(shard, S, lo)`` gets scores of all rows of a shard; the columns are the classes from ``lo`` on.
See = Callable[[int, Array, int], None]
Weights = Mapping[int, Array]


class Line:
    """The objective along a direction: P(t) = losses(t) / n + (lam/2) (ww + 2 t wd + t^2 dd).

    Parameters
    ----------
    n, lam : int, float
        Number of rows; strength of the penalty.
    value, fall : float
        P and its slope at t = 0.
    ww, wd, dd : float
        Inner products of the penalized weights w and the direction d.
    noise : float
        Rounding error of P.
    """

    def __init__(
        self, n: int, lam: float, value: float, fall: float, ww: float, wd: float, dd: float, noise: float
    ) -> None:
        self.n, self.lam, self.value, self.fall, self.noise = n, lam, value, fall, noise
        self.ww, self.wd, self.dd = ww, wd, dd

    def at(self, t: float, losses: float, slope: float) -> tuple[float, float]:
        """Objective and slope at t, from the sums of the losses and of their slopes."""
        penalty = 0.5 * self.lam * (self.ww + 2.0 * t * self.wd + t * t * self.dd)
        return losses / self.n + penalty, slope / self.n + self.lam * (self.wd + t * self.dd)


class Scores(ABC):
    """Operations on the scores; every worker must call the same methods in the same order."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    @abstractmethod
    def load(self, weights: Weights) -> None:
        """Update the scores to those of the weights."""

    @abstractmethod
    def each(self, weights: Weights, see: See) -> None:
        """Call ``see`` with the scores of the rows of this worker, some classes at a time."""

    @abstractmethod
    def pull(self, weights: Weights, moving: tuple[Array, Array]) -> dict[int, Array]:
        """``sum_i c_i (p_i - e_y) x_i^T`` over all rows, for the blocks of this worker (see `Worker.pull_block`)."""

    @abstractmethod
    def bend(self, weights: Weights) -> dict[int, Array]:
        """``sum_i c_i p_ik (1 - p_ik) x_ij^2`` over all rows, for the blocks of this worker."""

    @abstractmethod
    def search(self, weights: Weights, directions: Weights, line: Line) -> Found:
        """A line search along the directions; updates the scores to those after the step, but not the weights."""

    @abstractmethod
    def losses(self) -> float:
        """The weighted sum of the losses over all rows."""


class Kept(Scores):
    """Scores are kept: 2 n K / P numbers in each of P workers.

    Parameters
    ----------
    worker : Worker
        The worker.
    S, T : dict of ndarray of shape (rows, K)
        Scores at the weights and along the direction, by shard, of all workers of the process.
    """

    def __init__(self, worker: Worker, S: dict[int, Array], T: dict[int, Array]) -> None:
        super().__init__(worker)
        self.S, self.T = S, T

    def _own(self) -> Iterator[tuple[int, Array]]:
        return ((shard, self.S[shard]) for shard in self.worker.shards)

    def load(self, weights: Weights) -> None:
        self.worker.score({block: W.copy() for block, W in weights.items()}, self.S)
        self.totals()

    def totals(self) -> None:
        """Update the log-sum-exps to those of the scores."""
        worker = self.worker
        worker.begin_sums()
        for shard, S in self._own():
            for block in range(worker.grid.n_blocks):
                worker.add_sums(shard, slice(None), block, S, *worker.grid.classes(block))
        worker.end_sums()

    def each(self, weights: Weights, see: See) -> None:
        for shard, S in self._own():
            see(shard, S, 0)

    def pull(self, weights: Weights, moving: tuple[Array, Array]) -> dict[int, Array]:
        worker = self.worker

        def visit(shard: int, block: int, G: Array) -> None:
            worker.pull_block(shard, block, self.S[shard], worker.grid.classes(block)[0], G, moving)

        return worker.shared_round({block: np.zeros_like(W) for block, W in weights.items()}, visit)

    def bend(self, weights: Weights) -> dict[int, Array]:
        worker = self.worker

        def visit(shard: int, block: int, H: Array) -> None:
            worker.bend_block(shard, self.S[shard], worker.grid.classes(block)[0], H)

        return worker.shared_round({block: np.zeros_like(W) for block, W in weights.items()}, visit)

    def search(self, weights: Weights, directions: Weights, line: Line) -> Found:
        worker = self.worker
        worker.score({block: D.copy() for block, D in directions.items()}, self.T)

        def evaluate(t: float) -> tuple[float, float]:
            parts: dict[int, Array] = {}
            for shard, S in self._own():
                parts[shard] = np.zeros(2)
                begin = worker.local(shard)[0]
                kernels.line_sums(S, self.T[shard], t, begin, worker.share.y, worker.share.weights, parts[shard])
            losses, slope = worker.by_shard(parts, 2).tolist()
            return line.at(t, losses, slope)

        found = line_search(evaluate, line.value, line.fall, line.noise, within=_WITHIN)
        if found.step:
            for shard, S in self._own():
                S += S.dtype.type(found.step) * self.T[shard]
            self.totals()
        return found

    def losses(self) -> float:
        worker = self.worker
        parts = {
            shard: kernels.loss_rows(
                S, worker.local(shard)[0], worker.share.y, worker.share.weights, worker.total[shard]
            )
            for shard, S in self._own()
        }
        return float(worker.by_shard(parts)[0])


class Made(Scores):
    """Scores of a block are recomputed at each visit, which takes three times the work of `Kept`.

    The line search evaluates several step sizes in one round, and keeps sums over the blocks, n / P numbers for each.

    Attributes
    ----------
    own : dict of ndarray of shape (rows, 2)
        Scores of the targets at the weights and along the direction, by shard.
    """

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.own: dict[int, Array] = {}

    def load(self, weights: Weights) -> None:
        self.worker.begin_sums()
        self.each(weights, self._note(self.worker))
        self.worker.end_sums()

    def _note(self, worker: Worker) -> See:
        """A function for `each` that takes the log-sum-exps of blocks and stores the scores of the targets."""
        number = {worker.grid.classes(block)[0]: block for block in range(worker.grid.n_blocks)}

        def see(shard: int, S: Array, lo: int) -> None:
            worker.add_sums(shard, slice(None), number[lo], S, 0, S.shape[1])
            begin, end = worker.local(shard)
            at = worker.share.y[begin:end] - lo
            rows = np.flatnonzero((at >= 0) & (at < S.shape[1]))
            self.own[shard][rows, 0] = S[rows, at[rows]]

        return see

    def each(self, weights: Weights, see: See) -> None:
        worker = self.worker

        def visit(shard: int, block: int, W: Array) -> None:
            see(shard, self._scores(shard, W), worker.grid.classes(block)[0])

        worker.round({block: W.copy() for block, W in weights.items()}, visit)

    def _scores(self, shard: int, W: Array) -> Array:
        S = np.empty((len(self.worker.total[shard]), W.shape[1]), W.dtype)
        self.worker.score_block(shard, W, S, 0)
        return S

    def pull(self, weights: Weights, moving: tuple[Array, Array]) -> dict[int, Array]:
        worker = self.worker

        def visit(shard: int, block: int, payload: Array) -> None:
            worker.pull_block(shard, block, self._scores(shard, payload[0]), 0, payload[1], moving)

        return self._sums(weights, visit)

    def bend(self, weights: Weights) -> dict[int, Array]:
        worker = self.worker

        def visit(shard: int, block: int, payload: Array) -> None:
            worker.bend_block(shard, self._scores(shard, payload[0]), 0, payload[1])

        return self._sums(weights, visit)

    def _sums(self, weights: Weights, visit: Visit) -> dict[int, Array]:
        """The results of visits that add to the second array of payloads whose first array is the weights."""
        pairs = {block: np.stack([W, np.zeros_like(W)]) for block, W in weights.items()}
        return {block: pair[1] for block, pair in self.worker.round(pairs, visit).items()}

    def search(self, weights: Weights, directions: Weights, line: Line) -> Found:
        ts = np.exp2(np.array(_POWERS))
        best, flattest = Found(0.0, line.value, 0), math.inf
        totals: dict[int, Array] = {}
        low, high = 0.0, math.inf
        for look in range(1, _LOOKS + 1):
            values, slopes, found = self._look(weights, directions, ts, line)
            good = [
                m
                for m in range(len(ts))
                if values[m] <= line.value + 1e-4 * ts[m] * line.fall
                or (values[m] <= line.value + line.noise and slopes[m] <= (2e-4 - 1.0) * line.fall)
            ]
            if good:
                m = min(good, key=lambda m: abs(slopes[m]))
                if abs(slopes[m]) < flattest:
                    best, flattest = Found(float(ts[m]), float(values[m]), look), abs(slopes[m])
                    totals = {shard: log[:, m].copy() for shard, log in found.items()}
            if best.step and flattest <= -2.0 * _WITHIN * line.fall:
                break
            # The slope of a convex function changes its sign once.
            low = max([low, *(float(t) for t, s in zip(ts, slopes) if s < 0)])
            high = min([high, *(float(t) for t, s in zip(ts, slopes) if not s < 0)])
            ends = (low, 8.0 * low) if math.isinf(high) else (max(low, high / 256.0), high)
            ts = np.linspace(*ends, len(_POWERS) + 2)[1:-1] if low else np.geomspace(*ends, len(_POWERS) + 2)[1:-1]
        if best.step:
            for shard, total in totals.items():
                self.worker.total[shard][:] = total
                self.own[shard][:, 0] += best.step * self.own[shard][:, 1]
        return best

    def _look(
        self, weights: Weights, directions: Weights, ts: Array, line: Line
    ) -> tuple[list[float], list[float], dict[int, Array]]:
        """Objective and slope at each step size, and the log-sum-exps of the rows of this worker there, by shard."""
        worker = self.worker
        shape = {shard: (len(worker.total[shard]), len(ts)) for shard in worker.shards}
        top = {shard: np.full(shape[shard], -np.inf) for shard in worker.shards}
        total, first = ({shard: np.zeros(shape[shard]) for shard in worker.shards} for _ in range(2))

        def visit(shard: int, block: int, payload: Array) -> None:
            S, T = self._scores(shard, payload[0]), self._scores(shard, payload[1])
            lo = worker.grid.classes(block)[0]
            begin = worker.local(shard)[0]
            kernels.candidate_sums(
                S, T, ts, worker.share.y, begin, lo, top[shard], total[shard], first[shard], self.own[shard]
            )

        worker.round({block: np.stack([W, directions[block]]) for block, W in weights.items()}, visit)
        logs, parts = {}, {}
        for shard in worker.shards:
            begin, end = worker.local(shard)
            c = np.asarray(worker.share.weights[begin:end], np.float64)
            logs[shard] = top[shard] + np.log(np.maximum(total[shard], 1e-300))
            own = self.own[shard]
            losses = c @ (logs[shard] - (own[:, :1] + own[:, 1:] * ts))
            slopes = c @ (first[shard] / np.maximum(total[shard], 1e-300) - own[:, 1:])
            parts[shard] = np.concatenate([losses, slopes])
        sums = worker.by_shard(parts, 2 * len(ts))
        values, found = [], []
        for m, t in enumerate(ts):
            value, slope = line.at(float(t), float(sums[m]), float(sums[len(ts) + m]))
            values.append(value)
            found.append(slope)
        return values, found, logs

    def losses(self) -> float:
        worker, parts = self.worker, {}
        for shard in worker.shards:
            begin, end = worker.local(shard)
            c = np.asarray(worker.share.weights[begin:end], np.float64)
            parts[shard] = float(c @ (worker.total[shard] - self.own[shard][:, 0]))
        return float(worker.by_shard(parts)[0])
