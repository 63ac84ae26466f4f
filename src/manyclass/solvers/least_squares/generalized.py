"""Algorithm 1 with any monotone link: no loss is known, only how scores become predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from manyclass.objective.links import softmax
from manyclass.objective.links.identity import identity
from manyclass.objective.links.sigmoid import sigmoid
from manyclass.solvers.least_squares.arrays import Array
from manyclass.solvers.least_squares.design import Design, Moments
from manyclass.solvers.least_squares.solver import momentum
from manyclass.solvers.least_squares.systems import System

__all__ = [
    "LIPSCHITZ",
    "GeneralizedFit",
    "Link",
    "Step",
    "apply_link",
    "fit_generalized",
    "generalized_steps",
    "named_link",
]

#: Scores (n, K) -> predictions (n, K).
Link = Callable[[Array], Array]
#: Of the links that have a name: how fast predictions change with scores, in the Euclidean norm.
LIPSCHITZ = {"identity": 1.0, "softmax": 0.5, "sigmoid": 0.25}
_LINKS: dict[str, Link] = {"identity": identity, "softmax": softmax, "sigmoid": sigmoid}


def named_link(name: str) -> tuple[Link, float]:
    """A link and its Lipschitz constant."""
    return _LINKS[name], LIPSCHITZ[name]


def apply_link(link: Link, scores: Array) -> Array:
    """Predictions of scores.

    Raises
    ------
    ValueError
        If a link of the user's gives something else than finite numbers of the shape of its scores.
    """
    made = np.asarray(link(scores))
    if made.shape != scores.shape or made.dtype.kind not in "biuf" or not np.isfinite(made).all():
        raise ValueError(
            f"link must return finite numbers of the shape of its scores, {scores.shape}, got an array of {made.dtype} "
            f"and shape {made.shape}{'' if made.shape != scores.shape else ' with NaN or infinity'}"
        )
    return made.astype(scores.dtype, copy=False)


@dataclass(frozen=True)
class Step:
    """Weights before a step, how far from a solution they are, and the weights after it.

    Attributes
    ----------
    decrement : float
        The length of the step, sqrt(<grad, (L Sigma + alpha I)^-1 grad>): half its square bounds from below what the
        objective, where there is one, can still fall; zero at a solution.
    weights : ndarray of shape (q, K)
        After the step; the last row is the intercept's where the design has one.
    """

    decrement: float
    weights: Array


def generalized_steps(
    design: Design,
    targets: Array,
    link: Link,
    alpha: float,
    system: System,
    *,
    offsets: Array | None = None,
    start: Array | None = None,
    first: Array | None = None,
    accelerated: bool = True,
) -> Iterator[Step]:
    """W <- W - (L Sigma + alpha I)^-1 [X'(g(offsets + X W) - Y) / n + alpha W], for ever; one pass a step.

    Parameters
    ----------
    design : Design
    targets : ndarray of shape (n, K)
        Y.
    link : callable
        g, monotone; predictions of scores.
    alpha : float
        Of the penalty (alpha / 2) ||W||^2, which the intercept does not bear.
    system : System
        L Sigma + alpha I, for the L of the link.
    offsets : ndarray of shape (n, K), optional
        Scores of what was fitted before.
    start : ndarray of shape (q, K), optional
        First weights; zero by default.
    first : ndarray of shape (q, K), optional
        The first gradient, where a pass has made it already.
    accelerated : bool
        Nesterov's momentum in the metric of the system, restarted where a step points against the gradient.
    """
    p = design.n_features
    W = np.zeros((design.q, targets.shape[1])) if start is None else np.array(start, np.float64)
    last, t = W, 1.0
    while True:
        beta, later = momentum(t) if accelerated else (0.0, 1.0)
        ahead = W + beta * (W - last)
        if first is None:
            gradient = _gradient(design, targets, link, ahead, offsets)
        else:
            gradient, first = first.copy(), None
        gradient[:p] += alpha * ahead[:p]
        step = system.solve(gradient)
        new = ahead - step
        t = 1.0 if float(np.vdot(gradient, new - W)) > 0 else later
        last, W = W, new
        yield Step(math.sqrt(max(0.0, float(np.vdot(gradient, step)))), W)


def _gradient(design: Design, targets: Array, link: Link, W: Array, offsets: Array | None) -> Array:
    """X'(g(offsets + X W) - Y) / n, in one pass."""
    total = np.zeros(W.shape)
    for begin, end, F in design.chunks():
        shape = end - begin, W.shape[1]
        scores = np.zeros(shape, design.dtype) if offsets is None else offsets[begin:end].astype(design.dtype)
        design.add_chunk_scores(F, W, scores)
        design.add_chunk_cross(F, begin, end, apply_link(link, scores) - targets[begin:end], total)
    return total / design.n_samples


@dataclass(frozen=True)
class GeneralizedFit:
    """What `fit_generalized` reached.

    Attributes
    ----------
    weights : ndarray of shape (q, K)
        In float64; the last row is the intercept's where the design has one.
    n_iter : int
    relative_decrement : float
        The square of the length of the last step over that of the first; 0 where the first was zero.
    outcome : {"converged", "max_iter", "interrupted"}
    """

    weights: Array
    n_iter: int
    relative_decrement: float
    outcome: str


def fit_generalized(
    design: Design,
    targets: Array,
    link: Link,
    lipschitz: float,
    alpha: float,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
    accelerated: bool = True,
    factored: bool = True,
    moments: Moments | None = None,
    start: Array | None = None,
) -> GeneralizedFit:
    """Algorithm 1 until the square of a step's length is at most ``tol`` times that of the first.

    Half of that square is how far the objective, where there is one, would fall if the bound were it: it needs no
    objective, does not change with the units of X, and is zero at a solution alone. After an interrupt the weights
    reached so far are returned.
    """
    first = decrement = 0.0
    weights = np.zeros((design.q, targets.shape[1])) if start is None else start
    n_iter, outcome = 0, "max_iter"
    try:
        system = design.system(alpha, lipschitz, factored=factored, moments=moments)
        steps = generalized_steps(design, targets, link, alpha, system, start=start, accelerated=accelerated)
        for n_iter, step in enumerate(steps, 1):
            weights, decrement = step.weights, step.decrement**2
            first = decrement if n_iter == 1 else first
            if not np.isfinite(weights).all():
                raise ValueError(
                    f"the fit has left the finite numbers after {n_iter} steps: is the link monotone, and does its "
                    f"lipschitz constant hold (it was {lipschitz:g})?"
                )
            if decrement <= tol * first:
                outcome = "converged"
                break
            if n_iter >= max_iter:
                break
    except KeyboardInterrupt:
        outcome = "interrupted"
    return GeneralizedFit(weights, n_iter, decrement / first if first else 0.0, outcome)
