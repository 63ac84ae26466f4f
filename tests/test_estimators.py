"""The linear estimators: what a fit leaves, what it equals, what it takes and what it refuses."""

from __future__ import annotations

import pickle
import warnings
from datetime import date

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_classification, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyclass import SDCA, CrammerSinger, Huber, LinearClassifier, LinearRegressor, SmoothHinge, StagewiseClassifier
from manyclass.objective.losses import CLASSIFICATION
from registry import SOLVERS

LOSSES = list(CLASSIFICATION)
ONE_VS_REST = [name for name, loss in CLASSIFICATION.items() if not loss.joint]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


@pytest.mark.parametrize("loss", LOSSES)
def test_public_face(digits, loss):
    X, y = digits
    names = np.array([f"digit {k}" for k in range(10)])
    model = LinearClassifier(loss=loss, alpha=1e-3, random_state=0, max_iter=500).fit(X, names[y])
    assert model.duality_gap_ <= 1e-3
    assert model.coef_.shape == (10, 64)
    assert model.intercept_.shape == (10,)
    assert list(model.classes_) == sorted(names)
    assert model.n_features_in_ == 64
    assert model.n_iter_ == model.history_.last.iteration
    assert model.history_.last.relative_gap == model.duality_gap_
    assert model.score(X, names[y]) > 0.93
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_.T + model.intercept_, atol=1e-9)
    classes, scores = model.predict_topk(X, k=3)
    order = np.argsort(-model.decision_function(X), axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(classes, model.classes_[order])
    np.testing.assert_array_equal(classes[:, 0], model.predict(X))
    assert np.all(np.diff(scores, axis=1) <= 0)
    assert hasattr(model, "predict_proba") == (loss in ("multinomial", "log_loss"))
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-12)
        np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("loss", LOSSES)
def test_two_classes_have_one_margin(loss):
    X, y = make_classification(300, 10, random_state=0)
    model = LinearClassifier(loss=loss, alpha=1e-2, random_state=0, max_iter=500).fit(X, np.where(y, "yes", "no"))
    assert model.coef_.shape == (1, 10)
    assert model.decision_function(X).shape == (300,)
    np.testing.assert_array_equal(model.predict(X) == "yes", model.decision_function(X) > 0)


def test_multinomial_is_scikit_learns_logistic_regression(digits):
    X, y = digits
    for rows in (np.arange(len(y)), np.flatnonzero(y < 2)):
        ours = LinearClassifier(alpha=1e-3, tol=1e-9, max_iter=2000, random_state=0).fit(X[rows], y[rows])
        theirs = LogisticRegression(C=1 / (1e-3 * len(rows)), tol=1e-8, max_iter=5000).fit(X[rows], y[rows])
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
        np.testing.assert_allclose(ours.predict_proba(X[rows]), theirs.predict_proba(X[rows]), atol=1e-4)


def test_regressor_is_ridge():
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    Y = np.column_stack([y, -y + X[:, 0]])
    ours = LinearRegressor(alpha=0.1, tol=1e-12, max_iter=5000, random_state=0).fit(X, Y)
    theirs = Ridge(alpha=0.1 * len(y)).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6)
    assert LinearRegressor(alpha=0.1, random_state=0).fit(X, y).predict(X).shape == (len(y),)


@pytest.mark.parametrize("loss", ONE_VS_REST)
@pytest.mark.parametrize("sparse", [False, True])
def test_multilabel(loss, sparse):
    X, Y = make_multilabel_classification(200, 15, n_classes=6, random_state=0)
    Y[:, 2] = 0  # a label that no row has
    X = X / X.max()
    model = LinearClassifier(loss=loss, alpha=1e-3, max_iter=500, random_state=0).fit(
        X, sp.csr_matrix(Y) if sparse else Y
    )
    predicted = model.predict(X)
    assert sp.issparse(predicted) == sparse
    assert predicted.shape == Y.shape
    assert model.coef_.shape == (6, 15)
    assert ((predicted.toarray() if sparse else predicted) == Y).mean() > 0.8
    assert predicted[:, 2].sum() == 0
    # The columns are independent problems: each is the two-class fit.
    args = {"loss": loss, "alpha": 1e-2, "tol": 1e-6, "max_iter": 5000, "random_state": 0}
    alone = LinearClassifier(**args).fit(X, Y[:, 1])
    together = LinearClassifier(**args).fit(X, Y[:, :2])
    np.testing.assert_allclose(together.coef_[1], alone.coef_[0], atol=5e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_integer_weights_are_repeated_rows(loss, intercept):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    args = {"loss": loss, "alpha": 1e-2, "fit_intercept": intercept, "tol": 1e-9, "max_iter": 5000, "random_state": 0}
    weighted = LinearClassifier(**args).fit(X, y, sample_weight=weights)
    repeated = LinearClassifier(**args).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-8)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-3)


@pytest.mark.parametrize("solver", [name for name, solver in SOLVERS.items() if solver.certified])
def test_integer_weights_are_repeated_rows_to_every_solver(solver):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    margins = dict.fromkeys(("sdca_active", "sdca_dp"), "crammer_singer")
    loss = {**margins, "cd": "log_loss", "interior_point": "hinge"}.get(solver, "multinomial")
    model = LinearClassifier(loss, solver=solver, tol=1e-3, max_iter=5000, random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    repeated = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.alpha_ == pytest.approx(repeated.alpha_)
    assert max(weighted.duality_gap_, repeated.duality_gap_) <= 1e-3
    # They have the same least objective: the lower bound of each is below the other's.
    assert weighted.history_.last.dual <= repeated.objective_ * (1 + 1e-12)
    assert repeated.history_.last.dual <= weighted.objective_ * (1 + 1e-12)


def test_class_weight_is_sample_weight(digits):
    X, y = digits
    by_class = {k: 1.0 + (k == 3) for k in range(10)}
    args = {"alpha": 1e-3, "random_state": 0}
    one = LinearClassifier(class_weight=by_class, **args).fit(X, y)
    other = LinearClassifier(**args).fit(X, y, sample_weight=1.0 + (y == 3))
    np.testing.assert_array_equal(one.coef_, other.coef_)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_in_any_form_give_the_same_model(digits, loss, tmp_path):
    X, y = digits
    stored = tmp_path / "X.npy"
    np.save(stored, X)
    shuffled = sp.csr_matrix(X)
    shuffled.indices, shuffled.data = shuffled.indices.copy(), shuffled.data.copy()
    for i in range(shuffled.shape[0]):  # unsorted rows
        part = slice(shuffled.indptr[i], shuffled.indptr[i + 1])
        shuffled.indices[part], shuffled.data[part] = shuffled.indices[part][::-1], shuffled.data[part][::-1]
    shuffled.has_sorted_indices = False
    halves = sp.csr_matrix(X)
    halves = sp.csr_matrix(  # each entry twice, half as large
        (np.repeat(halves.data / 2, 2), np.repeat(halves.indices, 2), halves.indptr * 2), shape=X.shape
    )
    wide = sp.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    locked = X.copy()
    locked.flags.writeable = False
    frozen = sp.csr_matrix(X)
    for array in (frozen.data, frozen.indices, frozen.indptr):
        array.flags.writeable = False
    forms = {
        "CSR": sp.csr_matrix(X),
        "CSR array": sp.csr_array(X),
        "CSC": sp.csc_matrix(X),
        "unsorted": shuffled,
        "duplicates": halves,
        "int64": wide,
        "read-only": locked,
        "read-only CSR": frozen,
        "Fortran": np.asfortranarray(X),
        "memory map": np.load(stored, mmap_mode="r"),
        "frame": pd.DataFrame(X),
    }
    args = {"loss": loss, "alpha": 1e-2, "tol": 1e-5, "max_iter": 500, "random_state": 0}
    reference = LinearClassifier(**args).fit(X, y)
    for form, data in forms.items():
        model = LinearClassifier(**args).fit(data, y)
        assert model.n_iter_ == reference.n_iter_, form
        np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-7, err_msg=form)
        np.testing.assert_array_equal(model.predict(data), reference.predict(X))


def test_input_is_left_alone(digits):
    X, y = digits
    data = sp.csr_matrix(X)
    before = data.copy()
    LinearClassifier(alpha=0.1, tol=0.1, random_state=0).fit(data, y)
    assert (data != before).nnz == 0
    assert data.dtype == before.dtype


def test_float32_stays_float32(digits):
    X, y = digits
    single = LinearClassifier(alpha=1e-3, random_state=0).fit(X.astype(np.float32), y)
    double = LinearClassifier(alpha=1e-3, random_state=0).fit(X, y)
    assert single.coef_.dtype == np.float32
    assert single.decision_function(X.astype(np.float32)).dtype == np.float32
    assert double.coef_.dtype == np.float64
    assert LinearClassifier(dtype=np.float32, alpha=1e-3, random_state=0).fit(X, y).coef_.dtype == np.float32
    np.testing.assert_allclose(single.coef_, double.coef_, atol=1e-3)


@pytest.mark.parametrize(
    "estimator",
    [LinearClassifier("log_loss", solver="sdca", random_state=0), StagewiseClassifier(n_blocks=1, random_state=0)],
)
def test_float16_rows_are_float32_rows(digits, estimator):
    """And not float64 ones, with twice the bytes; where a solver reads them as they are, see test_array_problem."""
    X, y = (digits[0][:300] / 16).astype(np.float16), digits[1][:300]
    halves, floats = (clone(estimator).fit(Z, y) for Z in (X, X.astype(np.float32)))
    assert np.array_equal(halves.decision_function(X), floats.decision_function(X.astype(np.float32)))
    assert halves.decision_function(X).dtype == np.float32
    if isinstance(estimator, LinearClassifier):
        assert halves.coef_.dtype == np.float32


@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer", "log_loss", "squared_hinge"])
def test_threads_never_change_the_result(loss):
    rng = np.random.default_rng(0)
    X = sp.random(600, 80, 0.1, format="csr", random_state=0)
    y = rng.integers(0, 150, 600)
    fits = [
        LinearClassifier(loss, alpha=1e-4, max_iter=5, tol=0.0, n_jobs=n_jobs, random_state=0)
        for n_jobs in (None, 1, 2, -1)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        coefs = [model.fit(X, y).coef_ for model in fits]
    for coef in coefs[1:]:
        np.testing.assert_array_equal(coef, coefs[0])


def test_same_seed_same_model(digits):
    X, y = digits
    one, two = (LinearClassifier(random_state=3, alpha=1e-2).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_place_of_arrays_in_memory_changes_no_bit(digits, loss):
    X, y = digits
    X = X[:300].astype(np.float32)
    rng = np.random.default_rng(0)
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(40):
            held = [np.empty(size, np.int8) for size in rng.integers(1, 5000, rng.integers(0, 50))]
            found.add(
                LinearClassifier(loss, alpha=1e-4, max_iter=3, random_state=0).fit(X.copy(), y[:300]).coef_.tobytes()
            )
            del held
    assert len(found) == 1


def test_many_classes_use_sparse_duals():
    rng = np.random.default_rng(0)
    centers = sp.random(120, 400, 0.05, format="csr", random_state=1)
    y = np.repeat(np.arange(120), 6)
    X = (centers[y] + 0.1 * sp.random(720, 400, 0.02, format="csr", random_state=2)).tocsr()
    shuffle = rng.permutation(720)
    X, y = X[shuffle], y[shuffle]
    args = {"loss": "crammer_singer", "alpha": 1e-4, "tol": 1e-5, "max_iter": 1000, "random_state": 0}
    for intercept in (True, False):
        auto = LinearClassifier(fit_intercept=intercept, **args).fit(X, y)
        dense = LinearClassifier(solver="sdca", fit_intercept=intercept, **args).fit(X, y)
        assert auto.objective_ == pytest.approx(dense.objective_, rel=2e-5)
        assert auto.score(X, y) == 1.0
    # The active-set solver certifies in its own rhythm: not in the same epochs as the dense one.
    assert all(record.relative_gap >= 0 for record in auto.history_)


def test_elastic_net_is_sparse(digits):
    X, y = digits
    counts = [
        np.count_nonzero(LinearClassifier(alpha=1e-2, l1_ratio=ratio, random_state=0, max_iter=500).fit(X, y).coef_)
        for ratio in (0.0, 0.5, 0.9)
    ]
    assert counts[0] > counts[1] > counts[2] > 0


def test_warm_start_goes_on(digits):
    X, y = digits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LinearClassifier(alpha=1e-3, tol=1e-6, max_iter=4, warm_start=True, random_state=0).fit(X, y)
    first = model.objective_
    model.set_params(max_iter=200).fit(X, y)
    assert model.duality_gap_ <= 1e-6
    assert model.objective_ < first
    cold = LinearClassifier(alpha=1e-3, tol=1e-6, max_iter=200, random_state=0).fit(X, y)
    assert model.n_iter_ < cold.n_iter_
    # Another alpha and other targets: the old duals are used where they are feasible, dropped where they are not.
    model.set_params(alpha=2e-3).fit(X, y)
    assert model.duality_gap_ <= 1e-6
    model.fit(X, (y + 1) % 10)
    assert model.duality_gap_ <= 1e-6
    assert model.score(X, (y + 1) % 10) > 0.95


def test_pickle_clone_and_grid_search(digits):
    X, y = digits
    model = LinearClassifier(alpha=1e-3, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert clone(model).get_params() == model.get_params()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LinearClassifier(random_state=0)),
        {"linearclassifier__alpha": [1e-2, 1e-1]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.9


def test_feature_names_are_kept_and_checked():
    frame, y = load_iris(return_X_y=True, as_frame=True)
    model = LinearClassifier(alpha=1e-2, max_iter=300, random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={frame.columns[0]: "other"}))


def test_empty_rows_and_rare_classes(digits):
    X, y = digits
    X = sp.csr_matrix(X)
    X = sp.vstack([X, sp.csr_matrix((5, 64))]).tocsr()  # empty rows
    y = np.append(y, [7, 7, 3, 99, 3])  # a class whose one row is empty
    for loss in (*LOSSES, CrammerSinger(gamma=0), SmoothHinge(gamma=0)):
        model = LinearClassifier(loss, alpha=1e-2, max_iter=2000, random_state=0).fit(X, y)
        assert model.duality_gap_ <= 1e-3
        assert 99 in model.classes_
        assert np.isfinite(model.coef_).all()


def test_object_and_boolean_labels(digits):
    X, y = digits
    kinds = {"object": np.array([f"c{k}" for k in y], object), "bool": y > 4, "float": y.astype(float)}
    for kind, labels in kinds.items():
        model = LinearClassifier(alpha=1e-2, random_state=0).fit(X, labels)
        assert set(np.unique(model.predict(X))) <= set(np.unique(labels)), kind


BAD = [
    ({}, {"X": np.array([[np.nan, 1.0], [0.0, 1.0]])}, "NaN"),
    ({}, {"X": np.array([[np.inf, 1.0], [0.0, 1.0]])}, "infinity"),
    ({}, {"X": np.zeros(2)}, "2D array"),
    ({}, {"X": np.zeros((3, 2))}, "inconsistent numbers of samples"),
    ({}, {"y": [1, 1]}, "y must have at least 2 classes, got one class only"),
    ({}, {"y": [0.5, 1.7]}, "Unknown label type"),
    ({}, {"y": np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")}, r"datetime64\[D\], which a model file cannot"),
    ({}, {"y": [date(2026, 1, 1), date(2026, 1, 2)]}, "labels of type date, which cannot be classes: pass texts"),
    ({}, {"y": [np.nan, 1.0]}, "NaN"),
    ({}, {"sample_weight": [-1.0, 1.0]}, "[Nn]egative"),
    ({}, {"sample_weight": [0.0, 0.0]}, "non-zero number"),
    ({}, {"sample_weight": [1.0]}, "sample_weight"),
    ({}, {"y": [[1, 1], [0, 1]]}, "multi-label"),
    ({"alpha": 0.0}, {}, r"The 'alpha' parameter of LinearClassifier must be .*\(0.0, inf\).* Got 0.0 instead"),
    ({"alpha": -1.0}, {}, "'alpha' parameter"),
    ({"alpha": np.nan}, {}, "'alpha' parameter"),
    ({"alpha": np.inf}, {}, "'alpha' parameter"),
    ({"alpha": "1"}, {}, "'alpha' parameter"),
    ({"l1_ratio": 1.1}, {}, "The 'l1_ratio' parameter of LinearClassifier must be"),
    ({"l1_ratio": np.nan}, {}, "'l1_ratio' parameter"),
    ({"fit_intercept": "yes"}, {}, "'fit_intercept' parameter"),
    ({"solver": SDCA(option="VI")}, {}, "The 'option' parameter of SDCA must be"),
    ({"solver": SDCA(sampling="cyclic")}, {}, "The 'sampling' parameter of SDCA must be"),
    ({"tol": -1e-3}, {}, "'tol' parameter"),
    ({"tol": np.nan}, {}, "'tol' parameter"),
    ({"max_iter": 0}, {}, "'max_iter' parameter"),
    ({"max_iter": 2.5}, {}, "'max_iter' parameter"),
    ({"warm_start": "yes"}, {}, "'warm_start' parameter"),
    ({"loss": CrammerSinger(gamma=-0.1)}, {}, "The 'gamma' parameter of CrammerSinger must be"),
    ({"loss": SmoothHinge(gamma=np.inf)}, {}, "The 'gamma' parameter of SmoothHinge must be"),
    ({"loss": "hinge loss"}, {}, "loss must be one of 'multinomial'"),
    ({"loss": Huber()}, {}, r"loss must be one of 'multinomial'.*got Huber\(\)"),
    ({"loss": CrammerSinger}, {}, "loss must be one of 'multinomial'"),
    ({"solver": "simplex"}, {}, "solver must be one of 'auto', 'sdca'"),
    ({"solver": None}, {}, "solver must be one of 'auto', 'sdca'.*got None"),
    ({"solver": "sdca_active"}, {}, "needs a loss with a sparse dual"),
    ({"loss": "hinge", "solver": SDCA(option="V")}, {}, "option 'V' takes steps in proportion to the smoothness"),
    ({"dtype": np.int32}, {}, "dtype must be"),
    ({"n_jobs": 0}, {}, "n_jobs must be"),
    ({"class_weight": "heavy"}, {}, "class_weight"),
    ({"verbose": -1}, {}, "'verbose' parameter"),
    ({"dtype": np.float32}, {"X": np.array([[1e30, 1.0], [0.0, 1.0]])}, "squared norm"),
]


@pytest.mark.parametrize(("parameters", "data", "message"), BAD, ids=[str(b[2]) + str(b[0]) for b in BAD])
def test_bad_input_is_refused_with_a_sentence(parameters, data, message):
    arguments = {"X": np.eye(2), "y": [0, 1], **data}
    with pytest.raises(ValueError, match=message):
        LinearClassifier(**parameters).fit(**arguments)


def test_regressor_refuses():
    X = np.eye(3)
    with pytest.raises(ValueError, match=r"loss must be one of 'squared', 'huber',.*got 'absolute'"):
        LinearRegressor(loss="absolute").fit(X, [1.0, 2.0, 3.0])
    for epsilon in (0.0, -1.0, np.inf, np.nan, "1"):
        with pytest.raises(ValueError, match="The 'epsilon' parameter of Huber must be a float in the range"):
            LinearRegressor(Huber(epsilon=epsilon)).fit(X, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="y must contain numbers"):
        LinearRegressor().fit(X, ["a", "b", "c"])
    with pytest.raises(ValueError, match="NaN"):
        LinearRegressor().fit(X, [1.0, np.nan, 3.0])


def test_prediction_refuses(digits):
    X, y = digits
    with pytest.raises(NotFittedError):
        LinearClassifier().predict(X)
    model = LinearClassifier(alpha=1e-2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :5])
    with pytest.raises(ValueError, match="k"):
        model.predict_topk(X, k=11)
    with pytest.raises(AttributeError):
        LinearClassifier(loss="hinge").predict_proba  # noqa: B018


def test_column_vector_y_is_flattened_with_a_warning(digits):
    X, y = digits
    with pytest.warns(DataConversionWarning):
        LinearClassifier(alpha=1e-2, random_state=0).fit(X, y[:, None])


def test_unmet_tolerance_warns_with_the_figures(digits):
    X, y = digits
    with pytest.warns(ConvergenceWarning, match=r"after 2 iterations the certified relative gap is .*, tol is 1e-09"):
        LinearClassifier(alpha=1e-5, tol=1e-9, max_iter=2).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="float32 arithmetic certifies gaps down to 3.8e-06.*float64"):
        model = LinearClassifier(alpha=1e-2, tol=1e-12, max_iter=300, dtype=np.float32).fit(X, y)
    assert model.history_.outcome == "precision"
    assert model.n_iter_ < 300
    assert 0 < model.duality_gap_ < 4e-6


def test_what_does_not_fit_is_refused_before_any_work(digits, monkeypatch):
    X, y = digits
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 1000)
    with pytest.raises(MemoryError, match=r"needs .* KiB besides the data .* available"):
        LinearClassifier().fit(X, y)


def test_progress_goes_to_standard_error(digits, capsys):
    X, y = digits
    LinearClassifier(alpha=1e-2, verbose=1, random_state=0).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "relative gap" in err
    assert len(err.splitlines()) >= 3
