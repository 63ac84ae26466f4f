"""Jobs of the workers of Dask and Ray: how they take part, and which error of several is the cause."""

from __future__ import annotations

import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from manyclass.distributed.communicator import AbortedError, CommunicatorError, PeerLostError
from manyclass.distributed.sockets import Doorway, SocketCommunicator

__all__ = ["Crew", "Job", "Worker", "cause", "check_arguments", "finish", "new_job"]

#: Seconds in which workers report the failure of another one by themselves, and in which they end when they are told.
_REPORT, _STOP = 5.0, 20.0
#: Seconds for which a rank may wait for another one: heartbeats tell who is lost, and signs of work who is stuck.
_TIMEOUT = 24 * 3600.0


class Job:
    """A fit, as all its workers are told of it.

    Parameters
    ----------
    name : str
        Unique.
    secret : bytes
        By which its workers recognize each other.
    silence, stall : float
        See `SocketCommunicator`.
    """

    def __init__(self, name: str, secret: bytes, silence: float, stall: float) -> None:
        self.name, self.secret, self.silence, self.stall = name, secret, silence, stall

    def __repr__(self) -> str:  # without the secret: schedulers show the arguments of tasks
        return f"<Job {self.name}>"


def new_job(silence: float, stall: float) -> Job:
    """A job with a new name and secret."""
    for name, value in (("silence", silence), ("stall", stall)):
        if not value > 0:
            raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
    return Job(secrets.token_hex(8), secrets.token_bytes(32), silence, stall)


class Worker:
    """A worker of a job, from when it listens until its part of the fit is done.

    Parameters
    ----------
    job : Job
        The job.
    host : str
        Name or address at which the other workers reach this one.
    """

    def __init__(self, job: Job, host: str) -> None:
        self._job = job
        self._doorway = Doorway(host)
        self._comm: SocketCommunicator | None = None
        self._interrupted = False
        self.address = self._doorway.address

    def fit(
        self, rank: int, addresses: Sequence[tuple[str, int]], estimator: Any, parts: Sequence[Any], path: str | None
    ) -> Any:
        """Fit together with the others; the fitted estimator on rank 0, None on the others."""
        job = self._job
        options: dict[str, float] = {"timeout": _TIMEOUT, "silence": job.silence, "stall": job.stall}
        with SocketCommunicator(rank, addresses, self._doorway, job.secret, **options) as comm:
            self._comm = comm
            comm.interrupted |= self._interrupted
            return estimator._together()(comm, parts, path)

    def interrupt(self) -> None:
        """End the fit after the current iteration, with the model reached so far."""
        self._interrupted = True
        if self._comm is not None:
            self._comm.interrupted = True

    def stop(self, reason: str) -> None:
        """End the fit at the next call of its communicator, or while it waits for other workers to connect."""
        self._doorway.close()
        if self._comm is not None:
            self._comm.stop(reason)

    def close(self) -> None:
        """Release what a worker has whose fit did not begin."""
        self._doorway.close()


class Crew(ABC):
    """The ranks of a fit, as the process that has started it sees them.

    Parameters
    ----------
    names : sequence of str
        What a message calls the worker of each rank.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    @abstractmethod
    def look(self) -> tuple[list[int], list[int], list[int]]:
        """The ranks that have not ended, those that have failed, and those of both whose worker is gone."""

    @abstractmethod
    def errors(self, ranks: Sequence[int]) -> dict[int, BaseException]:
        """The errors of ranks that have failed, as far as they are known."""

    @abstractmethod
    def tell(self, ranks: Sequence[int], method: str, *arguments: Any) -> None:
        """Call a method of the `Worker` of these ranks."""

    @abstractmethod
    def cancel(self, ranks: Sequence[int]) -> None:
        """Forget these ranks, which may not have ended."""


def finish(crew: Crew) -> None:
    """Wait until all ranks are done.

    The first Ctrl-C ends the fit after the current iteration, the second one at once.

    Raises
    ------
    PeerLostError
        If the worker of a rank is gone; the message names it.
    Exception
        The error of the rank that is the cause, if ranks have failed.
    """
    interrupted, stopped, since = False, False, 0.0
    pending = left = list(range(len(crew.names)))  # an interrupt may come before the first look
    while True:
        try:
            pending, failed, lost = crew.look()
            left = sorted(set(pending) - set(lost))
            now = time.monotonic()
            if not left or (since and now > since + _REPORT + _STOP):
                break
            if not since and (failed or lost):
                since = now
            if since and now > since + _REPORT and not stopped:
                stopped = True
                crew.tell(left, "stop", "another worker was lost")
            time.sleep(0.05)
        except KeyboardInterrupt:
            if interrupted:
                crew.cancel(pending)
                raise
            interrupted = True
            crew.tell(left, "interrupt")
    errors = crew.errors(failed)
    found = cause(errors) if errors else None
    crew.cancel(pending)
    if lost:
        said = ", ".join(f"rank {rank}, {crew.names[rank]}" for rank in lost)
        raise PeerLostError(f"{said}, was lost: {found or 'killed or disconnected'}") from found
    if found is not None:
        raise found
    if failed:
        raise PeerLostError(f"ranks {failed} were cancelled, and ranks {pending} did not end")


def check_arguments(estimator: Any, path: str | os.PathLike[str] | None) -> str | None:
    """The absolute path; raises an error if the estimator cannot be fitted on several workers, or the path exists."""
    if not hasattr(estimator, "_together"):
        raise TypeError(
            f"estimator must be a LinearClassifier, got {type(estimator).__name__}: only softmax regression is fitted "
            "on rows of several workers"
        )
    estimator._together()
    if path is None:
        return None
    if os.path.exists(path):
        raise ValueError(f"path must not exist, got {os.fspath(path)}: give the model a new name")
    return os.path.abspath(path)


def cause(errors: Mapping[int, BaseException]) -> BaseException:
    """Of the errors of several ranks the one that is not a consequence of another; ranks before others."""

    def order(rank: int) -> tuple[int, int]:
        error = errors[rank]
        kinds = (AbortedError, CommunicatorError, PeerLostError)
        return next((2 - k for k, kind in enumerate(kinds) if type(error) is kind), -1), rank

    return errors[min(errors, key=order)]
