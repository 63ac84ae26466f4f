"""A pure l1 penalty for solvers that need strong convexity (Shalev-Shwartz & Zhang 2014, section 4: Lasso).

    sigma ||W||_1   ->   sigma ||W||_1 + (lam/2) ||W||^2,      lam = eps P(0) (sigma / P(0))^2

At the optimum sigma ||W||_1 <= P(0), so that the l2 part changes the objective by at most eps P(0) / 2. The certificate
is the duality gap of the l1 problem: the dual point is scaled until it is feasible. When most of that gap is due to the
l2 part, eps is reduced before the next iteration, which continues from the same dual variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from manyclass.objective.intercept import first_intercept
from manyclass.objective.penalties import L1, ElasticNet
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.dual.accelerated import AcceleratedSDCA
from manyclass.solvers.dual.warm import warm_state

__all__ = ["SlightL2"]


class SlightL2(Solver):
    """Solve an `L1` problem as a sequence of elastic nets with decreasing l2 part.

    Parameters
    ----------
    solver : SDCA or AcceleratedSDCA
        The solver of the elastic nets.
    eps : float, optional
        The first eps, > 0. None: 1e-3 for AcceleratedSDCA, for which it hardly matters, and 500 for SDCA, which is
        slow if the l2 part is small: on four small problems with three losses, 500 needed a third to a tenth of the
        epochs of 5 to a gap of 1e-2, and 0.5 often more than 1000.
    """

    needs_penalty = frozenset({"prox"})

    def __init__(self, solver: Solver, *, eps: float | None = None) -> None:
        self.solver = solver
        self.eps = eps

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the inner solver with a suffix."""
        return f"{self.solver.name} + slight l2"

    @property
    def default_max_iter(self) -> int:  # type: ignore[override]
        """As for the inner solver."""
        return self.solver.default_max_iter

    @property
    def needs_loss(self) -> frozenset[str]:  # type: ignore[override]
        """As for the inner solver."""
        return self.solver.needs_loss

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        """As for the inner solver."""
        return self.solver.reproducible

    @property
    def _first_eps(self) -> Array:
        if self.eps is not None:
            return np.asarray(self.eps)
        return np.asarray(1e-3 if isinstance(self.solver, AcceleratedSDCA) else 500.0)

    def check(self) -> None:
        self.solver.check()
        if self.eps is not None and not 0 < self.eps < np.inf:
            raise ValueError(f"eps must be None or a finite number greater than 0, got {self.eps!r}: leave eps=None")

    def check_problem(self, problem: Problem) -> None:
        self.solver.check_problem(problem)
        if not isinstance(problem.penalty, L1):
            raise ValueError(
                f"solver {self.name!r} needs a pure l1 penalty, got {problem.penalty.name!r}: give l1_ratio=1, or use "
                f"solver {self.solver.name!r}"
            )

    def most_between(self, problem: Problem) -> int | None:
        return self.solver.most_between(problem)

    def state(self, problem: Problem) -> State:
        eps, at_zero = self._first_eps, _at_zero(problem)
        inner = self.solver.state(_reduced(problem, eps, at_zero))
        return {**inner, "eps": eps, "at_zero": at_zero, "shrink": np.zeros((), np.int8)}

    def warm(self, problem: Problem, state: State) -> State:
        """Continue from a state of this solver or of its inner solver; eps starts as in a cold start."""
        eps, at_zero = self._first_eps, _at_zero(problem)
        driven = warm_state(_reduced(problem, eps, at_zero), self.solver, state)
        return {**driven, "eps": eps, "at_zero": at_zero, "shrink": np.zeros((), np.int8)}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        own = self.solver.nbytes(problem)
        return {**own, "certificate": (problem.n_samples + problem.n_features) * size}

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        while True:
            if state["shrink"]:
                self._shrink(problem, state)
            reduced = _reduced(problem, state["eps"], state["at_zero"])
            for progress in self.solver.iterate(reduced, state, seed):
                yield progress
                if state["shrink"]:
                    break

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        reduced = _reduced(problem, state["eps"], state["at_zero"])
        near = self.solver.certificate(reduced, state, final=final)
        W, bias = self.solver.weights(reduced, state)
        answer, V = np.empty_like(state["dual"]), np.zeros_like(state["V"])
        losses = problem.respond(W, bias, answer)
        found = problem.certify(W, bias, losses, state["dual"].copy(), V)
        # The negative loss gradients at W are a second dual point, which is often the better one after scaling.
        other = problem.certify(W, bias, losses, answer, V)
        if other.dual > found.dual:
            found = other
        if not final:
            state["shrink"] = np.asarray(near.gap < 0.1 * found.gap, np.int8)
        return found

    def _shrink(self, problem: Problem, state: State) -> None:
        """Reduce eps; the weights are those of the same dual variables with the new l2 part."""
        state["eps"], state["shrink"] = 0.2 * state["eps"], np.zeros((), np.int8)
        state["idle"][:] = 0
        self.solver.certificate(_reduced(problem, state["eps"], state["at_zero"]), state, final=True)

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return self.solver.weights(_reduced(problem, state["eps"], state["at_zero"]), state)


def _at_zero(problem: Problem) -> Array:
    """P at W = 0 and the first intercept."""
    W = np.zeros((problem.n_features, problem.n_outputs), problem.dtype)
    return np.asarray(max(problem.value(W, first_intercept(problem)), 1e-12))


def _reduced(problem: Problem, eps: Array, at_zero: Array) -> Problem:
    """The elastic net with lam = eps P(0) (sigma / P(0))^2."""
    lam = float(eps) * problem.lam**2 / float(at_zero)
    return replace(problem, lam=lam, penalty=ElasticNet(problem.lam / lam))
