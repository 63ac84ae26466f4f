"""Sessions for developers: ``nox -l`` lists them, ``nox -s full-3.12`` runs one. What follows ``--`` goes to pytest."""

from __future__ import annotations

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]

nox.options.sessions = ["lint", "types", "imports", "tests"]
nox.options.reuse_existing_virtualenvs = True


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: style and format."""
    session.install("ruff>=0.17,<0.18")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy: static types, strict."""
    session.install(".[test,lint]")
    session.run("mypy")


@nox.session
def imports(session: nox.Session) -> None:
    """Import-linter: which module may import which, as pyproject.toml says."""
    if not nox.project.load_toml("pyproject.toml").get("tool", {}).get("importlinter"):
        session.skip("pyproject.toml has no [tool.importlinter]")
    session.install(".[lint]")
    session.run("lint-imports")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The sample of the tests that `pytest` runs, with the newest dependencies."""
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS)
def full(session: nox.Session) -> None:
    """The complete set with the newest dependencies."""
    session.install(".[test]", "array-api-strict>=2.2")
    # A peer of the benchmarks, compiled when it is installed: where there is no compiler, its tests are skipped.
    session.run("python", "-m", "pip", "install", "liblinear-official", success_codes=[0, 1])
    session.run("pytest", "--full", *session.posargs)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """The complete set with the oldest dependencies that are supported: every night."""
    session.install(".[test]", "--constraint", "constraints-oldest.txt")
    session.run("pytest", "--full", *session.posargs)


@nox.session
def arrays(session: nox.Session) -> None:
    """Arrays of array-api-strict and PyTorch as input: a large download."""
    session.install(".[test]", "array-api-strict>=2.2", "torch>=2.4")
    # Without the variable, scikit-learn skips its checks of estimators with array-api-strict.
    chosen = ["-n0", "--full", "-k", "arrays_of_other_libraries or array_api"]
    session.run("pytest", *chosen, *session.posargs, env={"SCIPY_ARRAY_API": "1"})


@nox.session
def faults(session: nox.Session) -> None:
    """Ranks that are killed, frozen or cut off, over network namespaces: as root, on Linux; a few minutes."""
    session.install(".[test]")
    session.run("pytest", "--full", "tests/test_faults.py", *session.posargs, env={"MANYCLASS_FAULTS": "1"})


@nox.session
def examples(session: nox.Session) -> None:
    """The examples, and the Python code of README.md and docs/."""
    session.install(".[test]")
    session.run("pytest", "--full", "tests/test_packaging.py", "-k", "pages_run or examples_run", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """A benchmark: ``nox -s bench -- run NAME``."""
    session.install(".[test]")
    session.run("python", "-m", "benchmarks", *session.posargs)
