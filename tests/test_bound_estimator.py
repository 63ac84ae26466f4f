"""BoundMajorizationClassifier: scikit-learn's checks, streams, the choice of the rank, refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyclass import BoundMajorizationClassifier, SDCAClassifier, load

ALPHA = 1e-2


def _expected_failures(estimator):
    """Weights and repeated rows draw other batches: the same model to tol, see `test_weights_are_repeated_rows`. One
    label left after weights of zero: the optimum is at infinity, and who does not take the Hessian in walks there
    slowly."""
    if estimator.rank is None and estimator.stochastic:
        return {
            "check_sample_weight_equivalence_on_dense_data": "equal to tol, not to 1e-7",
            "check_sample_weight_equivalence_on_sparse_data": "equal to tol, not to 1e-7",
        }
    return {"check_classifiers_one_label_sample_weights": "an optimum at infinity is not certified in max_iter"}


@parametrize_with_checks(
    [
        BoundMajorizationClassifier(alpha=1e-2, tol=1e-3),
        BoundMajorizationClassifier(alpha=1e-2, rank=2),
        BoundMajorizationClassifier(alpha=1e-1, stochastic=False, max_iter=2000),
    ],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"stochastic": False}, {"batch_size": 1}])
def test_the_optimum_is_that_of_the_dual_method(options):
    X, y = iris()
    model = BoundMajorizationClassifier(ALPHA, tol=1e-7, max_iter=2000, random_state=0, **options).fit(X, y)
    other = SDCAClassifier(alpha=ALPHA, tol=1e-7, max_iter=5000).fit(X, y)
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-3)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=2e-3)
    assert model.rank_ == options.get("rank", "full")


def test_two_classes_have_one_column_and_named_labels():
    X, y = iris()
    labels = np.array(["no", "yes"])[(y == 2).astype(int)]
    model = BoundMajorizationClassifier(ALPHA, tol=1e-8).fit(X, labels)
    assert model.coef_.shape == (1, 4)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(X, labels) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_weights_are_repeated_rows():
    X, y = iris()
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = BoundMajorizationClassifier(ALPHA, tol=1e-10).fit(X, y, sample_weight=counts)
    repeated = BoundMajorizationClassifier(ALPHA, tol=1e-10).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-9)


def test_rank_is_chosen_by_the_size_and_told():
    rng = np.random.default_rng(0)
    X = sp.random(40, 5000, density=0.01, random_state=0, format="csr")
    y = rng.integers(0, 3, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = BoundMajorizationClassifier(max_iter=3).fit(X, y)
    assert model.rank_ == 8
    assert BoundMajorizationClassifier().fit(X[:, :50], y).rank_ == "full"


def test_a_curvature_that_does_not_fit_is_refused_with_advice():
    X = sp.random(20, 200_000, density=1e-4, random_state=0, format="csr")
    y = np.arange(20) % 5
    with pytest.raises(MemoryError, match="rank=8"):
        BoundMajorizationClassifier(rank="full").fit(X, y)


# --- streams --------------------------------------------------------------------------------------------------------


def stream_objective(model, X, y, alpha):
    P = model.predict_proba(X)
    losses = -np.log(P[np.arange(len(y)), np.searchsorted(model.classes_, y)])
    return losses.mean() + 0.5 * alpha * (model.coef_**2).sum()


@pytest.mark.parametrize("classes", [2, 10])
def test_a_stream_taken_once_comes_close_to_a_fit(classes):
    X, y = load_digits(n_class=classes, return_X_y=True)
    X = X / 16
    alpha = 1e-2
    order = np.random.default_rng(0).permutation(len(y))
    model = BoundMajorizationClassifier(alpha)
    for part in np.array_split(order, 7):
        model.partial_fit(X[part], y[part], classes=np.arange(classes))
    exact = BoundMajorizationClassifier(alpha, tol=1e-8).fit(X, y)
    start = np.log(classes)
    reached = stream_objective(model, X, y, alpha)
    assert exact.objective_ <= reached <= exact.objective_ + 0.1 * (start - exact.objective_)
    assert model.score(X, y) >= exact.score(X, y) - 0.02


def test_a_stream_that_comes_again_and_again_approaches_the_optimum():
    X, y = iris()
    model = BoundMajorizationClassifier(ALPHA)
    exact = BoundMajorizationClassifier(ALPHA, tol=1e-8).fit(X, y)
    excess = []
    for _ in range(16):
        model.partial_fit(X, y)
        excess.append(stream_objective(model, X, y, ALPHA) - exact.objective_)
    assert (np.diff(excess) < 0).all()
    assert excess[-1] < 0.2 * excess[0]


def test_pieces_of_a_stream_do_not_matter():
    X, y = iris()
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    whole = BoundMajorizationClassifier(batch_size=5).partial_fit(X, y)
    parts = BoundMajorizationClassifier(batch_size=5)
    for begin in range(0, 150, 30):
        parts.partial_fit(sp.csr_matrix(X[begin : begin + 30]), y[begin : begin + 30], classes=[0, 1, 2])
    np.testing.assert_allclose(whole.coef_, parts.coef_, rtol=1e-6, atol=1e-9)


def test_strange_labels_of_a_stream_are_told_by_row():
    X, y = iris()
    model = BoundMajorizationClassifier().partial_fit(X, y)
    y = y.copy()
    y[17] = 7
    with pytest.raises(ValueError, match="label 7 in row 17"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit(X, y, classes=[0, 1])


def test_a_stream_has_no_certificate_and_a_fit_ends_it(tmp_path):
    X, y = iris()
    model = BoundMajorizationClassifier().fit(X, y)
    model.partial_fit(X, y)
    assert not hasattr(model, "duality_gap_")
    model.model_.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert not hasattr(BoundMajorizationClassifier(rank=3), "partial_fit")
    assert hasattr(model.fit(X, y), "duality_gap_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank must be an integer of at least 1, 'full' or None"),
        ({"rank": "half"}, "rank must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"eta": 2.0}, "eta must be a finite number greater than 0 and less than 2"),
        ({"schedule": "slow"}, "schedule must be one of 'tightening', 'restart', 'literal'"),
        ({"order": "down"}, "order must be one of"),
        ({"alpha": 0.0}, "alpha must be a finite number greater than 0"),
        ({"rank": 2, "stochastic": False}, "goes with stochastic=True"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    X, y = iris()
    with pytest.raises(ValueError, match=message):
        BoundMajorizationClassifier(**options).fit(X, y)
