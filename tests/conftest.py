"""Fixtures over the registry, and what a run consists of.

`pytest` runs a sample that is the same on every machine: the first case of some test functions (`FUNCTIONS_ONE_IN`),
and of the other cases one in `ONE_IN`, chosen by a hash of the case's name; of the tests of the benchmarks only what
the level `brief` has. `pytest --level brief` runs the first case of fewer functions, `pytest --level rest` the first
case of all functions and one in `REST_ONE_IN` of the other cases, without those of the sample, `pytest --full` every
case; so does `pytest` with names of tests. Tests marked `slow` are not in a sample. Where no tests are named they run
in parallel, one process for each core, if pytest-xdist is installed.
"""

from __future__ import annotations

import os
import signal
import zlib

import pytest
from hypothesis import settings

# Set before NumPy is imported: in parallel processes, each with a thread of BLAS for each core, threads wait for cores.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

from registry import DTYPES, LOSSES, PENALTIES, VIEWS  # noqa: E402

#: Of the test functions, one in so many is in a sample with its first case. Of those of the benchmarks, which are tools
#: of this repository that no user installs, `quick` has what `brief` has.
FUNCTIONS_ONE_IN = {"brief": 8, "quick": 2}
#: Of all other cases, `pytest` and `pytest --level rest` run one in so many.
ONE_IN, REST_ONE_IN = 60, 3

#: More processes than this gain little: most of the time goes into a few long files and into compiling.
MOST_PROCESSES = 8

# Examples compile kernels: their times say nothing, and the same examples run everywhere.
settings.register_profile("properties", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("properties")

# Started in the background by a shell, Python finds SIGINT ignored, and Ctrl-C would raise nothing here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser):
    """How many cases are run."""
    parser.addoption(
        "--level",
        choices=("brief", "quick", "rest", "full"),
        help=f"brief: the first case of one test in {FUNCTIONS_ONE_IN['brief']}; quick: that of one in "
        f"{FUNCTIONS_ONE_IN['quick']}, and one in {ONE_IN} of the other cases; rest: without these, that of every test "
        f"and one in {REST_ONE_IN} of the other cases; full: all (default: quick, and full where tests are named)",
    )
    parser.addoption("--full", action="store_const", dest="level", const="full", help="the same as --level full")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run in parallel where nothing was said of it: neither which tests (those of one file start faster in one
    process), nor how many processes, nor that a debugger is to be used."""
    option = config.option
    all_tests = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if option.level is None:
        option.level = "quick" if all_tests else "full"
    unsaid = all_tests and getattr(option, "numprocesses", 0) is None
    # The processes of pytest-xdist come here, too.
    if unsaid and not (hasattr(config, "workerinput") or option.usepdb or option.collectonly):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cores > 1:
            option.numprocesses = min(cores, MOST_PROCESSES)
            # The tests of a file use the same kernels: in one process, they are compiled once.
            option.dist = "loadfile"


def pytest_collection_modifyitems(config, items):
    """Leave out all cases but the sample. Which these are depends on their names alone."""
    for item in items:
        if item.path.name.startswith("test_benchmark"):
            item.add_marker("benchmarks")
    level = config.getoption("level")
    if level == "full":
        return
    kept, left_out, known = [], [], set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        first = function not in known
        known.add(function)
        size = "brief" if level == "brief" or item.get_closest_marker("benchmarks") else "quick"
        sampled = first and _chosen(function, FUNCTIONS_ONE_IN[size])
        if size == "quick":
            sampled = sampled or _chosen(item.nodeid, ONE_IN)
        sampled = sampled and item.get_closest_marker("slow") is None
        if level == "rest":
            sampled = not sampled and (first or _chosen(item.nodeid, REST_ONE_IN))
        (kept if sampled else left_out).append(item)
    config.stash[_LEFT_OUT] = len(left_out)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _chosen(name, one_in):
    return zlib.crc32(name.encode()) % one_in == 0


def pytest_sessionfinish(session):
    """In a process of pytest-xdist: tell the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Every process of pytest-xdist has collected the same tests: any of them knows the number."""
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    node.config.stash[_LEFT_OUT] = max(left_out, node.config.stash.get(_LEFT_OUT, 0))


def pytest_terminal_summary(terminalreporter, config):
    """How to run what was left out."""
    left_out = config.stash.get(_LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(
            f"{left_out} further cases were left out: run `nox -s full` (or `pytest --full`) for the complete set"
        )


@pytest.fixture(params=LOSSES)
def case(request):
    """A loss under test."""
    return LOSSES[request.param]


@pytest.fixture(params=PENALTIES)
def reg(request):
    """A penalty under test."""
    return PENALTIES[request.param]


@pytest.fixture(params=VIEWS)
def view(request, tmp_path):
    """A way to hold rows: call it with a dense array."""
    return lambda X: VIEWS[request.param](X, tmp_path)


@pytest.fixture(params=DTYPES)
def dtype(request):
    """A working precision."""
    return DTYPES[request.param]


@pytest.fixture
def prepared(monkeypatch, tmp_path):
    """A cache of its own for the benchmarks' data."""
    from benchmarks import data

    monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
