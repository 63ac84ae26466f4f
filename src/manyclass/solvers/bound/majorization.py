"""Bound majorisation: steps from the quadratic bound of the partition function, in batches and stochastic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from manyclass.objective.losses import LogLoss, Multinomial
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Array, Problem
from manyclass.solvers.base import Progress, State
from manyclass.solvers.bound.forms import Form, KroneckerForm
from manyclass.solvers.bound.labels import ORDERS
from manyclass.solvers.bound.steps import (
    Running,
    Steps,
    batches,
    low_rank_step,
    next_share,
    online_pass,
    printed_pass,
    solve_definite,
)
from manyclass.solvers.primal.base import BatchSolver, constant

__all__ = ["SCHEDULES", "BatchBound", "BoundMajorization", "reduced_size"]

#: What may follow the first stochastic pass of `BoundMajorization`; see there.
SCHEDULES = ("tightening", "restart", "literal")
#: How much of the bound the first curvature of all examples holds: the pass before has been a step with all of it.
_FIRST = 0.1
#: Least number of batches of a pass where their size is left to the solver.
_BATCHES = 8


class _Majorising(BatchSolver):
    """What the two have in common: point, scores and the refusals.

    The state's point and its scores are float64 whatever the problem's dtype: a curvature in float32 is often
    indefinite, and the search tells small falls of P.
    """

    needs_regularizer = frozenset({"gradient"})

    def __init__(self, order: str) -> None:
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}")
        self.order = order

    def state(self, problem: Problem) -> State:
        self._check(problem)
        state = self._first(problem)
        state["point"] = np.zeros(state["point"].shape)
        state["scores"] = np.zeros((problem.n_samples, problem.n_outputs))
        return state

    def nbytes(self, problem: Problem) -> dict[str, int]:
        self._check(problem)
        size = reduced_size(problem)
        rows = problem.n_features + 1
        return {
            f"curvature of {size} parameters (and its factor; to need less, rank=8)": 2 * 8 * size**2,
            "weights (a point, a slope, directions)": 8 * 6 * rows * problem.n_outputs,
            "scores and responses of the losses": (8 * 7 + problem.dtype.itemsize)
            * problem.n_samples
            * max(2, problem.n_outputs),
        }

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        W, bias = self._split(problem, state["point"])
        return W.astype(problem.dtype, copy=False), bias.astype(problem.dtype, copy=False)

    def _begin(self, problem: Problem, state: State) -> Steps:
        """The steps of this problem. A new run, wherever it starts, has its scores made afresh."""
        self._check(problem)
        steps = Steps(KroneckerForm.of(problem, constant(problem)), problem.lam, self.order, problem.n_threads)
        if state["iteration"] == 0:
            state["point"] = state["point"].astype(np.float64)
            steps.form.settle(state["point"])
            state["scores"] = steps.scores(state["point"])
            state["passes"] = np.zeros(())
        return steps

    def _check(self, problem: Problem) -> None:
        loss = problem.loss
        if not isinstance(loss, Multinomial | LogLoss) or (isinstance(loss, LogLoss) and problem.n_outputs != 1):
            given = f"{type(loss).__name__} with {problem.n_outputs} outputs"
            raise ValueError(
                f"solver {self.name!r} takes log-linear models: Multinomial, or LogLoss of two classes (one output), "
                f"got {given}; choose another solver"
            )
        if not isinstance(problem.regularizer, L2):
            raise ValueError(
                f"solver {self.name!r} needs the regulariser L2, got {type(problem.regularizer).__name__}: "
                "choose another solver"
            )
        if problem.shift is not None:
            raise ValueError(
                f"solver {self.name!r} needs a problem without shift, got one of shape {problem.shift.shape}: "
                "choose another solver"
            )


class BatchBound(_Majorising):
    """Batch bound majorisation (Jebara and Choromanska 2012): the minimum of the quadratic bound, again and again.

    With Sigma the bound's curvature at the point, an iteration is point -= eta (Sigma + lam I)^-1 gradient, one pass
    over the data. For eta in (0, 2) every step lowers the objective, which the quadratic touches at the point and lies
    above elsewhere. The bound is loose near the optimum: convergence is linear, and takes tens to hundreds of passes.

    Parameters
    ----------
    eta : float
        Length of the step, in (0, 2); 1 is the minimum of the bound.
    order : {"ascending", "descending", "given"}
        In which order the bound takes the labels: by score, lowest or highest first, or as they are numbered. The first
        converges fastest on most data, though the second has the smaller trace.

    Raises
    ------
    ValueError
        If ``eta`` is not in (0, 2), ``order`` is none of these, the loss is not log-linear (multinomial, or log loss of
        one output), or the penalty not l2.

    References
    ----------
    Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012, algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.optimize.loop import minimise
    >>> from manyclass.kernels.rows import make_rows
    >>> from manyclass.kernels.targets import ClassTargets
    >>> from manyclass.objective.losses import Multinomial
    >>> from manyclass.objective.problem import Problem
    >>> from manyclass.objective.penalties import L2
    >>> from manyclass.solvers import BatchBound
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> y = X[:, :3].argmax(axis=1).astype(np.int32)
    >>> problem = Problem(make_rows(X), ClassTargets(y, 3), Multinomial(), L2(), lam=0.1, n_features=5)
    >>> result = minimise(problem, BatchBound(), tol=1e-4)
    >>> result.certificate.relative_gap <= 1e-4
    True
    """

    name = "bbm"

    def __init__(self, *, eta: float = 1.0, order: str = "ascending") -> None:
        super().__init__(order)
        if not 0 < eta < 2:
            raise ValueError(f"eta must be a number greater than 0 and less than 2, got {eta!r}")
        self.eta = float(eta)

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        steps = self._begin(problem, state)
        while True:
            yield self._ended(state, self.advance(steps, state, seed))

    def start(self, form: Form) -> State:
        """The part of a state that `advance` works on."""
        return _start(form)

    def advance(self, steps: Steps, state: State, seed: int) -> int:
        """One iteration on any log-linear model; returns the passes it took."""
        form = steps.form
        G = np.empty((form.reduced, form.reduced))
        slope = steps.gradient(state["point"], state["scores"], G)
        move = form.expand(solve_definite(G, form.reduce(slope)))
        move *= -self.eta
        state.update(point=state["point"] + move, scores=state["scores"] + steps.scores(move))
        return 1


class BoundMajorization(_Majorising):
    """Stochastic bound majorisation (Choromanska and Jebara 2013), and what makes it converge.

    ``schedule="tightening"``: the first iteration is a pass over random batches. After each, the quadratic bounds of
    its examples are added to those so far, and the point moves by their inverse times the batch's gradient (recursive
    least squares, were the bound exact). An exact search along the whole way ends the pass. From then on the bound is
    taken away: an iteration is one pass with the curvature (1 - w) Hessian + w bound of all examples, followed by an
    exact search. w begins at 1/10, falls to a tenth where the search takes more than half of the step, and grows to
    min(1, 3 w + 1e-3) elsewhere. P never rises, nothing is to be tuned, and the last iterations converge as Newton's.

    ``schedule="literal"``: their algorithm 2, every pass alike; curvature and mean gradient are never forgotten, so
    that the point overshoots from the second pass on and comes in slowly. ``"restart"``: the same, but each pass begins
    anew; it converges linearly, and slowly where the bound is loose. Both are there for comparison, and neither
    searches.

    ``rank=k`` keeps the curvature as k directions and a diagonal, k + 1 numbers a weight: the directions are those in
    which it is largest, followed from pass to pass by subspace iteration, the diagonal is that of the rest. An exact
    search on the plane of the step and the last move makes up for what such a curvature does not know: P never rises,
    and nothing is to be tuned. An iteration takes 1 + k passes, products of sparse rows with k points.

    Parameters
    ----------
    schedule : {"tightening", "restart", "literal"}
    batch_size : int, optional
        Examples of a stochastic step. By default as many as make the curvature's factor cost no more than its sum: a
        third of the parameters, at most an eighth of the examples. 1 is the paper's choice, at a cost of
        K (d K)^2 operations an example.
    eta : float
        Length of the steps of "restart" and "literal", in (0, 2).
    order : {"ascending", "descending", "given"}
        In which order the bound takes the labels: by score, lowest or highest first, or as they are numbered. The first
        converges fastest on most data, though the second has the smaller trace.
    rank : int, optional
        Of the curvature; None: the full matrix of (d K)^2 numbers.

    Raises
    ------
    ValueError
        If a parameter is out of range, the loss is not log-linear (multinomial, or log loss of one output), or the
        penalty not l2.

    References
    ----------
    Choromanska and Jebara, "Stochastic bound majorization", arXiv:1309.5605, algorithm 2, with two corrections: the
    example's own feature and the penalty enter its gradient once, not once for each label, and Woodbury's formula has
    a minus. Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.optimize.loop import minimise
    >>> from manyclass.kernels.rows import make_rows
    >>> from manyclass.kernels.targets import ClassTargets
    >>> from manyclass.objective.losses import Multinomial
    >>> from manyclass.objective.problem import Problem
    >>> from manyclass.objective.penalties import L2
    >>> from manyclass.solvers import BoundMajorization
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> y = X[:, :3].argmax(axis=1).astype(np.int32)
    >>> problem = Problem(make_rows(X), ClassTargets(y, 3), Multinomial(), L2(), lam=0.001, n_features=5)
    >>> result = minimise(problem, BoundMajorization(), tol=1e-9)
    >>> result.certificate.relative_gap <= 1e-9, result.n_iter <= 12
    (True, True)
    """

    name = "bound"

    def __init__(
        self,
        *,
        schedule: str = "tightening",
        batch_size: int | None = None,
        eta: float = 1.0,
        order: str = "ascending",
        rank: int | None = None,
    ) -> None:
        super().__init__(order)
        if rank is not None and rank < 1:
            raise ValueError(f"rank must be an integer of at least 1, or None for a full curvature, got {rank!r}")
        if rank is not None and schedule != "tightening":
            raise ValueError(f"schedule {schedule!r} is of full rank: take schedule='tightening', or rank=None")
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {schedule!r}")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be an integer of at least 1, or None, got {batch_size!r}")
        if not 0 < eta < 2:
            raise ValueError(f"eta must be a number greater than 0 and less than 2, got {eta!r}")
        self.schedule = schedule
        self.rank = None if rank is None else int(rank)
        self.batch_size = None if batch_size is None else int(batch_size)
        self.eta = float(eta)

    def state(self, problem: Problem) -> State:
        state = super().state(problem)
        return {**state, **self._more(state, reduced_size(problem))}

    def start(self, form: Form) -> State:
        """The part of a state that `advance` works on."""
        state = _start(form)
        return {**state, **self._more(state, form.reduced)}

    def _more(self, state: State, size: int) -> State:
        """What this solver remembers besides point and scores."""
        if self.rank is not None:
            return {
                "share": np.ones(()),
                # Of the curvature and of the last step; the first iteration fills the one and does without the other.
                "basis": np.zeros((min(self.rank, state["point"].size), *state["point"].shape)),
                "move": np.zeros_like(state["point"]),
                "move_scores": np.zeros_like(state["scores"]),
            }
        more: State = {"share": np.full((), np.nan)}  # no iteration with the curvature of all examples yet
        if self.schedule == "literal":
            # The penalty alone is filled in by the first iteration.
            more |= {"curvature": np.zeros((size, size)), "mean": np.zeros(size)}
        return more

    def warm(self, problem: Problem, state: State) -> State:
        """Go on from a point: a stochastic pass would only stray from it."""
        if self.schedule == "tightening":
            state["share"] = np.full((), _FIRST)
        if self.rank is not None:
            state["move"] = np.zeros_like(state["move"])
            state["move_scores"] = np.zeros_like(state["move_scores"])
        return state

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        steps = self._begin(problem, state)
        while True:
            yield self._ended(state, self.advance(steps, state, seed))

    def advance(self, steps: Steps, state: State, seed: int) -> int:
        """One iteration on any log-linear model; returns the passes it took."""
        if self.rank is not None:
            low_rank_step(steps, state, seed)
            return 1 + len(state["basis"])
        if self.schedule != "tightening":
            self._printed(steps, state, seed)
        elif np.isnan(state["share"]):
            self._stochastic(steps, state, seed)
        else:
            self._tightened(steps, state)
        return 1

    def nbytes(self, problem: Problem) -> dict[str, int]:
        if self.rank is None:
            return super().nbytes(problem)
        self._check(problem)
        size = 8 * (problem.n_features + 1) * problem.n_outputs
        return {
            f"curvature of rank {self.rank} (a basis, its products, room)": 6 * self.rank * size,
            "weights (a point, a slope, a diagonal, directions)": 10 * size,
            "scores and responses of the losses": (8 * 9 + problem.dtype.itemsize)
            * problem.n_samples
            * max(2, problem.n_outputs),
        }

    def _batches(self, steps: Steps, state: State, seed: int) -> list[Array]:
        form = steps.form
        size = self.batch_size or max(1, min(form.reduced // 3, form.n // _BATCHES))
        return batches(form.n, size, [seed, int(state["iteration"])])

    def _stochastic(self, steps: Steps, state: State, seed: int) -> None:
        end = state["point"].copy()
        online_pass(steps, end, self._batches(steps, state, seed))
        self._search(steps, state, end - state["point"])
        state["share"] = np.full((), _FIRST)

    def _tightened(self, steps: Steps, state: State) -> None:
        form, share = steps.form, float(state["share"])
        G = np.empty((form.reduced, form.reduced))
        slope = steps.gradient(state["point"], state["scores"], G, share)
        move = form.expand(solve_definite(G, -form.reduce(slope)))
        state["share"] = np.asarray(next_share(share, self._search(steps, state, move)))

    def _search(self, steps: Steps, state: State, move: Array) -> float:
        """Go to the least P along ``move``; returns how far that was."""
        scores = steps.scores(move)
        t, _, _ = steps.line(state["point"], state["scores"], [(move, scores)]).minimum(np.ones(1))
        # At once: an interrupt finds the old pair or the new one.
        state.update(point=state["point"] + t[0] * move, scores=state["scores"] + t[0] * scores)
        return float(t[0])

    def _printed(self, steps: Steps, state: State, seed: int) -> None:
        form, parts = steps.form, self._batches(steps, state, seed)
        inverse = Running.updates(form, len(parts[0]))
        first = self.schedule == "restart" or state["iteration"] == 0
        running = Running(Running.first(form, steps.lam, inverse) if first else state["curvature"].copy(), inverse)
        mean = np.zeros(form.reduced) if first else state["mean"].copy()
        point = state["point"].copy()
        printed_pass(steps, point, parts, running, mean, self.eta)
        kept = {"curvature": running.matrix, "mean": mean} if self.schedule == "literal" else {}
        state.update(point=point, scores=steps.scores(point), **kept)


def _start(form: Form) -> State:
    """A point at rest, and its scores."""
    point = np.zeros(form.shape)
    steps = Steps(form, 0.0, "ascending")
    return {"iteration": np.zeros((), np.int64), "point": point, "scores": steps.scores(point)}


def reduced_size(problem: Problem) -> int:
    """Parameters without the freedom of softmax."""
    return max(1, problem.n_outputs - (not isinstance(problem.loss, LogLoss))) * (
        problem.n_features + bool(problem.intercept)
    )
