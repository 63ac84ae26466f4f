"""The parser of the command line, the dispatch to its commands, and the one place where they fail."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from manyclass._version import __version__
from manyclass.cli import bench, convert, demo, fit, info, predict, score
from manyclass.cli._common import CommandError, HelpFormatter, Screen

__all__ = ["build_parser", "main"]

_COMMANDS = (fit, predict, score, info, convert, demo, bench)

_WRONG, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141  # the last two as a shell reports SIGINT and SIGPIPE

_DESCRIPTION = "Linear prediction with many classes: exact, certified, fast."

_EPILOG = """\
DATA is svmlight (plain, .gz, .zst), the XMC repository's format, .npz (SciPy) or .npy with labels beside, or a CSV/TSV
table with a column of texts; the format is told from the content and the name.

examples:
  manyclass demo
  manyclass fit train.svm.gz -o codes.model --valid test.svm.gz
  manyclass predict codes.model new.svm --top-k 5
  manyclass COMMAND --help

exit codes: 0; 2 for wrong input, files or options, said in one sentence; 130 after Ctrl-C where nothing could be kept.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences for `main` to say, not usage pages."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see: {self.prog} --help)")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="manyclass",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"manyclass {__version__}")
    parser.set_defaults(quiet=False, debug=False)
    _add_common(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(
            name,
            usage=" ".join(("manyclass", name, *module.USAGE.split(), "[options]")),
            help=module.HELP,
            description=module.DESCRIPTION,
            epilog=module.EPILOG,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        _add_common(command)
        command.set_defaults(run=module.run)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Options that stand before or after the command; no defaults, so that the one place does not undo the other."""
    group = parser.add_argument_group("everywhere")
    group.add_argument(
        "--quiet", action="store_true", default=argparse.SUPPRESS, help="only results, warnings and errors"
    )
    group.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show where in the program an error arose"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.

    Returns
    -------
    int
        0; 2 after an error, which has been said on standard error; 130 after Ctrl-C where nothing could be kept;
        141 if the reader of standard output went away.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    manyclass ...
    0
    """
    try:
        args = build_parser().parse_args(argv)
    except CommandError as error:
        Screen().fail(str(error))
        return _WRONG
    except SystemExit as done:  # --help and --version have been answered
        return done.code if isinstance(done.code, int) else 0
    screen = Screen(quiet=args.quiet)
    try:
        with _surroundings(screen, args):
            code: int = args.run(args, screen)
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        _abandon_stdout()
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        screen.fail("interrupted: nothing was kept")
        return _INTERRUPTED
    except (ValueError, OSError, MemoryError) as error:
        if args.debug:
            raise
        screen.fail(_in_options(_sentence(error), args))
        return _WRONG


def _sentence(error: Exception) -> str:
    """What to say of an error, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError) and not str(error):
        return "out of memory"
    return " ".join(str(error).split()) or type(error).__name__


def _in_options(text: str, args: argparse.Namespace) -> str:
    """What the library says of its arguments (``max_iter``, ``format=``), said of the options of the command.

    Words that could be part of a path are left alone, and so are those that are words of English as well.
    """

    def option(found: re.Match[str]) -> str:
        name, assigned = found.groups()
        if not hasattr(args, name) or not (assigned or "_" in name):
            return found.group()
        value_follows = assigned and found.string[found.end() :][:1] not in ("", ")", ",", ";", " ")
        return f"--{name.replace('_', '-')}" + (" " if value_follows else "")

    text = text.replace("quote=None", "--no-quotes")
    return re.sub(r"(?<![\w/\\.-])([a-z][a-z0-9_]*)(?![\w/\\.-])(=(?:np\.)?)?", option, text)


@contextmanager
def _surroundings(screen: Screen, args: argparse.Namespace) -> Iterator[None]:
    """Warnings and log records of the library become lines on standard error."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            screen.say(record.getMessage())

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        screen.warn(_in_options(" ".join(str(message).split()), args))

    logger = logging.getLogger("manyclass")
    handler, propagate = Handler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            # The library speaks to users through subclasses of UserWarning; what is for developers stays hidden.
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _abandon_stdout() -> None:
    """Nobody reads standard output any more: let the interpreter flush what is left into nothing."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # not a real file: nothing will be flushed
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
