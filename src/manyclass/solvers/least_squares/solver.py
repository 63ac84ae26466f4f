"""Generalized least squares: Newton-like steps with a constant matrix that is an upper bound on the Hessian."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyclass.objective.losses import CrammerSingerLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.arrays import copied
from manyclass.runtime.threads import single_blas
from manyclass.solvers.base import Progress, State, row_matrix
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.least_squares.systems import SYSTEMS, ConjugateGradients, System, is_factored, needed
from manyclass.solvers.primal.base import BatchSolver, constant, momentum
from manyclass.solvers.primal.dense import sweep_nbytes

__all__ = ["GeneralizedLeastSquares", "lipschitz"]


class GeneralizedLeastSquares(BatchSolver):
    """Generalized least squares: steps with a constant matrix that is an upper bound on the Hessian, factored once.

    W <- W - (L Sigma + lam I)^-1 grad P(W), with Sigma = X' diag(c) X / n and the Lipschitz constant L of the link (1/2
    for multinomial, 1/4 for log loss, 1 for squared).

    The matrix is an upper bound on the Hessian of P at every W, so that each step minimizes an upper bound on P. No
    step size and no line search are needed, and the number of iterations does not depend on the conditioning of X. For
    the squared loss the first step gives the ridge solution.

    With ``accelerated`` the gradient is evaluated at W_t + beta_t (W_t - W_{t-1}), with Nesterov's beta; the momentum
    restarts if <grad, W_{t+1} - W_t> > 0.

    Passes over the data: one per iteration, and one for the matrix; with conjugate gradients, one per product instead.

    Parameters
    ----------
    accelerated : bool, default=True
        Whether to use Nesterov's momentum with adaptive restart.
    system : {"auto", "cholesky", "cg"}, default="auto"
        How the linear systems are solved. "cholesky": by a factor of (d + 1)^2 numbers in float64. "cg": by conjugate
        gradients, inexactly, in memory of a few times the size of the weights; the steps still decrease an upper bound
        on P. "auto": "cholesky" for up to 10 000 features, if twice its memory is available.
    keep : bool, default=False
        Whether to keep the second moments for later runs of this object on the same rows and sample weights: fits that
        differ in alpha then need a factorization, but no pass over the data for it. Takes twice the memory.

    Raises
    ------
    ValueError
        If a parameter is invalid, the loss has a kink, or the penalty is not l2.

    References
    ----------
    Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
    prediction", ICML 2014, algorithm 1 and theorem 1, with the penalty in the matrix. Boehning, "Multinomial
    logistic regression algorithm", 1992. O'Donoghue and Candes, "Adaptive restart for accelerated gradient schemes",
    Found. Comput. Math. 2015, section 3.2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import GeneralizedLeastSquares
    >>> X, y = load_iris(return_X_y=True)
    >>> X[:, 0] *= 1000  # an ill-conditioned problem
    >>> model = LinearClassifier("multinomial", solver=GeneralizedLeastSquares(), alpha=0.1, tol=1e-6).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-6)
    True
    """

    name = "generalized_least_squares"
    summary = "steps with a constant bound on the Hessian, factored once; few, ill-conditioned features"
    synonyms = ("majorise", "majorize", "mm", "irls")
    needs_penalty = frozenset({"gradient"})
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "accelerated": ["boolean"],
        "system": [StrOptions(set(SYSTEMS))],
        "keep": ["boolean"],
    }
    #: With ``keep``, rows, sample weights and second moments of the last run, shared with the copies of `prepare`.
    _held: dict[str, Any]

    def __init__(self, *, accelerated: bool = True, system: str = "auto", keep: bool = False) -> None:
        self.accelerated = accelerated
        self.system = system
        self.keep = keep

    def prepare(self, problem: Problem) -> GeneralizedLeastSquares:
        """A checked copy, which with ``keep`` shares the second moments of this object."""
        copy: GeneralizedLeastSquares = super().prepare(problem)
        if self.keep:
            self._held = copy._held = getattr(self, "_held", {})
        return copy

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        return {**state, "last": copied(state["point"]), "momentum": np.ones(())}

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        parts = {
            "weights (two points, the next, the extrapolated one, a gradient)": 5 * (problem.n_features + 1) * size,
            "gradients of the losses": problem.n_samples * size,
            **sweep_nbytes(problem),
        }
        if not self._factors(problem):
            return parts
        kept = {"second moments to keep": 8 * (problem.n_features + 1) ** 2} if self.keep else {}
        return {**parts, **needed(problem.n_features + 1), **kept}

    def _factors(self, problem: Problem) -> bool:
        """Whether the systems are solved by a Cholesky factor."""
        return is_factored(self.system, problem.n_features + 1)

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        passes = 1.0 if self._factors(problem) else 0.0
        system = self._system(problem)
        if state["iteration"] == 0:  # a new run, possibly a warm start
            state["passes"], state["momentum"] = np.asarray(passes), np.ones(())
            state["last"][:] = state["point"]
        start, new = np.empty_like(state["point"]), np.empty_like(state["point"])
        # The constant feature of a point is ``scale``, that of the system 1.
        d, q, scale = problem.n_features, problem.n_features + int(problem.intercept), constant(problem) or 1.0
        while True:
            point, last = state["point"], state["last"]
            beta, later = momentum(float(state["momentum"])) if self.accelerated else (0.0, 1.0)
            np.subtract(point, last, out=start)
            start *= problem.dtype.type(beta)
            start += point
            gradient = self._gradient(problem, start, state)
            before = system.n_products if isinstance(system, ConjugateGradients) else 0
            step = system.solve(np.concatenate([gradient[:d], gradient[d:q] / scale]))
            step[d:] /= scale
            new[:] = start
            new[:q] -= step
            products = system.n_products - before if isinstance(system, ConjugateGradients) else 0
            with single_blas():  # or threads of the BLAS would wait, at full speed, for more of it during the next pass
                if float(np.vdot(gradient, np.subtract(new, point, out=start))) > 0:
                    later = 1.0
            state["last"], state["point"], new = point, new, last
            state["momentum"] = np.asarray(later)
            yield self._ended(state, 1 + products)

    def _gradient(self, problem: Problem, point: Array, state: State) -> Array:
        """The gradient of P at a point, in float64."""
        self._losses(problem, point, state)
        gradient = state["slope"].astype(np.float64)
        gradient[:-1] += problem.lam * point[:-1].astype(np.float64)
        return gradient

    def _system(self, problem: Problem) -> System:
        """The system L Sigma + lam I over the features and the constant feature, which is last and not penalized."""
        L = lipschitz(problem)
        design = Design(
            row_matrix(problem),
            weights=problem.sample_weight,
            intercept=problem.intercept,
            dtype=problem.dtype,
            n_threads=problem.n_threads,
        )
        factored = self._factors(problem)
        if not (factored and self.keep):
            return design.system(problem.lam, L, factored=factored)
        held = self._held
        same = held.get("rows") is problem.rows and np.array_equal(held["weights"], np.asarray(problem.sample_weight))
        if not same:
            # Ridge 0, which has the highest precision, serves every alpha.
            held |= {"rows": problem.rows, "weights": np.asarray(problem.sample_weight), "moments": design.moments(0.0)}
        return design.system(problem.lam, L, factored=True, moments=held["moments"])


def lipschitz(problem: Problem) -> float:
    """The Lipschitz constant L of the gradient of a loss with respect to the scores, in the Euclidean norm."""
    # The smoothness of Crammer and Singer's loss is that in the differences of scores, a map of norm sqrt(K).
    wide = problem.n_outputs if isinstance(problem.loss, CrammerSingerLoss) else 1
    return wide / float(problem.loss.smoothness)
