"""A pure l1 penalty by a solver that needs a strongly convex one (Shalev-Shwartz & Zhang 2014, section 4: Lasso).

    sigma ||W||_1   ->   sigma ||W||_1 + (lam/2) ||W||^2,      lam = eps (sigma / P(0))^2

At the optimum sigma ||W||_1 <= P(0), so that the slight l2 part costs at most eps/2. It is the gap of the PURE problem
that is certified: the dual point is shrunk until its image is feasible. Where what is left of it is due to the l2 part,
eps is made smaller, and the run goes on from the same duals.
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
    """Solves an `L1` problem through the elastic nets that approach it.

    Parameters
    ----------
    solver : SDCA or AcceleratedSDCA
        What solves these.
    eps : float, optional
        The first eps, as a part of P(0). None: by measurement 1e-3 for AcceleratedSDCA, which does as well with any,
        and 0.5 for plain Prox-SDCA, which is slow where the l2 part is slight.
    """

    needs_penalty = frozenset({"prox"})

    def __init__(self, solver: Solver, *, eps: float | None = None) -> None:
        self.solver = solver
        self.eps = eps

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the solver inside, and what is done to the penalty."""
        return f"{self.solver.name} + slight l2"

    @property
    def default_max_iter(self) -> int:  # type: ignore[override]
        """That of the solver inside."""
        return self.solver.default_max_iter

    @property
    def needs_loss(self) -> frozenset[str]:  # type: ignore[override]
        """Those of the solver inside."""
        return self.solver.needs_loss

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        """As the solver inside is."""
        return self.solver.reproducible

    @property
    def _first_eps(self) -> Array:
        if self.eps is not None:
            return np.asarray(self.eps)
        return np.asarray(1e-3 if isinstance(self.solver, AcceleratedSDCA) else 0.5)

    def check(self) -> None:
        self.solver.check()
        if self.eps is not None and not 0 < self.eps < 1:
            raise ValueError(f"eps must be None or a number between 0 and 1, got {self.eps!r}: leave eps=None")

    def check_problem(self, problem: Problem) -> None:
        self.solver.check_problem(problem)
        if not isinstance(problem.penalty, L1):
            raise ValueError(
                f"solver {self.name!r} is for a pure l1 penalty, got {problem.penalty.name!r}: give l1_ratio=1, or "
                f"take solver {self.solver.name!r} as it is"
            )

    def state(self, problem: Problem) -> State:
        eps, at_zero = self._first_eps, _at_zero(problem)
        return {**self.solver.state(_reduced(problem, eps, at_zero)), "eps": eps, "at_zero": at_zero}

    def warm(self, problem: Problem, state: State) -> State:
        """Go on from a state of this solver, or of the one it drives; eps begins as in a cold start."""
        state["eps"], state["at_zero"] = self._first_eps, _at_zero(problem)
        driven = warm_state(_reduced(problem, state["eps"], state["at_zero"]), self.solver, state)
        return {**driven, "eps": state["eps"], "at_zero": state["at_zero"]}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        own = self.solver.nbytes(problem)
        return {**own, "certificate": (problem.n_samples + problem.n_features) * size}

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        while True:
            eps = float(state["eps"])
            for progress in self.solver.iterate(_reduced(problem, state["eps"], state["at_zero"]), state, seed):
                yield progress
                if float(state["eps"]) != eps:
                    break

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        reduced = _reduced(problem, state["eps"], state["at_zero"])
        near = self.solver.certificate(reduced, state, final=final)
        W, bias = self.solver.weights(reduced, state)
        answer, V = np.empty_like(state["dual"]), np.zeros_like(state["V"])
        losses = problem.respond(W, bias, answer)
        found = problem.certify(W, bias, losses, state["dual"].copy(), V)
        # The losses' answer to the weights is a dual point as well, and often the better one once it is shrunk.
        other = problem.certify(W, bias, losses, answer, V)
        if other.dual > found.dual:
            found = other
        if not final and near.gap < 0.1 * found.gap:
            state["eps"] = 0.2 * state["eps"]
            state["idle"][:] = 0
            self.solver.certificate(_reduced(problem, state["eps"], state["at_zero"]), state, final=True)
        return found

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return self.solver.weights(_reduced(problem, state["eps"], state["at_zero"]), state)


def _at_zero(problem: Problem) -> Array:
    """P(0), and the intercept a fit begins with."""
    W = np.zeros((problem.n_features, problem.n_outputs), problem.dtype)
    return np.asarray(max(problem.value(W, first_intercept(problem)), 1e-12))


def _reduced(problem: Problem, eps: Array, at_zero: Array) -> Problem:
    """The elastic net with lam = eps P(0) (sigma / P(0))^2."""
    lam = float(eps) * problem.lam**2 / float(at_zero)
    return replace(problem, lam=lam, penalty=ElasticNet(problem.lam / lam))
