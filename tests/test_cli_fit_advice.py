"""What ``manyclass fit`` advises: before a fit of minutes, and after one that ended well and predicts badly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import logsumexp

from manyclass import LinearClassifier
from manyclass.cli._advice import penalty_share
from manyclass.io import Dataset, write
from manyclass.report.advice import Facts
from test_cli_support import digits, fitted, label_sets, make


@pytest.mark.parametrize(
    ("solver", "time"),
    [("sdca", "  a fit by sdca takes about 9 min on one core"), ("lbfgs", "  the time of lbfgs cannot be told")],
)
def test_a_fit_of_minutes_says_whose_time_is_told(capsys, monkeypatch, tmp_path, solver, time):
    path, told = make("svm", tmp_path), "manyclass info DATA --choose"
    _, ran = fitted(capsys, path, "-o", tmp_path / "m", "--solver", solver)
    assert told not in ran.err
    many = Facts(119_314, 40_000, 1_500_000, 11_774, "classes", True)
    monkeypatch.setattr("manyclass.cli._advice.facts_of", lambda data: many)
    monkeypatch.setattr("manyclass.cli._advice._LONG", 30)
    _, ran = fitted(capsys, path, "-o", tmp_path / "m", "--solver", solver)
    line = next(line for line in ran.err.splitlines() if told in line)
    assert line.startswith(time)
    assert "; about 60 s takes --loss crammer_singer --alpha auto" in line


BADLY = "warning: the penalty holds the weights back"


@pytest.mark.parametrize("loss", ["multinomial", "log_loss"])
@pytest.mark.parametrize("valid", [False, True])
def test_a_penalty_that_is_too_strong_is_said(capsys, tmp_path, loss, valid):
    # A word for each of 60 classes, some of which are more frequent than others.
    y = np.repeat(np.arange(60), 30 // (1 + np.arange(60)) + 2)
    X = csr_matrix((np.full(y.size, 0.5, np.float32), (np.arange(y.size), y)))
    path = tmp_path / "data.npz"
    write(path, Dataset(X, y))
    words = [
        "-o",
        tmp_path / "m",
        "--loss",
        loss,
        "--max-iter",
        "1000",
        "--quiet",
        *(["--valid", path] if valid else []),
    ]
    model, ran = fitted(capsys, path, *words, "--alpha", "0.01")
    accuracy = np.mean(model.predict(X) == y)
    assert accuracy < 0.5
    where = "on data.npz" if valid else "on the training data"
    assert f"{BADLY}, and the model may fit badly (accuracy {accuracy:.2f} {where}): try" in ran.err
    assert "--alpha smaller than 0.01" in ran.err
    model, ran = fitted(capsys, path, *words, "--alpha", "1e-6")
    assert np.mean(model.predict(X) == y) == 1
    assert BADLY not in ran.err


def test_weights_that_are_all_zero_are_said(capsys, tmp_path):
    words = ["--l1-ratio", "1", "--alpha", "10", "--quiet"]
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", *words)
    assert not model.weights.count_nonzero()
    assert BADLY in ran.err


@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer", "log_loss", "squared_hinge"])
def test_data_that_no_weights_fit_are_not_blamed_on_the_penalty(capsys, tmp_path, loss):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 5)).astype(np.float32), rng.integers(0, 10, 3000)
    write(tmp_path / "data.npy", Dataset(X, y))
    model, ran = fitted(capsys, tmp_path / "data.npy", "-o", tmp_path / "m", "--loss", loss)
    assert np.mean(model.predict(X) == y) < 0.25
    assert BADLY not in ran.err


def test_sets_of_labels_are_judged_by_the_first(capsys, tmp_path):
    X, Y = label_sets()
    write(tmp_path / "data.npz", Dataset(X / 1000, Y))
    words = ["-o", tmp_path / "m", "--alpha", "1", "--quiet"]
    _, ran = fitted(capsys, tmp_path / "data.npz", *words)
    assert f"{BADLY}, and the model may fit badly (P@1 0." in ran.err
    write(tmp_path / "data.npz", Dataset(X, Y))
    words[3] = "1e-4"
    _, ran = fitted(capsys, tmp_path / "data.npz", *words)
    assert BADLY not in ran.err


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("binary", [False, True])
def test_the_share_of_the_penalty_is_in_0_1_and_falls_with_it(l1_ratio, binary):
    X, y = digits()
    data = Dataset(X, y < 5 if binary else y)
    shares = []
    for alpha in (1e-1, 1e-2, 1e-3, 1e-4):
        model = LinearClassifier(alpha=alpha, l1_ratio=l1_ratio, tol=1e-6, max_iter=3000, dtype=np.float64)
        shares.append(penalty_share(model.fit(data.X, data.y), data))
    assert 1 >= shares[0] > 0.4
    assert shares == sorted(shares, reverse=True)
    assert 0 <= shares[-1] < 0.1


def test_the_share_of_the_penalty_is_that_of_its_formula():
    X, y = digits()
    classifier = LinearClassifier(alpha=1e-2, l1_ratio=0.3, class_weight="balanced", tol=1e-4, max_iter=1000).fit(X, y)
    W, b = classifier.coef_.astype(np.float64), classifier.intercept_.astype(np.float64)
    c = (1 / np.bincount(y))[y] / 10 * len(y)

    def mean_loss(scores):
        return np.mean(c * (logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]))

    rate = 1e-2 * (0.7 * np.sum(W**2) + 0.3 * np.abs(W).sum())
    expected = rate / (mean_loss(np.broadcast_to(b, (len(y), 10))) - mean_loss(X @ W.T + b))
    assert penalty_share(classifier, Dataset(X, y)) == pytest.approx(expected, rel=1e-3)
