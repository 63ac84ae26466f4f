"""Fits start from the intercept that is optimal where all weights are zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from manyclass import LinearClassifier
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets
from manyclass.objective.intercept import first_intercept, lone_intercept
from manyclass.objective.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    SmoothHingeLoss,
    SquaredHingeLoss,
    SquaredLoss,
)
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem

SEPARABLE = [
    *(LogisticLoss(margin) for margin in (0.0, 1.0)),
    *(SmoothHingeLoss(gamma) for gamma in (0.0, 0.1, 1.0, 1.7, 3.0)),
    SquaredHingeLoss(),
]


def problem_of(targets, loss, n, weights=None):
    rows = make_rows(np.zeros((n, 1)))
    return Problem(rows, targets, loss, L2(), 1.0, n_features=1, sample_weight=weights, intercept=True)


def slope(problem, bias):
    """The derivative of the mean loss with respect to the intercept, where W = 0."""
    dual = np.empty((problem.n_samples, problem.n_outputs))
    problem.respond(np.zeros((1, problem.n_outputs)), bias, dual)
    return -np.asarray(problem.sample_weight) @ dual / problem.n_samples


def near(problem, move):
    return [slope(problem, lone_intercept(problem) + move * sign) for sign in (-1, 1)]


@pytest.mark.parametrize("loss", SEPARABLE, ids=repr)
@settings(max_examples=30, deadline=None)
@given(labels=st.lists(st.integers(0, 2), min_size=2, max_size=12), seed=st.integers(0, 99))
def test_it_is_optimal_for_labels(loss, labels, seed):
    """The derivative changes its sign there: to the left of it the loss falls, to the right it rises."""
    n = len(labels)
    weights = np.random.default_rng(seed).uniform(0.1, 3.0, n)
    targets = SignTargets(np.arange(n + 1, dtype=np.int64), np.array(labels, np.int32), 3)
    left, right = near(problem_of(targets, loss, n, weights), 1e-6)
    assert np.all(left <= 1e-9)
    assert np.all(right >= -1e-9)


@settings(max_examples=30, deadline=None)
@given(y=st.lists(st.floats(-5, 5), min_size=1, max_size=9), delta=st.floats(0.1, 3.0), seed=st.integers(0, 99))
def test_it_is_optimal_for_numbers(y, delta, seed):
    weights = np.random.default_rng(seed).uniform(0.1, 3.0, len(y))
    targets = RealTargets(np.array(y)[:, None] * [1.0, -2.0], 2)
    for loss in (SquaredLoss(), HuberLoss(delta)):
        left, right = near(problem_of(targets, loss, len(y), weights), 1e-6)
        assert np.all(left <= 1e-9)
        assert np.all(right >= -1e-9)


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 20), min_size=3, max_size=6))
def test_it_is_optimal_for_classes(counts):
    y = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    problem = problem_of(ClassTargets(y, len(counts)), MultinomialLoss(), len(y))
    np.testing.assert_allclose(slope(problem, first_intercept(problem)), 0.0, atol=1e-12)
    np.testing.assert_allclose(first_intercept(problem).sum(), 0.0, atol=1e-9)


@pytest.mark.parametrize("loss", [MultinomialLoss(), LogisticLoss(), SmoothHingeLoss(0.0)], ids=repr)
def test_a_class_without_rows_has_a_finite_one(loss):
    y = np.array([0, 0, 1], np.int32)
    targets = ClassTargets(y, 3) if loss.joint else SignTargets(np.arange(4, dtype=np.int64), y, 3)
    found = first_intercept(problem_of(targets, loss, 3))
    assert np.isfinite(found).all()
    assert found[2] == found.min()


@pytest.mark.parametrize("loss", ["multinomial", "log_loss", "squared_hinge"])
def test_unequal_classes_and_a_strong_penalty_take_few_epochs(loss):
    """Once 100 epochs were not enough for the intercepts of the small classes."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), np.maximum(3000 // 2 ** np.arange(1, 21), 3))
    X = rng.normal(size=(len(y), 30)) / 30**0.5
    for seed in range(3):
        assert LinearClassifier(loss, alpha=0.1, random_state=seed).fit(X, y).n_iter_ <= 10
