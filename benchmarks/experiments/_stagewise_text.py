"""Stagewise least squares on subsets of sparse features, ordered by gradient, beside solvers of linear models.

Every fit has a process of its own. Peers run at their defaults and at the strength of penalty that is theirs: C = 1.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks import children
from benchmarks.bench import Bench, DataFile
from benchmarks.measure import spread_text
from benchmarks.task import Stop, Task

__all__ = ["run"]

#: The task of each method that takes part.
TASKS = {
    "sdca": "multinomial",
    "sklearn_linear_svc": "squared_hinge",
    "liblinear": "squared_hinge",
    "vowpal_wabbit": "log_loss",
}


def run(bench: Bench, name: str, setting: dict[str, Any], lam: float, paper: dict[str, float]) -> None:
    """One data set: the stagewise fits and the peers.

    Parameters
    ----------
    bench : Bench
    name : str
        Of the data set.
    setting : dict
        Parameters of the `StagewiseClassifier` besides alpha.
    lam : float
        The paper's lambda: a weight beside the SUM of squared errors.
    paper : dict of str to float
        The errors that the paper prints, in percent.
    """
    methods = bench.methods(*TASKS)
    for source in bench.datasets(name):
        n = source.read().n
        alphas = bench.alphas(lam / n)
        for number in range(bench.options.runs):
            for alpha in alphas:
                _stagewise(bench, source, setting, alpha, number, paper.get("stagewise"))
            for method in methods:
                _peer(bench, source, method, Task(TASKS[method.name], alpha=1.0 / n), number, paper.get(method.name))
    _report(bench)


def _call(function: str, arguments: dict[str, Any]) -> Any:
    return children.call(f"benchmarks.staged:{function}", arguments)


def _stagewise(
    bench: Bench, source: DataFile, setting: dict[str, Any], alpha: float, number: int, paper: float | None
) -> None:
    what = {"method": "stagewise", "alpha": alpha, "run": number}
    bench.say(f"{source.name} stagewise, alpha {alpha:.3g} ...")
    estimator = {"make": "StagewiseClassifier", "alpha": alpha, "random_state": number, **setting}
    try:
        found = _call(
            "fit_and_judge",
            {"source": source.arguments(), "estimator": estimator, "threads": bench.options.threads},
        )
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    bench.record(**what, paper_error=paper, **found)


def _peer(bench: Bench, source: DataFile, method: Any, task: Task, number: int, paper: float | None) -> None:
    what = {"method": method.name, "alpha": task.alpha, "run": number, "objective_name": task.objective}
    bench.say(f"{source.name} {method.name} ...")
    arguments = {
        "source": source.arguments(),
        "method": method.name,
        "task": asdict(task),
        "stop": asdict(Stop()),
        "threads": bench.options.threads,
        "seed": number,
    }
    try:
        found = children.call("benchmarks.fitting:fit_and_judge", arguments, python=method.python())
    except children.ChildFailed as failure:
        bench.fail(str(failure), data=source.name, **what)
        return
    bench.record(**what, paper_error=paper, test_error=1.0 - found["accuracy"], **found)


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            groups.setdefault((row["data"], row["method"], row["alpha"]), []).append(row)
    lines = []
    for (data, method, alpha), rows in groups.items():
        peak = max((row["memory_peak"] or 0) - (row["memory_before"] or 0) for row in rows) / 2**20
        errors, seconds = ([100 * row["test_error"] for row in rows], [row["seconds"] for row in rows])
        lines.append(
            [data, method, f"{alpha:.2g}", spread_text(errors), rows[0]["paper_error"], spread_text(seconds), peak]
        )
    columns = ("data", "method", "alpha", "test error %", "the paper's %", "seconds", "peak MiB")
    bench.table("Test error: median [least, most]", columns, lines)
