"""What the property tests share: NumPy formulas, random data, compiled operations as functions.

Everything with which the compiled kernels are compared is written here a second time, in plain NumPy and float64, row
by row of a matrix of scores ``S`` (n x K) and of targets ``T`` (n classes, or n x K signs or reals).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logsumexp, softmax

from manyclass.kernels.operations import dual_step, loss_conjugate, loss_gradient, loss_value
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets, SoftTargets
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem

Array = np.ndarray[Any, Any]
#: (S, T) -> the n losses and the n x K gradients.
Formula = Callable[[Array, Array], tuple[Array, Array]]


# --- losses, a second time ------------------------------------------------------------------------------------------


def multinomial(S, T):
    n = np.arange(len(S))
    G = softmax(S, axis=1)
    G[n, T] -= 1
    return logsumexp(S, axis=1) - S[n, T], G


def softmax_hinge(S, T):
    """log(1 + sum_{j != y} exp(1 + s_j - s_y))."""
    n = np.arange(len(S))
    V = 1 + S - S[n, T, None]
    V[n, T] = 0
    G = softmax(V, axis=1)
    G[n, T] -= 1
    return logsumexp(V, axis=1), G


def crammer_singer(gamma: float, costs: Array | None = None) -> Formula:
    """max over b >= 0, sum b <= 1 of  sum_j b_j (c_yj + s_j - s_y) - (gamma/2) ||b||^2,  j over the rivals."""

    def formula(S, T):
        n, K = np.arange(len(S)), S.shape[1]
        C = np.ones((K, K)) if costs is None else np.broadcast_to(costs, (costs.shape[-1],) * 2)
        V = C[T, :K] + S - S[n, T, None]
        V[n, T] = -np.inf
        if gamma == 0:
            B = np.equal(V, V.max(axis=1, keepdims=True)) & (V > 0)
            B = B / np.maximum(B.sum(axis=1, keepdims=True), 1)
        else:
            B = np.array([project_capped(v / gamma) for v in V])
        values = (B * np.where(B > 0, V, 0)).sum(axis=1) - 0.5 * gamma * (B * B).sum(axis=1)
        B[n, T] = -B.sum(axis=1)
        return values, B

    return formula


def project_capped(v):
    """The nearest point to ``v`` of {b >= 0, sum b <= 1}, by sorting."""
    b = np.maximum(v, 0)
    if b.sum() <= 1:
        return b
    down = np.sort(v)[::-1]
    excess = (np.cumsum(down) - 1) / np.arange(1, len(v) + 1)
    b = np.maximum(v - excess[np.flatnonzero(down > excess)[-1]], 0)
    return b / b.sum()  # rounding errors of a large v would leave the domain


def smooth_hinge(gamma: float) -> Formula:
    def formula(S, T):
        short = 1 - S * T
        # The slope is the clipped share of gamma; gamma = 0 leaves a step.
        slope = np.clip(short / gamma, 0, 1) if gamma else (short > 0).astype(float)
        return (slope * short - 0.5 * gamma * slope**2).sum(axis=1), -T * slope

    return formula


def squared_hinge(S, T):
    short = np.maximum(1 - S * T, 0)
    return (short**2).sum(axis=1), -2 * T * short


def log_loss(S, T):
    return np.logaddexp(0, -S * T).sum(axis=1), -T * expit(-S * T)


def softplus_hinge(S, T):
    return np.logaddexp(0, 1 - S * T).sum(axis=1), -T * expit(1 - S * T)


def cross_entropy(S, T):
    """logsumexp(s) - t.s for distributions t."""
    return logsumexp(S, axis=1) - (S * T).sum(axis=1), softmax(S, axis=1) - T


def log_loss_of_probabilities(S, T):
    losses = T * np.logaddexp(0, -S) + (1 - T) * np.logaddexp(0, S)
    return losses.sum(axis=1), (1 - T) * expit(S) - T * expit(-S)


def squared(S, T):
    return 0.5 * ((S - T) ** 2).sum(axis=1), S - T


def huber(delta: float) -> Formula:
    def formula(S, T):
        r = np.abs(S - T)
        return np.where(r <= delta, 0.5 * r**2, delta * r - 0.5 * delta**2).sum(axis=1), np.clip(S - T, -delta, delta)

    return formula


# --- compiled operations as functions -------------------------------------------------------------------------------


def cast(part: Any, dtype: Any) -> Any:
    """A loss or a penalty with its numbers in the working precision, as `Problem` makes it."""
    return type(part)(*(value if isinstance(value, tuple) else np.asarray(value, dtype)[()] for value in part))


@numba.njit
def _evaluate(loss, s, a, t):
    gradient = np.empty_like(s)
    loss_gradient(loss, s, t, gradient)
    return loss_value(loss, s, t, np.empty_like(s)), gradient, loss_conjugate(loss, a, t)


@numba.njit
def _step(loss, s, a, t, q):
    new = np.full_like(s, np.nan)
    dual_step(loss, s, a, t, q, new)
    return new


class Evaluation(NamedTuple):
    value: float
    gradient: Array
    conjugate: float


def evaluate(loss: Any, s: Array, t: Any, a: Array | None = None) -> Evaluation:
    """phi(s; t), its gradient, and phi*(-a; t)."""
    a = np.zeros_like(s) if a is None else a.astype(s.dtype)
    return Evaluation(*_evaluate(cast(loss, s.dtype), s, a, _target(t, s)))


def step(loss: Any, s: Array, t: Any, a: Array, q: float) -> Array:
    """The new dual vector of Option I."""
    return _step(cast(loss, s.dtype), s, a.astype(s.dtype), _target(t, s), s.dtype.type(q))


def _target(t: Any, s: Array) -> Any:
    return int(t) if np.ndim(t) == 0 else np.asarray(t, s.dtype)


# --- random examples ------------------------------------------------------------------------------------------------


def random_targets(kind: str, n: int, K: int, rng: np.random.Generator) -> Array:
    if kind == "class":
        return rng.integers(0, K, n)
    if kind == "sign":
        return rng.choice([-1.0, 1.0], (n, K))
    if kind == "distribution":
        T = rng.dirichlet(np.full(K, 0.5), n) * (rng.random((n, K)) < 0.7)
        T[T.sum(axis=1) == 0, 0] = 1.0
        T[::4] = np.eye(K)[rng.integers(0, K, len(T[::4]))]
        return np.array([exact_shares(t) for t in T])
    if kind == "probabilities":
        return np.clip(rng.uniform(-0.3, 1.3, (n, K)), 0, 1)
    return rng.normal(scale=2.0, size=(n, K))


def exact_shares(t: Array) -> Array:
    """A distribution in multiples of 2^-20, proportional to ``t``: its sum is 1 in float32 as well."""
    t = np.round(np.asarray(t) / np.sum(t) * 2.0**20) / 2.0**20
    t[t.argmax()] += 1 - t.sum()
    return t


def random_scores(n: int, K: int, rng: np.random.Generator) -> Array:
    """Rows of all sizes, from 1e-3 to 1e4; every third of integers, with ties and on the kinks."""
    S = rng.normal(size=(n, K)) * 10.0 ** rng.uniform(-3, 4, (n, 1))
    S[::3] = np.round(S[::3])
    return S


def random_duals(formula: Formula, T: Array, K: int, rng: np.random.Generator) -> Array:
    """Dual-feasible rows: means of points -grad phi, as the domain of phi* is convex; every fourth an extreme point."""
    n = len(T)
    points = np.stack([-formula(rng.normal(scale=scale, size=(n, K)), T)[1] for scale in (0.0, 0.5, 2.0, 20.0)])
    share = rng.dirichlet(np.ones(len(points)), n).T
    share[:, ::4] = np.array([0, 0, 0, 1.0])[:, None]
    return np.einsum("pi,pik->ik", share, points)


def infeasibility(domain: str, a: Array, t: Any) -> float:
    """How far ``a`` is outside the domain of phi*(-a): 0 where it is feasible."""
    if domain == "simplex":
        p = (np.where(np.arange(len(a)) == t, 1.0, 0.0) if np.ndim(t) == 0 else t) - a
        return float(max(0.0, -p.min(), abs(p.sum() - 1)))
    if domain == "around the target":
        return float(max(0.0, (a - t).max(), (t - a).max() - 1))
    if domain == "band":
        return float(max(0.0, np.abs(a).max() - 0.5))
    b = a * t
    if domain == "box":
        return float(max(0.0, -b.min(), b.max() - 1))
    if domain == "half_line":
        return float(max(0.0, -b.min()))
    return 0.0 if np.isfinite(a).all() else np.inf


# --- whole problems -------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """A small problem in float64 that separates neither well nor badly."""

    X: Array
    T: Array
    K: int
    weights: Array | None


def make_data(kind: str, *, n=60, d=8, K=4, seed=0, weighted=False, density=0.5, dtype=np.float64) -> Data:
    """Sparse rows, the first of them empty; every class occurs where n allows. Some weights are zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X[0] = 0
    S = X @ rng.normal(size=(d, K)) + rng.normal(scale=0.7, size=(n, K))
    if kind == "class":
        T = S.argmax(axis=1)
        T[: min(K, n)] = np.arange(min(K, n))
    else:
        T = np.where(S > 0.5, 1.0, -1.0) if kind == "sign" else S
    if kind == "distribution":
        T = softmax(np.where(np.sort(S, axis=1)[:, -2:][:, :1] > S, -np.inf, S), axis=1)  # two classes a row
        T = np.array([exact_shares(t) for t in np.vstack([np.eye(K)[:n], T[K:]])])
    if kind == "probabilities":
        T = np.where(np.abs(S) > 2, S > 0, expit(S))
    weights = None
    if weighted:
        weights = rng.choice([0.0, 0.5, 1.0, 3.0], n)
        weights[: min(K, n // 2)] = 1.0  # no class goes without
    return Data(X.astype(dtype), T, K, weights)


def make_targets(kind: str, T: Array, K: int, dtype: Any = np.float64) -> Any:
    if kind == "class":
        return ClassTargets(np.asarray(T, np.int32), K)
    if kind == "real":
        return RealTargets(np.asarray(T, dtype), K)
    if kind in ("distribution", "probabilities"):
        shares = sp.csr_matrix(np.asarray(T, dtype))
        return SoftTargets(shares.data, shares.indptr.astype(np.int64), shares.indices.astype(np.int32), K)
    positive = sp.csr_matrix(T > 0)
    return SignTargets(positive.indptr.astype(np.int64), positive.indices.astype(np.int32), K)


def make_problem(loss, data: Data, *, reg=None, lam=0.05, view="csr", dtype=np.float64, **options: Any) -> Problem:
    X = data.X.astype(dtype)
    return Problem(
        rows=make_rows(sp.csr_matrix(X) if view == "csr" else X),
        targets=make_targets(loss.targets, data.T, data.K, dtype),
        loss=loss,
        penalty=L2() if reg is None else reg,
        lam=lam,
        n_features=X.shape[1],
        sample_weight=data.weights,
        dtype=dtype,
        **options,
    )


def g(reg: Any, W: Array) -> float:
    """The penalty, by its definition."""
    return 0.5 * float((W**2).sum()) + float(getattr(reg, "threshold", 0.0)) * float(np.abs(W).sum())


def objective(formula: Formula, data: Data, reg: Any, lam: float, W: Array, b: Array | float = 0.0) -> float:
    """P(W, b), by its definition, in float64."""
    c = np.ones(len(data.X)) if data.weights is None else data.weights / data.weights.mean()
    W = np.asarray(W, np.float64)
    losses = formula(data.X.astype(np.float64) @ W + np.asarray(b, np.float64), data.T)[0]
    return float(c @ losses) / len(c) + lam * g(reg, W)


def same_bits(one, two):
    """Assert that two results of the loop agree to the last bit."""
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.intercept, two.intercept)
    assert one.certificate == two.certificate
    assert one.n_iter == two.n_iter
    assert one.state.keys() == two.state.keys()
    for name, array in one.state.items():
        np.testing.assert_array_equal(array, two.state[name])
    shown = [(r.iteration, r.passes, r.primal, r.dual, r.gap, r.relative_gap) for r in one.history]
    assert shown == [(r.iteration, r.passes, r.primal, r.dual, r.gap, r.relative_gap) for r in two.history]
