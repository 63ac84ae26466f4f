"""Base classes of the primal solvers: duality gaps, the intercept as the weight of a constant feature, gradients.

A dual solver has a lower bound at any time. A primal solver gets one from the negative gradients of the losses,
a_i = -grad phi(W^T x_i + b): they are dual feasible, and dual optimal if W is optimal (`Problem.certify`). The best
bound so far is not kept, because a warm start may continue the state on other data.
"""

from __future__ import annotations

import math

import numpy as np

from manyclass.kernels import primal as kernels
from manyclass.kernels.sdca import weighted_sums
from manyclass.kernels.targets import RealTargets
from manyclass.objective.intercept import first_intercept
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.objective.respond import responder
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import PLAIN, Progress, Solver, State
from manyclass.solvers.primal.dense import Measure, Sweep, at_zero, certify, set_image, suits_sweep, sweep

__all__ = ["ROWS", "BatchSolver", "PrimalSolver", "constant", "curvature", "fill_scores", "momentum", "respond_to"]

#: Rows per task of a parallel sum. Fixed: sums must not depend on the number of threads.
ROWS = 4096


class PrimalSolver(Solver):
    """A primal solver. Its state has buffers for the certificate: ``dual`` (n, K) and ``V`` (d, K)."""

    #: Only the certificate needs the conjugate.
    needs_loss = frozenset({"gradient", "conjugate"})

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        W, bias = self.weights(problem, state)
        return certify(problem, W, bias, state["dual"], self._image(state))

    def _image(self, state: State) -> Array:
        """The buffer of shape (d, K) for the dual image."""
        return state["V"]


class BatchSolver(PrimalSolver):
    """A primal solver that updates all weights at once, for a smooth loss.

    ``state["point"]`` has d + 1 rows: W, and the weights of a feature that has the value `constant` in every row and is
    not penalized. With that value the curvature along the intercept is of the size of the others for any scale of X.
    """

    needs_loss = PrimalSolver.needs_loss | {"smooth_gradient"}
    takes_shift = True
    #: What passes over dense rows measure besides, and the sum that the last one found.
    _measure_rows: Measure | None = None
    _measured = 0.0
    #: The point of the last pass over dense rows, and what it found, while ``dual`` still has the gradients there.
    _swept: tuple[Array, Sweep] | None = None

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return self._split(problem, state["point"])

    def warm(self, problem: Problem, state: State) -> State:
        """Continue from the weights; what depends on the rest of the problem is computed from them."""
        return state

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        W, bias = self.weights(problem, state)
        found = self._swept[1] if self._swept is not None and self._swept[0] is state["point"] else None
        self._swept = None  # the certificate overwrites ``dual``
        return certify(problem, W, bias, state["dual"], self._image(state), found)

    def _image(self, state: State) -> Array:
        return state["slope"][:-1]

    def _first(self, problem: Problem) -> State:
        """The part of the state that all batch solvers have."""
        shape = problem.n_features + 1, problem.n_outputs
        point = problem.blank(shape)
        if problem.intercept and isinstance(problem.targets, RealTargets):  # for classes 0 is only a few steps away
            point[-1, :] = problem.there(first_intercept(problem) / constant(problem))
        return {
            "iteration": np.zeros((), np.int64),
            "passes": np.zeros(()),
            "point": point,
            # Buffers that iterations and certificates share; written before they are read.
            "slope": problem.blank(shape),
            **self._dual(problem),
        }

    def _dual(self, problem: Problem) -> State:
        """The buffer of the gradients of the losses."""
        return {"dual": problem.blank((problem.n_samples, problem.n_outputs))}

    @staticmethod
    def _ended(state: State, passes: int, estimate: Certificate | None = None) -> Progress:
        """Add an iteration of ``passes`` passes over the data to the state."""
        state["iteration"] = np.asarray(state["iteration"] + 1)
        state["passes"] = np.asarray(state["passes"] + passes)
        return Progress(int(state["iteration"]), float(state["passes"]), estimate=estimate)

    def _losses(self, problem: Problem, point: Array, state: State) -> float:
        """The weighted sum of the losses at ``point``; sets ``state["slope"]`` to the gradient of their mean.

        One pass over the data. ``state["dual"]`` is overwritten.
        """
        W, bias = self._split(problem, point)
        if not suits_sweep(problem):
            losses = problem.respond(W, bias, state["dual"])
            self._slope(problem, state)
            return losses
        self._swept = None  # an interrupt may leave ``dual`` half written
        found = None if W.any() else at_zero(problem, bias, self._measure_rows)
        if found is None:
            found = sweep(problem, state["dual"], (W, bias), self._measure_rows)
            self._swept = point, found
        self._measured = found.measured
        self._slope(problem, state, found)
        return found.losses

    @staticmethod
    def _split(problem: Problem, point: Array) -> tuple[Array, Array]:
        """``(W, b)`` of a point of shape (d + 1, K)."""
        return point[:-1, :], constant(problem) * point[-1, :]

    @staticmethod
    def _slope(problem: Problem, state: State, found: Sweep | None = None) -> None:
        """Set ``state["slope"]`` to the gradient of the mean loss, from a pass over dense rows if it is given.

        Else ``dual`` are the negative gradients of the losses.
        """
        dual, slope = state["dual"], state["slope"]
        if found is None:
            problem.dual_image(dual, slope[:-1])
        else:
            set_image(problem, found.image, slope[:-1])
        slope[:-1] *= -problem.lam
        slope[-1] = 0
        if problem.intercept:
            sums = weighted_sums(problem.sample_weight, dual) if found is None else found.sums
            slope[-1] = -constant(problem) / problem.n_samples * sums


def fill_scores(problem: Problem, W: Array, bias: Array, scores: Array) -> None:
    """Set ``scores`` to X W + b; one pass over the data."""
    W, bias = problem.raw(W, bias)
    pieces = ranges(problem.n_samples, ROWS)
    run(lambda b, e: kernels.scores(problem.rows, W, bias, PLAIN, scores, b, e), pieces, problem.n_threads)


def respond_to(problem: Problem, scores: Array) -> float:
    """Replace scores by the negative loss gradients there; returns the weighted sum of the losses."""
    respond = responder(problem.loss, problem.targets)
    losses = run(
        lambda b, e: respond(problem.targets, problem.sample_weight, problem.loss, scores, b, e),
        ranges(problem.n_samples, ROWS),
        problem.n_threads,
    )
    return float(np.sum(losses))


def momentum(t: float) -> tuple[float, float]:
    """Nesterov's (t_k - 1) / t_{k+1}, and t_{k+1} (Beck & Teboulle 2009, equations 4.2 and 4.3)."""
    later = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
    return (t - 1.0) / later, later


def constant(problem: Problem) -> float:
    """The value of the constant feature of the intercept: the root mean squared row norm; 0 without an intercept."""
    if not problem.intercept:
        return 0.0
    return math.sqrt(float(np.average(problem.norms, weights=problem.sample_weight))) or 1.0


def curvature(problem: Problem) -> float:
    """The trace of a bound on the Hessian of the mean loss, an upper bound on its largest eigenvalue."""
    mean = float(np.average(problem.norms, weights=problem.sample_weight))
    return ((mean + constant(problem) ** 2) / float(problem.loss.smoothness)) or 1.0
