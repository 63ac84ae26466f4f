"""`certify`: bounds on the suboptimality of any linear model hold, and vanish at an optimum of another library."""

from __future__ import annotations

import copy
import json
import types
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    MultiTaskLasso,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import helpers
import manyclass
from manyclass import CrammerSinger, Huber, LinearClassifier, LinearRegressor, Multinomial, certify
from test_cli_support import digits, refused, run


def problem(kind, n=90, d=6):
    """Rows that classes do not separate; targets of the kind."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    S = X @ rng.normal(size=(d, 3)) + rng.normal(size=(n, 3))
    y = {"three": S.argmax(axis=1), "two": np.where(S[:, 0] > 0.2, "yes", "no"), "real": S[:, 0] + 3.0}[kind]
    return X, np.array(["a", "b", "c"])[y] if kind == "three" else y


def fit(model, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return model.fit(X, y, **options)


def coded(y, classes):
    """Signs, (n, K), or (n, 1) for two classes."""
    T = np.where(y[:, None] == classes, 1.0, -1.0)
    return T[:, 1:] if len(classes) == 2 else T


#: A tightly fitted model of scikit-learn, its targets, and its own objective divided by the weights of all rows:
#: the loss (scores and targets -> a number for each row), and the penalty (weights, intercept and n -> a number).
def l2(C):
    return lambda W, b, n: 0.5 * (W**2).sum() / (C * n)


def with_intercept(C, scaling=1.0):
    return lambda W, b, n: 0.5 * ((W**2).sum() + (b / scaling) @ (b / scaling)) / (C * n)


def of_classes(formula):
    return lambda S, y, classes: formula(S, np.searchsorted(classes, y))[0]


def of_signs(formula):
    return lambda S, y, classes: formula(S, coded(y, classes))[0]


def of_numbers(S, y, classes):
    return helpers.squared(S, y[:, None])[0]


#: Before 1.8 scikit-learn does not infer the penalty from l1_ratio.
MIXED = {} if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8) else {"penalty": "elasticnet"}
TIGHT = {"tol": 1e-10, "max_iter": 200_000}
CASES = {
    "multinomial": (LogisticRegression(C=0.3, **TIGHT), "three", of_classes(helpers.multinomial), l2(0.3)),
    "log_loss": (LogisticRegression(C=0.3, **TIGHT), "two", of_signs(helpers.log_loss), l2(0.3)),
    "no intercept": (
        LogisticRegression(C=3.0, fit_intercept=False, **TIGHT), "two", of_signs(helpers.log_loss), l2(3.0)
    ),
    "elastic net": (
        LogisticRegression(C=0.3, l1_ratio=0.4, solver="saga", **MIXED, **TIGHT), "two", of_signs(helpers.log_loss),
        lambda W, b, n: (0.3 * (W**2).sum() + 0.4 * np.abs(W).sum()) / (0.3 * n),
    ),
    "liblinear": (
        LogisticRegression(C=0.3, solver="liblinear", intercept_scaling=2.0, **TIGHT), "two",
        of_signs(helpers.log_loss), with_intercept(0.3, 2.0),
    ),
    "svc": (LinearSVC(C=0.2, **TIGHT), "three", of_signs(helpers.squared_hinge), with_intercept(0.2)),
    "svc hinge": (
        LinearSVC(C=0.2, loss="hinge", intercept_scaling=3.0, **TIGHT), "two", of_signs(helpers.smooth_hinge(0.0)),
        with_intercept(0.2, 3.0),
    ),
    "svc crammer_singer": (
        LinearSVC(C=0.2, multi_class="crammer_singer", random_state=0, **TIGHT), "three",
        of_classes(helpers.crammer_singer(0.0)), with_intercept(0.2),
    ),
    "svc crammer_singer, two classes": (
        LinearSVC(C=0.2, multi_class="crammer_singer", random_state=0, **TIGHT), "two",
        of_signs(helpers.smooth_hinge(0.0)), with_intercept(0.4),
    ),
    "ridge classifier": (RidgeClassifier(alpha=3.0), "three", of_signs(helpers.squared), l2(1 / 3.0)),
    "ridge": (Ridge(alpha=3.0), "real", of_numbers, l2(1 / 3.0)),
    "lasso": (
        Lasso(alpha=0.1, tol=1e-12, max_iter=100_000), "real", of_numbers, lambda W, b, n: 0.1 * np.abs(W).sum()
    ),
    "elastic net regression": (
        ElasticNet(alpha=0.1, l1_ratio=0.3, tol=1e-12, max_iter=100_000), "real", of_numbers,
        lambda W, b, n: 0.1 * (0.35 * (W**2).sum() + 0.3 * np.abs(W).sum()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_gap_brackets_the_suboptimality_of_models_of_scikit_learn(name):
    model, kind, loss, penalty = CASES[name]
    X, y = problem(kind)
    fitted = fit(model, X, y)
    classes = getattr(fitted, "classes_", None)

    def objective(at):
        W, b = np.atleast_2d(at.coef_).T, np.ravel(at.intercept_)
        return loss(X @ W + b, y, classes).mean() + penalty(W, b, len(X))

    least = objective(fitted)
    found = certify(fitted, sp.csr_matrix(X), y)
    assert found.primal == pytest.approx(least, rel=1e-12)
    assert 0 <= found.relative_gap <= 2e-6
    rng = np.random.default_rng(1)
    for scale in (0.02, 0.5):
        moved = copy.copy(fitted)
        moved.coef_ = fitted.coef_ + scale * rng.normal(size=fitted.coef_.shape)
        if getattr(model, "fit_intercept", True):
            moved.intercept_ = fitted.intercept_ + scale
        above = objective(moved) - least
        rough, sharp = certify(moved, X, y, refine=0), certify(moved, X, y)
        assert sharp.primal == pytest.approx(objective(moved), rel=1e-12)
        assert rough.gap >= sharp.gap >= above - 1e-9
        assert sharp.primal - sharp.best <= above + 1e-9
        assert sharp.gap <= 1.15 * above + 2e-6 * sharp.primal


def test_weights_of_rows_and_classes_are_those_of_the_fit():
    X, y = problem("two")
    weights = np.random.default_rng(0).uniform(0.2, 3.0, len(y))
    logistic = LogisticRegression(C=0.3, class_weight={"no": 2.0, "yes": 0.5}, **TIGHT).fit(X, y, weights)
    assert certify(logistic, X, y, sample_weight=weights).relative_gap < 1e-8
    assert certify(logistic, X, y).relative_gap > 1e-3
    balanced = LinearSVC(C=0.3, class_weight="balanced", **TIGHT).fit(X, y, weights)
    assert certify(balanced, X, y, sample_weight=weights).relative_gap < 1e-6
    ridge = Ridge(alpha=2.0).fit(X, X[:, 0] * 2 + 1, weights)
    assert certify(ridge, X, X[:, 0] * 2 + 1, sample_weight=weights).relative_gap < 1e-8
    # SGDClassifier does not scale sample weights to mean 1.
    near = fit(SGDClassifier("log_loss", alpha=0.05, max_iter=3000, tol=None, average=True, random_state=0), X, y,
               sample_weight=3 * weights)  # fmt: skip
    found = certify(near, X, y, sample_weight=3 * weights)
    assert found.alpha == pytest.approx(0.05 / (3 * weights.mean()))
    assert found.relative_gap < 1e-3


def test_models_of_this_package_have_their_own_gap(tmp_path):
    X, y = problem("three")
    for loss in ("multinomial", CrammerSinger(gamma=0.3), "squared_hinge"):
        fitted = LinearClassifier(loss, alpha=0.02, class_weight={"a": 2.0}, tol=1e-4, random_state=0).fit(X, y)
        fitted.save(tmp_path / "m")
        for model in (fitted, fitted.model_, manyclass.load(tmp_path / "m")):
            found = certify(model, X, y)
            assert found.primal == pytest.approx(fitted.objective_, rel=1e-12)
            assert found.gap <= fitted.duality_gap_ * found.primal * 1.01
    X, y = problem("real")
    fitted = LinearRegressor(Huber(epsilon=0.7), alpha=0.02, l1_ratio=0.5, tol=1e-8).fit(X, y)
    assert certify(fitted, X, y).relative_gap < 1e-7
    labels = sp.csr_matrix(np.eye(3)[y.astype(int) % 3])
    several = LinearClassifier("log_loss", alpha=0.02, tol=1e-8).fit(X, labels)
    assert certify(several, X, labels).relative_gap < 1e-7


def test_many_columns_are_certified_in_ranges():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), np.arange(300) % 130
    fitted = LinearClassifier("squared_hinge", alpha=0.1, tol=1e-5, random_state=0).fit(X, y)
    found = certify(fitted, X, y)
    assert found.primal == pytest.approx(fitted.objective_, rel=1e-9)
    assert found.relative_gap <= 1e-5
    fewer = LinearClassifier("crammer_singer", alpha=0.1, tol=1e-2, random_state=0).fit(X, y)  # an active set
    assert certify(fewer, X, y).relative_gap <= 1e-2


def test_arrays_and_layers_need_the_objective():
    X, y = problem("three")
    model = LogisticRegression(C=0.3, **TIGHT).fit(X, y)
    alpha = 1 / (0.3 * len(X))
    bare = model.coef_, model.intercept_
    assert certify(bare, X, y, loss="multinomial", alpha=alpha).relative_gap < 1e-8
    assert certify(bare, X, np.searchsorted(model.classes_, y), loss=Multinomial(), alpha=alpha).relative_gap < 1e-8
    tensor = types.SimpleNamespace
    weight, bias = (
        tensor(detach=lambda a=a: tensor(cpu=lambda: tensor(numpy=lambda: a.astype(np.float32)))) for a in bare
    )
    layer = tensor(in_features=6, weight=weight, bias=bias)
    assert certify(layer, X, y, loss="multinomial", alpha=alpha).relative_gap < 1e-6
    with pytest.raises(ValueError, match="loss must be given"):
        certify(layer, X, y, alpha=alpha)
    with pytest.raises(ValueError, match="alpha must be given"):
        certify(layer, X, y, loss="multinomial")
    with pytest.raises(ValueError, match="X has 6 features"):
        certify((np.zeros((3, 5)), None), X, y, loss="hinge", alpha=1.0)
    with pytest.raises(ValueError, match="labels of 2 classes"):
        certify((np.zeros((1, 6)), None), X, y, loss="hinge", alpha=1.0)
    with pytest.raises(ValueError, match="finite"):
        certify((np.full((3, 6), np.nan), None), X, y, loss="hinge", alpha=1.0)
    # LIBLINEAR with -B 1: the intercept is the penalized weight of a feature that is 1.
    svc = LinearSVC(C=0.2, **TIGHT).fit(X, y)
    liblinear = svc.coef_, svc.intercept_
    options = {"loss": "squared_hinge", "alpha": 1 / (0.2 * len(X))}
    assert certify(liblinear, X, y, **options, intercept_scaling=1.0).relative_gap < 1e-7
    assert certify(liblinear, X, y, **options).relative_gap > 1e-7


def test_a_pipeline_is_certified_at_its_last_step():
    X, y = problem("three")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, **TIGHT)).fit(X, y)
    assert certify(pipeline, X, y).relative_gap < 1e-8


def test_cv_forms_say_what_they_chose():
    X, y = problem("real")
    assert certify(LassoCV(tol=1e-10, max_iter=100_000).fit(X, y), X, y).relative_gap < 1e-6
    X, y = problem("two")
    chosen = fit(LogisticRegressionCV(Cs=[0.1, 1.0], cv=3, **TIGHT), X, y)
    assert certify(chosen, X, y).relative_gap < 1e-8


@pytest.mark.parametrize(
    ("model", "kind", "needle"),
    [
        (OneVsRestClassifier(LinearSVC()), "three", "model must be a linear model"),
        (LinearRegression(), "real", "model must be a linear model"),
        (Ridge(positive=True), "real", "constraints"),
        (LinearSVC(class_weight="balanced"), "three", "weighs the positive class"),
        (SGDClassifier("modified_huber"), "two", "modified_huber"),
        (SGDRegressor("epsilon_insensitive"), "real", "epsilon_insensitive"),
        (SGDClassifier(penalty=None), "two", "without a penalty"),
        (LogisticRegression(C=np.inf), "two", "without a penalty"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_other_objectives_are_refused(model, kind, needle):
    X, y = problem(kind)
    with pytest.raises(ValueError, match=needle):
        certify(fit(model, X, y), X, y)


def test_what_is_no_fitted_model_is_refused():
    X, y = problem("three")
    with pytest.raises(ValueError, match="call fit first"):
        certify(LogisticRegression(), X, y)
    with pytest.raises(ValueError, match="model must be a linear model"):
        certify(MultiTaskLasso().fit(X, X[:, :2]), X, X[:, :2])
    fitted = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="got the label 'z' besides"):
        certify(fitted, X, np.where(y == "a", "z", y))
    with pytest.raises(ValueError, match="got the label '7' besides"):
        certify(fitted, X, np.full(len(y), 7, dtype=object))
    with pytest.raises(ValueError, match="y has strings but the model has integers"):
        certify(LogisticRegression().fit(X, y == "a"), X, y)
    with pytest.raises(ValueError, match="refine"):
        certify(fitted, X, y, refine=-1)


def test_the_repr_is_one_line_with_the_gap():
    X, y = load_iris(return_X_y=True)
    found = certify(LogisticRegression(C=0.1, tol=1e-1, max_iter=5000).fit(X, y), X, y)
    text = repr(found)
    assert "\n" not in text
    assert f"relative gap {found.relative_gap:.1e}" in text
    assert "loss=multinomial" in text
    assert set(found.to_dict()) >= {"primal", "dual", "best", "relative_gap", "alpha"}


def test_the_command_says_the_gap(capsys, tmp_path):
    X, y = digits()
    manyclass.io.write_svmlight(tmp_path / "train.svm", X, y)
    words = ["-o", tmp_path / "m", "--quiet", "--tol", "0.01", "--alpha", "0.01"]
    assert run(capsys, "fit", tmp_path / "train.svm", *words).code == 0
    ran = run(capsys, "certify", tmp_path / "m", tmp_path / "train.svm", "--json")
    found = json.loads(ran.out)
    model = manyclass.load(tmp_path / "m")
    assert found["primal"] == pytest.approx(model.record["objective"], rel=1e-6)
    assert found["relative_gap"] <= 0.01
    assert "relative gap" in run(capsys, "certify", tmp_path / "m", tmp_path / "train.svm").out
    manyclass.io.write_svmlight(tmp_path / "other.svm", X, y + 5)
    refused(run(capsys, "certify", tmp_path / "m", tmp_path / "other.svm"), "labels that the fit has not seen")
