"""What the commands share: how they speak, how they refuse, where they may write."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyclass.cli._declared import losses, solvers
from manyclass.runtime.files import special
from manyclass.runtime.names import did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "MATPLOTLIB",
    "CommandError",
    "HelpFormatter",
    "Screen",
    "check_output",
    "count",
    "duration",
    "has_matplotlib",
    "in_options",
    "near_option",
    "pieces",
    "plain",
    "save_figure",
    "seconds",
    "sentence",
    "write_csv",
]

#: A number as tables show it, with its unit.
_NUMBER = re.compile(r"(> )?-?[0-9][0-9,.e+-]*( [A-Za-z]+)?")

#: Numbers in an array of all scores of some rows.
_BUFFER = 1 << 22

MATPLOTLIB = "figures need matplotlib: install it with  python -m pip install 'manyclass[plot]'"


class CommandError(ValueError):
    """What the user asked for cannot be done; the message says why and what to do."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Examples as they were written, options in one wide column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


class Screen:
    """Results go to standard output, everything else to standard error.

    Parameters
    ----------
    quiet : bool
        Say only warnings and errors besides results.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        #: Files that stand for something else -> what the user knows it by.
        self.names: dict[str, str] = {}

    def named(self, text: str) -> str:
        """A text with files as the user knows them."""
        for path, name in self.names.items():
            text = text.replace(path, name)
        return text

    def say(self, text: str) -> None:
        """A line about what is going on."""
        if not self.quiet:
            sys.stderr.write(self.named(text) + "\n")

    def warn(self, text: str) -> None:
        """A line that `quiet` does not hide."""
        sys.stderr.write(f"manyclass: warning: {self.named(text)}\n")

    def fail(self, text: str) -> None:
        """The last line of a command that failed."""
        sys.stderr.write(f"manyclass: error: {self.named(text)}\n")

    def facts(self, title: str, facts: Mapping[str, str]) -> None:
        """A table of names and values."""
        self._print(title, ["", ""], facts.items(), header=False)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table with a line of names; columns of numbers stand to the right."""
        self._print(title, columns, rows, header=True)

    def _print(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        rows, title = [tuple(map(self.named, row)) for row in rows], self.named(title)
        table = Table(
            box=box.SIMPLE_HEAD if header else None,
            show_header=header,
            pad_edge=False,
        )
        for place, name in enumerate(columns):
            numbers = header and all(_NUMBER.fullmatch(row[place]) for row in rows)
            table.add_column(name, justify="right" if numbers else "left", overflow="fold", no_wrap=header)
        for row in rows:
            table.add_row(*row)
        # A pipe or a file has no width of its own: do not cut lines to that of a guessed terminal.
        width = None if sys.stdout.isatty() else 160
        console = Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)
        with console.capture() as drawn:
            if title:
                console.print(title, style="bold")
            console.print(table)
        for line in drawn.get().splitlines():
            sys.stdout.write(line.rstrip() + "\n")

    def json(self, facts: Mapping[str, Any]) -> None:
        """Facts as JSON; what is no finite number, which JSON has no word for, becomes null."""
        text = json.dumps(_finite(facts), indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write(self.named(text) + "\n")


def sentence(error: Exception, args: argparse.Namespace) -> str:
    """What to say of an error, on one line: a file with the argument it came from, parameters as options."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{_origin(error.filename, args)}{os.fspath(error.filename)}: {error.strerror}{_near(error)}"
    elif isinstance(error, MemoryError) and not str(error):
        text = "out of memory"
    else:
        text = plain(str(error)) or type(error).__name__
    return in_options(text, args)


def _origin(filename: Any, args: argparse.Namespace) -> str:
    """The options or arguments whose value this file is, with a blank behind: ``"--valid "``, ``"DATA "``."""
    names = [
        action.option_strings[0] if action.option_strings else str(action.metavar)
        for action in args.parser._actions
        if filename in _files(getattr(args, action.dest, None))
    ]
    return f"{' and '.join(map(str, names))} " if names else ""


def _files(given: Any) -> Sequence[Any]:
    """The files of an argument, which may name several."""
    found: Sequence[Any] = given if isinstance(given, list) else getattr(given, "files", [given])
    return found


def _near(error: OSError) -> str:
    """For a file that is not there: the name in its folder that is meant, perhaps, or what the folder is."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str | os.PathLike):
        return ""
    path = Path(error.filename)
    if not path.parent.is_dir():
        return f" (there is no folder {path.parent} either: check the path)"
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in itertools.islice(entries, 10_000)]
    # Another kind of file is meant only if all before the first dot is the same.
    stem, kind = path.name.partition(".")[0], path.suffix
    return did_you_mean(path.name, [name for name in names if Path(name).suffix == kind or name.split(".")[0] == stem])


def near_option(word: str, parser: argparse.ArgumentParser) -> str:
    """The end of a sentence on an option that there is not: the one that is meant, perhaps."""
    name = word.lstrip("-").partition("=")[0]
    known = [text.removeprefix("--").replace("-", "_") for text in parser._option_string_actions]
    hint = did_you_mean(name, known)
    return re.sub(r"'(\w+)'", lambda found: "--" + found[1].replace("_", "-"), hint)


def plain(text: str) -> str:
    """A message on one line, with NumPy's numbers as numbers: ``np.int64(0)`` is 0."""
    return re.sub(r"\bnp\.\w+\(([^()]*)\)", r"\1", " ".join(text.split()))


def in_options(text: str, args: argparse.Namespace) -> str:
    """What the library says of its arguments (``max_iter``, ``format=``), said of the options of the command.

    Words that could be part of a path are left alone, and so are those that are words of English as well.
    """
    names: dict[str, str] = {}
    for action in args.parser._actions:
        for spelled in action.option_strings:
            if spelled.startswith("--"):
                names.setdefault(action.dest, spelled)

    def option(found: re.Match[str]) -> str:
        name, assigned = found.groups()
        if name not in names or not (assigned or "_" in name):
            return found.group()
        value_follows = assigned and found.string[found.end() :][:1] not in ("", ")", ",", ";", " ")
        return names[name] + (" " if value_follows else "")

    for words, option_words in _SPELLED.items():
        text = text.replace(words, option_words)
    if "loss" in names:
        text = re.sub(r"(loss|solver)=([A-Z]\w+)\(([^()]*)\)", _with_settings, text)
        text = re.sub(r", or an object such as \w+\(\)", "", text)
    return re.sub(r"(?<![\w/\\.-])([a-z][a-z0-9_]*)(?![\w/\\.-])(=(?:np\.)?)?", option, text)


#: Values of arguments that are options of their own.
_SPELLED = {
    "quote=None": "--no-quotes",
    "header=False": "--no-header",
    "zero_based=True": "--zero-based",
    "fit_intercept=False, or 'auto'": "--no-intercept, or neither",
    "fit_intercept=False": "--no-intercept",
    "random_state": "--seed",
}


def _with_settings(found: re.Match[str]) -> str:
    """An object of the library as options: ``loss=CrammerSinger(gamma=0)`` is ``--loss crammer_singer --set ...``."""
    owner, kind, parameters = found.groups()
    for name, declared in {**losses(), **solvers()}.items():
        if declared.kind == kind:
            parts = parameters.replace("'", "").split(", ") if parameters else []
            return " ".join([f"--{owner} {name}", *(f"--set {owner}.{part}" for part in parts)])
    return found.group()


def count(number: int, noun: str = "") -> str:
    """A number with its thousands apart, and a noun in singular or plural.

    Examples
    --------
    >>> count(130107, "feature")
    '130,107 features'
    """
    if not noun:
        return f"{number:,}"
    many = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def seconds(value: float) -> str:
    """Seconds with as many digits as are of use."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def duration(value: float) -> str:
    """An estimate of seconds, in the unit that suits it; 1 s at the least.

    Examples
    --------
    >>> duration(3.2), duration(1500)
    ('3 s', '25 min')
    """
    for unit, size in (("s", 1), ("min", 60)):
        if value < 120 * size:
            return f"{max(value / size, 1):.0f} {unit}"
    return f"{value / 3600:.0f} h"


def pieces(n_rows: int, n_columns: int, most: int = 1 << 16) -> Iterator[slice]:
    """Rows so few at a time that an array of all their columns stays small."""
    step = max(1, min(most, _BUFFER // max(n_columns, 1)))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))


def check_output(option: str, path: str | None, *inputs: str | None) -> None:
    """Refuse, before any work, a name that could not be written in the end.

    Raises
    ------
    CommandError
        If the folder does not exist or may not be written to, or the name is that of a folder or of an input.
    """
    if path is None:
        return
    target = Path(path)
    if path == "-":
        raise CommandError(f"{option} -: this is not written to standard output: give the name of a file")
    if target.is_dir():
        raise CommandError(f"{option} {path} is a folder: give the name of a file in it")
    if kind := special(target):
        raise CommandError(f"{option} {path} is {kind}, which a file would replace: give the name of a file")
    if not target.parent.is_dir():
        raise CommandError(f"{option} {path}: the folder {target.parent} does not exist: make it first")
    if not os.access(target.parent, os.W_OK):
        raise CommandError(f"{option} {path}: the folder {target.parent} cannot be written to: name another")
    for given in (file for each in inputs for file in _files(each)):
        if given is not None and target.exists() and os.path.exists(given) and target.samefile(given):
            raise CommandError(f"{option} {path} is the input itself: give another name")


def has_matplotlib() -> bool:
    """Whether figures can be drawn."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as its name tells (PNG if it does not), whole or not at all; needs no display."""
    from manyclass.runtime.files import atomic_path

    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower() or "png")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_csv(path: str | Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as comma-separated values, whole or not at all."""
    import csv

    from manyclass.runtime.files import atomic_path

    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
