"""The problem that every solver of the package minimizes, its dual, and the gap between them.

    P(W, b) = (1/n) sum_i c_i phi(W^T x_i + b; y_i) + lam g(W)                                             (primal)
    D(a)    = (1/n) sum_i -c_i phi*(-a_i) - lam g*(v),      v = X^T (c * a) / (lam n)                        (dual)

W is d x K with the K weights of a feature contiguous; phi is a loss, g a penalty that is 1-strongly convex in the
l2 norm, c_i are sample weights of mean 1. With an unpenalized intercept b, D is the dual only where
sum_i c_i a_i = 0; `Problem.balance` brings any feasible dual point there exactly, so that P - D bounds the true
suboptimality. The one scaling: lam weighs the penalty against the MEAN loss (scikit-learn's C is 1 / (lam n)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from manyclass.kernels import respond, sdca as kernels
from manyclass.kernels.rows import CSRRows, Rows
from manyclass.kernels.targets import ClassTargets, RealTargets, Targets
from manyclass.objective.penalties import L1, L2
from manyclass.runtime.threads import ranges, run

__all__ = ["Array", "Certificate", "Problem"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Its primal map is the identity: says to a kernel that it is given the weights themselves.
_PLAIN = L2()
#: Rows (or features) a piece of a sum covers. Fixed: the sums must not depend on the number of threads.
_ROWS = 4096


@dataclass(frozen=True)
class Certificate:
    """Both sides of the duality gap at one fixed point.

    Attributes
    ----------
    primal : float
        P(W, b): the objective of the model.
    dual : float
        D(a): a lower bound on the least objective.
    resolution : float
        The least relative gap that the arithmetic behind the two can tell from zero.
    """

    primal: float
    dual: float
    resolution: float = 0.0

    @property
    def gap(self) -> float:
        """P - D, at least the true suboptimality P - P(optimum); never less than the arithmetic can tell from zero."""
        difference = self.primal - self.dual
        floor = self.resolution * self._scale
        return floor if difference < floor else difference

    @property
    def relative_gap(self) -> float:
        """The gap over max(|P|, |D|, 1e-12)."""
        return self.gap / self._scale

    @property
    def _scale(self) -> float:
        return max(abs(self.primal), abs(self.dual), 1e-12)


@dataclass(frozen=True)
class Problem:
    """Data, loss, penalty and weights: the objective, and what follows from it.

    Parameters
    ----------
    rows : CSRRows or DenseRows
        The n examples.
    targets : ClassTargets, SignTargets or RealTargets
        What the loss is told about each example; fixes K.
    loss, penalty : NamedTuple
        See `manyclass.objective.losses`, `manyclass.objective.penalties`.
    lam : float
        Strength of the penalty, > 0.
    n_features : int
        d.
    sample_weight : ndarray of shape (n,), optional
        Sample weights, non-negative; scaled here to mean 1.
    intercept : bool
        Whether the model has an unpenalized intercept.
    shift : ndarray of shape (d, K), optional
        Z: the penalty is g(W) - <W, Z>; with l2, ||W - Z||^2 / 2 up to a constant. ``V`` then stands for v + Z
        throughout. Not copied: who changes it has the image of the duals made afresh.
    dtype : dtype
        Of the weights and of all work on them, float32 or float64.
    n_threads : int
        Threads for sums over rows and columns; never changes a result.

    Raises
    ------
    ValueError
        If lam is not positive and finite, a number of the loss or the penalty is negative, loss and targets or
        targets and rows do not fit, the weights are none, or a squared row norm overflows.
    """

    rows: Rows
    targets: Targets
    loss: Any
    penalty: Any
    lam: float
    n_features: int
    sample_weight: Array | None = None
    intercept: bool = False
    dtype: Any = np.float64
    n_threads: int = 1
    shift: Array | None = field(default=None, repr=False)
    n_samples: int = field(init=False)
    n_outputs: int = field(init=False)
    norms: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam > 0):
            raise ValueError(f"lam must be a positive finite number, got {self.lam!r}")
        kind = {"ClassTargets": "class", "SignTargets": "sign", "RealTargets": "real"}[type(self.targets).__name__]
        if self.loss.targets != kind:
            raise ValueError(f"loss {self.loss.name} takes targets of kind {self.loss.targets!r}, got {kind!r}")
        n, known = _length(self.rows), _length(self.targets)
        if known != n:
            raise ValueError(f"targets must be as many as the rows: got {known} targets for {n} rows")
        for part in (self.loss, self.penalty):
            for name, value in part._asdict().items():
                if not (np.isfinite(value) and value >= 0):
                    raise ValueError(
                        f"{name} of {type(part).__name__} must be a finite number of at least 0, got {value!r}"
                    )
        cast = np.dtype(self.dtype).type
        settle = object.__setattr__
        settle(self, "dtype", np.dtype(self.dtype))
        settle(self, "loss", type(self.loss)(*(cast(value) for value in self.loss)))
        settle(self, "penalty", type(self.penalty)(*(cast(value) for value in self.penalty)))
        settle(self, "n_samples", n)
        settle(self, "n_outputs", int(self.targets.n_outputs))
        settle(self, "sample_weight", np.ascontiguousarray(_mean_one(self.sample_weight, n), self.dtype))
        if self.shift is not None:
            if self.shift.shape != (self.n_features, self.n_outputs) or self.shift.dtype != self.dtype:
                raise ValueError(
                    f"shift must be a {self.dtype.name} array of shape {(self.n_features, self.n_outputs)}, "
                    f"got {self.shift.dtype} of shape {self.shift.shape}"
                )
            if isinstance(self.penalty, L1):
                raise ValueError("shift needs a strongly convex penalty, got L1")
        norms = np.empty(n, self.dtype)
        kernels.row_norms(self.rows, norms)
        if not np.isfinite(norms).all():
            worst = int(np.flatnonzero(~np.isfinite(norms))[0])
            raise ValueError(
                f"row {worst} of X has a squared norm that {self.dtype.name} cannot hold: scale the features, "
                "or fit with dtype=np.float64"
            )
        settle(self, "norms", norms)

    def feature_squares(self, most: int = 1000) -> Array:
        """The mean square of each feature, (d,), over at most so many rows, spread evenly: for advice."""
        step = max(1, self.n_samples // most)
        if isinstance(self.rows, CSRRows):
            chosen = range(0, self.n_samples, step)
            spans = [slice(self.rows.indptr[i], self.rows.indptr[i + 1]) for i in chosen]
            columns = np.concatenate([self.rows.indices[span] for span in spans])
            values = np.concatenate([self.rows.data[span] for span in spans]).astype(np.float64)
            return np.bincount(columns, values * values, self.n_features) / len(spans)
        part = np.asarray(self.rows.x[::step], np.float64)
        return np.asarray(np.mean(part * part, axis=0))

    @property
    def inv_lam_n(self) -> float:
        """1 / (lam n)."""
        return 1.0 / (self.lam * self.n_samples)

    @property
    def n_columns(self) -> int:
        """Columns of the arrays that the kernels of SDCA work on: K, or a few more that hold zeros.

        Rows of whole vectors of 8 numbers need no remainder loops.
        """
        whole = -(-self.n_outputs // 8) * 8
        return whole if self.n_outputs < 128 and whole <= 1.25 * self.n_outputs else self.n_outputs

    @property
    def resolution(self) -> float:
        """The least relative gap that is more than rounding: 32 units in the last place of ``dtype``.

        Terms of the objective carry an error of a few units; gaps down to minus 15 of them were seen in float32.
        """
        return 32.0 * float(np.finfo(self.dtype).eps)

    def objective(self, losses: float, g: float) -> float:
        """P from the weighted sum of losses and g(W)."""
        return losses / self.n_samples + self.lam * g

    def certificate(self, V: Array, bias: Array, dual: Array) -> Certificate:
        """P at W = grad g*(V) and D at ``dual``, for V the dual image of ``dual``; one pass over the data."""
        parts = run(
            partial(
                kernels.evaluate_rows,
                self.rows,
                self.targets,
                self.sample_weight,
                self.loss,
                self.penalty,
                V,
                bias,
                dual,
            ),
            ranges(self.n_samples, _ROWS),
            self.n_threads,
        )
        losses, conjugates = np.sum(np.asarray(parts, np.float64), axis=0).tolist()
        g, conjugate = self.penalty_sums(V)
        return Certificate(
            primal=self.objective(float(losses), g),
            dual=-float(conjugates) / self.n_samples - self.lam * conjugate,
            resolution=self.resolution,
        )

    def respond(self, W: Array, bias: Array, dual: Array) -> float:
        """``alpha_i = -grad phi(W^T x_i + b)`` in place; returns the weighted sum of the losses.

        One pass over the data. The gradient of the mean loss is then ``-lam V``, with V the dual image of ``dual``.
        """
        parts = run(
            partial(
                respond.respond_rows, self.rows, self.targets, self.sample_weight, self.loss, _PLAIN, W, bias, dual
            ),
            ranges(self.n_samples, _ROWS),
            self.n_threads,
        )
        return float(np.sum(parts))

    def value(self, W: Array, bias: Array) -> float:
        """P(W, b). One pass over the data."""
        parts = run(
            partial(respond.value_rows, self.rows, self.targets, self.sample_weight, self.loss, _PLAIN, W, bias),
            ranges(self.n_samples, _ROWS),
            self.n_threads,
        )
        return self.objective(float(np.sum(parts)), self.penalty_value(W))

    def penalty_value(self, W: Array) -> float:
        """g(W)."""
        pieces = ranges(W.shape[0], _ROWS)
        parts = run(partial(respond.penalty_value, W, self.penalty), pieces, self.n_threads)
        return float(np.sum(parts)) - self._along_shift(W)

    def certify(
        self,
        W: Array,
        bias: Array,
        losses: float,
        dual: Array,
        V: Array,
        image: Callable[[Array, Array], None] | None = None,
    ) -> Certificate:
        """P at any weights, whose weighted losses sum to ``losses``, against D at any dual-feasible ``dual``.

        ``dual`` is made fit for the dual in place (balanced for an intercept, shrunk for a pure l1 penalty), and ``V``
        receives its dual image, from ``image`` where a solver has a faster way than `dual_image`.
        """
        if self.intercept:
            self.balance(dual)
        (self.dual_image if image is None else image)(dual, V)
        if isinstance(self.penalty, L1):
            # Every domain of phi*(-a) here is convex and holds a = 0: what is shrunk stays feasible.
            # Outputs of a separable loss are problems of their own, and shrink each by itself.
            largest = np.maximum(np.abs(V).max(axis=0, initial=0.0), 1.0)
            if self.loss.joint:
                largest[:] = largest.max()
            dual /= largest[: self.n_outputs]
            V /= largest
        parts = run(
            partial(respond.conjugate_rows, self.targets, self.sample_weight, self.loss, dual),
            ranges(self.n_samples, _ROWS),
            self.n_threads,
        )
        conjugate = 0.0 if isinstance(self.penalty, L1) else self.penalty_sums(V)[1]
        return Certificate(
            primal=self.objective(losses, self.penalty_value(W)),
            dual=-float(np.sum(parts)) / self.n_samples - self.lam * conjugate,
            resolution=self.resolution,
        )

    def penalty_sums(self, V: Array) -> tuple[float, float]:
        """g(W) and g*(V)."""
        pieces = ranges(V.shape[0], _ROWS)
        parts = run(partial(kernels.penalty_sums, V, self.penalty), pieces, self.n_threads)
        g, conjugate = np.sum(np.asarray(parts, np.float64), axis=0).tolist()
        shifted = 0.0 if self.shift is None else self._along_shift(self.primal(V)[:, : self.n_outputs])
        return float(g) - shifted, float(conjugate)

    def _along_shift(self, W: Array) -> float:
        """<W, Z>."""
        return 0.0 if self.shift is None else self.inner_product(W, self.shift)

    def inner_product(self, one: Array, two: Array) -> float:
        """<A, B> of two arrays with a row for each feature, in float64; never dependent on the threads."""
        pieces = ranges(one.shape[0], _ROWS)
        return float(np.sum(run(partial(respond.inner_product, one, two), pieces, self.n_threads)))

    def dual_image(self, dual: Array, V: Array) -> None:
        """``V = X^T (c * dual) / (lam n)``, plus the shift, in place, afresh."""
        self.pull(dual, V)
        if self.shift is not None:
            V[:, : self.n_outputs] += self.shift

    def pull(self, dual: Array, V: Array) -> None:
        """``V = X^T (c * dual) / (lam n)`` in place, afresh, for any ``dual``; one pass over the data.

        By ranges of columns, or of features where columns are too few for the threads: the same numbers either way.
        """
        if self.n_threads > 1 and self.n_outputs < 64 * self.n_threads:
            edges = self.feature_edges(self.n_threads)
            run(
                lambda at, _: kernels.dual_image_within(
                    self.rows, self.sample_weight, dual, self.inv_lam_n, V, edges[at], edges[at + 1]
                ),
                ranges(self.n_threads, 1),
                self.n_threads,
            )
        else:
            width = max(64, -(-self.n_outputs // self.n_threads))
            run(
                lambda lo, hi: kernels.dual_image(self.rows, self.sample_weight, dual, self.inv_lam_n, V, lo, hi),
                ranges(self.n_outputs, width),
                self.n_threads,
            )

    def feature_edges(self, parts: int) -> list[int]:
        """Bounds of ``parts`` ranges of features with about as many stored values each."""
        if not isinstance(self.rows, CSRRows):
            return [self.n_features * part // parts for part in range(parts + 1)]
        sample = np.sort(self.rows.indices[:: max(1, len(self.rows.indices) // 10_000)])
        inner = [int(sample[len(sample) * part // parts]) if len(sample) else 0 for part in range(1, parts)]
        return [0, *inner, self.n_features]

    def first_intercept(self) -> Array:
        """Where an intercept starts: the mean target of a regression, else zero."""
        if not self.intercept or not isinstance(self.targets, RealTargets):
            return np.zeros(self.n_outputs, self.dtype)
        return np.asarray(np.average(self.targets.y, axis=0, weights=self.sample_weight), self.dtype)

    def primal(self, V: Array) -> Array:
        """W = grad g*(V), d x K; V itself where the two are equal."""
        if isinstance(self.penalty, L2):
            return V
        W = np.empty_like(V)
        kernels.primal_weights(V, self.penalty, W)
        return W

    def balance(self, dual: Array) -> None:
        """Move ``dual``, in place, to a dual-feasible point with sum_i c_i a_i = 0 (see the module)."""
        if isinstance(self.targets, ClassTargets):
            self._balance_simplex(dual)
        else:
            self._balance_columns(dual)

    def _balance_simplex(self, dual: Array) -> None:
        y = self.targets.y  # type: ignore[union-attr]
        wanted, present = np.empty(self.n_outputs), np.empty(self.n_outputs)
        kernels.class_masses(y, self.sample_weight, dual, wanted, present)
        lacking = np.maximum(wanted - present, 0.0)
        if not lacking.sum() > 0:
            return
        remove = np.maximum(1.0 - wanted / np.where(present > 0, present, 1.0), 0.0) * (present > 0)
        kernels.balance_classes(y, self.sample_weight, dual, remove, lacking / lacking.sum())

    def _balance_columns(self, dual: Array) -> None:
        weights = np.asarray(self.sample_weight)
        if self.loss.free_dual:
            dual -= (kernels.weighted_sums(weights, dual) / weights.sum(dtype=np.float64)).astype(self.dtype)
            return
        # The domains are intervals around zero: shrink the side of a column that outweighs the other.
        for k in range(self.n_outputs):
            column = dual[:, k]
            positive = float(np.sum(weights * np.maximum(column, 0), dtype=np.float64))
            negative = float(np.sum(weights * np.maximum(-column, 0), dtype=np.float64))
            if positive > negative:
                column[column > 0] *= negative / positive
            elif negative > positive:
                column[column < 0] *= positive / negative


def _length(part: Rows | Targets) -> int:
    """How many examples a row view or a target view holds."""
    arrays = part._asdict()
    return len(arrays["indptr"]) - 1 if "indptr" in arrays else len(next(iter(arrays.values())))


def _mean_one(weights: Array | None, n: int) -> Array:
    """Sample weights scaled to mean 1; refuses what are none."""
    if weights is None:
        return np.ones(n)
    found = np.asarray(weights, np.float64)
    if found.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one a row, got shape {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError("weights must be finite numbers: found NaN or infinity")
    if found.min(initial=0.0) < 0:
        raise ValueError(f"weights must be non-negative, found {found.min():g}")
    if not found.sum() > 0:
        raise ValueError("weights must have a positive sum, all are zero")
    scaled: Array = found / found.mean()
    return scaled
