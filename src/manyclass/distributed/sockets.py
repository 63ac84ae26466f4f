"""Communication between processes by TCP, without a library: between the workers of Dask or Ray, which serve others.

Each worker listens (`Doorway`); whoever starts the job passes all addresses and a secret to all workers, which then
connect to each other. A failure ends the job, not the process.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from manyclass.distributed.communicator import CommunicatorError
from manyclass.distributed.streams import Link, StreamCommunicator

__all__ = ["Doorway", "SocketCommunicator"]

_SECRET = 32  # bytes
_SMALL = 1 << 16  # bytes of a frame that are sent by one call
_GREETING = 5.0  # seconds in which a connection must show its secret


class Doorway:
    """A socket of this process to which the other processes of a job connect.

    Parameters
    ----------
    host : str
        Name or address of this host, at which the others reach it.

    Attributes
    ----------
    address : tuple of str and int
        Host and port.
    """

    def __init__(self, host: str) -> None:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        self.socket = socket.create_server((host, 0), family=family, backlog=1024)
        self.address: tuple[str, int] = host, self.socket.getsockname()[1]
        self._closed = False

    def accept(self, deadline: float) -> socket.socket:
        """The next connection.

        Raises
        ------
        OSError
            If none comes until the deadline (of `time.monotonic`), or the doorway is closed, by any thread.
        """
        while not self._closed:
            left = deadline - time.monotonic()
            try:
                self.socket.settimeout(min(0.2, max(0.01, left)))
                return self.socket.accept()[0]
            except OSError:  # also TimeoutError
                if left <= 0 and not self._closed:
                    raise
        raise OSError("the job was ended")

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        self.socket.close()


class _SocketLink(Link):
    """A connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected

    def send(self, parts: list[NDArray[np.uint8]]) -> None:
        if sum(part.size for part in parts) <= _SMALL:
            self._socket.sendall(b"".join(part.tobytes() for part in parts))
            return
        for part in parts:
            self._socket.sendall(part.data)

    def receive(self, into: NDArray[np.uint8]) -> None:
        view = into.data
        while len(view):
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]

    def shut(self) -> None:
        """End the connection, also for a thread that waits in a call."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other rank has ended it
            pass
        self._socket.close()


class SocketCommunicator(StreamCommunicator):
    """The communicator of one worker among several that are connected by TCP.

    After a failure all workers raise an error, and `abort` raises; no process is ended.

    Parameters
    ----------
    rank : int
        This rank.
    addresses : sequence of tuple of str and int
        Host and port of the `Doorway` of each rank.
    doorway : Doorway
        That of this rank, open; it is closed when all ranks are connected, or cannot be.
    secret : bytes
        32 bytes that only the workers of this job know.
    timeout : float, default=600.0
        Maximum duration of a wait for another rank in seconds, > 0.
    silence : float, default=8.0
        Seconds without a heartbeat after which a rank counts as lost, > 0.
    stall : float, optional
        Seconds after which a wait ends if no process has worked in them; > 0.
    connect : float, default=60.0
        Maximum duration until all ranks are connected in seconds, > 0.

    Raises
    ------
    CommunicatorError
        If the ranks cannot be connected; the message names those that are missing.
    """

    exits = False

    def __init__(
        self,
        rank: int,
        addresses: Sequence[tuple[str, int]],
        doorway: Doorway,
        secret: bytes,
        *,
        timeout: float = 600.0,
        silence: float = 8.0,
        stall: float | None = None,
        connect: float = 60.0,
    ) -> None:
        super().__init__(rank, len(addresses), timeout, silence, stall)
        found: dict[int, socket.socket] = {}
        try:
            self._meet(addresses, doorway, secret, time.monotonic() + connect, found)
        except BaseException as error:
            for connected in found.values():
                connected.close()
            if not isinstance(error, OSError):
                raise
            missing = sorted(set(range(self.size)) - found.keys() - {rank})
            where = ", ".join(f"rank {r} at {addresses[r][0]}:{addresses[r][1]}" for r in missing)
            raise CommunicatorError(
                f"rank {rank} of {self.size} on {self.host} was not connected with {where} in at most {connect:g} s "
                f"({error}): check that these workers run, and that a firewall lets them connect to each other"
            ) from error
        finally:
            doorway.close()
        try:
            self._connect({r: _SocketLink(found[r]) for r in sorted(found)}, guard=False)
        except BaseException as error:
            self.abort(error)
            raise

    def _meet(
        self,
        addresses: Sequence[tuple[str, int]],
        doorway: Doorway,
        secret: bytes,
        deadline: float,
        found: dict[int, socket.socket],
    ) -> None:
        """Connect to the lower ranks, whose sockets listen already, and wait for the higher ones."""
        for r in range(self.rank):
            connected = socket.create_connection(addresses[r], timeout=max(0.01, deadline - time.monotonic()))
            found[r] = connected
            connected.sendall(secret + self.rank.to_bytes(4, "big"))
        while len(found) < self.size - 1:
            connected = doorway.accept(deadline)
            connected.settimeout(_GREETING)
            said = _exactly(connected, _SECRET + 4)
            caller = int.from_bytes(said[_SECRET:], "big")
            if hmac.compare_digest(said[:_SECRET], secret) and self.rank < caller < self.size and caller not in found:
                found[caller] = connected
            else:  # not a worker of this job
                connected.close()


def _exactly(connected: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if they do not come."""
    said = b""
    try:
        while len(said) < size and (more := connected.recv(size - len(said))):
            said += more
    except OSError:
        pass
    return said
