"""Accelerated Prox-SDCA (Shalev-Shwartz & Zhang 2014, section 3): an accelerated proximal point method over SDCA.

Outer step t minimizes approximately, by epochs of Prox-SDCA that start from the last dual variables, the inner problem

    (1/n) sum_i c_i phi(W^T x_i + b; y_i) + lam g(W) + (kappa/2) ||W||^2 - kappa <W, Y_{t-1}>

and extrapolates: Y_t = W_t + beta (W_t - W_{t-1}). With lam' = lam + kappa the penalty of the inner problem is
g' = ||W||^2/2 + (threshold lam/lam') ||W||_1 - <W, (kappa/lam') Y>: SDCA with a shifted dual image V. The unpenalized
intercept has a proximal term of its own and is extrapolated too.

The certificate is that of the ORIGINAL problem, for which the dual variables of an inner problem are feasible. A line
search, which takes no pass over the data, finds the best dual point between the best one so far and the current one.

A loss that is not smooth (hinge) is smoothed in the inner problems by a gamma that decreases with the gap; P and D are
those of the loss itself. Where gamma is small the loss gradients are poor dual points; a better one is the mean of the
dual points of the outer steps, weighted as the momentum weighs them (Tseng, "On accelerated proximal gradient methods
for convex-concave optimization", 2008).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.kernels import accelerated as kernels
from manyclass.kernels.sdca import weighted_sums
from manyclass.objective.losses import CrammerSingerLoss
from manyclass.objective.problem import Array, Certificate, Problem, stored
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.dual._inner import ROWS, conjugates, inner_gap, inner_problem, smoothed
from manyclass.solvers.dual.condition import largest_kappa
from manyclass.solvers.dual.sdca import SDCA, SHARE, Epoch, bias_step
from manyclass.solvers.primal.base import momentum

__all__ = ["AcceleratedSDCA"]

#: The first kappa, as a fraction of the paper's.
_START = 0.03
#: Most epochs of an outer step with inner="auto".
_MOST_INNER = 2
#: Inner duality gap that is tolerated, in units of (kappa/2) ||W_t - Y_{t-1}||^2: at first; the minimum; at first for
#: Crammer and Singer's loss (eight dense data sets, alpha = 1/n, three seeds: passes over the data to a certified gap
#: of 1e-3 between 11 and 271 with 2; with 4 and 8 some of them had none after 1200 epochs).
_SLACK, _LEAST_SLACK, _SLACK_RIVALS = 8.0, 0.5, 2.0
#: For a loss that is not smooth: the first gamma; the part of the gap that is left to that of the smoothed problem when
#: gamma is divided, and the divisor. Twelve single fits of MNIST, USPS, letter and covtype, before the mean of the dual
#: points was kept: one has no certified 1e-3 after 1000 iterations, with 2 for 4 two.
_GAMMA, _PART, _DIVISOR = 0.1, 0.8, 4.0
#: The gamma below which the mean of the dual points is kept: the hinge losses. Steps to a certified 1e-3 of Crammer and
#: Singer's loss with 0.1 on MNIST at alpha 1e-6 625 without it, 353 with it; for softmax it makes no difference.
_AVERAGED = 1.0
#: Rounding errors of the dual images, in units of what they grow by, above which they are recomputed for a certificate
#: and every so many outer steps.
_ROUNDED, _REFRESH = 1e-5, 10
#: Most outer steps between two gaps, which kappa and the inner epochs are adapted to, for a smooth loss but Crammer and
#: Singer's: optdigits, squared hinge, alpha 1e-6 150, 167, 142 steps, 466, 395, 182 without a limit; 4 takes fewer and
#: more time. With 10 for the hinge, whose gamma then falls too soon, covtype has no certificate after 2000 (145 steps
#: without).
_MOST_BETWEEN = 10


class _OuterStep(NamedTuple):
    """An outer step: the current intercept, kappa, eta, the required inner accuracy, and the center Y_{t-1}."""

    live: Array
    kappa: float
    eta: float
    wanted: float
    center: Array


class AcceleratedSDCA(SDCA):
    """Accelerated proximal stochastic dual coordinate ascent (Prox-SDCA).

    Parameters
    ----------
    inner : int, "auto" or "accuracy", default="auto"
        Epochs per outer step, >= 1. The momentum is then the smaller of FISTA's and beta, with restarts, and kappa, at
        most R^2 / (gamma n) - lam, is adapted to the accuracy to which these epochs solve the inner problem. "auto":
        one epoch, and two after the objective has increased; two for Crammer and Singer's loss from the start.
        "accuracy": the method as published, with constant beta, and epochs until the inner duality gap is at most
        eta / (2 (1 + eta^-2)) xi_{t-1}; each inner gap costs a pass over the data.
    rule : {"gap", "rate", "proximal"}, default="gap"
        What the certificate is. "gap": the duality gap of the original problem. "rate" and "proximal", the stopping
        rules of the paper, need ``inner="accuracy"`` and no intercept and bound the suboptimality: "rate" by
        xi_1 exp(-eta (t - 1) / 2), "proximal" by (1 + rho/mu) eps_t + (rho kappa / (2 mu)) ||W_t - Y_{t-1}||^2. The
        dual objective is then reported as P minus the bound, or as its true value if that is larger.
    option : {"I", "II", "III", "IV", "V"}, default="I"
        Dual step of the inner solver, see `SDCA`.
    sampling : {"auto", "permutation", "rounds", "uniform", "importance"}, default="auto"
        How the samples of an epoch are drawn, see `SDCA`.
    """

    name = "accelerated"
    summary = "accelerated Prox-SDCA; small alpha, dense data, pure l1 penalty"
    synonyms: ClassVar[tuple[str, ...]] = ("accelerated_sdca", "acc_prox_sdca", "catalyst")
    takes_shift = False  # the inner problems have a shift of their own
    default_max_iter = 2000  # the squared hinge takes 709 on 77 intents at alpha 1e-6, others up to 1000
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SDCA._step_constraints,
        "inner": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto", "accuracy"})],
        "rule": [StrOptions({"gap", "rate", "proximal"})],
    }

    def __init__(
        self, *, inner: int | str = "auto", rule: str = "gap", option: str = "I", sampling: str = "auto"
    ) -> None:
        self.option = option
        self.sampling = sampling
        self.inner = inner
        self.rule = rule

    def check(self) -> None:
        super().check()
        if self.rule != "gap" and self.inner != "accuracy":
            raise ValueError(
                f"rule={self.rule!r} needs inner='accuracy', got inner={self.inner!r}: give it, or rule='gap'"
            )

    def check_problem(self, problem: Problem) -> None:
        Solver.check_problem(self, problem)  # not that of `SDCA`: the inner problems are smooth, as all options need
        self._check_rounds(problem)
        if self.rule != "gap" and problem.intercept:
            raise ValueError(
                f"rule={self.rule!r} needs fit_intercept=False, got an intercept, which is not penalized: give "
                "rule='gap' or fit_intercept=False"
            )

    def most_between(self, problem: Problem) -> int | None:
        loss = problem.loss
        return _MOST_BETWEEN if loss.smoothness and not isinstance(loss, CrammerSingerLoss) else None

    def state(self, problem: Problem) -> State:
        state = super().state(problem)
        arrays = self._arrays(state, np.zeros_like(state["V"]))
        return {**state, **arrays, **_averages(problem, state), **self._settings(problem)}

    def warm(self, problem: Problem, state: State) -> State:
        """Continue from a state of this solver or of Prox-SDCA, of other data or another lam.

        The dual variables remain feasible; the weights become the center of the first inner problem.
        """
        if "Y" not in state:
            state.update(self._arrays(state, np.copy(problem.primal(state["V"]))))
        state.update(_averages(problem, state))
        state.update(self._settings(problem))
        state["iteration"] = np.zeros((), np.int64)
        state["Y"][:] = state["W"]
        state["bias_center"] = state["bias"].copy()
        if problem.intercept:
            problem.balance(state["best_dual"])
        self._refresh(problem, state, best=True)
        return state

    @staticmethod
    def _arrays(state: State, W: Array) -> State:
        """The arrays besides those of `SDCA`: last weights, center, and the best dual point with its image."""
        return {
            "W": W,
            "Y": np.copy(W),
            "bias_center": state["bias"].copy(),
            "best_dual": state["dual"].copy(),
            "best_V": np.zeros_like(W),
        }

    def _settings(self, problem: Problem) -> State:
        """The initial scalars of a run."""
        gamma = float(problem.loss.smoothness) or _GAMMA
        kappa = largest_kappa(problem, gamma)
        if self.inner != "accuracy":
            kappa = min(max(_START * kappa, problem.lam), kappa)
        return {
            "best_value": np.full((), np.nan),
            "epochs": np.zeros((), np.int64),
            "theta": np.ones(()),
            "last_primal": np.full((), np.inf),
            "gamma": np.asarray(gamma),
            "kappa": np.asarray(kappa),
            "moved": np.zeros(()),
            "inner": np.asarray(self._first_inner(problem), np.int64),
            "slack": np.asarray(_SLACK_RIVALS if isinstance(problem.loss, CrammerSingerLoss) else _SLACK),
            # For inner="accuracy": xi_1, the number of the outer step, the bound of ``rule``, the inner gap.
            "xi": np.zeros(()),
            "outer": np.zeros((), np.int64),
            "bound": np.full((), np.inf),
            "gap": np.full((), np.inf),
        }

    def _first_inner(self, problem: Problem) -> int:
        if self.inner == "auto":
            return 2 if isinstance(problem.loss, CrammerSingerLoss) else 1
        return 0 if self.inner == "accuracy" else int(self.inner)

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize
        return {
            "weights": 5 * problem.n_features * problem.n_columns * size,
            "dual variables": (4 + _is_averaged(problem)) * problem.n_samples * problem.n_outputs * size,
            **self._copied_weights(problem),
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        settings, rounds = None, self._rounds(problem)
        while True:
            kappa, gamma = float(state["kappa"]), float(state["gamma"])
            if settings != (kappa, gamma):
                settings = kappa, gamma
                inner = inner_problem(problem, kappa, gamma)
                epoch = Epoch(inner, self._loss(inner), self._bias_step(inner), rounds)
            step = self._begin_step(problem, state, kappa)
            for done in itertools.count(1):
                order = self._due(inner, state, seed, int(state["epochs"]))
                self._epoch(epoch, state, order, step.live)
                state["passes"] = state["passes"] + len(order) / max(problem.n_samples, 1)
                state["epochs"] = state["epochs"] + 1
                if self._is_solved(problem, inner, state, step, done):
                    break
            passes = self._end_step(problem, inner, state, step)
            if _is_averaged(problem):
                _average(problem, state)
            state["iteration"] = state["iteration"] + 1
            if _is_rounded(problem, kappa) and not int(state["iteration"]) % _REFRESH:
                self._refresh(problem, state)
            yield Progress(int(state["iteration"]), passes)

    def _bias_step(self, problem: Problem) -> float:
        return bias_step(problem, SHARE)  # in proportion to 1 / lam, whatever kappa is

    def _begin_step(self, problem: Problem, state: State, kappa: float) -> _OuterStep:
        """The settings of an outer step."""
        eta = math.sqrt(0.5 * problem.lam / (0.5 * problem.lam + kappa))
        wanted, center = 0.0, state["Y"]
        if self.inner == "accuracy":
            if not int(state["outer"]):
                self._begin(problem, state, eta)
            center = np.copy(state["Y"])
            wanted = eta / (2.0 * (1.0 + eta**-2)) * float(state["xi"]) * (1.0 - eta / 2.0) ** (int(state["outer"]) - 1)
        return _OuterStep(state["bias_center"] + state["pull"], kappa, eta, wanted, center)

    def _is_solved(self, problem: Problem, inner: Problem, state: State, step: _OuterStep, done: int) -> bool:
        """Whether the outer step ends after ``done`` epochs on the inner problem."""
        if self.inner != "accuracy":
            return done >= int(state["inner"])
        gap = inner_gap(inner, state, step.live, step.kappa / inner.lam)
        state["gap"] = np.asarray(gap)
        return gap <= max(step.wanted, problem.resolution * max(1.0, float(state["xi"])))

    def _end_step(self, problem: Problem, inner: Problem, state: State, step: _OuterStep) -> float:
        """Extrapolate the center; returns the number of passes over the data so far."""
        pull, paper, live = step.kappa / inner.lam, self.inner == "accuracy", step.live
        beta = (1.0 - step.eta) / (1.0 + step.eta)
        theta, momentum = (1.0, beta) if paper else self._momentum(problem, state, inner, beta)
        V, Y, W, reg = stored(state["V"]), stored(state["Y"]), stored(state["W"]), inner.penalty
        _each(problem, V, lambda b, e: kernels.extrapolate(V, reg, Y, W, momentum, pull, b, e))
        if problem.intercept:
            state["pull"] = live - state["bias_center"]
            state["bias_center"] = live + problem.dtype.type(momentum) * (live - state["bias"])
            state["bias"] = live
        state["theta"] = np.asarray(theta)
        state["outer"] = state["outer"] + 1
        if paper:
            bound = self._bound(problem, state, step.kappa, step.eta, float(state["gap"]), step.center)
            state["bound"] = np.asarray(bound)
        # In the published method each inner gap takes a pass.
        return float(state["passes"]) + (float(state["epochs"]) if paper else 0.0)

    def _momentum(self, problem: Problem, state: State, inner: Problem, beta: float) -> tuple[float, float]:
        """FISTA's next theta, and the momentum; restarts by the gradient scheme (O'Donoghue & Candes 2015)."""
        V, Y, W, reg = stored(state["V"]), stored(state["Y"]), stored(state["W"]), inner.penalty
        back, moved = np.sum(_each(problem, V, lambda b, e: kernels.momentum(V, reg, Y, W, b, e)), axis=0).tolist()
        state["moved"] = np.asarray(moved)
        theta = 1.0 if back > 0 else float(state["theta"])
        fista, following = momentum(theta)
        return following, min(fista, beta)

    def _begin(self, problem: Problem, state: State, eta: float) -> None:
        """Set xi_1 = (1 + eta^-2) (P(0) - D(0)); the paper numbers the outer steps from 2."""
        zero = problem.certificate(np.zeros_like(state["V"]), state["bias"] * 0, np.zeros_like(state["dual"]))
        state["xi"] = np.asarray((1.0 + eta**-2) * zero.gap)
        state["outer"] = np.ones((), np.int64)

    def _bound(self, problem: Problem, state: State, kappa: float, eta: float, gap: float, center: Array) -> float:
        """The bound on the suboptimality by the stopping rules of the paper."""
        if self.rule == "rate":
            return float(state["xi"]) * math.exp(-0.5 * eta * (int(state["outer"]) - 1))
        mu = 0.5 * problem.lam
        rho = mu + kappa
        moved = float(np.sum((state["W"] - center) ** 2, dtype=np.float64))
        return (1.0 + rho / mu) * gap + rho * kappa / (2.0 * mu) * moved

    # --- the certificate of the original problem --------------------------------------------------------------------

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        kappa = float(state["kappa"])
        lam = problem.lam + kappa
        pull, scale = kappa / lam, lam / problem.lam
        dual, image = state["dual"], np.zeros_like(state["V"])
        if final or not problem.loss.smoothness or _is_rounded(problem, kappa):
            self._refresh(problem, state, image, final)
        else:
            V, Y, out = stored(state["V"]), stored(state["Y"]), stored(image)
            _each(problem, V, lambda b, e: kernels.own_image(V, Y, pull, scale, out, b, e))
        penalty, smooth = problem.penalty_value(state["W"]), smoothed(problem, float(state["gamma"]))
        other = np.empty_like(dual)
        if smooth is problem:
            # The negative loss gradients at W are a dual point, too, which computing P gives as well.
            losses = smooth_losses = problem.respond(state["W"], state["bias"], other)
        else:
            losses, smooth_losses = (p.losses(state["W"], state["bias"]) for p in (problem, smooth))
        primal = problem.objective(losses, penalty)
        if not final and self.inner != "accuracy":
            self._adapt(smooth, state, primal, smooth_losses, image)
        value = (
            self._offer(problem, state, dual.copy(), image)
            if problem.intercept
            else self._raise_best(problem, state, dual, image)
        )
        if smooth is problem:
            value = self._offer(problem, state, other, image)
        if _is_averaged(problem):
            other[:] = state["mean_dual"]
            value = self._offer(problem, state, other, image)
        if self.rule != "gap":
            value = max(value, primal - float(state["bound"]))
        found = problem.bounds(primal, value)
        if smooth is not problem:
            self._sharpen(problem, smooth, state, found.gap, smooth.objective(smooth_losses, penalty) - value)
        return found

    def _refresh(self, problem: Problem, state: State, image: Array | None = None, best: bool = False) -> None:
        """Recompute the dual image, which accumulates rounding errors, and the intercept from the dual variables.

        ``image`` is set to that of ``dual`` in the original problem; with ``best``, that of the best dual point is
        recomputed as well.
        """
        kappa = float(state["kappa"])
        lam = problem.lam + kappa
        pull, scale = problem.dtype.type(kappa / lam), problem.dtype.type(lam / problem.lam)
        dual, V = state["dual"], state["V"]
        image = V if image is None else image
        problem.dual_image(dual, image)
        np.divide(image, scale, out=V)
        V += pull * state["Y"]
        if problem.intercept:
            sums = weighted_sums(problem.sample_weight, dual)
            state["pull"] = np.asarray(self._bias_step(problem) * problem.lam / lam * sums, problem.dtype)
        if best:
            problem.dual_image(state["best_dual"], state["best_V"])
            state["best_value"] = np.full((), np.nan)

    def _adapt(self, problem: Problem, state: State, primal: float, losses: float, image: Array) -> None:
        """Adapt kappa to the accuracy to which an epoch solves the inner problem; restart the momentum if P increased.

        A smaller kappa needs fewer outer steps, as long as the inner gap is not much larger than the proximal term
        (kappa/2) ||W_t - Y_{t-1}||^2 (the criterion of inexact proximal point methods). If P increases, a smaller ratio
        is tolerated. The inner gap is a sum of Fenchel-Young gaps, whose terms are known here. ``problem`` has the loss
        of the inner problems, with ``losses``; ``primal`` is that of the loss itself.
        """
        rose = primal > float(state["last_primal"])
        state["last_primal"] = np.asarray(primal)
        if rose:
            state["theta"] = np.ones(())
            if int(state["iteration"]) > 3:
                state["slack"] = np.maximum(0.25 * state["slack"], _LEAST_SLACK)
                if self.inner == "auto":
                    state["inner"] = np.minimum(state["inner"] + 1, _MOST_INNER)
        dual, kappa, moved = state["dual"], float(state["kappa"]), float(state["moved"])
        if not kappa * moved > 0:
            return
        gap = (losses + conjugates(problem, dual)) / problem.n_samples
        gap += problem.lam * problem.inner_product(state["W"], image)
        if problem.intercept:
            mean = weighted_sums(problem.sample_weight, dual) / problem.n_samples
            gap += float(mean @ state["bias"].astype(np.float64))
        ratio = gap / (0.5 * kappa * moved)
        factor = min(max(ratio / float(state["slack"]), 0.125), 8.0) ** 0.7
        largest = largest_kappa(problem, float(state["gamma"]))
        wanted = min(max(kappa * factor, problem.lam), largest)
        if not 0.7 < wanted / kappa < 1.5:
            self._change_kappa(problem, state, wanted)

    def _change_kappa(self, problem: Problem, state: State, wanted: float) -> None:
        """Change kappa; V, which is in units of lam + kappa, is converted for the same dual variables and center."""
        kappa = float(state["kappa"])
        ratio = (problem.lam + kappa) / (problem.lam + wanted)
        real = problem.dtype.type
        V, Y = state["V"], state["Y"]
        V *= real(ratio)
        V += real((wanted - kappa) / (problem.lam + wanted)) * Y
        state["pull"] = real(ratio) * state["pull"]
        state["kappa"] = np.asarray(wanted)

    def _offer(self, problem: Problem, state: State, dual: Array, image: Array) -> float:
        """As `_raise_best`, for a dual point whose sums may be unbalanced; both arrays are changed in place."""
        if problem.intercept:
            problem.balance(dual)
        problem.dual_image(dual, image)
        return self._raise_best(problem, state, dual, image)

    def _raise_best(self, problem: Problem, state: State, dual: Array, image: Array) -> float:
        """Replace the best dual point by the best one on the segment to ``dual``; returns its dual objective."""
        best, best_image, image = state["best_dual"], stored(state["best_V"]), stored(image)

        def value(x: float) -> float:
            losses = sum(
                run(
                    lambda b, e: kernels.mixed_losses(
                        problem.targets, problem.sample_weight, problem.loss, best, dual, x, b, e
                    ),
                    ranges(len(best), ROWS),
                    problem.n_threads,
                )
            )
            parts = _each(
                problem, image, lambda b, e: kernels.mixed_conjugate(problem.penalty, best_image, image, x, b, e)
            )
            return -float(losses) / problem.n_samples - problem.lam * float(sum(parts))

        known = float(state["best_value"])
        x, highest = _maximize(value, known if np.isfinite(known) else None)
        state["best_value"] = np.asarray(highest)
        if x > 0.0:
            run(lambda b, e: kernels.mix(best, dual, x, b, e), ranges(len(best), ROWS), problem.n_threads)
            _each(problem, image, lambda b, e: kernels.mix(best_image, image, x, b, e))
        return highest

    def _sharpen(self, problem: Problem, smooth: Problem, state: State, gap: float, rest: float) -> None:
        """Reduce gamma once the gap of the smoothed problem, ``smooth``, is a `_PART` of the gap or less.

        ``gap`` is P - D, and ``rest`` is that of the smoothed problem without the change of D by smoothing, the mean of
        the added terms (gamma/2) ||a_i||^2 of the conjugates. kappa grows as gamma falls: the inner problems keep their
        condition number.
        """
        gamma, best = float(state["gamma"]), state["best_dual"]
        change = (conjugates(smooth, best) - conjugates(problem, best)) / problem.n_samples
        if rest + change > _PART * gap:
            return
        state["gamma"] = np.asarray(gamma / _DIVISOR)
        largest = largest_kappa(problem, gamma / _DIVISOR)
        self._change_kappa(problem, state, min(_DIVISOR * float(state["kappa"]), largest))

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return np.ascontiguousarray(state["W"][:, : problem.n_outputs]), state["bias"]


def _averages(problem: Problem, state: State) -> State:
    """The weighted mean of the dual points of the outer steps, and its weight, if it is kept."""
    if not _is_averaged(problem):
        return {}
    return {"mean_dual": state["dual"].copy(), "mean_weight": np.zeros(())}


def _is_averaged(problem: Problem) -> bool:
    """Whether the mean of the dual points of the outer steps is kept."""
    return float(problem.loss.smoothness) < _AVERAGED


def _average(problem: Problem, state: State) -> None:
    """Add the dual point of an outer step to the mean, which begins anew where the momentum does."""
    dual, mean, theta = state["dual"], state["mean_dual"], float(state["theta"])
    begins = theta == momentum(1.0)[1]
    weight = theta + (0.0 if begins else float(state["mean_weight"]))
    run(lambda b, e: kernels.mix(mean, dual, theta / weight, b, e), ranges(len(mean), ROWS), problem.n_threads)
    state["mean_weight"] = np.asarray(weight)


def _is_rounded(problem: Problem, kappa: float) -> bool:
    """Whether rounding errors of V, which the dual image has kappa / lam times, matter.

    With them the inner gaps, too, are noise, and kappa goes up for no reason. Optdigits, float32, Crammer and Singer's
    loss, alpha 1e-5: 794 steps to a certified 1e-3; with no image recomputed a gap of 0.6 after 2000, P rising.
    """
    return kappa * float(np.finfo(problem.dtype).eps) > _ROUNDED * problem.lam


def _each(problem: Problem, V: Array, kernel: Callable[[int, int], Any]) -> list[Any]:
    """Call a kernel for ranges of the rows of V on all threads; returns the results."""
    return run(kernel, ranges(len(V), ROWS), problem.n_threads)


def _maximize(value: Callable[[float], float], at_zero: float | None) -> tuple[float, float]:
    """The approximate maximizer on [0, 1] of a concave function, and its value, from at most six evaluations.

    Each new point is the maximum of the parabola through the best point and its neighbors.
    """
    points = [(0.0, value(0.0) if at_zero is None else at_zero), (1.0, value(1.0))]
    x = 0.3
    for _ in range(4):
        points = sorted([*points, (x, value(x))])
        best = max(range(len(points)), key=lambda i: points[i][1])
        first = min(max(best - 1, 0), len(points) - 3)
        (a, f), (b, g), (c, h) = points[first : first + 3]
        left, right = (g - f) / (b - a), (h - g) / (c - b)
        if not left > right:
            break
        x = min(max(0.5 * (a + b) + left * (c - a) / (2.0 * (left - right)), 0.0), 1.0)
        if min(abs(x - known) for known, _ in points) < 1e-3:
            break
    x, highest = max(points, key=lambda point: point[1])
    return x, highest
