"""The svmlight reader and writer: laws against scikit-learn and against each other, and every wrong line."""

from __future__ import annotations

import gzip
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_matrix, issparse, random
from sklearn.datasets import load_svmlight_file

from manyclass.io import DataFormatError, read_svmlight, streams, write_svmlight

NUMBER_TEXTS = [
    "1",
    "+3",
    "-0",
    "0.1",
    "-.5",
    "7.",
    "1e-3",
    "2E+5",
    "3.4028234e38",
    "1e-45",
    "-1e-320",
    "0e9",
    "0.30000000000000004441",
    "9007199254740993",
    "123456789012345678901234567890e-25",
    "0.000000000000000000000000000012345678901234567",
    "1.7976931348623157e+308",
]


@st.composite
def lines(draw):
    """Text that scikit-learn reads too: features ascending and unique, one number for a label."""
    n_rows = draw(st.integers(1, 12))
    blank = st.sampled_from([" ", "  ", "\t", " \t "])
    text = []
    for _ in range(n_rows):
        label = draw(st.sampled_from(["1", "-1", "+1", "3", "2.5", "-1e2"]))
        indices = sorted(draw(st.sets(st.integers(0, 40), max_size=6)))
        pairs = [f"{draw(blank)}{index}:{draw(st.sampled_from(NUMBER_TEXTS))}" for index in indices]
        tail = draw(st.sampled_from(["", " ", "\t", " # a comment 3:4", "#5:x"]))
        text.append(label + "".join(pairs) + tail)
        text.extend(draw(st.lists(st.sampled_from(["", "  ", "# nothing 1:2", "\t"]), max_size=2)))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return (end.join(text) + draw(st.sampled_from(["", end]))).encode()


@st.composite
def matrices(draw):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    bits = 32 if dtype is np.float32 else 64
    values = st.just(0.0) | st.floats(allow_nan=False, allow_infinity=False, width=bits)
    return csr_matrix(draw(hnp.arrays(dtype, st.tuples(st.integers(1, 6), st.just(8)), elements=values)))


@st.composite
def rows_and_targets(draw):
    """A matrix, targets of any kind, their column names, and the task to read them back with."""
    X = draw(matrices())
    n = X.shape[0]
    kind = draw(st.sampled_from(["none", "integers", "texts", "reals", "outputs", "labels", "named"]))
    if kind == "none":
        return X, None, None, "auto"
    if kind == "integers":
        return X, draw(hnp.arrays(np.int64, n, elements=st.integers(-(10**17), 10**17))), None, "auto"
    if kind == "texts":
        name = st.from_regex(r"[a-z.\-é]{1,5}", fullmatch=True).filter(lambda s: s not in ("nan", "inf"))
        return X, np.array(draw(st.lists(name, min_size=n, max_size=n))), None, "classification"
    reals = st.floats(allow_nan=False, allow_infinity=False)
    if kind == "reals":
        return X, draw(hnp.arrays(np.float64, n, elements=reals)), None, "regression"
    if kind == "outputs":
        return X, draw(hnp.arrays(np.float64, (n, 3), elements=reals)), None, "regression"
    y = csr_matrix(draw(hnp.arrays(np.int8, (n, 4), elements=st.integers(0, 1))))
    y = csr_matrix(np.vstack([y.toarray(), np.ones((1, 4), dtype=np.int8)]))  # each label occurs
    X = csr_matrix(np.vstack([X.toarray(), np.ones((1, X.shape[1]), dtype=X.dtype)]))
    names = np.array(["a", "b", "d-e", "ç"]) if kind == "named" else np.arange(4)
    return X, y, names if kind == "named" else None, "multilabel"


def save(folder: str | Path, content: bytes | str, name: str = "file.svm") -> Path:
    path = Path(folder, name)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def same(X, Z) -> bool:
    """Equal to the last bit, but for the sign of zeros and zeros stored or not."""
    return X.shape == Z.shape and X.dtype == Z.dtype and np.array_equal(X.toarray(), Z.toarray())


def facts(data):
    y = data.y.toarray() if issparse(data.y) else data.y
    return [data.X.toarray().tolist(), None if y is None else y.tolist(), data.notes]


@given(lines(), st.sampled_from([np.float32, np.float64]))
def test_equals_scikit_learn(content, dtype):
    if dtype is np.float32:
        content = content.replace(b"e+308", b"e-308")
    with tempfile.TemporaryDirectory() as folder:
        path = save(folder, content)
        X, y = load_svmlight_file(str(path), dtype=np.float64, zero_based=True, n_features=41)
        data = read_svmlight(path, dtype=dtype, zero_based=True, n_features=41)
    assert data.X.dtype == dtype
    assert np.array_equal(data.X.indptr, X.indptr)
    assert np.array_equal(data.X.indices, X.indices)
    assert np.array_equal(data.X.data, X.data.astype(dtype))
    assert np.array_equal(data.y, y)


@given(rows_and_targets(), st.booleans())
def test_reading_what_was_written_gives_the_same(problem, zero_based):
    X, y, names, task = problem
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.svm")
        write_svmlight(path, X, y, label_names=names, zero_based=zero_based)
        base = True if zero_based else "auto"
        if not zero_based and not X.nnz:
            base = False
        data = read_svmlight(path, dtype=X.dtype, n_features=X.shape[1], task=task, zero_based=base)
    assert same(data.X, X)
    if y is None:
        assert data.y is None
    elif issparse(y):
        assert np.array_equal(data.y.toarray(), y.toarray())
        assert data.y.dtype == np.int8
        assert data.label_names.tolist() == (list(range(4)) if names is None else names.tolist())
    else:
        assert data.y.dtype.kind == y.dtype.kind
        assert np.array_equal(data.y, y)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=50))
def test_float32_is_kept_to_the_last_bit(values):
    X = np.array([values], dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.svm")
        write_svmlight(path, X, np.array([1]))
        data = read_svmlight(path, n_features=X.shape[1])
    assert np.array_equal(data.X.toarray(), X)


def test_the_float32_that_rounding_twice_would_miss_is_written_longer(tmp_path):
    # The double nearest to its shortest text, 7.038531e-26, lies halfway to the next float32.
    value = np.float32(float.fromhex("0x1.5c87fap-84"))
    assert np.float32(float(str(value))) != value
    write_svmlight(tmp_path / "file.svm", np.array([[value]]))
    assert read_svmlight(tmp_path / "file.svm").X[0, 0] == value


TRICKY = (
    "\ufeffspam 3:1.5 1:2e-3 3:1\r\n"
    "# a comment\n\n"
    "ham,eggs qid:4 2:0.30000000000000004441 # more\n"
    "  7:1e22\n"
    "ham\n"
    "\t\n"
    "spam 1:3 2:4 5:6 8:123456789012345678901234567890e-25"
)


@pytest.fixture
def tricky(tmp_path):
    return save(tmp_path, TRICKY)


def test_every_size_of_block_gives_the_same(tricky):
    expected = facts(read_svmlight(tricky))
    for size in range(1, len(TRICKY.encode()) + 2):
        assert facts(read_svmlight(tricky, block_bytes=size)) == expected


def test_what_the_tricky_file_says(tricky):
    data = read_svmlight(tricky, dtype=np.float64)
    expected = np.zeros((5, 8))
    expected[0, [0, 2]] = 2e-3, 2.5
    expected[1, 1] = 0.30000000000000004441
    expected[2, 6] = 1e22
    expected[4, [0, 1, 4, 7]] = 3, 4, 6, 12345.678901234567890
    assert np.array_equal(data.X.toarray(), expected)
    assert data.X.has_canonical_format
    assert data.label_names.tolist() == ["eggs", "ham", "spam"]
    assert data.y.toarray().tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert data.notes == (
        "feature indices are one-based (the smallest is 1)",
        "features out of order were sorted in 1 row",
        "features repeated in a row were added up: 1 value, first on line 1",
        "1 qid field ignored",
    )


def test_compressed_files_are_read_like_plain_ones(tricky, tmp_path):
    zstandard = pytest.importorskip("zstandard")
    raw = TRICKY.encode()
    cut = len(raw) // 2
    packed = {
        "one.gz": gzip.compress(raw),
        "members.gz": gzip.compress(raw[:cut]) + gzip.compress(raw[cut:]) + b"\0" * 7,
        "one.zst": zstandard.compress(raw),
        "frames.zst": zstandard.compress(raw[:cut]) + zstandard.compress(raw[cut:]),
        "gz-by-content.svm": gzip.compress(raw),
    }
    expected = facts(read_svmlight(tricky))
    for name, content in packed.items():
        for size in (1, 7, 100000):
            assert facts(read_svmlight(save(tmp_path, content, name), block_bytes=size)) == expected


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_damaged_compressed_files_are_refused(pack, tmp_path):
    if pack == "gzip":
        packed = gzip.compress(TRICKY.encode() * 50)
    else:
        packed = pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress(TRICKY.encode() * 50)
    broken = bytearray(packed)
    broken[len(broken) // 2] ^= 0xFF
    for content in (packed[:-1], packed[: len(packed) // 2], bytes(broken), packed + b"rubbish"):
        with pytest.raises(DataFormatError, match="damaged or cut short"):
            read_svmlight(save(tmp_path, content, "file.gz"))


def test_zstandard_missing_is_said_with_the_extra_that_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    path = save(tmp_path, b"\x28\xb5\x2f\xfd....", "file.zst")
    with pytest.raises(ValueError, match=r"manyclass\[zstd\]"):
        read_svmlight(path)
    with pytest.raises(ValueError, match=r"manyclass\[zstd\]"):
        write_svmlight(tmp_path / "new.zst", np.eye(2))
    assert [file.name for file in tmp_path.iterdir()] == ["file.zst"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_written_compressed_or_plain_is_the_same(suffix, tmp_path):
    if suffix == ".zst":
        pytest.importorskip("zstandard")
    X = csr_matrix(np.arange(6.0).reshape(2, 3))
    for name in ("a", "b"):
        write_svmlight(tmp_path / f"{name}.svm{suffix}", X, np.array([1, 2]))
    assert (tmp_path / f"a.svm{suffix}").read_bytes() == (tmp_path / f"b.svm{suffix}").read_bytes()
    assert streams.compression(tmp_path / f"a.svm{suffix}") == {"": None, ".gz": "gzip", ".zst": "zstd"}[suffix]
    assert same(read_svmlight(tmp_path / f"a.svm{suffix}", dtype=np.float64).X, X)


WRONG = {
    "1 1:x": "the value in '1:x' is not a finite number",
    "1 1:": "the value in '1:' is not a finite number",
    "1 1: 2": "the value in '1:' is not a finite number",
    "1 1:nan": "the value in '1:nan' is not a finite number",
    "1 1:-inf": "the value in '1:-inf' is not a finite number",
    "1 1:0x10": "is not a finite number",
    "1 1:1_0": "is not a finite number",
    "1 1:1:2": "is not a finite number",
    "1 1:1e": "is not a finite number",
    "1 1:1,2": "is not a finite number",
    "1 2": "'2' is not a feature; expected INDEX:VALUE",
    "1 a:1": "'a:1' is not a feature",
    "1 :1": "':1' is not a feature",
    "1 1.5:1": "'1.5:1' is not a feature",
    "1 1 :2": "'1' is not a feature",
    "1 quid:1": "'quid:1' is not a feature",
    "1 -1:2": "negative",
    "1 1234567890123456789:2": "more than 18 digits",
    "1 1:1e39": "infinite as float32: pass dtype=float64",
    "1 1:1e999": "infinite",
    "1 1:340282356779733661637539395458142568448": "infinite",
    "1 2:3e38 2:3e38": "add up to infinity",
    "1:2": "begins with the feature '1:2'",
    ",1 1:2": "a label is empty",
    "1, 1:2": "a label is empty",
    "1,,2 1:2": "a label is empty",
}


@pytest.mark.parametrize("line", WRONG)
@pytest.mark.parametrize("size", [1, 30, 1 << 19])
def test_a_wrong_line_is_named(line, size, tmp_path):
    path = save(tmp_path, f"1 1:1\n# comment\n\n2 1:2 2:3\r\n{line}\n3 1:4 9:x\n")
    with pytest.raises(DataFormatError, match="line 5: ") as caught:
        read_svmlight(path, block_bytes=size)
    assert caught.value.line == 5
    assert caught.value.path == str(path)
    assert WRONG[line] in caught.value.what
    assert str(caught.value) == f"{path}, line 5: {caught.value.what}"


def test_labels_that_are_not_text_are_refused(tmp_path):
    with pytest.raises(DataFormatError, match="line 2: the label is not UTF-8"):
        read_svmlight(save(tmp_path, b"a 1:1\n\xff 1:1\n"))


@pytest.mark.parametrize("content", ["", "\n", "# nothing\n\n"])
def test_a_file_without_rows_is_refused(content, tmp_path):
    with pytest.raises(DataFormatError, match="it has no rows"):
        read_svmlight(save(tmp_path, content))


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        ("1 2 1", "auto", np.array([1, 2, 1])),
        ("+1 -1 0", "auto", np.array([1, -1, 0])),
        ("1.0 2e1 1", "auto", np.array([1, 20, 1])),
        ("1.5 2 1", "auto", np.array([1.5, 2, 1])),
        ("1.5 2 1", "classification", np.array(["1.5", "2", "1"])),
        ("1 2 1", "regression", np.array([1.0, 2, 1])),
        ("01 1 1", "auto", np.array(["01", "1", "1"])),
        ("01 1 1", "regression", np.array([1.0, 1, 1])),
        ("sci.space 7 rec.autos", "auto", np.array(["sci.space", "7", "rec.autos"])),
        ("1 2 a", "auto", np.array(["1", "2", "a"])),
        ("nan inf a", "auto", np.array(["nan", "inf", "a"])),
        ("9007199254740993 9007199254740992 1", "auto", np.array([9007199254740993, 9007199254740992, 1])),
        ("9007199254740993 9007199254740992 1.5", "auto", np.array(["9007199254740993", "9007199254740992", "1.5"])),
        ("12345678901234567890 1 1", "auto", np.array(["12345678901234567890", "1", "1"])),
        ("0.12345678901234567890123 1 1", "auto", np.array([0.12345678901234567890123, 1, 1])),
        ("0.12345678901234567890123 1 1", "regression", np.array([0.12345678901234567890123, 1, 1])),
    ],
)
def test_labels_are_integers_numbers_or_names(labels, task, expected, tmp_path):
    path = save(tmp_path, "".join(f"{label} 1:1\n" for label in labels.split()))
    for size in (1, 1 << 19):
        y = read_svmlight(path, task=task, block_bytes=size).y
        assert y.dtype.kind == expected.dtype.kind
        assert y.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("content", "task", "line", "what"),
    [
        ("1.5 1:1\n2 1:1\nnan 1:1\n", "auto", 3, "'nan' is not finite; expected a finite number"),
        ("1.5 1:1\n2 1:1\n-Inf 1:1\n", "classification", 3, "'-Inf' is not finite"),
        ("1.5 1:1\n\n1e999 1:1\n", "regression", 3, "'1e999' is not a finite number"),
        ("1.5 1:1\n\nx 1:1\n", "regression", 3, "'x' is not a finite number"),
        ("1 1:1\n#\n1,2 1:1\n", "regression", 3, "2 labels; expected 1"),
        ("1 1:1\n#\n 1:1\n", "classification", 3, "0 labels; expected 1"),
        ("1,2 1:1\n1 1:1\n", "classification", 1, "2 labels; expected 1"),
    ],
)
def test_labels_that_do_not_fit_the_task_are_named(content, task, line, what, tmp_path):
    with pytest.raises(DataFormatError, match=what) as caught:
        read_svmlight(save(tmp_path, content), task=task)
    assert caught.value.line == line


def test_multilabel_columns_are_the_labels_in_order(tmp_path):
    data = read_svmlight(save(tmp_path, "10,9 1:1\n 1:1\n10,10 1:1\n"))
    assert data.label_names.tolist() == [9, 10]
    assert data.y.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]
    codes = read_svmlight(save(tmp_path, "250.0,401.9 1:1\n401.90 1:1\n"))
    assert codes.label_names.tolist() == ["250.0", "401.9", "401.90"]
    single = read_svmlight(save(tmp_path, "3 1:1\n1 1:1\n"), task="multilabel")
    assert single.y.toarray().tolist() == [[0, 1], [1, 0]]
    repeated = read_svmlight(save(tmp_path, ",".join(["a"] * 300) + " 1:1\n"))
    assert repeated.y.toarray().tolist() == [[1]]


def test_the_base_of_indices(tmp_path):
    one = save(tmp_path, "1 1:1 3:1\n", "one.svm")
    zero = save(tmp_path, "1 0:1 3:1\n", "zero.svm")
    assert read_svmlight(one).X.shape == (1, 3)
    assert read_svmlight(one).zero_based is False
    assert read_svmlight(zero).X.shape == (1, 4)
    assert read_svmlight(zero).zero_based is True
    assert "zero-based (the smallest is 0)" in read_svmlight(zero).notes[0]
    assert read_svmlight(one, zero_based=True).X.toarray().tolist() == [[0, 1, 0, 1]]
    with pytest.raises(DataFormatError, match="'0:1' is below 1"):
        read_svmlight(zero, zero_based=False)


def test_fewer_features_are_widened_and_more_are_refused_or_ignored(tmp_path):
    path = save(tmp_path, "1 1:1\n2 3:1 5:2\n", "file.svm")
    assert read_svmlight(path, n_features=9).X.shape == (2, 9)
    assert read_svmlight(path, n_features=5).X.shape == (2, 5)
    with pytest.raises(DataFormatError, match="line 2: the feature index in '5:2' is beyond 4"):
        read_svmlight(path, n_features=4)
    narrow = read_svmlight(path, n_features=3, extra_features="ignore")
    assert narrow.X.toarray().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert "features beyond the first 3 ignored: 1 value" in narrow.notes


def test_a_base_found_late_still_counts_the_features_right(tmp_path):
    # Index 2 is the second of one-based features, and the third of zero-based ones.
    path = save(tmp_path, "1 2:5\n2 0:1\n")
    with pytest.raises(DataFormatError, match="line 1: the feature index in '2:5' is beyond 1"):
        read_svmlight(path, n_features=2)
    assert read_svmlight(path, n_features=2, extra_features="ignore").X.toarray().tolist() == [[0, 0], [1, 0]]


def test_indices_too_large_for_32_bits(tmp_path):
    data = read_svmlight(save(tmp_path, "1 1:1\n2 3000000000:2 7:1\n"), block_bytes=1)
    assert data.X.indices.dtype == np.int64
    assert data.X.indices.tolist() == [0, 6, 2999999999]


@given(st.data())
def test_order_does_not_matter_and_repeats_are_added_up(draw):
    rows = draw.draw(
        st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(-99, 99)), max_size=8), min_size=1, max_size=8)
    )
    expected = np.zeros((len(rows), 9))
    for row, pairs in enumerate(rows):
        for index, value in pairs:
            expected[row, index - 1] += value
    content = "".join("1 " + " ".join(f"{i}:{v}" for i, v in pairs) + "\n" for pairs in rows)
    with tempfile.TemporaryDirectory() as folder:
        data = read_svmlight(save(folder, content), n_features=9, zero_based=False, block_bytes=64)
    assert np.array_equal(data.X.toarray(), expected)
    fresh = csr_matrix((data.X.data, data.X.indices, data.X.indptr), shape=data.X.shape)
    fresh.check_format(full_check=True)
    assert fresh.has_canonical_format


@pytest.mark.parametrize(
    ("X", "y", "names", "what"),
    [
        (np.array([[1.0], [np.nan]]), np.array([1, 2]), None, "not finite in row 1"),
        (csr_matrix(np.array([[1.0, 0], [0, np.inf]])), np.array([1, 2]), None, "not finite in row 1"),
        (np.eye(2), np.array([1.0, np.nan]), None, "y has a value that is not finite"),
        (np.eye(2), np.array([1]), None, "expected 2 rows"),
        (np.eye(2), np.array(["a b", "c"]), None, "'a b' cannot be written"),
        (np.eye(2), np.array(["a", ""]), None, "'' cannot be written"),
        (np.eye(2), np.array(["a:1", ""]), None, "'a:1' cannot be written"),
        (np.eye(2), csr_matrix(np.eye(2)), np.array(["a"]), "one name for each column"),
        (np.eye(2)[0], None, None, "1 dimensions"),
        (np.empty((2, 0)), None, None, "no columns"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(X, y, names, what, tmp_path):
    path = save(tmp_path, "what was there")
    with pytest.raises(ValueError, match=what):
        write_svmlight(path, X, y, label_names=names)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "what was there"


def test_a_row_without_anything_stays_a_row(tmp_path):
    path = tmp_path / "file.svm"
    write_svmlight(path, csr_matrix((3, 2)), csr_matrix(np.array([[0, 1], [0, 0], [1, 0]])))
    data = read_svmlight(path, n_features=2)
    assert data.X.shape == (3, 2)
    assert data.X.count_nonzero() == 0
    assert data.y.toarray().tolist() == [[0, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_memory_is_the_result_and_a_few_blocks(suffix, tmp_path):
    rng = np.random.default_rng(0)
    X = random(6000, 5000, density=0.01, format="csr", random_state=rng, dtype=np.float32)
    path = tmp_path / f"file.svm{suffix}"
    write_svmlight(path, X, rng.integers(0, 50, 6000))
    block_bytes = 1 << 14
    read_svmlight(path)  # compiles
    tracemalloc.start()
    data = read_svmlight(path, block_bytes=block_bytes)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    result = data.summary()["bytes"]
    assert result > 2.4e6
    assert kept < 1.01 * result + 1e5
    # A block, and the scratch that has to take whatever may be in it.
    assert peak < 1.25 * result + 40 * block_bytes


def test_names_of_labels_that_y_has_itself_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"label_names are for .* an indicator matrix, got y of shape \(2,\)"):
        write_svmlight(tmp_path / "rows.svm", np.eye(2), np.array([0, 1]), label_names=np.array(["a", "b"]))
