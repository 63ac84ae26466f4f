"""Communication between the workers (ranks) of one job: threads of a process, or processes on one or more machines."""

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
from manyclass.distributed.opening import opened
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
    "opened",
    "ranges",
    "resolve_n_jobs",
    "run",
    "run_threads",
]
