"""The tasks of the house: ``nox -l`` lists them, ``nox -s tests`` runs one."""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_existing_virtualenvs = True

#: The oldest versions that pyproject.toml admits, together. Kept in step by tests/test_packaging.py.
OLDEST = {
    "numpy": "1.26.0",
    "scipy": "1.11.4",
    "scikit-learn": "1.6.0",
    "numba": "0.60.0",
    "safetensors": "0.4.5",
    "rich": "13.7.0",
    "matplotlib": "3.8.0",
    "zstandard": "0.22.0",
    "pandas": "2.1.0",
}


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
    session.install(".[test]", *(f"{name}=={version}" for name, version in OLDEST.items()))
    session.run("pytest", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """A benchmark: ``nox -s bench -- run NAME``."""
    session.install(".[test]")
    session.run("python", "-m", "benchmarks", *session.posargs)
