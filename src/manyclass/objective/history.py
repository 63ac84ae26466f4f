"""The history of a fit (records, table, CSV, plot), and its progress display."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from manyclass.objective.problem import Certificate

__all__ = ["FitProgress", "History", "Record", "Reporter", "Spent", "Validated", "tell"]


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


class Validated(NamedTuple):
    """The score of held-out rows after an iteration; ``seconds`` is the time of the solver, as in `Record`."""

    iteration: int
    seconds: float
    score: float


@dataclass(frozen=True)
class FitProgress:
    """What the ``callback`` of a fit is called with, after each iteration.

    Attributes
    ----------
    iteration, max_iter : int
        Number of iterations so far, and at most, including those before the fit was resumed.
    objective, relative_gap : float
        Objective and relative duality gap: of the last evaluation, which not every iteration has, or this iteration's
        as its solver estimates it; NaN before the first, or if the solver computes none.
    seconds : float
        Time of the solver so far, without evaluations and compilation.
    validation : float
        Score of the held-out rows after this iteration; NaN without held-out rows.
    finished : bool
        Whether the fit ends here, whatever the callback returns.
    weights : callable
        ``weights()`` returns W of shape (d, K), an array or a CSR matrix, and the intercepts (K,), after this
        iteration; for a model of generated features its stages so far, as `StagedModel` has them in ``members``. With
        the solver "out_of_core", and with "ds_mlr" on several processes, W is in blocks of classes: ``W.each(comm)``
        yields first class, last class + 1 and weights of each, ``W.assemble(comm)`` is the array; on several processes
        all must call these. To be called by the callback only, and not to be changed.
    """

    iteration: int
    max_iter: int
    objective: float
    relative_gap: float
    seconds: float
    validation: float
    finished: bool
    weights: Callable[[], tuple[Any, Any]]


@dataclass
class History:
    """The evaluations of one fit, in order.

    Attributes
    ----------
    records : list of Record
        One for each evaluation.
    validation : list of Validated
        The score of the held-out rows after each iteration, with ``X_val`` or ``early_stopping``.
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
    validation: list[Validated] = field(default_factory=list)
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

    @property
    def best(self) -> Validated:
        """The first of the best scores of the held-out rows."""
        if not self.validation:
            raise ValueError("no held-out rows were scored: pass X_val and y_val to fit, or early_stopping=True")
        return max(self.validation, key=lambda found: found.score)

    def score_at(self, iteration: int) -> float | None:
        """The score of the held-out rows after an iteration; None if it is not known."""
        return next((found.score for found in reversed(self.validation) if found.iteration == iteration), None)

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
            **({"validation": [found._asdict() for found in self.validation]} if self.validation else {}),
        }

    def to_csv(self, path: str | Path) -> None:
        """Write the records, and the scores of held-out rows between them, to a CSV file with a header line."""
        from manyclass.runtime.files import atomic_path

        rows = [record.to_dict() for record in self.records]
        names = list(rows[0]) if rows else [f.name for f in fields(Record) if f.name != "info"]
        if self.validation:
            names += [name for name in ("validation",) if name not in names]
            scores = {found.iteration: found for found in self.validation}
            for row in rows:
                found = scores.pop(row["iteration"], None)
                row.update({} if found is None else {"validation": found.score})
            rows += [
                {"iteration": it, "seconds": found.seconds, "validation": found.score} for it, found in scores.items()
            ]
            rows.sort(key=lambda row: row["iteration"])
        with atomic_path(path) as temporary, temporary.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, names)
            writer.writeheader()
            writer.writerows(rows)

    def table(self) -> str:
        """The records as text, one line per record."""
        lines = [_HEADER + _COLUMN * bool(self.validation)]
        lines += [_line(record, self.score_at(record.iteration)) for record in self.records]
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
_COLUMN = f" {'validation':>11}"


def _facts(record: Record) -> str:
    return "  ".join(f"{name} {value:.6g}" for name, value in record.info.items() if value == value)


def _line(record: Record, score: float | None = None) -> str:
    end = f"{record.seconds:>9.2f}" + ("" if score is None else f" {score:>11.4f}")
    if record.info:
        return f"{record.iteration:>6} {_facts(record)}{'' if score is None else f'  validation {score:.4f}'} {end[:9]}"
    return f"{record.iteration:>6} {record.primal:>14.8g} {record.dual:>14.8g} {record.relative_gap:>13.2e} {end}"


class Reporter:
    """Displays the progress of a fit: a progress bar on a terminal, a live line in a notebook, plain lines otherwise.

    Parameters
    ----------
    verbose : int
        0: no output. 1: progress. 2: on a terminal and in a notebook, also a permanent line for each evaluation.
    tol : float
        The relative gap at which the fit stops, the end of the progress bar.
    max_iter : int
        Maximum number of iterations.
    stream : file, optional
        Standard error by default, so that standard output can be piped.
    counted : bool, default=False
        Whether the end is that of ``max_iter`` iterations, not a gap.
    """

    def __init__(
        self, verbose: int, tol: float, max_iter: int, stream: TextIO | None = None, *, counted: bool = False
    ) -> None:
        self.verbose = int(verbose)
        self.tol = tol
        self.max_iter = max_iter
        self.stream = sys.stderr if stream is None else stream
        self.counted = counted
        self._bar: Any = None
        self._task: Any = None
        self._first_gap: float | None = None
        self._headed = False
        self._width = 0
        self._before: tuple[int, float, float] | None = None

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
        self._live("")

    def say(self, sentence: str | None) -> None:
        """Write a sentence, if there is one, above the progress."""
        if sentence and self._bar is not None:
            self._bar.console.print(sentence)
        elif sentence:
            self.stream.write(f"{sentence}\n")

    def iterated(self, iteration: int) -> None:
        """Update the display after an iteration."""
        if self._bar is not None:
            self._bar.update(self._task, epoch=iteration)

    def estimated(self, iteration: int, estimate: Certificate, seconds: float) -> None:
        """Display what a solver knows of its gap after an iteration without an evaluation: always in a display that is
        replaced, else at the powers of two."""
        if not self.verbose:
            return
        gap = f"gap about {estimate.relative_gap:.1e} (to {self.tol:g})"
        if self._bar is not None:
            self._bar.update(self._task, status=f"objective {estimate.primal:.6g}  {gap}")
        elif _is_notebook(self.stream):
            self._live(f"epoch {iteration}  objective {estimate.primal:.6g}  {gap}")
        elif not iteration & (iteration - 1):
            self._head()
            numbers = f"{iteration:>6} {estimate.primal:>14.8g} {estimate.dual:>14.8g}"
            self.stream.write(f"{numbers} {f'about {estimate.relative_gap:.1e}':>13} {seconds:>9.2f}\n")
            self.stream.flush()

    def _head(self, column: str = "") -> None:
        if not self._headed:
            self._headed = True
            self.stream.write(_HEADER + column + "\n")

    def evaluated(self, record: Record, score: float | None = None) -> None:
        """Display a new record, with the score of the held-out rows after the same iteration, if there are any."""
        if not self.verbose:
            return
        way = self._way(record)
        if self._bar is not None or _is_notebook(self.stream):
            status = (
                _facts(record)
                if record.info
                else f"objective {record.primal:.6g}  gap {record.relative_gap:.1e} (to {self.tol:g})"
            )
            status += ("" if score is None else f"  validation {score:.4f}") + self._left(record, way)
            if self._bar is None:
                self._live(f"epoch {record.iteration}  {status}")
            else:
                self._bar.update(self._task, completed=way, epoch=record.iteration, status=status)
            if self.verbose < 2:
                return
            if self._bar is not None:
                self._bar.console.print(_line(record, score))
                return
            self._live("")
        if not record.info:
            self._head("" if score is None else _COLUMN)
        self.stream.write(_line(record, score) + "\n")
        self.stream.flush()

    def _live(self, text: str) -> None:
        """Replace the last line of a notebook's output."""
        if self._width or text:
            self.stream.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
            self.stream.flush()
        self._width = len(text)

    def _way(self, record: Record) -> float:
        """Progress from 0 to 1, in the logarithm of the gap: it is uniform for a linearly convergent solver."""
        if record.info or self.counted:
            return record.iteration / self.max_iter
        gap = max(record.relative_gap, 1e-300)
        if self._first_gap is None:
            self._first_gap = max(gap, 1.0)
        whole = math.log(self._first_gap) - math.log(max(self.tol, 1e-300))
        return min(1.0, max(0.0, (math.log(self._first_gap) - math.log(gap)) / max(whole, 1e-9)))

    def _left(self, record: Record, way: float) -> str:
        """The time left at the rate between the last two records; it ends with ``max_iter`` at the latest."""
        before, self._before = self._before, (record.iteration, way, record.elapsed)
        if before is None or record.iteration <= before[0] or way >= 1.0:
            return ""
        spent = record.elapsed - before[2]
        left = (self.max_iter - record.iteration) * spent / (record.iteration - before[0])
        if way > before[1]:
            left = min(left, (1.0 - way) * spent / (way - before[1]))
        minutes, rest = divmod(round(max(left, 0.0)), 60)
        return f"  about {f'{minutes} min ' if minutes else ''}{rest} s left"


def tell(
    reporter: Reporter,
    callback: Callable[[FitProgress], Any] | None,
    record: Record,
    *,
    score: float | None,
    finished: bool,
    weights: Callable[[], Any],
) -> bool:
    """Show an iteration, and tell the callback; whether it ends the fit. See `FitProgress`."""
    reporter.iterated(record.iteration)
    reporter.evaluated(record, score)
    if callback is None:
        return False
    progress = FitProgress(
        iteration=record.iteration,
        max_iter=reporter.max_iter,
        objective=record.primal,
        relative_gap=record.relative_gap,
        seconds=record.seconds,
        validation=math.nan if score is None else score,
        finished=finished,
        weights=weights,
    )
    return bool(callback(progress))


def _is_notebook(stream: TextIO) -> bool:
    """Whether what is written shows in a notebook, where a carriage return replaces the line."""
    return type(stream).__module__.startswith("ipykernel.")
