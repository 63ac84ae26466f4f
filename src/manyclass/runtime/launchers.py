"""What launchers of several processes tell in the environment; imported before NumPy."""

from __future__ import annotations

import os

__all__ = ["MPI", "TORCH", "UNSIZED", "VARIABLES", "described", "launched", "told", "unsized"]

#: Rank and size as launchers tell them: MPICH and Intel MPI, Open MPI, MVAPICH, Slurm, torchrun.
VARIABLES = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("RANK", "WORLD_SIZE"),
)
#: Ranks as launchers of MPI tell them.
MPI = frozenset({"PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"})
#: What describes a process group of `torch.distributed`.
TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: Ranks that launchers tell without a size.
UNSIZED = ("PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "JSM_NAMESPACE_RANK", "FLUX_TASK_RANK")


def told() -> dict[str, tuple[int, int]]:
    """Rank and number of processes by the variable that tells the rank, in the order of `VARIABLES`.

    The processes of torchrun inherit what srun or mpiexec has told torchrun itself, one process on each host.
    """
    found = {}
    for names in VARIABLES[-1:] if os.environ.get("TORCHELASTIC_RUN_ID") else VARIABLES:
        rank, size = (os.environ.get(name, "") for name in names)
        if rank.isdecimal() and size.isdecimal():
            found[names[0]] = int(rank), max(1, int(size))
    return found


def described() -> bool:
    """Whether the environment describes a process group of `torch.distributed`."""
    return all(os.environ.get(name) for name in TORCH)


def launched() -> tuple[int, int]:
    """Rank of this process, and number of processes that a launcher has started; (0, 1) if none has."""
    return next(iter(told().values()), (0, 1))


def unsized() -> tuple[str, int] | None:
    """The variable and the rank, > 0, of a process whose launcher does not tell the number of processes."""
    for name in UNSIZED:
        rank = os.environ.get(name, "")
        if rank.isdecimal() and int(rank) > 0:
            return name, int(rank)
    return None
