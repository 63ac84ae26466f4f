"""Several processes read a file together: their rows are those of the whole file, in order, and nothing is lost."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from manyclass.distributed import run_threads
from manyclass.io import DataFormatError, Dataset, read, write
from manyclass.io._together import PartOfLines
from manyclass.io.store import write_store

RNG = np.random.default_rng(0)
N, D = 41, 30
X = sp.random(N, D, 0.2, "csr", random_state=1, dtype=np.float32)
X.data += 0.5
NUMBERS = RNG.integers(0, 5, N) * 7
NAMES = np.array(["12", "ham", "spam", "007"])[np.minimum(np.arange(N) // 13, 3)]  # the first look like numbers


def open_files(path):
    """How often this process has a file open; 0 where the system does not tell."""
    count = 0
    for number in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            count += number.readlink() == path
    return count


def put(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def svmlight(path, labels=NUMBERS, first=1, end="\n"):
    lines = []
    for row, label in enumerate(labels):
        features = " ".join(f"{k + first}:{v:.6g}" for k, v in zip(X[row].indices, X[row].data))
        lines.append(f"{label} {features}{'  # a comment' * (row % 3)}")
        lines += [""] * (row % 5 == 4)
    text = "\n".join(["# a file", *lines]) + end
    put(path, text.encode())


def xmc(path, end="\n"):
    lines = [f"{N} {D} 40"]
    for row, label in enumerate(NUMBERS):
        lines.append(f"{label} " + " ".join(f"{k}:{v:.6g}" for k, v in zip(X[row].indices, X[row].data)))
    put(path, ("\n".join(lines) + end).encode())


def npz(path, labels, compressed):
    sp.save_npz(path, X, compressed=compressed)
    beside = path.with_suffix("")
    if labels.dtype.kind == "U":
        beside.with_name(f"{beside.name}.labels.txt").write_text("\n".join(labels) + "\n")
    else:
        np.save(beside.with_name(f"{beside.name}.labels.npy"), labels)


FILES = {
    "a.svm": lambda path: svmlight(path),
    "names.svm": lambda path: svmlight(path, NAMES),
    "zero.svm": lambda path: svmlight(path, first=0),
    "no newline.svm": lambda path: svmlight(path, end=""),
    "a.svm.gz": lambda path: svmlight(path),
    "a.xmc": lambda path: xmc(path),
    "blanks.xmc": lambda path: xmc(path, "\n\n\n\n"),
    "a.xmc.gz": lambda path: xmc(path),
    "a.npz": lambda path: npz(path, NUMBERS, compressed=False),
    "names.npz": lambda path: npz(path, NAMES, compressed=True),
    "a.npy": lambda path: write(path, Dataset(X.toarray(), NUMBERS)),
    "a.store": lambda path: write_store(path, X, NAMES, shard_rows=5),
}


def together(size, path, **options):
    return run_threads(size, lambda comm: read(path, comm=comm, **options), timeout=30)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_of_the_file(name, size, tmp_path, monkeypatch):
    monkeypatch.setattr("manyclass.io._together.BLOCK_BYTES", 300)
    path = tmp_path / name
    FILES[name](path)
    whole = read(path)
    parts = together(size, path)
    assert [part.X.shape[1] for part in parts] == [whole.X.shape[1]] * size
    assert all(part.n_samples < 0.7 * N for part in parts) or size == 1 or name.endswith(".gz")
    if sp.issparse(whole.X):
        found = sp.vstack([part.X for part in parts]).toarray()
        np.testing.assert_array_equal(found, whole.X.toarray())
    else:
        np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), whole.X)
    if whole.multilabel:
        found = sp.vstack([part.y for part in parts])
        assert found.shape == whole.y.shape
        assert (found != whole.y).nnz == 0
    else:
        assert len({part.y.dtype.kind for part in parts}) == 1
        np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), whole.y)
    assert all(part.zero_based == whole.zero_based for part in parts)


@pytest.mark.parametrize("suffix", ["npy", "txt"])
def test_labels_of_another_file_are_read_by_rows(suffix, tmp_path):
    svmlight(tmp_path / "a.svm")
    labels = tmp_path / f"labels.{suffix}"
    if suffix == "npy":
        np.save(labels, NAMES)
    else:
        labels.write_text("\n".join(NAMES))
    parts = together(3, tmp_path / "a.svm", labels=labels)
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), NAMES)
    np.save(tmp_path / "few.npy", NAMES[:-1])
    with pytest.raises(DataFormatError, match="has 40 labels; expected 41, one for each row"):
        together(3, tmp_path / "a.svm", labels=tmp_path / "few.npy")


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz", "a.xmc", "a.xmc.gz"])
@pytest.mark.parametrize("size", [2, 5])
def test_errors_name_the_line_of_the_file(name, size, tmp_path):
    path = tmp_path / name
    FILES[name](path)
    content = path.read_bytes()
    lines = (gzip.decompress(content) if name.endswith(".gz") else content).split(b"\n")
    lines[38] = lines[38].partition(b"#")[0] + b" 7:x"
    put(path, b"\n".join(lines))
    with pytest.raises(DataFormatError, match="line 39: the value in '7:x'"):
        together(size, path)
    assert open_files(path) == 0  # at once, not when the frames of the error are collected


def test_a_header_of_other_rows_is_refused_by_all(tmp_path):
    xmc(tmp_path / "a.xmc")
    text = (tmp_path / "a.xmc").read_text()
    (tmp_path / "few.xmc").write_text(text.replace("41 30 40", "40 30 40"))
    (tmp_path / "many.xmc").write_text(text.replace("41 30 40", "42 30 40"))
    with pytest.raises(DataFormatError, match="line 42: a row too many; expected 40"):
        together(3, tmp_path / "few.xmc")
    with pytest.raises(DataFormatError, match="the file ends after 41 rows; expected 42"):
        together(3, tmp_path / "many.xmc")


def test_refusals(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2\n2 1:3\n")
    with pytest.raises(DataFormatError, match="has 2 rows, too few for 3 processes: start fewer"):
        together(3, tmp_path / "a.svm")
    (tmp_path / "a.csv").write_text("text,label\nred,1\nblue,2\n")
    with pytest.raises(ValueError, match="manyclass convert TABLE"):
        together(2, tmp_path / "a.csv")
    sp.save_npz(tmp_path / "a.npz", sp.csc_matrix(X))
    with pytest.raises(DataFormatError, match="several processes read CSR"):
        together(2, tmp_path / "a.npz")


def test_a_process_reads_its_bytes_only(tmp_path, monkeypatch):
    """Of an uncompressed file; what was read is counted."""
    path = tmp_path / "a.svm"
    svmlight(path)
    size, taken = path.stat().st_size, []
    inner = PartOfLines.blocks

    def counted(part, block_bytes):
        for block in inner(part, block_bytes):
            taken.append(len(block.data))
            yield block

    monkeypatch.setattr(PartOfLines, "blocks", counted)
    together(4, path)
    assert sum(taken) == size
