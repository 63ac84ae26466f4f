"""The experiments on bound majorization run, what they say is so, and their data sets read raw files."""

from __future__ import annotations

import gzip
import io
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from experiments import run

pytestmark = pytest.mark.usefixtures("prepared")


# The oldest matplotlib calls functions that the newest pyparsing deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestExperiments:
    def test_toy(self, tmp_path: Path) -> None:
        rows = run(tmp_path, "bound_toy")
        by_method: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            by_method.setdefault(row["method"], []).append(row)
        assert set(by_method) == {"bound", "bound, literal", "L-BFGS", "SGD", "ASGD"}
        for row in rows:
            assert float(row["objective"]) >= float(row["best"]) * (1 - 1e-9)
        bound, lbfgs = by_method["bound"][0], by_method["L-BFGS"][0]
        # What the experiment is there to show: one pass against any gain.
        assert float(bound["objective_after_a_pass"]) < float(lbfgs["objective_after_a_pass"])
        assert float(bound["objective_after_a_pass"]) < min(float(row["objective"]) for row in by_method["SGD"])
        assert len({row["eta0"] for row in by_method["SGD"]}) == 4

    def test_epochs(self, tmp_path: Path) -> None:
        rows = run(tmp_path, "bound_epochs", "--data", "bundled/iris", "--alpha", "1")
        assert len(rows) == 8
        for row in rows:
            passes = [row[f"passes_to_{error:g}"] for error in (1e-2, 1e-4, 1e-6)]
            reached = [float(value) for value in passes if value]
            assert reached == sorted(reached)
            assert all(value == "" for value in passes[len(reached) :])
            assert (float(row["objective"]) <= float(row["best"]) * (1 + 1e-6)) == (len(reached) == 3)
        bound = next(row for row in rows if row["method"] == "bound")
        assert bound["monotone"] == "True"
        assert float(bound["passes_to_1e-06"]) <= 12

    def test_curves_of_full_and_of_low_rank(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from benchmarks.experiments import bound_curves

        monkeypatch.setattr(bound_curves, "_SETS", {"bundled/wine": (1.0, None), "bundled/iris": (1.0, 1)})
        rows = run(tmp_path, "bound_curves", "--only", "bound,lbfgs,gd,sgd,asgd")
        runs = [row for row in rows if row["kind"] == "run"]
        assert {row["method"] for row in runs if row["data"].startswith("bundled/wine")} == {
            *("bound", "bound, literal", "L-BFGS", "steepest descent", "SGD", "ASGD")
        }
        assert {row["method"] for row in runs if row["data"].startswith("bundled/iris")} == {
            *("bound, rank 1", "bound, literal, m = 1", "L-BFGS", "steepest descent", "SGD", "ASGD")
        }
        for row in runs:
            assert float(row["objective"]) >= float(row["best"]) * (1 - 1e-9)
            assert 0 <= float(row["error"]) <= 1
            assert (row["updates_to_likelihood"] == "") == (row["passes_to_likelihood"] == "")
            near = float(row["objective"]) <= 1.01 * float(row["best"])
            assert near == (row["passes_to_objective"] != "")
        means = [row for row in rows if row["kind"] == "mean"]
        for row in runs:  # one run: at its end the mean is that run
            last = [mean for mean in means if (mean["data"], mean["method"]) == (row["data"], row["method"])][-1]
            assert float(last["objective"]) == pytest.approx(float(row["objective"]), rel=1e-12)

    def test_cost(self, tmp_path: Path) -> None:
        rows = run(tmp_path, "bound_cost")
        kinds = [row["what"] for row in rows]
        assert kinds == ["limit", "limit", "full rank", "full rank", "low rank"]
        for row in rows[2:4]:
            n, d, K = (int(row[name]) for name in "ndK")
            # What is counted is what the blocks on and below the diagonal take.
            assert float(row["gflop"]) == pytest.approx(n * d**2 * K * (K - 1) / 1e9)
            assert float(row["of_the_bound"]) < 1
            assert float(row["gflops"]) > 0
        assert rows[4]["status"] == "measured"
        assert float(rows[4]["process_bytes"]) > float(rows[4]["peak_bytes"])


@pytest.mark.parametrize("name", ["bound", "bbm"])
@pytest.mark.parametrize("K", [2, 3])
def test_methods_minimize_their_task(name: str, K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import catalog
    from benchmarks.data import Data
    from benchmarks.objective import objective
    from benchmarks.task import Stop, Task

    from manyclass.solvers.bound import majorization

    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, K, 60)
    data, task, method = (
        Data("random", X, y, X, y),
        Task("multinomial", alpha=0.1, intercept=True),
        catalog.method(name),
    )
    for full in (4000, 0):
        monkeypatch.setattr(majorization, "_FULL", full)
        fit = method.fit(data, task, Stop(tol=1e-3))
        assert fit.certificate["relative_gap"] <= 1e-3
        assert objective(data, task, fit.weights, fit.intercept) == pytest.approx(fit.certificate["primal"], rel=1e-12)
    assert method.refuses(Task("log_loss")) is not None
    assert "needs a penalty with a gradient" in str(method.refuses(Task("multinomial", l1_ratio=0.5)))


def test_what_curves_tell() -> None:
    from benchmarks.experiments._bound import Curve

    curve = Curve()
    for at, value in enumerate([5.0, 3.0, 1.0, 2.0, 1.0, 0.5]):
        curve.add(2.0 * at, 0.1 * at, (value, -value, 0.5))
    assert not curve.monotone
    assert curve.settles(lambda curve, index: curve.objective[index] <= 1) == 4
    assert curve.settles(lambda curve, index: curve.objective[index] <= 4) == 1
    assert curve.settles(lambda curve, index: curve.objective[index] <= 0.4) is None
    assert curve.at([0, 1, 2, 3.9, 100], "objective").tolist() == [5, 5, 3, 3, 0.5]


def test_the_judge_is_the_problem_itself() -> None:
    from benchmarks.data import Data
    from benchmarks.experiments import _bound
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    case = _bound.pooled(Data("random", X[:40], y[:40], X[40:], y[40:]), 2.0)
    assert case.X.shape == (45, 4)
    assert len(case.y_test) == 5
    W = rng.normal(size=(4, 3))
    judged = case.judge(W)
    assert judged[0] == pytest.approx(case.problem.value(W, np.zeros(3)), rel=1e-12)
    # lambda against the sum of the losses is 1 / C, the column of ones penalized like the others.
    model = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000).fit(case.X, case.y)
    best = _bound.optimum(case)
    assert best[0] == pytest.approx(case.judge(model.coef_.T)[0], rel=1e-9)
    assert best[1] == pytest.approx(np.mean(model.predict_log_proba(case.X_test)[np.arange(5), case.y_test]), rel=1e-4)
    assert best[2] == pytest.approx(1 - model.score(case.X_test, case.y_test))
    assert case.judge(W * math.inf)[1] == -math.inf


def test_the_toy_is_symmetric_and_not_separable() -> None:
    from benchmarks.experiments import _bound, bound_toy

    case = bound_toy.toy(200)
    axes = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
    idle, told = (case.X[:, :2] @ axes).T
    points = {(round(a, 6), round(b, 6), c) for a, b, c in zip(idle, told, case.y)}
    assert {(-a, b, c) for a, b, c in points} == points
    assert {(a, -b, 1 - c) for a, b, c in points} == points
    assert 0.1 < _bound.optimum(case)[2] < 0.4


# --- data sets ------------------------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content))


def read(name: str, folder: Path) -> Any:
    from benchmarks import data

    return data.read(data.locate(name, folder), name)


def test_uci(tmp_path: Path) -> None:
    from benchmarks.datasets import uci

    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, (40, 4))
    for variant in uci.VARIANTS:
        before = "Train,Ann,Male," if variant == "vowel" else ""
        lines = [f"{before}{', '.join(map(repr, row.tolist()))}, {'ab'[k % 2]}" for k, row in enumerate(values)]
        if variant == "vowel":
            lines[30:] = [line.replace("Train", "Test") for line in lines[30:]]
        text = "% about\n@relation x\n@attribute a real\n@DATA\n" + "\n".join(lines) + "\n\n"
        write(tmp_path / f"uci/{variant}.arff.gz", text.encode())
    vowel = read("uci/vowel", tmp_path)
    assert vowel.X.shape == (30, 4)
    np.testing.assert_array_equal(vowel.y, np.arange(30) % 2)
    np.testing.assert_allclose(vowel.X, (values[:30] - values[:30].mean(0)) / values[:30].std(0), rtol=1e-5, atol=1e-6)
    ecoli = read("uci/ecoli", tmp_path)
    assert (len(ecoli.y), len(ecoli.y_test)) == (30, 10)
    np.testing.assert_allclose(ecoli.X.mean(0), 0, atol=1e-6)


def test_ssl_book(tmp_path: Path) -> None:
    from benchmarks.datasets import ssl_book

    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, (50, 4)).astype(np.uint8)
    X, y = rng.normal(size=(50, 6)), rng.choice([-1, 1], 50)
    for variant in ssl_book.VARIANTS:
        content = io.BytesIO()
        savemat(content, {"T": codes, "y": y[:, None]} if variant == "secstr" else {"X": X, "y": y[:, None]})
        write(tmp_path / f"ssl_book/{variant}.mat.gz", content.getvalue())
    data = read("ssl_book/secstr", tmp_path)
    assert data.X.shape == (45, 12)
    whole = np.vstack([data.X.toarray(), data.X_test.toarray()])
    np.testing.assert_array_equal(whole.reshape(50, 4, 3).sum(axis=2), 1)
    found = {tuple(row) for row in whole.reshape(50, 4, 3).argmax(axis=2)}
    assert found == {tuple(row) for row in codes.tolist()}
    digit = read("ssl_book/digit1", tmp_path)
    rows = {tuple(np.round(row, 5)): label for row, label in zip(X.astype(np.float32), y)}
    for row, label in zip(np.vstack([digit.X, digit.X_test]), np.concatenate([digit.y, digit.y_test])):
        assert rows[tuple(np.round(row, 5))] == 2 * label - 1


def test_what_is_made_of_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.datasets import gisette_like, mnist, mnist_pca

    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (60, 5, 6)).astype(np.uint8)
    labels = rng.choice([4, 9, 1], 60).astype(np.uint8)
    for at in (0, 2):
        for file, array in ((mnist.FILES[at], images), (mnist.FILES[at + 1], labels)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            write(tmp_path / file, head + array.tobytes())
    monkeypatch.setattr(mnist_pca, "_ROWS", 50)
    monkeypatch.setattr(mnist_pca, "_TEST", 10)
    monkeypatch.setattr(mnist_pca, "_COMPONENTS", 7)
    pca = mnist_pca.build(tmp_path, "")
    assert pca.X.shape == (40, 7)
    assert pca.X_test.shape == (10, 7)
    covariance = pca.X.T.astype(float) @ pca.X
    pixels = images[:40].reshape(40, -1) / 255
    spectrum = np.linalg.svd(pixels - pixels.mean(0), compute_uv=False)[:7] ** 2
    np.testing.assert_allclose(covariance, np.diag(spectrum), rtol=1e-4, atol=1e-4 * spectrum[0])
    monkeypatch.setattr(gisette_like, "_ROWS", 20)
    monkeypatch.setattr(gisette_like, "_TEST", 5)
    monkeypatch.setattr(gisette_like, "_REAL", 50)
    like = gisette_like.build(tmp_path, "")
    assert like.X.shape == (15, 100)
    assert set(like.y) | set(like.y_test) == {0, 1}
    whole = np.vstack([like.X, like.X_test])
    # Half of the columns have the values of the other half, in other rows.
    found = Counter(tuple(np.sort(column)) for column in whole.T)
    assert all(count % 2 == 0 for count in found.values())
    assert len(found) > 40
