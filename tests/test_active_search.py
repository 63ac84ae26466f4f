"""Who proposes rivals to the active-set solver: exact passes or an index; both end at the same certified optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from helpers import make_data, make_problem
from manyclass import CrammerSinger, LinearClassifier
from manyclass.kernels import proposals
from manyclass.mips import ExactSearch, SimpleLSH, SmallWorldGraph
from manyclass.objective.losses import CrammerSingerLoss
from manyclass.optimize.loop import minimize
from manyclass.solvers import SDCA, ActiveSetSDCA
from manyclass.solvers.dual._asked import ask
from manyclass.solvers.dual.warm import warm_state

INDEXES = {
    "exact": ExactSearch,
    "lsh": lambda: SimpleLSH(bits=64, candidates=8),
    "graph": lambda: SmallWorldGraph(width=8),
}


def problem_of(view="csr", intercept=False, dtype=np.float64):
    data = make_data("class", n=120, d=12, K=20, seed=3, density=0.4)
    return make_problem(CrammerSingerLoss(0.1), data, view=view, intercept=intercept, dtype=dtype, lam=0.01)


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize(("view", "intercept", "storage"), [("csr", True, "sparse"), ("dense", False, "dense")])
def test_same_optimum(name, view, intercept, storage):
    problem = problem_of(view, intercept)
    reference = minimize(problem, SDCA(), tol=1e-6, max_iter=2000)
    solver = ActiveSetSDCA(search=INDEXES[name](), storage=storage, first=1, more=2)
    found = minimize(problem, solver, tol=1e-6, max_iter=2000)
    assert found.certificate.relative_gap <= 1e-6
    assert found.certificate.primal == pytest.approx(reference.certificate.primal, rel=3e-6)


def test_the_index_is_what_finds_rivals(monkeypatch):
    """Without exact passes, which propose too: an exact index alone leads to the optimum, whatever the first rivals."""
    problem = problem_of()
    reference = minimize(problem, SDCA(), tol=1e-7, max_iter=2000)
    solver = ActiveSetSDCA(search=ExactSearch(), first=1, more=2).prepare(problem)
    state = solver.state(problem)
    steps = solver.iterate(problem, state, 0)
    monkeypatch.setattr(proposals, "propose", None)
    monkeypatch.setattr(proposals, "propose_mixed", None)
    for _ in range(400):
        assert next(steps).bound is None
    monkeypatch.undo()
    assert solver.certificate(problem, state, final=True).primal == pytest.approx(
        reference.certificate.primal, rel=1e-5
    )


def test_the_best_rival_is_active_after_each_pass():
    """That which comes near and looks twice, too: what it found first is not dropped for what it found then."""
    data = make_data("class", n=300, d=12, K=40, seed=3, density=0.4)
    problem = make_problem(CrammerSingerLoss(0.0), data, intercept=False, lam=0.003)
    solver = ActiveSetSDCA(first=2, more=1, epochs=2).prepare(problem)
    state = solver.state(problem)
    steps = solver.iterate(problem, state, 0)
    y, gaps, rows = problem.targets.y, [], np.arange(300)
    for _ in range(30):
        bound = next(steps).bound
        if bound is None:
            continue
        gaps.append(bound.relative_gap)
        S = data.X @ solver.weights(problem, state)[0]
        own = S[rows, y].copy()
        S[rows, y] = -np.inf
        best = S.argmax(axis=1)
        for i in np.flatnonzero(S.max(axis=1) - own + 1 > 1e-9):
            assert best[i] in state["rivals"][state["indptr"][i] : state["indptr"][i + 1]]
    assert max(gaps) > 0.1 > min(gaps)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_ask_finds_the_best_rivals(sparse, intercept):
    problem = problem_of("csr" if sparse else "dense", intercept)
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(12, 20)), rng.normal(size=20) * intercept
    X = make_data("class", n=120, d=12, K=20, seed=3, density=0.4).X
    scores = X @ W + b
    scores[np.arange(120), problem.targets.y] = -np.inf
    asked = ask(ExactSearch(), problem, sp.csr_matrix(W) if sparse else W, b, 3)
    # By their scores: without an intercept, those of an empty row tie.
    found = np.sort(np.take_along_axis(scores, asked, axis=1))
    np.testing.assert_allclose(found, np.sort(scores)[:, -3:], rtol=1e-12)
    assert (np.diff(np.sort(asked)) > 0).all()


def test_kept_violators_are_those_of_a_full_scan():
    problem = problem_of()
    y, X = problem.targets.y, make_data("class", n=120, d=12, K=20, seed=3, density=0.4).X
    rng = np.random.default_rng(1)
    W = rng.normal(size=(12, 20))
    indptr = np.arange(121, dtype=np.int64)
    active = ((y + 1 + rng.integers(0, 19, 120)) % 20).astype(np.int32)
    everyone = np.array([[k for k in rng.permutation(20) if k != t] for t in y], np.int32)
    found = np.empty((120, 4), np.int32)
    bias = np.zeros(20)
    b = np.where(rng.random(120) < 0.5, 0.3, 0.0)
    given = problem.rows, y, problem.loss, problem.penalty, W, bias, indptr, active, b, everyone
    total = proposals.keep_violators(*given, 0.5, found)
    assert total == (found >= 0).sum() > 0
    scores = X @ W
    for i in range(120):
        level = scores[i, y[i]] - 1
        rivals = np.delete(np.arange(20), y[i])
        worst = max(level, scores[i, rivals].max() - 0.5)
        taken = {y[i], active[i]} if b[i] else {y[i]}  # one without a dual is dropped, and may be found again
        ranked = rivals[np.argsort(-scores[i, rivals])]
        expected = [k for k in ranked if scores[i, k] > worst and k not in taken][:4]
        got = found[i][found[i] >= 0]
        assert len(set(got.tolist()) - taken) == len(got) == len(expected)
        np.testing.assert_allclose(scores[i, got], scores[i, expected])  # equal scores, in an empty row, have no order


def test_rivals_without_a_dual_are_dropped():
    problem = problem_of()
    run = ActiveSetSDCA(first=8, more=2, epochs=100).prepare(problem)
    state = run.state(problem)
    steps = run.iterate(problem, state, 0)
    next(steps)  # and the first pass
    begun = len(state["b"])
    next(steps)
    next(steps)
    assert len(state["b"]) == begun
    held = int((state["b"] > 0).sum())
    next(steps)
    assert len(state["b"]) == held < begun


def test_passes_are_more_frequent_at_first():
    problem = problem_of()
    solver = ActiveSetSDCA().prepare(problem)
    steps = solver.iterate(problem, solver.state(problem), 0)
    assert [number for number in range(1, 20) if next(steps).bound is not None] == [1, 4, 7, 13, 19]


def test_early_stopping_with_a_table_of_weights_tells_the_objective_of_the_model():
    data = make_data("class", n=300, d=15, K=120, seed=1, density=0.3)
    X = sp.csr_matrix(data.X)
    model = LinearClassifier(
        CrammerSinger(gamma=0.0), alpha=1e-2, solver=ActiveSetSDCA(storage="sparse"), early_stopping=1, random_state=0
    )
    model.fit(X, data.T, X_val=X[::-1], y_val=data.T[::-1])
    assert model.history_.outcome == "patience"
    scores, rows = X @ model.coef_.T + model.intercept_, np.arange(300)
    y = np.searchsorted(model.classes_, data.T)
    own = scores[rows, y].copy()
    scores[rows, y] = -np.inf
    losses = np.maximum(0.0, 1.0 + scores.max(axis=1) - own)
    assert model.objective_ == pytest.approx(losses.mean() + 0.5e-2 * (model.coef_**2).sum(), rel=1e-6)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_a_rough_warm_start_has_weights_of_the_right_size(storage, gamma):
    """Those of a larger lam, scaled: the dual objective of no other factor is larger.

    The classes are then the same, but for ties, which the optimum has (a support row's class and its rival).
    """
    data = make_data("class", n=200, d=15, K=20, seed=5, density=0.4)
    before, after = (make_problem(CrammerSingerLoss(gamma), data, intercept=False, lam=lam) for lam in (0.01, 0.001))
    solver = ActiveSetSDCA(storage=storage).prepare(before)
    found = minimize(before, solver, tol=1e-4, max_iter=500)

    def start(**how):
        state = warm_state(after, solver, {name: np.array(part) for name, part in found.state.items()}, **how)
        return state, solver.certificate(after, state, final=True)

    state, rough = start(rough=True)
    other = start()[1]
    assert rough.dual > other.dual
    assert rough.relative_gap < other.relative_gap
    W = solver.weights(after, state)[0]
    W, V = (part.toarray() if sp.issparse(part) else np.asarray(part) for part in (W, found.weights))
    scale = np.vdot(W, V) / np.vdot(V, V)
    assert scale > 1
    np.testing.assert_allclose(W, scale * V, atol=1e-12 * np.abs(W).max())
    for factor in (0.9, 1.0 / 0.9):
        moved = {name: np.array(part) for name, part in state.items()}
        moved["b"] *= factor
        # A factor above 1 may leave the domain; the formula is valid there, too.
        assert solver.certificate(after, moved, final=True).dual <= rough.dual * (1 + 1e-9)


def test_estimator():
    data = make_data("class", n=300, d=15, K=120, seed=1, density=0.3)
    X = sp.csr_matrix(data.X)
    args = {"alpha": 1e-2, "max_iter": 1000, "tol": 1e-4, "random_state": 0}
    exact = LinearClassifier("crammer_singer", **args).fit(X, data.T)
    index = SimpleLSH(bits=64, candidates=8)
    for search in ("lsh", "graph", index):
        model = LinearClassifier("crammer_singer", solver=ActiveSetSDCA(search=search), **args).fit(X, data.T)
        assert model.solver_ == "sdca_active"
        assert model.duality_gap_ <= 1e-4
        assert model.objective_ == pytest.approx(exact.objective_, rel=2e-4)
    assert not hasattr(index, "norm_bound_")  # a copy is built
    with pytest.raises(ValueError, match=r"The 'search' parameter of ActiveSetSDCA must be .* Got 'hash' instead"):
        LinearClassifier("crammer_singer", solver=ActiveSetSDCA(search="hash")).fit(X, data.T)
