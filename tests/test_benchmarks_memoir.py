"""The experiments on MEMOIR run, and what they measure is what they say."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from benchmarks import catalog
from benchmarks.bench import Bench, Options
from benchmarks.data import Data
from benchmarks.fitting import describe, judge
from benchmarks.task import Stop, Task
from rich.console import Console

from manyclass.datasets import make_many_classes


@pytest.fixture(scope="module")
def rows():
    X, y = make_many_classes(700, 300, 30, nnz_per_row=10, random_state=0)
    kept = np.unique(y[:600])
    test = np.flatnonzero(np.isin(y, kept))[-80:]
    return Data("generated", X[:600], np.searchsorted(kept, y[:600]), X[test], np.searchsorted(kept, y[test]))


@pytest.mark.slow
def test_methods_fit_their_estimators(rows):
    from manyclass import CrammerSinger, LinearClassifier, Memoir

    task = Task("margin", alpha=1e-4, options=(("batch_size", 7),))
    own = {"memoir": ({}, 0.0), "memoir_l1": ({}, 1.0), "memoir_lsh": ({"search": "lsh"}, 0.0)}
    for name, (options, l1_ratio) in own.items():
        fit = catalog.method(name).fit(rows, task, Stop(max_iter=2), threads=1, seed=3)
        settings = {"alpha": 1e-4, "l1_ratio": l1_ratio, "max_iter": 2, "random_state": 3}
        ours = LinearClassifier(CrammerSinger(gamma=0.0), solver=Memoir(batch_size=7, **options), **settings)
        ours.fit(rows.X, rows.y)
        np.testing.assert_array_equal(fit.predict(rows.X_test), ours.predict(rows.X_test))
        told = {**describe(fit), **judge(rows, task, fit)}
        assert told["nonzeros"] == ours.sparse_coef_.nnz
        assert told["accuracy"] == ours.score(rows.X_test, rows.y_test)
        assert told["predict_seconds"] > 0
        assert told["search_recall"] == 1.0  # codes rank more candidates than there are classes here
        assert "objective" not in told


def test_scaling_measures_each_number_of_classes(tmp_path, monkeypatch):
    from benchmarks import children
    from benchmarks.experiments import memoir_scaling

    monkeypatch.setattr(memoir_scaling, "_QUERIES", 5)
    monkeypatch.setattr(children, "call", lambda name, arguments: memoir_scaling.measured(**arguments))
    options = Options(data_dir=tmp_path, runs=1, epochs=2, quick=True, out=tmp_path)
    bench = Bench("memoir_scaling", options, Console(file=io.StringIO(), width=200))
    memoir_scaling.run(bench)
    bench.close()
    with (tmp_path / "memoir_scaling-quick.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["method"], int(row["n_classes"])) for row in found] == [
        (method, K) for K in (300, 1000) for method in ("memoir l2", "memoir l1", "crammer_singer brief")
    ]
    assert {row["index_recall"] for row in found} == {"1.0", ""}
    assert all(8 <= float(row["bytes_a_weight"]) < 11 for row in found if row["index_recall"])
    assert (tmp_path / "memoir_scaling-quick.png").exists()


def test_searches_that_miss_rivals_are_measured(tmp_path, monkeypatch):
    from benchmarks import children
    from benchmarks.experiments import memoir_recall

    monkeypatch.setattr(
        memoir_recall,
        "SEARCHES",
        {
            "exact": ("exact", {}),
            "codes": ("lsh", {"bits": 64, "candidates": 2}),
        },
    )
    monkeypatch.setattr(memoir_recall, "PENALTIES", {"l2": 0.0})
    monkeypatch.setattr(children, "call", lambda name, arguments: memoir_recall.trace(**arguments))
    options = Options(data_dir=tmp_path, runs=1, epochs=2, quick=True, out=tmp_path, datasets=("generated/small",))
    bench = Bench("memoir_recall", options, Console(file=io.StringIO(), width=200))
    memoir_recall.run(bench)
    bench.close()
    with (tmp_path / "memoir_recall-quick.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["settings"], row["search"], row["iterations"]) for row in found] == [
        (settings, search, number) for settings in ("ours", "paper") for search in ("exact", "codes") for number in "12"
    ]
    assert all((row["search"] == "exact") == (row["search_recall"] == "1.0") for row in found)
    assert all((row["search"] == "exact") == (row["margin_error"] == "0.0") for row in found)
    assert {float(row["batch_size"]) * float(row["alpha"]) for row in found if row["settings"] == "paper"} == {1.0}
    assert (tmp_path / "memoir_recall-quick.png").exists()


def test_the_table_searches_and_says_what_does_not_fit(tmp_path, monkeypatch, rows):
    from benchmarks import children
    from benchmarks.experiments import many_classes_table as table

    asked = []

    def call(name, arguments, python=None):
        asked.append((arguments["method"], arguments["task"]["alpha"], arguments["held_out"]))
        # The second setting is the best of the validation.
        best = arguments["held_out"] is not None and arguments["task"]["alpha"] == 1e-5
        facts = {"data": "generated", "seconds": 1.0, "predict_seconds": 1.0, "macro_f1": 0.5}
        return {**facts, "accuracy": 0.9 if best else 0.5}

    monkeypatch.setattr(children, "call", call)
    monkeypatch.setattr(table, "memory_bytes", lambda: 1)
    monkeypatch.setattr(table.DataFile, "read", lambda self: rows)
    options = Options(
        data_dir=tmp_path, runs=1, only=("memoir",), datasets=("generated/small",), quick=True, out=tmp_path
    )
    bench = Bench("many_classes_table", options, Console(file=io.StringIO(), width=200))
    table.run(bench)
    assert asked == [
        ("memoir", 1e-6, None),
        ("memoir", 1e-6, 1),
        ("memoir", 1e-5, 1),
        ("memoir", 1e-7, 1),
        ("memoir", 1e-5, None),
    ]
    searched = [row for row in bench.rows if row.get("part") == "searched"]
    assert [row["search_seconds"] for row in searched] == [3.0]
