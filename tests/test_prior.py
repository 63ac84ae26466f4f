"""`fit(prior=)`: the l2 penalty as the distance to another model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp

from manyclass import CrammerSinger, LinearClassifier, LinearRegressor, certify, load
from manyclass.cli.main import main


def data(n=120, d=6, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, K)) + 0.5 * rng.normal(size=(n, K))).argmax(axis=1), rng


def objective(model, X, y, Z, alpha):
    """Of softmax regression with the prior Z (classes, features)."""
    s = X @ model.coef_.T + model.intercept_
    return np.mean(logsumexp(s, axis=1) - s[np.arange(len(X)), y]) + alpha / 2 * np.sum((model.coef_ - Z) ** 2)


@pytest.mark.parametrize("view", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("solver", ["auto", "sdca", "lbfgs", "preconditioned_lbfgs", "newton", "fista"])
def test_the_optimum_is_that_of_an_independent_solver(solver, view):
    X, y, rng = data()
    Z = rng.normal(size=(3, 6))
    prior = LinearClassifier().fit(X, y)
    prior.coef_[:] = Z
    model = LinearClassifier(alpha=0.1, solver=solver, tol=1e-9, max_iter=5000, fit_intercept=False)
    model.fit(view(X), y, prior=prior)

    def value(w):
        s = X @ w.reshape(3, 6).T
        return np.mean(logsumexp(s, axis=1) - s[np.arange(len(X)), y]) + 0.05 * np.sum((w - Z.ravel()) ** 2)

    found = minimize(value, np.zeros(18), method="BFGS", options={"gtol": 1e-7})
    assert model.duality_gap_ <= 1e-9
    assert model.objective_ == pytest.approx(found.fun, rel=1e-7)
    assert model.objective_ == pytest.approx(objective(model, X, y, Z, 0.1), rel=1e-9)
    np.testing.assert_allclose(model.coef_, found.x.reshape(3, 6), atol=1e-4)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3])
@pytest.mark.parametrize("loss", ["multinomial", CrammerSinger(), "log_loss", "squared_hinge", "hinge"], ids=str)
@pytest.mark.parametrize("K", [2, 3])
def test_a_strong_penalty_gives_the_prior_and_a_weak_one_forgets_it(loss, K, l1_ratio):
    X, y, _ = data(K=K)
    prior = LinearClassifier(loss, alpha=0.01).fit(X, (y + 1) % K)
    near = LinearClassifier(loss, alpha=1e4, tol=1e-6, max_iter=5000, fit_intercept=False).fit(X, y, prior=prior)
    np.testing.assert_allclose(near.coef_, prior.coef_, atol=1e-3)
    settings = {"alpha": 1e-3, "l1_ratio": l1_ratio, "tol": 1e-6, "max_iter": 5000}
    fit = LinearClassifier(loss, **settings).fit(X, y, prior=prior)
    assert fit.duality_gap_ <= 1e-6
    plain = LinearClassifier(loss, **settings).fit(X, y)
    zero = LinearClassifier(loss, **settings).fit(X, y, prior=scaled(prior, 0.0))
    assert zero.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    # Each of the two optima is no better than the other in the other's objective, but for their gaps: the sum of both.
    gaps = sum(model.duality_gap_ * model.objective_ for model in (fit, plain)) / (1e-3 * (1 - l1_ratio))
    nearer = np.vdot(prior.coef_, fit.coef_ - plain.coef_)
    # Both may be at the same corner of the hinges.
    assert nearer >= -gaps if loss == "hinge" else nearer > gaps


def scaled(estimator, factor):
    """Its model with other weights."""
    return replace(estimator.model_, weights=np.ascontiguousarray(factor * estimator.model_.weights))


def test_of_a_regression():
    X, _, rng = data()
    y = X @ rng.normal(size=(6, 2))
    Z = LinearRegressor(alpha=1.0, fit_intercept=False).fit(X, rng.normal(size=(120, 2)))
    model = LinearRegressor(alpha=0.3, fit_intercept=False, tol=1e-10, max_iter=5000).fit(X, y, prior=Z)
    n = len(X)
    expected = np.linalg.solve(X.T @ X / n + 0.3 * np.eye(6), X.T @ y / n + 0.3 * Z.coef_.T)
    np.testing.assert_allclose(model.coef_.T, expected, atol=1e-4)
    residual = X @ expected - y
    value = np.sum(residual**2) / 2 / n + 0.15 * np.sum((expected - Z.coef_.T) ** 2)
    assert model.objective_ == pytest.approx(value, rel=1e-6)


def test_classes_that_the_prior_lacks_are_drawn_to_zero():
    X, y, _ = data(K=4)
    names = np.array(["d", "a", "c", "b"])[y]
    some = np.isin(names, ["b", "d"])
    prior = LinearClassifier(alpha=0.01).fit(X[some], names[some])
    model = LinearClassifier(alpha=1e5).fit(X, names, prior=prior)
    half = prior.coef_[0] / 2
    np.testing.assert_allclose(model.coef_, [0 * half, -half, 0 * half, half], atol=1e-3)
    three = np.isin(names, ["a", "b", "d"])
    prior = LinearClassifier("squared_hinge", alpha=0.01).fit(X[three], names[three])
    model = LinearClassifier("squared_hinge", alpha=1e5).fit(X, names, prior=prior.model_)
    np.testing.assert_allclose(model.coef_[[0, 1, 3]], prior.coef_, atol=1e-3)
    np.testing.assert_allclose(model.coef_[2], 0.0, atol=1e-3)


def test_sets_of_labels_soft_targets_standardized_columns_and_float32():
    X, y, rng = data()
    Y = (rng.random((120, 3)) < 0.4).astype(int)
    prior = LinearClassifier("log_loss", alpha=0.1).fit(X, Y)
    model = LinearClassifier("log_loss", alpha=1e4).fit(X, 1 - Y, prior=prior)
    np.testing.assert_allclose(model.coef_, prior.coef_, atol=1e-3)
    soft = rng.dirichlet(np.ones(3), 120)
    prior = LinearClassifier(alpha=0.1).fit(X, soft)
    again = LinearClassifier(alpha=0.05, tol=1e-8, max_iter=5000).fit(X, soft[::-1], prior=prior)
    s = X @ again.coef_.T + again.intercept_
    losses = logsumexp(s, axis=1) - np.sum(soft[::-1] * s, axis=1)
    value = np.mean(losses) + 0.025 * np.sum((again.coef_ - prior.coef_) ** 2)
    assert again.objective_ == pytest.approx(value, rel=1e-7)
    scales = np.array([1.0, 3.0, 10.0, 0.1, 1.0, 1.0])
    prior = LinearClassifier(alpha=0.1, standardize=True).fit(X * scales, y)
    model = LinearClassifier(alpha=1e5, standardize=True).fit(X * scales, y[::-1], prior=prior)
    np.testing.assert_allclose(model.coef_, prior.coef_, rtol=1e-2, atol=1e-3)
    model = LinearClassifier(alpha=1e4).fit(X.astype(np.float32), y[::-1], prior=prior)
    assert model.coef_.dtype == np.float32
    np.testing.assert_allclose(model.coef_, prior.coef_, atol=1e-3)


def test_two_hundred_classes_and_an_alpha_that_is_chosen():
    rng = np.random.default_rng(0)
    X = sp.random(600, 80, 0.2, format="csr", random_state=0)
    y = rng.integers(0, 200, 600)
    y[:200] = np.arange(200)
    for loss in ("crammer_singer", "squared_hinge"):
        prior = LinearClassifier(loss, alpha=0.01, fit_intercept=False).fit(X, y)
        model = LinearClassifier(loss, alpha=1e3, fit_intercept=False, random_state=0).fit(X, y, prior=prior)
        np.testing.assert_allclose(model.coef_, prior.coef_, atol=0.02)
    X, y, _ = data(400)
    chosen = LinearClassifier(alpha="auto", random_state=0).fit(X, y, prior=LinearClassifier().fit(X, y))
    assert chosen.duality_gap_ <= 1e-3


def test_a_warm_start_and_a_checkpoint_are_of_one_prior(tmp_path):
    X, y, _ = data()
    priors = [LinearClassifier(alpha=a).fit(X, y[::-1]) for a in (0.1, 0.01)]
    warm = LinearClassifier(alpha=0.05, warm_start=True, tol=1e-8, max_iter=3000, random_state=0)
    for prior in (priors[0], priors[1], None):
        given = {} if prior is None else {"prior": prior}
        cold = LinearClassifier(alpha=0.05, tol=1e-8, max_iter=3000, random_state=0).fit(X, y, **given)
        np.testing.assert_allclose(warm.fit(X, y, **given).coef_, cold.coef_, atol=1e-4)
    model = LinearClassifier(alpha=0.05, random_state=0).fit(X, y, prior=priors[0], checkpoint=tmp_path / "state")
    kept = LinearClassifier(alpha=0.05, random_state=0).fit(X, y, prior=priors[0], checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(kept.coef_, model.coef_)
    with pytest.raises(ValueError, match="belongs to another run"):
        LinearClassifier(alpha=0.05, random_state=0).fit(X, y, prior=priors[1], checkpoint=tmp_path / "state")


def test_what_is_refused():
    X, y, rng = data()
    prior = LinearClassifier().fit(X, y)

    def refused(match, *, error=ValueError, prior=prior, X=X, y=y, **settings):
        with pytest.raises(error, match=match):
            LinearClassifier(**settings).fit(X, y, prior=prior)

    refused("prior must be a LinearModel or a fitted estimator", error=TypeError, prior=np.zeros((3, 6)))
    refused("must be a LinearModel", error=TypeError, prior=LinearClassifier())
    refused("prior has 6 features, X has 5", X=X[:, :5])
    refused(r"1 of the 3 classes of prior are not in y \(2\)", X=X[y < 2], y=y[y < 2])
    refused("prior is for regression", prior=LinearRegressor().fit(X, rng.normal(size=120)))
    refused("prior needs a penalty with an l2 part", l1_ratio=1.0)
    refused("prior needs rows in an array of NumPy", X=X.astype(np.float16), alpha=0.1)
    for solver in ("accelerated", "memoir", "ds_mlr", "bound"):
        loss = CrammerSinger(gamma=0) if solver == "memoir" else "multinomial"
        refused("shift or prior", solver=solver, loss=loss)
    with pytest.raises(ValueError, match="prior has 1 targets, y has 2"):
        LinearRegressor().fit(X, rng.normal(size=(120, 2)), prior=LinearRegressor().fit(X, X[:, 0]))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    named = LinearClassifier().fit(frame, y)
    refused("the features of prior have other names", prior=named, X=frame[list("bacdef")])


def test_from_a_shell_texts_have_the_vocabulary_of_the_prior(tmp_path, capsys):
    old, new = tmp_path / "old.tsv", tmp_path / "new.tsv"
    old.write_text("fruit\tapple pear plum\nmetal\tiron zinc tin\n" * 20)
    new.write_text("fruit\tplum cherry\nmetal\ttin nickel\n")
    assert main(["fit", str(old), "-o", str(tmp_path / "old.model"), "--quiet"]) == 0
    fitted = ["fit", str(new), "-o", str(tmp_path / "new.model"), "--quiet", "--prior", str(tmp_path / "old.model")]
    assert main([*fitted, "--alpha", "1e3"]) == 0
    before, after = load(tmp_path / "old.model"), load(tmp_path / "new.model")
    np.testing.assert_allclose(after.weights, before.weights, atol=1e-2)
    assert after.predict(["zinc", "pear"]).tolist() == ["metal", "fruit"]
    staged = str(tmp_path / "staged.model")
    assert main(["--quiet", "fit", str(old), "-o", staged, "--estimator", "stagewise", "--features", "fourier:9"]) == 0
    for more, said in (
        (["--prior", staged], "--prior takes a linear model in one file"),
        (["--estimator", "stagewise"], "--prior is for --estimator linear"),
        (["--alphas", "1,2"], "--prior is for --estimator linear at one --alpha"),
        (["--vectorizer", "hashing"], "leave out the options on texts"),
        (["--n-features", "9"], "leave out the options on texts, and --n-features"),
        (["--solver", "ds_mlr"], "--prior is not for --solver ds_mlr"),
    ):
        assert main([*fitted[:3], str(tmp_path / "x.model"), *fitted[4:], *more]) == 2
        assert said in capsys.readouterr().err


def test_certify_refuses_a_model_with_a_prior_whose_objective_it_does_not_know(tmp_path):
    X, y, _ = data()
    prior = LinearClassifier().fit(X, y)
    LinearClassifier().fit(X, y, prior=prior).save(tmp_path / "model")
    real = LinearRegressor().fit(X, X[:, 0])
    for model, target in ((load(tmp_path / "model"), y), (LinearRegressor().fit(X, X[:, 0], prior=real), X[:, 0])):
        with pytest.raises(ValueError, match="fitted with a prior, whose penalty is the distance to that model"):
            certify(model, X, target)
    assert certify(prior, X, y).relative_gap <= 1e-3
