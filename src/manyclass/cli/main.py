"""The parser of the command line, the dispatch to its commands, and the one place where they fail."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from manyclass._version import __version__
from manyclass.cli import (
    _ranks,
    bench,
    calibrate,
    certify,
    convert,
    demo,
    explain,
    fit,
    info,
    predict,
    report,
    score,
    warmup,
)
from manyclass.cli._common import CommandError, HelpFormatter, Screen, in_options, near_option, plain, sentence
from manyclass.cli._folders import gather
from manyclass.cli._pipes import spooled

__all__ = ["build_parser", "main"]

_COMMANDS = (fit, predict, score, calibrate, explain, report, certify, info, convert, demo, bench, warmup)

_WRONG = 2
_INTERRUPTED, _PIPE_CLOSED, _TERMINATED = 130, 141, 143  # as a shell reports SIGINT, SIGPIPE and SIGTERM

_DESCRIPTION = "Linear prediction with many classes: exact, certified, fast."

_EPILOG = """\
DATA is svmlight (plain, .gz, .zst), the XMC repository's format, .npz (SciPy) or .npy with labels beside, or a table
(CSV, TSV, JSON lines, Parquet, Arrow) with a column of texts; the format is told from the content and the name. - is
standard input. Several files of svmlight or of tables are read as one: their names, a folder, or a pattern in quotes.

examples:
  manyclass demo
  manyclass fit train.svm.gz -o codes.model --valid test.svm.gz
  manyclass predict codes.model new.svm --top-k 5
  zcat new.csv.gz | manyclass predict tickets.model -
  manyclass COMMAND --help

exit codes: 0; 1 for what info --verify found damaged; 2 for wrong input, files or options, said in one sentence; 130
after Ctrl-C where nothing could be kept; 143 after SIGTERM, at which a fit keeps model and checkpoint as at Ctrl-C.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences for `main`, not usage pages; its arguments are added when it is used."""

    #: Adds the arguments.
    fill: Callable[[argparse.ArgumentParser], None] | None = None
    #: Adds to the help what takes a moment to find out.
    complete: Callable[[argparse.ArgumentParser], None] | None = None
    #: The end of a sentence on an option that there is not.
    unknown: Callable[[str, argparse.ArgumentParser], str] = staticmethod(near_option)

    def filled(self) -> _Parser:
        """This parser, with its arguments."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
            _add_common(self)
        return self

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see: {self.prog} --help)")

    def format_help(self) -> str:
        self.filled()
        if self.complete is not None:
            self.complete(self)
            self.complete = None
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super(_Parser, self.filled()).parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            command: _Parser = parsed.parser
            word = next((word for word in extra if word.startswith("-")), extra[0])
            hint = command.unknown(word, command) if word.startswith("--") else ""
            if os.path.isfile(word):
                hint = ": files of data that are read as one stand side by side, with no option between them"
            command.error(f"unrecognized arguments: {' '.join(extra)}{hint}")
        return parsed


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
        command.fill = module.add_arguments
        command.complete = getattr(module, "complete", None)
        command.unknown = getattr(module, "unknown_option", near_option)
        command.set_defaults(run=module.run, parser=command)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Options that stand before or after the command; no defaults, so that the one place does not undo the other."""
    group = parser.add_argument_group("everywhere")
    group.add_argument(
        "--quiet",
        action="store_true",
        default=argparse.SUPPRESS,
        help="only results, warnings and errors; fit prints no table",
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
        0; 1 if ``info --verify`` found damage; 2 after an error, which has been said on standard error; 130 after
        Ctrl-C where nothing could be kept; 141 if the reader of standard output went away; 143 after SIGTERM.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    manyclass ...
    0
    """
    rank, size = _ranks.launched()
    _ranks.prepare(size)
    try:
        args = build_parser().parse_args(argv)
        if size > 1 and args.run is not fit.run:
            raise CommandError(f"{size} processes were started, and only fit is for several: leave out mpiexec")
    except CommandError as error:
        if rank == 0:  # the others would say the same
            Screen().fail(str(error))
        return _WRONG
    except SystemExit as done:  # --help and --version have been answered
        return done.code if isinstance(done.code, int) else 0
    screen = Screen(quiet=args.quiet)
    with _sigterm() as received:
        code = _run(args, screen, rank, size, received)
    return _TERMINATED if received else code


def _run(args: argparse.Namespace, screen: Screen, rank: int, size: int, received: Sequence[int]) -> int:
    """Run the command, and say why it failed; ``received`` has the signals that ended it."""
    try:
        with _surroundings(screen, args):
            gather(args)
            with spooled(args, screen, size):
                code: int = args.run(args, screen)
                sys.stdout.flush()
                return code
    except BrokenPipeError:
        _abandon_stdout()
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        screen.fail(f"{'terminated' if received else 'interrupted'}: nothing was kept")
        return _INTERRUPTED
    except (ValueError, OSError, MemoryError) as error:
        if args.debug:
            raise
        if rank == 0:
            screen.fail(sentence(error, args))
        return _WRONG


@contextmanager
def _sigterm() -> Iterator[list[int]]:
    """Take SIGTERM for Ctrl-C, and tell in the list that it has come: batch systems end a job with it."""
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # a job in the background has none
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _surroundings(screen: Screen, args: argparse.Namespace) -> Iterator[None]:
    """Warnings and log records of the library become lines on standard error."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            screen.say(record.getMessage())

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        screen.warn(in_options(plain(str(message)), args))

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
