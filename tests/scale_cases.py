"""Badly scaled features, for test_scale.py and for processes of MPI.

``mpiexec -n 2 python -m mpi4py tests/scale_cases.py`` fits all of them on two processes and
prints for each process and case the score and what was said. The last one, an error of one process, ends the job.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

from manyclass import DSMLR, LinearClassifier, LogConcavity

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 5))
REAL = ROWS @ RNG.normal(size=5)
CLASSES = np.argmax(ROWS @ RNG.normal(size=(5, 3)), axis=1)


def grown(where, factor):
    rows = ROWS.copy()
    rows[where] *= factor
    return rows


BAD = {f"all x {factor:g}": ROWS * factor for factor in (1e-300, 1e-160, 1e-30, 1e30, 1e150, 1e155, 1e200, 1e300)}
BAD |= {f"row x {factor:g}": grown(0, factor) for factor in (1e20, 1e200)}
BAD |= {f"column x {factor:g}": grown((slice(None), 0), factor) for factor in (1e20, 1e200)}
BAD["denormal"] = np.full_like(ROWS, 5e-324)

DISTRIBUTED: dict[str, Any] = {
    "ds_mlr": DSMLR,
    "ds_mlr, two workers": lambda comm: DSMLR(comm=comm, n_workers=2),
    "ds_mlr, queue": lambda comm: DSMLR(comm=comm, schedule="queue"),
    "log_concavity": LogConcavity,
}


def attempt(score, *args):
    """The score that a function returns, -1 after an error; the texts of errors and warnings; the warnings of NumPy."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found, said = -1.0, []
        try:
            found = float(score(*args))
        except ValueError as error:
            said = [str(error)]
    said += [str(one.message) for one in caught]
    return found, said, [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]


def require_overcome_or_named(found, said, of_numpy):
    """A good score, or an error or a warning with the cause; no warning of NumPy."""
    assert found > 0.8 or any("scale the features" in text for text in said), (found, said)
    assert not of_numpy, said


def half_score(comm, rows, solver, weights=None, **options):
    """The score on all rows after a fit on two processes, each with its half of the rows if the solver divides them."""
    half = slice(None) if solver == "log_concavity" else slice(30 * comm.rank, 30 * comm.rank + 30)
    model = LinearClassifier(solver=DISTRIBUTED[solver](comm=comm), random_state=0, **options)
    model.fit(rows[half], CLASSES[half], sample_weight=None if weights is None else weights[half])
    return model.score(rows, CLASSES)


#: Cases for processes of MPI: where the rows of one process are an error, that ends all of them.
MPI = {name: (rows, None) for name, rows in BAD.items() if name != "row x 1e+200"}
MPI["nothing"] = ROWS, None
MPI["constant columns"] = np.column_stack([ROWS, np.full((60, 2), 3.0)]), None
MPI["weights over 20 orders of magnitude"] = ROWS, np.where(np.arange(60) % 3, 1.0, 10.0 ** -np.arange(60) / 3)


def main() -> None:
    from manyclass.distributed.mpi import MPICommunicator

    with MPICommunicator(timeout=60.0) as comm:
        for solver in DISTRIBUTED:
            for case, (rows, weights) in MPI.items():
                found = attempt(lambda *args: half_score(comm, *args, max_iter=20), rows, solver, weights)
                sys.stdout.write(json.dumps([comm.rank, solver, case, *found]) + "\n")
                sys.stdout.flush()  # a line as a whole: the processes share the output
        half_score(comm, BAD["row x 1e+200"], "ds_mlr")


if __name__ == "__main__":
    main()
