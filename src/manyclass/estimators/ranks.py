"""What the processes of a distributed fit do together: checks, statistics of classes and weights, callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from manyclass.distributed import Communicator
from manyclass.estimators.labels import distinct
from manyclass.objective.history import FitProgress
from manyclass.objective.problem import Array

__all__ = ["all_classes", "balanced_weights", "mean_beside_all", "require_alike", "together", "total_weight"]


def require_alike(comm: Communicator, X: Any) -> None:
    """Raise a ValueError, in every process, if their X differ in the number of features or the dtype."""
    if comm.size == 1:
        return
    facts = np.array([X.shape[1], X.dtype.itemsize], np.int64)
    most, least = comm.allreduce(facts, "max"), -comm.allreduce(-facts, "max")
    if (most != least).any():
        raise ValueError(
            "X must have the same number of features and the same dtype in every process, got "
            f"{X.shape[1]} features of {X.dtype} in this one and {least[0]} to {most[0]} features in all"
        )


def all_classes(comm: Communicator, y: Array) -> Array:
    """The distinct labels of all processes, sorted."""
    own = distinct(y)
    if comm.size == 1:
        return own
    # A common dtype, for strings with the largest length. Objects are converted: nothing is pickled.
    if own.dtype.kind == "O":
        own = own.astype(str)
    kinds = np.zeros(128, np.int64)
    kinds[ord(own.dtype.kind)] = own.dtype.itemsize
    sizes = comm.allreduce(kinds, "max")
    found = [chr(kind) for kind in np.flatnonzero(sizes)]
    if len(found) > 1 and not set(found) <= set("iub"):
        raise ValueError(f"y must have labels of the same type in every process, got the kinds {', '.join(found)}")
    dtype = np.dtype(f"{found[0]}{sizes.max() // (4 if found[0] == 'U' else 1)}") if len(found) == 1 else np.int64
    return _united(comm, np.ascontiguousarray(own.astype(dtype)))


def _united(comm: Communicator, own: Array) -> Array:
    """The sorted union of the arrays of all processes, each sorted and without repeats: pairwise, then sent to all.

    Memory for about two results is used, however many processes there are.
    """
    arrived: dict[int, Array] = {}
    step = 1
    while step < comm.size:
        if comm.rank % (2 * step):
            comm.post([comm.rank], own.view(np.uint8), comm.rank - step)
            break
        source = comm.rank + step
        if source < comm.size:
            while source not in arrived:
                message = comm.receive()
                arrived[int(message.header[0])] = message.buffer.view(own.dtype)
            own = np.union1d(own, arrived.pop(source))
        step *= 2
    return np.frombuffer(comm.broadcast_bytes(own.tobytes()), own.dtype).copy()


def mean_beside_all(comm: Communicator, weights: Array | None, n: int) -> float:
    """The mean of this process's sample weights after scaling the mean over all processes to 1."""
    if comm.size == 1:
        return 1.0
    total = float(n) if weights is None else float(np.sum(weights))
    whole, rows = comm.allreduce(np.array([total, float(n)])).tolist()
    return float((total / n) / (whole / rows))


def total_weight(comm: Communicator, weights: Array | None, n: int) -> float:
    """The sum of the sample weights of all processes; the number of rows if there are no weights."""
    own = float(n) if weights is None else float(np.sum(weights))
    return own if comm.size == 1 else float(comm.allreduce(np.array([own]))[0])


def balanced_weights(comm: Communicator, class_weight: Any, classes: Array, index: Array) -> Array:
    """The weight of each class for ``class_weight``, from the rows of all processes."""
    if comm.size > 1 and isinstance(class_weight, str) and class_weight == "balanced":
        counts = comm.allreduce(np.bincount(index, minlength=len(classes)))
        return np.asarray(counts.sum() / (len(counts) * counts))
    labels = classes if comm.size > 1 else classes[index]
    return np.asarray(compute_class_weight(class_weight, classes=classes, y=labels))


def together(comm: Communicator, callback: Callable[[FitProgress], Any] | None) -> Callable[[FitProgress], bool]:
    """The callback of this process, if it has one, as all processes call it together: they agree what comes next.

    If it returns True in one of them, the fit ends in all; after Ctrl-C in one, all keep the model reached so far. An
    error in one ends the others with an `AbortedError`; with MPI it ends the processes.
    """

    def called(progress: FitProgress) -> bool:
        weights = progress.weights()  # by all processes, so that one of them may ask for them
        asked = 0
        try:
            if callback is not None:
                asked = int(bool(callback(replace(progress, weights=lambda: weights))))
        except KeyboardInterrupt:
            asked = 2
        except BaseException as error:
            comm.abort(error)
            raise
        found = int(comm.allreduce(np.int64(asked), "max"))
        if found == 2:
            raise KeyboardInterrupt
        return bool(found)

    return called
