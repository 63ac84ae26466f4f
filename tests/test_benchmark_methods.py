"""The benchmarks' methods: every solver has one; they minimize the task they are given, and refuse the others."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from helpers import make_data

BATCH = ("fista", "lbfgs", "newton", "cg", "gd", "majorise", "majorise_cg")
SOLVERS = (*BATCH, "sgd", "asgd")

#: (objective, l1_ratio, how the classes lie)
TASKS = [
    ("multinomial", 0.0, "two"),
    ("multinomial", 0.0, "many"),
    ("log_loss", 0.0, "several each"),
    ("log_loss", 0.5, "many"),
    ("log_loss", 1.0, "several each"),
]


@pytest.fixture
def benchmark_modules(monkeypatch):
    """The package of benchmarks is in the repository's root, not installed."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    return [importlib.import_module(f"benchmarks.{name}") for name in ("catalog", "data", "objective", "task")]


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: "-".join(map(str, task)))
def test_benchmark_methods_minimize_the_task(benchmark_modules, name, task):
    catalog, data, judge, tasks = benchmark_modules
    method = catalog.method(name)
    kind, l1_ratio, classes = task
    asked = tasks.Task(kind, alpha=0.1, l1_ratio=l1_ratio, intercept=True)
    if l1_ratio and name != "fista":
        assert "needs a penalty with a gradient" in method.refuses(asked)
        return
    assert method.refuses(asked) is None
    several = classes == "several each"
    small = make_data("sign" if several else "class", K=2 if classes == "two" else 4, seed=15)
    X = sp.csr_matrix(small.X)
    y = sp.csr_matrix(small.T > 0).astype(np.int8) if several else small.T
    fit = method.fit(data.Data("random", X, y, X, y), asked, tasks.Stop(tol=1e-2, max_iter=3000))
    assert fit.certificate["relative_gap"] <= 1e-2
    reached = judge.objective(data.Data("random", X, y, X, y), asked, fit.weights, fit.intercept)
    assert reached == pytest.approx(fit.certificate["primal"], rel=1e-12)
    scores = small.X @ fit.weights + fit.intercept
    predicted = fit.predict(X)
    if several:
        np.testing.assert_array_equal(predicted.toarray(), scores > 0)
    else:
        np.testing.assert_array_equal(predicted, scores[:, 0] > 0 if classes == "two" else scores.argmax(axis=1))


def test_benchmark_methods_refuse_a_kink(benchmark_modules):
    catalog, _, _, tasks = benchmark_modules
    for name in BATCH:
        assert "needs a loss with a smooth gradient" in catalog.method(name).refuses(tasks.Task("crammer_singer"))
        assert catalog.method(name).refuses(tasks.Task("crammer_singer", gamma=0.1)) is None
        assert catalog.method(name).refuses(tasks.Task("hinge")) is not None
    assert catalog.method("sgd").refuses(tasks.Task("hinge")) is None


def test_every_solver_is_a_method(benchmark_modules):
    """The names of earlier rows stand for what they stood for."""
    catalog = benchmark_modules[0]
    methods = importlib.import_module("benchmarks.methods").METHODS
    solvers = importlib.import_module("manyclass.solvers")
    in_memory = {solver for solver in solvers.SOLVERS.values() if issubclass(solver, solvers.Solver)}
    assert {type(ours.solver) for ours in methods.values() if ours.solver is not None} == in_memory
    assert methods["auto"].solver is None
    for name, expected in {
        "majorise": solvers.GeneralizedLeastSquares(),
        "majorise_cg": solvers.GeneralizedLeastSquares(system="cg"),
        "lc": solvers.LogConcavity(),
        "asgd": solvers.SGD(average=True),
        "bbm": solvers.BoundMajorization(stochastic=False),
        "memoir_lsh": solvers.Memoir(search="lsh"),
    }.items():
        assert repr(methods[name].solver) == repr(expected)
    for name in methods:
        assert catalog.method(name).objectives, name


@pytest.mark.parametrize(
    ("name", "objectives", "multilabel"),
    [
        ("sdca_active", {"crammer_singer"}, False),
        ("bound", {"multinomial"}, False),
        ("ds_mlr", {"multinomial"}, False),
        ("memoir", {"margin"}, False),
        ("cd", {"log_loss", "smooth_hinge", "squared_hinge", "squared"}, True),
    ],
)
def test_objectives_are_what_the_library_takes(benchmark_modules, name, objectives, multilabel):
    catalog, _, _, tasks = benchmark_modules
    method = catalog.method(name)
    assert set(method.objectives) == objectives
    assert method.multilabel == multilabel
    assert method.refuses(tasks.Task("tree")) == "does not minimize tree"


@pytest.mark.parametrize("name", ["auto", "cd", "sdca", "fista"])
def test_real_numbers_are_predicted(benchmark_modules, name):
    catalog, data, _, tasks = benchmark_modules
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 6))
    rows = data.Data("random", X, X @ rng.normal(size=6) + 0.1 * rng.normal(size=80), X[:5], np.zeros(5))
    task = tasks.Task("squared", alpha=1e-2, l1_ratio=0.5, intercept=True)
    fit = catalog.method(name).fit(rows, task, tasks.Stop(tol=1e-4))
    assert fit.certificate["relative_gap"] <= 1e-4
    assert fit.weights.shape == (6, 1)
    np.testing.assert_allclose(fit.predict(X), (X @ fit.weights + fit.intercept)[:, 0], rtol=1e-6)
