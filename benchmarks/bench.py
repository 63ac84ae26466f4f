"""What an experiment is given: options, data, methods; where it puts its rows, its tables and its figure."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import catalog, data, machine, modules
from benchmarks.catalog import Method
from benchmarks.modules import Unknown
from benchmarks.task import Task

__all__ = ["Bench", "DataFile", "Options"]

#: An absolute path in an error message: rows tell nothing of the machine's folders.
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]+){2,}")


@dataclass(frozen=True)
class Options:
    """The command line."""

    data_dir: Path
    runs: int = 5
    threads: int = 1
    only: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    alphas: tuple[float, ...] | None = None
    epochs: int | None = None
    intercept: str | None = None
    budget: float = 600.0
    memory: float = 4.0
    classes: int | None = None
    base: str = "HEAD"
    device: str | None = None
    quick: bool = False
    out: Path = Path("benchmarks/results")


@dataclass(frozen=True)
class DataFile:
    """A data set as this process or a child can read it."""

    name: str
    path: Path
    quick: bool

    def read(self) -> data.Data:
        return data.read(self.path, self.name, quick=self.quick)

    def arguments(self) -> dict[str, Any]:
        """For a child process: see `benchmarks.fitting`."""
        return {"path": str(self.path.resolve()), "name": self.name, "quick": self.quick}


@dataclass
class Bench:
    """One run of an experiment."""

    name: str
    options: Options
    console: Console
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self.options.only or ():
            entries = getattr(modules.module("experiments", self.name), "ENTRIES", None)
            if entries is None:
                catalog.method(name)
            elif name not in entries:
                raise Unknown(f"{self.name} has no method {name!r}; it has {', '.join(entries)}")
        for name in self.options.datasets or ():
            modules.module("datasets", name.partition("/")[0])
        self._machine = machine.facts()
        self.options.out.mkdir(parents=True, exist_ok=True)
        about = f"{self._machine['cpu']}, {self._machine['cores']} cores, {self.options.threads} thread(s)"
        self.console.print(f"[bold]{self.name}[/bold]: {about}, {self.options.runs} run(s) each", highlight=False)
        if self.options.quick:
            self.console.print("[yellow]--quick: the data are shrunken, the figures mean nothing[/yellow]")

    # --- what is asked for ------------------------------------------------------------------------------------------

    def datasets(self, *default: str) -> Iterator[DataFile]:
        """The data sets asked for, else ``default``; those without raw files are recorded as skipped."""
        for name in self.options.datasets or default:
            try:
                path = data.locate(name, self.options.data_dir)
            except data.Missing as missing:
                self.skip(str(missing), data=name)
                continue
            yield DataFile(name, path, self.options.quick)

    def methods(self, *default: str) -> list[Method]:
        """The methods and peers asked for, else ``default``; what cannot run here is recorded as skipped."""
        found = []
        for name in self.options.only or default:
            method = catalog.method(name)
            reason = method.skip_reason()
            if reason:
                self.skip(reason, method=name)
            else:
                found.append(method)
        return found

    def willing(self, methods: Iterable[Method], task: Task, *, multilabel: bool = False) -> list[Method]:
        """Those that can solve ``task``; why the others cannot is recorded, unless they are for something else."""
        found = []
        for method in methods:
            reason = method.refuses(task)
            if reason is None and multilabel and not method.multilabel:
                reason = "takes one class a row"
            if reason is None:
                found.append(method)
            elif task.objective in method.objectives:
                self.skip(reason, method=method.name, objective_name=task.objective, l1_ratio=task.l1_ratio)
        return found

    def alphas(self, *default: float) -> tuple[float, ...]:
        return self.options.alphas or default

    # --- what comes out ---------------------------------------------------------------------------------------------

    def record(self, **values: Any) -> None:
        """One row of the CSV, on disk at once: a long run that is interrupted keeps what it has measured."""
        self.rows.append(
            {
                "experiment": self.name,
                "status": "measured",
                "quick": self.options.quick,
                "threads": self.options.threads,
                **values,
                **self._machine,
            }
        )
        self._write()

    def skip(self, reason: str, **values: Any) -> None:
        """Say and record what is left out, and why."""
        self._leave_out("skipped", reason, values)

    def fail(self, reason: str, **values: Any) -> None:
        """Say and record what was tried and failed."""
        self._leave_out("failed", reason, values)

    def _leave_out(self, status: str, reason: str, values: dict[str, Any]) -> None:
        reason = _PATH.sub("<path>", reason)
        what = ", ".join(str(value) for value in values.values())
        self.console.print(f"[yellow]{status}[/yellow] {escape(f'{what}: {reason}')}", highlight=False)
        self.record(**{**values, "status": status, "reason": reason})

    def say(self, text: str) -> None:
        self.console.print(escape(text), highlight=False)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        table = Table(*columns, title=escape(title), title_justify="left", title_style="bold")
        for column in table.columns[1:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*(escape(_text(value)) for value in row))
        self.console.print(table)

    @contextmanager
    def figure(self, panels: int = 1, *, height: float = 3.6) -> Iterator[Any]:
        """Axes side by side, in a row; the figure is saved as NAME.png when the block ends."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.6 * panels, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
        yield axes
        self.save(figure)

    def save(self, figure: Any) -> None:
        """Put a figure of one's own making where figures go: NAME.png."""
        about = f"{self._machine['cpu']}, {self._machine['revision']}, {str(self._machine['date'])[:10]}"
        figure.suptitle(f"{self.name}  ({about}{', QUICK' if self.options.quick else ''})", fontsize=8)
        figure.savefig(self._file(".png"), dpi=150)
        self.console.print(f"figure: {self._file('.png')}", highlight=False)

    def close(self) -> None:
        """Say where the rows are."""
        self._write()
        self.console.print(f"rows:   {self._file('.csv')} ({len(self.rows)})", highlight=False)

    def _file(self, ending: str) -> Path:
        # A quick run never takes the place of a measured one.
        return self.options.out / f"{self.name}{'-quick' if self.options.quick else ''}{ending}"

    def _write(self) -> None:
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        columns = [c for c in columns if c not in self._machine] + list(self._machine)
        temporary = self._file(f".csv.{os.getpid()}.tmp")
        with temporary.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.DictWriter(handle, columns, restval="")
            writer.writeheader()
            writer.writerows(self.rows)
        os.replace(temporary, self._file(".csv"))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.3e}"
    return str(value)
