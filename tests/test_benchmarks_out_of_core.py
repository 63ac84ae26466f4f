"""The experiment of what is larger than memory: under a limit on address space, every stage is measured."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS, posix_fadvise and /proc")
@pytest.mark.slow
def test_every_case_is_larger_than_its_limit_and_is_measured(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.cli import main
    from benchmarks.experiments import out_of_core

    assert main(["run", "out_of_core", "--quick", "--runs", "1", "--out", str(tmp_path)]) == 0
    with next(tmp_path.glob("*.csv")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["status"] for row in rows} == {"measured"}, [row["reason"] for row in rows if row.get("reason")]
    assert {row["case"] for row in rows} == {*out_of_core.QUICK}
    for case in out_of_core.QUICK:
        stages = [row for row in rows if row["case"] == case]
        assert len(stages) == 6
        largest = max(int(row["bytes"]) for row in stages if row["stage"].startswith("read the"))
        assert largest > 30e6
        for row in stages[1:]:
            assert int(row["address_space_peak"]) <= int(row["limit"])
        assert float(stages[-1]["accuracy"]) > (0.0 if case == "model" else 0.9)
    assert len(os.listdir(tmp_path)) == 1
