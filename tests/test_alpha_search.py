"""alpha="auto": few fits, a choice that does not depend on units or threads, and as good as a fine grid's."""

from __future__ import annotations

import re
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from manyclass import LinearClassifier, LinearRegressor, regularization_path
from manyclass.datasets import make_many_classes
from manyclass.estimators import alpha_search
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import Outcome
from manyclass.optimize.validation import held_out_rows
from manyclass.solvers.base import row_matrix

LOSSES = ("multinomial", "crammer_singer", "squared_hinge", "log_loss", "hinge")


def clusters(noise, seed=0, n=900, d=20, K=6):
    """Dense rows around one center a class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    return rng.normal(size=(K, d))[y] + noise * rng.normal(size=(n, d)), y


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_choice_is_as_good_as_that_of_a_grid(loss, sparse):
    X, y = make_many_classes(2000, 300, 12, random_state=1) if sparse else clusters(2.5, n=2000)
    train, test = (X[:1200], y[:1200]), (X[1200:], y[1200:])
    found = LinearClassifier(loss, alpha="auto", random_state=0).fit(*train)
    scale = float(np.asarray((X.multiply(X) if sparse else X**2).sum()) / X.shape[0]) / 1200
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # at the weakest penalties
        grid = [LinearClassifier(loss, alpha=scale * 10.0**e, random_state=0).fit(*train) for e in range(-3, 4)]
    best = max(model.score(*test) for model in grid)
    # One standard error of an accuracy on 800 rows.
    assert found.score(*test) >= best - (best * (1 - best) / 800) ** 0.5


def test_rows_of_weight_zero_do_not_change_the_alphas_that_are_tried():
    X, y = clusters(2.0)
    more, weights = np.tile(X, (3, 1)), np.repeat([1.0, 0.0, 0.0], len(X))
    alone = LinearClassifier(alpha="auto", random_state=0).fit(X, y)
    padded = LinearClassifier(alpha="auto", random_state=0).fit(more, np.tile(y, 3), weights)
    steps = 2 * np.log10(alone.alpha_ / np.array(list(padded.validation_scores_)))  # half decades
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_it_takes_few_fits_and_prefers_the_larger_of_equals(loss):
    model = LinearClassifier(loss, alpha="auto", random_state=0).fit(*clusters(2.0))
    scores = model.validation_scores_
    assert 3 <= len(scores) <= 7
    assert list(scores) == sorted(scores, reverse=True)
    assert model.alpha_ in scores
    assert all(score < scores[model.alpha_] for alpha, score in scores.items() if alpha > model.alpha_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 2])
def test_with_active_sets_none_is_fitted_between_where_the_score_still_rises(max_iter):
    X, y = make_many_classes(1500, 2000, 300, nnz_per_row=20, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "alpha='auto' took")  # the last one
        model = LinearClassifier("crammer_singer", alpha="auto", max_iter=max_iter, random_state=0).fit(X, y)
    assert model.solver_ == "sdca_active"
    strong, weak = model.validation_scores_
    assert strong == pytest.approx(10 * weak, rel=1e-5)
    assert model.alpha_ == weak


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
def test_it_does_not_depend_on_the_unit_of_the_features(l1_ratio):
    """X / 4 with the penalty that is equivalent to that for X: alpha / 16, and alpha / 4 for its l1 part alone."""
    X, y = clusters(2.0)
    one, other = (
        LinearClassifier("squared_hinge", alpha="auto", l1_ratio=l1_ratio, fit_intercept=False, random_state=0).fit(
            factor * X, y
        )
        for factor in (1.0, 0.25)
    )
    if not l1_ratio:
        assert other.alpha_ == pytest.approx(one.alpha_ / 16, rel=1e-5)
        np.testing.assert_allclose(list(other.validation_scores_.values()), list(one.validation_scores_.values()))
    assert other.score(X / 4, y) == pytest.approx(one.score(X, y), abs=0.02)


def test_labels_of_pure_noise_want_a_strong_penalty_and_clear_ones_do_not():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 50)), rng.normal(size=600)
    signal = X[:, 0] + 0.01 * y
    noisy, clear = (LinearRegressor(alpha="auto", random_state=0).fit(X, target) for target in (y, signal))
    assert noisy.alpha_ >= 100 * clear.alpha_


def scaled(factor, n=600):
    """A column that tells y, beside one of noise on another scale."""
    rng = np.random.default_rng(0)
    X = np.c_[factor * rng.normal(size=n), rng.normal(size=n)]
    return X, X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("factor", [100, 300])
def test_a_score_that_still_rises_at_the_last_alpha_is_told(factor):
    X, y = scaled(factor)
    with pytest.warns(UserWarning, match=r"the smallest that it tried, .* was still rising") as told:
        model = LinearRegressor(alpha="auto", random_state=0).fit(X, y)
    assert len(told) == 1
    assert told[0].filename == __file__
    smaller = float(re.search("alpha=([0-9.e+-]+);", str(told[0].message))[1])
    assert smaller == pytest.approx(model.alpha_ / 10, rel=1e-5)
    assert LinearRegressor(alpha=smaller, random_state=0).fit(X, y).score(X, y) > model.score(X, y) + 0.01  # it is true
    LinearRegressor(alpha="auto", standardize=True, random_state=0).fit(X, y)  # the other remedy: no warning


def test_the_strongest_penalty_is_told_only_where_the_score_rises(monkeypatch):
    X, y = clusters(0.3)
    LinearClassifier("crammer_singer", alpha="auto", random_state=0).fit(X, y)  # every alpha is right for all rows
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 200)), rng.normal(size=300)  # nothing to learn
    monkeypatch.setattr(alpha_search, "_FARTHEST", 2)
    with pytest.warns(UserWarning, match="the largest that it tried, .* a larger one may be better"):
        LinearRegressor(alpha="auto", random_state=0).fit(X, y)


def test_threads_and_the_seed_decide_nothing_else():
    X, y = make_many_classes(800, 200, 9, random_state=0)
    models = [LinearClassifier(alpha="auto", random_state=3, n_jobs=n).fit(X, y) for n in (1, 2, 1)]
    for model in models[1:]:
        assert model.validation_scores_ == models[0].validation_scores_
        np.testing.assert_array_equal(model.coef_, models[0].coef_)


def test_a_fifth_of_each_class_is_held_out_but_never_all_of_it():
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2, 3, 5, 50, 500])
    y = rng.permutation(np.repeat(np.arange(6, dtype=np.int32), sizes))
    weights = np.where(rng.random(len(y)) < 0.1, 0.0, 1.0)
    rows = make_rows(sp.csr_matrix((len(y), 3)))
    problem = Problem(rows, ClassTargets(y, 6), MultinomialLoss(), L2(), 1.0, n_features=3, sample_weight=weights)
    for seed in range(20):
        held = held_out_rows(problem.targets, weights, np.random.default_rng(seed), 0.2, "alpha='auto'")
        assert np.all(np.diff(held) > 0)
        assert np.all(weights[held] > 0)
        counts = np.bincount(y[held], minlength=6)
        present = np.bincount(y[weights > 0], minlength=6)
        assert np.all(counts < sizes)
        assert np.all(abs(counts[4:] - 0.2 * present[4:]) <= 2)


def test_rows_that_are_too_few_are_refused():
    with pytest.raises(ValueError, match="alpha='auto' needs rows to hold out"):
        LinearClassifier(alpha="auto").fit(np.eye(2), [0, 1])


def test_each_alpha_is_a_line_of_the_progress(capsys):
    model = LinearClassifier(alpha="auto", random_state=0, verbose=1).fit(*clusters(2.0))
    lines = [line.split() for line in capsys.readouterr().err.splitlines() if line.startswith("alpha ")]
    found = {float(words[1]): float(words[4]) for words in lines}
    assert found == pytest.approx({alpha: round(score, 4) for alpha, score in model.validation_scores_.items()})


def test_ctrl_c_in_the_search_keeps_a_model_at_the_best_alpha_so_far(monkeypatch):
    fits, minimize = [], alpha_search.minimize

    def interrupted(*args, **settings):
        result = minimize(*args, **settings)
        fits.append(result)
        return replace(result, outcome=Outcome.INTERRUPTED) if len(fits) == 2 else result

    monkeypatch.setattr(alpha_search, "minimize", interrupted)
    X, y = clusters(1.0)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = LinearClassifier(alpha="auto", tol=1e-9, random_state=0).fit(X, y)
    assert len(fits) == len(model.validation_scores_) == 2
    assert model.alpha_ in model.validation_scores_
    assert (model.history_.outcome, model.n_iter_) == ("interrupted", 1)
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
def test_held_out_rows_that_do_not_fit_are_refused_before_the_search(monkeypatch, estimator):
    monkeypatch.delattr(alpha_search, "minimize")
    X, y = clusters(1.0)
    with pytest.raises(ValueError, match="X has 3 features"):
        estimator(alpha="auto").fit(X, y, X_val=X[:, :3], y_val=y)


@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer"])
def test_early_stopping_after_the_search_judges_on_rows_that_no_fit_has_seen(loss):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 600)), rng.integers(4, size=400)  # labels that nothing tells, and any weights learn
    model = LinearClassifier(loss, alpha="auto", early_stopping=True, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    assert max(found.score for found in model.history_.validation) < 0.5


@pytest.fixture
def few_are_enough(monkeypatch):
    """Problems of a test are large enough for a search with some of the classes: each has half of these."""
    monkeypatch.setattr(alpha_search, "_ROWS", 700)
    monkeypatch.setattr(alpha_search, "_CLASSES", 100)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("costs", ["none", "of classes", "of pairs"])
def test_the_problem_of_some_classes_is_a_part_of_that_of_all(few_are_enough, costs, sparse):
    """With weights of zero for the other classes' rows, and scores of these classes that are no rivals, P is the same
    function, up to a factor."""
    X, y = make_many_classes(2400, 300, 240, random_state=0)
    y = np.unique(y, return_inverse=True)[1]
    rng, K = np.random.default_rng(0), y.max() + 1
    weights = rng.random(2400) + 0.5
    given = {"none": (), "of classes": rng.random((1, K)) + 0.5, "of pairs": rng.random((K, K)) + 0.5}[costs]
    loss, rows = CrammerSingerLoss(0.1, given), make_rows(X if sparse else X.toarray())
    whole = Problem(rows, ClassTargets(y, K), loss, L2(), 0.01, X.shape[1], sample_weight=weights, intercept=True)
    with pytest.MonkeyPatch.context() as fewer:
        fewer.setattr(alpha_search, "_COPIED", 690)
        assert alpha_search._some_classes(whole, np.random.default_rng(1)) is None
    some = alpha_search._some_classes(whole, np.random.default_rng(1))
    assert 700 <= some.n_samples < 1200
    assert 100 <= some.n_outputs < K
    # Which classes they are, by their rows: these have all that they have in the whole problem, in the same order.
    sums, all_sums = (row_matrix(problem).sum(axis=1).ravel() for problem in (some, whole))
    rows = np.flatnonzero(np.isin(all_sums, sums))
    chosen = np.unique(y[rows])
    assert np.array_equal(y[rows], chosen[some.targets.y])
    assert np.array_equal(np.flatnonzero(np.isin(y, chosen)), rows)
    W, bias = rng.normal(size=(X.shape[1], some.n_outputs)), rng.normal(size=some.n_outputs)
    all_W, all_bias = np.zeros((X.shape[1], K)), np.full(K, -1e6)
    all_W[:, chosen], all_bias[chosen] = W, bias
    alone = replace(whole, sample_weight=np.where(np.isin(y, chosen), weights, 0.0))
    part = weights[rows].sum() / weights.sum()
    # `alone` has mean weight 1 for the rows of these classes; in `whole` they have this part of the weight.
    expected = part * (alone.value(all_W, all_bias) - whole.lam * whole.penalty_value(all_W))
    expected += whole.lam * whole.penalty_value(all_W)
    assert part * some.value(W, bias) == pytest.approx(expected, rel=1e-9)


def test_a_search_with_some_classes_says_so_and_can_be_interrupted(few_are_enough, monkeypatch, capsys):
    """The model then has all classes, and the alpha that was the best so far."""
    X, y = make_many_classes(3000, 800, 300, nnz_per_row=20, random_state=0)
    fits, minimize = [], alpha_search.minimize

    def interrupted(problem, *args, **settings):
        result = minimize(problem, *args, **settings)
        fits.append(problem.n_outputs)
        return replace(result, outcome=Outcome.INTERRUPTED)

    monkeypatch.setattr(alpha_search, "minimize", interrupted)
    search = LinearClassifier("crammer_singer", alpha="auto", random_state=0, verbose=1)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = search.fit(X, y)
    K = len(model.classes_)
    assert f"alpha='auto' searches with {fits[0]} of {K} classes" in capsys.readouterr().err
    assert len(fits) == len(model.validation_scores_) == 1
    assert fits[0] < K == model.coef_.shape[0]
    assert model.alpha_ in model.validation_scores_
    assert (model.history_.outcome, model.n_iter_) == ("interrupted", 1)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_search_with_some_classes_chooses_as_one_with_all(few_are_enough, monkeypatch, early_stopping):
    # The held-out rows of a third of the classes tell alphas apart; those of a third as many rows do not.
    X, y = make_many_classes(15000, 800, 300, nnz_per_row=20, random_state=0)
    monkeypatch.setattr(alpha_search, "_ROWS", 4000)
    settings = {"alpha": "auto", "early_stopping": early_stopping, "tol": 1e-2, "random_state": 0}
    sizes, minimize = [], alpha_search.minimize

    def counted(problem, *args, **kept):
        sizes.append((problem.n_samples, problem.n_outputs))
        return minimize(problem, *args, **kept)

    monkeypatch.setattr(alpha_search, "minimize", counted)
    models = [LinearClassifier("crammer_singer", n_jobs=n, **settings).fit(X[:12000], y[:12000]) for n in (1, 2)]
    assert all(n <= 6000 and K <= 200 for n, K in sizes)
    assert np.array_equal(models[0].coef_, models[1].coef_)  # the threads choose nothing
    monkeypatch.setattr(alpha_search, "_ROWS", 30_000)
    of_all = LinearClassifier("crammer_singer", **settings).fit(X[:12000], y[:12000])
    assert sizes[-1] == (12000, len(of_all.classes_))
    # One standard error of an accuracy on 3000 rows.
    best = of_all.score(X[12000:], y[12000:])
    assert models[0].score(X[12000:], y[12000:]) >= best - (best * (1 - best) / 3000) ** 0.5
    if early_stopping:
        assert models[0].history_.validation


def test_the_first_alpha_of_an_l1_part_takes_no_array_of_rows_by_classes(few_are_enough, monkeypatch):
    """Of some of the classes it takes one; without them it is refused before it is made."""
    X, y = make_many_classes(6000, 300, 1500, nnz_per_row=10, random_state=0)
    search = LinearClassifier("crammer_singer", alpha="auto", l1_ratio=0.5, tol=0.1, random_state=0)
    warnings.simplefilter("ignore")  # few alphas
    monkeypatch.setattr(alpha_search, "_FARTHEST", 0)
    tracemalloc.start()
    model = search.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    K = len(model.classes_)
    assert peak < 0.5 * 8 * len(y) * K
    assert model.solver_ == "sdca_active"
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 4 * len(y) * K)
    with pytest.raises(MemoryError, match=r"gradients of the scores .*to make it fit: a number for alpha"):
        LinearClassifier(alpha="auto", l1_ratio=0.5).fit(X, y)
    with pytest.raises(MemoryError, match=r"gradients of the scores .*to make it fit: dtype=np.float32, or alphas="):
        regularization_path(LinearClassifier(l1_ratio=0.5), X, y)
