"""The stochastic subgradient descent of MEMOIR, with rivals by maximum inner product search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.mips import SearchIndex
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import STREAM_DECAY
from manyclass.solvers.memoir.proposals import proposals
from manyclass.solvers.memoir.weights import DenseWeights, TableWeights, Weights, pair_scores, rows_of

__all__ = ["BALLS", "TRUNCATIONS", "MemoirLearner", "Passed", "pack_weights", "takes_table", "unpack_weights"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: How an l1 part is applied to the weights.
TRUNCATIONS = ("lazy", "touched")
#: The ball on which weights without an l1 part are projected.
BALLS = ("optimum", "printed")
#: Scalar attributes that checkpoints include.
_NUMBERS = ("scale", "squares", "steps", "seen", "total", "weight", "points", "epochs")
#: Rows per epoch for which an approximate search is compared with the exact one.
_JUDGED = 256
#: A scale below this is multiplied into the weights, to prevent underflow in float32.
_FOLD = 1e-10
#: Maximum number of weights for which an array is used instead of a table.
_DENSE = 1 << 25


@dataclass
class Passed:
    """Statistics of an epoch.

    Attributes
    ----------
    rows, updates : int
        Number of rows, and of those that changed the weights because their hinge loss was positive.
    loss : float
        Mean hinge loss of the rows, each before its own step, with the rivals that the search found.
    recall : float
        Fraction of the rows with a positive hinge loss for which the rival found scores as high as the best one: 1 for
        the exact search, else measured on a random part of the rows.
    margin_error : float
        Mean of the hinge loss less that with the rivals found, on the same rows; 0 for the exact search.
    """

    rows: int = 0
    updates: int = 0
    loss: float = 0.0
    recall: float = 1.0
    margin_error: float = 0.0


def takes_table(n_features: int, n_classes: int) -> bool:
    """Whether weights for sparse rows are stored in a table, because an array would be large."""
    return n_features * n_classes > _DENSE


class MemoirLearner:
    """Stochastic subgradient descent for the multi-class SVM, with rivals by maximum inner product search [1]_.

    Minimizes ``(1/n) sum_i c_i max(0, 1 + max_{r != y_i} x_i.(w_r - w_{y_i})) + alpha ((1 - l1_ratio)/2 ||W||^2 +
    l1_ratio ||W||_1)``. Step t, on a batch of b rows, with W = s U and a scalar s, is

        s = (1 - eta_t b alpha (1 - l1_ratio)) s                           O(1)
        r_i = the best rival of each row, by the search                    all rows at the same weights
        w_{y_i} += eta_t c_i x_i,  w_{r_i} -= eta_t c_i x_i                where 1 + x_i.(w_r - w_y) > 0
        W = soft(W, eta_t b alpha l1_ratio)                                l1; delayed until a feature is needed
        s = s min(1, 1 / (sqrt(alpha) ||W||))                              no l1; ||U||^2 is updated in each step

    A step costs the search, and the stored values of its rows times two classes. It uses the SUM of the gradients of
    the batch and the decay of b rows, so that the batch size does not change the objective. (Algorithm 1 of the paper
    decays by lam eta_t for any b, and projects on a ball of radius 1/sqrt(lam). Its lam is ``alpha b`` here, so that
    its ball may exclude the optimum, of which only ||W*|| <= 1/sqrt(alpha) is known: alpha ||W*||^2 <= mean c_i = 1;
    ``ball="printed"`` takes it.)

    *Lazy truncation* is exact: soft thresholds of an unchanged weight add up, so each feature stores the sum that has
    been applied to it, and the rest is applied when a row has the feature. ``truncation="touched"`` is Algorithm 2 of
    the paper: the classes R_t of the batch, all y_i and r_i, are thresholded at once by K / |R_t| times as much, which
    is unbiased only if all classes occur equally often.

    Parameters
    ----------
    n_features, n_classes : int
        Shape of the weights; classes can be added later (`grow`).
    dtype : {float32, float64}
        Type of the weights.
    alpha : float, default=1e-4
        Strength of the penalty, > 0.
    l1_ratio : float, default=0.0
        Fraction of the l1 part, in [0, 1].
    eta0 : float, default=0.1
        The first step size, > 0.
    eta_step : float, optional
        eta_t = eta0 / (1 + eta_step t) with t batches so far (as in the paper). None: eta0 / (1 + alpha eta0 i) with i
        rows so far.
    average : bool, default=False
        Whether to compute the mean of the weights after each step since the last epoch whose number is a power of two
        (at least over the last half of the run). Only without an l1 part.
    truncation : {"lazy", "touched"}, default="lazy"
        How the l1 part is applied, see above.
    ball : {"optimum", "printed"}, default="optimum"
        The radius of the ball, see above.
    search : SearchIndex or int, optional
        An index that proposes rivals. It is built from the weights, and updated for the changed classes after each
        batch. None: the exact search on the current weights, which needs no index. int: that search, but for each row
        at most so many blocks of classes are scored.
    sparse : bool, optional
        Whether to store only nonzero weights, in a table. None: if an array would be large.
    n_threads : int, default=1
        Threads of the search, >= 1; the result does not depend on it.

    References
    ----------
    .. [1] A. Belyy and A. Sholokhov, MEMOIR: multi-class extreme classification with inexact margin, 2018,
       Algorithms 1 and 2. Lazy scaling and projection: Shalev-Shwartz, Singer, Srebro and Cotter, Pegasos, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.datasets import make_many_classes
    >>> from manyclass.solvers.memoir.learner import MemoirLearner
    >>> X, y = make_many_classes(2000, 1000, 100, random_state=0)
    >>> learner = MemoirLearner(1000, 100, X.dtype, alpha=1e-4, eta0=0.5)
    >>> order = np.random.default_rng(0)
    >>> met = [learner.epoch(X, y, order.permutation(2000), batch_size=10) for _ in range(5)]
    >>> met[-1].loss < met[0].loss
    True
    >>> learner.weights().shape
    (1000, 100)
    """

    #: Whether alpha is 1 / (rows so far) of a stream, see `manyclass.solvers.base.STREAM_DECAY`.
    vanishing = False

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        dtype: Any,
        *,
        alpha: float = 1e-4,
        l1_ratio: float = 0.0,
        eta0: float = 0.1,
        eta_step: float | None = None,
        average: bool = False,
        truncation: str = "lazy",
        ball: str = "optimum",
        search: SearchIndex | int | None = None,
        sparse: bool | None = None,
        n_threads: int = 1,
    ) -> None:
        self.l2 = float(alpha * (1.0 - l1_ratio))
        self.l1 = float(alpha * l1_ratio)
        self.alpha, self.eta0, self.eta_step = float(alpha), float(eta0), eta_step
        self.truncation, self.ball = truncation, ball
        self.n_threads = n_threads
        if sparse is None:
            sparse = takes_table(n_features, n_classes)
        self._make: Callable[..., Weights] = TableWeights if sparse else DenseWeights
        self.U: Weights = self._make(n_features, n_classes, dtype, n_threads)
        self.scale, self.squares = 1.0, 0.0
        self.steps, self.seen = 0, 0
        # Lazy truncation: the sum of all thresholds for U, and the part of it that each feature has received.
        self.total = 0.0
        self.stamp = np.zeros(n_features)
        # The mean of W_t = s_t U_t over ``points`` steps is (weight U - lag) / points, with weight = sum_t s_t, and lag
        # the sum of the changes of U, each times the weight before it.
        self.lag: Weights | None = self._make(n_features, n_classes, dtype, n_threads) if average else None
        self.weight, self.points, self.epochs = 0.0, 0, 0
        exact = self.l1 > 0 and truncation == "touched"
        self.proposals = proposals(search, exact) if isinstance(search, SearchIndex) else None
        #: Blocks of classes that are scored for a row; 0: as many as can hold its rival.
        self.most = 0 if search is None or isinstance(search, SearchIndex) else int(search)
        self._build()

    def _build(self) -> None:
        if self.proposals is not None:
            self.proposals.build(self.U, self.n_threads)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.stamp)

    @property
    def n_classes(self) -> int:
        """Number of classes so far."""
        return self.U.n_classes

    @property
    def nbytes(self) -> int:
        """Size in bytes of the weights, including those of the mean, and of the index."""
        parts = [self.U, *([] if self.lag is None else [self.lag])]
        held = sum(part.nbytes for part in parts) + int(self.stamp.nbytes)
        return held + (0 if self.proposals is None else self.proposals.nbytes)

    def grow(self, n_classes: int) -> None:
        """Increase the number of classes to ``n_classes``; new ones have weights 0."""
        more = n_classes > self.n_classes
        self.U.grow(n_classes)
        if self.lag is not None:
            self.lag.grow(n_classes)
        if self.proposals is not None and more:
            self.proposals.grow(self.U)

    def start(self, weights: Any) -> None:
        """Start from weights, an array or CSR matrix of shape (n_features, n_classes); call before the first step."""
        self.U.put(weights)
        self.squares = self.U.squares()
        self._build()

    # --- steps ------------------------------------------------------------------------------------------------------

    def epoch(
        self, X: Any, y: Array, order: Array, *, batch_size: int, weights: Array | None = None, judge_seed: int = 0
    ) -> Passed:
        """One pass over the rows ``order`` of X, in batches.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features)
            All rows.
        y : ndarray of int of shape (n,)
            Class of each row.
        order : ndarray of int
            Row indices, in the order in which rows are used.
        batch_size : int
            Rows per step, >= 1.
        weights : ndarray of shape (n,), optional
            Sample weights c_i. None: all 1.
        judge_seed : int, default=0
            Seed for the choice of the rows on which an approximate search is compared with the exact one.

        Returns
        -------
        Passed
            Statistics of the epoch.
        """
        if self.lag is not None and self.epochs & (self.epochs - 1) == 0:
            self._restart_mean()
        met, judged = Passed(), _Judged()
        chosen = np.zeros(len(order), bool)
        if self.proposals is not None or self.most:
            rng = np.random.default_rng([judge_seed, self.epochs])
            chosen[rng.permutation(len(order))[:_JUDGED]] = True
        for begin, end in ranges(len(order), batch_size):
            some = order[begin:end]
            batch = rows_of(X, some, self.U.dtype)
            c = None if weights is None else weights[some]
            self.step(batch, np.ascontiguousarray(y[some], np.int32), c, met, chosen[begin:end], judged)
        self.epochs += 1
        self._tidy()
        if met.rows:
            met.loss /= met.rows
        if judged.count:
            met.recall, met.margin_error = judged.right / judged.count, judged.error / judged.count
        return met

    def step(
        self,
        batch: Any,
        y: Array,
        weights: Array | None = None,
        met: Passed | None = None,
        chosen: Array | None = None,
        judged: _Judged | None = None,
    ) -> None:
        """One step on a batch of rows: a CSR matrix from `rows_of`, and int32 classes y; arguments as for `epoch`."""
        eta, b = self._eta(), len(y)
        if self.l1 and self.truncation == "lazy":
            self.U.settle(batch.indices, self.total, self.stamp)
        self.scale *= 1.0 - eta * b * self.l2
        if self.scale < _FOLD:
            self._fold()
        rivals, best, own = self._rivals(batch, y)
        hinge = 1.0 + self.scale * (best.astype(np.float64) - own.astype(np.float64))
        if judged is not None and chosen is not None and chosen.any():
            judged.take(*self._judge(batch[chosen], y[chosen], best[chosen]))
        inside = hinge > 0
        moves = np.where(inside, eta / self.scale, 0.0)
        if weights is not None:
            moves *= weights
            hinge = hinge * weights
        self._add(batch, y, rivals, moves)
        self._shrink(eta, y, rivals)
        if self.lag is not None:
            self.weight += self.scale
            self.points += 1
        if self.proposals is not None:
            self.proposals.follow(self.U, y, rivals, moves)
        self.steps += 1
        self.seen += b
        if met is not None:
            met.rows += b
            met.updates += int(np.count_nonzero(inside))
            met.loss += float(hinge[inside].sum())

    def _add(self, batch: Any, y: Array, rivals: Array, moves: Array) -> None:
        """Add the rows of a step to U and to the mean, on a thread each."""
        kept = () if self.proposals is None else (self.proposals.squares,)
        sums = [(self.U, moves, kept)]
        if self.lag is not None:
            sums.append((self.lag, moves * self.weight, ()))

        def task(a: int, _: int) -> float:
            weights, steps, squares = sums[a]
            return weights.add(batch, y, rivals, steps, *squares)

        self.squares += run(task, ranges(len(sums), 1), self.n_threads)[0]

    def _eta(self) -> float:
        if self.eta_step is not None:
            return self.eta0 / (1.0 + self.eta_step * self.steps)
        if self.vanishing:
            return float(self.eta0 / (1.0 + STREAM_DECAY * self.seen) ** 0.5)
        return self.eta0 / (1.0 + self.alpha * self.eta0 * self.seen)

    def _shrink(self, eta: float, y: Array, rivals: Array) -> None:
        """Apply the l1 truncation, or without an l1 part the projection on the ball."""
        b = len(y)
        strength = self.l2 * b if self.ball == "printed" else self.l2
        if self.l1:
            tau = eta * b * self.l1 / self.scale
            if self.truncation == "lazy":
                self.total += tau
            else:
                touched = np.zeros(self.n_classes, bool)
                touched[y] = touched[rivals] = True
                self.U.truncate(touched, tau * self.n_classes / np.count_nonzero(touched))
        elif strength * self.scale**2 * self.squares > 1.0:
            self.scale = 1.0 / math.sqrt(strength * self.squares)

    def _rivals(self, batch: Any, y: Array) -> tuple[Array, Array, Array]:
        if self.proposals is None:
            # "touched" needs the best rivals of all rows, not only of those with a positive hinge loss.
            wanted = 0.0 if self.l1 and self.truncation == "touched" else self.scale
            return self.U.rivals(batch, y, self.n_threads, wanted, self.most)
        rivals = self.proposals.rivals(self.U, batch, y, self.n_threads)
        best, own = pair_scores(self.U, batch, rivals, y)
        # With scores <= 0 rivals are tied or nearly so, and an index may return the same class for all rows: the class
        # after y is used if its score is not lower.
        poor = np.flatnonzero(best <= 0)
        if len(poor):
            after = ((y[poor] + 1) % self.n_classes).astype(np.int32)
            score, _ = pair_scores(self.U, batch[poor], after, y[poor])
            better = score >= best[poor]
            rivals[poor[better]], best[poor[better]] = after[better], score[better]
        return rivals, best, own

    def _judge(self, batch: Any, y: Array, found: Array) -> tuple[int, int, float]:
        _, best, own = self.U.rivals(batch, y, self.n_threads)
        losses = [1.0 + self.scale * (scores.astype(np.float64) - own) for scores in (best, found)]
        inside = losses[0] > 0
        # Both scores are sums in different orders, so they are compared up to rounding.
        slack = 100 * float(np.finfo(best.dtype).eps) * np.abs(best)
        error = np.maximum(losses[0] - np.maximum(losses[1], 0.0), 0.0)
        right = found >= best - slack
        return int(inside.sum()), int(np.count_nonzero(right & inside)), float(error[inside].sum())

    # --- scale and mean ---------------------------------------------------------------------------------------------

    def _settle_all(self) -> None:
        if self.l1 and self.truncation == "lazy":
            self.U.settle(np.arange(self.n_features), self.total, self.stamp)

    def _fold(self) -> None:
        self._settle_all()
        self.U.scale(self.scale)
        if self.lag is not None:
            # weight U - lag, the sum of the W_t, does not change.
            self.weight /= self.scale
        self.squares *= self.scale**2
        self.total, self.scale = 0.0, 1.0
        self.stamp[:] = 0.0
        self._build()

    def _restart_mean(self) -> None:
        self.lag = self._make(self.n_features, self.n_classes, self.U.dtype, self.n_threads)
        self.weight, self.points = 0.0, 0

    def _tidy(self) -> None:
        """Bring the state, after an epoch, into the form that `unpack` restores, so that a resumed run is identical.

        ||U||^2 is recomputed, because updates accumulate rounding errors.
        """
        self._settle_all()
        self.U.tidy()
        if self.lag is not None:
            self.lag.tidy()
        self.squares = self.U.squares()
        if self.proposals is not None:
            self.proposals.tidy(self.U, self.n_threads)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def pack(self) -> dict[str, Array]:
        """The state as arrays, without the index, which `unpack` builds from the weights."""
        numbers = [getattr(self, name) for name in _NUMBERS]
        found = {"numbers": np.array(numbers, np.float64), "stamp": self.stamp, "pace": self.U.pace()}
        found |= {f"U.{name}": array for name, array in pack_weights(self.U.export()).items()}
        if self.lag is not None:
            found |= {f"lag.{name}": array for name, array in pack_weights(self.lag.export()).items()}
        return found

    def unpack(self, arrays: dict[str, Array]) -> None:
        """Load the arrays that `pack` returned into a new learner."""
        for name, value in zip(_NUMBERS, arrays["numbers"].tolist()):
            setattr(self, name, type(getattr(self, name))(value))
        self.stamp[:] = arrays["stamp"]
        for part, weights in (("U.", self.U), ("lag.", self.lag)):
            own = {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
            if weights is not None:
                weights.put(unpack_weights(own, weights.dtype))
        self.U.resume(arrays["pace"])
        self._build()

    # --- results ----------------------------------------------------------------------------------------------------

    def norm(self) -> float:
        """||W|| after the last step."""
        return self.scale * math.sqrt(max(self.squares, 0.0))

    def weights(self) -> Any:
        """A copy of W, or of its mean with ``average``: an array, or a CSR matrix without stored zeros."""
        self._settle_all()
        U = self.U.export()
        real = self.U.dtype.type
        if self.lag is not None and self.points:
            U = U * real(self.weight / self.points) - self.lag.export() * real(1.0 / self.points)
        else:
            U = U * real(self.scale)
        if sp.issparse(U):
            U.eliminate_zeros()
        return U


def pack_weights(weights: Any) -> dict[str, Array]:
    """An array or a CSR matrix as a dictionary of arrays."""
    if not sp.issparse(weights):
        return {"dense": weights}
    shape = np.asarray(weights.shape, np.int64)
    return {"data": weights.data, "indices": weights.indices, "indptr": weights.indptr, "shape": shape}


def unpack_weights(arrays: dict[str, Array], dtype: Any) -> Any:
    """The array or CSR matrix from the dictionary of `pack_weights`."""
    if "dense" in arrays:
        return arrays["dense"]
    parts = arrays["data"], arrays["indices"], arrays["indptr"]
    return sp.csr_matrix(parts, shape=tuple(arrays["shape"].tolist()), dtype=dtype)


class _Judged:
    """Sums over the rows on which a search is compared with the exact one."""

    def __init__(self) -> None:
        self.count, self.right, self.error = 0, 0, 0.0

    def take(self, count: int, right: int, error: float) -> None:
        self.count, self.right, self.error = self.count + count, self.right + right, self.error + error
