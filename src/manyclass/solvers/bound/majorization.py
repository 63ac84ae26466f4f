"""Bound majorization: steps from the quadratic bound of the partition function, in batches and stochastic."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.objective.losses import LogisticLoss, MultinomialLoss
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.memory import require
from manyclass.solvers.base import Progress, State
from manyclass.solvers.bound.forms import Form, KroneckerForm
from manyclass.solvers.bound.labels import ORDERS
from manyclass.solvers.bound.steps import (
    OnlineCurvature,
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

__all__ = ["SCHEDULES", "BoundMajorization", "BoundStream", "reduced_size"]

#: What may follow the first stochastic pass of `BoundMajorization`; see there.
SCHEDULES = ("tightening", "restart", "literal")
#: How much of the bound the first curvature of all examples holds: the pass before has been a step with all of it.
_FIRST = 0.1
#: Least number of batches of a pass where their size is left to the solver.
_BATCHES = 8
#: Parameters up to which ``rank=None`` takes the full curvature: 128 MB of it, and a second or two for its factor.
_FULL = 4000
#: The rank it takes beyond.
_RANK = 8


class BoundMajorization(BatchSolver):
    """Bound majorization: stochastic (Choromanska and Jebara 2013) or batch (Jebara and Choromanska 2012).

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

    ``stochastic=False`` is the batch method (the paper's BBM): with Sigma the bound's curvature at the point, an
    iteration is point -= eta (Sigma + lam I)^-1 gradient, one pass over the data. For eta in (0, 2) every step lowers
    the objective, which the quadratic touches at the point and lies above elsewhere. The bound is loose near the
    optimum: convergence is linear, and takes tens to hundreds of passes.

    Parameters
    ----------
    stochastic : bool, default=True
        False: the batch method, of full rank.
    rank : int or "full", optional
        Of the curvature: "full", all (d K)^2 numbers; k >= 1, k directions and a diagonal, k + 1 numbers a weight.
        None: full up to 4000 parameters, 8 beyond.
    batch_size : int, optional
        Examples of a stochastic step, >= 1. None: as many as make the curvature's factor cost no more than its sum: a
        third of the parameters, at most an eighth of the examples. 1 is the paper's choice, at a cost of
        K (d K)^2 operations an example.
    eta : float, default=1.0
        Length of the steps where no search is made, in (0, 2): of "restart", "literal" and the batch method.
    schedule : {"tightening", "restart", "literal"}, default="tightening"
        What follows the first pass; of a number for ``rank`` "tightening" alone.
    order : {"ascending", "descending", "given"}, default="ascending"
        In which order the bound takes the labels: by score, lowest or highest first, or as they are numbered. The first
        converges fastest on most data, though the second has the smaller trace.

    Raises
    ------
    ValueError
        If a parameter is out of range, the loss is not log-linear (multinomial, or log loss of one output), or the
        penalty not l2.

    References
    ----------
    Choromanska and Jebara, "Stochastic bound majorization", arXiv:1309.5605, algorithm 2, with two corrections: the
    example's own feature and the penalty enter its gradient once, not once for each label, and Woodbury's formula has
    a minus. Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012, algorithms 1 and 2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import BoundMajorization
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=BoundMajorization(), alpha=0.1, tol=1e-9).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-9)
    True
    """

    name = "bound"
    needs_penalty = frozenset({"gradient"})
    takes_shift = False
    summary = "bound majorization, stochastic or batch: a handful of passes, nothing to tune; few parameters"
    synonyms = ("bbm", "sbm", "bound_majorization", "bound_majorisation")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "stochastic": ["boolean"],
        "rank": [Interval(Integral, 1, None, closed="left"), StrOptions({"full"}), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "eta": [Interval(Real, 0, 2, closed="neither")],
        "schedule": [StrOptions(set(SCHEDULES))],
        "order": [StrOptions(set(ORDERS))],
    }

    def __init__(
        self,
        *,
        stochastic: bool = True,
        rank: int | str | None = None,
        batch_size: int | None = None,
        eta: float = 1.0,
        schedule: str = "tightening",
        order: str = "ascending",
    ) -> None:
        self.stochastic = stochastic
        self.rank = rank
        self.batch_size = batch_size
        self.eta = eta
        self.schedule = schedule
        self.order = order

    def check(self) -> None:
        super().check()
        if self._is_low_rank and not (self.stochastic and self.schedule == "tightening"):
            raise ValueError(
                f"rank={self.rank!r} goes with stochastic=True and schedule='tightening': the others are of full rank"
            )
        if self._is_low_rank and self.batch_size is not None:
            raise ValueError(
                f"batch_size={self.batch_size!r} goes with the full curvature, and rank is {self.rank!r}: its steps "
                "are of all examples; leave batch_size=None, or take rank='full'"
            )

    @property
    def streams(self) -> bool:  # type: ignore[override]
        """With the full curvature, which can be summed."""
        return not self._is_low_rank

    @property
    def _is_low_rank(self) -> bool:
        return self.rank is not None and not isinstance(self.rank, str)

    def with_rank(self, size: int) -> BoundMajorization:
        """A checked copy whose rank is settled for so many parameters."""
        self.check()
        copy: BoundMajorization = clone(self)
        if copy.rank is None:
            full = size <= _FULL or not self.stochastic or self.schedule != "tightening"
            copy.rank = "full" if full else _RANK
        return copy

    def prepare(self, problem: Problem) -> BoundMajorization:
        """A checked copy, its rank settled."""
        checked: BoundMajorization = super().prepare(problem)
        return checked.with_rank(reduced_size(problem))

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        two = isinstance(problem.loss, LogisticLoss) and problem.n_outputs == 1
        if not (two or isinstance(problem.loss, MultinomialLoss)):
            raise ValueError(
                f"solver {self.name!r} takes log-linear models: multinomial, or log_loss of two classes (one output), "
                f"got {problem.loss.name} with {problem.n_outputs} outputs; choose another solver"
            )

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        # float64 whatever the problem's dtype: a curvature in float32 is often indefinite, and the search tells small
        # falls of P.
        state["point"] = np.zeros(state["point"].shape)
        state["scores"] = np.zeros((problem.n_samples, problem.n_outputs))
        return {**state, **self._more(state, reduced_size(problem))}

    def start(self, form: Form) -> State:
        """The part of a state that `advance` works on."""
        state = _start(form)
        return {**state, **self._more(state, form.reduced)}

    def _more(self, state: State, size: int) -> State:
        """What this solver remembers besides point and scores."""
        if self._is_low_rank:
            return {
                "share": np.ones(()),
                # Of the curvature and of the last step; the first iteration fills the one and does without the other.
                "basis": np.zeros((min(int(self.rank or 0), state["point"].size), *state["point"].shape)),
                "move": np.zeros_like(state["point"]),
                "move_scores": np.zeros_like(state["scores"]),
            }
        if not self.stochastic:
            return {}
        more: State = {"share": np.full((), np.nan)}  # no iteration with the curvature of all examples yet
        if self.schedule == "literal":
            # The penalty alone is filled in by the first iteration.
            more |= {"curvature": np.zeros((size, size)), "mean": np.zeros(size)}
        return more

    def warm(self, problem: Problem, state: State) -> State:
        """Go on from a point: a stochastic pass would only stray from it."""
        if self.stochastic and self.schedule == "tightening":
            state["share"] = np.full((), _FIRST)
        if self._is_low_rank:
            state["move"] = np.zeros_like(state["move"])
            state["move_scores"] = np.zeros_like(state["move_scores"])
        return state

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        steps = self._begin(problem, state)
        while True:
            yield self._ended(state, self.advance(steps, state, seed))

    def open_stream(self, problem: Problem, *, vanishing: bool = False) -> BoundStream:
        """What learns a stream whose first rows are those of ``problem``; its steps need no rule for their length.

        Raises
        ------
        ValueError
            If there are too many parameters for the full curvature.
        """
        if self._is_low_rank:
            raise ValueError(
                f"partial_fit keeps the full curvature, and rank=None is {self.rank} for as many parameters: take "
                "rank='full', fewer features, or solver='sgd'"
            )
        return BoundStream(self, problem)

    def advance(self, steps: Steps, state: State, seed: int) -> int:
        """One iteration on any log-linear model; returns the passes it took."""
        if self._is_low_rank:
            low_rank_step(steps, state, seed)
            return 1 + len(state["basis"])
        if not self.stochastic:
            self._batch(steps, state)
            return 1
        if self.schedule != "tightening":
            self._printed(steps, state, seed)
        elif np.isnan(state["share"]):
            self._stochastic(steps, state, seed)
        else:
            self._tightened(steps, state)
        return 1

    def nbytes(self, problem: Problem) -> dict[str, int]:
        weights = 8 * (problem.n_features + 1) * problem.n_outputs
        scores = problem.n_samples * max(2, problem.n_outputs)
        if not self._is_low_rank:
            size = reduced_size(problem)
            return {
                f"curvature of {size} parameters (and its factor; to need less, rank=8)": 2 * 8 * size**2,
                "weights (a point, a slope, directions)": 6 * weights,
                "scores and responses of the losses": (8 * 7 + problem.dtype.itemsize) * scores,
            }
        return {
            f"curvature of rank {self.rank} (a basis, its products, room)": 6 * int(self.rank or 0) * weights,
            "weights (a point, a slope, a diagonal, directions)": 10 * weights,
            "scores and responses of the losses": (8 * 9 + problem.dtype.itemsize) * scores,
        }

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        W, bias = self._split(problem, state["point"])
        return W.astype(problem.dtype, copy=False), bias.astype(problem.dtype, copy=False)

    def _begin(self, problem: Problem, state: State) -> Steps:
        """The steps of this problem. A new run, wherever it starts, has its scores made afresh."""
        steps = Steps(KroneckerForm.of(problem, constant(problem)), problem.lam, self.order, problem.n_threads)
        if state["iteration"] == 0:
            state["point"] = state["point"].astype(np.float64)
            steps.form.settle(state["point"])
            state["scores"] = steps.scores(state["point"])
            state["passes"] = np.zeros(())
        return steps

    def _batches(self, steps: Steps, state: State, seed: int) -> list[Array]:
        form = steps.form
        size = self.batch_size or max(1, min(form.reduced // 3, form.n // _BATCHES))
        return batches(form.n, size, [seed, int(state["iteration"])])

    def _batch(self, steps: Steps, state: State) -> None:
        """To the minimum of the bound, or beyond, or short of it, by eta."""
        form = steps.form
        G = np.empty((form.reduced, form.reduced))
        slope = steps.gradient(state["point"], state["scores"], G)
        move = form.expand(solve_definite(G, form.reduce(slope)))
        move *= -float(self.eta)
        state.update(point=state["point"] + move, scores=state["scores"] + steps.scores(move))

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
        printed_pass(steps, point, parts, running, mean, float(self.eta))
        kept = {"curvature": running.matrix, "mean": mean} if self.schedule == "literal" else {}
        state.update(point=point, scores=steps.scores(point), **kept)


class BoundStream:
    """A stream of rows whose curvatures are kept as one sum: bounds at first, then ever more of the Hessian.

    Each batch moves the weights by the inverse of the sum times the gradient of the batch. On a stream of independent
    examples the weights approach those of the optimum.

    Parameters
    ----------
    solver : BoundMajorization
    problem : Problem
        With the first rows.
    """

    def __init__(self, solver: BoundMajorization, problem: Problem) -> None:
        form = KroneckerForm.of(problem, float(problem.intercept))
        require({"curvature": 3 * 8 * form.reduced**2}, "fewer features")
        self._solver, self._stream, self._dtype = solver, OnlineCurvature(form), problem.dtype
        self._constant = form.constant

    def take(self, problem: Problem, weights: Array | None) -> None:
        """Learn the rows of a problem; ``weights`` are their sample weights as they are."""
        form = KroneckerForm.of(problem, self._constant)
        form.scale = np.ones(form.n) if weights is None else weights
        self._stream.take(form, problem.lam, self._solver.order, self._solver.batch_size)

    def weights(self) -> tuple[Array, Array]:
        """``(W, b)``."""
        point = self._stream.point
        W, bias = point[:-1], self._constant * point[-1]
        return np.ascontiguousarray(W, self._dtype), np.ascontiguousarray(bias, self._dtype)


def _start(form: Form) -> State:
    """A point at rest, and its scores."""
    point = np.zeros(form.shape)
    steps = Steps(form, 0.0, "ascending")
    return {"iteration": np.zeros((), np.int64), "point": point, "scores": steps.scores(point)}


def reduced_size(problem: Problem) -> int:
    """Parameters without the freedom of softmax."""
    return max(1, problem.n_outputs - (not isinstance(problem.loss, LogisticLoss))) * (
        problem.n_features + bool(problem.intercept)
    )
