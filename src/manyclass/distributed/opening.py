"""Opens the communicator that a parameter ``comm`` stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from manyclass.distributed.communicator import Communicator, SerialCommunicator

__all__ = ["opened"]


@contextmanager
def opened(comm: Communicator | str | None) -> Iterator[Communicator]:
    """Yield the communicator for a parameter ``comm``.

    None is one process. "mpi" opens one of all processes of the MPI job, and closes it at the end; an error in one
    process then ends all. A communicator is yielded as it is.
    """
    if isinstance(comm, Communicator) or comm is None:
        yield SerialCommunicator() if comm is None else comm
        return
    from manyclass.distributed.mpi import MPICommunicator

    own = MPICommunicator()
    try:
        yield own
    except GeneratorExit:  # a generator that uses it was given up, because of an error that is raised elsewhere
        raise
    except BaseException as error:
        if own.size > 1:
            own.abort(error)
        raise
    own.close()
