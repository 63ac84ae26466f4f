"""Prox-SDCA: stochastic dual coordinate ascent (Shalev-Shwartz & Zhang 2012, 2014), all its options.

Each step raises the dual over the dual vector of one example: exactly (Option I), or on the segment to the negative
gradient (Options II to V, `manyclass.objective.losses.Segment`). An unpenalized intercept is carried by the
proximal point method: within an epoch it is held by (kappa/2) ||b - center||^2, which makes it one more, constant
feature of the dual; after the epoch the center moves to b. kappa is chosen so that this feature weighs a tenth of the
mean example in a step (measured on six problems: of 0.003 .. 10, a tenth was never far from the fewest epochs). The
certificate is that of the problem WITHOUT the proximal term: `Problem.balance` brings the dual point to
sum_i c_i a_i = 0, where the intercept's dual is finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyclass.kernels import sdca as kernels
from manyclass.kernels.rows import n_stored
from manyclass.objective.intercept import first_intercept
from manyclass.objective.losses import OPTIONS, Segment
from manyclass.objective.penalties import L1
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Progress, Solver, State

__all__ = ["SAMPLINGS", "SDCA", "AsyncSDCA", "Epoch"]

SAMPLINGS = ("permutation", "uniform", "importance")

#: Multiply-adds after which a kernel returns to Python, so that Ctrl-C is heard within about a second.
_WORK = 2e9
#: Least columns a thread takes when the outputs are split: a few cache lines, so that threads do not share any.
_COLUMNS = 64
#: Every so many epochs all examples are visited, those at rest too.
_ALL = 5


@dataclass(frozen=True)
class Epoch:
    """What one epoch works on: the problem itself, or an inner problem of the acceleration with the same data.

    Attributes
    ----------
    problem : Problem
        Data, penalty and lam.
    loss : NamedTuple
        The loss, or a `Segment` of it.
    bias_step : float
        1 / (kappa n): how far the intercept moves for one unit of sum_i c_i a_i; 0 without an intercept.
    """

    problem: Problem
    loss: Any
    bias_step: float


class SDCA(Solver):
    """Prox-SDCA.

    For a separable loss the K outputs are independent problems: with several threads each takes a range of columns,
    and the result is the same to the last bit. For a joint loss threads serve the certificates only.

    Parameters
    ----------
    option : {"I", "II", "III", "IV", "V"}
        The dual step. "I", the exact one, is the best known for every loss here.
    sampling : {"permutation", "uniform", "importance"}
        The n examples of an epoch: each once in random order; drawn with replacement; drawn with replacement and
        probability proportional to gamma lam n + c_i ||x_i||^2.
    """

    name = "sdca"
    summary = "proximal stochastic dual coordinate ascent; every loss and penalty"
    synonyms: ClassVar[tuple[str, ...]] = ("prox_sdca", "dual", "liblinear_dual")
    needs_loss = frozenset({"conjugate", "dual_step"})
    #: Every penalty: a pure l1 by way of `SlightL2`.
    needs_penalty = frozenset({"prox"})
    takes_shift = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "option": [StrOptions(set(OPTIONS))],
        "sampling": [StrOptions(set(SAMPLINGS))],
    }

    def __init__(self, *, option: str = "I", sampling: str = "permutation") -> None:
        self.option = option
        self.sampling = sampling

    def prepare(self, problem: Problem) -> Solver:
        """This solver; for a pure l1 penalty, the one that gives it a small l2 part (`SlightL2`)."""
        copy = super().prepare(problem)
        if isinstance(problem.penalty, L1):
            from manyclass.solvers.dual.slight_l2 import SlightL2  # which is built on this class

            return SlightL2(copy)
        return copy

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if self.option in ("IV", "V") and not problem.loss.smoothness:
            raise ValueError(
                f"option {self.option!r} takes steps in proportion to the smoothness of the loss, and "
                f"{problem.loss.name} has none: take option 'I', gamma > 0, or AcceleratedSDCA, which smooths it"
            )

    def state(self, problem: Problem) -> State:
        V = problem.zeros()
        if problem.shift is not None:
            V[:, : problem.n_outputs] = problem.shift
        return {
            "iteration": np.zeros((), np.int64),
            "dual": np.zeros((problem.n_samples, problem.n_outputs), problem.dtype),
            "V": V,
            "bias": first_intercept(problem),
            "pull": np.zeros(problem.n_outputs, problem.dtype),
            "idle": np.zeros(problem.n_samples, np.int8),
            "passes": np.zeros(()),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize
        return {
            "weights": problem.n_features * problem.n_columns * size,
            "dual variables": problem.n_samples * problem.n_outputs * size,
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        epoch = Epoch(problem, self._loss(problem), bias_step(problem))
        while True:
            done = int(state["iteration"])
            live = state["bias"] + state["pull"]
            order = self._due(problem, state, seed, done)
            self._epoch(epoch, state, order, live)
            state["passes"] = state["passes"] + len(order) / max(problem.n_samples, 1)
            if problem.intercept:
                state["pull"] = live - state["bias"]
                state["bias"] = live
            state["iteration"] = np.asarray(done + 1, np.int64)
            yield Progress(done + 1, float(state["passes"]))

    def _due(self, problem: Problem, state: State, seed: int, number: int) -> Array:
        """The examples that an epoch visits, in order: all, less those that shrinking leaves out.

        Where a dual sits at a bound (a hinge that is met, or not met at all) it does not move by a digit: such examples
        are left out, all but every ``_ALL``-th epoch. That is safe, as a certificate is of all examples, whatever
        has been visited.
        """
        order = self._order(problem, seed, number)
        return order[state["idle"][order] < 2] if number % _ALL else order

    def _loss(self, problem: Problem) -> Any:
        """The loss with the dual step of the option."""
        if self.option == "I":
            return problem.loss
        weights = np.asarray(problem.sample_weight)
        radius = float((weights * problem.norms).max(initial=0.0)) * problem.inv_lam_n
        radius += bias_step(problem) * float(weights.max(initial=0.0))
        return Segment(problem.loss, OPTIONS.index(self.option) + 1, float(problem.loss.smoothness), radius)

    def _order(self, problem: Problem, seed: int, epoch: int) -> Array:
        """The examples of an epoch. From the seed and the epoch alone: a resumed run draws what the uninterrupted one
        would have drawn."""
        rng = np.random.default_rng([seed, epoch])
        n = problem.n_samples
        if self.sampling == "permutation":
            return np.asarray(rng.permutation(n), np.int32)
        if self.sampling == "uniform":
            return np.asarray(rng.integers(n, size=n, dtype=np.int32))
        weights = np.asarray(problem.sample_weight, np.float64)
        share = weights * (problem.norms + bias_step(problem) / problem.inv_lam_n)
        share += problem.loss.smoothness / problem.inv_lam_n
        # Without smoothness an empty row would never be drawn, and its share of the gap stay for ever.
        total = np.cumsum(np.maximum(share, 0.01 * share.mean() + 1e-300))
        drawn = np.searchsorted(total, rng.random(n) * total[-1], side="right")
        return np.asarray(np.minimum(drawn, n - 1), np.int32)

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        problem = epoch.problem
        threads = problem.n_threads if not problem.loss.joint else 1
        width = max(_COLUMNS, -(-problem.n_outputs // (threads * _COLUMNS)) * _COLUMNS)
        work = 2.0 * n_stored(problem.rows) * min(width, problem.n_outputs)
        slices = ranges(len(order), max(1, int(len(order) * min(1.0, _WORK / max(work, 1.0)))))
        for begin, end in slices:
            part = order[begin:end]
            run(partial(_step, epoch, state, part, live), ranges(problem.n_outputs, width), threads)

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        if problem.intercept:
            problem.balance(state["dual"])
            state["pull"] = np.zeros_like(state["pull"])
        if problem.intercept or final:
            problem.dual_image(state["dual"], state["V"])
        return problem.certificate(state["V"], state["bias"], state["dual"])

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return np.ascontiguousarray(problem.primal(state["V"])[:, : problem.n_outputs]), state["bias"]


class AsyncSDCA(SDCA):
    """Prox-SDCA on several threads that share the weights without locks.

    Each thread takes its part of every epoch's examples. Updates of one thread may be lost to another, so that a run
    is not reproducible; the dual image is computed afresh for every certificate, which is therefore true.

    Parameters
    ----------
    option : {"I", "II", "III", "IV", "V"}, default="I"
        Dual step, see `SDCA`.
    sampling : {"permutation", "uniform", "importance"}, default="permutation"
        Examples of an epoch, see `SDCA`.
    """

    name = "sdca_async"
    summary = "threads share the weights without locks; certified, not reproducible"
    synonyms: ClassVar[tuple[str, ...]] = ("hogwild", "passcode")
    reproducible = False

    def prepare(self, problem: Problem) -> Solver:
        """This solver; for Crammer-Singer with many classes, the one that keeps active sets of rivals."""
        from manyclass.solvers.dual.active import AsyncActiveSetSDCA, has_many_rivals  # built on this class

        if (self.option, self.sampling) == ("I", "permutation") and has_many_rivals(problem):
            return AsyncActiveSetSDCA().prepare(problem)
        return super().prepare(problem)

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        threads = epoch.problem.n_threads
        run(
            lambda begin, end: _step(epoch, state, order[begin:end], live, 0, epoch.problem.n_outputs),
            ranges(len(order), max(1, -(-len(order) // threads))),
            threads,
        )

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        return super().certificate(problem, state, final=True)


def bias_step(problem: Problem) -> float:
    """1 / (kappa n): kappa such that the intercept weighs a tenth of the mean example in a step."""
    if not problem.intercept:
        return 0.0
    mean = float(np.average(problem.norms, weights=problem.sample_weight))
    return 0.1 * (mean if mean > 0 else 1.0) * problem.inv_lam_n


def _step(epoch: Epoch, state: State, order: Array, live: Array, lo: int, hi: int) -> int:
    problem = epoch.problem
    moved: int = kernels.sdca_epoch(
        problem.rows,
        problem.targets,
        problem.sample_weight,
        problem.norms,
        order,
        epoch.loss,
        problem.penalty,
        state["V"],
        live,
        state["dual"],
        # A range of columns does not know whether the others are at rest.
        state["idle"] if hi - lo == problem.n_outputs else np.zeros_like(state["idle"]),
        problem.inv_lam_n,
        epoch.bias_step,
        lo,
        hi,
    )
    return moved
