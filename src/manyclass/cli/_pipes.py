"""Data and models that come through a pipe: ``-`` is standard input."""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from manyclass.cli._common import CommandError, Screen

__all__ = ["is_piped", "spooled"]

#: Arguments that name what is read.
_INPUTS = ("data", "model", "file", "labels", "valid", "valid_labels")
_STDIN = "standard input"


def is_piped(path: str, screen: Screen) -> bool:
    """Whether this file stands for a pipe: its name says nothing of its format."""
    return path in screen.names


@contextmanager
def spooled(args: argparse.Namespace, screen: Screen, n_processes: int) -> Iterator[None]:
    """Put what comes through pipes into files, which `args` names then: readers look at the start and the size first.

    Raises
    ------
    CommandError
        If standard input is a terminal, is asked for twice, or by one of several processes; or if a pipe is named where
        nothing but a file can be described.
    """
    inputs = {name: path for name, path in vars(args).items() if name in _INPUTS and isinstance(path, str)}
    piped = {name: path for name, path in inputs.items() if path == "-" or _is_fifo(path)}
    if list(piped.values()).count("-") > 1:
        raise CommandError("- is standard input, and can be read once: name a file for the other")
    if piped and n_processes > 1:
        raise CommandError(f"{n_processes} processes were started, and a pipe reaches one of them: name a file")
    with ExitStack() as stack:
        for name, path in piped.items():
            if path != "-" and name == "file":
                raise CommandError(f"{path} is a pipe: read it as standard input, manyclass info - < {path}")
            folder = stack.enter_context(TemporaryDirectory(prefix="manyclass-"))
            copy = Path(folder, _STDIN if path == "-" else Path(path).name)
            with copy.open("wb") as file:
                if path != "-":
                    with open(path, "rb") as source:
                        shutil.copyfileobj(source, file)
                elif sys.stdin is None or sys.stdin.isatty():
                    raise CommandError("- is standard input, and nothing is piped there: name a file, or use a pipe")
                else:
                    shutil.copyfileobj(sys.stdin.buffer, file)
            setattr(args, name, str(copy))
            screen.names[str(copy)] = _STDIN if path == "-" else path
        yield


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False
