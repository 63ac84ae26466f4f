"""Experiments of the benchmarks that no other file of tests runs, on tiny data; and that none is without a run."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import sklearn

from experiments import run

ROOT = Path(__file__).parents[1]
# The oldest matplotlib calls functions that the newest pyparsing deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, prepared: None) -> None:
    """The package of benchmarks is in the repository's root, not installed; data have a cache of their own."""
    monkeypatch.syspath_prepend(str(ROOT))


def test_every_experiment_is_run_by_a_test() -> None:
    from benchmarks import modules

    names = set(modules.names("experiments"))
    tests = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    called = re.compile(r'(?:\brun\(\s*[^,()]+,|"run",|main\(\["run",|Bench\()\s*"(\w+)"')
    ran = {name for text in tests for name in called.findall(text)}
    assert names - ran == set()


def test_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import serving

    monkeypatch.setattr(serving, "CLASSES", (20,))
    rows = run(tmp_path, "serving")
    service = [row for row in rows if row["what"].startswith("service")]
    assert len(rows) == 8
    assert len(service) == 1
    for row in rows:
        assert row["status"] == "measured" or row in service
        if row["status"] == "measured":
            assert row["calls"] == "50"
            assert 0 < float(row["least_seconds"]) <= float(row["seconds"]) <= float(row["percentile_99_seconds"])


@pytest.mark.slow
def test_faults(tmp_path: Path) -> None:
    rows = run(tmp_path, "faults")
    if rows[0]["status"] == "skipped":
        pytest.skip(rows[0]["reason"])
    kill, alpha = rows
    assert re.match(r"rank 1 of 3 on host2 \(epoch \d+, step \d+\), process \d+, was killed", kill["message"])
    assert float(kill["seconds"]) < 15
    assert float(kill["resumed_difference"]) < 2e-6
    assert "got 0.001 in rank 0 and 0.002 in rank 1" in alpha["message"]
    assert (kill["model_written"], alpha["model_written"]) == ("False", "")


def test_hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import hostile

    monkeypatch.setattr(hostile, "PEERS", {"manyclass": "manyclass"})
    rows = run(tmp_path, "hostile")
    assert {row["input"]: row["outcome"] for row in rows} == {
        "index out of range": "clear error",
        "data file cut short": "clear error",
    }


def test_startup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import startup

    monkeypatch.setattr(startup, "FITS", {})  # they compile, which is what they measure
    rows = run(tmp_path, "startup")
    assert [row["what"] for row in rows] == list(startup.IMPORTS)
    assert all(float(row["seconds"]) > 0 for row in rows)


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8), reason="it has no temperature scaling to compare with"
)
def test_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import calibration

    monkeypatch.setattr(calibration, "LOSSES", ("multinomial",))
    rows = run(tmp_path, "calibration", "--data", "bundled/iris")
    assert {"own", "calibrate", "bias", "temperature", "sigmoid"} <= {row["way"] for row in rows}
    assert all(float(row["log_loss"]) > 0 for row in rows)


def test_certified_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import certified_epochs

    monkeypatch.setattr(certified_epochs, "LOSSES", ("multinomial",))
    rows = run(tmp_path, "certified_epochs", "--data", "bundled/iris", "--alpha", "1e-1")
    assert {row["intercept"] for row in rows} == {"True", "False"}
    assert all(float(row["relative_gap"]) <= 1e-3 for row in rows)


def test_solver_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import solver_choice

    monkeypatch.setattr(solver_choice, "LOSSES", ("multinomial", "hinge"))
    rows = run(tmp_path, "solver_choice", "--data", "bundled/iris", "--alpha", "1e-1")
    assert {row["method"] for row in rows} == {"auto", *solver_choice.SOLVERS}
    took = {(row["objective_name"], row["method"], row["status"]) for row in rows}
    assert took >= {
        *((loss, solver, "measured") for loss in ("multinomial", "hinge") for solver in ("auto", "sdca")),
        ("multinomial", "lbfgs", "measured"),
        ("hinge", "lbfgs", "skipped"),  # which has no gradient
    }


def test_reading(tmp_path: Path) -> None:
    rows = run(tmp_path, "reading", "--data", "bundled/iris")
    assert {(row["method"], row["kind"]) for row in rows} == {
        (reader, kind) for reader in ("manyclass", "sklearn") for kind in ("plain", "gzip")
    }
    assert all(float(row["nonzeros_per_second"]) > 0 for row in rows)


def test_sequences(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "bible_verses"
    folder.mkdir(parents=True)
    parts = ("and the man", "walks to the house", "of a king", "in the land", "who said, come", "I am here; go", "why?")
    rng = np.random.default_rng(0)
    with gzip.open(folder / "kjv.tsv.gz", "wt", encoding="utf-8") as handle:
        for number in range(60):
            handle.write(f"{number:08d}\t{', '.join(rng.choice(parts, 3))}.\n")
    rows = run(tmp_path / "out", "sequences", "--data-dir", str(tmp_path / "data"), "--alpha", "2")
    assert [row["data"] for row in rows if "no raw file" in row["reason"]] == ["bible_verses/segmentation"]
    found = {row["method"]: row for row in rows if row["status"] == "measured"}
    ours = float(found["crf"]["objective"])
    assert float(found["crf"]["relative_gap"]) <= 1e-3
    assert float(found["crf"]["accuracy"]) > 0.8
    for row in found.values():  # the same objective: all of them are near its minimum
        assert float(row["objective"]) == pytest.approx(ours, rel=2e-3 if row["method"] != "crfsuite_l2sgd" else 0.1)
        assert int(row["labels"]) == 5


@pytest.mark.slow
def test_memoir_batch_and_alpha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import memoir_batch

    monkeypatch.setattr(memoir_batch, "FACTORS", (1.0,))
    asked = ("--data", "bundled/iris", "--alpha", "1e-2", "--epochs", "1")
    (row,) = run(tmp_path / "batch", "memoir_batch", *asked)
    assert row["status"] == "measured"
    assert float(row["accuracy"]) > 0.5
    rows = run(tmp_path / "alpha", "memoir_alpha", *asked)
    assert {row["status"] for row in rows} == {"measured"}
    assert len({row["truncation"] for row in rows}) == 2


def test_choose_alpha(tmp_path: Path) -> None:
    rows = run(tmp_path, "choose_alpha", "--data", "bundled/iris", "--only", "multinomial")
    found = {row["what"]: row for row in rows}
    assert list(found) == ["auto", "alone", "path", "weakest"]
    assert found["alone"]["alpha"] == found["auto"]["alpha"]
    for what in ("auto", "alone", "weakest"):
        assert float(found[what]["relative_gap"]) <= 1e-3
    best = float(found["path"]["accuracy"])  # of nine alphas, the weakest among them
    assert best >= float(found["weakest"]["accuracy"])
    assert best > 0.8


def test_memoir_new_classes(tmp_path: Path) -> None:
    rows = run(tmp_path, "memoir_new_classes", "--data", "generated/small")
    found = {row["method"]: row for row in rows}
    assert list(found) == ["before", "alone", "rehearsed", "mixed", "fit"]
    assert float(found["before"]["accuracy_new"]) == 0.0
    assert all(float(row["accuracy_new"]) > 0.3 for row in rows[1:])
    assert float(found["alone"]["accuracy_old"]) < float(found["mixed"]["accuracy_old"])
    assert int(rows[0]["new_classes"]) == 3


def test_search_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import search_index

    monkeypatch.setattr(search_index, "QUERIES", 20)
    monkeypatch.setattr(search_index, "INDEXES", {"exact": search_index.INDEXES["exact"]})
    rows = run(tmp_path, "search_index", "--data", "generated/small")
    assert len(rows) == 16  # weights, options, queries, k
    assert {row["recall"] for row in rows} == {"1.0"}


@pytest.mark.slow
def test_sparse_regression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import sparse_regression

    monkeypatch.setattr(sparse_regression, "PENALTIES", sparse_regression.PENALTIES[:1])
    asked = ("--data", "bundled/iris", "--alpha", "0.1", "--only", "cd,sklearn_lasso", "--budget", "20")
    rows = run(tmp_path, "sparse_regression", *asked)
    assert {row["method"] for row in rows} == {"cd", "sklearn_lasso"}
    assert {row["status"] for row in rows} == {"measured"}


@pytest.mark.slow
def test_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import peers
    from benchmarks.task import Task

    monkeypatch.setattr(peers, "_tasks", lambda alpha, data: [Task("multinomial", alpha)])
    rows = run(tmp_path, "peers", "--data", "bundled/iris", "--alpha", "1e-2", "--only", "sdca,sklearn_lbfgs")
    assert {row["method"] for row in rows} == {"sdca", "sklearn_lbfgs"}
    assert {row["status"] for row in rows} == {"measured"}


def test_threads_counted(tmp_path: Path) -> None:
    """A thread alone has all lookups; more threads have no less than an equal part of them."""
    rows = run(tmp_path, "threads_counted", "--data", "generated", "--alpha", "1e-3")
    assert [int(row["n_jobs"]) for row in rows] == [1, 2, 4, 8]
    limits = [float(row["limit"]) for row in rows]
    assert limits[0] == 1
    assert limits == sorted(limits)
    assert all(limit <= int(row["n_jobs"]) for limit, row in zip(limits, rows))
    assert float(rows[0]["norms"]) > 1


@pytest.mark.slow
def test_threads(tmp_path: Path) -> None:
    rows = run(tmp_path, "threads", "--data", "bundled/iris", "--alpha", "1e-2", "--only", "auto")
    assert {row["n_jobs"] for row in rows} == {"1", "2"}
    assert {row["same_bits"] for row in rows} == {"", "True"}


@pytest.mark.slow
def test_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import kernels

    monkeypatch.setattr(kernels, "LOSSES", kernels.LOSSES[:1])
    monkeypatch.setattr(kernels, "DTYPES", ("float64",))
    rows = run(tmp_path, "kernels", "--data", "bundled/iris")
    assert {"triad", "gather", "update", "sdca_epoch"} <= {row["what"] for row in rows}
    assert all(float(row["seconds"]) > 0 for row in rows)


@pytest.mark.slow
def test_many_classes(tmp_path: Path) -> None:
    rows = run(tmp_path, "many_classes", "--data", "bundled/iris", "--only", "sdca", "--epochs", "2")
    assert [row["last"] for row in rows] == ["False"] * (len(rows) - 1) + ["True"]
    assert {row["status"] for row in rows} == {"measured"}
    assert float(rows[-1]["accuracy"]) > 0.5
