"""Prox-SDCA: stochastic dual coordinate ascent with all its options (Shalev-Shwartz & Zhang 2012, 2014).

Each step maximizes the dual over the dual vector of one sample: exactly (Option I), or on the segment to the negative
gradient (Options II to V, `manyclass.objective.losses.Segment`). An unpenalized intercept is fitted by the proximal
point method: in an epoch the term (kappa/2) ||b - center||^2 makes it the weight of a constant feature; after the
epoch the center moves to b. kappa is chosen so that this feature contributes a tenth of the mean squared norm of a
sample to a step (on six problems, of factors from 0.003 to 10, a tenth needed close to the fewest epochs). The
certificate is that of the problem WITHOUT the proximal term: `Problem.balance` changes the dual point to
sum_i c_i a_i = 0, as the dual of an unpenalized intercept requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyclass.kernels import sdca as kernels
from manyclass.objective.intercept import first_intercept
from manyclass.objective.losses import OPTIONS, Segment
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Progress, Solver, State, tasks
from manyclass.solvers.dual._rounds import Rounds, add_measured, fault, nothing_common, rounds_of

__all__ = ["IN_ROUNDS", "SAMPLINGS", "SDCA", "SHARE", "AsyncSDCA", "Epoch", "bias_step"]

SAMPLINGS = ("permutation", "uniform", "importance")
OUTPUTS = ("last", "average", "random")
#: Samplings of which an epoch can go in rounds.
IN_ROUNDS = ("auto", "rounds")

#: Every so many epochs shrinking is suspended and all samples are visited.
_ALL = 5
#: Least square of the constant feature whose weight is the intercept, in units of the mean squared norm of a sample.
SHARE = 0.1


@dataclass(frozen=True)
class Epoch:
    """The problem of an epoch: the problem itself, or an inner problem of `AcceleratedSDCA` with the same data.

    Attributes
    ----------
    problem : Problem
        Data, penalty and lam.
    loss : NamedTuple
        The loss, or a `Segment` of it.
    bias_step : float
        1 / (kappa n), the change of the intercept per unit of sum_i c_i a_i; 0 without an intercept.
    rounds : Rounds or None
        The rounds in which an epoch goes; None: one sample after the other.
    times : float
        Steps are taken as if each change weighed this many times as much: for changes that others add to. Of
        `ActiveSetSDCA`.
    """

    problem: Problem
    loss: Any
    bias_step: float
    rounds: Rounds | None = None
    times: float = 1.0


class SDCA(Solver):
    """Proximal stochastic dual coordinate ascent (Prox-SDCA).

    For a separable loss the outputs are independent problems: each thread takes a range of them. For a joint loss the
    threads share the steps of a round of samples (``sampling``), otherwise only the certificates. The result does not
    depend on the number of threads.

    Parameters
    ----------
    option : {"I", "II", "III", "IV", "V"}, default="I"
        The dual step; "I" is the exact one, which needs the fewest epochs for every loss here.
    sampling : {"auto", "permutation", "rounds", "uniform", "importance"}, default="auto"
        How the n samples of an epoch are drawn. "permutation": each once, in random order. "rounds", for joint losses
        and sparse rows: likewise, but the steps of 8 samples, of 32 with fewer than 128 outputs, are computed at the
        same weights, by up to 8 threads (`manyclass.kernels.rounds`). "auto": "rounds" with 128 outputs and more whose
        rows share few features, where they cost little on one thread; otherwise "permutation". "uniform": with
        replacement. "importance": with replacement, with probability proportional to gamma lam n + c_i ||x_i||^2.
    output : {"last", "average", "random"}, default="last"
        Which dual point the weights and the certificate are those of. "last": the last one, the best in practice. The
        theorems of Shalev-Shwartz and Zhang are on "average", the mean of the points after epochs T0 to T, and on
        "random", one of them drawn at random; T0 is the largest power of 2 up to T (the paper's sums are over single
        steps). Both need a second array of dual variables, a pass for each certificate, and a penalty that
        is not a pure l1 penalty.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the loss or penalty does not fit the options.
    """

    name = "sdca"
    summary = "proximal stochastic dual coordinate ascent; every loss and penalty"
    synonyms: ClassVar[tuple[str, ...]] = ("prox_sdca", "dual", "liblinear_dual")
    needs_loss = frozenset({"conjugate", "dual_step"})
    #: Every penalty; for a pure l1 penalty `SlightL2` takes its place.
    needs_penalty = frozenset({"prox"})
    takes_shift = True
    default_max_iter = 1000  # as LIBLINEAR; hinge losses take up to 616 at alpha 1e-6
    output: str = "last"
    _step_constraints: ClassVar[dict[str, list[Any]]] = {
        "option": [StrOptions(set(OPTIONS))],
        "sampling": [StrOptions({*IN_ROUNDS, *SAMPLINGS})],
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_step_constraints,
        "output": [StrOptions(set(OUTPUTS))],
    }

    def __init__(self, *, option: str = "I", sampling: str = "auto", output: str = "last") -> None:
        self.option = option
        self.sampling = sampling
        self.output = output

    def check(self) -> None:
        super().check()
        if self.sampling == "rounds" and self.option != "I":
            raise ValueError(f"sampling='rounds' needs option='I', got option={self.option!r}: leave out one of them")

    def prepare(self, problem: Problem) -> Solver:
        """A checked copy; for a pure l1 penalty, `SlightL2` with this solver."""
        copy = super().prepare(problem)
        if isinstance(problem.penalty, L1):
            from manyclass.solvers.dual.slight_l2 import SlightL2  # imports this module

            return SlightL2(copy)
        return copy

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        self._check_rounds(problem)
        if self.output != "last" and isinstance(problem.penalty, L1):
            raise ValueError(
                f"output={self.output!r} needs a penalty with an l2 part, got a pure l1 penalty: give output='last' or "
                "l1_ratio < 1"
            )
        if self.option in ("IV", "V") and not problem.loss.smoothness:
            raise ValueError(
                f"option {self.option!r} takes steps in proportion to the smoothness of the loss, and "
                f"{problem.loss.name} has none: give option='I', a gamma > 0, or AcceleratedSDCA, which smooths it"
            )

    def _check_rounds(self, problem: Problem) -> None:
        if self.sampling == "rounds" and (needs := fault(problem)):
            raise ValueError(f"sampling='rounds' needs {needs}; sampling='auto' takes rounds where they serve")

    def state(self, problem: Problem) -> State:
        V = problem.zeros()
        if problem.shift is not None:
            V[:, : problem.n_outputs] = problem.shift
        kept: State = {}
        if self.output != "last":
            kept = {"kept_dual": np.zeros((problem.n_samples, problem.n_outputs), problem.dtype)}
            kept["kept_bias"] = np.zeros(problem.n_outputs, problem.dtype)
        return {
            **kept,
            "iteration": np.zeros((), np.int64),
            "dual": np.zeros((problem.n_samples, problem.n_outputs), problem.dtype),
            "V": V,
            "bias": first_intercept(problem),
            "pull": np.zeros(problem.n_outputs, problem.dtype),
            "idle": np.zeros(problem.n_samples, np.int8),
            "passes": np.zeros(()),
            "common": nothing_common(),
        }

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize
        return {
            "weights": problem.n_features * problem.n_columns * size,
            "dual variables": (1 + (self.output != "last")) * problem.n_samples * problem.n_outputs * size,
            **self._copied_weights(problem),
        }

    def _copied_weights(self, problem: Problem) -> dict[str, int]:
        """Size in bytes of what `weights` returns, by a description; nothing where it is a view."""
        kept = isinstance(problem.penalty, L2) and problem.n_columns == problem.n_outputs and not problem.columns_first
        return {} if kept else {"weights of the model": self.weight_bytes(problem)}

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        epoch = Epoch(problem, self._loss(problem), self._bias_step(problem), self._rounds(problem))
        while True:
            done = int(state["iteration"])
            live = state["bias"] + state["pull"]
            order = self._due(problem, state, seed, done)
            self._epoch(epoch, state, order, live)
            state["passes"] = state["passes"] + len(order) / max(problem.n_samples, 1)
            if problem.intercept:
                state["pull"] = live - state["bias"]
                state["bias"] = live
            if self.output != "last":
                self._keep(state, seed, done + 1)
            state["iteration"] = np.asarray(done + 1, np.int64)
            yield Progress(done + 1, float(state["passes"]))

    def _keep(self, state: State, seed: int, number: int) -> None:
        """Update the point that ``output`` asks for, after an epoch."""
        count = number - (1 << (number.bit_length() - 1)) + 1  # epochs since the last power of 2
        drawn = np.random.default_rng([seed, number, 1]).random() * count < 1
        for kept, now in (("kept_dual", state["dual"]), ("kept_bias", state["bias"])):
            if self.output == "average":
                state[kept] += (now - state[kept]) / state[kept].dtype.type(count)
            elif drawn:
                state[kept][:] = now

    def _kept(self, problem: Problem, state: State) -> tuple[Array, Array, Array]:
        """Dual variables, their image, and the intercept of the point that ``output`` asks for."""
        some = int(state["iteration"]) > 0
        dual, bias = state["kept_dual" if some else "dual"].copy(), state["kept_bias" if some else "bias"]
        if problem.intercept:
            problem.balance(dual)
        V = np.zeros_like(state["V"])
        problem.dual_image(dual, V)
        return dual, V, bias

    def _rounds(self, problem: Problem) -> Rounds | None:
        if self.option != "I" or self.sampling not in IN_ROUNDS:
            return None
        return rounds_of(problem, wanted=self.sampling == "rounds")

    def _bias_step(self, problem: Problem) -> float:
        return bias_step(problem)

    def _due(self, problem: Problem, state: State, seed: int, number: int) -> Array:
        """The samples that an epoch visits, in order.

        Shrinking: samples whose dual variables did not change in their last visits (those of a hinge stay at a bound)
        are left out, except in every ``_ALL``-th epoch. The certificate is over all samples, so it remains valid.
        """
        order = self._order(problem, seed, number)
        return order[state["idle"][order] < 2] if number % _ALL else order

    def _loss(self, problem: Problem) -> Any:
        """The loss with the dual step of ``option``."""
        if self.option == "I":
            return problem.loss
        weights = np.asarray(problem.sample_weight)
        radius = float((weights * problem.norms).max(initial=0.0)) * problem.inv_lam_n
        radius += self._bias_step(problem) * float(weights.max(initial=0.0))
        return Segment(problem.loss, OPTIONS.index(self.option) + 1, float(problem.loss.smoothness), radius)

    def _order(self, problem: Problem, seed: int, epoch: int) -> Array:
        """The samples of an epoch; depends on seed and epoch only, so that a resumed run draws the same ones."""
        rng = np.random.default_rng([seed, epoch])
        n = problem.n_samples
        if self.sampling in ("permutation", *IN_ROUNDS):
            return np.asarray(rng.permutation(n), np.int32)
        if self.sampling == "uniform":
            return np.asarray(rng.integers(n, size=n, dtype=np.int32))
        weights = np.asarray(problem.sample_weight, np.float64)
        share = weights * (problem.norms + self._bias_step(problem) / problem.inv_lam_n)
        share += problem.loss.smoothness / problem.inv_lam_n
        # Without this bound a row of zeros would never be drawn for a loss with a kink, and its gap would remain.
        total = np.cumsum(np.maximum(share, 0.01 * share.mean() + 1e-300))
        drawn = np.searchsorted(total, rng.random(n) * total[-1], side="right")
        return np.asarray(np.minimum(drawn, n - 1), np.int32)

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        if epoch.rounds is not None:
            measured = np.zeros(2)
            for begin, end in tasks(epoch.problem, len(order), epoch.rounds.size)[0]:
                measured += epoch.rounds.steps(
                    epoch.problem, epoch.loss, epoch.bias_step, state, order[begin:end], live
                )
            add_measured(state, measured)
            return
        calls, outputs, threads = tasks(epoch.problem, len(order))
        for begin, end in calls:
            run(partial(_step, epoch, state, order[begin:end], live), outputs, threads)

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        if self.output != "last":
            dual, V, bias = self._kept(problem, state)
            return problem.certificate(V, bias, dual)
        if problem.intercept:
            problem.balance(state["dual"])
            state["pull"] = np.zeros_like(state["pull"])
        if problem.intercept or final:
            problem.dual_image(state["dual"], state["V"])
        return problem.certificate(state["V"], state["bias"], state["dual"])

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        if self.output != "last":
            _, V, bias = self._kept(problem, state)
            return np.ascontiguousarray(problem.primal(V)[:, : problem.n_outputs]), bias.copy()
        return np.ascontiguousarray(problem.primal(state["V"])[:, : problem.n_outputs]), state["bias"]


class AsyncSDCA(SDCA):
    """Prox-SDCA on several threads that update shared weights without locks.

    Each thread takes a part of the samples of every epoch. Concurrent updates may be lost, so that a run is not
    reproducible. The certificate remains valid, because the dual image is recomputed for it.

    Parameters
    ----------
    option : {"I", "II", "III", "IV", "V"}, default="I"
        Dual step, see `SDCA`.
    sampling : {"permutation", "uniform", "importance"}, default="permutation"
        How the samples of an epoch are drawn, see `SDCA`.
    """

    name = "sdca_async"
    summary = "Prox-SDCA with lock-free threads; certified, not reproducible"
    synonyms: ClassVar[tuple[str, ...]] = ("hogwild", "passcode")
    reproducible = False
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SDCA._step_constraints,
        "sampling": [StrOptions(set(SAMPLINGS))],
    }

    def __init__(self, *, option: str = "I", sampling: str = "permutation") -> None:
        self.option = option
        self.sampling = sampling

    def prepare(self, problem: Problem) -> Solver:
        """A checked copy; for Crammer-Singer with many classes, `ActiveSetSDCA`, whose threads share rounds."""
        from manyclass.solvers.dual.active import ActiveSetSDCA, has_many_rivals  # imports this module

        if (self.option, self.sampling) == ("I", "permutation") and has_many_rivals(problem):
            return ActiveSetSDCA().prepare(problem)
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


def bias_step(
    problem: Problem, share: float | None = None, mean: float | None = None, inv_lam_n: float | None = None
) -> float:
    """1 / (kappa n), where the intercept is the weight of a constant feature, whose square is a share of the mean
    squared norm of a sample. That ``mean`` and ``inv_lam_n`` are those of the problem unless they are given.

    The share is a tenth where R^2 / (gamma lam n) > 3, with R^2 the mean squared norm; it grows to 1 where this is 0.3.
    A smaller share lets the intercept lag, a larger one slows the duals. Epochs to a gap of 1e-3 with shares of 0.1, 1
    and this, on 12 000 rows: a9a, log loss, alpha 1e-2: 8, 3, 3; 1e-3: 9, 5, 5; 1e-4: 12, 22, 13.
    """
    if not problem.intercept:
        return 0.0
    if mean is None:
        mean = float(np.average(problem.norms, weights=problem.sample_weight))
    mean, inv_lam_n = mean or 1.0, problem.inv_lam_n if inv_lam_n is None else inv_lam_n
    if share is None:
        gamma = float(problem.loss.smoothness)
        share = min(1.0, max(SHARE, 0.3 * gamma / (mean * inv_lam_n)))
    return share * mean * inv_lam_n


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
        # A task for some outputs cannot tell whether the dual variables of the others have changed.
        state["idle"] if hi - lo == problem.n_outputs else np.zeros_like(state["idle"]),
        problem.inv_lam_n,
        epoch.bias_step,
        lo,
        hi,
    )
    return moved
