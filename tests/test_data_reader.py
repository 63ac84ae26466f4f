"""The one door to all formats, and the data set that comes out of it."""

from __future__ import annotations

import gzip
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.sparse import csr_matrix

from manyclass.io import FORMATS, DataFormatError, Dataset, detect_format, read, write
from manyclass.io._lines import GrowingArray

X = csr_matrix(np.array([[0, 1.5, 0], [2, 0, 0.25]], dtype=np.float32))


def save(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.txt", "1 1:2\n", "svmlight"),
        ("a", "# comment\n\nsci.space,b qid:3 7:1e-3\n", "svmlight"),
        ("a", "\ufeff-1.5 1:2", "svmlight"),
        ("a", " 1:2\n", "svmlight"),
        ("a.svm", "1\n", "svmlight"),
        ("a.SVM", "1\n", "svmlight"),
        ("a.libsvm", "1\n", "svmlight"),
        ("a.txt", "2 3 4\n0,1 1:2\n 2:3\n", "xmc"),
        ("a.svm", "2 3 4\r\n0,1 1:2\n 2:3\n", "xmc"),
        ("a.csv", "text,label\na 1:2,3\n", "csv"),
        ("a.tsv", "a\tb\n", "tsv"),
        ("a.tab", "a\tb\n", "tsv"),
    ],
)
def test_the_format_is_told_from_name_and_content(name, content, format, tmp_path):
    assert detect_format(save(tmp_path, name, content)) == format
    assert detect_format(save(tmp_path, name + ".gz", gzip.compress(content.encode()))) == format


def test_arrays_are_known_by_their_content(tmp_path):
    for format in ("npz", "npy"):
        path = tmp_path / f"a.{format}"
        write(path, Dataset(X if format == "npz" else X.toarray()))
        assert detect_format(path.rename(tmp_path / "a.dat")) == format


@pytest.mark.parametrize("content", ["hello world\n", "1 2 3 4\n", "a: b: c:\n", "text,label\n", "\n\n", "1:2 3:4\n"])
def test_an_unknown_format_is_refused(content, tmp_path):
    with pytest.raises(DataFormatError, match=r"cannot be detected .*: pass format=, one of svmlight, xmc"):
        detect_format(save(tmp_path, "a.dat", content))


def test_an_empty_or_missing_file(tmp_path):
    for content in (b"", gzip.compress(b"")):
        with pytest.raises(DataFormatError, match="empty"):
            read(save(tmp_path, "a.svm", content))
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing.svm")


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz", "a.xmc", "a.xmc.gz", "a.npz", "a.npy"])
def test_reading_what_was_written_gives_the_same(name, tmp_path):
    y = csr_matrix(np.array([[1, 0, 1], [0, 1, 0]], dtype=np.int8))
    data = Dataset(X.toarray() if name == "a.npy" else X, y)
    write(tmp_path / name, data)
    again = read(tmp_path / name)
    assert again.format in FORMATS
    assert again.source == name
    assert np.array_equal(np.asarray(again.X if name == "a.npy" else again.X.toarray()), X.toarray())
    assert np.array_equal(again.y.toarray(), y.toarray())
    assert again.label_names.tolist() == [0, 1, 2]
    assert again.summary() == again.summary() | {
        "rows": 2,
        "features": 3,
        "non_zeros": 3,
        "empty_rows": 0,
        "density": 0.5,
        "classes": 3,
        "labels_per_row": 1.5,
        "rows_without_label": 0,
        "targets": "labels",
    }


def test_writing_by_name_or_by_format(tmp_path):
    write(tmp_path / "a.txt", Dataset(X, np.array([1, 2])), format="svmlight")
    assert (tmp_path / "a.txt").read_text() == "1 2:1.5\n2 1:2.0 3:0.25\n"
    with pytest.raises(ValueError, match="has no known suffix; expected 'svmlight'"):
        write(tmp_path / "b.txt", Dataset(X))
    with pytest.raises(ValueError, match="'csv'; expected 'svmlight'"):
        write(tmp_path / "b.csv", Dataset(X))
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_labels_from_another_file_replace_those_of_the_file(tmp_path):
    path = save(tmp_path, "a.svm", "1 1:2\n1,2 2:3\n")
    labels = save(tmp_path, "labels.txt", "ham\nspam\n")
    data = read(path, labels=labels, task="classification")
    assert data.y.tolist() == ["ham", "spam"]
    assert data.label_names is None
    assert data.notes[-1] == "labels from labels.txt"
    with pytest.raises(DataFormatError, match="has 1 label; expected 2") as caught:
        read(path, labels=save(tmp_path, "labels.txt", "ham\n"))
    assert caught.value.path == str(labels)
    table = save(tmp_path, "a.csv", "text\none\ntwo\n")
    data = read(table, labels=save(tmp_path, "labels.txt", "a;b\n\n"), label_separator=";")
    assert data.y.toarray().tolist() == [[1, 1], [0, 0]]
    write(tmp_path / "b.npz", Dataset(X, np.array([1, 2])))
    np.save(tmp_path / "other.npy", np.array([5, 6]))
    assert read(tmp_path / "b.npz", labels=tmp_path / "other.npy").y.tolist() == [5, 6]


def test_options_reach_the_reader(tmp_path):
    svm = save(tmp_path, "a.svm", "1 1:2 3:4\n")
    data = read(svm, n_features=2, extra_features="ignore", zero_based=True, dtype=np.float64, task="regression")
    assert data.X.toarray().tolist() == [[0.0, 2.0]]
    assert data.X.dtype == np.float64
    assert data.y.tolist() == [1.0]
    xmc = save(tmp_path, "a.xmc", "1 4 2\n1 1:2 3:4\n")
    assert read(xmc, n_features=2, extra_features="ignore").X.toarray().tolist() == [[0.0, 2.0]]
    table = save(tmp_path, "a.tsv", 'why\twho\n"one two\tA\n')
    data = read(table, text_column="why", label_column="who", quote=None, vectorizer={"ngram_range": (1, 2)})
    assert data.n_features == 3
    assert data.y.tolist() == ["A"]
    assert read(save(tmp_path, "a.txt", "text,label\naa,b\n"), format="csv").y.tolist() == ["b"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dtype": np.int32}, "dtype is .*expected float32 or float64"),
        ({"n_features": -1}, "n_features is -1; expected an integer"),
        ({"n_features": 2.0}, "n_features is 2.0; expected an integer"),
        ({"zero_based": "yes"}, "zero_based is 'yes'"),
        ({"extra_features": "drop"}, "extra_features is 'drop'"),
        ({"task": "ranking"}, "task is 'ranking'"),
        ({"format": "arff"}, "format is 'arff'"),
        ({"text_column": "text"}, "text_column is 'text', but .* has the format 'svmlight'"),
        ({"header": True}, "header is True, but .* has the format 'svmlight'; expected a table"),
    ],
)
def test_wrong_arguments_are_named(options, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        read(save(tmp_path, "a.svm", "1 1:2\n"), **options)


def test_a_data_set_must_fit_together():
    with pytest.raises(ValueError, match=r"y has shape \(3,\); expected 2 rows"):
        Dataset(X, np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="X has 1 dimensions"):
        Dataset(np.ones(3))
    for y in (None, np.array([1, 2]), csr_matrix(np.eye(2))):
        with pytest.raises(ValueError, match="one name for each column of y"):
            Dataset(X, y, np.array(["a", "b", "c"]))


@pytest.mark.parametrize(
    ("matrix", "y", "facts"),
    [
        (X, np.array(["a", "a"]), {"targets": "classes", "classes": 1, "non_zeros": 3, "density": 0.5}),
        (X, np.array([0.5, 2]), {"targets": "numbers", "outputs": 1}),
        (X, np.ones((2, 4)), {"targets": "numbers", "outputs": 4}),
        (X, csr_matrix((2, 5), dtype=np.int8), {"targets": "labels", "classes": 5, "rows_without_label": 2}),
        (X, None, {"targets": "none", "bytes": X.data.nbytes + X.indices.nbytes + X.indptr.nbytes}),
        (X.toarray(), None, {"non_zeros": 3, "empty_rows": 0, "bytes": 24}),
        (np.zeros((3, 2)), None, {"non_zeros": 0, "empty_rows": 3}),
        (np.zeros((0, 2)), None, {"rows": 0, "density": 0.0}),
        (csr_matrix((2, 0)), None, {"features": 0, "density": 0.0, "empty_rows": 2}),
        (csr_matrix(([1.0, 0.0], [0, 1], [0, 1, 2]), (2, 2)), None, {"non_zeros": 1, "empty_rows": 1}),
    ],
)
def test_facts(matrix, y, facts):
    summary = Dataset(matrix, y).summary()
    assert summary == summary | facts


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(DataFormatError("file.svm", "what is wrong", 7)))
    assert (error.path, error.what, error.line) == ("file.svm", "what is wrong", 7)
    assert str(error) == "file.svm, line 7: what is wrong"
    assert isinstance(error, ValueError)


@given(st.lists(st.tuples(st.lists(st.integers(-5, 5)), st.floats(0.01, 1.0))), st.sampled_from([np.int32, np.float32]))
def test_a_growing_array_holds_what_came(parts, dtype):
    grown = GrowingArray(dtype)
    expected: list[int] = []
    for values, fraction in parts:
        grown.extend(np.array(values, dtype=np.int64), fraction)
        expected += values
    assert len(grown) == len(expected)
    other = grown.astype(np.float64).finish()
    result = grown.finish()
    assert result.tolist() == expected == other.tolist()
    assert result.dtype == dtype
    # Cut to its length, but for slack of at most a 32nd: cutting copies, from NumPy 2.5 on.
    assert result.base is None or result.base.size <= len(result) + len(result) // 32


@pytest.mark.parametrize(
    ("options", "name"),
    [({"quote": None}, "quote"), ({"with_labels": False}, "with_labels"), ({"vectorizer": {}}, "vectorizer")],
)
def test_options_of_tables_are_refused_for_other_files(tmp_path, options, name):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:2\n")
    with pytest.raises(ValueError, match=f"{name} is .*but .* has the format 'svmlight'; expected a table"):
        read(path, **options)
