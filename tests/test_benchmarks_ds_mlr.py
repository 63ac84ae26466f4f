"""The experiments on DS-MLR run, and what they say is so; CLEF's raw files are read."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from experiments import run

pytestmark = pytest.mark.usefixtures("prepared")


# The oldest matplotlib calls functions that the newest pyparsing deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestExperiments:
    def test_curves(self, tmp_path: Path) -> None:
        from benchmarks.experiments.ds_mlr import ENTRIES

        asked = ("--data", "bundled/wine", "--alpha", "1e-2", "--budget", "0.3", "--only", ",".join(ENTRIES))
        rows = run(tmp_path, "ds_mlr", *asked)
        runs = {row["method"]: row for row in rows if row["kind"] == "run"}
        assert set(runs) == set(ENTRIES)
        assert all(float(row["error"]) > -1e-5 for row in runs.values())
        assert float(runs["ds_mlr"]["error"]) < 1e-4
        shares = [float(row["share"]) for row in rows if row["kind"] == "ranks" and row["method"] == "ds_mlr"]
        assert max(shares) == 1
        assert all(0 <= float(row["micro_f1"]) <= 1 for row in rows if row["kind"] == "look")

    @pytest.mark.slow
    def test_hosts(self, tmp_path: Path) -> None:
        from benchmarks import processes

        rows = run(tmp_path, "ds_mlr_hosts", "--runs", "1", "--budget", "20")
        if processes.missing():
            assert [row["status"] for row in rows] == ["skipped"]
            return
        fits = {(row["data"], row["method"], row["processes"]): row for row in rows if row["kind"] == "fit"}
        assert "this fit needs" in fits.pop(("reddit, limited", "ring", "1"))["refused"]
        assert all(float(row["certified_relative_gap"]) <= 1e-3 for row in fits.values())
        for row in rows:
            if row["kind"] == "rank" and row["method"] == "ring" and row["processes"] == "2":
                assert 0.9 < float(row["bytes_sent"]) / float(row["bytes_by_formula"]) < 2

    @pytest.mark.slow
    def test_schedules(self, tmp_path: Path) -> None:
        rows = run(tmp_path, "ds_mlr_schedules", "--data", "bundled/iris", "--epochs", "45")
        passes = {(row["method"], row["level"]): row["passes"] for row in rows}
        assert passes["printed", "0.0001"] == ""
        assert 0 < float(passes["L-BFGS, preconditioned", "0.0001"]) < 45
        assert 0 < float(passes["two phases, 2 + L-BFGS", "0.001"]) < 45

    def test_with_many_features_the_spectrum_alone_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from benchmarks.experiments import ds_mlr_schedules

        monkeypatch.setattr(ds_mlr_schedules, "_MOST_FEATURES", 3)
        rows = run(tmp_path, "ds_mlr_schedules", "--data", "bundled/iris", "--epochs", "3")
        left_out = set(ds_mlr_schedules._WAYS) - {row["method"] for row in rows}
        assert left_out == {"L-BFGS, preconditioned", "two phases, preconditioned"}

    def test_what_does_not_fit_is_skipped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from benchmarks.experiments import ds_mlr

        monkeypatch.setattr(ds_mlr, "memory_bytes", lambda: 1)
        rows = run(tmp_path, "ds_mlr", "--data", "bundled/wine", "--alpha", "1e-2", "--only", "ds_mlr,lbfgs,lc")
        assert [row["status"] for row in rows] == ["skipped"] * 3
        assert all("needs an estimated" in row["reason"] for row in rows)

    def test_workers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from benchmarks.experiments import ds_mlr_workers

        monkeypatch.setattr(ds_mlr_workers, "_processes", lambda *_: [])
        rows = run(tmp_path, "ds_mlr_workers", "--data", "bundled/wine", "--alpha", "1e-2", "--budget", "1")
        measured = [row for row in rows if row["kind"] == "measured"]
        assert {row["method"] for row in measured} >= {"threads, ring", "threads, queue, one slowed"}
        assert all(float(row["error"]) < 1e-2 for row in measured)
        times = [float(r["seconds_an_iteration"]) for r in rows if r["kind"] == "simulated" and r["data"] == "Reddit"]
        assert all(one > two for one, two in zip(times, times[1:]))

    def test_rows_partitioned_over_processes(self, tmp_path: Path) -> None:
        from benchmarks import processes

        rows = run(tmp_path, "sdca_workers", "--data", "digits", "--alpha", "1e-1")
        if processes.missing():
            assert [row["status"] for row in rows] == ["skipped"]
            return
        assert [(row["method"], row["processes"]) for row in rows] == [
            ("sdca_active", "1"),
            ("sdca_dp", "1"),
            ("sdca_dp", "2"),
        ]
        assert all(float(row["certified_relative_gap"]) <= 1e-3 for row in rows)
        objectives = [float(row["objective"]) for row in rows]
        assert max(objectives) <= min(objectives) * 1.002

    def test_processes_that_fail_say_why(self) -> None:
        from benchmarks import processes
        from benchmarks.children import ChildFailed

        if processes.missing():
            pytest.skip(str(processes.missing()))
        with pytest.raises(ChildFailed):
            processes.run("benchmarks.experiments.sdca_workers", 1, {"path": "nowhere"}, 60)

    def test_simulation_of_free_messages_is_linear(self) -> None:
        from benchmarks.experiments.ds_mlr_workers import Costs, Shape, memory, simulate

        shape, costs = Shape(1e6, 1e4, 1e3, 50), Costs(1e-9, 1e-9, 1e-9, 0.0, 0.0)
        alone = simulate(shape, costs, 1)
        for workers in (2, 4, 12, 64):
            assert simulate(shape, costs, workers) == pytest.approx(alone / workers, rel=1e-9)
        assert simulate(shape, costs._replace(byte=1e-9), 4) > alone / 4
        assert memory(shape, 64)["weights"] == pytest.approx(memory(shape, 1)["weights"] / 64)


def test_clef_is_read(tmp_path: Path) -> None:
    from benchmarks.datasets import clef

    (tmp_path / "clef").mkdir()
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        lines = [",".join(map(str, rng.integers(0, 8, 80))) + f",{k}@{k}/1@{k}/1/2" for k in (0, 1, 2, 1)]
        with gzip.open(tmp_path / "clef" / f"image_clef_{name}.arff.gz", "wt") as handle:
            handle.write("@RELATION ehd\n@ATTRIBUTE arg1 NUMERIC\n@DATA\n" + "\n".join(lines) + "\n")
    split = clef.build(tmp_path, "")
    assert split.X.shape == (4, 80)
    assert split.y.tolist() == split.y_test.tolist() == [0, 1, 2, 1]
    np.testing.assert_allclose(split.X.mean(axis=0), 0, atol=1e-6)
