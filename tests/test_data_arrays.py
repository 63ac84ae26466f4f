"""NumPy and SciPy files with labels beside."""

from __future__ import annotations

import contextlib
import errno
import io
import pickle
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, strategies as st
from scipy.sparse import csc_matrix, csr_matrix

from manyclass.io import DataFormatError, read, read_labels, read_npy, read_npz, write_npy, write_npz

X = csr_matrix(np.array([[0, 1.5, 0], [2, 0, 0.25]], dtype=np.float32))
TARGETS = {
    "none": (None, None),
    "integers": (np.array([3, -1]), None),
    "texts": (np.array(["sci.space", "ü"]), None),
    "objects": (np.array(["sci.space", "ü"], dtype=object), None),
    "reals": (np.array([0.5, 1.5]), None),
    "outputs": (np.array([[0.5, 1.5], [2, 3]]), None),
    "labels": (csr_matrix(np.array([[1, 0, 1], [0, 0, 0]], dtype=np.int8)), None),
    "named": (csr_matrix(np.array([[1, 0, 1], [0, 0, 0]], dtype=np.int8)), np.array(["a", "b", "ç"])),
    "dense labels": (np.array([[1, 0, 1], [0, 0, 0]]), None),
}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("sparse", [True, False])
def test_reading_what_was_written_gives_the_same(kind, sparse, tmp_path):
    y, names = TARGETS[kind]
    path = tmp_path / ("rows.v1.npz" if sparse else "rows.v1.npy")
    (write_npz if sparse else write_npy)(path, X if sparse else X.toarray(), y, label_names=names)
    data = read(path)
    assert data.format == path.suffix[1:]
    assert data.X.dtype == np.float32
    if sparse:
        assert (data.X != X).nnz == 0
        assert np.array_equal(data.X.indices, X.indices)
    else:
        assert isinstance(data.X, np.memmap)
        assert not data.X.flags.writeable
        assert np.array_equal(data.X, X.toarray())
    if y is None:
        assert data.y is None
        assert "no labels: there is no rows.v1.labels.npy" in data.notes[-1]
    elif "label" in kind or kind == "named":
        assert data.y.dtype == np.int8
        assert np.array_equal(data.y.toarray(), y if kind == "dense labels" else y.toarray())
        assert data.label_names.tolist() == ([0, 1, 2] if names is None else names.tolist())
    else:
        assert data.y.tolist() == y.tolist()
        assert data.y.dtype.kind == ("U" if kind == "objects" else y.dtype.kind)


@pytest.mark.parametrize(
    ("y", "task", "expected"),
    [
        (np.array([1.0, 2.0]), "auto", np.array([1, 2])),
        (np.array([1.0, 2.0]), "regression", np.array([1.0, 2.0])),
        (np.array([1, 2]), "regression", np.array([1.0, 2.0])),
        (np.array([True, False]), "auto", np.array([1, 0])),
        (np.array([b"a", b"b"]), "auto", np.array(["a", "b"])),
        (np.array([7, 5]), "multilabel", np.array([[0, 1], [1, 0]])),
        (np.array(["y", "x"]), "multilabel", np.array([[0, 1], [1, 0]])),
        (np.array([[1.0, 0], [0, 1]]), "multilabel", np.array([[1, 0], [0, 1]])),
        (np.array([[1.0, 0], [0, 1]]), "auto", np.array([[1.0, 0], [0, 1]])),
    ],
)
def test_what_an_array_of_labels_means(y, task, expected, tmp_path):
    np.save(tmp_path / "y.npy", y)
    found, names = read_labels(tmp_path / "y.npy", task=task)
    found = found.toarray() if task == "multilabel" else found
    assert found.tolist() == expected.tolist()
    assert found.dtype.kind == expected.dtype.kind
    assert (names is not None) == (task == "multilabel")


@pytest.mark.parametrize(
    ("y", "task", "what"),
    [
        (np.array([1.0, np.nan]), "auto", "row 1 has a value that is not finite"),
        (np.array([[1.0], [np.inf]]), "regression", "row 1 has a value that is not finite"),
        (np.array([1.5, 2]), "classification", "not integers"),
        (np.array(["a", "b"]), "regression", "has texts"),
        (np.array([[2, 0]]), "auto", "has the number 2; expected a matrix of only 0 and 1"),
        (np.array([[1, 0]]), "classification", "expected one for each row"),
        (np.zeros((1, 1, 1)), "auto", "3 dimensions"),
        (np.array([1j]), "auto", "type complex128"),
        (np.array([["a"]]), "auto", "expected one label for each row"),
        (np.array([b"\xff"]), "auto", "cannot be read as labels"),
    ],
)
def test_arrays_that_are_no_labels_are_refused(y, task, what, tmp_path):
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(DataFormatError, match=what):
        read_labels(tmp_path / "y.npy", task=task)


def test_labels_as_lines_of_text(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes("\ufeffsci space\r\n ü \n".encode())
    assert read_labels(path).y.tolist() == ["sci space", "ü"]
    path.write_text("3\n1\n")
    assert read_labels(path).y.tolist() == [3, 1]
    assert read_labels(path, task="regression").y.tolist() == [3.0, 1.0]
    path.write_text("a; b\n\nb\n")
    y, names = read_labels(path, separator=";")
    assert names.tolist() == ["a", "b"]
    assert y.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]
    with pytest.raises(DataFormatError, match="line 2: the label is empty"):
        read_labels(path)
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(DataFormatError, match="line 2: not UTF-8"):
        read_labels(path)
    path.write_text("1.5\n2\nnan\n")
    with pytest.raises(DataFormatError, match="line 3: the label 'nan' is not finite"):
        read_labels(path)
    path.write_text("1,2\n3\n")
    with pytest.raises(DataFormatError, match="line 2: 1 target; expected 2"):
        read_labels(path, task="regression", separator=",")
    path.write_text("1,2\n3,4\n")
    assert read_labels(path, task="regression", separator=",").y.tolist() == [[1, 2], [3, 4]]


def test_other_sparse_formats_and_types_become_csr(tmp_path):
    for matrix in (csc_matrix(X), X.tocoo(), X.astype(np.float64), X.astype(np.int64), scipy.sparse.csr_array(X)):
        scipy.sparse.save_npz(tmp_path / "m.npz", matrix)
        data = read_npz(tmp_path / "m.npz")
        assert type(data.X) is csr_matrix
        assert data.X.dtype == np.float32
        assert np.array_equal(data.X.toarray(), matrix.astype(np.float32).toarray())


def test_repeated_and_unsorted_features_are_put_in_order(tmp_path):
    odd = csr_matrix((np.array([1.0, 2, 4]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    scipy.sparse.save_npz(tmp_path / "m.npz", odd)
    data = read_npz(tmp_path / "m.npz")
    assert data.X.indices.tolist() == [0, 2]
    assert data.X.data.tolist() == [2, 5]
    assert data.notes[0] == "features repeated in a row were added up: 1 value"


def test_the_number_of_features(tmp_path):
    write_npz(tmp_path / "m.npz", X)
    write_npy(tmp_path / "m.npy", X.toarray())
    assert read_npz(tmp_path / "m.npz", n_features=5).X.shape == (2, 5)
    with pytest.raises(DataFormatError, match="row 1 has feature 2, counted from 0; expected 2 features"):
        read_npz(tmp_path / "m.npz", n_features=2)
    narrow = read_npz(tmp_path / "m.npz", n_features=2, extra_features="ignore")
    assert narrow.X.toarray().tolist() == [[0, 1.5], [2, 0]]
    empty = csr_matrix(np.array([[1.0, 0, 0]]))
    write_npz(tmp_path / "e.npz", empty)
    assert read_npz(tmp_path / "e.npz", n_features=1).X.shape == (1, 1)
    mapped = read_npy(tmp_path / "m.npy", n_features=2, extra_features="ignore").X
    assert isinstance(mapped, np.memmap)
    assert mapped.shape == (2, 2)
    for wrong in (2, 5):
        with pytest.raises(DataFormatError, match=f"3 features; expected {wrong}"):
            read_npy(tmp_path / "m.npy", n_features=wrong)


def test_values_that_are_not_finite_are_refused_with_their_row(tmp_path):
    for value, dtype in [(np.nan, np.float32), (-np.inf, np.float64), (1e39, np.float32)]:
        bad = csr_matrix(np.array([[1.0, 0], [0, 0], [0, value]]))
        scipy.sparse.save_npz(tmp_path / "m.npz", bad)
        with pytest.raises(DataFormatError, match="row 2 has a value that is not finite"):
            read_npz(tmp_path / "m.npz", dtype=dtype)
    assert read_npz(tmp_path / "m.npz", dtype=np.float64).X[2, 1] == 1e39


def broken_npz(**arrays) -> bytes:
    stream = io.BytesIO()
    good = {"format": b"csr", "shape": (1, 2), "data": [1.0], "indices": [0], "indptr": [0, 1]}
    np.savez(stream, **{name: np.array(value) for name, value in (good | arrays).items() if value is not None})
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        broken_npz()[:-30],
        broken_npz()[:200],
        broken_npz(indices=[5]),
        broken_npz(indices=[-1]),
        broken_npz(format=b"csc", indices=[7], indptr=[0, 1, 1]),
        broken_npz(indptr=[0, 9]),
        broken_npz(indptr=[0, 1, 1]),
        broken_npz(format=b"xyz"),
        broken_npz(format=None),
        broken_npz(data=None),
        broken_npz(data=["text"]),
        broken_npz(data=[1j]),
        broken_npz(shape=(1, 2, 3)),
    ],
)
def test_damaged_sparse_files_are_refused(content, tmp_path):
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(DataFormatError, match="cannot be read as a sparse matrix"):
        read_npz(tmp_path / "m.npz")


@given(st.data())
def test_a_damaged_archive_is_an_error_of_the_file(draws):
    content = bytearray(broken_npz())
    directory = content.index(b"PK\x01\x02")  # names, sizes and places of the arrays stand from here on
    for _ in range(draws.draw(st.integers(1, 4))):
        content[draws.draw(st.integers(directory, len(content) - 1))] = draws.draw(st.integers(0, 255))
    check_damage(content, "m.npz", read_npz)


def test_a_place_outside_the_archive_is_an_error_of_the_file(tmp_path):
    content = bytearray(broken_npz())
    end = content.rindex(b"PK\x05\x06")
    content[end + 16 : end + 20] = (1 << 20).to_bytes(4, "little")  # where the directory is said to begin
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(OSError, match="Invalid argument"), open(tmp_path / "m.npz", "rb") as file:
        scipy.sparse.load_npz(file)  # what it is without the reader
    with pytest.raises(DataFormatError, match=r"m\.npz: cannot be read as a sparse matrix"):
        read_npz(tmp_path / "m.npz")


def test_a_promise_larger_than_memory_is_an_error_of_the_file(tmp_path):
    coordinates = {"format": b"coo", "shape": (10**15, 3), "row": [0], "col": [0], "indices": None, "indptr": None}
    (tmp_path / "m.npz").write_bytes(broken_npz(**coordinates))
    with pytest.raises(DataFormatError, match=r"m\.npz: .*damaged, or too large \(its arrays take"):
        read_npz(tmp_path / "m.npz")
    np.save(tmp_path / "y.npy", np.ones(3))
    content = (tmp_path / "y.npy").read_bytes()
    (tmp_path / "y.npy").write_bytes(content.replace(b"(3,), }" + b" " * 15, b"(999999999999999,), }".ljust(22)))
    with pytest.raises(DataFormatError, match=r"y\.npy: .*damaged, or too large"):
        read_labels(tmp_path / "y.npy")


def test_errors_of_the_system_stay_what_they_are_and_name_the_file(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"m\.npz"):
        read_npz(tmp_path / "m.npz")
    write_npz(tmp_path / "m.npz", X)

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(scipy.sparse, "load_npz", fail)
    with pytest.raises(OSError, match=r"Input/output error: '.*m\.npz'") as caught:
        read_npz(tmp_path / "m.npz")
    assert caught.value.errno == errno.EIO


def test_nothing_is_ever_unpickled(tmp_path):
    class Harm:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    np.save(tmp_path / "m.npy", np.array([Harm()], dtype=object), allow_pickle=True)
    (tmp_path / "p.npy").write_bytes(pickle.dumps([1]))
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.write(tmp_path / "m.npy", "format.npy")
    for name in ("m.npy", "p.npy"):
        with pytest.raises(DataFormatError, match="cannot be read"):
            read_npy(tmp_path / name)
        with pytest.raises(DataFormatError, match="cannot be read"):
            read_labels(tmp_path / name)
    with pytest.raises(DataFormatError, match="cannot be read"):
        read_npz(tmp_path / "m.npz")


def check_damage(content, name, load):
    """What is made of damaged bytes: data, or an error of the file; nothing else is raised."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, on headers of Python 2 and the like
            with contextlib.suppress(DataFormatError):
                load(path)


def test_damaged_dense_files_are_refused(tmp_path):
    write_npy(tmp_path / "m.npy", X.toarray())
    content = (tmp_path / "m.npy").read_bytes()
    (tmp_path / "m.npy").write_bytes(content[:-1])
    with pytest.raises(DataFormatError, match="cannot be read as a dense matrix"):
        read_npy(tmp_path / "m.npy")
    wrong = [(np.ones(3), "1 dimensions"), (np.array([["a"]]), "type <U1"), (np.ones((1, 1)) * 1j, "complex")]
    for array, what in wrong:
        np.save(tmp_path / "m.npy", array)
        with pytest.raises(DataFormatError, match=what):
            read_npy(tmp_path / "m.npy")
    (tmp_path / "m.npy").write_bytes(broken_npz())
    with pytest.raises(DataFormatError, match="archive"):
        read_npy(tmp_path / "m.npy")


@given(st.data())
def test_a_damaged_header_of_a_dense_file_is_an_error_of_the_file(draws):
    stream = io.BytesIO()
    np.save(stream, X.toarray())
    content = bytearray(stream.getvalue())
    for _ in range(draws.draw(st.integers(1, 4))):
        content[draws.draw(st.integers(0, 127))] = draws.draw(st.integers(0, 255))
    check_damage(content, "m.npy", read_npy)


@pytest.mark.parametrize("load", [read_npy, read_labels])
def test_a_header_that_does_not_end_is_an_error_of_the_file(load, tmp_path):
    np.save(tmp_path / "m.npy", X.toarray())
    content = (tmp_path / "m.npy").read_bytes()
    (tmp_path / "m.npy").write_bytes(content.replace(b"(2, 3), }", b"(2, 3), ("))  # tokenize.TokenError
    with pytest.raises(DataFormatError, match=r"m\.npy: cannot be read"):
        load(tmp_path / "m.npy")


def test_the_type_of_a_mapped_file_is_kept_and_said(tmp_path):
    write_npy(tmp_path / "m.npy", X.toarray().astype(np.float64))
    data = read_npy(tmp_path / "m.npy")
    assert data.X.dtype == np.float64
    assert data.notes[0] == "values are float64, as in the file, which is memory-mapped"


def test_labels_beside_must_fit(tmp_path):
    write_npz(tmp_path / "m.npz", X, np.array([1, 2]))
    np.save(tmp_path / "m.labels.npy", np.array([1, 2, 3]))
    with pytest.raises(DataFormatError, match="has 2 rows, but 3 labels"):
        read_npz(tmp_path / "m.npz")
    np.save(tmp_path / "m.y.npy", np.array([1, 2]))
    with pytest.raises(DataFormatError, match=r"several files of labels for it \(m.labels.npy, m.y.npy\)"):
        read_npz(tmp_path / "m.npz")
    (tmp_path / "m.labels.npy").unlink()
    assert read_npz(tmp_path / "m.npz").y.tolist() == [1, 2]
    (tmp_path / "m.y.npy").unlink()
    (tmp_path / "m.labels.txt").write_text("a\nb\n")
    assert read_npz(tmp_path / "m.npz").y.tolist() == ["a", "b"]
    (tmp_path / "m.labels.txt").unlink()
    write_npz(tmp_path / "m.npz", X, csr_matrix(np.eye(2)))
    np.save(tmp_path / "m.label_names.npy", np.array(["a"]))
    with pytest.raises(DataFormatError, match="one name for each of 2 labels"):
        read_npz(tmp_path / "m.npz")


@pytest.mark.parametrize(
    ("write", "name", "matrix", "y", "names", "what"),
    [
        (write_npz, "m.npz", np.eye(2), None, None, "expected a sparse matrix"),
        (write_npy, "m.npy", X, None, None, "X is sparse; expected a dense matrix"),
        (write_npy, "m.npy", np.ones(3), None, None, "X has 1 dimensions"),
        (write_npz, "m.dat", X, None, None, "ends in '.npz'"),
        (write_npz, "m.npz", X, np.array([1]), None, "expected 2 rows"),
        (write_npz, "m.npz", X, np.array([1, "a"], dtype=object), None, "only texts"),
        (write_npz, "m.npz", X, np.eye(2), np.array(["a"]), "one name for each column"),
        (write_npz, "m.npz", X, None, np.array(["a"]), "one name for each column"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(write, name, matrix, y, names, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        write(tmp_path / name, matrix, y, label_names=names)
    assert not list(tmp_path.iterdir())


def test_a_failure_between_two_files_leaves_both_as_they_were(tmp_path, monkeypatch):
    write_npz(tmp_path / "m.npz", X, np.array([1, 2]))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="no space"):
        write_npz(tmp_path / "m.npz", 2 * X, np.array([3, 4]))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_labels_that_would_be_taken_for_those_of_the_new_file_are_not_ignored(tmp_path):
    write_npz(tmp_path / "m.npz", X, csr_matrix(np.eye(2)))
    with pytest.raises(ValueError, match=r"m.labels.npz would be read as labels"):
        write_npz(tmp_path / "m.npz", X, np.array([1, 2]))


# --- archives of numpy.savez ------------------------------------------------------------------------------------------


def test_an_archive_of_rows_and_labels(tmp_path):
    X, y = np.arange(12.0).reshape(4, 3), np.array([1, 0, 1, 1])
    path = tmp_path / "rows.npz"
    np.savez(path, X=X, y=y)
    data = read(path)
    np.testing.assert_array_equal(data.X, X.astype(np.float32))
    assert (data.X.dtype, data.y.tolist(), data.format) == (np.float32, y.tolist(), "npz")
    assert "labels from its array y" in data.notes
    np.testing.assert_array_equal(read(path, n_features=5).X, np.pad(X, ((0, 0), (0, 2))))
    np.testing.assert_array_equal(read(path, n_features=2, extra_features="ignore").X, X[:, :2])
    np.savez_compressed(path, X=X.astype(int))
    np.save(tmp_path / "rows.labels.npy", y)
    assert read(path).y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"rows": np.eye(2)},
            r"its arrays are 'rows'; expected a sparse matrix of scipy.sparse.save_npz, or numpy.savez",
        ),
        ({"X": np.ones(3)}, "X has 1 dimensions and type float64; expected a matrix of real numbers"),
        ({"X": np.array([[1.0, np.nan]])}, "row 0 has a value that is not finite"),
        ({"X": np.eye(2), "y": np.ones(3)}, r"X has shape \(2, 2\), and y \(3,\)"),
    ],
)
def test_another_archive_is_told_what_is_expected(tmp_path, arrays, message):
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(DataFormatError, match=message):
        read(tmp_path / "rows.npz")


def test_an_archive_that_is_too_wide(tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.eye(3))
    with pytest.raises(DataFormatError, match="has 3 features; expected 2 features"):
        read(tmp_path / "rows.npz", n_features=2)


@pytest.mark.parametrize("sides", [(4, 5), (4, 5, 3)])
def test_images_are_rows(tmp_path, sides):
    images, y = np.random.default_rng(0).integers(0, 256, (6, *sides), np.uint8), np.arange(6) % 2
    np.savez(tmp_path / "all.npz", X=images, y=y)
    np.save(tmp_path / "apart.npy", images)
    np.save(tmp_path / "apart.labels.npy", y)
    for name in ("all.npz", "apart.npy"):
        data = read(tmp_path / name)
        np.testing.assert_array_equal(data.X, images.reshape(6, -1))
        assert data.y.tolist() == y.tolist()
        assert f"images of shape {sides}: each is a row of {np.prod(sides)} features" in data.notes
    assert isinstance(read(tmp_path / "apart.npy").X, np.memmap)  # not copied
    np.save(tmp_path / "five.npy", np.zeros((2, 2, 2, 2, 2)))
    with pytest.raises(
        DataFormatError, match="5 dimensions and type float64; expected a matrix of real numbers, or imag"
    ):
        read(tmp_path / "five.npy")
