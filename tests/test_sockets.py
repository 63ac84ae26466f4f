"""The communicator by TCP of the workers of Dask and Ray: the contract of all communicators, and how a job ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from communicator_properties import PROPERTIES
from manyclass.distributed import AbortedError, CommunicatorError
from manyclass.distributed.sockets import Doorway, SocketCommunicator
from starting import described, start
from test_communicators import PROPERTY_FILE

SECRET = bytes(range(32))


@pytest.mark.parametrize(("size", "how"), [(1, "properties"), (2, "properties"), (4, "properties"), (3, "parts")])
def test_processes(size, how, tmp_path):
    done = start(size, str(PROPERTY_FILE), how, str(tmp_path))
    assert [run.returncode for run in done] == [0] * size, [run.stderr for run in done]
    for rank, run in enumerate(done):
        assert run.stdout.split("\n")[:-1] == [f"{rank} {name}" for name in PROPERTIES]
        assert run.stderr == ""


def together(size, work, connect=20.0):
    """The results of ``work(comm)``, or its errors, of so many threads that communicate by sockets."""
    doorways = [Doorway("127.0.0.1") for _ in range(size)]
    addresses = [doorway.address for doorway in doorways]

    def run(rank):
        try:
            with SocketCommunicator(rank, addresses, doorways[rank], SECRET, timeout=20.0, connect=connect) as comm:
                comm.where = (5, rank)
                return work(comm)
        except Exception as error:
            return error

    before = threading.active_count()
    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(run, range(size)))
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    return found


def test_a_failure_ends_the_job_on_all_ranks_and_no_process():
    def work(comm):
        comm.barrier()
        if comm.rank == 1:
            raise ArithmeticError("a bug")
        comm.receive()

    found = together(3, work)
    assert [type(error) for error in found] == [AbortedError, ArithmeticError, AbortedError]
    for error in (found[0], found[2]):
        assert re.fullmatch(r"rank 1 of 3 on \S+ \(epoch 5, step 1\) gave up: ArithmeticError: a bug", str(error))
    # The same process can communicate again, by new sockets.
    assert [float(total) for total in together(3, lambda comm: comm.allreduce(np.float64(comm.rank)))] == [3.0] * 3


def test_a_rank_that_gives_up_ends_all():
    found = together(2, lambda comm: comm.abort("enough") if comm.rank else comm.receive())
    assert [type(error) for error in found] == [AbortedError, AbortedError]
    assert all(str(error).endswith("gave up: enough") for error in found)


def test_collectives_of_other_sizes_are_an_error():
    found = together(2, lambda comm: comm.allreduce(np.zeros(2 + comm.rank)))
    assert any("expected 16 bytes of rank 1 in a collective and got 24" in str(error) for error in found)
    assert all(isinstance(error, CommunicatorError) for error in found)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_rank_that_is_gone_is_named(how, tmp_path):
    """Its connection has ended, or it has sent no heartbeat."""
    if how == "stopped" and sys.platform == "win32":
        pytest.skip("signals")
    runs = [
        subprocess.Popen(
            [sys.executable, str(PROPERTY_FILE), how, str(tmp_path)],
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in described(3)
    ]
    try:
        said = [run.communicate(timeout=60)[1] for run in runs[:2]]
    finally:
        for run in runs:
            run.kill()
            run.communicate()
    assert [run.returncode for run in runs] == [1, 1, -signal.SIGKILL]
    reason = {"killed": "has ended: killed", "stopped": "has sent no heartbeat for"}[how]
    last = [text.strip().split("\n")[-1] for text in said]
    lost = rf"(PeerLostError|AbortedError): .*rank 2 on \S+ \(last seen at epoch \d, step \d\).* {reason}"
    assert all(re.search(lost, line) for line in last), last
    assert any("PeerLostError" in line for line in last)


def test_ranks_that_do_not_come_are_named():
    doorways = [Doorway("127.0.0.1") for _ in range(3)]
    addresses = [doorway.address for doorway in doorways]
    doorways[0].close()
    with pytest.raises(CommunicatorError, match=r"rank 1 of 3 .* with rank 0 at 127\.0\.0\.1:\d+, rank 2 at .* 0\.5 s"):
        SocketCommunicator(1, addresses, doorways[1], SECRET, connect=0.5)
    doorways[2].close()


def test_strangers_are_turned_away():
    """Connections without the secret, of a rank that there is not, or that say nothing more."""
    doorways = [Doorway("127.0.0.1") for _ in range(2)]
    addresses = [doorway.address for doorway in doorways]
    strangers = []
    for said in (bytes(32) + bytes([0, 0, 0, 1]), SECRET + bytes([0, 0, 0, 0]), SECRET + bytes([0, 0, 0, 7]), b"GET /"):
        strangers.append(socket.create_connection(addresses[0]))
        strangers[-1].sendall(said)
    strangers[-1].shutdown(socket.SHUT_WR)

    def work(rank):
        with SocketCommunicator(rank, addresses, doorways[rank], SECRET, timeout=20.0) as comm:
            return float(comm.allreduce(1.0))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [2.0, 2.0]
    assert [stranger.recv(1) for stranger in strangers] == [b""] * 4
    for stranger in strangers:
        stranger.close()
