"""What to say while a fit of raw pixels takes its time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from manyclass.kernels.rows import DenseRows
from manyclass.objective.problem import Problem

__all__ = ["advised", "are_raw_pixels"]

logger = logging.getLogger(__name__)

#: Seconds after which it is said, and the values that rows must have for a fit to take as long; as many are looked at.
_PATIENCE, _VALUES = 10.0, 1 << 20
#: The largest value of a byte, and the smallest that some pixel has: counts and grades are less.
_WHITE, _BRIGHT = 255, 128


def are_raw_pixels(problem: Problem) -> bool:
    """Whether the rows are dense and have the integers of bytes, as images have; told from some of them."""
    if not isinstance(problem.rows, DenseRows) or problem.standard is not None or problem.rows.x.size < _VALUES:
        return False
    X = problem.rows.x
    some = X[:: X.size // _VALUES]
    return bool(some.min() >= 0 and _BRIGHT <= some.max() <= _WHITE and np.array_equal(some, np.rint(some)))


@contextmanager
def advised(problem: Problem) -> Iterator[None]:
    """While the problem is being solved: after 10 s say, once, that raw pixels should be scaled.

    Softmax regression on 20 000 images of MNIST, alpha = 1/n, one busy core: not converged after 254 s and 500
    iterations with the pixels as they are, certified after 59 s and 91 iterations with pixels / 255.
    """
    if not are_raw_pixels(problem):
        yield
        return
    timer = threading.Timer(_PATIENCE, _say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say() -> None:
    logger.warning(
        "X has integers from 0 to 255, as raw pixels have: a fit of X / 255, or with standardized columns, takes less "
        "time (the same alpha is a stronger penalty then)"
    )
