"""The command line: ``list``, ``run``, ``reproduce`` and ``tables``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape

from benchmarks import catalog, modules
from benchmarks.bench import Bench, Options
from benchmarks.data import default_folder
from benchmarks.reproduce import PAPERS, reproduce

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when done, 2 on wrong arguments."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    console = Console(width=None if Console().is_terminal else 200)
    if chosen.command == "list":
        _list(console)
        return 0
    if chosen.command == "tables":
        return _tables(console, check=chosen.check)
    if chosen.command == "reproduce":
        extra = [word for name, value in (("--data-dir", chosen.data_dir),) if value for word in (name, str(value))]
        extra += ["--quick"] if chosen.quick else []

        def parse(arguments: Sequence[str]) -> Options:
            return _options(parser.parse_args(["run", *arguments]))

        papers = [chosen.paper] if chosen.paper else list(PAPERS)
        out = chosen.out / "quick" if chosen.quick else chosen.out  # never in the place of measured rows
        return 1 if reproduce(papers, parse, out, console, extra) else 0
    options = _options(chosen)
    try:
        experiment = modules.module("experiments", chosen.name)
        bench = Bench(chosen.name, options, console)
    except modules.Unknown as error:
        parser.error(str(error))
    experiment.run(bench)
    bench.close()
    return 0


def _options(chosen: argparse.Namespace) -> Options:
    """Of the command ``run``."""
    return Options(
        data_dir=chosen.data_dir or default_folder(),
        runs=chosen.runs,
        threads=chosen.threads,
        only=chosen.only,
        datasets=chosen.data,
        alphas=chosen.alpha,
        epochs=chosen.epochs,
        intercept=chosen.intercept,
        budget=chosen.budget,
        memory=chosen.memory,
        classes=chosen.classes,
        base=chosen.base,
        device=chosen.device,
        quick=chosen.quick,
        out=chosen.out,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="experiments, data sets, methods and peers, and what would be skipped here")
    again = commands.add_parser("reproduce", help="run a paper's experiments, or all; goes on where it was stopped")
    again.add_argument("paper", nargs="?", choices=tuple(PAPERS), help="default: all of them")
    again.add_argument("--data-dir", type=Path, help="folder of the raw data files (default: $MANYCLASS_DATA)")
    again.add_argument("--quick", action="store_true", help="shrunken data: shows that it works, measures nothing")
    again.add_argument("--out", type=Path, default=Path("benchmarks/reproduced"), help="where rows and pages go")
    written = commands.add_parser("tables", help="write the figures of README.md and docs from the stored rows")
    written.add_argument(
        "--check", action="store_true", help="change nothing; exit status 1 if a figure is not the rows'"
    )
    run = commands.add_parser("run", help="run an experiment; writes NAME.csv and NAME.png")
    run.add_argument("name", metavar="NAME", help="an experiment (see list)")
    run.add_argument("--data-dir", type=Path, help="folder of the raw data files (default: $MANYCLASS_DATA)")
    run.add_argument("--runs", type=_positive, default=5, help="repetitions of each timing (default 5)")
    run.add_argument("--threads", type=_positive, default=1, help="threads for everyone (default 1)")
    run.add_argument("--only", type=_several(str), metavar="METHOD,...", help="these methods and peers alone")
    run.add_argument("--data", type=_several(str), metavar="DATA,...", help="other data sets than the experiment's")
    run.add_argument("--alpha", type=_several(float), metavar="A,...", help="other penalties than the experiment's")
    run.add_argument("--epochs", type=_positive, help="other numbers of epochs, where an experiment fixes them")
    run.add_argument("--intercept", choices=("no", "yes", "both"), help="where an experiment can have one")
    run.add_argument("--budget", type=_above_zero, default=600.0, metavar="SECONDS", help="a peer's fit (default 600)")
    run.add_argument("--memory", type=_above_zero, default=4.0, metavar="GIB", help="where it is limited (default 4)")
    about = "one_vs_rest: peers are timed on this many classes; memoir_scaling: this many alone"
    run.add_argument("--classes", type=_positive, help=about)
    run.add_argument("--base", default="HEAD", metavar="REVISION", help="revisions: the other one (default HEAD)")
    run.add_argument("--device", help="embeddings, ls_default: the device of PyTorch, such as cuda")
    run.add_argument("--quick", action="store_true", help="shrunken data: shows that it works, measures nothing")
    run.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where CSV and figure go")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return number


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def _several(kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    def parse(text: str) -> tuple[T, ...]:
        return tuple(kind(part) for part in text.split(",") if part)

    return parse


def _tables(console: Console, *, check: bool) -> int:
    """Write the blocks of all documents, or say which are not what the rows give."""
    from benchmarks import tables

    stale = []
    try:
        for document in tables.documents():
            text, new = tables.rewrite(document)
            if text != new:
                stale.append(str(document.relative_to(tables.ROOT)))
                if not check:
                    document.write_text(new, encoding="utf-8")
    except tables.Fault as fault:
        console.print(f"[red]{escape(str(fault))}[/red]", highlight=False)
        return 1
    what = "not what the rows give" if check else "written"
    console.print(f"{what}: {', '.join(stale)}" if stale else "all figures are those of the rows", highlight=False)
    return 1 if check and stale else 0


def _list(console: Console) -> None:
    for kind in ("experiments", "datasets"):
        console.print(f"\n[bold]{kind}[/bold]")
        for name in modules.names(kind):
            module = modules.module(kind, name)
            console.print(f"  {name:<22} {modules.summary(module)}", highlight=False)
            variants = [f"{name}/{v}" for v in getattr(module, "VARIANTS", ())[1:]]
            if variants:
                console.print(f"  {'':<22} also {', '.join(variants)}", highlight=False)
    for kind, names in (("methods", catalog.ours()), ("peers", modules.names("peers"))):
        console.print(f"\n[bold]{kind}[/bold]")
        for name in names:
            method = catalog.method(name)
            console.print(f"  {name:<22} {method.about}", highlight=False)
            reason = method.skip_reason()
            if reason:
                console.print(f"  {'':<22} [yellow]would be skipped: {reason}[/yellow]", highlight=False)
