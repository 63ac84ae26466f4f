"""Data frames, nullable types, sparse formats and scikit-learn's conventions for them, as input of the estimators."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from manyclass import (
    CalibratedLeastSquaresClassifier,
    GeneralizedLeastSquaresClassifier,
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    RandomFourier,
    StagewiseClassifier,
    TextVectorizer,
    regularization_path,
)

#: Major and minor version of scikit-learn.
SKLEARN = tuple(map(int, sklearn.__version__.split(".")[:2]))

X, Y = load_iris(return_X_y=True)
NAMES = [f"f{place}" for place in range(4)]
WORDS = np.array(["a", "b", "c"])


def polars(X, y):
    pl = pytest.importorskip("polars")
    return pl.DataFrame(X, schema=NAMES), pl.Series(y)


def arrow(X, y):
    pa = pytest.importorskip("pyarrow")
    return pa.table({name: X[:, place] for place, name in enumerate(NAMES)}), pa.array(y)


#: name -> (X, y) as arrays -> as frames of a library.
FRAMES = {
    "pandas": lambda X, y: (pd.DataFrame(X, columns=NAMES), pd.Series(y)),
    "pandas-nullable": lambda X, y: (
        pd.DataFrame(X, columns=NAMES).astype("Float64"),
        pd.Series(y).astype("string" if y.dtype.kind == "U" else "Int64"),
    ),
    "pandas-category": lambda X, y: (pd.DataFrame(X, columns=NAMES), pd.Series(y).astype("category")),
    "polars": polars,
    "pyarrow": arrow,
}
ESTIMATORS = [
    LinearClassifier(random_state=0),
    LinearClassifierCV(alphas=[1e-2], cv=2, random_state=0),
    GeneralizedLeastSquaresClassifier(),
    CalibratedLeastSquaresClassifier(max_iter=3),
    StagewiseClassifier("fourier", block_size=20, n_blocks=2, random_state=0),
]


def quietly(call, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return call(*args, **options)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_frames_give_the_model_of_the_array_and_keep_names(estimator, kind):
    plain = quietly(clone(estimator).fit, X, Y)
    frame, _ = FRAMES[kind](X, Y)
    model = quietly(clone(estimator).fit, frame, Y)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.predict(frame).tolist() == plain.predict(X).tolist()
    # Columns of a frame are stored one by one: sums have another order, and fits stop at a gap of 1e-3.
    np.testing.assert_allclose(model.decision_function(frame), plain.decision_function(X), atol=0.05)


@pytest.mark.parametrize("kind", FRAMES)
def test_labels_of_every_kind(kind):
    for y in (Y, WORDS[Y]):
        frame, labels = FRAMES[kind](X, y)
        model = LinearClassifier(random_state=0).fit(frame, labels)
        assert model.classes_.tolist() == sorted(set(y.tolist()))
        assert type(model.predict(frame)[0].item() if y is Y else "") in (int, str)
        assert (model.predict(frame) == y).mean() > 0.9
        watched = LinearClassifier(random_state=0, early_stopping=50).fit(frame, labels, X_val=frame, y_val=labels)
        assert watched.history_.validation[-1].score == model.score(frame, labels)


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_in_another_order_are_refused(kind):
    model = LinearClassifier(random_state=0).fit(FRAMES[kind](X, Y)[0], Y)
    other = pd.DataFrame(X[:, ::-1], columns=NAMES[::-1])
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(other)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_columns_that_are_not_numbers_are_named(estimator):
    frame = pd.DataFrame(X, columns=NAMES)
    for column, shown in (
        (WORDS[Y], "str|object"),
        (pd.Categorical(Y), "category"),
        (pd.Timestamp("2020-01-01"), "datetime64"),
    ):
        wrong = frame.assign(kind=column)
        with pytest.raises(ValueError, match=rf"X has columns that are not numbers: 'kind' \(({shown}).*OneHotEncoder"):
            clone(estimator).fit(wrong, Y)
    numbers = frame.assign(whole=Y.astype("int8"), flag=Y > 1, thing=Y.astype(object))
    quietly(clone(estimator).fit, numbers, Y)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_columns_of_other_libraries_that_are_not_numbers_are_named(library):
    frame, _ = FRAMES[library](X, Y)
    words = FRAMES[library](X, WORDS[Y])[1]
    wrong = frame.with_columns(words.alias("kind")) if library == "polars" else frame.append_column("kind", words)
    with pytest.raises(ValueError, match=r"X has columns that are not numbers: 'kind' \([Ss]tring\)"):
        LinearClassifier().fit(wrong, Y)
    with pytest.raises(ValueError, match="X_val has columns that are not numbers"):
        LinearClassifier().fit(frame, Y, X_val=wrong, y_val=Y)


def test_nullable_booleans_are_booleans():
    frame, _ = FRAMES["pandas-nullable"](X, Y)
    model = LinearClassifier().fit(frame, pd.Series(Y[0] == Y).astype("boolean"))
    assert model.classes_.dtype == bool


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_models_and_paths_take_the_frames_of_their_fit(kind):
    frame, _ = FRAMES[kind](X, Y)
    path = regularization_path(LinearClassifier(l1_ratio=0.5, random_state=0), frame, Y, n_alphas=3)
    model = path.model(path.alphas[1])
    np.testing.assert_array_equal(model.decision_function(frame), model.decision_function(X))
    np.testing.assert_array_equal(model.predict(frame), model.predict(X))
    names = list(frame.columns)
    with pytest.raises(ValueError, match="X must have the columns of the fit in their order, column 0 is"):
        model.predict(frame[names[::-1]])


def test_missing_values_are_told():
    frame, labels = FRAMES["pandas-nullable"](X, Y)
    holes = frame.copy()
    holes.iloc[3, 0] = pd.NA
    with pytest.raises(ValueError, match=r"X contains NaN, .* in the columns 'f0' \(1\): put .*TableEncoder"):
        LinearClassifier().fit(holes, Y)
    labels[3] = pd.NA
    for y in (labels, pd.Series([None, *WORDS[Y[1:]]])):
        with pytest.raises(ValueError, match="y has 1 missing values: leave these rows out"):
            LinearClassifier().fit(frame, y)


@pytest.mark.parametrize(
    "estimator", [LinearClassifier, LinearClassifierCV, StagewiseClassifier], ids=lambda e: e.__name__
)
@pytest.mark.parametrize("missing", [None, np.nan, np.float32("nan"), pd.NA, pd.NaT], ids=str)
@pytest.mark.parametrize("kind", [np.asarray, list, tuple, pd.Series])
def test_missing_labels_are_no_class(estimator, missing, kind):
    """NumPy would make the text "nan" of them in a list, and a class of that text would be fitted without a word."""
    labels = WORDS[Y].astype(object)
    labels[3] = missing
    with pytest.raises(ValueError, match="y has 1 missing values: leave these rows out"):
        estimator().fit(X, kind(labels))
    model = LinearClassifier(random_state=0).fit(X, WORDS[Y])
    with pytest.raises(ValueError, match="y has 1 missing values: leave these rows out"):
        model.score(X, kind(labels))


@pytest.mark.parametrize("kind", [list, tuple, np.asarray])
def test_none_is_no_real_target(kind):
    with pytest.raises(ValueError, match="y has 1 missing values: leave these rows out"):
        LinearRegressor().fit(X, kind([None, *X[1:, 0]]))


@pytest.mark.filterwarnings("ignore:Constructing a DIA matrix")
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
def test_every_sparse_format_gives_the_model_of_csr(format, kind, index):
    rows = sp.csr_matrix(X * (X > 1))
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    model = LinearClassifier(random_state=0).fit(rows, Y)
    given = (sp.csr_array(rows) if kind == "array" else rows).asformat(format)
    other = LinearClassifier(random_state=0).fit(given, Y)
    # Some formats store zeros, which only change the order of sums.
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-6)
    np.testing.assert_array_equal(other.predict(given), model.predict(rows))


def test_a_sparse_frame_of_pandas_stays_sparse():
    rows = X * (X > 1)
    frame = pd.DataFrame(rows, columns=NAMES).astype(pd.SparseDtype(float, 0.0))
    expected = LinearClassifier(random_state=0).fit(sp.csr_matrix(rows), Y)
    np.testing.assert_array_equal(LinearClassifier(random_state=0).fit(frame, Y).coef_, expected.coef_)


def test_real_targets_and_indicators_as_frames():
    frame, _ = FRAMES["pandas-nullable"](X, Y)
    real = LinearRegressor(random_state=0).fit(frame, frame[["f0", "f1"]])
    assert real.predict(frame).shape == (150, 2)
    indicator = pd.DataFrame(np.eye(3, dtype=int)[Y])
    model = LinearClassifier("log_loss", random_state=0).fit(frame, indicator)
    assert model.predict(frame).shape == (150, 3)


# --- scikit-learn's conventions ---------------------------------------------------------------------------------------


def test_transformers_name_their_columns_and_make_frames():
    frame, _ = FRAMES["pandas"](X, Y)
    block = RandomFourier(6, random_state=0).set_output(transform="pandas").fit(frame)
    made = block.transform(frame)
    assert made.columns.tolist() == block.get_feature_names_out().tolist()
    assert made.shape == (150, len(made.columns))
    piped = make_pipeline(StandardScaler(), LinearClassifier(random_state=0)).set_output(transform="pandas")
    piped.fit(frame, Y)
    assert piped[-1].feature_names_in_.tolist() == NAMES
    assert piped[:-1].get_feature_names_out().tolist() == NAMES
    vectorizer = TextVectorizer().fit(["red fish", "blue fish"])
    assert vectorizer.get_feature_names_out().tolist() == ["blue", "fish", "red"]


@pytest.mark.skipif(SKLEARN < (1, 8), reason="earlier versions do not route the weights of a score through a pipeline")
def test_metadata_is_routed():
    """Weights reach the fits of a search over a pipeline, held-out rows those of a pipeline."""
    weights = np.where(Y == 2, 0.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = LinearClassifier(random_state=0, solver="lbfgs", max_iter=1000)
        inner = inner.set_fit_request(sample_weight=True, X_val=True, y_val=True).set_score_request(sample_weight=True)
        piped = make_pipeline(MaxAbsScaler(), inner)
        search = GridSearchCV(piped, {"linearclassifier__alpha": [1e-2, 1e-3]}, cv=2)
        search.fit(X, Y, sample_weight=weights)
        best = search.best_estimator_
        direct = make_pipeline(MaxAbsScaler(), clone(inner).set_params(alpha=best[-1].alpha))
        direct.fit(X, Y, sample_weight=weights)
        np.testing.assert_array_equal(best[-1].coef_, direct[-1].coef_)
        assert (best.predict(X) < 2).all(), "rows of weight zero count for nothing"
        piped.fit(X, Y, sample_weight=weights, X_val=MaxAbsScaler().fit_transform(X), y_val=Y)
        assert piped[-1].history_.validation[-1].score == piped.score(X, Y)
    routed = LinearRegressor().set_params(alpha=1.0)
    with pytest.raises(RuntimeError, match="metadata routing"):
        routed.set_fit_request(sample_weight=True)
