"""Prox-SDCA: stochastic dual coordinate ascent (Shalev-Shwartz & Zhang 2012, 2014), Option I.

Each step maximises the dual exactly over the dual vector of one example. An unpenalised intercept is carried by the
proximal point method: within an epoch it is held by (kappa/2) ||b - centre||^2, which makes it one more, constant
feature of the dual; after the epoch the centre moves to b. kappa is chosen so that this feature weighs a tenth of the
mean example in a step (measured on six problems: of 0.003 .. 10, a tenth was never far from the fewest epochs). The
certificate is that of the problem WITHOUT the proximal term: `Problem.balance` brings the dual point to
sum_i c_i a_i = 0, where the intercept's dual is finite.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from manyclass.kernels import sdca as kernels
from manyclass.kernels.rows import n_stored
from manyclass.parallel import ranges, run
from manyclass.problem import Array, Certificate, Problem
from manyclass.solvers.base import Progress, State

__all__ = ["SDCA", "AsyncSDCA"]

#: Multiply-adds after which a kernel returns to Python, so that Ctrl-C is heard within about a second.
_WORK = 2e9
#: Least columns a thread takes when the outputs are split: a few cache lines, so that threads do not share any.
_COLUMNS = 64


class SDCA:
    """Prox-SDCA, a random permutation of the examples per epoch.

    For a separable loss the K outputs are independent problems: with several threads each takes a range of columns,
    and the result is the same to the last bit. For a joint loss threads serve the certificates only.
    """

    name = "sdca"
    needs_loss = frozenset({"conjugate", "dual_step"})
    needs_regularizer = frozenset({"conjugate"})
    certifies = False

    def state(self, problem: Problem) -> State:
        shape = problem.n_features, problem.n_outputs
        return {
            "iteration": np.zeros((), np.int64),
            "alpha": np.zeros((problem.n_samples, problem.n_outputs), problem.dtype),
            "V": np.zeros(shape, problem.dtype),
            "bias": problem.first_intercept(),
            "pull": np.zeros(problem.n_outputs, problem.dtype),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        return {"weights": problem.n_features * size, "dual variables": problem.n_samples * size}

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        step = bias_step(problem)
        while True:
            epoch = int(state["iteration"])
            # From the seed and the epoch alone: a resumed run draws what the uninterrupted one would have drawn.
            order = np.random.default_rng([seed, epoch]).permutation(problem.n_samples).astype(np.int32)
            live = state["bias"] + state["pull"]
            self._epoch(problem, state, order, live, step)
            if problem.intercept:
                state["pull"] = live - state["bias"]
                state["bias"] = live
            state["iteration"] = np.asarray(epoch + 1, np.int64)
            yield Progress(epoch + 1, float(epoch + 1))

    def _epoch(self, problem: Problem, state: State, order: Array, live: Array, step: float) -> None:
        threads = problem.n_threads if not problem.loss.joint else 1
        width = max(_COLUMNS, -(-problem.n_outputs // (threads * _COLUMNS)) * _COLUMNS)
        work = 2.0 * n_stored(problem.rows) * min(width, problem.n_outputs)
        slices = ranges(len(order), max(1, int(len(order) * min(1.0, _WORK / max(work, 1.0)))))
        for begin, end in slices:
            part = order[begin:end]
            run(
                lambda lo, hi, part=part: _step(problem, state, part, live, step, lo, hi),  # type: ignore[misc]
                ranges(problem.n_outputs, width),
                threads,
            )

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        if problem.intercept:
            problem.balance(state["alpha"])
            state["pull"] = np.zeros_like(state["pull"])
        if problem.intercept or final:
            problem.dual_image(state["alpha"], state["V"])
        return problem.certificate(state["V"], state["bias"], state["alpha"])

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return problem.primal(state["V"]), state["bias"]


class AsyncSDCA(SDCA):
    """Prox-SDCA on several threads that share the weights without locks.

    Each thread takes its part of every epoch's examples. Updates of one thread may be lost to another, so that a run
    is not reproducible; the dual image is computed afresh for every certificate, which is therefore true.
    """

    name = "sdca_async"

    def _epoch(self, problem: Problem, state: State, order: Array, live: Array, step: float) -> None:
        size = -(-len(order) // problem.n_threads)
        run(
            lambda begin, end: _step(problem, state, order[begin:end], live, step, 0, problem.n_outputs),
            ranges(len(order), size),
            problem.n_threads,
        )

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        return super().certificate(problem, state, final=True)


def bias_step(problem: Problem) -> float:
    """1 / (kappa n): kappa such that the intercept weighs a tenth of the mean example in a step."""
    if not problem.intercept:
        return 0.0
    mean = float(np.average(problem.norms, weights=problem.weights))
    return 0.1 * (mean if mean > 0 else 1.0) * problem.inv_lam_n


def _step(problem: Problem, state: State, order: Array, live: Array, intercept_step: float, lo: int, hi: int) -> int:
    moved: int = kernels.sdca_epoch(
        problem.rows,
        problem.targets,
        problem.weights,
        problem.norms,
        order,
        problem.loss,
        problem.regularizer,
        state["V"],
        live,
        state["alpha"],
        problem.inv_lam_n,
        intercept_step,
        lo,
        hi,
    )
    return moved
