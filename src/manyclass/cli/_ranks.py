"""One command run by several processes: ``mpiexec -n 4 python -m mpi4py -m manyclass fit ...``."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, in_options, sentence

if TYPE_CHECKING:
    from manyclass.distributed import Communicator
    from manyclass.io import Dataset

__all__ = ["add_arguments", "launched", "opened", "prepare", "shard", "together"]

#: Rank and size as launchers of MPI tell them: MPICH and Intel MPI, Open MPI, Slurm.
_TOLD = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def launched() -> tuple[int, int]:
    """Rank of this process, and number of processes that a launcher of MPI has started; (0, 1) if none has."""
    for told in _TOLD:
        rank, size = (os.environ.get(name, "") for name in told)
        if rank.isdecimal() and size.isdecimal():
            return int(rank), max(1, int(size))
    return 0, 1


def prepare(size: int) -> None:
    """One thread of linear algebra for each process, unless the user has said otherwise; before NumPy is imported."""
    if size > 1:
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The option of several processes."""
    group = parser.add_argument_group("several processes (mpiexec; --solver ds_mlr, log_concavity, out_of_core)")
    group.add_argument(
        "--silence",
        type=_seconds,
        metavar="S",
        default=8.0,
        help="seconds without a sign of life after which a process is taken for lost (default: 8)",
    )


def _seconds(text: str) -> float:
    if not float(text) > 0:
        raise ValueError
    return float(text)


_seconds.__name__ = "positive number"  # as argparse names it in an error


def together(
    args: argparse.Namespace, screen: Screen, command: Callable[[argparse.Namespace, Screen, Communicator], int]
) -> int:
    """Run the command on every process, with a communicator; whatever fails on one ends all."""
    from manyclass.distributed import CommunicatorError
    from manyclass.distributed.mpi import MPICommunicator

    try:
        # Signs of life tell who is lost; one process may well read or judge for long while the others wait.
        comm = MPICommunicator(timeout=24 * 3600.0, silence=args.silence)
    except ImportError as error:
        if launched()[0] == 0:
            screen.fail(str(error))  # as it is: it has lines to copy
        return 2
    screen.quiet = screen.quiet or comm.rank > 0

    def interrupt(*_: object) -> None:
        # They stop together, or none could go on.
        if comm.interrupted:
            comm.abort("interrupted")
        comm.interrupted = True
        screen.say("stopping after this epoch; Ctrl-C again ends at once")

    signal.signal(signal.SIGINT, interrupt)
    try:
        code = command(args, screen, comm)
        comm.close()
        return code
    except KeyboardInterrupt:
        comm.abort("interrupted: nothing was kept")
    except CommunicatorError as error:
        comm.abort(error)
    except (ValueError, OSError, MemoryError) as error:
        comm.abort(error if args.debug else in_options(sentence(error), args))
    except BaseException as error:
        comm.abort(error)


def opened(args: argparse.Namespace, screen: Screen) -> Dataset | None:
    """A row store of classes as a data set whose rows are not read yet; None if it is something else."""
    from manyclass.cli._folders import describe_store, is_store
    from manyclass.io.store import RowStore

    plain = args.task in ("auto", "classification") and not args.labels and args.format in (None, "store")
    if not plain or not is_store(args.data):
        return None
    store = RowStore(args.data)
    if store.kind != "classes":
        return None
    store.fit_width(args.n_features)
    screen.say(f"opened {args.data}: {describe_store(store)}; a process reads its own rows")
    return store.dataset(mapped=True)


def shard(data: Dataset, args: argparse.Namespace, estimator: Any, comm: Communicator) -> Dataset:
    """The rows of this process: those of its shards, so that the result does not depend on the number of processes."""
    import numpy as np

    from manyclass.solvers.ds_mlr.grid import make_grid

    solver = estimator.solver
    workers = int(solver.n_workers)
    grid = make_grid(
        data.n_samples,
        len(np.unique(data.y)),
        comm.size * workers,
        block_classes=solver.block_classes,
        n_shards=solver.n_shards,
    )
    begin = grid.rows_of(comm.rank * workers)[0]
    end = grid.rows_of((comm.rank + 1) * workers - 1)[1]
    if begin == end:
        raise CommandError(f"{args.data} has {data.n_samples} rows, too few for {comm.size} processes: start fewer")
    return replace(data, X=data.X[begin:end], y=data.y[begin:end])
