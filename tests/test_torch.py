"""The communicator of `torch.distributed`: the contract of all communicators, and how a job ends."""

from __future__ import annotations

import re
import sys
import time

import pytest

from communicator_properties import PROPERTIES
from starting import start
from test_communicators import PROPERTY_FILE

pytest.importorskip("torch")


@pytest.mark.parametrize(("size", "how"), [(1, "properties"), (2, "properties"), (4, "properties"), (3, "parts")])
def test_torch(size, how):
    done = start(size, str(PROPERTY_FILE), how, "torch")
    assert [run.returncode for run in done] == [0] * size, [run.stderr for run in done]
    for rank, run in enumerate(done):
        assert run.stdout.split("\n")[:-1] == [f"{rank} {name}" for name in PROPERTIES]
        assert "manyclass" not in run.stderr


@pytest.mark.parametrize(
    ("how", "reason"), [("abort", "gave up: no more room"), ("error", "gave up: ArithmeticError: a bug")]
)
def test_torch_ends_every_rank_with_the_reason(how, reason):
    done = start(3, str(PROPERTY_FILE), how, "torch")
    assert [run.returncode for run in done] == [1] * 3
    said = said_by(done)
    assert len(said) == 1, said
    assert said[0].startswith("manyclass: error: rank 2 of 3 on ")
    assert said[0].endswith(f"(epoch 5, step 2) {reason}")


def said_by(done):
    """The lines of all processes that name a cause."""
    return [line for run in done for line in run.stderr.split("\n") if line.startswith("manyclass: error:")]


def test_torch_names_a_process_that_was_killed():
    done = start(3, str(PROPERTY_FILE), "killed", "torch")
    assert [run.returncode for run in done] == [1, 1, -9]
    him = r"rank 2 of 3 on \S+ \(epoch \d, step \d\), process \d+, was killed"
    assert re.search(rf"^manyclass: error: {him}", done[2].stderr, re.M), done[2].stderr  # its monitor process
    lost = r"rank 0 of 3 on \S+ \(epoch 5, step 0\): the connection to rank 2 on \S+ \(last seen at epoch \d, step \d\)"
    assert re.search(rf"^manyclass: error: {lost} has ended: killed", done[0].stderr, re.M), done[0].stderr


def test_torch_finds_a_process_that_is_stuck_but_sends_heartbeats():
    begun = time.monotonic()
    done = start(3, str(PROPERTY_FILE), "stuck", "torch")
    assert time.monotonic() - begun < 60
    assert [run.returncode for run in done] == [1] * 3
    assert any(re.search(r"rank 2 on \S+ \(at epoch 5, step 2\) has done nothing", line) for line in said_by(done))
    assert done[0].stderr.count("while the others wait") == 1


PROGRAM = """
import os, sys
import torch.distributed as dist
from manyclass.distributed import opened
if sys.argv[1] == "initialized":
    dist.init_process_group("gloo")
with opened("auto" if sys.argv[1] != "mpi" else "mpi") as comm:
    os.write(1, f"{comm} {comm.rank}\\n".encode())
assert dist.is_initialized() == (sys.argv[1] == "initialized")
"""


@pytest.mark.parametrize("how", ["described", "initialized"])
def test_auto_takes_the_group_that_is_described_or_initialized(how, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = start(2, str(tmp_path / "program.py"), how)
    assert [run.returncode for run in done] == [0, 0], [run.stderr for run in done]
    assert [run.stdout for run in done] == ["TorchCommunicator of 2 0\n", "TorchCommunicator of 2 1\n"]


def test_mpi_is_refused_where_it_connects_none_of_the_processes(tmp_path):
    """Each of them would fit alone."""
    pytest.importorskip("mpi4py")
    (tmp_path / "program.py").write_text(PROGRAM)
    for rank, run in enumerate(start(2, str(tmp_path / "program.py"), "mpi")):
        assert run.returncode == 1
        assert f"comm='mpi': RANK tells process {rank} of 2, but MPI connects this one as rank 0 of 1" in run.stderr


def test_a_group_that_is_not_described_is_refused(monkeypatch):
    from manyclass.distributed import CommunicatorError, opened

    for name in ("RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CommunicatorError, match=r"environment lacks RANK, .*MASTER_ADDR.*: start the processes with"):
        opened("torch").__enter__()


def test_torch_that_is_missing_says_what_to_install(monkeypatch):
    from manyclass.distributed.torch import TorchCommunicator

    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'manyclass\[torch\]'\n *torchrun"):
        TorchCommunicator()
