"""The history of a fit (records, table, CSV, plot), and its progress display."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["History", "Record", "Reporter", "Spent"]


@dataclass(frozen=True)
class Record:
    """One evaluation of the objective and the duality gap during a fit.

    Attributes
    ----------
    iteration : int
        Number of iterations so far (epochs, for a stochastic solver).
    passes : float
        Number of passes over the data so far.
    primal, dual : float
        Value of the objective, and a lower bound on its minimum; ``dual`` is minus infinity if no bound is known.
    gap, relative_gap : float
        primal - dual, and the same divided by max(|primal|, |dual|).
    seconds : float
        Time of the solver, without evaluations and compilation.
    elapsed : float
        Wall-clock time since the start of the fit.
    info : dict of float
        What a solver without a duality gap reports instead; empty for other solvers.
    """

    iteration: int
    passes: float
    primal: float
    dual: float
    gap: float
    relative_gap: float
    seconds: float
    elapsed: float
    info: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, numbers: Sequence[float], info: dict[str, float] | None = None) -> Record:
        """The record with these `numbers`, of which it is the inverse."""
        passes, primal, dual, gap, relative_gap, seconds, elapsed = map(float, numbers[1:])
        return cls(int(numbers[0]), passes, primal, dual, gap, relative_gap, seconds, elapsed, info or {})

    def numbers(self) -> tuple[float, ...]:
        """All fields in order, without ``info``."""
        return astuple(self)[:-1]

    def to_dict(self) -> dict[str, Any]:
        """Values by name, for JSON and CSV; None instead of NaN."""
        flat = {**asdict(self), **self.info}
        del flat["info"]
        return {name: None if value != value else value for name, value in flat.items()}


class Spent(NamedTuple):
    """Cost of a fit up to a checkpoint: solver seconds, wall-clock seconds, passes over the data."""

    seconds: float = 0.0
    elapsed: float = 0.0
    passes: float = 0.0


@dataclass
class History:
    """The evaluations of one fit, in order.

    Attributes
    ----------
    records : list of Record
        One for each evaluation.
    compile_seconds : float
        Time spent on compiling kernels.
    evaluation_seconds : float
        Time spent on evaluating the objective and the gap.
    outcome : str
        Why the fit ended.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import LinearClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> history = LinearClassifier(alpha=1e-2).fit(X / 16, y).history_
    >>> history.last.relative_gap <= 1e-3
    True
    """

    records: list[Record] = field(default_factory=list)
    compile_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    outcome: str = ""

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]

    @property
    def last(self) -> Record:
        """The last record."""
        return self.records[-1]

    def column(self, name: str) -> list[float]:
        """One attribute of all records, as a list."""
        return [getattr(record, name) for record in self.records]

    def to_dict(self) -> dict[str, Any]:
        """The history as a dict of numbers and strings, for JSON."""
        return {
            "outcome": self.outcome,
            "compile_seconds": self.compile_seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "records": [record.to_dict() for record in self.records],
        }

    def to_csv(self, path: str | Path) -> None:
        """Write the records to a CSV file with a header line."""
        from manyclass.runtime.files import atomic_path

        with atomic_path(path) as temporary, temporary.open("w", newline="") as handle:
            rows = [record.to_dict() for record in self.records]
            names = [f.name for f in fields(Record) if f.name != "info"]
            writer = csv.DictWriter(handle, list(rows[0]) if rows else names)
            writer.writeheader()
            writer.writerows(rows)

    def table(self) -> str:
        """The records as text, one line per record."""
        lines = [_HEADER]
        lines += [_line(record) for record in self.records]
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, *, against: str = "seconds", label: str | None = None) -> Axes:
        """Plot the relative duality gap on a logarithmic axis; requires the extra ``manyclass[plot]``.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; by default those of a new figure.
        against : {"seconds", "passes", "iteration", "elapsed"}, default="seconds"
            The attribute of the records on the horizontal axis.
        label : str, optional
            Legend label of the curve.
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        points = [(getattr(r, against), r.relative_gap) for r in self.records if r.relative_gap > 0]
        ax.semilogy([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=label)
        ax.set_xlabel({"seconds": "solver time (s)", "passes": "passes over the data"}.get(against, against))
        ax.set_ylabel("certified relative gap")
        ax.grid(alpha=0.3)
        return ax


_HEADER = f"{'epoch':>6} {'objective':>14} {'lower bound':>14} {'relative gap':>13} {'seconds':>9}"


def _line(record: Record) -> str:
    if record.info:
        facts = "  ".join(f"{name} {value:.6g}" for name, value in record.info.items() if value == value)
        return f"{record.iteration:>6} {facts} {record.seconds:>9.2f}"
    return (
        f"{record.iteration:>6} {record.primal:>14.8g} {record.dual:>14.8g} "
        f"{record.relative_gap:>13.2e} {record.seconds:>9.2f}"
    )


class Reporter:
    """Displays the progress of a fit: a progress bar on a terminal, plain lines otherwise.

    Parameters
    ----------
    verbose : int
        0: no output. 1: progress. 2: on a terminal, also a permanent line for each evaluation.
    tol : float
        The relative gap at which the fit stops, the end of the progress bar.
    max_iter : int
        Maximum number of iterations.
    stream : file, optional
        Standard error by default, so that standard output can be piped.
    """

    def __init__(self, verbose: int, tol: float, max_iter: int, stream: TextIO | None = None) -> None:
        self.verbose = int(verbose)
        self.tol = tol
        self.max_iter = max_iter
        self.stream = sys.stderr if stream is None else stream
        self._bar: Any = None
        self._task: Any = None
        self._first_gap: float | None = None
        self._headed = False

    def __enter__(self) -> Reporter:
        if self.verbose and self.stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[status]}"),
                TimeElapsedColumn(),
                console=Console(file=self.stream),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("fit", total=1.0, epoch=0, status="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def iterated(self, iteration: int) -> None:
        """Update the display after an iteration."""
        if self._bar is not None:
            self._bar.update(self._task, epoch=iteration)

    def evaluated(self, record: Record) -> None:
        """Display a new record."""
        if not self.verbose:
            return
        if self._bar is not None:
            status = (
                _line(record).strip()
                if record.info
                else f"objective {record.primal:.6g}  gap {record.relative_gap:.1e} (to {self.tol:g})"
            )
            self._bar.update(self._task, completed=self._way(record), epoch=record.iteration, status=status)
            if self.verbose > 1:
                self._bar.console.print(_line(record))
            return
        if not (self._headed or record.info):
            self._headed = True
            self.stream.write(_HEADER + "\n")
        self.stream.write(_line(record) + "\n")
        self.stream.flush()

    def _way(self, record: Record) -> float:
        """Progress from 0 to 1, in the logarithm of the gap: it is uniform for a linearly convergent solver."""
        from math import log

        if record.info:
            return record.iteration / self.max_iter
        gap = max(record.relative_gap, 1e-300)
        if self._first_gap is None:
            self._first_gap = max(gap, 1.0)
        whole = log(self._first_gap) - log(max(self.tol, 1e-300))
        return min(1.0, max(0.0, (log(self._first_gap) - log(gap)) / max(whole, 1e-9)))
