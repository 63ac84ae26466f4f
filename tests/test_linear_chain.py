"""LinearChainCRF: formats of input, the optimum, files, warm starts, held-out sequences, refusals by sequence."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from manyclass import LBFGS, LinearChainCRF, LinearClassifier, LogLinearModel, load
from manyclass.cli.main import main
from manyclass.solvers.chain import ChainProblem

WORDS = ("dog", "walk", "the", "runs", "a", "sees", "man")
TAGS = ("DET", "NOUN", "VERB")


def sentences(n, seed=0):
    """Random sentences, as lists of words, and their tags, of which each depends on the one before."""
    rng = np.random.default_rng(seed)
    follow = np.array([[0.0, 0.95, 0.05], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]])
    emit = np.array([[0, 0, 5, 0, 5, 0, 0], [4, 2, 0, 1, 0, 0, 4], [0, 3, 0, 4, 0, 4, 0]]) + 0.3
    X, y = [], []
    for _ in range(n):
        tags = [int(rng.integers(3))]
        for _ in range(int(rng.integers(0, 7))):
            tags.append(int(rng.choice(3, p=follow[tags[-1]])))
        X.append([WORDS[rng.choice(7, p=emit[t] / emit[t].sum())] for t in tags])
        y.append([TAGS[t] for t in tags])
    return X, y


def one_hot(X, kind):
    return [kind(np.eye(7)[[WORDS.index(word) for word in sequence]]) for sequence in X]


def problem_of(model, X, y, weights=None):
    edges = np.concatenate([[0], np.cumsum([len(part) for part in X])]).astype(np.int64)
    rows = np.vstack(one_hot(X, np.asarray))
    index = np.searchsorted(TAGS, np.concatenate(y))
    scale = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    return ChainProblem(rows, edges, index, 3, scale / scale.sum(), model.alpha_)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_optimum_is_that_of_an_independent_solver(weighted):
    X, y = sentences(40)
    weights = np.random.default_rng(1).integers(0, 3, 40) if weighted else None
    model = LinearChainCRF(tol=1e-10).fit(one_hot(X, np.asarray), y, sample_weight=weights)
    assert model.alpha_ == 1 / (40 if weights is None else weights.sum())
    problem = problem_of(model, X, y, weights)

    def cost(theta):
        gradient = np.empty(problem.shape)
        return problem.value(theta.reshape(problem.shape), gradient), gradient.ravel()

    found = minimize(cost, np.zeros(np.prod(problem.shape)), jac=True, method="BFGS", options={"gtol": 1e-7})
    assert model.objective_ == pytest.approx(float(found.fun), rel=1e-9)
    assert model.duality_gap_ <= 1e-10
    assert model.objective_ - model.duality_gap_ * model.objective_ <= found.fun
    values = one_hot(X, np.asarray), y
    assert model.objective(*values, sample_weight=weights) == pytest.approx(model.objective_, rel=1e-12)
    assert model.log_likelihood(*values).shape == (40,)
    theta = np.vstack([model.coef_.T, model.transitions_, model.start_, model.end_])
    np.testing.assert_allclose(theta.ravel(), found.x, atol=1e-5)


def test_every_form_of_a_token_is_the_same_model():
    X, y = sentences(30)
    settings = {"alpha": 0.02, "tol": 1e-11}
    model = LinearChainCRF(**settings).fit(X, y)  # a token is a name
    names = [WORDS.index(name) for name in model.feature_names_]
    coef = model.coef_[:, np.argsort(names)]
    found = {
        "names": LinearChainCRF(**settings).fit([[[word] for word in part] for part in X], y),
        "numbers": LinearChainCRF(**settings).fit([[{word: 1} for word in part] for part in X], y),
        "booleans": LinearChainCRF(**settings).fit([[{word: True, "no": False} for word in part] for part in X], y),
        "strings": LinearChainCRF(**settings).fit([[{"word": word} for word in part] for part in X], y),
        "array of str": LinearChainCRF(**settings).fit([np.array(part) for part in X], y),
    }
    for name, other in found.items():
        np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-12, err_msg=name)
    assert found["strings"].feature_names_.tolist() == [f"word={name}" for name in model.feature_names_]
    for kind in (np.asarray, np.float32, np.int8, sp.csr_matrix, sp.coo_matrix, sp.csr_array):
        rows = one_hot(X, kind)
        other = LinearChainCRF(**settings).fit(rows, y)
        np.testing.assert_allclose(other.coef_, coef, atol=1e-6)
        assert [part.tolist() for part in other.predict(rows)] == [part.tolist() for part in model.predict(X)]
        assert other.feature_names_ is None
    cube, labels = np.random.default_rng(0).normal(size=(8, 4, 2)), np.arange(32).reshape(8, 4) % 2
    assert LinearChainCRF().fit(cube, labels).predict(cube)[0].dtype == np.int64
    letters = LinearChainCRF().fit([list("abab"), list("ba")], ["xyxy", "yx"])  # labels may be a string, one each
    assert letters.predict([list("ab")])[0].tolist() == ["x", "y"]


def test_predictions_are_consistent():
    X, y = sentences(300)
    model = LinearChainCRF(tol=1e-6).fit(X[:200], y[:200])
    best, marginals = model.predict(X[200:]), model.predict_proba(X[200:])
    for path, p in zip(best, marginals):
        assert p.shape == (len(path), 3)
        np.testing.assert_allclose(p.sum(axis=1), 1)
    # No other labels are more probable than those on the best path.
    assert (model.log_likelihood(X[200:], best) >= model.log_likelihood(X[200:], y[200:]) - 1e-12).all()
    right = np.concatenate(best) == np.concatenate(y[200:])
    assert model.score(X[200:], y[200:]) == right.mean() > 0.85
    # The tags around a word say more than the word alone.
    alone = LinearClassifier(tol=1e-6).fit(np.vstack(one_hot(X[:200], np.asarray)), np.concatenate(y[:200]))
    assert alone.score(np.vstack(one_hot(X[200:], np.asarray)), np.concatenate(y[200:])) < right.mean() - 0.03
    # Names that the fit did not have are left out.
    more = [[[word, "unheard of"] for word in part] for part in X[200:]]
    for one, other in zip(model.predict_proba(more), marginals):
        np.testing.assert_array_equal(one, other)


def test_a_chain_is_a_log_linear_model_of_all_label_sequences():
    X, y = [part[:3] for part in sentences(30)[0]], [part[:3] for part in sentences(30)[1]]
    model = LinearChainCRF(alpha=0.05, tol=1e-10).fit(X, y)
    features, chosen = [], []
    for words, tags in zip(X, y):
        paths = np.indices((3,) * len(words)).reshape(len(words), -1).T
        counts = np.zeros((len(paths), 12, 3))
        for row, path in zip(counts, paths):
            for t, (word, tag) in enumerate(zip(words, path)):
                row[model._space.columns[word], tag] += 1
                if t:
                    row[7 + path[t - 1], tag] += 1
            row[10, path[0]] += 1
            row[11, path[-1]] += 1
        features.append(counts.reshape(len(paths), -1))
        truth = [TAGS.index(tag) for tag in tags]
        chosen.append(int(np.flatnonzero((paths == truth).all(axis=1))[0]))
    listed = LogLinearModel(alpha=0.05, tol=1e-10, random_state=0).fit(features, chosen)
    assert listed.objective_ == pytest.approx(model.objective_, rel=1e-8)
    np.testing.assert_allclose(listed.coef_.reshape(12, 3)[:7], model.coef_.T, atol=1e-4)
    assert listed.score(features, chosen) == pytest.approx(model.log_likelihood(X, y).mean(), rel=1e-5)


def test_one_label_and_one_token():
    model = LinearChainCRF().fit([["a"], ["b"]], [["x"], ["x"]])
    assert model.predict([["c", "a"]])[0].tolist() == ["x", "x"]
    np.testing.assert_array_equal(model.predict_proba([["a"]])[0], [[1.0]])
    assert model.objective_ == 0


@pytest.mark.parametrize("named", [True, False])
def test_a_file_is_the_model_again(tmp_path, named):
    X, y = sentences(40)
    X = X if named else one_hot(X, sp.csr_matrix)
    model = LinearChainCRF(alpha=0.01).fit(X, y)
    model.save(tmp_path / "tags.model")
    kept = LinearChainCRF.load(tmp_path / "tags.model")
    for one, other in zip(kept.predict_proba(X), model.predict_proba(X)):
        np.testing.assert_array_equal(one, other)
    assert kept.objective(X, y) == model.objective(X, y)
    for name in ("classes_", "coef_", "transitions_", "start_", "end_", "feature_names_"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(model, name))
    general = load(tmp_path / "tags.model")
    assert general.record["outcome"] == "converged"
    if named:
        names, weights = general.top_features("NOUN", 12)
        assert dict(zip(names, weights))["label before: DET"] == model.transitions_[0, 1]
        assert dict(zip(names, weights))["first token"] == model.start_[1]
    kept.set_params(warm_start=True).fit(X, y)
    assert kept.n_iter_ == 1 < model.n_iter_
    assert main(["info", str(tmp_path / "tags.model")]) == 0
    LinearClassifier(random_state=0).fit(np.eye(4), [0, 1, 0, 1]).save(tmp_path / "linear")
    with pytest.raises(ValueError, match="must have a LinearChainCRF, got a model of LinearClassifier"):
        LinearChainCRF.load(tmp_path / "linear")


def test_the_model_of_a_chain_does_not_label_single_rows(tmp_path, capsys):
    X, y = sentences(20)
    X = one_hot(X, sp.csr_matrix)
    LinearChainCRF().fit(X, y).save(tmp_path / "tags.model")
    model = load(tmp_path / "tags.model")
    rows = np.ones((2, model.n_features))
    labels = model.classes[:2]
    asked = {
        "scores": lambda: model.scores(rows),
        "decision_function": lambda: model.decision_function(rows),
        "predict": lambda: model.predict(rows),
        "topk": lambda: model.topk(rows, 1),
        "calibrate": lambda: model.calibrate(rows, labels),
        "build_index": lambda: model.build_index(),
        "to_sklearn": lambda: model.to_sklearn(),
        "prior": lambda: LinearClassifier().fit(rows, labels, prior=model),
    }
    for name, ask in asked.items():
        with pytest.raises(ValueError, match="LinearChainCRF, which labels whole sequences") as found:
            ask()
        assert str(found.value), name
    np.savez(tmp_path / "rows.npz", X=rows, y=labels)
    for command in ("predict", "score", "certify", "explain"):
        assert main([command, str(tmp_path / "tags.model"), str(tmp_path / "rows.npz")]) != 0, command
        assert "LinearChainCRF" in capsys.readouterr().err, command


def test_a_warm_start_knows_features_and_labels_by_name():
    X, y = sentences(60)
    model = LinearChainCRF(tol=1e-8, warm_start=True).fit(X, y)
    before = model.n_iter_
    turned = [list(reversed(WORDS)), *X], [["NOUN", "VERB", "DET", "VERB", "DET", "NOUN", "NOUN"], *y]
    model.fit(*turned)
    assert model.feature_names_[0] == "man"
    assert model.n_iter_ < before
    fresh = LinearChainCRF(tol=1e-8).fit(*turned)
    assert model.objective_ == pytest.approx(fresh.objective_, rel=1e-7)
    model.fit([["new", "dog"], *X], [["ADJ", "NOUN"], *y])
    assert model.classes_.tolist() == ["ADJ", *TAGS]
    with pytest.raises(ValueError, match="X must have names of features, as before"):
        model.fit(one_hot(X, np.asarray), y)
    model = LinearChainCRF(warm_start=True).fit(one_hot(X, np.asarray), y)
    with pytest.raises(ValueError, match="X must have matrices with 7 columns"):
        model.fit([np.ones((len(part), 3)) for part in X], y)


def test_results_do_not_depend_on_threads():
    X, y = sentences(400)
    one, three = (LinearChainCRF(n_jobs=jobs, max_iter=20, tol=0.01).fit(X, y) for jobs in (None, 3))
    np.testing.assert_array_equal(one.coef_, three.coef_)


def test_held_out_sequences_are_scored_and_end_the_fit(capsys):
    X, y = sentences(30)
    noisy = [[[word, f"{i} {t}"] for t, word in enumerate(part)] for i, part in enumerate(X)]
    held = dict(zip(("X_val", "y_val"), sentences(200, 1)))
    plain, seen = LinearChainCRF(1e-4).fit(noisy, y), []
    scored = LinearChainCRF(1e-4, verbose=1).fit(noisy, y, **held, callback=seen.append)
    np.testing.assert_array_equal(scored.coef_, plain.coef_)
    assert [now.iteration for now in seen] == [found.iteration for found in scored.history_.validation]
    assert seen[-1].validation == scored.score(*held.values())
    np.testing.assert_array_equal(seen[-1].weights()[0], scored.model_.weights)
    assert "validation" in capsys.readouterr().err
    settings = {"alpha": 1e-6, "tol": 1e-12}
    early = LinearChainCRF(early_stopping=2, **settings).fit(noisy, y, **held)
    assert early.history_.outcome == "patience"
    assert early.score(*held.values()) == early.history_.best.score
    assert early.objective_ == pytest.approx(early.objective(noisy, y))
    own = LinearChainCRF(early_stopping=True, random_state=0, **settings).fit(noisy, y)
    assert own.history_.outcome == "patience"
    assert own.n_iter_ == own.history_.best.iteration + 5
    stopped = LinearChainCRF().fit(X, y, callback=lambda now: now.iteration == 3)
    assert (stopped.history_.outcome, stopped.n_iter_) == ("stopped", 3)


def test_an_interrupt_keeps_the_last_iteration(monkeypatch):
    X, y = sentences(40)
    value, calls = ChainProblem.value, []

    def interrupted(self, point, gradient):
        calls.append(point)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return value(self, point, gradient)

    monkeypatch.setattr(ChainProblem, "value", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted: after"):
        model = LinearChainCRF(tol=1e-12).fit(X, y)
    monkeypatch.undo()
    assert model.history_.outcome == "interrupted"
    assert model.objective(X, y) == pytest.approx(model.objective_)
    with pytest.warns(ConvergenceWarning, match="max_iter was reached"):
        other = LinearChainCRF(tol=1e-12, max_iter=model.n_iter_).fit(X, y)
    np.testing.assert_array_equal(model.coef_, other.coef_)


@pytest.mark.parametrize("solver", [LBFGS(history_size=3), "cg", "gd"], ids=str)
def test_every_solver_has_the_same_optimum(solver):
    X, y = sentences(40)
    model = clone(LinearChainCRF(solver=solver, tol=1e-9, max_iter=5000)).fit(X, y)
    assert model.objective_ == pytest.approx(LinearChainCRF(tol=1e-9).fit(X, y).objective_, rel=1e-8)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ("a dog", [["x"]], "X must be a list of sequences, .*got str"),
        ([], [], "got list of length 0"),
        (["a dog"], [["x"]], r"X\[0\] must be a sequence of tokens, got str 'a dog': pass list\(text\)"),
        ([["a"], 3], [["x"], ["x"]], r"X\[1\] must be a sequence of tokens, got int"),
        ([["a"], []], [["x"], []], r"at least one token, X\[1\] is empty"),
        ([["a"], ["b", 3]], [["x"], ["x", "y"]], r"token 1 of X\[1\] must be a name, .*got 3"),
        ([[{"a": None}]], [["x"]], r"token 0 of X\[0\] .*'a' is None"),
        ([[{"a": np.nan}]], [["x"]], r"token 0 of X\[0\] .*'a' is nan"),
        ([[{3: 1}]], [["x"]], r"token 0 of X\[0\] .*a feature named 3"),
        ([[{}]], [["x"]], "every token is empty"),
        ([["a"]], [["x"], ["y"]], r"y must be a list of 1 sequences of labels, .*got 2"),
        ([["a", "b"]], [["x"]], r"y\[0\] must have 2 labels, one for each token, got shape \(1,\)"),
        ([["a"], ["b"]], [["x"], [1]], "labels that are all strings, or all integers, got int, str"),
        ([["a"]], [[0.5]], "all strings, or all integers, got float"),
        ([["a", "b"]], [["x", np.nan]], "all strings, or all integers, got float, str"),
        ([["a", "b"]], [["x", 1]], "all strings, or all integers, got int, str"),
        ([np.ones((1, 2)), np.ones((2, 3))], [[0], [0, 1]], r"X\[1\] must have 2 columns, as X\[0\] has, got 3"),
        ([np.ones((1, 2)), [["a"]]], [[0], [0]], r"X\[1\] must be a matrix of real numbers"),
        ([np.array([[np.inf]])], [[0]], r"X\[0\] must be finite"),
    ],
)
def test_faults_are_told_by_sequence(X, y, message):
    with pytest.raises(ValueError, match=message):
        LinearChainCRF().fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "'alpha' parameter of LinearChainCRF"),
        ({"solver": "newton"}, "solver must be one of 'lbfgs', 'cg', 'gd', or an object such as LBFGS"),
        ({"solver": LBFGS(history_size=0)}, "'history_size' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"tol": -1.0}, "'tol' parameter"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
)
def test_parameters_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        LinearChainCRF(**options).fit(*sentences(3))


def test_other_input_than_in_the_fit_is_refused():
    X, y = sentences(20)
    model = LinearChainCRF()
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y)
    with pytest.raises(ValueError, match="X must have names of features, as in the fit, got matrices"):
        model.predict(one_hot(X, np.asarray))
    with pytest.raises(ValueError, match=r"y\[1\] has a label that is none of the 3 of the fit"):
        model.log_likelihood(X[:2], [y[0], ["ADJ"] * len(X[1])])
    assert model.score([["dog"]], [["ADJ"]]) == 0
    with pytest.raises(ValueError, match="X_val was given without y_val"):
        model.fit(X, y, X_val=X)
    model.fit(one_hot(X, np.asarray), y)
    with pytest.raises(ValueError, match="X must be matrices with 7 columns, as in the fit, got lists"):
        model.predict(X)
    with pytest.raises(ValueError, match=r"X\[0\] must have 7 columns, as in the fit, got 2"):
        model.predict([np.ones((3, 2))])


def test_memory_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 1000)
    with pytest.raises(MemoryError, match="history_size=3"):
        LinearChainCRF().fit(*sentences(20))


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [None, 0.002])
@pytest.mark.parametrize("size", [1, 20, 400])
@pytest.mark.parametrize("kind", ["names", "sparse", "dense"])
def test_a_stream_comes_near_the_optimum(alpha, size, kind):
    X, y = sentences(400)
    X_test, y_test = sentences(400, 1)
    if kind != "names":
        convert = np.asarray if kind == "dense" else sp.csr_matrix
        X, X_test = one_hot(X, convert), one_hot(X_test, convert)
    best = LinearChainCRF(alpha, tol=1e-6).fit(X, y)
    stream = LinearChainCRF(alpha)
    for begin in range(0, 400, size):
        stream.partial_fit(X[begin : begin + size], y[begin : begin + size])
    assert stream.alpha_ == best.alpha_
    assert stream.objective(X, y) < best.objective_ + 0.05
    likelihood = best.log_likelihood(X_test, y_test).mean()
    assert stream.log_likelihood(X_test, y_test).mean() > likelihood - 0.05
    assert stream.score(X_test, y_test) > best.score(X_test, y_test) - 0.01
    assert stream.model_.record["outcome"] == "stream"
    assert not hasattr(stream, "objective_")


def test_a_batch_is_an_exact_step_of_the_approximation():
    X, y = sentences(60)
    X = one_hot(X, np.asarray)
    one, two = X[:30], X[30:]
    model = LinearChainCRF(0.05).partial_fit(one, y[:30])
    # The first batch: the penalty alone is known, that of 30 sequences.
    fitted = LinearChainCRF(0.05, tol=1e-8).fit(one, y[:30])
    assert model.objective(one, y[:30]) == pytest.approx(fitted.objective_, rel=1e-2)
    stream = model._stream
    before, h = stream.point.copy(), stream.precision.copy()
    assert (h >= 0.05 * 30).all()
    weights = np.random.default_rng(0).random(30) + 0.5
    model.partial_fit(two, y[30:], sample_weight=weights)
    after = stream.point

    def cost(theta):
        shifted = 0.5 * np.sum(h * (theta - before) ** 2) + 0.5 * 0.05 * 30 * np.sum(theta**2)
        model._point = theta
        return shifted - weights @ model.log_likelihood(two, y[30:])

    def certain(theta):
        found = minimize(lambda x: cost(x.reshape(theta.shape)), theta.ravel(), method="BFGS", options={"maxiter": 30})
        return found.fun

    value = cost(after)
    assert value <= certain(after) + 0.02 * value
    assert (stream.precision >= h + 0.05 * 30 - 1e-12).all()
    assert stream.seen == 60


def test_the_precisions_are_the_variances_of_the_counts():
    # Sequences of one token: nothing is left out.
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(1, 2)) for _ in range(9)], [[label] for label in 3 * [0, 1, 2]]
    model = LinearChainCRF().partial_fit(X, y)
    p = np.vstack(model.predict_proba(X))
    rows = np.vstack(X)
    expected = np.ones((7, 3))
    expected[:2] += (rows**2).T @ (p * (1 - p))
    expected[5:] += (p * (1 - p)).sum(axis=0)
    np.testing.assert_allclose(model._stream.precision, expected, rtol=1e-10)


def test_features_and_labels_may_be_new_in_any_batch(tmp_path):
    X, y = sentences(100)
    model = LinearChainCRF()
    model.partial_fit([["dog", "walk"]], [["NOUN", "VERB"]])
    assert (model.classes_.tolist(), model.feature_names_.tolist()) == (["NOUN", "VERB"], ["dog", "walk"])
    first = model.coef_.copy()
    model.partial_fit([["zoo"]], [["ADJ"]])
    assert (model.classes_.tolist(), model.feature_names_.tolist()) == (["ADJ", "NOUN", "VERB"], ["dog", "walk", "zoo"])
    np.testing.assert_allclose(model.coef_[1:, :2], first, atol=1e-12)  # what was not in the batch
    for begin in range(0, 100, 10):
        model.partial_fit(X[begin : begin + 10], y[begin : begin + 10])
    assert model.score(*sentences(100, 1)) > 0.8
    model.save(tmp_path / "model")
    kept = LinearChainCRF.load(tmp_path / "model")
    assert [part.tolist() for part in kept.predict(X)] == [part.tolist() for part in model.predict(X)]
    point = model.coef_.copy()
    model.fit(X, y).partial_fit(X, y)  # a fit ends the stream
    other = LinearChainCRF().partial_fit(X, y)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert point.shape[1] == 8
    goes_on = kept.set_params(warm_start=True, alpha=None).fit(X, y)
    assert goes_on.objective_ == pytest.approx(LinearChainCRF().fit(X, y).objective_, rel=2e-3)


def test_a_stream_refuses_what_it_cannot():
    X, y = sentences(20)
    with pytest.raises(ValueError, match="early_stopping is not supported by partial_fit"):
        LinearChainCRF(early_stopping=True).partial_fit(X, y)
    model = LinearChainCRF().partial_fit(X, y)
    with pytest.raises(ValueError, match="y must have labels of the same type as before, such as 'DET', got 0"):
        model.partial_fit([["dog"]], [[0]])
    with pytest.raises(ValueError, match="X must have names of features"):
        model.partial_fit(one_hot(X, np.asarray), y)
    model = LinearChainCRF().partial_fit(one_hot(X, np.asarray), y)
    with pytest.raises(ValueError, match=r"X\[0\] must have 7 columns, as in the fit, got 2"):
        model.partial_fit([np.ones((1, 2))], [["DET"]])


def test_the_segmentation_of_the_examples():
    pytest.importorskip("matplotlib").use("Agg")
    shown = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "word_segmentation.py"))
    scores = shown["scores"]
    assert scores["chain"] > max(0.8, scores["each character alone"] + 0.02)
    assert shown["cuts"]("BIESBE") == {(0, 3), (3, 4), (4, 6)}
    assert shown["f1"](shown["y_test"]) == 1
    assert np.logical_and(shown["starts"] >= 0, shown["starts"] <= 1 + 1e-12).all()
