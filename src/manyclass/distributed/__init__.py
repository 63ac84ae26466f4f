"""Running kernels on several threads, and workers that exchange blocks: on threads, processes and machines."""

from manyclass.distributed.communicator import (
    AbortedError,
    Communicator,
    CommunicatorError,
    DeadlineError,
    Message,
    PeerLostError,
    SerialCommunicator,
    Traffic,
)
from manyclass.distributed.ranks import ThreadCommunicator, run_threads
from manyclass.runtime.threads import ranges, resolve_n_jobs, run

__all__ = [
    "AbortedError",
    "Communicator",
    "CommunicatorError",
    "DeadlineError",
    "Message",
    "PeerLostError",
    "SerialCommunicator",
    "ThreadCommunicator",
    "Traffic",
    "ranges",
    "resolve_n_jobs",
    "run",
    "run_threads",
]
