"""The tasks of the house: ``nox -l`` lists them, ``nox -s tests`` runs one."""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_existing_virtualenvs = True


@nox.session
def lint(session: nox.Session) -> None:
    """Style and format."""
    session.install("ruff>=0.17,<0.18")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Static types, strict."""
    session.install(".[test,lint]")
    session.run("mypy")


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """The tests with the newest dependencies of each Python."""
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """The tests with the oldest dependencies that are supported."""
    session.install(".[test]", "--constraint", "constraints-oldest.txt")
    session.run("pytest", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """A benchmark: ``nox -s bench -- run NAME``."""
    session.install(".[test]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """What ends a distributed job, over network namespaces: as root, on Linux; a few minutes."""
    session.install(".[test]")
    session.run("pytest", "tests/test_faults.py", *session.posargs, env={"MANYCLASS_FAULTS": "1"})
