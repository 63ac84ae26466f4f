"""Memory: what a fit needs is known, what there is is known, and what does not fit is refused with both numbers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from helpers import make_data, make_problem
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss
from manyclass.optimize.loop import minimize
from manyclass.runtime import memory
from manyclass.solvers import SDCA, ActiveSetSDCA, AsyncSDCA


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 * 2**20, "5.0 MiB"), (2**40, "1024.0 GiB")],
)
def test_human(n, text):
    assert memory.human(n) == text


def test_available_is_a_positive_number_of_bytes_or_unknown():
    there = memory.available()
    assert there is None or (isinstance(there, int) and there > 0)


@pytest.mark.skipif(sys.platform != "linux", reason="address-space limits are read from /proc")
def test_available_heeds_the_limit_on_address_space():
    script = (
        "import resource\n"
        "from pathlib import Path\n"
        "from manyclass.runtime import memory\n"
        "pages = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages + 2**28, resource.RLIM_INFINITY))\n"
        "raise SystemExit(0 if 0 <= memory.available() <= 2**28 else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_require_names_the_bytes_what_for_and_the_remedy(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 3 * 2**20)
    memory.require({"weights": 2**20, "dual variables": 2 * 2**20}, "nothing")
    with pytest.raises(MemoryError) as refusal:
        memory.require({"weights": 2**20, "dual variables": 2**32}, "fewer classes")
    for part in ("4.0 GiB", "weights 1.0 MiB", "dual variables 4.0 GiB", "3.0 MiB are available", "fewer classes"):
        assert part in str(refusal.value)


def test_require_lets_pass_where_the_system_does_not_say(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    memory.require({"weights": 2**60}, "nothing")


def test_a_fit_is_refused_before_anything_is_allocated(monkeypatch):
    problem = make_problem(MultinomialLoss(), make_data("class"))
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(SDCA, "state", lambda *_: pytest.fail("allocated"))
    with pytest.raises(MemoryError, match=r"weights 256 bytes, dual variables 1\.9 KiB.*100 bytes are avail.*float32"):
        minimize(problem, SDCA())


@pytest.mark.parametrize("solver", [SDCA(), AsyncSDCA(), ActiveSetSDCA()], ids=lambda solver: solver.name)
def test_solvers_know_what_they_need(solver, dtype):
    """The estimate covers the arrays of the state, but for those of length n or K, and is no wild guess."""
    data = make_data("class", n=300, d=200, K=50)
    problem = make_problem(CrammerSingerLoss(1.0), data, dtype=dtype)
    state = solver.state(problem)
    held = sum(array.nbytes for array in state.values())
    small = 16 * (len(data.X) + data.K + 1)
    estimate = sum(solver.nbytes(problem).values())
    assert held - small <= estimate
    matrices = sum(array.nbytes for array in state.values() if np.ndim(array) == 2)
    assert estimate <= 10 * matrices
