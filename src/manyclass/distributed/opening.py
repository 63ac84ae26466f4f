"""Opens the communicator that a parameter ``comm`` stands for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from manyclass.distributed.communicator import Communicator, CommunicatorError, SerialCommunicator
from manyclass.runtime.launchers import MPI, TORCH, described, told, unsized

__all__ = ["ENGINES", "create", "opened"]


def _mpi(**options: Any) -> Communicator:
    """All processes that MPI connects."""
    from manyclass.distributed.mpi import MPICommunicator

    return _checked("mpi", MPICommunicator(**options))


def _torch(**options: Any) -> Communicator:
    """All processes of the group of `torch.distributed` that is initialized or described in the environment."""
    from manyclass.distributed.torch import TorchCommunicator

    return _checked("torch", TorchCommunicator(**options))


def _auto(**options: Any) -> Communicator:
    """All processes of the job by what its launcher tells; an error where each process might fit alone."""
    if _initialized():
        return _torch(**options)
    several = _several()
    if not several:
        lone = unsized()
        if lone is not None:
            raise CommunicatorError(
                f"comm='auto': this is process {lone[1]} of several ({lone[0]}), and their number is not known: give "
                "comm='mpi' or 'torch', or start one process"
            )
        return SerialCommunicator()
    if several.keys() & MPI:
        several.pop("SLURM_PROCID", None)  # of the srun by which mpiexec starts its helpers, one on each host
    if len(set(several.values())) > 1:
        said = ", ".join(f"{name}: process {rank} of {size}" for name, (rank, size) in several.items())
        raise CommunicatorError(
            f"comm='auto': the launchers contradict each other ({said}): give comm='mpi', 'torch' or None"
        )
    name = "torch" if described() and not several.keys() & MPI else "mpi"
    return _checked(name, ENGINES[name](**options), *several.items())


#: What a string ``comm`` opens.
ENGINES: dict[str, Callable[..., Communicator]] = {"auto": _auto, "mpi": _mpi, "torch": _torch}


def _several() -> dict[str, tuple[int, int]]:
    """What launchers tell of more than one process."""
    return {name: found for name, found in told().items() if found[1] > 1}


def _initialized() -> bool:
    """Whether the program has initialized a process group of `torch.distributed`."""
    dist = sys.modules.get("torch.distributed")
    return dist is not None and bool(dist.is_available() and dist.is_initialized())


def _checked(name: str, comm: Communicator, *expected: tuple[str, tuple[int, int]]) -> Communicator:
    """The communicator, if it has the rank and size that a launcher tells; else each process might fit alone.

    With nothing ``expected``, an error is only a communicator of one process where a launcher tells more.
    """
    if not expected and comm.size == 1 and not _initialized():
        expected = tuple(_several().items())
    for variable, (rank, size) in expected:
        if (comm.rank, comm.size) != (rank, size):
            found = f"rank {comm.rank} of {comm.size}"
            comm.close()
            raise CommunicatorError(
                f"comm={name!r}: {variable} tells process {rank} of {size}, but {_NAMES[name]} connects this one as "
                f"{found}: {_HOW[name]}, or start one process"
            )
    return comm


_NAMES = {"mpi": "MPI", "torch": "torch.distributed"}
_HOW = {
    "mpi": "start the processes with the mpiexec of the MPI that mpi4py uses (python -m mpi4py --mpi-lib-version); for "
    f"comm='torch', {', '.join(TORCH)} must be set, as torchrun does",
    "torch": f"set {', '.join(TORCH)} for each process, as torchrun does",
}


def create(name: str, **options: Any) -> Communicator:
    """A new communicator by its name in `ENGINES`, which the caller must close.

    Parameters
    ----------
    name : str
        "mpi", "torch" or "auto".
    **options : dict
        ``timeout``, ``silence``, ``stall`` and ``guard`` of the communicator.

    Returns
    -------
    Communicator
        Of all processes of the job.

    Raises
    ------
    ValueError
        If the name is unknown.
    CommunicatorError
        If the launcher has started processes that are not connected: each of them would fit alone. With "auto", also
        if launchers contradict each other.
    """
    if name not in ENGINES:
        raise ValueError(f"comm must be a Communicator, None or one of {sorted(ENGINES)}, got {name!r}")
    return ENGINES[name](**options)


@contextmanager
def opened(comm: Communicator | str | None) -> Iterator[Communicator]:
    """Yield the communicator for a parameter ``comm``.

    None is one process. "mpi" opens one of all processes of the MPI job, "torch" one of a process group of
    `torch.distributed`, "auto" one of all processes that a launcher has started, or of this one; it is closed at the
    end, and an error in one process ends all. A communicator is yielded as it is.
    """
    if isinstance(comm, Communicator) or comm is None:
        yield SerialCommunicator() if comm is None else comm
        return
    own = create(comm)
    try:
        yield own
    except GeneratorExit:  # a generator that uses it was given up, because of an error that is raised elsewhere
        raise
    except BaseException as error:
        if own.size > 1:
            own.abort(error)
        raise
    own.close()
