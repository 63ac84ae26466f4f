"""``manyclass demo``: several losses on two problems, a table and a figure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from manyclass.cli._common import MATPLOTLIB, CommandError, Screen, has_matplotlib, save_figure, seconds, write_csv

if TYPE_CHECKING:
    from manyclass.objective.history import History

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "LOSSES", "add_arguments", "run"]

USAGE = ""
HELP = "train on two small problems, show a table and a figure"
DESCRIPTION = """\
Train several losses on scikit-learn's digits and on a generated problem of sparse text with many classes, end with a
table, and write convergence.png (certified gap against solver time) and results.csv to --out."""
EPILOG = """\
examples:
  manyclass demo
  manyclass demo --quick --out figures
"""

LOSSES = ("multinomial", "crammer_singer", "log_loss", "squared_hinge")

_TOL = 1e-4
_MAX_ITER = 1000

#: Of a curve, by loss: colours that the colour-blind tell apart, markers that a grey print does.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")


class _Problem(NamedTuple):
    name: str
    alpha: float
    X: Any
    y: Any
    X_test: Any
    y_test: Any

    @property
    def title(self) -> str:
        rows, features = self.X.shape
        return f"{self.name}: {rows:,} x {features:,}, {len(set(self.y.tolist())):,} classes"


class _Run(NamedTuple):
    problem: _Problem
    loss: str
    accuracy: float
    objective: float
    gap: float
    epochs: int
    history: History
    n_bytes: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="manyclass-demo",
        help="folder to write to, made if missing (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="a smaller generated problem")


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Train, show, draw."""
    folder = Path(args.out)
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"--out {args.out} is a file: give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for problem in _problems(args.quick):
        for loss in LOSSES:
            screen.say(f"{problem.title}; {loss}, alpha = {problem.alpha:g}")
            runs.append(_train(problem, loss, screen))
    _table(runs, screen)
    write_csv(folder / "results.csv", *_rows(runs))
    screen.say(f"wrote {folder / 'results.csv'}")
    if has_matplotlib():
        _draw(runs, folder / "convergence.png")
        screen.say(f"wrote {folder / 'convergence.png'}")
    else:
        screen.warn(f"no figure was drawn: {MATPLOTLIB}")
    return 0


def _problems(quick: bool) -> Iterator[_Problem]:
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from manyclass.datasets import make_many_classes

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        (X / 16).astype(np.float32), y, test_size=0.25, random_state=0, stratify=y
    )
    yield _Problem("digits", 1e-3, X_train, y_train, X_test, y_test)
    n, d, k = (2_000, 2_000, 50) if quick else (20_000, 10_000, 500)
    # A quarter more rows, to test on.
    X, y = make_many_classes(n + n // 4, d, k, random_state=0)
    yield _Problem("generated text", 1e-4 if quick else 1e-5, X[:n], y[:n], X[n:], y[n:])


def _train(problem: _Problem, loss: str, screen: Screen) -> _Run:
    from manyclass import LinearClassifier

    estimator = LinearClassifier(
        loss,
        alpha=problem.alpha,
        tol=_TOL,
        max_iter=_MAX_ITER,
        random_state=0,
        n_jobs=-1,
        verbose=0 if screen.quiet else 1,
    ).fit(problem.X, problem.y)
    if estimator.history_.outcome == "interrupted":
        raise KeyboardInterrupt
    return _Run(
        problem,
        loss,
        float(estimator.score(problem.X_test, problem.y_test)),
        estimator.objective_,
        estimator.duality_gap_,
        estimator.n_iter_,
        estimator.history_,
        estimator.model_.nbytes,
    )


def _table(runs: list[_Run], screen: Screen) -> None:
    from manyclass.runtime.memory import human

    columns = [
        "data", "loss", "test accuracy", "objective", "certified gap", "epochs", "seconds", "compile s", "model size",
    ]  # fmt: skip
    rows = [
        [
            run.problem.name,
            run.loss,
            f"{run.accuracy:.4f}",
            f"{run.objective:.5f}",
            f"{run.gap:.1e}",
            str(run.epochs),
            seconds(run.history.last.seconds),
            seconds(run.history.compile_seconds),
            human(run.n_bytes),
        ]
        for run in runs
    ]
    screen.table(f"fits to a certified relative gap of {_TOL:g}", columns, rows)


def _rows(runs: list[_Run]) -> tuple[list[str], list[list[Any]]]:
    columns = ["data", "loss", "alpha", "test_accuracy", "objective", "relative_gap", "epochs", "seconds"]
    columns += ["compile_seconds", "model_bytes"]
    rows = [
        [
            run.problem.name,
            run.loss,
            run.problem.alpha,
            run.accuracy,
            run.objective,
            run.gap,
            run.epochs,
            run.history.last.seconds,
            run.history.compile_seconds,
            run.n_bytes,
        ]
        for run in runs
    ]
    return columns, rows


def _draw(runs: list[_Run], path: Path) -> None:
    """A panel for each problem, a curve for each loss, drawn without a display."""
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(run.problem.title for run in runs))
    figure = Figure(figsize=(11, 4.8), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(problems), sharey=True, squeeze=False)[0]
    for panel, title in zip(panels, problems):
        shown = [run for run in runs if run.problem.title == title]
        for run in shown:
            run.history.plot(panel, label=run.loss)
            place = LOSSES.index(run.loss)
            panel.lines[-1].set(color=_COLOURS[place], marker=_MARKERS[place], markersize=4)
        panel.axhline(_TOL, color="0.35", linewidth=1, linestyle="--", label=f"tol {_TOL:g}")
        panel.set_title(f"{title}, alpha {shown[0].problem.alpha:g}", fontsize="medium")
        panel.set_xlim(left=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.label_outer()
    panels[-1].legend(frameon=False)
    save_figure(figure, path)
