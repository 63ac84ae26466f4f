"""Cross-validated estimators: they choose what a loop over plain estimators would."""

from __future__ import annotations

import pickle
import signal
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import ElasticNetCV
from sklearn.metrics import accuracy_score, log_loss, make_scorer, max_error, mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from manyclass import (
    CrammerSinger,
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    LinearRegressorCV,
    regularization_path,
)
from manyclass.estimators.aligned import align


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:, :2], np.array(["setosa", "versicolor", "virginica"])[y]
    return X, y


def test_the_choice_is_that_of_a_loop_over_regressors(diabetes):
    X, y = diabetes
    args = {"tol": 1e-10, "max_iter": 20_000, "random_state": 0}
    model = LinearRegressorCV(n_alphas=12, l1_ratio=[0.3, 0.9], cv=4, **args).fit(X, y)
    assert model.scores_path_.shape == (2, 12, 4)
    assert model.alphas_.shape == (2, 12)
    scores = np.empty((2, 12, 4))
    for i, ratio in enumerate([0.3, 0.9]):
        alphas = regularization_path(LinearRegressor(l1_ratio=ratio, **args), X, y, n_alphas=12).alphas
        np.testing.assert_array_equal(alphas, model.alphas_[i])
        for j, alpha in enumerate(alphas):
            for k, (train, test) in enumerate(KFold(4).split(X)):
                alone = LinearRegressor(alpha=alpha, l1_ratio=ratio, **args).fit(X[train], y[train])
                scores[i, j, k] = -mean_squared_error(y[test], alone.predict(X[test]))
    np.testing.assert_allclose(model.scores_path_, scores, rtol=1e-4)
    i, j = np.unravel_index(scores.mean(axis=2).argmax(), (2, 12))
    assert model.alpha_ == model.alpha_best_ == model.alphas_[i, j]
    assert model.l1_ratio_ == [0.3, 0.9][i]
    # The model is the plain one.
    plain = LinearRegressor(alpha=model.alpha_, l1_ratio=model.l1_ratio_, **args).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert model.duality_gap_ == plain.duality_gap_


def test_the_scores_are_scikit_learns(diabetes):
    X, y = diabetes
    alphas = np.geomspace(20, 0.02, 15)
    ours = LinearRegressorCV(alphas=alphas[::-1], l1_ratio=0.7, tol=1e-10, max_iter=20_000, random_state=0).fit(X, y)
    theirs = ElasticNetCV(alphas=alphas, l1_ratio=0.7, tol=1e-8, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_)
    np.testing.assert_allclose(-ours.scores_path_, theirs.mse_path_, rtol=1e-4)
    assert ours.alpha_ == pytest.approx(theirs.alpha_)


@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer", "squared_hinge"])
def test_the_choice_is_that_of_a_loop_over_classifiers(iris, loss):
    X, y = iris
    args = {"loss": loss, "tol": 1e-8, "max_iter": 20_000, "random_state": 0, "class_weight": {"setosa": 2.0}}
    alphas = [1.0, 0.3, 0.1, 0.03, 0.01]
    # By default classifiers without probabilities are judged by their accuracy.
    scoring = "accuracy" if loss == "multinomial" else None
    model = LinearClassifierCV(alphas=alphas, cv=3, scoring=scoring, **args).fit(X, y)
    scores = np.array(
        [
            [
                accuracy_score(y[test], LinearClassifier(alpha=alpha, **args).fit(X[train], y[train]).predict(X[test]))
                for train, test in StratifiedKFold(3).split(X, y)
            ]
            for alpha in alphas
        ]
    )
    np.testing.assert_allclose(model.scores_path_, scores, atol=1e-12)
    assert model.alpha_ == alphas[int(scores.mean(axis=1).argmax())]
    plain = LinearClassifier(alpha=model.alpha_, **args).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    np.testing.assert_array_equal(model.predict_topk(X, 2)[0], plain.predict_topk(X, 2)[0])
    np.testing.assert_array_equal(model.classes_, plain.classes_)
    assert hasattr(model, "predict_proba") == hasattr(plain, "predict_proba")
    if hasattr(plain, "predict_proba"):
        np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("loss", ["multinomial", "log_loss"])
@pytest.mark.parametrize("weighted", [False, True])
def test_probabilities_are_judged_by_the_log_loss(iris, loss, weighted):
    X, y = iris
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], len(y)) if weighted else np.ones(len(y))
    args = {"loss": loss, "tol": 1e-8, "max_iter": 20_000, "random_state": 0}
    alphas = [0.1, 0.01, 1e-3]
    model = LinearClassifierCV(alphas=alphas, cv=3, **args).fit(X, y, sample_weight=weights if weighted else None)
    scores = np.empty((3, 3))
    for j, alpha in enumerate(alphas):
        for k, (train, test) in enumerate(StratifiedKFold(3).split(X, y)):
            alone = LinearClassifier(alpha=alpha, **args).fit(X[train], y[train], sample_weight=weights[train])
            scores[j, k] = -log_loss(y[test], alone.predict_proba(X[test]), sample_weight=weights[test])
    np.testing.assert_allclose(model.scores_path_, scores, rtol=1e-4)
    share = [weights[test].sum() for _, test in StratifiedKFold(3).split(X, y)]
    assert model.alpha_ == alphas[int(np.average(scores, axis=1, weights=share).argmax())]
    named = LinearClassifierCV(alphas=alphas, cv=3, scoring="neg_log_loss", **args)
    np.testing.assert_array_equal(
        named.fit(X, y, sample_weight=weights if weighted else None).scores_path_, model.scores_path_
    )


def test_a_search_does_not_stream():
    assert hasattr(LinearClassifier(solver="sgd"), "partial_fit")
    assert not hasattr(LinearClassifierCV(solver="sgd"), "partial_fit")


def test_label_sets_are_judged_by_the_log_loss_of_their_labels():
    X, Y = make_multilabel_classification(80, 8, n_classes=4, random_state=0)
    X = X / X.max()
    args = {"tol": 1e-6, "max_iter": 5000, "random_state": 0}
    for form in (np.asarray, sp.csr_matrix):
        model = LinearClassifierCV("log_loss", alphas=[0.1, 0.01], cv=3, **args).fit(X, form(Y))
        for j, alpha in enumerate(model.alphas_):
            for k, (train, test) in enumerate(KFold(3).split(X)):
                found = LinearClassifier("log_loss", alpha=alpha, **args).fit(X[train], Y[train]).predict_proba(X[test])
                by_label = [log_loss(Y[test, label], found[:, label], labels=[0, 1]) for label in range(4)]
                assert model.scores_path_[j, k] == pytest.approx(-sum(by_label), rel=1e-3)


def test_a_solver_without_certificates_is_searched_too(iris):
    X, y = iris
    search = LinearClassifierCV(CrammerSinger(gamma=0), solver="memoir", alphas=[0.1, 1e-3], cv=3, random_state=0)
    model = search.fit(X, y)  # no warning of a gap that is not there
    assert np.isnan(model.duality_gap_)
    assert model.scores_path_.shape == (2, 3)
    assert model.predict_topk(X, 2)[0].shape == (len(y), 2)


def test_one_standard_error(diabetes):
    X, y = diabetes
    args = {"n_alphas": 20, "eps": 1e-2, "l1_ratio": 0.9, "cv": 5, "max_iter": 1000, "random_state": 0}
    best = LinearRegressorCV(**args).fit(X, y)
    simple = LinearRegressorCV(selection="one_se", **args).fit(X, y)
    mean = best.scores_path_.mean(axis=1)
    error = best.scores_path_.std(axis=1, ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(best.mean_scores_, mean)
    np.testing.assert_allclose(best.standard_errors_, error)
    top = mean.argmax()
    expected = max(alpha for alpha, score in zip(best.alphas_, mean) if score >= mean[top] - error[top])
    assert simple.alpha_ == simple.alpha_one_se_ == best.alpha_one_se_ == expected
    assert best.alpha_ == simple.alpha_best_ == best.alphas_[top]
    assert simple.alpha_ > best.alpha_
    assert np.count_nonzero(simple.coef_) <= np.count_nonzero(best.coef_)


@pytest.mark.parametrize("loss", ["multinomial", "squared_hinge"])
def test_threads_never_change_the_result(iris, loss):
    X, y = iris
    args = {"loss": loss, "n_alphas": 5, "l1_ratio": [0.0, 0.5], "cv": 3, "max_iter": 300, "random_state": 0}
    models = [LinearClassifierCV(n_jobs=n_jobs, **args).fit(X, y) for n_jobs in (None, 2, 9)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.scores_path_, models[0].scores_path_)
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
    again = LinearClassifierCV(n_jobs=2, **{**args, "random_state": np.random.RandomState(0)})
    one, two = clone(again).fit(X, y), clone(again).fit(X, y)
    np.testing.assert_array_equal(one.scores_path_, two.scores_path_)


@pytest.mark.parametrize("kind", ["multinomial", "crammer_singer", "regression"])
def test_integer_weights_are_repeated_rows(iris, diabetes, kind):
    X, y = diabetes if kind == "regression" else iris
    X, y = X[::3], y[::3]
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    shuffle = np.random.default_rng(1).permutation(len(y))
    folds = [(np.setdiff1d(shuffle, test), test) for test in np.array_split(shuffle, 3)]
    places = np.repeat(np.arange(len(y)), weights)
    repeated_folds = [tuple(np.flatnonzero(np.isin(places, part)) for part in fold) for fold in folds]
    args = {"n_alphas": 5, "eps": 0.05, "l1_ratio": 0.5, "tol": 1e-10, "max_iter": 20_000, "random_state": 0}
    if kind == "regression":
        search = LinearRegressorCV(**args)
    else:
        search = LinearClassifierCV(kind, **args)
    weighted = clone(search).set_params(cv=folds).fit(X, y, sample_weight=weights)
    repeated = clone(search).set_params(cv=repeated_folds).fit(X[places], y[places])
    np.testing.assert_allclose(weighted.alphas_, repeated.alphas_)
    np.testing.assert_allclose(weighted.scores_path_, repeated.scores_path_, rtol=1e-4)
    assert weighted.alpha_ == pytest.approx(repeated.alpha_)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-8)


def test_a_fold_without_weight_does_not_count(diabetes):
    X, y = diabetes
    weights = np.ones(len(y))
    folds = list(KFold(4).split(X))
    weights[folds[1][1]] = 0
    search = LinearRegressorCV(n_alphas=4, eps=0.1, cv=folds, random_state=0, max_iter=1000)
    model = clone(search).fit(X, y, sample_weight=weights)
    assert np.isnan(model.scores_path_[:, 1]).all()
    counted = np.delete(model.scores_path_, 1, axis=1)
    sizes = [len(test) for _, test in np.delete(np.array(folds, object), 1, axis=0)]
    np.testing.assert_allclose(model.mean_scores_, np.average(counted, axis=1, weights=sizes))


# --- rare classes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rare():
    """Five classes; "x" and "z" have one row each, "y" two."""
    rng = np.random.default_rng(0)
    y = np.array(["a"] * 30 + ["b"] * 30 + ["y"] * 2 + ["x", "z"])
    X = rng.normal(size=(64, 6)) + 3 * np.eye(6)[np.unique(y, return_inverse=True)[1]]
    return X, y


@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer", "log_loss", "smooth_hinge"])
@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_classes_may_be_missing_from_a_training_fold(rare, loss, ratio):
    X, y = rare
    weight = {"x": 2.0, "a": 0.5}
    args = {"loss": loss, "l1_ratio": ratio, "max_iter": 2000, "random_state": 0, "tol": 1e-6}
    search = LinearClassifierCV(alphas=[0.1, 0.01], cv=4, n_jobs=2, class_weight=weight, scoring="accuracy", **args)
    with pytest.warns(UserWarning, match="The least populated class"):
        model = search.fit(X, y)
    assert list(model.classes_) == ["a", "b", "x", "y", "z"]
    with pytest.warns(UserWarning, match="The least populated class"):
        folds = list(StratifiedKFold(4).split(X, y))
    for j, alpha in enumerate([0.1, 0.01]):
        for k, (train, test) in enumerate(folds):
            there = {label: w for label, w in weight.items() if label in y[train]}
            alone = LinearClassifier(alpha=alpha, class_weight=there, **args).fit(X[train], y[train])
            assert model.scores_path_[j, k] == pytest.approx(alone.score(X[test], y[test]))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("labels", [["a", "b"], ["a", "b", "y"]])
@pytest.mark.parametrize("loss", ["multinomial", "log_loss", "squared_hinge"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_of_some_classes_becomes_one_of_all(rare, labels, form, loss, dtype):
    X, y = rare
    X = X.astype(dtype)
    known = np.isin(y, labels)
    some = LinearClassifier(loss, alpha=0.01, max_iter=500, random_state=0).fit(X[known], y[known]).model_
    if form is sp.csr_matrix:
        some = some.sparsify()
    classes = np.unique(y)
    every = align(some, classes)
    columns = np.flatnonzero(np.isin(classes, labels))
    assert every.is_sparse == some.is_sparse
    assert every.weights.shape == (6, 5)
    np.testing.assert_array_equal(every.predict(X), some.predict(X))
    np.testing.assert_array_equal(every.topk(X, 2)[0], some.topk(X, 2)[0])
    scores = every.scores(X)
    assert np.isfinite(scores).all()
    assert scores[:, np.setdiff1d(np.arange(5), columns)].max() < scores[:, columns].min()
    if loss != "squared_hinge":
        found = every.probabilities(X)
        np.testing.assert_allclose(found[:, columns], some.probabilities(X), rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(np.delete(found, columns, axis=1), 0)
    assert align(some, some.classes) is some


def test_probabilities_of_missing_classes_can_be_scored(rare):
    X, y = rare
    folds = list(KFold(4, shuffle=True, random_state=0).split(X))
    default = LinearClassifierCV(alphas=[0.1, 0.01], cv=folds, max_iter=500, random_state=0).fit(X, y)

    def score(estimator, X, y, sample_weight=None):
        assert list(estimator.classes_) == ["a", "b", "x", "y", "z"]
        return -log_loss(y, estimator.predict_proba(X), labels=estimator.classes_, sample_weight=sample_weight)

    search = LinearClassifierCV(alphas=[0.1, 0.01], cv=folds, scoring=score, max_iter=500, random_state=0)
    assert np.isfinite(search.fit(X, y).scores_path_).all()
    np.testing.assert_allclose(default.scores_path_, search.scores_path_)
    weighted = clone(search).fit(X, y, sample_weight=np.linspace(0.5, 2, len(y)))
    assert not np.allclose(weighted.scores_path_, search.scores_path_)


def test_a_training_fold_of_one_class_is_refused(iris):
    X, y = iris
    folds = [(np.arange(50), np.arange(50, 150)), (np.arange(50, 150), np.arange(50))]
    with pytest.raises(ValueError, match="every training fold must have at least 2 classes"):
        LinearClassifierCV(cv=folds).fit(X, y)


# --- the face -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("search", "plain"), [(LinearClassifierCV(), LinearClassifier()), (LinearRegressorCV(), LinearRegressor())]
)
def test_parameters_are_those_of_the_plain_estimator_and_of_the_search(search, plain):
    own, without = (
        {"alphas", "n_alphas", "eps", "cv", "scoring", "selection"},
        {"alpha", "warm_start", "early_stopping"},
    )
    assert set(search.get_params()) == set(plain.get_params()) - without | own
    for name, value in plain.get_params().items():
        if name not in without:
            assert getattr(search, name) == value


def test_bad_parameters_are_named(iris):
    X, y = iris
    for parameters, message in (
        ({"alphas": [1.0, -1.0]}, "alphas must be"),
        ({"n_alphas": 0}, "n_alphas must be"),
        ({"eps": 2.0}, "eps must be"),
        ({"selection": "worst"}, "selection must be one of 'best', 'one_se'"),
        ({"l1_ratio": []}, "l1_ratio must be"),
        ({"l1_ratio": [0.5, 2.0]}, r"The 'l1_ratio' parameter .* \[0.0, 1.0\]. Got 2.0 instead"),
        ({"l1_ratio": 2.0}, "The 'l1_ratio' parameter of LinearClassifierCV must be"),
        ({"l1_ratio": "all"}, "The 'l1_ratio' parameter of LinearClassifierCV must be"),
        ({"scoring": 3}, "scoring must be"),
        ({"scoring": "no such score"}, "no such score"),
        ({"cv": 1}, "n_splits"),
        ({"loss": "no such loss"}, "loss must be"),
        ({"loss": CrammerSinger(gamma=-1.0)}, "The 'gamma' parameter of CrammerSinger must be"),
        ({"solver": "no such solver"}, "solver must be one of 'auto'"),
        ({"tol": -1.0}, "The 'tol' parameter of LinearClassifierCV must be"),
        ({"max_iter": 0}, "The 'max_iter' parameter of LinearClassifierCV must be"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ):
        with pytest.raises(ValueError, match=message):
            LinearClassifierCV(**parameters).fit(X, y)
    with pytest.raises(ValueError, match="scoring must support sample_weight"):
        LinearRegressorCV(scoring=make_scorer(max_error, greater_is_better=False)).fit(
            X, X[:, 0], sample_weight=np.ones(len(y))
        )
    with pytest.raises(ValueError, match="scoring must give a finite score"):
        LinearClassifierCV(alphas=[1.0], scoring=lambda estimator, X, y: np.nan).fit(X, y)
    with pytest.raises(ValueError, match="estimator must be"):
        regularization_path(LinearClassifierCV(), X, y)
    with pytest.raises(NotFittedError):
        LinearClassifierCV().predict(X)
    with pytest.raises(NotFittedError):
        LinearClassifierCV().plot()


def test_other_targets_and_rows(iris, diabetes):
    X, Y = make_multilabel_classification(80, 8, n_classes=4, random_state=0)
    X = X / X.max()
    args = {"alphas": [0.1, 0.01], "cv": 3, "max_iter": 500, "random_state": 0}
    models = [
        LinearClassifierCV("log_loss", **args).fit(rows(X), labels(Y))
        for rows in (np.asarray, sp.csr_matrix)
        for labels in (np.asarray, sp.csr_matrix)
    ]
    for model in models:
        assert model.scores_path_ == pytest.approx(models[0].scores_path_)
    assert sp.issparse(models[1].predict(X))
    assert isinstance(models[0].predict(X), np.ndarray)
    X, y = diabetes
    both = LinearRegressorCV(alphas=[1.0, 0.1], cv=3, random_state=0).fit(X, np.column_stack([y, -y]))
    assert both.predict(X).shape == (len(y), 2)
    X, y = iris
    column = LinearClassifierCV(**args)
    with pytest.warns(UserWarning, match="column-vector y") as caught:
        column.fit(X, y[:, None])
    assert len(caught) == 1
    assert column.predict(X).shape == y.shape
    np.testing.assert_array_equal(column.scores_path_, LinearClassifierCV(**args).fit(X, y).scores_path_)


def test_feature_names_follow_the_last_fit():
    frame, y = load_iris(return_X_y=True, as_frame=True)
    model = LinearClassifierCV(alphas=[0.1], cv=2, random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert list(model.model_.feature_names) == list(frame.columns)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    model.fit(frame.to_numpy(), y)
    assert not hasattr(model, "feature_names_in_")


def test_fits_above_tol_are_told_of_once(iris):
    X, y = iris
    search = LinearClassifierCV(alphas=[0.1, 1e-6], cv=3, tol=1e-9, max_iter=2, random_state=0, n_jobs=2)
    with pytest.warns(ConvergenceWarning) as caught:
        search.fit(X, y)
    assert ["fits on folds" in str(warning.message) for warning in caught] == [True, False]  # and the last fit
    assert str(caught[0].message).startswith("6 of 6 fits")
    assert caught[0].filename == __file__


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_ends_the_search_soon(iris, n_jobs, error):
    X, y = iris
    calls = []

    def scoring(estimator, X, y):
        calls.append(estimator.alpha)
        if len(calls) == 3:
            raise error
        return estimator.score(X, y)

    search = LinearClassifierCV(alphas=np.geomspace(1, 0.1, 200), cv=4, scoring=scoring, random_state=0, n_jobs=n_jobs)
    with pytest.raises(error):
        search.fit(X, y)
    assert len(calls) < 50  # of 800


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pthread_kill")
def test_ctrl_c_ends_threads_soon(iris):
    X, y = iris
    calls = []

    def scoring(estimator, X, y):
        calls.append(estimator.alpha)
        if len(calls) == 3:
            # As a terminal's Ctrl-C: to the main thread, which waits for the others.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.05)
        return estimator.score(X, y)

    search = LinearClassifierCV(alphas=np.geomspace(1, 0.1, 200), cv=4, scoring=scoring, random_state=0, n_jobs=2)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, y)
    assert len(calls) < 100  # of 800


# The oldest matplotlib calls functions that the newest pyparsing deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_plot(diabetes):
    from matplotlib.figure import Figure

    X, y = diabetes
    search = LinearRegressorCV(n_alphas=6, l1_ratio=[0.2, 0.9], cv=3, max_iter=1000, random_state=0).fit(X, y)
    ax = Figure().subplots()
    assert search.plot(ax) is ax
    curves = [container.lines[0] for container in ax.containers]
    for curve, alphas, scores in zip(curves, search.alphas_, search.mean_scores_, strict=True):
        np.testing.assert_array_equal(curve.get_xdata(), alphas)
        np.testing.assert_array_equal(curve.get_ydata(), scores)
    marks = [line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata()) == 2]
    assert marks == [search.alpha_best_, search.alpha_one_se_]
    ax.figure.canvas.draw()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_plot_of_an_alpha_chosen_on_held_out_rows(iris, diabetes):
    from matplotlib.figure import Figure

    for model, data in ((LinearClassifier, iris), (LinearRegressor, diabetes)):
        model = model(alpha="auto", random_state=0).fit(*data)
        ax = model.plot(Figure().subplots())
        (curve,) = (container.lines[0] for container in ax.containers)
        assert dict(zip(curve.get_xdata().tolist(), curve.get_ydata().tolist())) == model.validation_scores_
        (mark,) = (line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata()) == 2)
        assert mark == model.alpha_
        assert ax.xaxis_inverted()
        ax.figure.canvas.draw()
        model.set_params(alpha=1e-3).fit(*data)
        with pytest.raises(NotFittedError, match="alpha='auto'"):
            model.plot()  # alpha was not chosen by the last fit
