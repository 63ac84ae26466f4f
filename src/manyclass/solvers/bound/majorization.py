"""Bound majorization: steps from quadratic bounds on the log-partition functions, batch and stochastic."""

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
from manyclass.solvers.bound.running import (
    LowRank,
    OnlineCurvature,
    Running,
    batches,
    default_batch,
    low_rank_curvature,
    online_pass,
    printed_pass,
    running_curvature,
)
from manyclass.solvers.bound.steps import Steps, low_rank_step, next_share, solve_definite
from manyclass.solvers.primal.base import BatchSolver, constant

__all__ = ["SCHEDULES", "BoundMajorization", "BoundStream", "reduced_size"]

#: What follows the first stochastic pass, see `BoundMajorization`.
SCHEDULES = ("tightening", "restart", "literal")
#: Share of the bound in the first curvature of all samples, after the stochastic pass with a share of 1.
_FIRST = 0.1
#: Minimum number of batches per pass if ``batch_size`` is None.
_BATCHES = 8
#: Maximum number of parameters for which ``rank=None`` is the full curvature: 128 MB, and a second or two to factor.
_FULL = 4000
#: The rank that ``rank=None`` stands for with more parameters.
_RANK = 8


class BoundMajorization(BatchSolver):
    """Bound majorization, stochastic (Choromanska and Jebara 2013) or batch (Jebara and Choromanska 2012).

    ``schedule="tightening"``: the first iteration is a pass over random batches. For each batch the quadratic bounds of
    its samples are added to a sum, and the step is the inverse of the sum times the gradient of the batch (recursive
    least squares, if the bounds were exact). A line search between start and end of the pass follows. Each further
    iteration is a Newton-like step, one pass over the data, with the curvature (1 - w) Hessian + w bound of all
    samples, and a line search. w starts at 1/10; it is divided by 10 if the step size is above 1/2, else it becomes
    min(1, 3 w + 1e-3). P never increases, nothing has to be tuned, and the last iterations converge like Newton's.

    ``schedule="literal"``: every pass as in their algorithm 2. Curvature and mean gradient are accumulated over all
    passes, so that the weights overshoot from the second pass on and then converge slowly. ``"restart"``: the same, but
    each pass starts with new sums; it converges linearly, and slowly if the bound is loose. Both have no line search
    and are for comparison.

    ``rank=k`` replaces the curvature by a matrix of rank k plus a diagonal: k + 1 numbers per weight, and O(k K D)
    operations for a sample and D weights, which is the paper's O(k n d). With ``schedule="tightening"`` the first pass
    is stochastic as above, with rows of rank k and the exact diagonal of the rest, which is no upper bound: a step that
    is too long for its own batch is shortened. Each further iteration, of 1 + k passes, uses the curvature of all
    samples in the k directions in which it is largest (subspace iteration), and an exact search over the step and the
    last step: P never increases. With ``schedule="literal"`` or ``"restart"`` it is the paper's section 3.2, and with
    ``stochastic=False`` the low-rank batch method of Jebara and Choromanska: the sum is an upper bound on the bounds of
    all samples (see `LowRankDiagonal`), which is loose for small k, so that both are slow.

    ``stochastic=False`` is the batch method, BBM in the paper: W <- W - eta (Sigma + lam I)^-1 gradient with the
    curvature Sigma of the bound, one pass over the data per iteration. The quadratic is an upper bound on P that is
    tight at W, so that P decreases in every iteration for eta in (0, 2). Convergence is linear, and takes tens to
    hundreds of passes, because the bound is loose near the optimum.

    Parameters
    ----------
    stochastic : bool, default=True
        Whether the stochastic method is used; False: the batch method.
    rank : int or "full", optional
        Rank of the curvature. "full": (d K)^2 numbers. k >= 1: rank k plus a diagonal, k + 1 numbers per weight. None:
        "full" for up to 4000 parameters, else 8.
    batch_size : int, optional
        Samples of a stochastic step, >= 1; None with ``stochastic=False``. None: a third of the number of parameters,
        with which factoring the curvature costs no more than summing it, or 16 with low rank, but at most an eighth of
        the samples. 1 is the choice of the paper, at a cost of K (d K)^2 operations per sample with full rank.
    eta : float, default=1.0
        Step size without a line search, in (0, 2): with schedule "restart" or "literal", and in the batch method.
    schedule : {"tightening", "restart", "literal"}, default="tightening"
        What follows the first pass. The paper prints "literal".
    order : {"ascending", "descending", "given"}, default="ascending"
        The order in which the bound processes the labels: by increasing or decreasing score, or as given.

    Raises
    ------
    ValueError
        If a parameter is out of range, the loss is not log-linear (multinomial, or log loss with one output), or the
        penalty is not l2.

    References
    ----------
    Choromanska and Jebara, "Stochastic bound majorization", arXiv:1309.5605, algorithm 2 and section 3.2, with three
    corrections: the feature of the observed label and the penalty enter the gradient of a sample once, not once per
    label; Woodbury's formula has a minus sign; the update of low rank is an upper bound (see `LowRankDiagonal`).
    Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012, algorithms 1, 2 and section 5.

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
    streams = True
    summary = "bound majorization, stochastic or batch: few passes, nothing to tune; for few parameters"
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
        if not self.stochastic and self.batch_size is not None:
            raise ValueError(
                f"batch_size must be None with stochastic=False, whose steps use all samples, got {self.batch_size!r}: "
                "leave batch_size=None, or give stochastic=True"
            )

    @property
    def _rank(self) -> int | None:
        """The rank as a number; None: the full curvature."""
        return None if self.rank is None or isinstance(self.rank, str) else int(self.rank)

    @property
    def _is_nystrom(self) -> bool:
        """Whether iterations over all samples use a low-rank approximation, not an upper bound."""
        return self._rank is not None and self.stochastic and self.schedule == "tightening"

    def with_rank(self, size: int) -> BoundMajorization:
        """A checked copy, whose ``rank`` is chosen for ``size`` parameters if it is None."""
        self.check()
        copy: BoundMajorization = clone(self)
        if copy.rank is None:
            full = size <= _FULL or not self.stochastic or self.schedule != "tightening"
            copy.rank = "full" if full else _RANK
        return copy

    def prepare(self, problem: Problem) -> BoundMajorization:
        """A checked copy, whose ``rank`` is chosen if it is None."""
        checked: BoundMajorization = super().prepare(problem)
        return checked.with_rank(reduced_size(problem))

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        two = isinstance(problem.loss, LogisticLoss) and problem.n_outputs == 1
        if not (two or isinstance(problem.loss, MultinomialLoss)):
            raise ValueError(
                f"solver {self.name!r} needs loss 'multinomial', or 'log_loss' with two classes (one output), got "
                f"{problem.loss.name!r} with {problem.n_outputs} outputs: choose another solver or loss"
            )

    def state(self, problem: Problem) -> State:
        state = self._first(problem)
        # Always float64: in float32 the curvature is often indefinite, and line searches compare close values of P.
        state["point"] = np.zeros(state["point"].shape)
        state["scores"] = np.zeros((problem.n_samples, problem.n_outputs))
        return {**state, **self._more(state, reduced_size(problem))}

    def start(self, form: Form) -> State:
        """The part of the state that `advance` changes."""
        state = _start(form)
        return {**state, **self._more(state, form.reduced)}

    def _more(self, state: State, size: int) -> State:
        """The arrays of the state besides point and scores."""
        if not self.stochastic:
            return {}
        shape, rank = state["point"].shape, self._rank
        more: State = {"share": np.full((), np.nan)}  # NaN: no iteration with the curvature of all samples yet
        if self._is_nystrom:
            # Basis of the curvature (0: none yet, the first iteration draws it), last step (0: none), its scores.
            more["basis"] = np.zeros((min(int(rank or 0), state["point"].size), *shape))
            more |= {"move": np.zeros_like(state["point"]), "move_scores": np.zeros_like(state["scores"])}
        if self.schedule == "literal":
            # The first iteration sets them.
            more["mean"] = np.zeros(shape)
            if rank is None:
                more["curvature"] = np.zeros((size, size))
            else:
                parameters = state["point"].size
                more |= {"rows": np.zeros((min(rank, parameters), parameters)), "diagonal": np.zeros(parameters)}
        return more

    def warm(self, problem: Problem, state: State) -> State:
        """Continue from a point, without a stochastic pass, which could increase the objective."""
        return self.resumed(state)

    def resumed(self, state: State) -> State:
        """As `warm`, on any log-linear model."""
        if self.stochastic and self.schedule == "tightening":
            state["share"] = np.full((), _FIRST)
        if self._is_nystrom:
            state["move"] = np.zeros_like(state["move"])
            state["move_scores"] = np.zeros_like(state["move_scores"])
        return state

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        steps = self._begin(problem, state)
        while True:
            yield self._ended(state, self.advance(steps, state, seed))

    def open_stream(self, problem: Problem, *, vanishing: bool = False) -> BoundStream:
        """A stream whose first rows are those of ``problem``; ``vanishing`` has no effect, as steps have no size."""
        return BoundStream(self, problem)

    def advance(self, steps: Steps, state: State, seed: int) -> int:
        """One iteration on any log-linear model; returns the number of passes over the data."""
        if not self.stochastic:
            self._batch(steps, state)
        elif self.schedule != "tightening":
            self._printed(steps, state, seed)
        elif np.isnan(state["share"]):
            self._stochastic(steps, state, seed)
        elif self._is_nystrom:
            low_rank_step(steps, state, seed)
            return 1 + len(state["basis"])
        else:
            self._tightened(steps, state)
        return 1

    def nbytes(self, problem: Problem) -> dict[str, int]:
        weights = 8 * (problem.n_features + 1) * problem.n_outputs
        scores = problem.n_samples * max(2, problem.n_outputs)
        if self._rank is None:
            size = reduced_size(problem)
            return {
                f"curvature of {size} parameters (and its factor; to need less, rank=8)": 2 * 8 * size**2,
                "weights (a point, a gradient, directions)": 6 * weights,
                "scores and gradients of the losses": (8 * 7 + problem.dtype.itemsize) * scores,
            }
        return {
            f"curvature of rank {self.rank} (rows, buffers)": 6 * int(self.rank or 0) * weights,
            "weights (a point, a gradient, a diagonal, directions)": 10 * weights,
            "scores and gradients of the losses": (8 * 9 + problem.dtype.itemsize) * scores,
        }

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        W, bias = self._split(problem, state["point"])
        return W.astype(problem.dtype, copy=False), bias.astype(problem.dtype, copy=False)

    def _begin(self, problem: Problem, state: State) -> Steps:
        """The `Steps` of this problem; a new run, possibly a warm start, computes the scores of its point."""
        steps = Steps(KroneckerForm.of(problem, constant(problem)), problem.lam, self.order, problem.n_threads)
        if state["iteration"] == 0:
            state["point"] = state["point"].astype(np.float64)
            steps.form.settle(state["point"])
            state["scores"] = steps.scores(state["point"])
            state["passes"] = np.zeros(())
        return steps

    def _batches(self, steps: Steps, state: State, seed: int) -> list[Array]:
        form = steps.form
        size = self.batch_size or max(1, min(default_batch(form, self._rank), form.n // _BATCHES))
        return batches(form.n, size, [seed, int(state["iteration"])])

    def _batch(self, steps: Steps, state: State) -> None:
        """A step of the batch method: ``eta`` times the step to the minimum of the bound."""
        form = steps.form
        if self._rank is not None:
            slope = steps.gradient(state["point"], state["scores"])
            move = low_rank_curvature(steps, state["scores"], self._rank).move(form, slope)
        else:
            G = np.empty((form.reduced, form.reduced))
            slope = steps.gradient(state["point"], state["scores"], G)
            move = form.expand(solve_definite(G, form.reduce(slope)))
        move *= -float(self.eta)
        state.update(point=state["point"] + move, scores=state["scores"] + steps.scores(move))

    def _stochastic(self, steps: Steps, state: State, seed: int) -> None:
        end, parts = state["point"].copy(), self._batches(steps, state, seed)
        online_pass(steps, end, parts, running_curvature(steps.form, steps.lam, len(parts[0]), self._rank, safe=False))
        self._search(steps, state, end - state["point"])
        state["share"] = np.full((), _FIRST)

    def _tightened(self, steps: Steps, state: State) -> None:
        form, share = steps.form, float(state["share"])
        G = np.empty((form.reduced, form.reduced))
        slope = steps.gradient(state["point"], state["scores"], G, share)
        move = form.expand(solve_definite(G, -form.reduce(slope)))
        state["share"] = np.asarray(next_share(share, self._search(steps, state, move)))

    def _search(self, steps: Steps, state: State, move: Array) -> float:
        """Move to the minimum of P along ``move``; returns the step size."""
        scores = steps.scores(move)
        t, _, _ = steps.line(state["point"], state["scores"], [(move, scores)]).minimum(np.ones(1))
        # In one call, so that point and scores belong together after an interrupt.
        state.update(point=state["point"] + t[0] * move, scores=state["scores"] + t[0] * scores)
        return float(t[0])

    def _printed(self, steps: Steps, state: State, seed: int) -> None:
        form, parts = steps.form, self._batches(steps, state, seed)
        running = running_curvature(form, steps.lam, len(parts[0]), self._rank, safe=True)
        mean, point = np.zeros(form.shape), state["point"].copy()
        if self.schedule == "literal" and state["iteration"] > 0:
            mean = state["mean"].copy()
            if isinstance(running, Running):
                running.matrix = state["curvature"].copy()
            elif isinstance(running, LowRank):
                running.matrix.rows, running.matrix.diagonal = state["rows"].copy(), state["diagonal"].copy()
        printed_pass(steps, point, parts, running, mean, float(self.eta))
        kept: State = {}
        if self.schedule == "literal":
            kept["mean"] = mean
            if isinstance(running, Running):
                kept["curvature"] = running.matrix
            elif isinstance(running, LowRank):
                kept |= {"rows": running.matrix.rows, "diagonal": running.matrix.diagonal}
        state.update(point=point, scores=steps.scores(point), **kept)


class BoundStream:
    """Bound majorization on rows that arrive in a stream, with the sum of their curvatures (see `OnlineCurvature`).

    The step of a batch is the inverse of the sum times the gradient of the batch. On a stream of independent samples
    the weights converge to the optimum.

    Parameters
    ----------
    solver : BoundMajorization
        The options.
    problem : Problem
        The problem of the first rows.
    """

    def __init__(self, solver: BoundMajorization, problem: Problem) -> None:
        form = KroneckerForm.of(problem, float(problem.intercept))
        rank = solver._rank
        if rank is None:
            require({"curvature": 3 * 8 * form.reduced**2}, "rank=8")
        else:
            require({"curvature": 6 * 8 * (rank + 1) * form.shape[0] * form.shape[1]}, "a smaller rank")
        self._solver, self._stream, self._dtype = solver, OnlineCurvature(form, rank), problem.dtype
        self._constant = form.constant

    def take(self, problem: Problem, weights: Array | None) -> None:
        """Update the weights by the rows of a problem with sample weights ``weights``, not scaled."""
        form = KroneckerForm.of(problem, self._constant)
        form.scale = np.ones(form.n) if weights is None else weights
        self._stream.take(form, problem.lam, self._solver.order, self._solver.batch_size)

    def weights(self) -> tuple[Array, Array]:
        """``(W, b)``."""
        point = self._stream.point
        W, bias = point[:-1], self._constant * point[-1]
        return np.ascontiguousarray(W, self._dtype), np.ascontiguousarray(bias, self._dtype)


def _start(form: Form) -> State:
    """The zero point and its scores."""
    point = np.zeros(form.shape)
    steps = Steps(form, 0.0, "ascending")
    return {"iteration": np.zeros((), np.int64), "point": point, "scores": steps.scores(point)}


def reduced_size(problem: Problem) -> int:
    """The number of reduced parameters, see `Form`."""
    return max(1, problem.n_outputs - (not isinstance(problem.loss, LogisticLoss))) * (
        problem.n_features + bool(problem.intercept)
    )
