"""One command run by several processes: ``mpiexec -n 4 python -m mpi4py -m manyclass fit ...``, or by torchrun."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, sentence
from manyclass.runtime.launchers import launched, unsized

if TYPE_CHECKING:
    from manyclass.distributed import Communicator
    from manyclass.io import Dataset
    from manyclass.io.survey import Survey
    from manyclass.models.base import Model

__all__ = ["add_arguments", "job_size", "judged", "launched", "prepare", "refuse_size", "refuse_unknown", "together"]


#: Options that processes need not have in common: paths, which hosts may have in other places, threads, and messages.
_OWN = {
    *("data", "output", "valid", "labels", "valid_labels", "prior", "checkpoint", "history", "plot"),
    *("n_jobs", "comm", "silence", "stall", "quiet", "debug", "run", "parser"),
}


def refuse_unknown() -> None:
    """Refuse to run as one of several processes whose launcher does not tell their number: each would fit alone."""
    if launched()[1] > 1:
        return
    lone = unsized()
    if lone is not None:
        raise CommandError(
            f"this is process {lone[1]} of several ({lone[0]}), and their number is not known: start them with the "
            "mpiexec of the MPI that mpi4py uses or with torchrun, or start one process"
        )


def prepare(size: int) -> None:
    """One thread of linear algebra for each process, unless the user has said otherwise; before NumPy is imported."""
    if size > 1:
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The option of several processes."""
    group = parser.add_argument_group(
        "several processes (mpiexec, torchrun; --solver ds_mlr, sdca_dp, log_concavity, out_of_core)"
    )
    group.add_argument(
        "--comm",
        choices=("auto", "mpi", "torch"),
        default="auto",
        help="how the processes that a launcher has started communicate (default: as the launcher tells)",
    )
    group.add_argument(
        "--silence",
        type=_seconds,
        metavar="S",
        default=8.0,
        help="seconds without a sign of life after which a process is taken for lost (default: 8)",
    )
    group.add_argument(
        "--stall",
        type=_seconds,
        metavar="S",
        default=20.0,
        help="seconds without work in any process after which a process that others wait for is stuck (default: 20)",
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
    from manyclass.distributed.agreement import require_same
    from manyclass.distributed.opening import create

    try:
        # Heartbeats tell who is lost, and signs of work who is stuck: one process may read or judge for long.
        comm = create(args.comm, timeout=24 * 3600.0, silence=args.silence, stall=args.stall)
    except (ImportError, CommunicatorError) as error:
        if launched()[0] == 0:
            screen.fail(str(error).replace("comm=", "--comm ", 1))  # as it is: it may have lines to copy
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
        require_same(comm, {name: value for name, value in sorted(vars(args).items()) if name not in _OWN})
        code = command(args, screen, comm)
        comm.close()
        return code
    except KeyboardInterrupt:
        comm.abort("interrupted: nothing was kept")
    except CommunicatorError as error:
        comm.abort(error)
    except (ValueError, OSError, MemoryError) as error:
        comm.abort(error if args.debug else sentence(error, args))
    except BaseException as error:
        comm.abort(error)
    return 2  # not reached by several processes: `abort` has ended this one


def refuse_size(args: argparse.Namespace, estimator: Any, comm: Communicator, screen: Screen) -> None:
    """Refuse, before it is read, a file whose rows and model do not fit into the memory of the processes.

    What each of them needs is said where the file tells the number of its classes.
    """
    import numpy as np

    from manyclass.io.survey import survey
    from manyclass.runtime.memory import human
    from manyclass.solvers.on_communicator import on_communicator

    solver: Any = on_communicator(estimator.solver, (), comm)
    found = survey(args.data, args.format) if hasattr(solver, "refuse_size") else None
    if found is None:  # the fit itself refuses, when the rows are read
        return
    size = job_size(found, args.n_features, np.dtype(estimator.dtype or np.float32).itemsize, comm.size)
    try:
        solver.refuse_size(*size)
        if found.classes:
            total = sum(solver.process_nbytes(comm.size, *size).values())
            screen.say(f"each of {comm.size} processes needs at most {human(total)} besides Python and kept scores")
    except MemoryError as error:
        about = "about " if found.estimated else ""
        raise MemoryError(f"{args.data} has {about}{found.rows} rows and was not read: {error}") from error


def job_size(found: Survey, n_features: int | None, itemsize: int, processes: int) -> tuple[int, int, int, int, int]:
    """Rows, features, classes, bytes of all rows and bytes of a weight, as `DSMLR.refuse_size` takes them."""
    # Readers hold the targets, row pointers and norms beside the values.
    row_bytes = found.values * found.itemsize + 16 * found.rows
    width = max(1, n_features or found.features)
    return max(found.rows, processes), width, max(2, found.classes), row_bytes, itemsize


def judged(model: Model, data: Dataset, comm: Communicator, n_jobs: int | None) -> dict[str, Any]:
    """Accuracy and F1 on the rows of all processes, each of which predicts its own; by counts for each class."""
    import numpy as np

    classes = np.asarray(model.classes)
    K = len(classes)
    truth = np.searchsorted(classes, data.y)
    found = np.searchsorted(classes, model.predict(data.X, n_jobs))
    counts = [np.bincount(part, minlength=K) for part in (truth[truth == found], truth, found)]
    hits, there, said = comm.allreduce(np.array(counts, np.int64))
    known = there + said > 0
    return {
        "n_samples": int(there.sum()),
        "accuracy": float(hits.sum() / there.sum()),
        "f1_macro": float(np.mean(2.0 * hits[known] / (there + said)[known])),
        "unseen_labels": 0,
    }
