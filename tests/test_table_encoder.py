"""Tables of numbers, categories and texts: the encoder, its state, files of all formats, and models of tables."""

from __future__ import annotations

import csv
import datetime
import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import manyclass
from manyclass import LinearClassifier, LinearModel, TableEncoder, TextVectorizer
from manyclass.io import DataFormatError, read
from manyclass.io.encoder import restore_vectorizer
from manyclass.io.store import RowStore
from test_data_typed import write_arrow, write_jsonl, write_parquet

N = 60
RNG = np.random.default_rng(0)
COLUMNS = {
    "id": list(range(N)),
    "age": [None if i % 9 == 8 else int(x) for i, x in enumerate(RNG.integers(18, 80, N))],
    "income": [round(float(x), 3) for x in RNG.normal(1e4, 3e3, N)],
    "active": [bool(x) for x in RNG.random(N) < 0.5],
    "color": [
        None if i % 7 == 6 else ["red", "blue", "green, light"][int(k)] for i, k in enumerate(RNG.integers(0, 3, N))
    ],
    "postcode": [f"0{k}" for k in RNG.integers(100, 105, N)],
    "title": [["lost my card", "pay the rent", ""][int(k)] for k in RNG.integers(0, 3, N)],
    "queue": [["a", "b"][int(k)] for k in RNG.integers(0, 2, N)],
}
OPTIONS = {"text_column": "title", "number_columns": "auto", "category_columns": "auto", "label_column": "queue"}
NAMES = [
    *("age", "age missing", "income", "active", "color=blue", "color=green, light", "color=red", "color missing"),
    *(f"postcode=0{k}" for k in range(100, 105)),
    *(f"title:{term}" for term in ("card", "lost", "my", "pay", "rent", "the")),
]


def write_csv(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values())])


def write_tsv(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t").writerows([list(columns), *zip(*columns.values())])


WRITERS = {"csv": write_csv, "tsv": write_tsv, "jsonl": write_jsonl, "parquet": write_parquet, "arrow": write_arrow}


def polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


FRAMES = {
    "dict": dict,
    "dicts": lambda columns: [dict(zip(columns, row)) for row in zip(*columns.values())],
    "pandas": pd.DataFrame,
    "pandas, category": lambda columns: pd.DataFrame(columns).astype({"color": "category", "postcode": "category"}),
    "pandas, nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "polars": polars,
    "pyarrow": arrow,
}


def table(folder, text, name="rows.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def features(columns=COLUMNS):
    """The features of the columns, and the encoder that was fitted to them."""
    encoder = TableEncoder(text_column="title", ignore_columns="queue")
    return encoder.fit_transform(columns), encoder


def same(X, Z) -> bool:
    return X.shape == Z.shape and X.dtype == Z.dtype and (X != Z).nnz == 0


# --- the same features from everywhere ------------------------------------------------------------------------------


@pytest.mark.parametrize("format", WRITERS)
def test_every_format_gives_the_features_of_the_columns(format, tmp_path):
    X, encoder = features()
    path = tmp_path / f"rows.{format}"
    WRITERS[format](path, COLUMNS)
    data = read(path, **OPTIONS)
    assert same(data.X, X)
    assert data.y.tolist() == COLUMNS["queue"]
    assert data.vectorizer.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist() == NAMES
    assert same(read(path, layout=data.layout, vectorizer=data.vectorizer).X, X)
    assert data.notes[0] == (
        "numbers from 'age', 'income', 'active', categories from 'color' (3), 'postcode' (5), texts from 'title', "
        "labels from 'queue'"
    )
    assert "not used: 'id'" in data.notes
    assert "6 rows of 60 without a number in column 'age'" in data.notes
    assert "8 rows of 60 without a category in column 'color'" in data.notes


@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_gives_the_features_of_the_columns(kind):
    X, encoder = features()
    frame = FRAMES[kind](COLUMNS)
    own, fitted = features(frame)
    assert same(own, X)
    assert same(encoder.transform(frame), X)
    assert fitted.get_feature_names_out().tolist() == NAMES


def test_features_are_those_of_scikit_learn():
    X, encoder = features()
    frame = pd.DataFrame(COLUMNS)
    dense = X[:, :4].toarray()
    there = frame["age"].notna().to_numpy()
    numbers = StandardScaler().fit_transform(frame[["age", "income", "active"]].astype(float))
    np.testing.assert_allclose(dense[:, [0, 2, 3]][there], numbers[there], rtol=1e-6, atol=1e-7)
    assert dense[~there, 0].tolist() == [0] * 6, "the mean"
    assert dense[:, 1].tolist() == (~there).tolist()
    one_hot = OneHotEncoder(dtype=np.float32).fit_transform(frame[["postcode"]])
    assert same(X[:, 8:13].tocsr(), sp.csr_matrix(one_hot))
    assert same(X[:, 13:].tocsr(), TextVectorizer().fit_transform(COLUMNS["title"]))
    assert encoder.n_columns == X.shape[1] == 19


def test_numbers_alone_are_dense(tmp_path):
    write_csv(tmp_path / "rows.csv", {name: COLUMNS[name] for name in ("age", "income", "queue")})
    X = read(tmp_path / "rows.csv", label_column="queue", dtype=np.float64).X
    assert isinstance(X, np.ndarray)
    assert X.flags.c_contiguous
    np.testing.assert_allclose(X[:, 2].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, 2].std(), 1)
    assert TableEncoder(["age"], None).fit_transform(COLUMNS).shape == (N, 2)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-1000, 1000)),
            st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=5),
        ),
        min_size=2,
        max_size=20,
    ).filter(lambda rows: any(x is not None for x, _ in rows) and any(name.strip() for _, name in rows))
)
def test_any_table_survives_csv_and_its_state(tmp_path_factory, rows):
    columns = {"x": [x for x, _ in rows], "name": [name for _, name in rows]}
    encoder = TableEncoder("x", "name")
    X = encoder.fit_transform(columns)
    path = tmp_path_factory.mktemp("any") / "rows.csv"
    write_csv(path, columns)
    assert same(read(path, number_columns="x", category_columns=["name"], with_labels=False).X, X)
    assert same(read(path, vectorizer=encoder, with_labels=False).X, X)
    parameters, arrays = encoder.to_state()
    again = restore_vectorizer(json.loads(json.dumps(parameters)), arrays)
    assert same(again.transform(columns), X)
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()


# --- which columns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        ("x,y\n1,a\n2,b\n", {}, ["x"]),
        ("a,b,color,label\n1,x,red,A\n2,y,blue,B\n", {"ignore_columns": "b"}, ["a", "color=blue", "color=red"]),
        ("a,b,label\n1,x,A\n2,y,B\n", {"number_columns": ["a"]}, ["a"]),
        ("a,b,label\n1,x,A\n2,y,B\n", {"category_columns": "a"}, ["a=1", "a=2"]),
        ("a,b,label\n1,x,A\n2,y,B\n", {"category_columns": [0, 1]}, ["a=1", "a=2", "b=x", "b=y"]),
        ("1,x,A\n2,y,B\n", {"label_column": 2}, ["0", "1=x", "1=y"]),
        ("1,2,A\n3,4,B\n", {"label_column": 2, "number_columns": [1]}, ["1"]),
        ("a,b,c\n1,x,A\n2,y,B\n", {"label_column": 2}, ["a", "b=x", "b=y"]),  # a name above numbers: a header
        ("code,a,flag\nA,007,true\nB,7,false\n", {}, ["flag", "a=007", "a=7"]),
        ("code,a,b\nA,NA,1\nB,2,nan\n", {}, ["a", "a missing", "b", "b missing"]),
        ("code,text,a\nA,one,1\nB,two,2\n", {"number_columns": "auto"}, ["a"]),
        ("code,text,a\nA,one,1\nB,two,2\n", {"number_columns": "a", "text_column": 1}, ["a", "text:one", "text:two"]),
    ],
)
def test_which_columns_give_which_features(text, options, columns, tmp_path):
    data = read(table(tmp_path, text), **options)
    assert data.vectorizer.get_feature_names_out().tolist() == columns
    assert data.y.tolist() == (["a", "b"] if columns == ["x"] else ["A", "B"])


def test_a_table_with_texts_is_one_of_texts_unless_other_columns_are_asked_for(tmp_path):
    path = table(tmp_path, "text,age,code\none,1,A\ntwo,2,B\n")
    assert isinstance(read(path).vectorizer, TextVectorizer)
    assert read(path, text_column="text", number_columns="age").vectorizer.columns == ["age", "text"]


MANY = "".join(f"n{i},{i % 2},{'ab'[i % 2]}\n" for i in range(101))


@pytest.mark.parametrize(
    ("text", "options", "line", "what"),
    [
        (
            f"name,x,label\n{MANY}",
            {},
            None,
            r"another value in most rows.*'name' \(101\).*ignore_columns=.*text_column=",
        ),
        ("a,b,label\n1,,A\n2,,B\n", {}, 1, "column 'b' has no value in the first 100 rows.*number_columns="),
        ("a,b,label\n1,,A\n2,,B\n", {"number_columns": "b"}, None, "column 'b' has no number"),
        ("a,b,label\n1,,A\n2,,B\n", {"category_columns": "b"}, None, "column 'b' has no category"),
        (
            "a,b,label\n1,x,A\n2,y,B\n",
            {"number_columns": "b"},
            2,
            "'x' in column 'b' is not a finite.*category_columns=",
        ),
        (
            "day,label\n2024-03-01,A\nNA,B\n2024-03-02T10:00:00+01:00,B\n",
            {},
            1,
            "column 'day' has dates, such as '2024-03-01'; expected numbers.*year, month and.*ignore_columns='day'",
        ),
        ("day,label\n1,A\n2024-03-01 10:00,B\n", {"number_columns": "day"}, 3, "column 'day' has dates, such as"),
        ("a,label\n1,A\n1e999,B\n", {"number_columns": "a"}, 3, "'1e999' in column 'a' is not a finite number"),
        ("a,label\n1e308,A\n1.1e308,B\n", {"number_columns": "a"}, None, "'a' has numbers too large to standardize"),
        ("a,b,label\n1,x,A\n2,B\n", {"number_columns": "a"}, 3, "2 fields; expected 3"),
        ("a,a,label\n1,x,A\n2,y,B\n", {}, 1, "several columns 'a'"),
        ("id,label\n1,A\n2,B\n", {"ignore_columns": "id"}, 1, "no column gives features"),
    ],
)
def test_a_wrong_table_is_named(text, options, line, what, tmp_path):
    with pytest.raises(DataFormatError, match=f"(?s){what}") as caught:
        read(table(tmp_path, text), **options)
    assert caught.value.line == line


def test_a_wrong_value_far_below_is_named_with_its_line(tmp_path):
    path = table(tmp_path, "a,label\n" + "1,A\n2,B\n" * 5000 + "x,A\n")
    with pytest.raises(DataFormatError, match="'x' in column 'a'") as caught:
        read(path, label_column="label")
    assert caught.value.line == 10_002


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"number_columns": "z"}, "number_columns is 'z'; expected a column of"),
        ({"number_columns": ["a"], "category_columns": ["a"]}, "named in number_columns and in category_columns"),
        ({"category_columns": "label"}, "'label' is named in category_columns and has the labels"),
        ({"vectorizer": {"min_df": 2}, "number_columns": "a"}, "vectorizer has min_df for texts, and no column has"),
        ({"vectorizer": TableEncoder("a").fit({"a": [1, 2]}), "number_columns": "a"}, "leave number_columns out"),
    ],
)
def test_wrong_arguments_are_named(options, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        read(table(tmp_path, "a,b,label\n1,x,A\n2,y,B\n"), **options)


def test_ids_may_be_categories_if_they_are_named():
    frame = {"name": [f"n{i}" for i in range(101)]}
    with pytest.raises(ValueError, match="another value in most rows"):
        TableEncoder().fit(frame)
    assert TableEncoder(category_columns="name").fit_transform(frame).shape == (101, 101)


# --- other tables than that of the fit --------------------------------------------------------------------------------


def test_columns_are_found_by_name(tmp_path):
    X, encoder = features()
    order = ["queue", "title", "color", "more", "postcode", "active", "income", "age"]
    columns = {name: COLUMNS.get(name, ["?"] * N) for name in order}
    for format in ("csv", "jsonl"):
        WRITERS[format](tmp_path / f"rows.{format}", columns)
        data = read(tmp_path / f"rows.{format}", vectorizer=encoder, label_column="queue")
        assert same(data.X, X)
        assert data.y.tolist() == COLUMNS["queue"]
    assert same(encoder.transform(pd.DataFrame(columns)), X)


def test_a_missing_column_is_named(tmp_path):
    _, encoder = features()
    columns = {name: values for name, values in COLUMNS.items() if name not in ("age", "color")}
    write_csv(tmp_path / "rows.csv", columns)
    with pytest.raises(DataFormatError, match="lacks 2 columns of the fit, 'age', 'color'"):
        read(tmp_path / "rows.csv", vectorizer=encoder)
    with pytest.raises(ValueError, match="lacks 2 columns of the fit, 'age', 'color'"):
        encoder.transform(pd.DataFrame(columns))
    with pytest.raises(ValueError, match="X, row 0: 'old' in column 'age' is not a finite number"):
        encoder.transform({**COLUMNS, "age": ["old"] * N})


def test_unknown_categories_and_missing_values_are_counted(tmp_path):
    train = read(table(tmp_path, "age,color,code\n1,red,A\n3,blue,B\n"), label_column="code")
    path = table(tmp_path, "age,color,code\n,pink,A\n3,blue,B\n2,,A\n", "new.csv")
    data = read(path, vectorizer=train.vectorizer, layout=train.layout)
    assert data.X.toarray().tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert data.notes[1:] == (
        "1 row of 3 without a number in column 'age'",
        "1 row of 3 without a category in column 'color'",
        "1 row of 3 with a category that the fit did not have in column 'color'",
    )
    with pytest.warns(UserWarning, match=r"no value in column 'color' of .*all\.csv is a category of the fit"):
        read(table(tmp_path, "age,color,code\n1,pink,A\n", "all.csv"), vectorizer=train.vectorizer, layout=train.layout)


def test_without_a_header_the_number_of_columns_counts(tmp_path):
    train = read(table(tmp_path, "1,x,A\n2,y,B\n"), label_column=2)
    path = table(tmp_path, "x,A\ny,B\n", "other.csv")
    with pytest.raises(DataFormatError, match=r"2 columns.*expected 3"):
        read(path, vectorizer=train.vectorizer, layout=train.layout)
    assert read(table(tmp_path, "2,y,B\n"), vectorizer=train.vectorizer, layout=train.layout).y.tolist() == ["B"]


# --- values -----------------------------------------------------------------------------------------------------------


def test_categories_that_are_written_differently_are_the_same():
    encoder = TableEncoder(None, "k").fit({"k": ["1", "2", " 3 "]})
    expected = np.eye(3).tolist()
    for values in ([1, 2, 3], [1.0, 2.0, 3.0], ["1.0", "2", "3"], pd.Series([1, 2, 3], dtype="Int64")):
        assert encoder.transform({"k": values}).toarray().tolist() == expected
    flags = TableEncoder(None, "k").fit({"k": ["True", "False"]})
    assert flags.transform({"k": [True, False]}).toarray().tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("value", [datetime.date(2020, 1, 1), [1], {"a": 1}, b"x"], ids=str)
def test_values_that_are_no_categories_are_told(value):
    with pytest.raises(ValueError, match=r"X, row 1: column 'k' has .*ignore_columns='k'"):
        TableEncoder().fit({"k": ["a", value]})


@pytest.mark.parametrize("make", [list, pd.Series, lambda days: pd.to_datetime(pd.Series(days)), np.array])
def test_columns_of_dates_are_told(make):
    days = make([datetime.date(2024, 3, 1), datetime.date(2024, 3, 2)] * 3)
    for columns in ({}, {"number_columns": "day"}, {"category_columns": "day"}):
        with pytest.raises(ValueError, match=r"column 'day' has dates, such as '2024-03-01.*'; expected numbers"):
            TableEncoder(**columns).fit({"day": days, "x": [1, 2, 3, 4, 5, 6]})
    assert TableEncoder(category_columns=None).fit({"day": days, "x": [1, 2, 3, 4, 5, 6]}).columns == ["x"]


DATES = ("2024-03-01", "2024/03/01", "31/12/2024", "12/31/2024", "1.3.2024", "01.03.2024 10:00", "3/1/2024 9:05 PM")


def save_days(path, day):
    path.write_text("day,shop,label\n" + "".join(f"{day},{'xy'[k % 2]},{'ab'[k % 2]}\n" for k in range(8)))
    return path


@pytest.mark.parametrize("day", DATES)
def test_dates_as_texts_are_told(tmp_path, day):
    with pytest.raises(DataFormatError, match=f"column 'day' has dates, such as {re.escape(repr(day))}; expected"):
        read(save_days(tmp_path / "days.csv", day), label_column="label")


@pytest.mark.parametrize("text", ["13/13/2024", "1.2.3", "10-20-30", "2024-13-01", "1/2", "v1.2.2024"])
def test_texts_like_dates_are_categories(tmp_path, text):
    found = read(save_days(tmp_path / "days.csv", text), label_column="label")
    assert found.vectorizer.category_columns_ == ["day", "shop"]


def test_texts_with_dates_are_categories_where_they_are_named():
    encoder = TableEncoder(None, "day").fit({"day": ["2024-03-01", "2024-06-01"] * 2})
    assert encoder.get_feature_names_out().tolist() == ["day=2024-03-01", "day=2024-06-01"]


def test_columns_that_do_not_vary_are_zero():
    X = TableEncoder().fit_transform({"a": [0.1] * 7, "b": [1, 2, 3, 4, 5, 6, 7]})
    np.testing.assert_allclose(X[:, 0], 0, atol=1e-15)  # the mean of 0.1 is 0.1 to rounding
    with pytest.raises(ValueError, match=r"X, row 0: 1e\+300 in column 'b' is too large"):
        TableEncoder().fit({"b": [1, 2]}).transform({"b": [1e300]})


@pytest.mark.parametrize(
    ("X", "what"),
    [
        (np.eye(2), "X is a ndarray; expected a data frame"),
        (["text"], "X is a list; expected a data frame"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "2 columns 'a'"),
        ({"a": [1], "b": [1, 2]}, "columns of different lengths: 'a' 1, 'b' 2"),
    ],
    ids=str,
)
def test_what_is_no_table_is_told(X, what):
    with pytest.raises(ValueError, match=what):
        TableEncoder().fit(X)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"number_columns": [1]}, "number_columns is"),
        ({"number_columns": "z"}, "number_columns has 'z'; expected names of columns"),
        ({"text_column": "a", "ignore_columns": "a"}, "named in text_column and in ignore_columns"),
        ({"vectorizer": "tfidf"}, "expected a TextVectorizer"),
        ({"dtype": int}, "dtype must be"),
    ],
)
def test_wrong_parameters_are_told(settings, what):
    with pytest.raises(ValueError, match=what):
        TableEncoder(**settings).fit({"a": [1, 2]})
    with pytest.raises(NotFittedError):
        TableEncoder().transform({"a": [1, 2]})


# --- the state --------------------------------------------------------------------------------------------------------


def damaged():
    """Name -> a change of parameters and arrays that makes a state invalid."""

    def put(name, value):
        return lambda parameters, arrays: parameters.update({name: value})

    def array(name, change):
        return lambda parameters, arrays: arrays.update({name: change(arrays[name])})

    found = {
        f"no {name}": lambda p, a, name=name: p.pop(name) for name in ("numbers", "missing", "dtype", "vectorizers")
    }
    found |= {f"no {name}": lambda p, a, name=name: a.pop(name) for name in ("mean", "counts", "offsets", "0.idf")}
    found |= {"numbers": put("numbers", "age"), "texts": put("texts", []), "missing": put("missing", ["queue"])}
    found |= {"twice": put("categories", ["age", "color"]), "dtype": put("dtype", "int8"), "5": put("vectorizers", [5])}
    found |= {"none": put("numbers", None), "dict": put("vectorizers", [{"kind": "bm25"}])}
    found |= {"mean": array("mean", lambda x: x * np.nan), "scale": array("scale", lambda x: x * 0)}
    found |= {"length": array("scale", lambda x: x[:1]), "counts": array("counts", lambda x: x - 1)}
    found |= {"sizes": array("counts", lambda x: x[:1]), "text": array("categories", lambda x: x[:-1])}
    found |= {"same": array("categories", lambda x: np.full_like(x, 65))}
    return found


@pytest.mark.parametrize("change", damaged())
def test_a_damaged_state_is_refused(change):
    parameters, arrays = features()[1].to_state()
    damaged()[change](parameters, arrays)
    with pytest.raises(ValueError, match="the state of the table encoder is damaged"):
        restore_vectorizer(parameters, arrays)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FRAMES)
def test_a_saved_pipeline_predicts_frames(kind, tmp_path):
    frame = FRAMES[kind](COLUMNS)
    encoder = TableEncoder(text_column="title", ignore_columns="queue", vectorizer=TextVectorizer(ngram_range=(1, 2)))
    pipeline = make_pipeline(encoder, LinearClassifier(random_state=0)).fit(frame, COLUMNS["queue"])
    manyclass.save(pipeline, tmp_path / "m")
    model = manyclass.load(tmp_path / "m")
    np.testing.assert_array_equal(model.predict(frame), pipeline.predict(frame))
    np.testing.assert_allclose(model.probabilities(frame), pipeline.predict_proba(frame), rtol=1e-6)
    names = model.names().tolist()
    assert {"income", "color=red", "title:my card"} <= set(names)
    assert set(model.explain(frame, top=2)[0].features) <= set(names)
    assert set(model.top_features("a", 3)[0]) <= set(names)
    X = encoder.transform(frame)
    np.testing.assert_array_equal(model.predict(X), pipeline.predict(frame))
    again = LinearModel.load(tmp_path / "m").to_sklearn()
    np.testing.assert_array_equal(again.predict(frame), pipeline.predict(frame))


def test_a_model_of_rows_refuses_dicts_and_reads_frames_as_before():
    X = pd.DataFrame({"a": [0.0, 1, 2, 3], "b": [1.0, 0, 1, 0]})
    model = LinearClassifier(random_state=0).fit(X, [0, 0, 1, 1]).model_
    with pytest.raises(ValueError, match="got dicts, and this model was not fitted on dicts"):
        model.predict([{"a": 1, "b": 2}])
    with pytest.raises(ValueError, match="X is a list; expected a data frame"):
        model_of_table().predict(["text"])


def model_of_table():
    return make_pipeline(TableEncoder(), LinearClassifier(random_state=0)).fit({"a": [0, 1]}, [0, 1])


def test_the_encoder_in_a_grid_search_and_in_set_output():
    frame = pd.DataFrame(COLUMNS)
    pipeline = make_pipeline(TableEncoder(ignore_columns=["queue", "title"]), LinearClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"tableencoder__number_columns": [None, "auto"]}, cv=2).fit(frame, frame["queue"])
    assert search.best_score_ > 0
    numbers = TableEncoder(["age", "income"], None).set_output(transform="pandas")
    made = numbers.fit_transform(frame)
    assert made.columns.tolist() == ["age", "age missing", "income"]
    assert clone(numbers).get_params()["number_columns"] == ["age", "income"]
    hashed = TableEncoder(None, None, text_column="title", vectorizer=TextVectorizer("hashing", n_features=8)).fit(
        frame
    )
    assert hashed.get_feature_names_out()[3] == "title:3"


def test_a_row_store_keeps_the_encoder(tmp_path):
    write_csv(tmp_path / "rows.csv", COLUMNS)
    data = read(tmp_path / "rows.csv", **OPTIONS)
    from manyclass.io import write

    write(tmp_path / "rows.store", data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = RowStore(tmp_path / "rows.store")
        assert same(store.vectorizer.transform(pd.DataFrame(COLUMNS)), data.X)
        assert store.table == data.layout
