"""``manyclass demo``: several losses on two problems, a table and a figure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from manyclass.cli._common import (
    MATPLOTLIB,
    CommandError,
    Screen,
    count,
    has_matplotlib,
    save_figure,
    seconds,
    write_csv,
)

if TYPE_CHECKING:
    from manyclass.objective.history import History

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "LOSSES", "add_arguments", "run"]

USAGE = ""
HELP = "train on two small problems, show a table and a figure"
DESCRIPTION = """\
Train several losses on scikit-learn's digits and on a generated problem of sparse text with many classes, end with a
table, and write convergence.png (certified gap against solver time) and results.csv to --out. The first run compiles
the kernels of these losses for this machine, which takes half a minute; later ones have them on disk."""
EPILOG = """\
examples:
  manyclass demo
  manyclass demo --quick --out figures
"""

LOSSES = ("multinomial", "crammer_singer", "log_loss", "squared_hinge")

# One solver, one type, one kind of rows: each combination of them and a loss is compiled by itself.
_SOLVER = "sdca"
_TOL = 1e-3
_MAX_ITER = 1000

#: Of a curve, by loss: colors that the color-blind tell apart, markers that a gray print does.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
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
    history: History
    facts: dict[str, Any]


#: What the table shows of the facts, and how; results.csv has all of them.
_SHOWN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "data": ("data", str),
    "loss": ("loss", str),
    "test_accuracy": ("test accuracy", "{:.4f}".format),
    "objective": ("objective", "{:.5f}".format),
    "relative_gap": ("certified gap", "{:.1e}".format),
    "epochs": ("epochs", str),
    "seconds": ("seconds", seconds),
    "compile_seconds": ("compile s", seconds),
    "model_bytes": ("model bytes", count),
}


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
    losses = ", ".join(LOSSES)
    screen.say(
        f"the first run compiles the kernels of {losses} for solver {_SOLVER}, float32 and sparse rows: half a minute, "
        "once; they are kept on disk"
    )
    runs = []
    for problem in _problems(args.quick):
        for loss in LOSSES:
            screen.say(f"{problem.title}; {loss}, alpha = {problem.alpha:g}")
            runs.append(_train(problem, loss, screen))
    screen.table(
        f"fits to a certified relative gap of {_TOL:g}",
        [title for title, _ in _SHOWN.values()],
        [[text(run.facts[name]) for name, (_, text) in _SHOWN.items()] for run in runs],
    )
    write_csv(folder / "results.csv", list(runs[0].facts), [list(run.facts.values()) for run in runs])
    screen.say(f"wrote {folder / 'results.csv'}")
    if has_matplotlib():
        _draw(runs, folder / "convergence.png")
        screen.say(f"wrote {folder / 'convergence.png'}")
    else:
        screen.warn(f"no figure was drawn: {MATPLOTLIB}")
    return 0


def _problems(quick: bool) -> Iterator[_Problem]:
    import numpy as np
    from scipy.sparse import csr_matrix
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from manyclass.datasets import make_many_classes

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        csr_matrix((X / 16).astype(np.float32)), y, test_size=0.25, random_state=0, stratify=y
    )
    yield _Problem("digits", 1e-3, X_train, y_train, X_test, y_test)
    n, d, k = (2_000, 2_000, 50) if quick else (10_000, 8_000, 200)
    # A quarter more rows, to test on.
    X, y = make_many_classes(n + n // 4, d, k, random_state=0)
    yield _Problem("generated text", 1e-4 if quick else 1e-5, X[:n], y[:n], X[n:], y[n:])


def _train(problem: _Problem, loss: str, screen: Screen) -> _Run:
    from manyclass import LinearClassifier

    estimator = LinearClassifier(
        loss,
        alpha=problem.alpha,
        solver=_SOLVER,
        tol=_TOL,
        max_iter=_MAX_ITER,
        random_state=0,
        n_jobs=-1,
        verbose=0 if screen.quiet else 1,
    ).fit(problem.X, problem.y)
    if estimator.history_.outcome == "interrupted":
        raise KeyboardInterrupt
    history = estimator.history_
    facts = {
        "data": problem.name,
        "loss": loss,
        "alpha": problem.alpha,
        "test_accuracy": float(estimator.score(problem.X_test, problem.y_test)),
        "objective": estimator.objective_,
        "relative_gap": estimator.duality_gap_,
        "epochs": estimator.n_iter_,
        "seconds": history.last.seconds,
        "compile_seconds": history.compile_seconds,
        "model_bytes": estimator.model_.nbytes,
    }
    return _Run(problem, history, facts)


def _draw(runs: list[_Run], path: Path) -> None:
    """A panel for each problem, a curve for each loss, drawn without a display."""
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(run.problem.title for run in runs))
    figure = Figure(figsize=(11, 4.8), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(problems), sharey=True, squeeze=False)[0]
    for panel, title in zip(panels, problems):
        shown = [run for run in runs if run.problem.title == title]
        for run in shown:
            run.history.plot(panel, label=run.facts["loss"])
            place = LOSSES.index(run.facts["loss"])
            panel.lines[-1].set(color=_COLORS[place], marker=_MARKERS[place], markersize=4)
        panel.axhline(_TOL, color="0.35", linewidth=1, linestyle="--", label=f"tol {_TOL:g}")
        panel.set_title(f"{title}, alpha {shown[0].problem.alpha:g}", fontsize="medium")
        panel.set_xlim(left=0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.label_outer()
    panels[-1].legend(frameon=False)
    save_figure(figure, path)
