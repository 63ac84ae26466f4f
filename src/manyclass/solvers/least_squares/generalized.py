"""Generalized least squares (Algorithm 1) for any monotone link, of which the loss need not be known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from manyclass.objective.links import softmax
from manyclass.objective.links.identity import identity
from manyclass.objective.links.sigmoid import sigmoid
from manyclass.runtime.arrays import Array
from manyclass.solvers.least_squares.design import Design, Moments
from manyclass.solvers.least_squares.systems import System
from manyclass.solvers.primal.base import momentum

__all__ = [
    "LINKS",
    "GeneralizedFit",
    "Link",
    "Step",
    "apply_link",
    "fit_generalized",
    "generalized_steps",
    "named_link",
    "objective_of",
]

#: A function of scores (n, K) that returns predictions (n, K).
Link = Callable[[Array], Array]
#: Links by name, with their Lipschitz constants in the Euclidean norm.
LINKS: dict[str, tuple[Link, float]] = {
    "identity": (identity, 1.0),
    "softmax": (softmax, 0.5),
    "sigmoid": (sigmoid, 0.25),
}


def named_link(name: str) -> tuple[Link, float]:
    """The link "identity", "softmax" or "sigmoid", and its Lipschitz constant."""
    return LINKS[name]


def objective_of(design: Design, targets: Array, name: str, weights: Array, alpha: float) -> float:
    """The mean loss of which the link ``name`` is the gradient, and the penalty (alpha / 2) ||W||^2. One pass.

    Targets as of `generalized_steps`; the sums are in float64.
    """
    total = 0.0
    for begin, end, F in design.chunks():
        scores = np.zeros((end - begin, weights.shape[1]), design.dtype)
        design.add_chunk_scores(F, weights, scores)
        s, y = scores.astype(np.float64), targets[begin:end]
        if name == "identity":
            losses = 0.5 * np.sum((s - y) ** 2, axis=1)
        elif name == "softmax":
            losses = logsumexp(s, axis=1) - np.sum(y * s, axis=1)
        else:
            losses = np.sum(np.logaddexp(0.0, s) - y * s, axis=1)
        total += float(losses.sum() if design.weights is None else losses @ design.weights[begin:end])
    return total / design.n_samples + 0.5 * alpha * float(np.sum(weights[: design.n_features] ** 2))


def apply_link(link: Link, scores: Array) -> Array:
    """The predictions ``link(scores)``.

    Raises
    ------
    ValueError
        If the link does not return finite numbers of the shape of ``scores``.
    """
    made = np.asarray(link(scores))
    if made.shape != scores.shape or made.dtype.kind not in "biuf" or not np.isfinite(made).all():
        raise ValueError(
            f"link must return finite numbers of the shape of its scores, {scores.shape}, got an array of {made.dtype} "
            f"and shape {made.shape}{'' if made.shape != scores.shape else ' with NaN or infinity'}: correct link"
        )
    return made.astype(scores.dtype, copy=False)


@dataclass(frozen=True)
class Step:
    """A step of Algorithm 1.

    Attributes
    ----------
    decrement : float
        The length of the step, sqrt(<grad, (L Sigma + alpha I)^-1 grad>), 0 at a solution. Half of its square is a
        lower bound on the suboptimality, if the link is the gradient of a loss.
    weights : ndarray of shape (q, K)
        W after the step; the last row is the intercept if the design has one.
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
    """Steps W <- W - (L Sigma + alpha I)^-1 [X'(g(offsets + X W) - Y) / n + alpha W], without end; one pass each.

    Parameters
    ----------
    design : Design
        X and the sample weights.
    targets : ndarray of shape (n, K)
        Y.
    link : callable
        g, a monotone function of the scores that returns predictions.
    alpha : float
        Strength of the penalty (alpha / 2) ||W||^2, which excludes the intercept; >= 0.
    system : System
        L Sigma + alpha I, with the Lipschitz constant L of the link.
    offsets : ndarray of shape (n, K), optional
        Scores of the blocks that were fitted before. None: 0.
    start : ndarray of shape (q, K), optional
        First weights. None: 0.
    first : ndarray of shape (q, K), optional
        The gradient of the mean loss at ``start``. None: it is computed.
    accelerated : bool, default=True
        Whether to use Nesterov's momentum with adaptive restart.
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
    """The result of `fit_generalized`.

    Attributes
    ----------
    weights : ndarray of shape (q, K)
        W in float64; the last row is the intercept if the design has one.
    n_iter : int
        Number of steps.
    relative_decrement : float
        Squared length of the last step divided by that of the first; 0 if the first is 0.
    outcome : str
        Why the fit ended: "converged", "max_iter", "interrupted", or what ``each`` has returned.
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
    each: Callable[[int, Array, float, bool], str | None] | None = None,
) -> GeneralizedFit:
    """Run Algorithm 1 until the squared length of a step is at most ``tol`` times that of the first.

    Half of that square is the decrease of the quadratic upper bound: it is defined without an objective, does not
    depend on the units of X, and is 0 only at a solution. After Ctrl-C the weights reached so far are returned.
    ``each`` is called after each step with its number, the weights, the relative decrement, and whether it is the last;
    an outcome that it returns ends the fit. Parameters as in `generalized_steps` and `Design.system`.
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
                    f"the weights must be finite, got NaN or infinity after {n_iter} steps: check that link is "
                    f"monotone, and that its Lipschitz constant is at most lipschitz={lipschitz:g}"
                )
            if decrement <= tol * first:
                outcome = "converged"
            finished = outcome == "converged" or n_iter >= max_iter
            ended = each and each(n_iter, weights, decrement / first if first else 0.0, finished)
            if finished:
                break
            if ended:
                outcome = ended
                break
    except KeyboardInterrupt:
        outcome = "interrupted"
    return GeneralizedFit(weights, n_iter, decrement / first if first else 0.0, outcome)
