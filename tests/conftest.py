"""Fixtures that run a law over a registry."""

from __future__ import annotations

import signal
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

from registry import DTYPES, LOSSES, PENALTIES, VIEWS

# Examples compile kernels: their times say nothing, and the same examples run everywhere.
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("laws")


# Started in the background by a shell, Python finds SIGINT ignored, and Ctrl-C would raise nothing here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    """Fewer cases, for a second run of the same tests in another environment."""
    parser.addoption(
        "--one-in", type=int, default=1, metavar="N", help="of each test the first case, and one in N of the others"
    )


def pytest_collection_modifyitems(config, items):
    """Every test is run; which of its cases, depends on their names alone."""
    one_in, kept, left_out, known = config.getoption("--one-in"), [], [], set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        first = test not in known
        known.add(test)
        (kept if first or zlib.crc32(item.nodeid.encode()) % one_in == 0 else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


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
    """The package of benchmarks is in the repository's root, not installed; a cache of its own."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    from benchmarks import data

    monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
