"""Memory: what a fit needs is known, what there is is known, and what does not fit is refused with both numbers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from helpers import make_data, make_problem
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import CrammerSingerLoss, MultinomialLoss
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.objective.problem import Problem
from manyclass.optimize.choice import choose
from manyclass.optimize.loop import minimize
from manyclass.runtime import memory
from manyclass.solvers import SDCA, AcceleratedSDCA, ActiveSetSDCA, AsyncSDCA
from manyclass.solvers.dual.warm import warm_state


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


@pytest.mark.parametrize("solver", [SDCA(), AcceleratedSDCA()], ids=lambda solver: solver.name)
def test_a_warm_start_is_refused_too_less_what_it_brings(monkeypatch, solver):
    """The arrays of the start are there already; those that are missing are refused before they are allocated."""
    problem = make_problem(MultinomialLoss(), make_data("class"))
    start = SDCA().state(problem)
    needed = sum(solver.nbytes(problem).values()) - sum(array.nbytes for array in start.values())
    monkeypatch.setattr(memory, "available", lambda: needed)
    warm_state(problem, solver, dict(start))
    monkeypatch.setattr(memory, "available", lambda: needed - 1)
    monkeypatch.setattr(AcceleratedSDCA, "_arrays", lambda *_: pytest.fail("allocated"))
    monkeypatch.setattr(SDCA, "state", lambda *_: pytest.fail("allocated"))
    with pytest.raises(MemoryError, match=r"dual variables .*less what it starts from"):
        warm_state(problem, solver, start)


@pytest.mark.parametrize("K", [16, 20])
def test_a_plan_includes_the_weights_of_the_model_where_they_are_a_copy(K):
    """Arrays of whole cache lines have columns of padding, which the model has not."""
    problem = make_problem(MultinomialLoss(), make_data("class", n=40, K=K), view="csr")
    W = SDCA().weights(problem, state := SDCA().state(problem))[0]
    planned = SDCA().nbytes(problem).get("weights of the model", 0)
    assert planned == (0 if np.shares_memory(W, state["V"]) else W.nbytes)
    assert bool(planned) is (K == 20)


@pytest.mark.parametrize("penalty", [L2(), ElasticNet(0.5)], ids=str)
def test_active_sets_plan_the_weights_of_the_model(penalty):
    problem = make_problem(CrammerSingerLoss(1.0), make_data("class", n=40, K=20), reg=penalty)
    solver = ActiveSetSDCA(storage="dense")
    state = solver.state(problem)
    W = solver.weights(problem, state)[0]
    held = state["V"].nbytes + (0 if np.shares_memory(W, state["V"]) else W.nbytes)
    assert solver.nbytes(problem)["weights"] == held


def test_acceleration_is_left_out_where_its_arrays_are_large():
    """Whatever memory there is: the same problem has the same solver everywhere."""

    def solver(n_features):
        rng = np.random.default_rng(0)
        X = sp.csr_matrix((np.ones(600), (np.arange(600), rng.integers(900, size=600))), (600, n_features))
        y = ClassTargets(rng.integers(1000, size=600).astype(np.int32), 1000)
        return choose(Problem(make_rows(X), y, MultinomialLoss(), L2(), 1e-6, n_features, dtype=np.dtype(np.float32)))

    assert type(solver(300_000)) is AcceleratedSDCA
    assert type(solver(500_000)) is SDCA


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
