"""The format of the extreme classification repository."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_matrix

from manyclass.io import DataFormatError, read_xmc, write_xmc

GOOD = "3 4 5\n0,4 0:1 3:0.5\n 1:2\n2\n"


def save(folder: str | Path, content: str) -> Path:
    path = Path(folder, "train.txt")
    path.write_bytes(content.encode())
    return path


@given(st.data(), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_reading_what_was_written_gives_the_same(draw, rows, features, labels):
    finite = st.just(0.0) | st.floats(allow_nan=False, allow_infinity=False)
    X = csr_matrix(draw.draw(hnp.arrays(np.float64, (rows, features), elements=finite)))
    y = csr_matrix(draw.draw(hnp.arrays(np.int8, (rows, labels), elements=st.integers(0, 1))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        write_xmc(path, X, y)
        data = read_xmc(path, dtype=np.float64, block_bytes=draw.draw(st.integers(8, 200)))
    assert np.array_equal(data.X.toarray(), X.toarray())
    assert np.array_equal(data.y.toarray(), y.toarray())
    assert data.label_names.tolist() == list(range(labels))


@pytest.mark.parametrize("content", [GOOD, GOOD.replace("\n", "\r\n"), GOOD[:-1], GOOD + "\n\n"])
def test_rows_labels_and_line_ends(content, tmp_path):
    for size in (1, 9, 1 << 19):
        data = read_xmc(save(tmp_path, content), block_bytes=size)
        assert data.X.toarray().tolist() == [[1, 0, 0, 0.5], [0, 2, 0, 0], [0, 0, 0, 0]]
        assert data.y.toarray().tolist() == [[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
        assert data.zero_based is True


def test_an_empty_line_is_a_row(tmp_path):
    data = read_xmc(save(tmp_path, "3 2 2\n\n1 1:1\n\n"))
    assert data.X.toarray().tolist() == [[0, 0], [0, 1], [0, 0]]
    assert data.y.toarray().tolist() == [[0, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ("", 1, "expected a header of three numbers"),
        ("3 4\n0 1:1\n", 1, "expected a header of three numbers"),
        ("0,4 0:1 3:0.5\n", 1, "got '0,4 0:1 3:0.5'"),
        ("0 4 5\n", 1, "announces 0 rows"),
        ("1 4 5000000000000\n0 1:1\n", 1, "announces 5000000000000 labels"),
        ("3 4 5\n0 1:1\n1 1:1\n", 3, "ends after 2 rows; expected 3, as in its header"),
        ("1 4 5\n0 1:1\n\n1 1:1\n", 4, "a row too many; expected 1, as in the header"),
        ("2 4 5\n0 1:1\n1 4:1\n", 3, "'4:1' is beyond 3"),
        ("2 4 5\n0 1:1\n1,5 1:1\n", 3, "'5' is not an integer from 0 to 4"),
        ("2 4 5\n0 1:1\n-1 1:1\n", 3, "'-1' is not an integer from 0 to 4"),
        ("2 4 5\n0 1:1\nx 1:1\n", 3, "'x' is not an integer from 0 to 4"),
        ("2 4 5\n0 1:1\n1,2.5 1:1\n", 3, "'2.5' is not an integer"),
        ("2 4 5\n0 1:1\n1 2:x\n", 3, "'2:x' is not a finite number"),
        ("2 4 5\n0 1:1\n1:1\n", 3, "begins with the feature"),
    ],
)
@pytest.mark.parametrize("size", [1, 1 << 19])
def test_a_wrong_line_is_named(content, line, what, size, tmp_path):
    with pytest.raises(DataFormatError, match=what) as caught:
        read_xmc(save(tmp_path, content), block_bytes=size)
    assert caught.value.line == line


def test_fewer_features_are_widened_and_more_are_refused_or_ignored(tmp_path):
    path = save(tmp_path, GOOD)
    assert read_xmc(path, n_features=9).X.shape == (3, 9)
    with pytest.raises(DataFormatError, match=r"line 2: the feature index in '3:0\.5' is beyond 2"):
        read_xmc(path, n_features=3)
    narrow = read_xmc(path, n_features=2, extra_features="ignore")
    assert narrow.X.toarray().tolist() == [[1, 0], [0, 2], [0, 0]]
    assert narrow.notes == ("features beyond the first 2 ignored: 1 value",)
    # What the header does not know is wrong, wanted or not.
    with pytest.raises(DataFormatError, match="beyond 3"):
        read_xmc(save(tmp_path, GOOD.replace("3:0.5", "4:0.5")), n_features=2, extra_features="ignore")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    for y, what in [
        (None, "y is not a matrix"),
        (np.array([1, 2]), "y is not a matrix"),
        (np.eye(3), "expected 2 rows"),
    ]:
        with pytest.raises(ValueError, match=what):
            write_xmc(tmp_path / "new.txt", np.eye(2), y)
    with pytest.raises(ValueError, match="not finite"):
        write_xmc(tmp_path / "new.txt", np.full((2, 2), np.inf), np.eye(2))
    assert not list(tmp_path.iterdir())
