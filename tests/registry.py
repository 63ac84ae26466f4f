"""The registries that the property tests run over, made from what the package declares.

A loss that is declared needs its formula here; until it has one, the tests cannot be collected. A solver needs nothing:
it is tested on the problem that `problem_for` finds for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import helpers
from manyclass import solvers
from manyclass.objective.losses import CLASSIFICATION, REGRESSION
from manyclass.objective.penalties import L2, ElasticNet
from manyclass.objective.problem import Problem
from manyclass.solvers import Solver
from manyclass.solvers.primal.base import BatchSolver


class LossCase(NamedTuple):
    """A loss under test.

    ``formula``: the loss and its gradient in NumPy. ``domain``: where phi* is finite, one of "simplex", "box",
    "half_line", "line", "band" (see `helpers.infeasibility`). ``curved``: whether phi* is gamma-strongly convex over
    "all" entries of a, or over those of the "rivals" alone.
    """

    loss: Any
    formula: helpers.Formula
    domain: str
    curved: str = "all"


class Written(NamedTuple):
    """What is written of a loss for its tests.

    ``formula``: of the values of its parameters, as are ``domain`` and ``curved``; see `LossCase`. ``values``: with
    which values of its parameters it is tested, one by one.
    """

    formula: Callable[..., helpers.Formula]
    domain: str
    curved: str = "all"
    values: tuple[dict[str, float], ...] = ({},)


#: Of the losses that are declared, by name.
WRITTEN = {
    "multinomial": Written(lambda: helpers.multinomial, "simplex"),
    "softmax_hinge": Written(lambda: helpers.softmax_hinge, "simplex"),
    "crammer_singer": Written(
        helpers.crammer_singer, "simplex", "rivals", ({"gamma": 0}, {"gamma": 0.1}, {"gamma": 1})
    ),
    "hinge": Written(lambda: helpers.smooth_hinge(0.0), "box"),
    "smooth_hinge": Written(helpers.smooth_hinge, "box", values=({"gamma": 0.1}, {"gamma": 0.5}, {"gamma": 1})),
    "squared_hinge": Written(lambda: helpers.squared_hinge, "half_line"),
    "log_loss": Written(lambda: helpers.log_loss, "box"),
    "squared": Written(lambda: helpers.squared, "line"),
    "huber": Written(helpers.huber, "band", values=({"epsilon": 0.5},)),
}
DECLARED = {**CLASSIFICATION, **REGRESSION}

#: Compiled losses by name, with the values of their parameters after it.
LOSSES = {
    "-".join([name, *map(str, values.values())]): LossCase(
        loss(**values).compiled(), WRITTEN[name].formula(*values.values()), WRITTEN[name].domain, WRITTEN[name].curved
    )
    for name, loss in DECLARED.items()
    for values in WRITTEN[name].values
}
#: What no declared loss is but in its form for the one margin of two classes.
LOSSES["softplus_hinge"] = LossCase(
    CLASSIFICATION["softmax_hinge"]().compiled(binary=True), helpers.softplus_hinge, "box"
)

#: Of soft targets: of the losses that take them.
LOSSES["multinomial-soft"] = LossCase(CLASSIFICATION["multinomial"]().compiled_soft(), helpers.cross_entropy, "simplex")
LOSSES["log_loss-soft"] = LossCase(
    CLASSIFICATION["log_loss"]().compiled_soft(), helpers.log_loss_of_probabilities, "around the target"
)

PENALTIES = {
    "l2": L2(),
    "elastic_net-0": ElasticNet(0.0),
    "elastic_net-0.1": ElasticNet(0.1),
    "elastic_net-3": ElasticNet(3.0),
}

#: Every solver of the fitting loop that a user can name, with its default parameters.
SOLVERS: dict[str, Solver] = {name: solver() for name, solver in solvers.SOLVERS.items() if issubclass(solver, Solver)}
#: Of these, the solvers on the weights that move all of them at once, for any smooth loss.
BATCH = {
    name: solver
    for name, solver in SOLVERS.items()
    if isinstance(solver, BatchSolver) and type(solver).__module__.startswith("manyclass.solvers.primal.")
}
STOCHASTIC = {"sgd": solvers.SGD(), "averaged sgd": solvers.SGD(average=True)}
ON_WEIGHTS: dict[str, Solver] = {**BATCH, **STOCHASTIC}


def problem_for(
    solver: Solver, *, n: int = 60, seed: int = 0, **options: Any
) -> tuple[LossCase, helpers.Data, Problem]:
    """A problem that a solver can solve: of the first loss it takes, with sample weights.

    It has an l2 penalty, which every solver takes, and an intercept where the solver can fit one.
    """
    for case in LOSSES.values():
        data = helpers.make_data(case.loss.targets, n=n, d=6, K=4, seed=seed, weighted=True)
        problem = helpers.make_problem(case.loss, data, **{"intercept": solver.takes_intercept, **options})
        try:
            solver.prepare(problem)
        except ValueError:
            continue
        return case, data, problem
    raise LookupError(f"no loss of the registry suits solver {solver.name!r}")


DTYPES = {"float32": np.float32, "float64": np.float64}


def _csr(X: Any, index: Any) -> sp.csr_matrix:
    found = sp.csr_matrix(X)
    found.indices, found.indptr = found.indices.astype(index), found.indptr.astype(index)
    return found


def _frozen(X: Any) -> Any:
    for array in (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,):
        array.flags.writeable = False
    return X


def _mapped(X: Any, folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


#: name -> (dense n x d array, folder to write in) -> what a user may hold the same rows in.
VIEWS: dict[str, Callable[[Any, Path], Any]] = {
    "csr-int32": lambda X, folder: _csr(X, np.int32),
    "csr-int64": lambda X, folder: _csr(X, np.int64),
    "csr-frozen": lambda X, folder: _frozen(_csr(X, np.int32)),
    "dense-c": lambda X, folder: np.ascontiguousarray(X),
    "dense-f": lambda X, folder: np.asfortranarray(X),
    "dense-frozen": lambda X, folder: _frozen(X.copy(order="C")),
    "dense-mapped": _mapped,
}
