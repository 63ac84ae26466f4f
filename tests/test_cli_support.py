"""What the tests of the command line share: small problems as files of every format, and a way to run it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits

from manyclass import LinearModel
from manyclass.cli.main import main
from manyclass.io import Dataset, write


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run(capsys, *argv) -> Ran:
    """Run the command line in this process."""
    capsys.readouterr()
    code = main([str(word) for word in argv])
    return Ran(code, *capsys.readouterr())


def fitted(capsys, *words) -> tuple[LinearModel, Ran]:
    """The model that a fit which must succeed writes to the name behind -o."""
    ran = run(capsys, "fit", *words)
    assert ran.code == 0, ran.err
    return LinearModel.load(words[words.index("-o") + 1]), ran


def refused(ran: Ran, *needles: str) -> None:
    """A command failed as commands should: code 2, one sentence, nothing on standard output, no traceback."""
    assert ran.code == 2, ran
    assert ran.out == ""
    last = ran.err.splitlines()[-1]
    assert last.startswith("manyclass: error: ")
    assert "Traceback" not in ran.err
    for needle in needles:
        assert needle in last


def digits(n: int = 300) -> tuple[csr_matrix, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return csr_matrix((X[:n] / 16).astype(np.float32)), y[:n]


def label_sets(n: int = 300, k: int = 6) -> tuple[csr_matrix, csr_matrix]:
    """Rows whose features tell a set of labels, sometimes empty."""
    rng = np.random.default_rng(0)
    Y = csr_matrix((rng.random((n, k)) < 0.3).astype(np.int8))
    X = csr_matrix(np.hstack([Y.toarray() * 0.5, rng.integers(0, 8, (n, 4)) / 8]).astype(np.float32))
    return X, Y


def texts(n: int = 60) -> tuple[list[str], list[str]]:
    words = {"card": "card lost stolen", "account": "balance statement money", "loan": "interest rate house"}
    rng = np.random.default_rng(0)
    labels = [list(words)[i % 3] for i in range(n)]
    return [" ".join(rng.choice([*words[label].split(), "the", "my"], 6)) for label in labels], labels


def table(path: Path, columns: dict[str, list[str]], delimiter: str = ",") -> Path:
    lines = [delimiter.join(columns), *(delimiter.join(row) for row in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


#: What `make` writes: svmlight in all its packings, and the other formats.
KINDS = ("svm", "svm.gz", "svm.zst", "xmc", "npz", "npy", "csv", "tsv")


def make(kind: str, folder: Path) -> Path:
    """A file of a classification problem (of label sets, for xmc) in the format."""
    path = folder / f"data.{kind}"
    if kind in ("csv", "tsv"):
        rows, labels = texts()
        return table(path, {"text": rows, "queue": labels}, "," if kind == "csv" else "\t")
    X, y = label_sets() if kind == "xmc" else digits()
    write(path, Dataset(X.toarray() if kind == "npy" else X, y))
    if kind == "svm.gz":
        assert gzip.open(path).read(1)
    return path


def left(folder: Path) -> set[str]:
    """The names in a folder, hidden ones as well."""
    return set(os.listdir(folder))
