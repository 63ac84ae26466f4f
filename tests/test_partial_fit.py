"""Streams: `partial_fit` of LinearClassifier with the solvers that learn rows as they come."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.preprocessing import StandardScaler

from manyclass import SGD, BoundMajorization, CrammerSinger, LinearClassifier, Memoir, load
from manyclass.datasets import make_many_classes
from manyclass.solvers import SOLVERS
from manyclass.solvers.memoir import learner
from manyclass.solvers.memoir.rehearsal import interleaved, made_rows

ALPHA = 1e-2
STREAMS = {
    "sgd": SGD(),
    "averaged": SGD(average=True),
    "bound": BoundMajorization(),
    "bound of low rank": BoundMajorization(rank=4),
}


def iris():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return StandardScaler().fit_transform(X)[order], y[order]


def digits(classes=10):
    X, y = load_digits(n_class=classes, return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order] / 16, y[order]


def stream(solver, X, y, *, passes=1, parts=7, weights=None, classes=None, alpha=ALPHA, **options):
    model = LinearClassifier(alpha=alpha, solver=solver, **options)
    for _ in range(passes):
        for part in np.array_split(np.arange(len(y)), parts):
            model.partial_fit(X[part], y[part], classes, None if weights is None else weights[part])
    return model


def objective(model, X, y, alpha=ALPHA, weights=None):
    """Of softmax regression or, for two classes, logistic regression."""
    P = model.predict_proba(X)
    losses = -np.log(P[np.arange(len(y)), np.searchsorted(model.classes_, y)])
    return np.mean(losses if weights is None else weights * losses) + 0.5 * alpha * (model.coef_**2).sum()


# --- the optimum ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", STREAMS)
@pytest.mark.parametrize("classes", [2, 10])
def test_a_stream_approaches_the_optimum_of_the_whole_data(solver, classes):
    X, y = digits(classes)
    exact = LinearClassifier(alpha=ALPHA, tol=1e-8, max_iter=5000, random_state=0).fit(X, y)
    excess = {}
    for passes in (1, 8):
        model = stream(STREAMS[solver], X, y, passes=passes, classes=np.arange(classes))
        assert model.coef_.shape == exact.coef_.shape
        excess[passes] = (objective(model, X, y) - exact.objective_) / (np.log(classes) - exact.objective_)
    assert model.score(X, y) >= exact.score(X, y) - 0.02
    assert 0 <= excess[1] <= 0.1
    assert 0 <= excess[8] <= 0.5 * excess[1]


@pytest.mark.parametrize("average", [False, True])
def test_one_versus_rest_losses_stream_too(average):
    X, y = digits()
    exact = LinearClassifier("log_loss", alpha=ALPHA, tol=1e-6, max_iter=5000, random_state=0).fit(X, y)
    model = LinearClassifier("log_loss", alpha=ALPHA, solver=SGD(average=average))
    for part in np.array_split(np.arange(8 * len(y)) % len(y), 16):
        model.partial_fit(sp.csr_matrix(X[part]), y[part], classes=np.arange(10))
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.15 * np.abs(exact.coef_).max())
    assert np.mean(model.predict(X) == exact.predict(X)) > 0.97


@pytest.mark.parametrize("solver", STREAMS)
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_sample_weights_are_taken_as_they_are(solver, scale):
    """The objective is the mean of weighted losses, whatever the mean of the weights: a fit with alpha over it."""
    X, y = iris()
    weights = np.random.default_rng(0).choice([0.0, 0.5, 3.0], len(y))
    weights *= scale / weights.mean()
    exact = LinearClassifier(alpha=ALPHA / scale, tol=1e-8, max_iter=5000, random_state=0).fit(X, y, weights)
    model = stream(STREAMS[solver], X, y, passes=30, weights=weights, classes=[0, 1, 2])
    plain = stream(STREAMS[solver], X, y, passes=30, classes=[0, 1, 2])
    best, start = scale * exact.objective_, scale * np.log(3)
    reached, other = (objective(found, X, y, ALPHA, weights) for found in (model, plain))
    assert best <= reached <= best + 0.1 * (start - best)
    assert reached < other


def test_bounds_of_a_stream_that_comes_again_fall():
    X, y = iris()
    model = LinearClassifier(alpha=ALPHA, solver="bound")
    exact = LinearClassifier(alpha=ALPHA, solver="bound", tol=1e-8).fit(X, y)
    excess = []
    for _ in range(16):
        model.partial_fit(X, y)
        excess.append(objective(model, X, y) - exact.objective_)
    assert (np.diff(excess) < 0).all()
    assert excess[-1] < 0.2 * excess[0]


def test_a_memoir_stream_of_the_order_of_fit_is_fit():
    """The rows of an epoch in its order, in one call: the same weights."""
    X, y = make_many_classes(2000, 800, 60, nnz_per_row=12, random_state=0)
    model = memoir(alpha=1e-4, average=False).set_params(max_iter=1, random_state=3, dtype=np.float64)
    fit = clone(model).fit(X, y)
    seed = int(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    order = np.random.default_rng([seed, 0]).permutation(len(y))
    taken = clone(model).partial_fit(X[order], y[order])
    np.testing.assert_allclose(taken.coef_, fit.coef_, atol=1e-12)
    assert taken.model_.record["outcome"] == "stream"


# --- pieces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [SGD(eta0=0.1), BoundMajorization(batch_size=5)], ids=str)
def test_pieces_of_a_stream_do_not_matter(solver):
    """But for the first one, whose rows give the step sizes of weights and intercept."""
    X, y = iris()
    whole = stream(solver, X[:50], y[:50], parts=1, classes=[0, 1, 2]).partial_fit(X[50:], y[50:])
    parts = stream(solver, sp.csr_matrix(X[:50]), y[:50], parts=1, classes=[0, 1, 2])
    for part in np.split(np.arange(50, 150), 5):
        parts.partial_fit(sp.csr_matrix(X[part]), y[part])
    np.testing.assert_allclose(whole.coef_, parts.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(whole.intercept_, parts.intercept_, rtol=1e-6, atol=1e-9)


def test_the_mean_is_of_the_steps_after_the_first_rows():
    X, y = iris()
    options = {"eta0": 0.5, "gain": "constant"}
    model = LinearClassifier(alpha=ALPHA, solver=SGD(average=True, **options))
    other = LinearClassifier(alpha=ALPHA, solver=SGD(**options))
    points = []
    for row in range(100, 150):
        for one in (model, other):
            if row == 100:
                one.partial_fit(X[:100], y[:100], classes=[0, 1, 2])
        points.append(other.coef_.copy())
        for one in (model, other):
            one.partial_fit(X[row : row + 1], y[row : row + 1])
    points.append(other.coef_)
    np.testing.assert_allclose(model.coef_, np.mean(points, axis=0), atol=1e-12)


@pytest.mark.parametrize("solver", STREAMS)
def test_later_rows_take_the_type_of_the_first(solver):
    X, y = iris()
    mixed = LinearClassifier(alpha=ALPHA, solver=STREAMS[solver]).partial_fit(X[:75], y[:75])
    same = clone(mixed).partial_fit(X[:75], y[:75])
    mixed.partial_fit(X[75:].astype(np.float32), y[75:])
    same.partial_fit(X[75:].astype(np.float32).astype(np.float64), y[75:])
    assert mixed.coef_.dtype == np.float64
    np.testing.assert_array_equal(mixed.coef_, same.coef_)


def test_a_batch_may_have_a_row_of_each_class(recwarn):
    LinearClassifier(solver="sgd").partial_fit(np.eye(30), np.arange(30))
    assert not recwarn.list


def test_without_alpha_the_penalty_is_one_over_the_rows_so_far():
    X, y = iris()
    model = LinearClassifier(solver=SGD(average=True))
    for seen in (50, 100, 150):
        model.partial_fit(X[seen - 50 : seen], y[seen - 50 : seen], classes=[0, 1, 2])
        assert model.alpha_ == 1 / seen
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("average", [False, True])
def test_the_steps_of_a_stream_without_alpha_fall(average):
    """Labels that noise has changed keep steps of one length from the optimum: by 0.19 here, were they not to fall."""
    X, y = make_classification(24_000, 40, n_informative=15, n_classes=5, flip_y=0.15, random_state=0)
    X = StandardScaler().fit_transform(X)

    def loss(model):
        return -np.mean(np.log(model.predict_proba(X[20_000:])[np.arange(4000), y[20_000:]]))

    best = loss(LinearClassifier(random_state=0).fit(X[:20_000], y[:20_000]))
    excess = []
    for rows in (2_000, 20_000):
        model = stream(SGD(average=average), X[:rows], y[:rows], parts=rows // 100, classes=np.arange(5), alpha=None)
        excess.append(loss(model) - best)
    assert excess[1] < 0.04
    assert excess[1] < 0.6 * excess[0]


def test_the_steps_of_a_memoir_stream_without_alpha_fall():
    X, y = make_many_classes(12_000, 2000, 100, nnz_per_row=12, random_state=0)
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(len(y)) < 0.3, rng.permutation(y), y)
    scores = {}
    for eta_step in (None, 0.0):  # 0: all steps alike
        model = memoir(alpha=None, average=False, eta_step=eta_step)
        for part in np.split(np.arange(10_000), 20):
            model.partial_fit(X[part], noisy[part])
        scores[eta_step] = model.score(X[10_000:], y[10_000:])
    assert scores[None] > scores[0.0] + 0.055  # 0.036, were they to fall with alpha


# --- classes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", STREAMS)
def test_classes_that_come_later_are_refused(solver):
    X, y = iris()
    model = LinearClassifier(alpha=ALPHA, solver=STREAMS[solver]).partial_fit(X, y)
    before = model.coef_.copy()
    strange = y.copy()
    strange[17] = 7
    with pytest.raises(ValueError, match=r"got label 7 in row 17: .* solver='memoir', which can add classes"):
        model.partial_fit(X, strange)
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"labels of the classes .*, got label 2 in row"):
        clone(model).partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="labels of the same type"):
        model.partial_fit(X[:1], np.array(["a"]))
    with pytest.raises(ValueError, match="at least 2 classes"):
        clone(model).partial_fit(X[:1], y[:1])
    np.testing.assert_array_equal(model.coef_, before)
    np.testing.assert_array_equal(model.partial_fit(X, y).classes_, [0, 1, 2])


@pytest.mark.parametrize("solver", STREAMS)
def test_classes_named_first_may_come_at_any_time(solver):
    X, y = iris()
    names = np.array(["setosa", "versicolor", "virginica"])
    model = LinearClassifier(alpha=ALPHA, solver=STREAMS[solver])
    for rows in (np.flatnonzero(y == 2)[:5], np.flatnonzero(y < 2), np.arange(150), np.arange(150)):
        model.partial_fit(X[rows], names[y[rows]], classes=names)
        assert model.coef_.shape == (3, 4)
    assert model.classes_.tolist() == names.tolist()
    assert model.score(X, names[y]) > 0.8


# --- memoir: classes that grow --------------------------------------------------------------------------------------


def memoir(alpha=1e-5, **options):
    return LinearClassifier(CrammerSinger(gamma=0), alpha=alpha, solver=Memoir(**options), random_state=0)


@pytest.fixture(scope="module")
def many():
    X, y = make_many_classes(3000, 800, 60, nnz_per_row=12, random_state=0)
    return X[:2500], y[:2500], X[2500:], y[2500:]


@pytest.mark.parametrize("slots", [0, 10**9], ids=["table", "array"])
@pytest.mark.parametrize("search", ["exact", "lsh"])
def test_new_classes_in_a_stream(many, monkeypatch, slots, search):
    monkeypatch.setattr(learner, "_DENSE", slots)
    X, y, X_test, y_test = many
    labels = np.array([f"{(k * 7) % 60:02d}" for k in range(60)])  # not in the order of their coming
    model = memoir(search=search, batch_size=10)
    for known in (20, 40, 60):
        rows = np.flatnonzero(y < known)
        for _ in range(3):
            model.partial_fit(X[rows], labels[y[rows]])
        assert list(model.classes_) == sorted(labels[:known])
        assert model.coef_.shape == (known, 800)
        test = np.flatnonzero(y_test < known)
        assert model.score(X_test[test], labels[y_test[test]]) > 0.5
    assert not hasattr(model, "history_")


def test_nothing_is_rehearsed_where_all_old_classes_are_there():
    X, y = digits()
    old = y < 9
    fitted = memoir(alpha=1e-4).fit(X[old], y[old])
    found = [pickle.loads(pickle.dumps(fitted)).set_params(solver=Memoir(rehearsal=on)) for on in (False, True)]
    one, other = (model.partial_fit(X, y).coef_ for model in found)
    np.testing.assert_array_equal(one, other)


def test_old_classes_are_rehearsed_where_new_ones_come_alone():
    """In ten batches of new classes; without new ones nothing changes, to the last bit."""
    X, y = make_many_classes(7000, 3000, 500, random_state=0)
    rng = np.random.default_rng(0)
    new = np.isin(y, rng.permutation(500)[:100])
    train, test = np.arange(len(y)) < 5000, np.arange(len(y)) >= 5000
    fitted = memoir(alpha=1e-6).fit(X[train & ~new], y[train & ~new])
    before = fitted.score(X[test & ~new], y[test & ~new])
    found = {}
    for rehearsal in (False, True):
        model = pickle.loads(pickle.dumps(fitted)).set_params(solver=Memoir(rehearsal=rehearsal))
        for part in np.array_split(np.unique(y[new]), 10):
            rows = np.flatnonzero(train & np.isin(y, part))
            model.partial_fit(X[rows], y[rows])
        found[rehearsal] = [model.score(X[test & some], y[test & some]) for some in (~new, new)]
        known = pickle.loads(pickle.dumps(fitted)).set_params(solver=Memoir(rehearsal=rehearsal))
        found[rehearsal].append(known.partial_fit(X[:300], fitted.predict(X[:300])).coef_)
    (old, came, same), (old_with, came_with, same_with) = found[False], found[True]
    assert before - old_with < 0.75 * (before - old)
    assert came_with > came - 0.02
    np.testing.assert_array_equal(same, same_with)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("signed", [False, True])
def test_made_rows_are_like_those_of_a_batch(dtype, signed):
    rng = np.random.default_rng(0)
    X = sp.random(40, 90, 0.1, format="csr", random_state=rng, dtype=dtype)
    W = sp.random(7, 90, 0.5, format="csr", random_state=rng, dtype=dtype)
    W.data -= dtype(0.4)
    X.data -= dtype(0.3 * signed)
    W.data[W.indptr[3] : W.indptr[4]] = 0
    rows, which = made_rows(W, X, np.random.default_rng(1))
    assert which.tolist() == [0, 1, 2, 4, 5, 6]
    assert rows.dtype == dtype
    assert np.all(np.diff(rows.indptr) == round(X.nnz / 40))
    size = np.mean(X.multiply(X).sum(axis=1))
    np.testing.assert_allclose(np.asarray(rows.multiply(rows).sum(axis=1)).ravel(), size, rtol=1e-5)
    aligned = rows.multiply(W[which])
    assert aligned.nnz == rows.nnz  # features of the class alone
    assert np.all(aligned.data > 0)
    assert (rows.data.min() > 0) == (not signed)
    dense, held = made_rows(W.toarray(), X.toarray(), np.random.default_rng(1))
    np.testing.assert_array_equal(held, which)
    np.testing.assert_allclose((dense**2).sum(axis=1), size, rtol=1e-5)
    order = interleaved(40, 6, np.random.default_rng(2))
    np.testing.assert_array_equal(np.sort(order), np.arange(46))
    assert np.all(np.diff(order[order < 40]) > 0)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("order", [(2, 0, 1), (0, 1, 2)])
def test_two_classes_of_one_margin_become_three(sparse, order):
    X, y = iris()
    X = np.hstack([X, np.ones((len(X), 1))])  # MEMOIR fits no intercept
    rows = sp.csr_matrix(X) if sparse else X
    model = memoir(alpha=1e-2, average=False)
    two = np.flatnonzero(y != order[2])
    for _ in range(20):
        model.partial_fit(rows[two], y[two])
    assert model.coef_.shape == (1, 5)
    assert model.decision_function(rows).shape == (len(y),)
    assert model.score(rows[two], y[two]) > 0.9
    margin = model.coef_[0].copy()
    # A call with hardly a step: the weights of both classes are those of the margin, and the new one has none.
    grown = pickle.loads(pickle.dumps(model))
    third = np.flatnonzero(y == order[2])
    grown.partial_fit(rows[third[:1]] * 1e-9, y[third[:1]])
    assert grown.coef_.shape == (3, 5)
    known = np.sort(order[:2])
    np.testing.assert_allclose(grown.coef_[known[1]] - grown.coef_[known[0]], margin, rtol=0.05)
    assert np.abs(grown.coef_[order[2]]).max() < 1e-6
    for _ in range(60):
        model.partial_fit(rows, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(rows, y) > 0.85


def test_a_stream_goes_on_from_a_fit_and_from_a_pickle(many):
    X, y, _, _ = many
    fitted = memoir().set_params(max_iter=3).fit(X, y)
    model = pickle.loads(pickle.dumps(fitted))
    before = model.coef_.copy()
    model.set_params(solver=Memoir(eta0=1e-9, average=False))
    model.partial_fit(X[:100], np.where(y[:100] == 5, 1000, y[:100]))
    assert model.classes_[-1] == 1000
    np.testing.assert_allclose(model.coef_[:60], before, atol=1e-4)
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        one.partial_fit(X[:50], y[:50])
    np.testing.assert_array_equal(copy.coef_, model.coef_)


def test_a_stream_goes_on_from_a_fit_of_two_classes():
    X, y = iris()
    X, y = np.hstack([X, np.ones((len(X), 1))]), y
    two = y < 2
    model = memoir(alpha=1e-2).fit(X[two], y[two])
    margin = model.coef_[0].copy()
    model.set_params(solver=Memoir(eta0=1e-9, average=False)).partial_fit(X, y)
    assert model.coef_.shape == (3, 5)
    np.testing.assert_allclose(model.coef_[1] - model.coef_[0], margin, atol=1e-5)
    np.testing.assert_allclose(model.coef_[2], 0, atol=1e-5)


def test_pruning_ends_a_stream(many):
    X, y, X_test, y_test = many
    model = memoir(average=False).partial_fit(X, y)
    model.prune(X_test, y_test, max_loss=0.02)
    kept = model.sparse_coef_.copy()
    model.set_params(solver=Memoir(eta0=1e-9, average=False)).partial_fit(X[:10], y[:10])
    np.testing.assert_allclose(model.coef_, kept.toarray(), atol=1e-4)


# --- what there is of a fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", STREAMS)
def test_a_stream_has_no_certificate_and_a_fit_ends_it(solver, tmp_path):
    X, y = iris()
    model = LinearClassifier(alpha=ALPHA, solver=STREAMS[solver], tol=0.5, random_state=0).fit(X, y)
    model.partial_fit(X, y)
    for name in ("duality_gap_", "objective_", "history_", "n_iter_"):
        assert not hasattr(model, name)
    afresh = clone(model).partial_fit(X, y)
    np.testing.assert_array_equal(model.coef_, afresh.coef_)  # the model of a fit is no beginning
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert load(tmp_path / "model").record == {"outcome": "stream", "n_seen": 150}
    assert hasattr(model.fit(X, y), "duality_gap_")
    np.testing.assert_array_equal(model.partial_fit(X, y).coef_, afresh.coef_)


@pytest.mark.parametrize("size", [1, 16])
def test_a_stream_of_low_rank_with_many_parameters_stays_low(size):
    """Batches with far fewer rows than features, of which the first curvature has no trace of the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 600)) / np.sqrt(600)
    y = np.argmax(100 * X[:, :3] + rng.gumbel(size=(200, 3)), axis=1)
    model = LinearClassifier(alpha=1e-3, solver=BoundMajorization(rank=8, batch_size=size))
    values = [np.log(3)]
    for part in np.array_split(np.arange(600) % 200, 6):
        model.partial_fit(X[part], y[part], [0, 1, 2])
        values.append(objective(model, X, y, 1e-3))
    assert max(values) < 1.5 * values[0]  # no step is far too long
    best = LinearClassifier(alpha=1e-3, tol=1e-6, random_state=0).fit(X, y).objective_
    assert values[-1] - best < 0.4 * (values[0] - best)


def test_only_some_solvers_stream():
    assert [name for name in SOLVERS if hasattr(LinearClassifier(solver=name), "partial_fit")] == [
        "sgd",
        "bound",
        "memoir",
    ]
    assert not hasattr(LinearClassifier(), "partial_fit")
    X, y = iris()
    with pytest.raises(ValueError, match="class_weight is not supported by partial_fit"):
        LinearClassifier(solver="sgd", class_weight="balanced").partial_fit(X, y)
