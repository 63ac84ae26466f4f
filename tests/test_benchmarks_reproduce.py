"""The experiments of a paper run one after the other, and go on where they were stopped."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.cli import _options, _parser
from benchmarks.reproduce import PAPERS

ROOT = Path(__file__).parents[1]
#: Two steps of two fits each, by scikit-learn: nothing is compiled.
CODE = """
import sys
from benchmarks import cli, reproduce
methods = "--runs 1 --only RidgeClassifier,LogisticRegression"
steps = tuple(reproduce.Step(f"Figure on {d}", f"defaults --data bundled/{d} {methods}") for d in ("iris", "wine"))
reproduce.PAPERS["sdca"] = ("A title", (*steps, reproduce.Step("Figure on what is not there", "defaults --data mnist")))
sys.exit(cli.main(["reproduce", "sdca", "--quick", "--data-dir", sys.argv[1], "--out", sys.argv[1]]))
"""


def start(out: Path) -> subprocess.Popen[str]:
    """In a process that can be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", CODE, str(out)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def seconds(step: Path) -> dict[str, str]:
    """method -> the seconds of its fit: no two runs have the same."""
    with (step / "defaults-quick.csv").open(newline="") as handle:
        return {row["method"]: row["seconds"] for row in csv.DictReader(handle)}


def test_a_run_that_was_killed_goes_on_with_what_is_missing(tmp_path):
    steps = tmp_path / "quick" / "sdca"
    calls = steps / "defaults_data_bundled_iris_runs_1_only_RidgeClassifier_LogisticRegression.part" / "calls.jsonl"
    process = start(tmp_path)
    try:
        until = time.monotonic() + 120
        while not (calls.is_file() and calls.read_text().count("\n")):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        process.kill()
        process.communicate()
    first = calls.read_text()
    calls.write_text(first + '{"call": "cut o')  # as if it had been killed while writing
    kept = json.loads(first.splitlines()[0])["answer"]["seconds"]

    told = start(tmp_path).communicate(timeout=240)[0]
    iris, wine = sorted(path for path in steps.iterdir() if not path.name.endswith(".part"))
    assert iris.name == calls.parent.name.removesuffix(".part"), told
    measured = seconds(iris)
    assert set(measured) == {"RidgeClassifier", "LogisticRegression"}
    assert str(kept) in measured.values()  # the fit of the first run, not another
    assert (iris / "calls.jsonl").read_text().startswith(first)
    assert (iris / "calls.jsonl").read_text().count("\n") == 2
    page = (tmp_path / "quick" / "sdca.md").read_text()
    for said in ("# A title", "## Figure on iris", "## Figure on wine", "python -m benchmarks run defaults --data"):
        assert said in page
    assert "## Figure on what is not there (not done)" in page  # and the reason
    assert "not found in the data folder" in " ".join(page.split())

    again = start(tmp_path)
    told = again.communicate(timeout=120)[0]
    assert again.returncode == 1  # one step could not be done
    assert "bundled/iris" not in told
    assert (seconds(iris), seconds(wine)) == (measured, seconds(wine))


def test_every_step_is_a_command_that_can_be_run():
    """Experiments, methods and data sets of these names exist, and no two steps write to one folder."""
    from benchmarks import catalog, modules

    for _, steps in PAPERS.values():
        assert len({step.name for step in steps}) == len(steps)
        for step in steps:
            options = _parser().parse_args(["run", *step.command.split()])
            experiment = modules.module("experiments", options.name)
            for name in options.data or ():
                base, _, variant = name.partition("/")
                assert variant in ("", *getattr(modules.module("datasets", base), "VARIANTS", ()))
            for name in options.only or ():
                assert name in getattr(experiment, "ENTRIES", ()) or catalog.method(name)
            assert _options(options).runs >= 1


def test_a_row_names_the_commit_of_the_benchmarks_wherever_they_are_started(monkeypatch, tmp_path):
    known = machine.facts()["revision"]
    monkeypatch.chdir(tmp_path)
    assert machine.facts()["revision"] == known
