"""SGD, plain and averaged: with lazily scaled weights, each step is that of the plain recursion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from helpers import Data, make_data, make_problem
from manyclass.objective.intercept import first_intercept
from manyclass.objective.problem import Problem
from manyclass.solvers import SGD
from registry import LOSSES

SOLVERS = {"plain": SGD(), "averaged": SGD(average=True)}


def plain_steps(case, problem: Problem, data: Data, seed: int, averaged: bool):
    """W, b and their means after each step, by the definition: all weights decay, and enter the mean, at each."""
    n, d = data.X.shape
    c = np.asarray(problem.sample_weight, np.float64)
    squares = (data.X**2).sum(1)
    gain = (c @ squares / c.sum() or 1.0) if problem.intercept else 0.0
    rate = 1 / (np.max(c * (squares + gain)) / (case.loss.smoothness or 1.0) + problem.lam)
    W, b, t = np.zeros((d, data.K)), np.array(first_intercept(problem), np.float64), 0
    mean, mean_b = W, b
    for epoch in itertools.count():
        for i in np.random.default_rng([seed, epoch]).permutation(n):
            eta = rate / (1 + problem.lam * rate * t) ** (0.75 if averaged else 1.0)
            G = c[i] * case.formula((data.X[i] @ W + b)[None], data.T[i][None])[1][0]
            W, b, t = (1 - eta * problem.lam) * W - eta * np.outer(data.X[i], G), b - eta * gain * G, t + 1
            count = max(0, t - n) if averaged else 0
            mean, mean_b = mean + (W - mean) / (count + 1), mean_b + (b - mean_b) / (count + 1)
            yield mean, mean_b


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("size", [1.0, 1e-7, 1e-20], ids=["rows", "tiny_rows", "no_rows"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["multinomial", "smooth_hinge-0.5", "squared", "hinge"])
def test_lazy_scaling_is_the_plain_recursion(name, size, intercept, loss):
    """Tiny rows let the first step shrink all weights by 1e-14, or to zero: the scale is folded back in time."""
    case, solver, n = LOSSES[loss], SOLVERS[name], 11
    data = make_data(case.loss.targets, n=n, d=5, K=3, seed=7, weighted=True)
    data = data._replace(X=data.X * size)
    problem = make_problem(case.loss, data, lam=0.5, intercept=intercept)
    expected = [*itertools.islice(plain_steps(case, problem, data, 3, name == "averaged"), 20 * n)]
    state = solver.state(problem)
    for progress in itertools.islice(solver.iterate(problem, state, 3), 20):
        W, b = solver.weights(problem, state)
        np.testing.assert_allclose(W, expected[progress.iteration * n - 1][0], rtol=1e-9, atol=1e-12 * size)
        np.testing.assert_allclose(b, expected[progress.iteration * n - 1][1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_lazy_scaling_is_the_plain_recursion_after_each_step(name):
    case, solver, n = LOSSES["multinomial"], SOLVERS[name], 11
    data = make_data("class", n=n, d=5, K=3, seed=8)
    problem = make_problem(case.loss, data, lam=0.5, intercept=True)
    expected = [*itertools.islice(plain_steps(case, problem, data, 3, name == "averaged"), 2 * n)]
    second = np.random.default_rng([3, 1]).permutation(n).astype(np.int32)
    for steps in range(1, n + 1):
        state = solver.state(problem)
        next(solver.iterate(problem, state, 3))
        solver._epoch(problem, state, second[:steps], n)
        W, b = solver.weights(problem, state)
        np.testing.assert_allclose(W, expected[n + steps - 1][0], rtol=1e-10)
        np.testing.assert_allclose(b, expected[n + steps - 1][1], rtol=1e-10)
