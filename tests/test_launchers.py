"""``comm="auto"``: what the launcher tells, and refusals where each process would fit alone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manyclass import DSMLR, LinearClassifier, OutOfCore
from manyclass.distributed import CommunicatorError, SerialCommunicator, opened
from manyclass.distributed.opening import ENGINES
from manyclass.io.store import RowStore, write_store
from manyclass.kernels.rows import make_rows
from manyclass.kernels.targets import ClassTargets
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Problem
from manyclass.optimize.loop import Outcome, minimize
from manyclass.runtime.launchers import UNSIZED, VARIABLES
from test_communicators import launch


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in (*UNSIZED, *(name for names in VARIABLES for name in names)):
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_it_is_one_process():
    with opened("auto") as comm:
        assert (comm.rank, comm.size) == (0, 1)


@pytest.mark.parametrize(
    ("environment", "needle"),
    [
        ({"PMIX_RANK": "3"}, "process 3 of several"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "RANK": "0", "WORLD_SIZE": "4"}, "contradict"),
    ],
)
def test_what_is_ambiguous_is_refused(monkeypatch, environment, needle):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CommunicatorError, match=needle), opened("auto"):
        pass


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="got 'mpl'"), opened("mpl"):
        pass


PROGRAM = """
import os, sys
if "torchrun" in sys.argv:
    os.environ.update(RANK="1", WORLD_SIZE="2")
if "slurm" in sys.argv:
    os.environ.update(SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="3")
from manyclass.distributed import opened
with opened("auto") as comm:
    os.write(1, f"{comm.rank} of {comm.size}\\n".encode())
"""


@pytest.mark.parametrize("how", ["alone", "slurm"])
def test_processes_of_mpiexec_are_connected(how, tmp_path):
    """Also where mpiexec starts its helpers by srun, whose variables the processes inherit."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = launch(2, str(tmp_path / "program.py"), how)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "0 of 2", "1 of 2"]


def test_processes_that_mpi_does_not_connect_are_refused(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = launch(1, str(tmp_path / "program.py"), "torchrun")
    assert done.returncode != 0
    assert "RANK tells process 1 of 2, but MPI connects this one as rank 0 of 1" in done.stderr


def test_a_solver_closes_the_communicator_that_it_has_opened(monkeypatch, tmp_path):
    """Without an estimator, and on a row store."""
    made = []

    class Counting(SerialCommunicator):
        closed = 0

        def close(self):
            self.closed += 1

    def engine():
        made.append(Counting())
        return made[-1]

    monkeypatch.setitem(ENGINES, "mpi", engine)
    X, y = load_digits(return_X_y=True)
    problem = Problem(make_rows(X / 16), ClassTargets(y.astype(np.int32), 10), MultinomialLoss(), L2(), 1e-2, 64)
    result = minimize(problem, DSMLR(comm="mpi"), tol=1e-3)
    assert result.outcome is Outcome.CONVERGED
    assert [comm.closed for comm in made] == [1]
    with pytest.raises(ValueError, match="comm must be a Communicator here, got 'mpi'"):
        DSMLR(comm="mpi").prepare(problem)
    write_store(tmp_path / "rows", (X / 16).astype(np.float32), y, shard_rows=1000)
    model = LinearClassifier(solver=OutOfCore(tmp_path / "model", comm="mpi"), alpha=1e-2, tol=0.5)
    model.fit(RowStore(tmp_path / "rows"))
    assert [comm.closed for comm in made] == [1, 1]
