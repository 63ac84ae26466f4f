"""y as a matrix of weights: distributions over the classes, probabilities of labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from helpers import cross_entropy, log_loss_of_probabilities
from manyclass import CrammerSinger, LinearClassifier, LinearClassifierCV, certify, load, regularization_path
from manyclass.datasets import make_many_classes


def rows(n=120, d=6, K=4, seed=0):
    """Rows, and distributions over the classes of which some are 0; sums are not 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    Q = softmax(X @ rng.normal(size=(d, K)), axis=1) * (rng.random((n, K)) < 0.6)
    Q[Q.sum(axis=1) == 0, 0] = 1.0
    return X, Q * rng.choice([0.5, 1.0, 2.0], n)[:, None]


def same(one, other, atol=2e-4):
    np.testing.assert_allclose(one.coef_, other.coef_, atol=atol)
    np.testing.assert_allclose(one.intercept_, other.intercept_, atol=atol)


def sharp(loss="multinomial", **options):
    return LinearClassifier(loss, **{"alpha": 1e-2, "tol": 1e-9, "max_iter": 5000, "random_state": 0, **options})


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("solver", ["auto", "sdca", "accelerated", "lbfgs", "newton", "preconditioned_lbfgs", "fista"])
def test_weights_are_repeated_rows(solver, K):
    """A row with weights of m classes is m rows with sample weights, each of one class."""
    X, Q = rows(K=K)
    weights = np.random.default_rng(1).choice([0.0, 1.0, 3.0], len(X))
    row, column = Q.nonzero()
    soft = sharp(solver=solver).fit(X, Q, weights)
    hard = sharp(solver="lbfgs").fit(X[row], column, Q[row, column] * weights[row])
    assert soft.duality_gap_ <= 1e-9
    assert soft.objective_ == pytest.approx(hard.objective_, rel=1e-8)
    same(soft, hard)
    np.testing.assert_allclose(soft.predict_proba(X), hard.predict_proba(X), atol=1e-4)
    np.testing.assert_array_equal(soft.predict(X), soft.predict_proba(X).argmax(axis=1))


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("options", [{}, {"l1_ratio": 0.5}, {"fit_intercept": False}, {"standardize": True}])
def test_a_single_class_in_each_row_is_a_label(K, options):
    X, Q = rows(K=K, seed=2)
    y = Q.argmax(axis=1)
    one = np.eye(K)[y]
    for Y in (one, one.astype(np.int8), sp.csr_matrix(one)):
        same(sharp(**options).fit(X, Y), sharp(**options).fit(X, y))


@pytest.mark.parametrize("loss", ["multinomial", "log_loss"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_weights_are_dense_weights(loss, dtype):
    """To the last bit, in every form of a sparse matrix; y is not changed."""
    X, Q = rows(seed=3)
    X, Q = X.astype(dtype), np.minimum(Q, 1.0).astype(dtype)
    dense = LinearClassifier(loss, random_state=0).fit(X, Q)
    assert dense.coef_.dtype == dtype
    assert dense.duality_gap_ <= 1e-3
    zeros = sp.csr_matrix(np.ones(Q.shape, dtype))
    zeros.data[:] = Q.ravel()
    halves = sp.coo_matrix(Q / 2)
    twice = sp.coo_matrix((np.tile(halves.data, 2), (np.tile(halves.row, 2), np.tile(halves.col, 2))), Q.shape)
    for Y in (sp.csr_matrix(Q), sp.csc_array(Q), zeros, twice):
        before = Y.toarray()
        found = LinearClassifier(loss, random_state=0).fit(X, Y)
        np.testing.assert_array_equal(Y.toarray(), before)
        np.testing.assert_array_equal(found.coef_, dense.coef_)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["multinomial", "log_loss"])
def test_the_optimum_is_that_of_another_solver(loss, intercept):
    """SciPy's L-BFGS-B on the definition of the objective; the certificate bounds the distance to its value."""
    X, Q = rows(seed=4)
    (n, d), K = X.shape, Q.shape[1]
    c, T = Q.sum(axis=1), Q / Q.sum(axis=1, keepdims=True)
    if loss == "log_loss":
        c, T = np.ones(n), np.minimum(Q, 1.0)
    formula = cross_entropy if loss == "multinomial" else log_loss_of_probabilities

    def cost(z):
        W, b = z[: d * K].reshape(d, K), z[d * K :] * intercept
        losses, G = formula(X @ W + b, T)
        G *= (c / c.sum())[:, None]
        slope = np.r_[(X.T @ G + 0.01 * W).ravel(), G.sum(axis=0) * intercept]
        return c @ losses / c.sum() + 0.005 * (W**2).sum(), slope

    least = minimize(cost, np.zeros((d + 1) * K), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-11}).fun
    found = sharp(loss, tol=1e-10, fit_intercept=intercept).fit(X, T if loss == "log_loss" else Q)
    assert found.objective_ == pytest.approx(least, rel=1e-9)
    rough = sharp(loss, tol=1e-2, fit_intercept=intercept).fit(X, T if loss == "log_loss" else Q)
    bound = rough.objective_ * (1 - rough.duality_gap_)
    assert bound <= least * (1 + 1e-12) <= rough.objective_ * (1 + 2e-12)


def test_probabilities_of_labels_are_repeated_label_sets():
    """The labels above t in each row, for all t in turn: each label is there for the share that its probability has."""
    X, Q = rows(seed=5)
    T = np.round(np.minimum(Q, 1.0) * 4) / 4
    soft = sharp("log_loss").fit(X, T)
    sets = np.vstack([(t < T) for t in (0.0, 0.25, 0.5, 0.75)]).astype(int)
    hard = sharp("log_loss").fit(np.vstack([X] * 4), sets)
    same(soft, hard)
    found = soft.predict(X)
    assert found.dtype == T.dtype
    np.testing.assert_array_equal(found, hard.predict(X))
    for solver in ("cd", "sdca", "lbfgs"):
        sparse = [sharp("log_loss", solver=solver, l1_ratio=r).fit(X, T) for r in (0.5,) if solver != "lbfgs"]
        for one in sparse:
            same(one, sharp("log_loss", solver=solver, l1_ratio=0.5).fit(np.vstack([X] * 4), sets))


def test_many_labels_are_fitted_in_ranges():
    X, Q = rows(n=80, K=150, seed=6)
    T = np.minimum(Q, 1.0)
    one = LinearClassifier("log_loss", alpha=1e-2, tol=1e-6, random_state=0).fit(X, sp.csr_matrix(T))
    other = LinearClassifier("log_loss", alpha=1e-2, tol=1e-6, solver="accelerated", random_state=0).fit(X, T)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-6)
    same(one, other, atol=2e-2)


def test_costs_become_weights():
    """Of costs c, max(c) - c are weights. No class but the middle one is never expensive, and none is it more often."""
    X = np.random.default_rng(7).normal(size=(100, 2))
    costs = np.array([[0.0, 0.1, 1.0]] * 60 + [[1.0, 0.1, 0.0]] * 40)
    weights = costs.max(axis=1, keepdims=True) - costs
    assert np.all(LinearClassifier(alpha=1.0).fit(X, weights).predict(X) == 1)
    assert np.all(LinearClassifier(alpha=1.0).fit(X, costs.argmin(axis=1)).predict(X) == 0)


def test_a_column_without_weight_is_never_predicted():
    X, Q = rows(seed=8)
    Q[:, 2] = 0.0
    Q[Q.sum(axis=1) == 0, 0] = 1.0
    model = LinearClassifier(random_state=0, max_iter=1000).fit(X, Q)
    assert model.duality_gap_ <= 1e-3
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert not np.any(model.predict(X) == 2)
    assert model.predict_proba(X)[:, 2].max() < 0.02


def test_held_out_rows_and_alpha():
    X, y = make_many_classes(1500, 300, 30, random_state=0)
    Y = sp.csr_matrix((np.full(len(y), 0.9), (np.arange(len(y)), y)), shape=(len(y), 30))
    Y = sp.csr_matrix(Y + sp.csr_matrix((np.full(len(y), 0.1), (np.arange(len(y)), (y + 1) % 30)), shape=Y.shape))
    model = LinearClassifier(alpha="auto", early_stopping=3, random_state=0).fit(X[:1000], Y[:1000])
    hard = LinearClassifier(alpha="auto", early_stopping=3, random_state=0).fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) >= hard.score(X[1000:], y[1000:]) - 0.03
    assert max(model.validation_scores_.values()) > 0.5
    given = LinearClassifier(alpha=1e-4, random_state=0)
    by_weights = given.fit(X[:1000], Y[:1000], X_val=X[1000:], y_val=Y[1000:]).history_.validation[-1].score
    by_labels = given.fit(X[:1000], Y[:1000], X_val=X[1000:], y_val=y[1000:]).history_.validation[-1].score
    assert by_weights == by_labels == pytest.approx(given.score(X[1000:], y[1000:]))
    with pytest.raises(ValueError, match="y_val must have 30 columns, as y, got 29"):
        given.fit(X[:1000], Y[:1000], X_val=X[1000:], y_val=Y[1000:, :29])


def test_models_are_saved_and_warm_started(tmp_path):
    X, Q = rows(seed=9)
    model = LinearClassifier(alpha=1e-2, warm_start=True, random_state=0, tol=1e-6, max_iter=2000).fit(X, Q)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(X), model.predict(X))
    first = model.n_iter_
    assert model.fit(X, Q).n_iter_ < first
    options = {"alpha": 1e-2, "solver": "sdca", "random_state": 0, "tol": 1e-6, "max_iter": 2000}
    at_once = LinearClassifier(**options).fit(X, Q)
    with pytest.warns(ConvergenceWarning):
        LinearClassifier(**{**options, "max_iter": 5}).fit(X, Q, checkpoint=tmp_path / "c")
    resumed = LinearClassifier(**options).fit(X, Q, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(resumed.coef_, at_once.coef_)


def test_what_is_refused():
    X, Q = rows(seed=10)
    negative, empty, several = Q.copy(), Q.copy(), (Q > 0).astype(float)
    negative[3, 1], empty[5] = -0.5, 0.0
    cases = [
        (LinearClassifier(), negative, "weights of at least 0, got -0.5"),
        (LinearClassifier(), empty, "y has no weight in row 5"),
        (LinearClassifier(), several, "takes one class per row, and y is a multi-label indicator"),
        (LinearClassifier(), (4 * Q).astype(int), "1d array"),
        (LinearClassifier("log_loss"), 2 * Q, "probabilities of labels, at most 1"),
        (
            LinearClassifier(CrammerSinger()),
            Q,
            "weights of classes are for 'multinomial', 'log_loss', or repeat each row",
        ),
        (LinearClassifier("hinge"), Q, "weights of classes are for 'multinomial', 'log_loss': choose another loss"),
        (LinearClassifier(CrammerSinger()), np.eye(Q.shape[1])[Q.argmax(axis=1)], "takes labels, and y is a matrix"),
        (LinearClassifier(class_weight="balanced"), Q, "multiply the columns of y"),
        (LinearClassifier(solver="bound"), Q, "'multinomial of distributions'"),
        (LinearClassifier(solver="interior_point"), Q, "needs a hinge loss"),
        (LinearClassifier(solver="ds_mlr"), Q, "solver 'ds_mlr' takes labels"),
    ]
    for estimator, Y, what in cases:
        for form in (Y, sp.csr_matrix(Y)):
            if what == "1d array" and form is not Y:
                continue
            with pytest.raises(ValueError, match=what):
                estimator.fit(X, form)
    row, column = Q.nonzero()
    LinearClassifier(CrammerSinger()).fit(X[row], column, sample_weight=Q[row, column])  # what the message advises
    with pytest.raises(ValueError, match="1d array"):
        LinearClassifier(solver="sgd").partial_fit(X, Q)


def test_paths_and_cross_validation():
    """Along a path, and by the log loss of held-out weights: as for repeated rows in the same folds."""
    X, Q = rows(seed=11)
    row, column = Q.nonzero()
    fold = np.arange(len(X)) % 3
    folds = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(3)]
    again = [(np.flatnonzero(fold[row] != f), np.flatnonzero(fold[row] == f)) for f in range(3)]
    options = {"alphas": [1e-1, 1e-2, 1e-3], "tol": 1e-8, "max_iter": 5000, "random_state": 0}
    for Y in (Q, sp.csr_matrix(Q)):
        soft = LinearClassifierCV(cv=folds, **options).fit(X, Y)
        hard = LinearClassifierCV(cv=again, **options).fit(X[row], column, sample_weight=Q[row, column])
        np.testing.assert_allclose(soft.scores_path_, hard.scores_path_, atol=1e-4)
        assert soft.alpha_ == hard.alpha_
    found = regularization_path(LinearClassifier(tol=1e-6, random_state=0), X, Q, alphas=[1e-1, 1e-2])
    single = LinearClassifier(tol=1e-6, alpha=1e-2, random_state=0).fit(X, Q)
    assert found.points[-1].objective == pytest.approx(single.objective_, rel=1e-5)
    soft = LinearClassifierCV("log_loss", cv=folds, **options).fit(X, np.minimum(Q, 1.0))
    assert soft.scores_path_.shape == (3, 3)


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("loss", ["multinomial", "log_loss"])
def test_the_certificate_is_that_of_the_fit(loss, K):
    X, Y = rows(K=K)
    Y = Y if loss == "multinomial" else np.minimum(Y, 1.0)
    weights = np.random.default_rng(1).random(len(X))
    model = sharp(loss, tol=1e-7).fit(X, Y, sample_weight=weights)
    for given in (Y, sp.csr_matrix(Y)):
        found = certify(model, X, given, sample_weight=weights)
        assert found.primal == pytest.approx(model.objective_, rel=1e-9)
        assert found.relative_gap <= 1e-6
    far = LinearClassifier(loss, alpha=1.0).fit(X, Y, sample_weight=weights)
    assert certify(far, X, Y, alpha=1e-2, sample_weight=weights).best == pytest.approx(model.objective_, rel=1e-2)
    with pytest.raises(ValueError, match=f"y must have {K} columns"):
        certify(model, X, np.hstack([Y, Y]), sample_weight=weights)
    with pytest.raises(ValueError, match="class_weight is not defined for y of weights"):
        certify(model, X, Y, class_weight="balanced")
