"""Stochastic gradient descent, plain and averaged."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.kernels import sgd as kernels
from manyclass.kernels.targets import RealTargets
from manyclass.objective.intercept import first_intercept
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import run
from manyclass.solvers.base import PLAIN, STREAM_DECAY, Progress, State, tasks
from manyclass.solvers.primal.base import PrimalSolver, constant
from manyclass.solvers.primal.dense import sweep_nbytes

__all__ = ["GAINS", "SGD", "SGDStream"]

#: Schedules of the step size.
GAINS = ("optimal", "constant", "tau", "inverse")


class SGD(PrimalSolver):
    """Stochastic gradient descent (Bottou 2010); an iteration is a pass over the samples in random order.

    Step t, on sample i with weight c_i, is, with eta_t = eta_0 / (1 + lam eta_0 t),

        W = (1 - eta_t lam) W - eta_t c_i x_i grad phi(W^T x_i + b)^T,      b = b - eta_t m c_i grad phi(W^T x_i + b)

    lam is the penalty (alpha), m the mean squared norm of the rows: the intercept is the weight of a constant feature
    of that size. eta_t is Bottou's 1 / (lam (t_0 + t)) with t_0 = 1 / (lam eta_0). For a (1/gamma)-smooth loss the
    first step size is the largest with which no sample overshoots, 1 / eta_0 = max_i c_i (||x_i||^2 + m) / gamma + lam;
    for a loss with a kink gamma = 1 is taken, so that a first step changes the score of its own sample by about 1.

    A step costs the stored values of its row times K, because the decay of W is kept as a scalar factor. For a
    separable loss each thread takes a range of outputs; the result does not depend on the number of threads.

    With ``average`` the weights are the mean of those after each step from the end of the first pass on (Xu 2011;
    Bottou 2010, section 4.3), and eta_t = eta_0 (1 + lam eta_0 t)^(-3/4), which decreases more slowly.

    A stream (``partial_fit``) without alpha has lam = 1 / (rows so far) and thus no fixed strong convexity: with gain
    "optimal" its step sizes are eta_t = eta_0 (1 + t / 1000)^(-1/2), averaged or not.

    The other gains, which have to be tuned, and mini-batches, with t counting the batches, are for comparison.

    The duality gap decreases slowly because of the noise of the steps. For a loss with a kink it may not tend to 0:
    the dual point is then made of subgradients that need not be those of the optimum.

    Parameters
    ----------
    average : bool, default=False
        Whether to return the mean of the weights after each step.
    gain : {"optimal", "constant", "tau", "inverse"}, default="optimal"
        eta_t for t = 0, 1, ...: "optimal" as above, "constant" eta_0, "tau" eta_0 tau / (tau + t), "inverse"
        eta_0 / (t + 1) (Choromanska and Jebara, section 2.1, where the last two are called ASGD, for adaptive gain).
    eta0 : float, optional
        eta_0, > 0. None: the first step size given above.
    tau : float, default=1.0
        Number of steps, > 0, after which the step size of gain "tau" is halved.
    batch_size : int, default=1
        Samples per step, >= 1. A step uses the sum of their gradients, not the mean: eta0 is for the sum.

    Raises
    ------
    ValueError
        If a parameter is invalid, the penalty has no gradient (l1 and elastic net), or the problem has a ``shift``.

    References
    ----------
    Bottou, "Large-scale machine learning with stochastic gradient descent", COMPSTAT 2010, table 1. Shalev-Shwartz,
    Singer and Srebro, "Pegasos", ICML 2007, for the decay as a scalar factor. Choromanska and Jebara, "Stochastic bound
    majorization", 2013, section 2.1, for the other gains. Xu, "Towards optimal one pass large scale learning with
    averaged stochastic gradient descent", arXiv:1107.2490, section 3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import SGD
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearClassifier("multinomial", solver=SGD(), alpha=1.0, tol=1e-2).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-2)
    True
    """

    name = "sgd"
    summary = "stochastic gradient descent, plain or averaged"
    synonyms = ("asgd", "averaged_sgd", "sag", "saga")
    needs_penalty = frozenset({"gradient"})
    streams = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "average": ["boolean"],
        "gain": [StrOptions(set(GAINS))],
        "eta0": [Interval(Real, 0, None, closed="neither"), None],
        "tau": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        average: bool = False,
        gain: str = "optimal",
        eta0: float | None = None,
        tau: float = 1.0,
        batch_size: int = 1,
    ) -> None:
        self.average = average
        self.gain = gain
        self.eta0 = eta0
        self.tau = tau
        self.batch_size = batch_size

    @property
    def power(self) -> float:
        """The exponent in eta_t = eta_0 (1 + lam eta_0 t)^-power of gain "optimal"."""
        return 0.75 if self.average else 1.0

    def state(self, problem: Problem) -> State:
        shape = problem.n_features, problem.n_outputs
        state = {
            "iteration": np.zeros((), np.int64),
            "W": np.zeros(shape, problem.dtype),
            "bias": first_intercept(problem),
            # Buffers of the certificate.
            "V": np.zeros(shape, problem.dtype),
            "dual": np.zeros((problem.n_samples, problem.n_outputs), problem.dtype),
        }
        if self.average:
            state |= {"mean": state["W"].copy(), "mean_bias": state["bias"].copy()}
        return state

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize * problem.n_outputs
        found = {
            "weights, and the dual image of the certificates": 2 * problem.n_features * size,
            "gradients of the losses": problem.n_samples * size,
            **sweep_nbytes(problem),
        }
        if self.average:
            found["mean of the weights"] = problem.n_features * size
        return found

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        while True:
            epoch = int(state["iteration"])
            # Depends on seed and epoch only, so that a resumed run draws the same order.
            order = np.random.default_rng([seed, epoch]).permutation(problem.n_samples).astype(np.int32)
            self._epoch(problem, state, order, epoch * self._steps_of(problem))
            state["iteration"] = np.asarray(epoch + 1, np.int64)
            yield Progress(epoch + 1, float(epoch + 1))

    def open_stream(self, problem: Problem, *, vanishing: bool = False) -> SGDStream:
        """A stream whose first rows are those of ``problem``."""
        return SGDStream(self, problem, vanishing)

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return (state["mean"], state["mean_bias"]) if self.average else (state["W"], state["bias"])

    def _epoch(self, problem: Problem, state: State, order: Array, first: int) -> None:
        if self.average and first:
            averaged = 1 + first - self._steps_of(problem)
            self._steps(problem, state, order, first, state["mean"], state["mean_bias"], averaged)
            return
        if self.average:  # a warm start continues from the mean
            state["W"][:], state["bias"][:] = state["mean"], state["mean_bias"]
        self._steps(problem, state, order, first, np.empty((0, 0), problem.dtype), np.empty(0, problem.dtype), 0)
        if self.average:
            state["mean"][:], state["mean_bias"][:] = state["W"], state["bias"]

    def _steps(
        self,
        problem: Problem,
        state: State,
        order: Array,
        first: int,
        mean: Array,
        mean_bias: Array,
        averaged: int,
        *,
        weights: Array | None = None,
        rate: float | None = None,
        gain: float | None = None,
        vanishing: bool = False,
    ) -> None:
        """Steps number ``first`` and on; the mean so far is of ``averaged`` points, 0: no mean is computed.

        ``weights`` (sample weights), ``rate`` (eta_0) and ``gain`` (m, for the intercept) default to those of the
        problem. ``vanishing``: see `Solver.open_stream`.
        """
        weights = np.asarray(problem.sample_weight) if weights is None else weights
        if rate is None:
            rate = first_rate(problem, weights) if self.eta0 is None else float(self.eta0)
        decay, power = (STREAM_DECAY, 0.5) if vanishing and self.gain == "optimal" else self._decay(problem, rate)
        batch = self.batch_size
        calls, outputs, threads = tasks(problem, len(order), batch)
        for begin, end in calls:

            def part(lo: int, hi: int, begin: int = begin, end: int = end) -> None:
                kernels.sgd_epoch(
                    problem.rows,
                    problem.targets,
                    weights,
                    order[begin:end],
                    problem.loss,
                    PLAIN,
                    state["W"],
                    state["bias"],
                    mean,
                    mean_bias,
                    problem.lam,
                    rate,
                    decay,
                    power,
                    batch,
                    constant(problem) ** 2 if gain is None else gain,
                    first + begin // batch,
                    averaged + begin // batch if averaged else 0,
                    lo,
                    hi,
                )

            run(part, outputs, threads)

    def _decay(self, problem: Problem, rate: float) -> tuple[float, float]:
        """``decay`` and ``power`` of ``eta_t = eta_0 (1 + decay t)^-power``."""
        return {
            "optimal": (problem.lam * rate, self.power),
            "constant": (0.0, 1.0),
            "tau": (1.0 / self.tau, 1.0),
            "inverse": (1.0, 1.0),
        }[self.gain]

    def _steps_of(self, problem: Problem) -> int:
        """Number of steps per pass."""
        return -(-problem.n_samples // self.batch_size)


class SGDStream:
    """Stochastic gradient descent on rows that arrive in a stream, each used once, in order.

    eta_0 and m are computed from the first rows and their sample weights. With ``average`` the mean starts with the
    weights after these rows.

    Parameters
    ----------
    solver : SGD
        The options.
    problem : Problem
        The problem of the first rows.
    vanishing : bool
        See `Solver.open_stream`.
    """

    def __init__(self, solver: SGD, problem: Problem, vanishing: bool) -> None:
        shape = problem.n_features, problem.n_outputs
        self._solver, self._vanishing = solver, vanishing
        self._rate = None if solver.eta0 is None else float(solver.eta0)
        self._gain = constant(problem) ** 2
        # The first rows may be of one class only, which says nothing about the intercepts.
        real = isinstance(problem.targets, RealTargets)
        bias = first_intercept(problem) if real else np.zeros(problem.n_outputs, problem.dtype)
        self._state: State = {"W": np.zeros(shape, problem.dtype), "bias": bias}
        self._mean = np.empty((0, 0), problem.dtype), np.empty(0, problem.dtype)
        self._steps = self._averaged = 0

    def take(self, problem: Problem, weights: Array | None) -> None:
        """Update the weights by the rows of a problem with sample weights ``weights``, not scaled."""
        solver, n = self._solver, problem.n_samples
        scaled = np.ones(n, problem.dtype) if weights is None else np.ascontiguousarray(weights, problem.dtype)
        order = np.arange(n, dtype=np.int32)
        if self._rate is None:
            self._rate = first_rate(problem, scaled)
        solver._steps(
            problem,
            self._state,
            order,
            self._steps,
            *self._mean,
            self._averaged,
            weights=scaled,
            rate=self._rate,
            gain=self._gain,
            vanishing=self._vanishing,
        )
        steps = -(-n // solver.batch_size)
        self._steps += steps
        if not solver.average:
            return
        if not self._averaged:
            self._mean = self._state["W"].copy(), self._state["bias"].copy()
            self._averaged = 1
        else:
            self._averaged += steps

    def weights(self) -> tuple[Array, Array]:
        """A copy of ``(W, b)``."""
        W, bias = self._mean if self._averaged else (self._state["W"], self._state["bias"])
        return W.copy(), bias.copy()


def first_rate(problem: Problem, weights: Array) -> float:
    """eta_0 of `SGD` for samples with these sample weights."""
    sizes = weights.astype(np.float64) * (problem.norms + constant(problem) ** 2)
    gamma = float(problem.loss.smoothness) or 1.0
    return 1.0 / (float(sizes.max(initial=0.0)) / gamma + problem.lam)
