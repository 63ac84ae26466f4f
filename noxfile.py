"""Sessions for developers: ``nox -l`` lists them, ``nox -s full-3.12`` runs one. What follows ``--`` goes to pytest."""

from __future__ import annotations

import pathlib

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
    session.install(".[test]", "array-api-strict>=2.3")
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
    session.install(".[test]", "array-api-strict>=2.3", "torch>=2.4")
    # Without the variable, scikit-learn skips its checks of estimators with array-api-strict.
    chosen = ["-n0", "--full", "-k", "arrays_of_other_libraries or array_api or arrays.md"]
    session.run("pytest", *chosen, *session.posargs, env={"SCIPY_ARRAY_API": "1"})


@nox.session(python=["3.10", "3.12"])
def engines(session: nox.Session) -> None:
    """Distributed fits on PyTorch, Dask and Ray, on Python 3.10 with their oldest versions: large downloads."""
    oldest = ["--constraint", "constraints-oldest.txt"] if session.python == "3.10" else []
    session.install(".[test,torch,dask,ray]", *oldest)
    tests = [f"tests/test_{name}.py" for name in ("torch", "dask", "ray")]
    session.run("pytest", "-n0", "--full", *tests, *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Ranks that are killed, frozen or cut off, over network namespaces: as root, on Linux; a few minutes."""
    session.install(".[test]")
    session.run("pytest", "--full", "tests/test_faults.py", *session.posargs, env={"MANYCLASS_FAULTS": "1"})


@nox.session
def kills(session: nox.Session) -> None:
    """SIGKILL at 50 random moments of every operation that writes files, one of them a model of 1 GiB: half an hour."""
    session.install(".[test]")
    environment = {"MANYCLASS_KILLS": "50", "MANYCLASS_KILLED_BYTES": str(1 << 30)}
    session.run("pytest", "--full", "-n0", "tests/test_kill.py", *session.posargs, env=environment)


@nox.session
def load(session: nox.Session) -> None:
    """10 000 fits on eight threads and 10 000 one after the other: minutes; MANYCLASS_LOAD_SECONDS of predictions."""
    session.install(".[test]")
    session.run("pytest", "--full", "-n0", "tests/test_load.py", *session.posargs, env={"MANYCLASS_LOAD": "10000"})


@nox.session
def certificates(session: nox.Session) -> None:
    """Certificates of every loss, penalty, intercept, solver and type against better points: half an hour."""
    session.install(".[test]")
    environment = {"MANYCLASS_CERTIFICATES": "1"}
    session.run("pytest", "--full", "-n0", "tests/test_certificates.py", *session.posargs, env=environment)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Mutated files of every format, on Linux: ``nox -s fuzz -- --minutes 60``."""
    session.install(".[test]")
    session.run("python", "tests/fuzzing.py", *session.posargs)


#: Of the tests: those that run most kernels on small problems.
KERNELS = [
    *(f"tests/test_{name}.py" for name in ("losses", "penalties", "problem", "every_solver", "rows", "scoring")),
    *(f"tests/test_{name}.py" for name in ("search_laws", "table", "memoir", "coordinate", "ds_mlr", "data_svmlight")),
]


@nox.session
def bounds(session: nox.Session) -> None:
    """The tests of the kernels, compiled with checks of every index; then small kernels without compilation."""
    session.install(".[test]")
    tests = session.posargs or ["--level", "quick", *KERNELS]
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": f"{session.create_tmp()}/bounds"}
    session.run("pytest", "-n0", *tests, env=checked)
    # Not test_data_decimal and test_rows: integers that wrap and float32 sums are others in Python. NumPy warns of
    # overflows that kernels expect.
    plain = [f"tests/test_{name}.py" for name in ("vmath", "penalties", "losses", "coordinate", "search_laws")]
    how = ["-n0", "--level", "quick", "-W", "ignore::RuntimeWarning"]
    session.run("pytest", *how, *plain, env={"NUMBA_DISABLE_JIT": "1"})


@nox.session
def examples(session: nox.Session) -> None:
    """The examples, and the Python code of README.md and docs/."""
    session.install(".[test]")
    session.run("pytest", "--full", "tests/test_packaging.py", "-k", "pages_run or examples_run", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site with its gallery, in docs/_build/html: warnings are errors; then links, search and,
    where Chromium is installed, each page at two widths."""
    session.install(".[docs,test]")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html", *session.posargs)
    session.run("pytest", "-n0", "--full", "tests/test_browser.py")


@nox.session
def links(session: nox.Session) -> None:
    """Links of the documentation to other sites: needs a network."""
    session.install(".[docs]")
    session.run(
        "sphinx-build", "-b", "linkcheck", "-D", "plot_gallery=0", "docs", "docs/_build/links", *session.posargs
    )


@nox.session
def dist(session: nox.Session) -> None:
    """Wheel and sdist: built, checked, and a wheel from the sdist installed."""
    session.install("build", "twine")
    folder = session.create_tmp()
    session.run("python", "-m", "build", "--outdir", folder)  # the wheel is built from the sdist
    files = sorted(str(path) for path in pathlib.Path(folder).glob("manyclass-*"))
    session.run("twine", "check", "--strict", *files)
    session.run("python", "-m", "pip", "install", *(file for file in files if file.endswith(".whl")))
    session.chdir(folder)  # not the sources
    session.run("python", "-c", "import manyclass; print(manyclass.__version__, manyclass.__file__)")
    session.run("manyclass", "--version")


@nox.session
def bench(session: nox.Session) -> None:
    """A benchmark: ``nox -s bench -- run NAME``."""
    session.install(".[test]")
    session.run("python", "-m", "benchmarks", *session.posargs)
