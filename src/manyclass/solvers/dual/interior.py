"""A primal-dual interior point method for the hinge losses: few iterations at any penalty, of cubic cost in d."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas

from manyclass.kernels.targets import ClassTargets, SignTargets
from manyclass.objective.losses import CrammerSingerLoss, SmoothHingeLoss, SquaredHingeLoss
from manyclass.objective.penalties import L2
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.threads import ranges
from manyclass.solvers.base import Progress, Solver, State, row_matrix
from manyclass.solvers.dual.condition import condition
from manyclass.solvers.least_squares.systems import FACTORED, Factor, needed

__all__ = ["InteriorPoint", "suits_interior_point"]

#: Elements of a chunk of rows.
_CHUNK = 2**21
#: Fraction of the way to the boundary that a step takes.
_FRACTION = 0.99
#: Penalty of the intercept in a system, in units of the number of rows: keeps it definite where no row is curved.
_DAMPING = 1e-10
#: Mean complementarity below which the point is left as it is: rounding decides what a further step would do.
_LEAST = 1e-14
#: A proximal term of the duals, as a multiple of R^2 / lam: bounds the condition number of the systems. Of 120 fits of
#: iris, wine and digits, raw and standardized, alpha 1e-4 to 1e-8, 83 reach their tol; with a tenth of it 79.
_PROXIMAL = 1e-10
#: Passes over the data in an iteration: scores, matrix, two right-hand sides with their scores, and a certificate.
_PASSES = 8.0


#: The losses whose conjugate is quadratic on a box or a simplex.
_LOSSES: tuple[Any, ...] = CrammerSingerLoss, SmoothHingeLoss, SquaredHingeLoss


#: `suits_interior_point`: R^2 / (gamma lam n) above which the method is taken, with R^2 the mean squared norm of a row;
#: the least gamma there; operations of an iteration, a second or two; dual variables. Ten times the first number where
#: an iteration takes more than `_MUCH_WORK` operations: optdigits, Crammer-Singer, alpha 1e-5: 6 s, acceleration 0.8 to
#: 1.9; at 1e-6 with an intercept this has no certificate after 1000 iterations. USPS, squared hinge, 1e-6: 10 and 2 s.
_HARD, _LEAST_GAMMA, _WORK, _DUALS = 5e3, 1e-3, 5e10, 5_000_000
_MUCH_WORK = 1e9
#: The same for Crammer and Singer's loss with more than this many rows per unknown of a system, which no wide margin
#: separates: letter, covtype and 50 components of MNIST are certified by `AcceleratedSDCA` down to alpha 1e-7, in a
#: quarter of the time. Set when segment, optdigits and USPS, with 13 and fewer, were not certified at 1e-5, before that
#: solver recomputed its dual images in float32.
_ENOUGH, _HARD_JOINT = 15.0, 1e6
#: Without smoothing: the method is taken if R^2 / (lam n), with R^2 the LARGEST squared norm, exceeds the first number
#: times the square of the rows per unknown of a system, or the second number, or ten times the smaller of the two where
#: an iteration takes more than the third number of operations, about a second. Few rows per unknown can be separated by
#: a wide margin, which makes dual ascent slow. In single fits of covtype, USPS, letter, pendigits, digits, 50
#: components of MNIST and generated embeddings, alpha 1e-2 to 1e-7, `AcceleratedSDCA` is up to 27 times as fast, but
#: above these it mostly has no certified 1e-3 after 1000 iterations.
_PER_SQUARE, _MOST_HARD, _LONG_WORK = 5.0, 2e4, 1e10
#: Operations of an iteration below which Crammer and Singer's loss and the hinge are fitted by it however
#: well-conditioned: hundredths of a second. Of 72 fits of iris and wine by Crammer and Singer's loss it certified all,
#: Prox-SDCA 51, accelerated 54, before that took the mean of the dual points.
_TINY_WORK = 5e6


def suits_interior_point(problem: Problem) -> bool:
    """Whether the interior point method is taken for a problem with an l2 penalty: see the constants above.

    Set from single runs on six data sets with 10 to 300 features at alpha 1e-2 to 1e-6, whose rows are not stored;
    `benchmarks run certified_epochs` counts such fits.
    """
    if not isinstance(problem.loss, _LOSSES) or not isinstance(problem.penalty, L2) or problem.shift is not None:
        return False
    n, K, size = problem.n_samples, problem.n_outputs, _unknowns(problem)
    work = float(n) * size**2 * (1 if problem.loss.joint else K)
    if size >= FACTORED or work > _WORK or n * K > _DUALS:
        return False
    kinked = not problem.loss.smoothness
    if (problem.loss.joint or kinked) and work <= _TINY_WORK:
        return True
    if kinked:
        hard = min(_PER_SQUARE * (n / size) ** 2, _MOST_HARD) * (10.0 if work > _LONG_WORK else 1.0)
        return condition(problem, 1.0) > hard
    hard = _HARD if work <= _MUCH_WORK else 10.0 * _HARD
    if problem.loss.joint and n > _ENOUGH * size:
        hard = _HARD_JOINT
    return _mean_norm(problem) * problem.inv_lam_n > hard * max(float(problem.loss.smoothness), _LEAST_GAMMA)


class InteriorPoint(Solver):
    """Primal-dual interior point method for the hinge losses and an l2 penalty: tens of iterations at any alpha.

    The dual variables stay inside their domain (a box for the hinges, a simplex for Crammer and Singer's loss); steps
    are those of Mehrotra's predictor-corrector method. By the Woodbury identity the linear system of a step, in n dual
    variables, becomes one in d weights, with the matrix X^T diag(theta) X + lam n I, for each output; for Crammer and
    Singer's loss one system has the weights of all classes. For rows with few features and weak penalties, where
    coordinate ascent takes thousands of epochs. The hinge needs no smoothing.

    An iteration takes 8 passes over the data, and n K d^2 operations for the matrices, by BLAS; for Crammer and
    Singer's loss n (K d)^2. Memory: K (d + 1)^2 numbers in float64, for Crammer and Singer's loss (K (d + 1))^2, and
    about 12 n K. All arithmetic is in float64. A warm start has no effect: points near the boundary are bad starts.

    Raises
    ------
    ValueError
        If the loss is not a hinge, squared hinge, smooth hinge or Crammer-Singer loss, the penalty is not l2, or a
        system has 10 000 unknowns or more.

    References
    ----------
    Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optimization 1992. Ferris and
    Munson, "Interior-point methods for massive support vector machines", SIAM J. Optimization 2002, for the systems in
    d unknowns.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import LinearClassifier
    >>> from manyclass.solvers import InteriorPoint
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LinearClassifier("hinge", solver=InteriorPoint(), alpha=1e-6, tol=1e-4).fit(X / 16, y)
    >>> bool(model.duality_gap_ <= 1e-4), model.n_iter_ < 60
    (True, True)
    """

    name = "interior_point"
    summary = "interior point method; hinge losses, few features, weak penalties"
    synonyms: ClassVar[tuple[str, ...]] = ("ipm", "barrier")
    needs_loss = frozenset({"conjugate", "dual_step"})
    needs_penalty = frozenset({"gradient"})
    certifies = True

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if not isinstance(problem.loss, _LOSSES):
            raise ValueError(
                f"solver {self.name!r} needs a hinge loss (hinge, smooth_hinge, squared_hinge, crammer_singer), got "
                f"{problem.loss.name!r}: choose another solver (solver='auto' chooses for you)"
            )
        if (size := _unknowns(problem)) >= FACTORED:
            raise ValueError(
                f"solver {self.name!r} factors matrices and needs systems of fewer than {FACTORED} unknowns, got {size}"
                + (" (features and intercept, times classes)" if problem.loss.joint else " (features and intercept)")
                + ": choose another solver (solver='auto' chooses for you)"
            )

    def state(self, problem: Problem) -> State:
        return {
            "iteration": np.zeros((), np.int64),
            "passes": np.zeros(()),
            "V": problem.zeros(),
            "bias": np.zeros(problem.n_outputs, problem.dtype),
            "live": np.zeros(problem.n_outputs),
            **_domain(problem).start(),
        }

    def warm(self, problem: Problem, state: State) -> State:
        """A fresh state: see the class."""
        return self.state(problem)

    def nbytes(self, problem: Problem) -> dict[str, int]:
        count = 1 if problem.loss.joint else problem.n_outputs
        return {
            "weights": 2 * problem.n_features * problem.n_columns * problem.dtype.itemsize,
            "dual variables, multipliers and their steps": 20 * 8 * problem.n_samples * problem.n_outputs,
            "chunks of rows": 3 * 8 * max(_CHUNK, _unknowns(problem)),
            **{what: count * size for what, size in needed(_unknowns(problem)).items()},
        }

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        domain = _domain(problem)
        while True:
            size = domain.complementarity(state, 0.0)
            if size.max() > _LEAST:
                with np.errstate(over="ignore", invalid="ignore"):  # rows of a huge scale: the certificate tells
                    system = _System(problem, domain, state)
                    domain.aim(state, None)
                    system.move(state)
                    after = domain.complementarity(state, np.minimum(1.0, domain.reach(state)))
                    domain.aim(state, (after / np.maximum(size, _LEAST)) ** 3 * size)
                    change = system.move(state)
                    step = np.where(size > _LEAST, np.minimum(1.0, _FRACTION * domain.reach(state)), 0.0)
                    domain.advance(state, step)
                    if problem.intercept:
                        state["live"] = state["live"] + step * change[-1]
            state["iteration"] = np.asarray(state["iteration"] + 1)
            state["passes"] = np.asarray(state["passes"] + _PASSES)
            found = self.certificate(problem, state, final=True)
            yield Progress(int(state["iteration"]), float(state["passes"]), found)

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        # D in float64: with a weak penalty, dual variables rounded to float32 are far from the maximum.
        domain = _domain(problem)
        dual, weights = domain.dual(state), domain.weights
        if problem.intercept:
            problem.balance(dual)
        V = _pulled(problem, weights * dual)[: problem.n_features] * problem.inv_lam_n
        state["V"][:, : problem.n_outputs] = V
        state["bias"] = state["live"].astype(problem.dtype)
        value = float(np.sum(weights * domain.objective(dual))) / problem.n_samples
        return problem.bounds(
            primal=problem.value(self.weights(problem, state)[0], state["bias"]),
            dual=value - 0.5 * problem.lam * float(np.vdot(V, V)),
        )

    def weights(self, problem: Problem, state: State) -> tuple[Array, Array]:
        return np.ascontiguousarray(state["V"][:, : problem.n_outputs]), state["bias"]


class _Domain(ABC):
    """The bounds of the dual variables: slacks s > 0 and their multipliers m > 0, arrays (n, K) of the state by name.

    The conditions of the optimum are s m = 0 and, with a residual r, that the derivative of the objective vanishes. A
    step is for s m = target. It changes the dual vectors by G - D M, where M is the change of the scores.
    """

    #: Names of slacks and their multipliers.
    pairs: tuple[tuple[str, str], ...]
    #: The axes that independent problems share: complementarity and step sizes are arrays with one value for each.
    shared: int | None = None
    #: What `linearize` sets: the residual, and the curvature of the duals.
    residual: Array
    theta: Array

    def __init__(self, problem: Problem) -> None:
        self.steps: dict[str, Array] = {}
        self.weights = np.asarray(problem.sample_weight, np.float64)[:, None]
        self.proximal = _PROXIMAL * _mean_norm(problem) / problem.lam
        self._missing: dict[str, Array] = {}

    @abstractmethod
    def start(self) -> State:
        """The first point."""

    @abstractmethod
    def dual(self, state: State) -> Array:
        """The dual vectors, (n, K)."""

    @abstractmethod
    def objective(self, dual: Array) -> Array:
        """-phi*(-a) of each entry of dual vectors."""

    @abstractmethod
    def linearize(self, state: State, S: Array) -> None:
        """Set ``residual`` and ``theta`` at scores S."""

    @abstractmethod
    def add_curvature(self, x: Array, weights: Array, begin: int, end: int, matrices: list[Array]) -> None:
        """Add ``x' c D x`` of rows ``x``, begin <= i < end, to the upper triangles of the matrices of the systems."""

    @abstractmethod
    def push(self, state: State) -> Array:
        """G, (n, K), for the last `aim`."""

    @abstractmethod
    def move(self, state: State, M: Array) -> None:
        """Set ``steps`` for the change M of the scores."""

    def complementarity(self, state: State, step: Any) -> Array:
        """The mean of s m after a step. Weighted rows count as repeated ones."""
        found = 0.0
        for pair in self.pairs:
            slack, multiplier = (state[name] + step * self.steps.get(name, 0.0) for name in pair)
            found = found + np.mean(self.weights * slack * multiplier, axis=self.shared)
        return np.atleast_1d(np.asarray(found) / len(self.pairs))

    def aim(self, state: State, target: Array | None) -> None:
        """Prepare a step to complementarity ``target``, with the second-order terms of the last step; None: to 0."""
        for slack, multiplier in self.pairs:
            missing = -state[slack] * state[multiplier]
            if target is not None:
                missing += target - self.steps[slack] * self.steps[multiplier]
            self._missing[slack] = missing

    def reach(self, state: State) -> Array:
        """The longest steps to the boundary."""
        found: Any = np.inf
        with np.errstate(divide="ignore", over="ignore"):
            for name in (name for pair in self.pairs for name in pair):
                step = self.steps[name]
                ratio = np.where(step < 0, -state[name] / np.where(step < 0, step, -1.0), np.inf)
                found = np.minimum(found, ratio.min(axis=self.shared))
        return np.atleast_1d(found)

    def advance(self, state: State, step: Array) -> None:
        """Take the steps."""
        for name, move in self.steps.items():
            state[name] = state[name] + step * move

    def _follow(self, state: State) -> None:
        """The steps of the multipliers, from those of the slacks; rows of weight 0 stay where they are."""
        for slack, multiplier in self.pairs:
            self.steps[slack] *= self.weights > 0
            self.steps[multiplier] = (self._missing[slack] - state[multiplier] * self.steps[slack]) / state[slack]
            self.steps[multiplier] *= self.weights > 0


class _Box(_Domain):
    """Separable hinges: a = y b, with slacks b and, unless the domain is b >= 0, 1 - b."""

    shared = 0

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        loss, targets = problem.loss, problem.targets
        assert isinstance(targets, SignTargets)
        bounded = isinstance(loss, SmoothHingeLoss)
        self.gamma = float(loss.gamma) if bounded else 0.5
        self.pairs = (("b", "z"), ("rest", "u")) if bounded else (("b", "z"),)
        shape = problem.n_samples, problem.n_outputs
        positive = sp.csr_matrix((np.full(len(targets.indices), 2.0), targets.indices, targets.indptr), shape)
        self.y = positive.toarray() - 1.0

    def start(self) -> State:
        values = {"b": 0.5, "z": 1.0, "rest": 0.5, "u": 1.0}
        return {name: np.full(self.y.shape, values[name]) for pair in self.pairs for name in pair}

    def dual(self, state: State) -> Array:
        return np.asarray(self.y * state["b"])

    def objective(self, dual: Array) -> Array:
        b = np.abs(dual)
        return np.asarray(b - 0.5 * self.gamma * b * b)

    def linearize(self, state: State, S: Array) -> None:
        self.residual = 1.0 - self.y * S - self.gamma * state["b"] + state["z"]
        curved = self.gamma + self.proximal + state["z"] / state["b"]
        if len(self.pairs) > 1:
            self.residual -= state["u"]
            curved += state["u"] / state["rest"]
        self.theta = 1.0 / curved

    def add_curvature(self, x: Array, weights: Array, begin: int, end: int, matrices: list[Array]) -> None:
        roots = np.sqrt(weights * self.theta[begin:end])
        for k, matrix in enumerate(matrices):
            _add_square(x * roots[:, k, None], matrix)

    def push(self, state: State) -> Array:
        self._pull = self.residual + self._missing["b"] / state["b"]
        if len(self.pairs) > 1:
            self._pull -= self._missing["rest"] / state["rest"]
        return np.asarray(self.y * self.theta * self._pull)

    def move(self, state: State, M: Array) -> None:
        self.steps["b"] = self.theta * (self._pull - self.y * M)
        if len(self.pairs) > 1:
            self.steps["rest"] = -self.steps["b"]
        self._follow(state)


class _Simplex(_Domain):
    """Crammer and Singer's loss: a = e_y - p with p in the simplex, where p_y is the slack of sum_{j != y} p_j <= 1."""

    pairs = (("p", "z"),)

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert isinstance(problem.targets, ClassTargets)
        self.at = np.arange(problem.n_samples), np.asarray(problem.targets.y)
        self.others = np.ones((problem.n_samples, problem.n_outputs))
        self.others[self.at] = 0.0
        costs = problem.loss.costs
        #: c_yj of the rivals of each row, and 0 for its own class.
        self.costs = self.others * (costs[self.at[1] if len(costs) > 1 else 0] if len(costs) else 1.0)
        self.gamma = float(problem.loss.gamma)

    def start(self) -> State:
        n, K = self.others.shape
        p = np.full((n, K), 0.5 / max(K - 1, 1))
        p[self.at] = 0.5 if K > 1 else 1.0
        return {"p": p, "z": np.ones((n, K)), "level": np.zeros((n, 1))}

    def dual(self, state: State) -> Array:
        return np.asarray(1.0 - self.others - state["p"])

    def objective(self, dual: Array) -> Array:
        p = -dual * self.others
        return np.asarray(self.costs * p - 0.5 * self.gamma * p * p)

    def linearize(self, state: State, S: Array) -> None:
        gamma = self.gamma * self.others
        self.residual = self.costs + S - gamma * state["p"] + state["z"] - state["level"]
        self.theta = 1.0 / (gamma + self.proximal + state["z"] / state["p"])
        self._total = self.theta.sum(axis=1, keepdims=True)

    def add_curvature(self, x: Array, weights: Array, begin: int, end: int, matrices: list[Array]) -> None:
        # D = diag(theta) - theta theta' / sum(theta).
        (matrix,) = matrices
        theta, q = self.theta[begin:end], x.shape[1]
        share = theta * np.sqrt(weights / self._total[begin:end])
        _add_square((share[:, :, None] * x[:, None, :]).reshape(len(x), -1), matrix, -1.0)
        roots = np.sqrt(weights * theta)
        for k in range(theta.shape[1]):
            block = np.zeros((q, q), order="F")
            _add_square(x * roots[:, k, None], block)
            matrix[k * q : (k + 1) * q, k * q : (k + 1) * q] += block

    def push(self, state: State) -> Array:
        self._pull = self.residual + self._missing["p"] / state["p"]
        return -self._projected(self._pull)[0]

    def move(self, state: State, M: Array) -> None:
        self.steps["p"], self.steps["level"] = self._projected(self._pull + M)
        self._follow(state)

    def _projected(self, pull: Array) -> tuple[Array, Array]:
        """D times ``pull``, and the change of the multiplier of sum p = 1."""
        moved = self.theta * pull
        level = moved.sum(axis=1, keepdims=True) / self._total
        return moved - self.theta * level, level


class _System:
    """The linear systems of an iteration, factored: (X' c D X + lam n I) change = X' c G, with the intercept's row.

    The dual image is linear in the duals, so that the change of the weights is X' c (G - D M) / (lam n), with M = X
    change. The intercept, the weight of a constant feature, has no penalty; its equation is that the duals balance.
    """

    def __init__(self, problem: Problem, domain: _Domain, state: State) -> None:
        self.problem, self.domain = problem, domain
        self.weights = domain.weights
        n, d, K, q = problem.n_samples, problem.n_features, problem.n_outputs, _width(problem)
        self.sums = _pulled(problem, self.weights * domain.dual(state))
        point = self.sums * problem.inv_lam_n
        if problem.intercept:
            point[-1] = state["live"]
        domain.linearize(state, _scores(problem, point))
        self.ridge = np.full(q, problem.lam * n)
        self.ridge[d:] = _DAMPING * n
        joint = problem.loss.joint
        size, count = (q * K, 1) if joint else (q, K)
        matrices = [np.zeros((size, size), order="F") for _ in range(count)]
        for begin, end, x in _chunks(problem, size if joint else q):
            domain.add_curvature(x, self.weights[begin:end], begin, end, matrices)
        for matrix in matrices:
            matrix.flat[:: size + 1] += np.tile(self.ridge, size // q)
        # `Factor` reads the lower triangle of an array in C order.
        self.factors = [Factor(matrix.T) for matrix in matrices]

    def move(self, state: State) -> Array:
        """Let the domain compute its steps; returns the change of the weights, (d, K), and of the intercept, if any."""
        right = _pulled(self.problem, self.weights * self.domain.push(state))
        if self.problem.intercept:
            right[-1] += self.sums[-1]
        if len(self.factors) == 1:
            change = self.factors[0].solve(right.T.reshape(-1, 1)).reshape(right.T.shape).T
        else:
            change = np.hstack([f.solve(right[:, [k]]) for k, f in enumerate(self.factors)])
        self.domain.move(state, _scores(self.problem, change))
        return change


def _chunks(problem: Problem, width: int) -> Iterator[tuple[int, int, Array]]:
    """Rows in float64, with the constant feature, so many that ``width`` numbers for each are `_CHUNK` numbers."""
    X, d, q = row_matrix(problem), problem.n_features, _width(problem)
    for begin, end in ranges(problem.n_samples, max(1, _CHUNK // width)):
        part = X[begin:end].toarray() if sp.issparse(X) else X[begin:end]
        x = np.ones((end - begin, q))
        x[:, :d] = part
        yield begin, end, x


def _pulled(problem: Problem, A: Array) -> Array:
    """``X' A``, with the constant feature."""
    found = np.zeros((_width(problem), A.shape[1]))
    X = row_matrix(problem)
    if sp.issparse(X):
        found[: problem.n_features] = X.T @ A
        found[problem.n_features :] = A.sum(axis=0)
        return found
    for begin, end, x in _chunks(problem, len(found)):
        found += x.T @ A[begin:end]
    return found


def _scores(problem: Problem, W: Array) -> Array:
    """``X W``, with the constant feature."""
    X, d = row_matrix(problem), problem.n_features
    if sp.issparse(X):
        return np.asarray(X @ W[:d] + W[d:].sum(axis=0))
    found = np.empty((problem.n_samples, W.shape[1]))
    for begin, end, x in _chunks(problem, len(W)):
        np.matmul(x, W, out=found[begin:end])
    return found


def _add_square(x: Array, matrix: Array, sign: float = 1.0) -> None:
    """``matrix += sign x' x`` in place: the upper triangle of an array in Fortran order."""
    blas.dsyrk(sign, x.T, beta=1.0, c=matrix, overwrite_c=1)


def _domain(problem: Problem) -> _Domain:
    return _Simplex(problem) if problem.loss.joint else _Box(problem)


def _mean_norm(problem: Problem) -> float:
    """R^2, the mean squared norm of a row."""
    return float(np.average(problem.norms, weights=problem.sample_weight))


def _width(problem: Problem) -> int:
    """Number of features, with that of the intercept."""
    return problem.n_features + int(problem.intercept)


def _unknowns(problem: Problem) -> int:
    """Unknowns of a system."""
    return _width(problem) * (problem.n_outputs if problem.loss.joint else 1)
