"""One contract for all communicators: one process, threads, MPI."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from communicator_properties import PROPERTIES
from manyclass.distributed import AbortedError, DeadlineError, SerialCommunicator, ThreadCommunicator, run_threads
from manyclass.distributed.gossip import Gossip
from manyclass.distributed.guard import Guard
from manyclass.distributed.hybrid import HybridJob

PROPERTY_FILE = Path(__file__).with_name("communicator_properties.py")


@pytest.mark.parametrize("name", PROPERTIES)
def test_one_process(name):
    PROPERTIES[name](SerialCommunicator(timeout=60))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", PROPERTIES)
def test_threads(name, size):
    run_threads(size, PROPERTIES[name], timeout=60)


@pytest.mark.parametrize(("size", "threads"), [(2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("name", PROPERTIES)
def test_threads_of_several_processes(name, size, threads):
    run_threads(size, lambda outer: HybridJob(outer, threads).run(PROPERTIES[name]), timeout=60)


@pytest.mark.parametrize("name", ["passes_blocks_round_the_ring", "broadcasts_and_gathers"])
def test_many_threads(name):
    """More ranks than a word has bits."""
    run_threads(70, PROPERTIES[name], timeout=60)


def launch(size: int, *arguments: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder on so many processes."""
    pytest.importorskip("mpi4py")
    beside = Path(sys.executable).with_name("mpiexec")
    if not beside.exists() and shutil.which("mpiexec") is None:
        pytest.skip("no mpiexec")
    # Open MPI has to be told that root may, and that there may be more ranks than cores.
    willing = {
        **{"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        **{"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"},
    }
    return subprocess.run(
        [str(beside) if beside.exists() else "mpiexec", "-n", str(size), sys.executable, "-m", "mpi4py", *arguments],
        env={**os.environ, **willing, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.parametrize(
    ("size", "how"), [(1, "properties"), (2, "properties"), (3, "properties"), (4, "properties"), (3, "parts")]
)
def test_mpi(size, how):
    """Also with arrays that are sent in parts, as those above 1 GiB are."""
    done = launch(size, str(PROPERTY_FILE), how)
    assert done.returncode == 0, done.stderr
    expected = sorted(f"{rank} {name}" for rank in range(size) for name in PROPERTIES)
    assert sorted(done.stdout.split("\n")[:-1]) == expected
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("how", "reason"), [("abort", "gave up: no more room"), ("error", "gave up: ArithmeticError: a bug")]
)
def test_mpi_ends_every_rank_with_the_reason(how, reason):
    begun = time.monotonic()
    done = launch(3, str(PROPERTY_FILE), how)
    assert time.monotonic() - begun < 15
    assert done.returncode != 0
    said = [line for line in done.stderr.split("\n") if line.startswith("manyclass: error:")]
    assert len(said) == 1, done.stderr
    assert said[0].startswith("manyclass: error: rank 2 of 3 on ")
    assert said[0].endswith(f"(epoch 5, step 2) {reason}")


def test_mpi_finds_a_process_that_is_stuck_but_sends_heartbeats():
    begun = time.monotonic()
    done = launch(3, str(PROPERTY_FILE), "stuck")
    assert time.monotonic() - begun < 15
    assert done.returncode != 0
    said = [line for line in done.stderr.split("\n") if line.startswith("manyclass: error:")]
    assert len(said) == 1, done.stderr
    found = re.search(r"^manyclass: error: rank 0 of 3 on \S+ \(epoch 5, step 0\): rank 2 on \S+ \((.*)\) has", said[0])
    assert found, said
    assert found[1] == "at epoch 5, step 2"
    assert said[0].endswith("s, while the others wait")


def test_mpi_waits_for_a_process_that_computes():
    done = launch(2, str(PROPERTY_FILE), "busy")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_mpi_that_is_missing_says_what_to_install(monkeypatch):
    from manyclass.distributed.mpi import MPICommunicator

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"pip install 'manyclass\[mpi\]'\n *mpiexec -n 4 python -m mpi4py"):
        MPICommunicator()


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_timeouts_are_checked(wrong):
    with pytest.raises(ValueError, match="timeout"):
        SerialCommunicator(timeout=wrong)


# --- threads: how they end -------------------------------------------------------------------------------------------


def test_threads_return_in_order_and_blocks_are_not_copied():
    def swap(comm):
        block = np.full(3, comm.rank)
        comm.post([0], block, 1 - comm.rank)
        return block, comm.receive().buffer

    (sent0, got0), (sent1, got1) = run_threads(2, swap)
    assert got0 is sent1
    assert got1 is sent0


@pytest.mark.parametrize("wait", ["receive", "barrier", "allreduce", "progress"])
def test_a_failure_in_one_thread_ends_all(wait):
    ended = []

    def work(comm):
        comm.where = (2, 7)
        if comm.rank == 1:
            raise ArithmeticError("a bug")
        try:
            while True:
                comm.allreduce(1.0) if wait == "allreduce" else getattr(comm, wait)()
        except AbortedError as error:
            ended.append(str(error))
            raise

    before = threading.active_count()
    with pytest.raises(ArithmeticError, match="a bug") as caught:
        run_threads(3, work, timeout=60)
    assert threading.active_count() == before
    said = f"rank 1 of 3 on {ThreadCommunicator.create(1)[0].host} (epoch 2, step 7) gave up: ArithmeticError: a bug"
    assert ended == [said] * 2
    assert caught.value.__notes__ == [said]


def test_a_thread_that_gives_up_ends_all():
    def work(comm):
        comm.abort("enough") if comm.rank == 0 else comm.barrier()

    with pytest.raises(AbortedError, match=r"rank 0 of 2 .* gave up: enough"):
        run_threads(2, work, timeout=60)
    with pytest.raises(AbortedError, match=r"rank 0 of 1 .* gave up: enough"):
        run_threads(1, work)


def test_a_thread_that_never_comes_is_waited_for_no_longer_than_said():
    def work(comm):
        if comm.rank == 0:
            comm.barrier()

    with pytest.raises(DeadlineError, match=r"rank 0 of 2 on .* waited 0.2 s for rank 1"):
        run_threads(2, work, timeout=0.2)


def test_an_interrupt_ends_all_threads():
    ended = []

    def work(comm):
        if comm.rank == 0:
            signal.raise_signal(signal.SIGINT)
        try:
            comm.receive()
        finally:
            ended.append(comm.rank)

    with pytest.raises(KeyboardInterrupt):
        run_threads(3, work, timeout=60)
    assert sorted(ended) == [1, 2]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, None])
def test_a_number_of_ranks_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="size"):
        run_threads(wrong, lambda comm: None)


# --- signs of life ---------------------------------------------------------------------------------------------------


def _round(ranks, dead=(), elapsed=1.0):
    rows = [None if g.rank in dead else g.beat((g.rank, 0), elapsed) for g in ranks]
    for g in ranks:
        if g.rank not in dead:
            for source in g.hears_from:
                if rows[source] is not None:
                    g.hear(rows[source])


@pytest.mark.parametrize("size", [2, 3, 8, 100])
def test_gossip_reaches_everyone(size):
    ranks = [Gossip(rank, size, 1.0) for rank in range(size)]
    assert all(sorted(g.sends_to) == sorted(r for r in range(size) if g.rank in ranks[r].hears_from) for g in ranks)
    for _ in range(size.bit_length()):
        _round(ranks)
    assert all(g.known[:, 0].min() > 0 for g in ranks)
    assert all(g.known[:, 1].tolist() == list(range(size)) for g in ranks)
    for _ in range(30):
        _round(ranks)
        assert not any(g.silent(size.bit_length() + 1.0) for g in ranks)


@pytest.mark.parametrize(
    ("size", "dead"),
    [(11, (0,)), (11, (5, 6)), (11, range(1, 9)), (100, (99,)), (100, range(40, 56)), (100, range(1, 100, 3))],
)
def test_gossip_finds_the_dead_and_no_others(size, dead):
    """One rank, a host with several in a row, a host with every third: those that are left find them all."""
    limit = 8.0
    ranks = [Gossip(rank, size, 1.0) for rank in range(size)]
    for _ in range(10):
        _round(ranks)
    for passed in range(1, 20):
        _round(ranks, dead)
        for g in ranks:
            if g.rank not in dead:
                lost = [r for r, _ in g.silent(limit)]
                assert set(lost) <= set(dead)
                if passed > limit + size.bit_length() + 1:
                    assert lost == list(dead)


def test_gossip_does_not_take_its_own_sleep_for_the_death_of_others():
    ranks = [Gossip(rank, 2, 1.0) for rank in range(2)]
    for _ in range(5):
        _round(ranks)
    ranks[0].beat((0, 0), 1000.0)
    assert not ranks[0].silent(4.0)


def test_gossip_tells_who_is_stuck_where_nobody_works():
    ranks = [Gossip(rank, 3, 1.0) for rank in range(3)]
    # Even numbers are those of processes that do not wait; they grow where there is work.
    for work in ((2, 1, 0), (4, 1, 0), *[(5, 1, 0)] * 5):
        rows = [g.beat((0, g.rank), 1.0, a) for g, a in zip(ranks, work)]
        for g in ranks:
            for r in rows:
                g.hear(r)
    for g in ranks:
        assert g.stuck(6.0) is None
        assert [r for r, _ in g.stuck(3.0)] == [2]


def test_gossip_lets_those_go_who_say_goodbye():
    ranks = [Gossip(rank, 3, 1.0) for rank in range(3)]
    _round(ranks)
    ranks[1].leave()
    _round(ranks)
    assert ranks[0].is_last(1, ranks[1].beat((0, 0), 1.0))
    for _ in range(30):
        _round(ranks, dead=(1,))
    assert not ranks[0].silent(5.0)


# --- guards ----------------------------------------------------------------------------------------------------------

_GUARDED = """
import os, sys, time
from manyclass.distributed.guard import Guard
from manyclass.distributed.hybrid import HybridJob
guard = Guard(1, 4, "here", sys.argv[2], 1.0 if sys.argv[1] in ("stop", "beat") else None)
guard.at(3, 9)
if sys.argv[1] == "bye": guard.release()
if sys.argv[1] == "end": guard.end(0.2); time.sleep(60)
if sys.argv[1] == "kill": os.kill(os.getpid(), 9)
if sys.argv[1] == "stop":
    begun = time.monotonic()
    while time.monotonic() - begun < 2: guard.beat(); time.sleep(0.05)  # for longer than the seconds without a beat
    time.sleep(2)  # it does not beat, and is not suspended
    os.write(1, b"alive")
    os.kill(os.getpid(), 19)
if sys.argv[1] == "beat":
    os.write(1, f"b{os.getpid()}\\n".encode())
    begun = time.monotonic()
    while time.monotonic() - begun < 6: guard.beat(); time.sleep(0.05)
    guard.release()
    os.write(1, b"done\\n")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", ["bye", "end", "kill"])
def test_guards_speak_for_the_killed_and_end_the_hanging(how):
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _GUARDED, how, os.urandom(8).hex()], capture_output=True, text=True, timeout=50
    )
    assert time.monotonic() - begun < 40
    assert done.returncode == (0 if how == "bye" else -signal.SIGKILL)
    expected = "manyclass: error: rank 1 of 4 on here (epoch 3, step 9), process "
    if how == "kill":
        assert done.stderr.startswith(expected)
        assert done.stderr.count("\n") == 1
    else:
        assert done.stderr == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the state of a process as Linux tells it")
def test_a_guard_ends_its_rank_that_is_suspended_alone():
    done = subprocess.run(
        [sys.executable, "-c", _GUARDED, "stop", os.urandom(8).hex()], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == "alive"
    assert re.search(
        r"rank 1 of 4 on here \(epoch 3, step 9\), process \d+, was suspended, and then killed;", done.stderr
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the state of a process as Linux tells it")
def test_a_guard_leaves_a_job_that_is_suspended_as_a_whole():
    """As Ctrl-Z does: the parent of the rank is suspended as well."""
    run = f"subprocess.run([sys.executable, '-c', {_GUARDED!r}, 'beat', 'x'])"
    code = f"import subprocess, sys; sys.exit({run}.returncode)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout.read(1) == "b"
    rank = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGSTOP)
    os.kill(rank, signal.SIGSTOP)
    time.sleep(4)
    for pid in (rank, parent.pid):
        os.kill(pid, signal.SIGCONT)
    said, wrong = parent.communicate(timeout=50)
    assert parent.returncode == 0, wrong
    assert (said, wrong) == ("done\n", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has names that go with their process")
def test_of_all_that_are_killed_on_a_host_one_guard_speaks():
    job = os.urandom(8).hex()
    runs = [
        subprocess.Popen([sys.executable, "-c", _GUARDED, "kill", job], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [run.communicate(timeout=50)[1] for run in runs]
    assert sum(text.count("\n") for text in said) == 1


def test_a_guard_that_is_gone_is_no_failure():
    guard = Guard(0, 2, "here", os.urandom(8).hex())
    process = guard._process
    process.kill()
    process.wait(20)
    guard.at(1, 1)
    guard.release()
    guard.at(2, 2)
