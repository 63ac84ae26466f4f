"""MEMOIR: the multi-class SVM by stochastic steps on a row's class and its best rival, which a search proposes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.mips import SearchIndex
from manyclass.runtime.threads import ranges
from manyclass.solvers.base import STREAM_DECAY
from manyclass.solvers.memoir.weights import DenseWeights, TableWeights, Weights, pair_scores, rows_of

__all__ = ["TRUNCATIONS", "MemoirLearner", "Passed", "pack_weights", "takes_table", "unpack_weights"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: How an l1 part acts on the weights.
TRUNCATIONS = ("lazy", "touched")
#: What it counts and scales by, kept in checkpoints.
_NUMBERS = ("scale", "squares", "steps", "seen", "total", "weight", "points", "epochs")
#: Queries of an epoch for which a search that is not exact is judged by the exact one.
_JUDGED = 256
#: A scale below this is multiplied into the weights: far from underflow, also of float32.
_FOLD = 1e-10
#: Numbers of an array of weights up to which it is taken instead of a table.
_DENSE = 1 << 25


@dataclass
class Passed:
    """What one epoch met.

    Attributes
    ----------
    rows, updates : int
        Rows seen, and those of them within the margin: they moved the weights.
    loss : float
        Mean hinge loss of the rows as they came, before they were learnt, by the rivals found.
    recall : float
        Of the search, the part of its rivals that were as good as the best: 1 where it is exact, else measured on a
        sample.
    margin_error : float
        How far the margins found were above the exact ones, the mean of that sample.
    """

    rows: int = 0
    updates: int = 0
    loss: float = 0.0
    recall: float = 1.0
    margin_error: float = 0.0


def takes_table(n_features: int, n_classes: int) -> bool:
    """Whether weights for sparse rows are held in a table: where an array would be large."""
    return n_features * n_classes > _DENSE


class MemoirLearner:
    """Stochastic subgradient descent for the multi-class SVM, rivals by maximum-inner-product search [1]_.

    Minimizes ``(1/n) sum_i c_i max(0, 1 + max_{r != y_i} x_i.(w_r - w_{y_i})) + alpha ((1 - l1_ratio)/2 ||W||^2 +
    l1_ratio ||W||_1)``. Step t, on a batch of b rows, W = s U with a number s:

        s = (1 - eta_t b alpha (1 - l1_ratio)) s                           O(1)
        r_i = the best rival of each row, by the search                    all rows at the same weights
        w_{y_i} += eta_t c_i x_i,  w_{r_i} -= eta_t c_i x_i                where 1 + x_i.(w_r - w_y) > 0
        W = soft(W, eta_t b alpha l1_ratio)                                l1; waits until a feature is needed
        s = s min(1, 1 / (sqrt(alpha) ||W||))                              no l1: ||U||^2 is kept up with the steps

    So a step costs what its rows hold times two classes, and what the search costs. eta_t acts on the SUM of the batch,
    and the decay is that of b rows: the batch size does not change the problem that is solved. (Algorithm 1 of the
    paper decays by lam eta_t whatever b is, and projects on a ball of radius 1/sqrt(lam). Its lam is ``alpha b``
    here, and its ball, too small by sqrt(b), is not that of any optimum: ||W*|| <= 1/sqrt(alpha) is all that is known,
    since alpha ||W*||^2 <= the mean of c_i <= 1 where the gap is zero.)

    *Lazy truncation* is exact: soft thresholds of an entry add up as long as it is not changed, so each feature keeps
    the sum that it has been given, and gets what it has missed when a row has it. ``truncation="touched"`` is
    Algorithm 2 of the paper: the classes R_t that the batch touched, y_i and r_i, are thresholded at once by K / |R_t|
    times as much: unbiased only if all classes are touched alike often.

    Parameters
    ----------
    n_features, n_classes : int
    dtype : {float32, float64}
        Of the weights.
    alpha, l1_ratio : float
    eta0 : float
        The first step, > 0.
    eta_step : float, optional
        eta_t = eta0 / (1 + eta_step t), t counting batches (the paper's). None: eta_t = eta0 / (1 + alpha eta0 i), i
        counting rows.
    average : bool
        Keep the mean of the weights after each step, from the last epoch on whose number is a power of two (for the
        last half of the run, at least). Only without an l1 part.
    truncation : {"lazy", "touched"}
    search : SearchIndex, optional
        An index that proposes rivals; it is built on the weights, and the touched classes are updated after each batch.
        None: the exact search of the live weights, which needs no index.
    sparse : bool, optional
        Hold the weights in a table of those that have been touched. None: where the array would be large.
    n_threads : int
        For the search; the result does not depend on it.

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

    #: Whether alpha is that of a stream, one over the rows so far: see `manyclass.solvers.base.STREAM_DECAY`.
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
        search: SearchIndex | None = None,
        sparse: bool | None = None,
        n_threads: int = 1,
    ) -> None:
        self.l2 = float(alpha * (1.0 - l1_ratio))
        self.l1 = float(alpha * l1_ratio)
        self.alpha, self.eta0, self.eta_step = float(alpha), float(eta0), eta_step
        self.truncation = truncation
        self.n_threads = n_threads
        if sparse is None:
            sparse = takes_table(n_features, n_classes)
        self._make: Callable[..., Weights] = TableWeights if sparse else DenseWeights
        self.U: Weights = self._make(n_features, n_classes, dtype)
        self.scale, self.squares = 1.0, 0.0
        self.steps, self.seen = 0, 0
        # l1: the truncation so far, of U, and what each feature has had of it.
        self.total = 0.0
        self.stamp = np.zeros(n_features)
        # The mean is (weight U - lag) / points: sum_t s_t U_t, with lag what the later steps count too often.
        self.lag: Weights | None = self._make(n_features, n_classes, dtype) if average else None
        self.weight, self.points, self.epochs = 0.0, 0, 0
        self.index = search
        if search is not None:
            search.build(self.U.export(), n_jobs=n_threads)

    @property
    def n_features(self) -> int:
        """Length of the rows."""
        return len(self.stamp)

    @property
    def n_classes(self) -> int:
        """Classes so far."""
        return self.U.n_classes

    @property
    def nbytes(self) -> int:
        """Bytes of the weights as they are held, the mean included, and of the index."""
        parts = [self.U, *([] if self.lag is None else [self.lag])]
        held = sum(part.nbytes for part in parts) + int(self.stamp.nbytes)
        return held + (0 if self.index is None else self.index.nbytes)

    def grow(self, n_classes: int) -> None:
        """Have so many classes; the new ones have weights 0."""
        more = np.arange(self.n_classes, n_classes)
        self.U.grow(n_classes)
        if self.lag is not None:
            self.lag.grow(n_classes)
        if self.index is not None and len(more):
            self.index.insert(more, self.U.vectors(more))

    def start(self, weights: Any) -> None:
        """Go on from weights, an array or a CSR matrix of shape (n_features, n_classes); before the first step."""
        self.U.put(weights)
        self.squares = self.U.squares()
        if self.index is not None:
            self.index.build(self.U.export(), n_jobs=self.n_threads)

    # --- learning ---------------------------------------------------------------------------------------------------

    def epoch(
        self, X: Any, y: Array, order: Array, *, batch_size: int, weights: Array | None = None, judge_seed: int = 0
    ) -> Passed:
        """One pass over the rows ``order`` of X, a batch after the other.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features)
        y : ndarray of int of shape (n,)
        order : ndarray of int
        batch_size : int
        weights : ndarray of shape (n,), optional
            c_i.
        judge_seed : int
            Of the rows on which a search that is not exact is judged.
        """
        if self.lag is not None and self.epochs & (self.epochs - 1) == 0:
            self._restart_mean()
        met, judged = Passed(), _Judged()
        chosen = np.zeros(len(order), bool)
        if self.index is not None:
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
        """One step on a batch of rows (CSR, of the dtype of the weights, int32 indices), y int32."""
        eta, b = self._eta(), len(y)
        if self.l1 and self.truncation == "lazy":
            self.U.settle(batch.indices, self.total, self.stamp)
        self.scale *= 1.0 - eta * b * self.l2
        if self.scale < _FOLD:
            self._fold()
        rivals, best, own = self._rivals(batch, y)
        # In float64: the scale is.
        hinge = 1.0 + self.scale * (best.astype(np.float64) - own.astype(np.float64))
        if judged is not None and chosen is not None and chosen.any():
            judged.take(*self._judge(batch[chosen], y[chosen], best[chosen]))
        inside = hinge > 0
        moves = np.where(inside, eta / self.scale, 0.0)
        if weights is not None:
            moves *= weights
            hinge = hinge * weights
        self.squares += self.U.add(batch, y, rivals, moves)
        if self.lag is not None:
            self.lag.add(batch, y, rivals, moves * self.weight)
        self._shrink(eta * b, y, rivals)
        if self.lag is not None:
            self.weight += self.scale
            self.points += 1
        self.steps += 1
        self.seen += b
        if self.index is not None:
            self._reindex(np.unique(np.concatenate([y[inside], rivals[inside]])))
        if met is not None:
            met.rows += b
            met.updates += int(np.count_nonzero(inside))
            met.loss += float(hinge[inside].sum())

    def _eta(self) -> float:
        if self.eta_step is not None:
            return self.eta0 / (1.0 + self.eta_step * self.steps)
        if self.vanishing:
            return float(self.eta0 / (1.0 + STREAM_DECAY * self.seen) ** 0.5)
        return self.eta0 / (1.0 + self.alpha * self.eta0 * self.seen)

    def _shrink(self, eta: float, y: Array, rivals: Array) -> None:
        """Truncation, or the projection on the ball."""
        if self.l1:
            tau = eta * self.l1 / self.scale
            if self.truncation == "lazy":
                self.total += tau
            else:
                touched = np.zeros(self.n_classes, bool)
                touched[y] = touched[rivals] = True
                self.U.truncate(touched, tau * self.n_classes / np.count_nonzero(touched))
        elif self.l2 * self.scale**2 * self.squares > 1.0:
            self.scale = 1.0 / math.sqrt(self.l2 * self.squares)

    def _rivals(self, batch: Any, y: Array) -> tuple[Array, Array, Array]:
        if self.index is None:
            # Which classes have been touched is asked of all rows, else of those within the margin.
            wanted = 0.0 if self.l1 and self.truncation == "touched" else self.scale
            return self.U.rivals(batch, y, self.n_threads, wanted)
        found, _ = self.index.query(batch, 1, exclude=y, n_jobs=self.n_threads)
        rivals = found[:, 0].astype(np.int32)
        best, own = pair_scores(self.U, batch, rivals, y)
        # Where nothing speaks for any class all rivals are alike, and an index names the same to all rows.
        poor = np.flatnonzero(best <= 0)
        if len(poor):
            after = ((y[poor] + 1) % self.n_classes).astype(np.int32)
            score, _ = pair_scores(self.U, batch[poor], after, y[poor])
            better = score >= best[poor]
            rivals[poor[better]], best[poor[better]] = after[better], score[better]
        return rivals, best, own

    def _judge(self, batch: Any, y: Array, found: Array) -> tuple[int, int, float]:
        _, best, _ = self.U.rivals(batch, y, self.n_threads)
        # Sums in another order: last digits do not count.
        slack = 100 * float(np.finfo(best.dtype).eps) * np.abs(best)
        error = self.scale * np.maximum(best.astype(np.float64) - found, 0.0)
        return len(y), int(np.count_nonzero(found >= best - slack)), float(error.sum())

    def _reindex(self, ids: Array) -> None:
        if len(ids):
            assert self.index is not None
            self.index.update(ids, self.U.vectors(ids))

    # --- scale and mean ---------------------------------------------------------------------------------------------

    def _settle_all(self) -> None:
        if self.l1 and self.truncation == "lazy":
            self.U.settle(np.arange(self.n_features), self.total, self.stamp)

    def _fold(self) -> None:
        self._settle_all()
        self.U.scale(self.scale)
        if self.lag is not None:
            # weight U - lag is a sum of W: as it was.
            self.weight /= self.scale
        self.squares *= self.scale**2
        self.total, self.scale = 0.0, 1.0
        self.stamp[:] = 0.0
        if self.index is not None:
            self.index.build(self.U.export(), n_jobs=self.n_threads)

    def _restart_mean(self) -> None:
        self.lag = self._make(self.n_features, self.n_classes, self.U.dtype)
        self.weight, self.points = 0.0, 0

    def _tidy(self) -> None:
        """After an epoch: from here on a learner that `unpack` makes takes the same steps, to the last bit.

        ||U||^2 is made afresh too: what is kept up with the steps gathers rounding errors.
        """
        self._settle_all()
        self.U.tidy()
        if self.lag is not None:
            self.lag.tidy()
        self.squares = self.U.squares()

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def pack(self) -> dict[str, Array]:
        """All it must remember, as arrays; an index is built anew from the weights."""
        numbers = [getattr(self, name) for name in _NUMBERS]
        found = {"numbers": np.array(numbers, np.float64), "stamp": self.stamp, "pace": self.U.pace()}
        found |= {f"U.{name}": array for name, array in pack_weights(self.U.export()).items()}
        if self.lag is not None:
            found |= {f"lag.{name}": array for name, array in pack_weights(self.lag.export()).items()}
        return found

    def unpack(self, arrays: dict[str, Array]) -> None:
        """Bring a fresh learner to what `pack` has taken apart."""
        for name, value in zip(_NUMBERS, arrays["numbers"].tolist()):
            setattr(self, name, type(getattr(self, name))(value))
        self.stamp[:] = arrays["stamp"]
        for part, weights in (("U.", self.U), ("lag.", self.lag)):
            own = {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
            if weights is not None:
                weights.put(unpack_weights(own, weights.dtype))
        self.U.resume(arrays["pace"])
        if self.index is not None:
            self.index.build(self.U.export(), n_jobs=self.n_threads)

    # --- what has been learnt ---------------------------------------------------------------------------------------

    def norm(self) -> float:
        """||W|| of the last point."""
        return self.scale * math.sqrt(max(self.squares, 0.0))

    def weights(self) -> Any:
        """W, the mean where one is kept: an array, or a CSR matrix without zeros; a copy."""
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
    """An array or a CSR matrix as arrays by name."""
    if not sp.issparse(weights):
        return {"dense": weights}
    shape = np.asarray(weights.shape, np.int64)
    return {"data": weights.data, "indices": weights.indices, "indptr": weights.indptr, "shape": shape}


def unpack_weights(arrays: dict[str, Array], dtype: Any) -> Any:
    """What `pack_weights` has taken apart."""
    if "dense" in arrays:
        return arrays["dense"]
    parts = arrays["data"], arrays["indices"], arrays["indptr"]
    return sp.csr_matrix(parts, shape=tuple(arrays["shape"].tolist()), dtype=dtype)


class _Judged:
    """How a search did on a sample."""

    def __init__(self) -> None:
        self.count, self.right, self.error = 0, 0, 0.0

    def take(self, count: int, right: int, error: float) -> None:
        self.count, self.right, self.error = self.count + count, self.right + right, self.error + error
