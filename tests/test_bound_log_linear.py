"""LogLinearModel: the optimum of an independent solver, refusals by example, the example file."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from manyclass import LBFGS, BoundMajorization, LinearClassifier, LogLinearModel, load

BATCH = BoundMajorization(stochastic=False)


def make(n=40, D=5, seed=0, scale=1.0, sparse=False, measured=True):
    """Examples with one to six labels, some of which cannot be."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=D)
    features, measures, y = [], [], []
    for size in rng.integers(1, 7, n):
        f = rng.normal(size=(size, D)) * scale * (rng.random((size, D)) < 0.7)
        h = rng.normal(size=size)
        if size > 2:
            h[rng.integers(size)] = -np.inf
        if not measured:
            h[:] = 0
        y.append(int(np.argmax(h + f @ theta / scale + rng.gumbel(size=size))))
        features.append(sp.csr_matrix(f) if sparse else f)
        measures.append(h)
    return features, np.array(y), measures


def loss(features, y, measures, theta, weights):
    total = 0.0
    for f, label, h, c in zip(features, y, measures, weights):
        L = h + f @ theta
        total += c * (logsumexp(L) - L[label])
    return total / np.sum(weights)


def optimum(features, y, measures, alpha, weights):
    def cost(theta):
        return loss(features, y, measures, theta, weights) + 0.5 * alpha * theta @ theta

    found = minimize(cost, np.zeros(features[0].shape[1]), method="BFGS", options={"gtol": 1e-8})
    return float(found.fun)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 1},
        {"rank": 1},
        {"rank": 4},
        {"rank": 2, "batch_size": 3},
        {"stochastic": False},
        {"order": "descending"},
    ],
    ids=str,
)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_optimum_is_that_of_an_independent_solver(options, sparse):
    features, y, measures = make(sparse=sparse)
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    model = LogLinearModel(0.01, solver=BoundMajorization(**options), tol=1e-8, max_iter=3000, random_state=0)
    model.fit(features, y, log_measure=measures, sample_weight=weights)
    dense = [f.toarray() if sparse else f for f in features]
    best = optimum(dense, y, measures, 0.01, weights)
    assert model.objective_ == pytest.approx(best, rel=1e-7)
    assert model.duality_gap_ <= 1e-8
    assert model.objective(features, y, log_measure=measures, sample_weight=weights) == pytest.approx(
        model.objective_, rel=1e-12
    )
    assert model.score(features, y, log_measure=measures) == pytest.approx(
        -loss(dense, y, measures, model.coef_, np.ones(len(y))), rel=1e-12
    )


@pytest.mark.parametrize("solver", ["lbfgs", "cg", "gd", LBFGS(history_size=2)], ids=str)
def test_the_baselines_end_at_the_same_optimum(solver):
    features, y, measures = make(sparse=True)
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    model = LogLinearModel(0.01, solver=solver, tol=1e-8, max_iter=3000)
    model.fit(features, y, log_measure=measures, sample_weight=weights)
    assert not hasattr(model, "rank_")
    assert model.history_.outcome == "converged"
    best = optimum([f.toarray() for f in features], y, measures, 0.01, weights)
    assert model.objective_ == pytest.approx(best, rel=1e-7)
    # One pass or more for each iteration, and one at the start.
    assert model.history_.last.passes > model.n_iter_
    warm = LogLinearModel(0.01, warm_start=True, tol=1e-8, solver=solver)
    warm.coef_ = model.coef_
    assert warm.fit(features, y, log_measure=measures, sample_weight=weights).n_iter_ == 1


@pytest.mark.parametrize("solver", ["bound", BoundMajorization(rank=2), BATCH, "lbfgs", "cg", "gd"], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_objective_falls_and_the_gap_is_true(solver, scale):
    features, y, measures = make(seed=2, scale=scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogLinearModel(1e-3, solver=solver, max_iter=30, tol=0, random_state=0)
        model.fit(features, y, log_measure=measures)
    values = np.array(model.history_.column("primal"))
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 1e-12 * values[:-1] + 1e-15).all()
    for record in model.history_:
        assert record.dual <= values.min() + 1e-12


def test_softmax_regression_is_a_special_case():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    features = [np.kron(np.eye(3), x) for x in X]
    model = LogLinearModel(0.01, tol=1e-10, random_state=0).fit(features, y)
    other = LinearClassifier(alpha=0.01, solver="bound", tol=1e-10, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.coef_.reshape(3, 4), other.coef_, atol=1e-5)
    np.testing.assert_allclose(np.array(model.predict_proba(features)), other.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(features), other.predict(X))
    # All at once, three labels each.
    whole = LogLinearModel(0.01, tol=1e-10, random_state=0).fit(np.vstack(features), y, offsets=np.arange(61) * 3)
    np.testing.assert_array_equal(whole.coef_, model.coef_)
    cube = LogLinearModel(0.01, tol=1e-10, random_state=0).fit(np.array(features), y)
    np.testing.assert_array_equal(cube.coef_, model.coef_)


def test_labels_that_cannot_be_have_no_probability():
    features, y, measures = make(seed=4)
    model = clone(LogLinearModel(0.01)).fit(features, y, log_measure=measures)
    for p, h in zip(model.predict_proba(features, log_measure=measures), measures):
        assert p.sum() == pytest.approx(1)
        assert ((p == 0) == np.isneginf(h)).all()
    assert all(len(p) == 1 or p.max() <= 1 for p in model.predict_proba(features))


def test_many_parameters_take_little_memory():
    rng = np.random.default_rng(5)
    features = [sp.random(3, 100_000, density=1e-4, random_state=rng, format="csr") for _ in range(20)]
    y = rng.integers(0, 3, 20)
    model = LogLinearModel(0.1, tol=1e-4).fit(features, y)
    assert model.rank_ == 8
    assert model.coef_.shape == (100_000,)
    with pytest.raises(MemoryError, match="rank=8"):
        LogLinearModel(solver=BoundMajorization(rank="full")).fit(features, y)


def faulty(change):
    features, y, measures = make(n=6, seed=6)
    features[2] = np.ones((3, 5))
    measures[2] = np.zeros(3)
    y[2] = 1
    return change(features, y, measures)


def spoil(features, y, measures):
    features[2][1, 0] = np.nan
    return features, y, measures


def forbid(features, y, measures):
    measures[2][1] = -np.inf
    return features, y, measures


def forbid_all(features, y, measures):
    measures[2][:] = -np.inf
    return features, y, measures


def strange(features, y, measures):
    y[2] = 3
    return features, y, measures


def empty(features, y, measures):
    features[2], measures[2] = np.ones((0, 5)), np.zeros(0)
    return features, y, measures


def wide(features, y, measures):
    features[2] = np.ones((3, 6))
    return features, y, measures


def short(features, y, measures):
    measures[2] = np.zeros(2)
    return features, y, measures


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil, "got NaN or infinity for label 1 of example 2"),
        (forbid, "observed label 1 of example 2 has measure zero"),
        (forbid_all, "minus infinity for all labels of example 2"),
        (strange, "y of example 2 must be from 0 to 2, .*got 3"),
        (empty, "empty label set for example 2"),
        (wide, "got 6 for example 2"),
        (short, r"log_measure of example 2 must have shape \(3,\)"),
        (lambda f, y, h: (f, y[:-1], h), "y must have shape"),
        (lambda f, y, h: (f, y.astype(float), h), "integers"),
        (lambda f, y, h: ([], y, h), "features must be a list"),
    ],
)
def test_faults_are_told_by_example(change, message):
    features, y, measures = faulty(change)
    with pytest.raises(ValueError, match=message):
        LogLinearModel().fit(features, y, log_measure=measures)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, r"'alpha' parameter of LogLinearModel must be a float in the range \(0.0, inf\)"),
        ({"solver": "newton"}, "solver must be one of 'bound', 'lbfgs', 'cg', 'gd', or an object such as Bound"),
        ({"solver": "bbm"}, r"did you mean 'bound'\?"),
        ({"solver": BoundMajorization(rank="half")}, "'rank' parameter of BoundMajorization"),
        ({"solver": BoundMajorization(batch_size=3, stochastic=False)}, "batch_size must be None"),
        ({"solver": BoundMajorization(schedule="slow")}, "'schedule' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"tol": -1.0}, "'tol' parameter"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
)
def test_parameters_out_of_range(options, message):
    features, y, _ = make(measured=False)
    with pytest.raises(ValueError, match=message):
        LogLinearModel(**options).fit(features, y)


def test_the_penalty_is_one_over_the_examples_by_default():
    features, y, _ = make(measured=False)
    weights = np.random.default_rng(0).integers(1, 4, len(y))
    model = LogLinearModel(random_state=0).fit(features, y, sample_weight=weights)
    assert model.alpha_ == pytest.approx(1 / weights.sum())
    given = LogLinearModel(1 / weights.sum(), random_state=0).fit(features, y, sample_weight=weights)
    np.testing.assert_array_equal(model.coef_, given.coef_)
    assert LogLinearModel().fit(features, y).alpha_ == 1 / len(y)


def test_the_parameters_are_kept_in_a_file(tmp_path):
    features, y, _ = make(measured=False)
    model = LogLinearModel(solver=BATCH, max_iter=1000).fit(features, y)
    model.save(tmp_path / "model")
    kept = load(tmp_path / "model")
    rows = np.vstack(features)
    np.testing.assert_allclose(kept.scores(rows)[:, 0], rows @ model.coef_, rtol=1e-12)
    assert kept.parameters["estimator"] == "LogLinearModel"
    assert kept.parameters["alpha"] == model.alpha_
    assert kept.record["outcome"] == "converged"


def test_a_file_is_a_model_again_and_a_beginning(tmp_path):
    features, y, measures = make()
    model = LogLinearModel(alpha=1e-2, tol=1e-9, random_state=0).fit(features, y, log_measure=measures)
    model.save(tmp_path / "model")
    kept = LogLinearModel.load(tmp_path / "model")
    for one, other in zip(kept.predict_proba(features), model.predict_proba(features)):
        np.testing.assert_array_equal(one, other)
    assert kept.score(features, y) == model.score(features, y)
    kept.set_params(warm_start=True, tol=1e-9).fit(features, y, log_measure=measures)
    assert kept.n_iter_ == 1 < model.n_iter_
    with pytest.raises(ValueError, match="features must have the 5 columns of the previous fit"):
        kept.fit([f[:, :3] for f in features], y, log_measure=measures)
    X = np.random.default_rng(0).normal(size=(20, 3))
    LinearClassifier(random_state=0).fit(X, X[:, 0] > 0).save(tmp_path / "linear")
    with pytest.raises(ValueError, match="must have a LogLinearModel, got a model of LinearClassifier"):
        LogLinearModel.load(tmp_path / "linear")


def test_other_input_than_in_the_fit_is_refused():
    features, y, _ = make(measured=False)
    model = LogLinearModel()
    with pytest.raises(NotFittedError):
        model.predict(features)
    model.fit(features, y)
    with pytest.raises(ValueError, match="features must have 5 columns"):
        model.predict([np.ones((2, 4))])
    with pytest.raises(ValueError, match="offsets must go from 0 to 4, the number of rows"):
        model.predict(np.ones((4, 5)), offsets=[0, 3])


def test_the_chain_of_the_examples(capsys):
    path = Path(__file__).parents[1] / "examples" / "chain_crf.py"
    model, right = runpy.run_path(str(path))["main"]()
    assert model.n_iter_ <= 12
    assert right > 0.7
    assert "determiner, noun, verb, noun" in capsys.readouterr().out


def test_an_interrupt_keeps_the_last_iteration(monkeypatch):
    features, y, measures = make()
    calls, advance = [], BoundMajorization.advance

    def interrupted(self, *args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(self, *args)

    monkeypatch.setattr(BoundMajorization, "advance", interrupted)
    model = LogLinearModel(alpha=1e-3, tol=1e-12, random_state=0)
    with pytest.warns(ConvergenceWarning, match="interrupted: after 2 iterations"):
        model.fit(features, y, log_measure=measures)
    assert (model.n_iter_, model.history_.outcome) == (2, "interrupted")
    assert model.objective_ == pytest.approx(model.objective(features, y, log_measure=measures))
    monkeypatch.undo()
    two = LogLinearModel(alpha=1e-3, tol=1e-12, max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter was reached"):
        two.fit(features, y, log_measure=measures)
    np.testing.assert_array_equal(model.coef_, two.coef_)


# --- held-out examples, callbacks -------------------------------------------------------------------------------------


def choices(n, seed):
    rng = np.random.default_rng(seed)
    features = [rng.normal(size=(size, 20)) for size in rng.integers(3, 5, n)]
    return features, [int(np.argmax(part[:, :2] @ [2.0, -1.0] + rng.gumbel(size=len(part)))) for part in features]


def test_held_out_examples_are_scored_and_end_the_fit(capsys):
    given, held = choices(60, 0), dict(zip(("X_val", "y_val"), choices(200, 1)))
    plain = LogLinearModel(alpha=1e-3, random_state=0).fit(*given)
    seen = []
    scored = LogLinearModel(alpha=1e-3, random_state=0, verbose=1).fit(*given, **held, callback=seen.append)
    np.testing.assert_array_equal(scored.coef_, plain.coef_)
    assert [now.iteration for now in seen] == [found.iteration for found in scored.history_.validation]
    assert [now.finished for now in seen] == [False] * (len(seen) - 1) + [True]
    assert seen[-1].validation == pytest.approx(scored.score(*held.values()))
    assert capsys.readouterr().err.splitlines()[-len(seen) - 1 :] == scored.history_.table().splitlines()
    settings = {"alpha": 1e-6, "tol": 1e-12, "random_state": 0}
    early = LogLinearModel(early_stopping=2, **settings).fit(*given, **held)
    assert early.history_.outcome == "patience"
    assert early.score(*held.values()) == pytest.approx(early.history_.best.score)
    assert early.n_iter_ == early.history_.best.iteration + 2
    assert early.objective_ == pytest.approx(early.objective(*given))
    own = LogLinearModel(early_stopping=True, **settings).fit(*given)
    assert own.history_.outcome == "patience"
    assert own.n_iter_ == own.history_.best.iteration + 5


def test_a_callback_ends_a_log_linear_fit():
    found = LogLinearModel(random_state=0).fit(*choices(60, 0), callback=lambda now: now.iteration == 2)
    assert (found.history_.outcome, found.n_iter_) == ("stopped", 2)
    with pytest.raises(ValueError, match="X_val was given without y_val: pass both"):
        LogLinearModel().fit(*choices(60, 0), X_val=choices(5, 0)[0])
    with pytest.raises(ValueError, match="features must have 20 columns, as in the fit, got 3"):
        LogLinearModel().fit(*choices(60, 0), X_val=[np.ones((2, 3))], y_val=[0])


# --- names of features, streams ---------------------------------------------------------------------------------------


def named(features):
    """The same features as dicts: f0 is a boolean where it is 0 or 1, others are numbers."""
    return [[{f"f{j}": value for j, value in enumerate(row)} for row in part] for part in features]


def test_features_with_names(tmp_path):
    features, y, measures = make()
    features = [np.hstack([part, np.arange(len(part))[:, None] % 2]) for part in features]
    plain = LogLinearModel(0.01, tol=1e-9, random_state=0).fit(features, y, log_measure=measures)
    assert plain.feature_names_ is None
    rows = [[{**row, "f5": "odd" if row["f5"] else "even"} for row in part] for part in named(features)]
    model = LogLinearModel(0.01, tol=1e-9, random_state=0).fit(rows, y, log_measure=measures)
    assert set(model.feature_names_) == {*(f"f{j}" for j in range(5)), "f5=odd", "f5=even"}
    exact = LogLinearModel(0.01, tol=1e-9, random_state=0).fit(named(features), y, log_measure=measures)
    order = [exact.feature_names_.tolist().index(f"f{j}") for j in range(6)]
    np.testing.assert_allclose(exact.coef_[order], plain.coef_, atol=1e-5)
    more = [[{**row, "other": 3.0} for row in part] for part in rows]  # names that the fit did not have are left out
    for one, other in zip(model.predict_proba(more), model.predict_proba(rows)):
        np.testing.assert_array_equal(one, other)
    lists = LogLinearModel(0.01).fit([[["a", "b"], ["b"]], [["a"], ["c"]]], [0, 1])
    assert lists.feature_names_.tolist() == ["a", "b", "c"]
    assert lists.predict([[["c"], ["a"]]]).tolist() == [0]
    model.save(tmp_path / "model")
    kept = LogLinearModel.load(tmp_path / "model")
    assert kept.predict(rows, log_measure=measures).tolist() == model.predict(rows, log_measure=measures).tolist()
    np.testing.assert_array_equal(kept.feature_names_, model.feature_names_)
    shuffled = [[dict(reversed(row.items())) for row in part] for part in rows]
    warm = kept.set_params(warm_start=True, tol=1e-8).fit(shuffled, y, log_measure=measures)
    assert warm.n_iter_ == 1 < model.n_iter_
    assert warm.feature_names_.tolist() != model.feature_names_.tolist()
    held = LogLinearModel(0.01).fit(rows[:30], y[:30], X_val=rows[30:], y_val=y[30:])
    assert held.history_.validation[-1].score == pytest.approx(held.score(rows[30:], y[30:]))


def test_columns_of_data_frames_are_names():
    pandas = pytest.importorskip("pandas")
    features, y, _ = make(measured=False)
    frames = [pandas.DataFrame(part, columns=list("abcde")) for part in features]
    model = LogLinearModel(0.01, random_state=0).fit(frames, y)
    plain = LogLinearModel(0.01, random_state=0).fit(features, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-12)
    assert model.feature_names_.tolist() == list("abcde")
    with pytest.raises(ValueError, match="features must have the columns of the fit in their order, got the columns"):
        model.predict([frame[list("bacde")] for frame in frames])
    with pytest.raises(ValueError, match="got a column 'x'"):
        model.predict([frame.rename(columns={"b": "x"}) for frame in frames])
    with pytest.raises(ValueError, match="example 3 must have the columns of example 0"):
        model.fit([*frames[:3], frames[3][list("bacde")], *frames[4:]], y)
    offsets = np.cumsum([0, *map(len, frames)])
    whole = LogLinearModel(0.01, random_state=0).fit(pandas.concat(frames), y, offsets=offsets)
    np.testing.assert_allclose(whole.coef_, model.coef_, rtol=1e-12)
    assert whole.feature_names_.tolist() == list("abcde")


def test_faults_of_names_are_told_by_label():
    with pytest.raises(ValueError, match=r"label 1 of features\[1\] must be a name, .*'a' is None"):
        LogLinearModel().fit([[{"a": 1}, {"b": 1}], [{"a": 1}, {"a": None}]], [0, 0])
    with pytest.raises(ValueError, match="features of example 1 must be a list of its labels"):
        LogLinearModel().fit([[{"a": 1}, {"b": 1}], []], [0, 0])
    features, y, _ = make(measured=False)
    model = LogLinearModel().fit(features, y)
    with pytest.raises(ValueError, match="features must be matrices with 5 columns, as in the fit, got lists of names"):
        model.predict(named(features))


@pytest.mark.parametrize("solver", ["bound", BoundMajorization(rank=3), BoundMajorization(batch_size=7)], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_stream_comes_near_the_optimum(solver, sparse):
    features, y, measures = make(n=1200, sparse=sparse)
    settings = {"alpha": 0.01, "solver": solver, "random_state": 0}
    best = LogLinearModel(alpha=0.01, tol=1e-8).fit(features, y, log_measure=measures)
    stream = LogLinearModel(**settings)
    excess = []
    for begin in range(0, 1200, 100):
        part = slice(begin, begin + 100)
        stream.partial_fit(features[part], y[part], log_measure=measures[part])
        excess.append(stream.objective(features, y, log_measure=measures) - best.objective_)
    assert 0 <= excess[-1] < 0.1 * excess[0]
    assert excess[-1] < 5e-3
    assert stream.model_.record["outcome"] == "stream"
    assert not hasattr(stream, "duality_gap_")
    before = stream.coef_.copy()
    stream.fit(features[:100], y[:100])  # a fit ends the stream: the next call begins a new one
    stream.partial_fit(features[:100], y[:100], log_measure=measures[:100])
    other = LogLinearModel(**settings).partial_fit(features[:100], y[:100], log_measure=measures[:100])
    np.testing.assert_array_equal(stream.coef_, other.coef_)
    assert np.abs(stream.coef_ - before).max() > 0


def test_weights_in_a_stream_are_repetitions():
    features, y, _ = make(n=60, measured=False)
    weights = np.random.default_rng(0).integers(0, 3, 60)
    rows = np.repeat(np.arange(60), weights)
    solver = BoundMajorization(batch_size=200)  # a step is that of all of them
    one = LogLinearModel(0.1, solver=solver).partial_fit(features, y, sample_weight=weights)
    two = LogLinearModel(0.1 * 60 / len(rows), solver=solver)  # the sum of the penalties of the examples
    two.partial_fit([features[i] for i in rows], y[rows])
    np.testing.assert_allclose(two.coef_, one.coef_, rtol=1e-9)
    assert LogLinearModel().partial_fit(features, y).alpha_ == 1 / 60
    assert LogLinearModel().partial_fit(features, y).partial_fit(features, y).alpha_ == 1 / 120


def test_a_stream_refuses_what_it_cannot():
    features, y, _ = make(measured=False)
    with pytest.raises(ValueError, match="partial_fit needs solver 'bound', got 'lbfgs'"):
        LogLinearModel(solver="lbfgs").partial_fit(features, y)
    with pytest.raises(ValueError, match="early_stopping is not supported by partial_fit"):
        LogLinearModel(early_stopping=True).partial_fit(features, y)
    model = LogLinearModel().partial_fit(features, y)
    with pytest.raises(ValueError, match="features must have 5 columns, as in the fit, got 3"):
        model.partial_fit([part[:, :3] for part in features], y)
    names = LogLinearModel().partial_fit(named(features), y)
    names.partial_fit([[{**row, "more": 1.0} for row in part] for part in named(features)], y)
    assert len(names.coef_) == 5
