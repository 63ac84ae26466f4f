"""``manyclass demo`` and ``manyclass bench``: they run, and what they show is so."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest

from manyclass import LinearClassifier
from manyclass.cli import bench, demo
from test_cli_support import left, refused, run


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_demo(capsys, tmp_path):
    folder = tmp_path / "a" / "b"
    ran = run(capsys, "demo", "--quick", "--out", folder)
    assert ran.code == 0, ran.err
    assert left(folder) == {"convergence.png", "results.csv"}
    found = rows(folder / "results.csv")
    assert [(row["data"], row["loss"]) for row in found] == [
        (data, loss) for data in ("digits", "generated text") for loss in demo.LOSSES
    ]
    for row in found:
        assert float(row["relative_gap"]) <= demo._TOL
        assert float(row["test_accuracy"]) > 0.75
        assert float(row["seconds"]) > 0
        assert int(row["model_bytes"]) > 0
        line = next(line for line in ran.lines if line.split()[-len(row) :][:1] and _is_row(line, row))
        assert f"{float(row['test_accuracy']):.4f}" in line
        assert f"{float(row['objective']):.5f}" in line
    assert "relative gap" in ran.err  # progress
    image = (folder / "convergence.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) > 20_000


def _is_row(line, row):
    return line.strip().startswith(f"{row['data']} ") and f" {row['loss']} " in line


def test_demo_without_matplotlib(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "has_matplotlib", lambda: False)
    monkeypatch.setattr(demo, "LOSSES", ("multinomial",))
    ran = run(capsys, "demo", "--quick", "--quiet", "--out", tmp_path)
    assert ran.code == 0
    assert left(tmp_path) == {"results.csv"}
    assert ran.err.splitlines()[-1].startswith("manyclass: warning: no figure was drawn")
    assert "manyclass[plot]" in ran.err
    assert len([line for line in ran.lines if " multinomial " in line]) == 2


def test_demo_needs_a_folder(capsys, tmp_path):
    (tmp_path / "x").write_text("")
    refused(run(capsys, "demo", "--out", tmp_path / "x"), "is a file")


@pytest.mark.parametrize("words", [["demo", "--quick", "--out"], ["bench", "--quick", "--out"]])
def test_ctrl_c(capsys, monkeypatch, tmp_path, words):
    real = LinearClassifier.fit

    def fit(self, X, y):
        real(self, X, y)
        self.history_.outcome = "interrupted"
        return self

    monkeypatch.setattr(LinearClassifier, "fit", fit)
    ran = run(capsys, *words, tmp_path / "out")
    assert ran.code == 130
    assert ran.out == ""
    assert not list(tmp_path.rglob("*.*"))


def test_bench(capsys, tmp_path):
    ran = run(capsys, "bench", "--quick", "--repeat", "2", "--out", tmp_path / "runs.csv")
    assert ran.code == 0, ran.err
    assert "python -m benchmarks" in ran.err
    found = rows(tmp_path / "runs.csv")
    assert [(row["method"], row["run"]) for row in found] == [
        ("manyclass", "1"), ("manyclass", "2"), ("lbfgs", "1"), ("lbfgs", "2"),
    ]  # fmt: skip
    ours, _, theirs, _ = (float(row["objective"]) for row in found)
    assert theirs <= ours <= theirs * 1.05
    assert "scikit-learn" in ran.lines[0]
    assert f"{ours:.5f}" in ran.out


@pytest.mark.parametrize("needed", [1, 6, 7, 9, 10, 11, 37, 640, 641, 1280, 1281])
def test_bench_finds_the_fewest_iterations(monkeypatch, needed):
    asked = []

    def lbfgs(problem, X, y, n):
        """Comes down to the target of 0.5 in so many iterations."""
        asked.append(n)
        return bench._Fit(0.0, float(n < needed))

    monkeypatch.setattr(bench, "_lbfgs", lbfgs)
    # It looks between 6 iterations and those that are granted, and halves the range: few fits.
    assert bench._iterations(bench._QUICK[0], None, None, 0.5) == min(max(needed, 6), bench._MOST)
    assert len(asked) <= 20


def test_a_target_that_is_not_reached_is_said(capsys, monkeypatch):
    result = bench._Result(bench._QUICK[0], [bench._Fit(1.0, 0.5)], [bench._Fit(3.0, 0.6)], 1280, 0.0)
    monkeypatch.setattr(bench, "_compare", lambda *_: result)
    ran = run(capsys, "bench", "--quick")
    assert "> 1280" in ran.out
    assert "> 3.0" in ran.out


def test_both_have_one_thread():
    """In a process of its own: a limit does not hold for libraries that are loaded after it is set."""
    code = """
from threadpoolctl import threadpool_info
from manyclass.cli import bench, main
def compare(problem, repeat):
    import sklearn.linear_model
    pools = [pool["num_threads"] for pool in threadpool_info()]
    raise SystemExit(f"{len(pools) > 0} {set(pools)}")
bench._compare = compare
main.main(["bench", "--quick"])
"""
    # Without the limit there would be two: the tests themselves run with one.
    two = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=two, capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines()[-1] == "True {1}"


def test_bench_options(capsys, tmp_path):
    refused(run(capsys, "bench", "--repeat", "0"), "--repeat")
    refused(run(capsys, "bench", "--out", tmp_path / "no" / "x.csv"), "does not exist")
