"""What every communicator must do, as functions of one; a program of several processes, too.

``mpiexec -n P python -m mpi4py THIS_FILE HOW``, or ``python THIS_FILE HOW torch`` with RANK etc. in the environment, or
``python THIS_FILE HOW FOLDER``, by sockets whose ports the processes tell each other in the folder.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from manyclass.distributed import Communicator, DeadlineError, _parts, streams
from manyclass.distributed.hybrid import HybridCommunicator
from manyclass.distributed.sockets import Doorway, SocketCommunicator

DTYPES = (np.float64, np.float32, np.int64, np.uint8)


def delivers_once_and_in_order(comm: Communicator) -> None:
    """Blocks of all types and sizes between all pairs, to oneself as well: each once, in order, to the bit."""
    rng = np.random.default_rng(comm.rank)
    count, sent = 60, np.zeros((comm.size, comm.size), np.int64)
    seen: dict[int, int] = {}

    def take() -> bool:
        message = comm.poll()
        if message is None:
            return False
        source, number, *shape = (int(n) for n in message.header)
        assert number == seen.get(source, 0)
        seen[source] = number + 1
        assert message.header.dtype == np.int64
        expected = _block(source, number, tuple(shape))
        assert message.buffer.shape == expected.shape
        assert message.buffer.dtype == expected.dtype
        assert np.array_equal(message.buffer, expected)
        return True

    for _ in range(count):
        dest = int(rng.integers(comm.size))
        shape = tuple(int(n) for n in rng.integers(0, 200, size=rng.integers(1, 3)))
        number = int(sent[comm.rank, dest])
        comm.post([comm.rank, number, *shape], _block(comm.rank, number, shape), dest)
        sent[comm.rank, dest] += 1
        take()
    due = comm.allreduce(sent)[:, comm.rank]
    deadline = time.monotonic() + 60
    while sum(seen.values()) < due.sum():
        take()
        assert time.monotonic() < deadline
    comm.barrier()
    assert comm.poll() is None
    comm.barrier()
    assert [seen.get(source, 0) for source in range(comm.size)] == due.tolist()


def _block(source: int, number: int, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng([source, number])
    return (200 * rng.random(shape)).astype(DTYPES[(source + number) % len(DTYPES)])


def never_blocks(comm: Communicator) -> None:
    """All post blocks too large for any buffer of the transport before anyone looks for one; looking finds or not."""
    assert comm.poll() is None
    comm.barrier()
    for dest in range(comm.size):
        comm.post([dest], np.full(1 << 19, comm.rank, np.float64), dest)
    came = [comm.receive() for _ in range(comm.size)]
    assert sorted(int(block[0]) for _, block in came) == list(range(comm.size))
    assert all((block == block[0]).all() and header.tolist() == [comm.rank] for header, block in came)
    comm.barrier()
    assert comm.poll() is None
    comm.barrier()


def passes_blocks_round_the_ring(comm: Communicator) -> None:
    """Every block of a table visits every rank; a hop costs a block and no more."""
    d, k, laps = 50, 12, 3
    before = comm.traffic.messages, comm.traffic.bytes
    comm.traffic.largest = 0
    block = np.zeros((d, k))
    header = np.array([comm.rank, 0])
    for _ in range(laps * comm.size):
        block += comm.rank + 1
        header[1] += 1
        comm.post(header, block, (comm.rank + 1) % comm.size)
        del block  # it belongs to another rank now
        header, block = comm.receive()
    comm.flush()
    assert header.tolist() == [comm.rank, laps * comm.size]
    assert (block == laps * comm.size * (comm.size + 1) / 2).all()
    hops = laps * comm.size if comm.size > 1 else 0
    assert comm.traffic.messages - before[0] == hops
    assert comm.traffic.bytes - before[1] == hops * (8 * d * k + 8 * 2)
    assert comm.traffic.largest == (8 * d * k + 8 * 2 if hops else 0)


def reduces_to_the_same_bits(comm: Communicator) -> None:
    """Sums as of one rank after the other, and maxima; small, large, empty, of all types; what is put in stays.

    Threads of several processes are added up within each process first.
    """
    nested = isinstance(comm, HybridCommunicator)
    for n, dtype in ((1, np.float64), (0, np.float64), (1001, np.float64), (5000, np.float32), (70_000, np.float64)):
        parts = [
            (np.random.default_rng([r, n]).normal(size=n) * 10.0 ** (r % 5)).astype(dtype) for r in range(comm.size)
        ]
        mine = parts[comm.rank].copy()
        total, largest = parts[0].copy(), parts[0].copy()
        for part in parts[1:]:
            total += part
            np.maximum(largest, part, out=largest)
        found = comm.allreduce(mine)
        assert found.dtype == dtype
        if nested:
            np.testing.assert_allclose(
                found, total, rtol=1e-5 if dtype is np.float32 else 1e-11, atol=1e-6 * np.abs(total).max(initial=1)
            )
            assert comm.broadcast(found).tobytes() == found.tobytes()
        else:
            assert found.tobytes() == total.tobytes()
        found[:] = 0  # this rank's own: the others do not see it
        assert comm.allreduce(mine, "max").tobytes() == largest.tobytes()
        assert mine.tobytes() == parts[comm.rank].tobytes()
    assert comm.allreduce(np.full((2, 3), comm.rank)).tolist() == [[sum(range(comm.size))] * 3] * 2
    scalar = comm.allreduce(1.5)
    assert scalar.shape == ()
    assert float(scalar) == 1.5 * comm.size
    assert np.isnan(comm.allreduce(np.float64(np.nan if comm.rank == comm.size - 1 else 1), "max"))


def broadcasts_and_gathers(comm: Communicator) -> None:
    """From and to any rank; parts may differ in length."""
    for root in range(comm.size):
        given = np.arange(6, dtype=np.float32).reshape(2, 3) + comm.rank
        found = comm.broadcast(given, root)
        assert np.array_equal(found, np.arange(6).reshape(2, 3) + root)
        found[:] = -1  # this rank's own
        assert given[0, 0] == comm.rank
        mine = np.full((comm.rank, 2), comm.rank, np.int64)
        parts = comm.gather(mine, root)
        mine[:] = -1  # of no consequence to the root
        if comm.rank != root:
            assert parts is None
            continue
        assert parts is not None
        assert [part.shape for part in parts] == [(r, 2) for r in range(comm.size)]
        assert all((part == r).all() for r, part in enumerate(parts))
    comm.barrier()


def meets_at_the_barrier(comm: Communicator) -> None:
    """Nobody leaves before the last has come."""
    for late in range(comm.size):
        if comm.rank == late:
            time.sleep(0.03)
        came = time.monotonic()
        comm.barrier()
        left = time.monotonic()
        assert float(-comm.allreduce(-left, "max")) >= float(comm.allreduce(came, "max"))


def keeps_to_deadlines(comm: Communicator) -> None:
    """What does not come is an error that says who waited, where, for how long and for what."""
    comm.where, timeout = (3, 17), comm.timeout
    comm.timeout = 0.2
    begun = time.monotonic()
    try:
        comm.receive()
    except DeadlineError as error:
        said = str(error)
    assert 0.1 < time.monotonic() - begun < 20
    assert said.startswith(
        f"rank {comm.rank} of {comm.size} on {comm.host} (epoch 3, step 17) waited 0.2 s for a block"
    )
    comm.where, comm.timeout = (0, 0), timeout
    comm.barrier()


def refuses_what_it_cannot_send(comm: Communicator) -> None:
    """Before anything has left."""
    whole = np.zeros((4, 4))
    before = comm.traffic.messages
    for header, buffer, dest, word in (
        ([1], whole[:, :2], 0, "C-contiguous"),
        ([1], whole.astype(object), 0, "object"),
        ([1], [1.0], 0, "list"),
        ([[1]], whole, 0, "header"),
        ([1], whole, comm.size, "dest"),
        ([1], whole, -1, "dest"),
    ):
        try:
            comm.post(header, buffer, dest)  # type: ignore[arg-type]
        except ValueError as error:
            assert word in str(error)  # noqa: PT017
        else:
            raise AssertionError(word)
    try:
        comm.allreduce(1.0, "product")  # type: ignore[arg-type]
    except ValueError as error:
        assert "'product'" in str(error)  # noqa: PT017
    else:
        raise AssertionError("product")
    assert comm.traffic.messages == before
    comm.barrier()


def accounts_for_what_it_receives(comm: Communicator) -> None:
    """What all ranks have posted to others is what all have received from others, here as in all checks before."""
    mine = comm.traffic
    sent = comm.allreduce(np.array([mine.messages, mine.bytes]))
    assert sent.tolist() == comm.allreduce(np.array([mine.received, mine.bytes_received])).tolist()


def ends_together(comm: Communicator) -> None:
    """An interrupt of one rank is heeded by all, at the same place, once."""
    comm.heed()
    comm.interrupted = comm.rank == comm.size - 1
    try:
        comm.heed()
    except KeyboardInterrupt:
        heeded = True
    assert heeded
    comm.heed()


PROPERTIES = {
    check.__name__: check
    for check in (
        delivers_once_and_in_order,
        never_blocks,
        passes_blocks_round_the_ring,
        reduces_to_the_same_bits,
        broadcasts_and_gathers,
        meets_at_the_barrier,
        keeps_to_deadlines,
        refuses_what_it_cannot_send,
        ends_together,
        accounts_for_what_it_receives,
    )
}


def _fault(comm: Communicator, how: str) -> None:
    """One rank, the last, gives up; the others are in a wait, or at work."""
    comm.where = (5, comm.rank)
    comm.barrier()
    if comm.rank == comm.size - 1:
        if how == "abort":
            comm.abort("no more room")
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "stuck":
            threading.Event().wait(60)
        if how == "busy":  # for longer than `stall`
            begun = time.monotonic()
            while time.monotonic() - begun < 4:
                sum(range(10000))
            return comm.barrier()
        raise ArithmeticError("a\nbug")
    if how == "busy":
        return comm.barrier()
    comm.receive()


def _communicator(engine: str, stall: float | None) -> Communicator:
    if engine == "torch":
        from manyclass.distributed.torch import TorchCommunicator

        return TorchCommunicator(timeout=60.0, stall=stall)
    if engine == "mpi":
        from manyclass.distributed.mpi import MPICommunicator

        return MPICommunicator(timeout=60.0, stall=stall)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    doorway = Doorway("127.0.0.1")
    files = [Path(engine) / str(r) for r in range(size)]
    files[rank].with_suffix(".tmp").write_text(str(doorway.address[1]))
    files[rank].with_suffix(".tmp").rename(files[rank])
    while not all(file.exists() for file in files):
        time.sleep(0.02)
    addresses = [("127.0.0.1", int(file.read_text())) for file in files]
    return SocketCommunicator(rank, addresses, doorway, b"s" * 32, timeout=60.0, silence=2.0, stall=stall)


def main(how: str, engine: str = "mpi") -> None:
    """All properties, or a fault."""
    if how == "parts":  # arrays in several messages
        _parts.LIMIT = 1001
        streams._PIECE = 50_000
    with _communicator(engine, 1.5 if how in ("stuck", "busy") else None) as comm:
        if how not in ("properties", "parts"):
            _fault(comm, how)
            return
        for name, check in PROPERTIES.items():
            check(comm)
            sys.stdout.write(f"{comm.rank} {name}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
