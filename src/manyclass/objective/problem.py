"""The optimization problem that every solver of the package solves, its dual, and the duality gap.

    P(W, b) = (1/n) sum_i c_i phi(W^T x_i + b; y_i) + lam g(W)                                             (primal)
    D(a)    = (1/n) sum_i -c_i phi*(-a_i) - lam g*(v),      v = X^T (c * a) / (lam n)                        (dual)

W is d x K, with the K weights of a feature contiguous or, for dense rows, the d weights of an output
(`Problem.columns_first`); phi is a loss, g a penalty that is 1-strongly convex in the
l2 norm, c_i are sample weights of mean 1. With an unpenalized intercept b, a dual point must also satisfy
sum_i c_i a_i = 0; `Problem.balance` moves any other dual point to one that does, so that P - D bounds the true
suboptimality. lam multiplies the penalty, relative to the MEAN loss (scikit-learn's C is 1 / (lam n)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels import respond, sdca as kernels
from manyclass.kernels.rows import CSRRows, Rows, make_rows
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets, SoftTargets, Targets
from manyclass.objective.losses.base import working
from manyclass.objective.penalties import L1, L2
from manyclass.objective.standard import Standard
from manyclass.runtime.threads import ranges, run

__all__ = ["Array", "Certificate", "Problem", "stored"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Passed to kernels in place of the penalty when they get the weights, not a dual image: its grad g* is the identity.
_PLAIN = L2()
#: Outputs from which dense rows with many zeros are taken feature by feature, so that zeros can be skipped.
_MANY_OUTPUTS = 64
#: The kinds of targets of a loss, by their class.
_KINDS: dict[type, tuple[str, ...]] = {
    ClassTargets: ("class",),
    SignTargets: ("sign",),
    RealTargets: ("real",),
    SoftTargets: ("distribution", "probabilities"),
}
#: Number of rows (or features) in a partial sum. Fixed, so that sums do not depend on the number of threads.
_ROWS = 4096


@dataclass(frozen=True)
class Certificate:
    """The primal and the dual objective at fixed weights and dual variables.

    Attributes
    ----------
    primal : float
        P(W, b): the objective of the model.
    dual : float
        D(a): a lower bound on the minimum of the objective.
    resolution : float
        The smallest relative gap that exceeds the rounding errors of the two.
    """

    primal: float
    dual: float
    resolution: float = 0.0

    @property
    def gap(self) -> float:
        """P - D, an upper bound on the suboptimality P - P(optimum); at least the rounding error of the difference."""
        difference = self.primal - self.dual
        floor = self.resolution * self._scale
        return floor if difference < floor else difference

    @property
    def relative_gap(self) -> float:
        """The gap divided by max(|P|, |D|, 1e-12)."""
        return self.gap / self._scale

    @property
    def _scale(self) -> float:
        return max(abs(self.primal), abs(self.dual), 1e-12)


@dataclass(frozen=True)
class Problem:
    """The objective P and its dual D for given data, loss and penalty.

    Parameters
    ----------
    rows : CSRRows or DenseRows
        The n examples.
    targets : ClassTargets, SignTargets, RealTargets or SoftTargets
        The targets of the examples, which also define K.
    loss, penalty : NamedTuple
        Compiled, see `manyclass.objective.losses` and `manyclass.objective.penalties`.
    lam : float
        Strength of the penalty, > 0.
    n_features : int
        Number of features d.
    sample_weight : ndarray of shape (n,), optional
        Sample weights, >= 0, not all zero; they are scaled to mean 1. All 1 by default.
    intercept : bool, default=False
        Whether the model has an unpenalized intercept.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the weights and of all computations with them.
    n_threads : int, default=1
        Threads for sums over rows and columns; does not change the result.
    shift : ndarray of shape (d, K), optional
        Z: the penalty is g(W) - <W, Z>; with l2, ||W - Z||^2 / 2 up to a constant. ``V`` then stands for v + Z
        throughout. Not copied: after a change of Z, recompute the dual image.
    constant : float, default=0.0
        A number that is added to g: ||Z||^2 / 2 makes g with l2 the distance to the shift.
    standard : Standard, optional
        The problem is that of the rows with standardized columns; weights and dual images are theirs, and `raw` gives
        the model for the rows as they are. Only for a solver that ``takes_standard``; `copied` is for others.
    origin : Standard, optional
        The rows are a copy, standardized by this; `model` gives the model for the rows that were copied.

    Raises
    ------
    ValueError
        If lam is not positive and finite, a parameter of the loss or the penalty is negative, the loss cannot take the
        targets, targets or sample weights do not match the rows, or a squared row norm overflows.
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
    constant: float = 0.0
    standard: Standard | None = field(default=None, repr=False)
    origin: Standard | None = field(default=None, repr=False)
    n_samples: int = field(init=False)
    n_outputs: int = field(init=False)
    norms: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam > 0):
            raise ValueError(f"lam must be a positive finite number, got {self.lam!r}")
        kinds = _KINDS[type(self.targets)]
        if self.loss.targets not in kinds:
            got = " or ".join(map(repr, kinds))
            raise ValueError(f"loss {self.loss.name!r} takes targets of kind {self.loss.targets!r}, got {got}")
        n, known = _length(self.rows), _length(self.targets)
        if known != n:
            raise ValueError(f"targets must have one entry for each row, got {known} targets for {n} rows")
        costs: Any = getattr(self.loss, "costs", ())
        K = self.targets.n_outputs
        if len(costs) and np.shape(costs) not in ((1, K), (K, K)):
            shape = f"({costs.shape[1]},)" if len(costs) == 1 else str(costs.shape)
            raise ValueError(f"costs must have shape ({K},) or ({K}, {K}) for {K} classes, got {shape}: give as many")
        assign = object.__setattr__  # the dataclass is frozen
        assign(self, "dtype", np.dtype(self.dtype))
        assign(self, "loss", working(self.loss, self.dtype))
        assign(self, "penalty", working(self.penalty, self.dtype))
        assign(self, "n_samples", n)
        assign(self, "n_outputs", int(self.targets.n_outputs))
        assign(self, "sample_weight", np.ascontiguousarray(_mean_one(self.sample_weight, n), self.dtype))
        if self.shift is not None:
            if self.shift.shape != (self.n_features, self.n_outputs) or self.shift.dtype != self.dtype:
                raise ValueError(
                    f"shift must be a {self.dtype.name} array of shape {(self.n_features, self.n_outputs)}, "
                    f"got {self.shift.dtype} of shape {self.shift.shape}"
                )
            if isinstance(self.penalty, L1):
                raise ValueError("shift requires a strongly convex penalty, got L1: pass L2 or ElasticNet")
        norms = self._row_norms()
        if not np.isfinite(norms).all():
            worst = int(np.flatnonzero(~np.isfinite(norms))[0])
            remedy = ", or fit with dtype=np.float64" if self.dtype == np.float32 else ""
            raise ValueError(
                f"row {worst} of X has a squared norm that overflows {self.dtype.name}: scale the features{remedy}"
            )
        if n and norms.max() < np.finfo(self.dtype).tiny and self.standard is None and not self._only_zeros():
            raise ValueError(f"the squared norms of all rows of X underflow {self.dtype.name}: scale the features")
        assign(self, "norms", norms)

    def _row_norms(self) -> Array:
        """The squared norms of the rows, (n,)."""
        if self.standard is not None:
            return np.asarray(self.standard.norms(self._matrix()).astype(self.dtype))
        norms = np.empty(self.n_samples, self.dtype)
        kernels.row_norms(self.rows, norms)
        return norms

    def _only_zeros(self) -> bool:
        """Whether no value of the rows is other than zero."""
        return not np.any(self.rows.data if isinstance(self.rows, CSRRows) else self.rows.x)

    def feature_squares(self) -> Array:
        """The mean square of each feature, (d,), estimated from about 1000 evenly spaced rows."""
        step = max(1, self.n_samples // 1000)
        if isinstance(self.rows, CSRRows):
            chosen = range(0, self.n_samples, step)
            spans = [slice(self.rows.indptr[i], self.rows.indptr[i + 1]) for i in chosen]
            columns = np.concatenate([self.rows.indices[span] for span in spans])
            values = np.concatenate([self.rows.data[span] for span in spans]).astype(np.float64)
            return np.bincount(columns, values * values, self.n_features) / len(spans)
        part = np.asarray(self.rows.x[::step], np.float64)
        return np.asarray(np.mean(part * part, axis=0))

    def _matrix(self) -> Any:
        """The rows, as an array or a CSR matrix."""
        if isinstance(self.rows, CSRRows):
            return sp.csr_matrix(tuple(self.rows), shape=(self.n_samples, self.n_features), copy=False)
        return self.rows.x

    def raw(self, W: Array, bias: Array) -> tuple[Array, Array]:
        """The weights and the intercept for the rows as they are: ``W, bias`` unless columns are standardized."""
        return (W, bias) if self.standard is None else self.standard.raw(W, bias)

    def copied(self) -> Problem:
        """The same problem with a standardized copy of the rows, for a solver that reads them itself."""
        assert self.standard is not None
        X, origin = self.standard.copy(self._matrix(), self.intercept)
        return replace(self, rows=make_rows(X), standard=None, origin=origin)

    def model(self, W: Array, bias: Array) -> tuple[Array, Array]:
        """The weights and the intercept for the rows that were given, from those of this problem."""
        return (W, bias) if self.origin is None else self.origin.raw(W, bias)

    def of_model(self, W: Array, bias: Array) -> tuple[Array, Array]:
        """The inverse of `model` after `raw`."""
        known = self.standard or self.origin
        return (W, bias) if known is None else known.standardized(W, bias)

    @property
    def inv_lam_n(self) -> float:
        """1 / (lam n)."""
        return 1.0 / (self.lam * self.n_samples)

    @property
    def n_columns(self) -> int:
        """Number of columns of the arrays that the kernels of SDCA work on: K, or a few more that are zero.

        Rows of whole SIMD vectors of 8 numbers need no remainder loops; many outputs of a joint loss fill whole cache
        lines, which threads can divide. With 1024 outputs and more these are a small part, and the model, whose weights
        have no such columns, would be a copy of the largest arrays.
        """
        if self.columns_first or self.n_outputs >= 1024 or (self.n_outputs >= 128 and not self.loss.joint):
            return self.n_outputs
        unit = 8 if self.n_outputs < 128 else 64 // self.dtype.itemsize
        whole = -(-self.n_outputs // unit) * unit
        return whole if whole <= 1.25 * self.n_outputs else self.n_outputs

    @cached_property
    def columns_first(self) -> bool:
        """Whether the arrays of weights hold the d numbers of an output together (Fortran order).

        For dense rows: loops over d features are then whole SIMD vectors, however few the outputs are. Rows with many
        zeros and many outputs are faster feature by feature, without those that are zero. Microseconds for the scores
        and the update of a row, by features and by outputs: d = 512, K = 100, all values non-zero 10.5 and 8.6, a
        fraction of 0.4 9.9 and 8.1; d = 784, K = 100, 0.19: 8.3 and 11.9; d = 512, K = 32, 0.2: 4.6 and 2.3.
        """
        if isinstance(self.rows, CSRRows):
            return False
        if self.n_outputs < _MANY_OUTPUTS:
            return True
        part = self.rows.x[:: max(1, self.n_samples // 256)]
        return bool(np.count_nonzero(part) > 0.3 * part.size)

    def zeros(self, columns: int | None = None) -> Array:
        """Weights of zero, in the order that kernels take, d x `n_columns` by default."""
        shape = self.n_features, self.n_columns if columns is None else columns
        return np.zeros(shape, self.dtype, order="F" if self.columns_first else "C")

    def blank(self, shape: tuple[int, ...]) -> Any:
        """An array of zeros of ``dtype``, for weights and gradients of a batch solver."""
        return np.zeros(shape, self.dtype)

    def there(self, array: Array) -> Any:
        """An array of NumPy as those of `blank`."""
        return np.asarray(array, self.dtype)

    def ordered(self, W: Array) -> Array:
        """W in the order that kernels take: a copy where it has another."""
        return np.asfortranarray(W) if self.columns_first else np.ascontiguousarray(W)

    @property
    def resolution(self) -> float:
        """The smallest relative gap that exceeds rounding errors: 32 units in the last place of ``dtype``.

        Terms of the objective have rounding errors of a few units; gaps down to -15 units were observed in float32.
        """
        return 32.0 * float(np.finfo(self.dtype).eps)

    def bounds(self, primal: float, dual: float) -> Certificate:
        """The certificate of P and D that were computed in ``dtype``.

        A hinge loss subtracts scores from 1, and a loss of regression from the targets: half a unit in the last place
        of these remains, times the slope of the loss, however small P is. With m the mean square of these numbers and e
        the root of the mean square of what remains, the mean of the products is at most e sqrt(2 P / gamma), gamma
        being ``loss.smoothness``, and the curvature adds e^2 / (2 gamma); without gamma it is e sqrt(m).
        """
        resolution, size = self.resolution, max(abs(primal), abs(dual))
        if self._subtracted and math.isfinite(primal - dual):
            root, gamma = math.sqrt(self._subtracted), self.loss.smoothness
            e = 0.5 * float(np.finfo(self.dtype).eps) * root
            error = e * math.sqrt(2.0 * size / gamma) + 0.5 * e * e / gamma if gamma else e * root
            resolution = max(resolution, min(1.0, error / max(size, 1e-12)))
        return Certificate(primal, dual, resolution)

    @cached_property
    def _subtracted(self) -> float:
        """The mean square, summed over the units, of the numbers that the loss subtracts scores from; 0 if none."""
        if isinstance(self.targets, RealTargets):
            y = self.targets.y
            return float(np.einsum("i,ik,ik", np.asarray(self.sample_weight), y, y)) / self.n_samples
        if self.loss.probability is not None:
            return 0.0
        if len(getattr(self.loss, "costs", ())):
            return float(np.max(self.loss.costs)) ** 2
        return 1.0 if self.loss.joint else float(self.n_outputs)

    def objective(self, losses: float, g: float) -> float:
        """P from the weighted sum of losses and g(W)."""
        return losses / self.n_samples + self.lam * g

    def certificate(self, V: Array, bias: Array, dual: Array) -> Certificate:
        """P at W = grad g*(V) and D at ``dual``, where V is the dual image of ``dual``; one pass over the data."""
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
        return self.bounds(
            primal=self.objective(float(losses), g),
            dual=-float(conjugates) / self.n_samples - self.lam * conjugate,
        )

    def respond(self, W: Array, bias: Array, dual: Array) -> float:
        """Set ``dual`` to ``a_i = -grad phi(W^T x_i + b)``; returns the weighted sum of the losses.

        One pass over the data. The gradient of the mean loss is ``-lam V``, where V is the dual image of ``dual``.
        """
        return self._losses(respond.respond_rows, W, bias, dual)

    def losses(self, W: Array, bias: Array) -> float:
        """The weighted sum of the losses at W, b. One pass over the data."""
        return self._losses(respond.value_rows, W, bias)

    def value(self, W: Array, bias: Array) -> float:
        """P(W, b). One pass over the data."""
        return self.objective(self.losses(W, bias), self.penalty_value(W))

    def _losses(self, kernel: Callable[..., float], W: Array, bias: Array, *out: Array) -> float:
        """The weighted sum of the losses at W, b, by a kernel that may write more to ``out``."""
        W, bias = self.raw(W, bias)
        W = self.ordered(W)
        given = self.rows, self.targets, self.sample_weight, self.loss, _PLAIN, W, bias, *out
        return float(np.sum(run(partial(kernel, *given), ranges(self.n_samples, _ROWS), self.n_threads)))

    def penalty_value(self, W: Array) -> float:
        """g(W)."""
        parts = run(partial(respond.penalty_value, stored(W), self.penalty), _pieces(W), self.n_threads)
        return float(np.sum(parts)) - self._along_shift(W) + self.constant

    def certify(
        self,
        W: Array,
        bias: Array,
        losses: float,
        dual: Array,
        V: Array,
        image: Callable[[Array, Array], None] | None = None,
    ) -> Certificate:
        """P at any weights W, b, whose weighted losses sum to ``losses``, and D at a dual point made from ``dual``.

        ``dual`` must be in the domain of the conjugate losses. It is changed in place to a feasible point of the dual
        (balanced for an intercept, scaled down for a pure l1 penalty), and ``V`` receives its dual image, computed by
        ``image`` if given, else by `dual_image`.
        """
        if self.intercept:
            self.balance(dual)
        (self.dual_image if image is None else image)(dual, V)
        if isinstance(self.penalty, L1):
            # The domain of phi*(-a) is convex and contains 0 for every loss: scaling a down keeps it in the domain.
            # The outputs of a separable loss are independent problems, and are scaled separately.
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
        return self.bounds(
            primal=self.objective(losses, self.penalty_value(W)),
            dual=-float(np.sum(parts)) / self.n_samples - self.lam * conjugate,
        )

    def penalty_sums(self, V: Array) -> tuple[float, float]:
        """g(W) and g*(V)."""
        parts = run(partial(kernels.penalty_sums, stored(V), self.penalty), _pieces(V), self.n_threads)
        g, conjugate = np.sum(np.asarray(parts, np.float64), axis=0).tolist()
        shifted = 0.0 if self.shift is None else self._along_shift(self.primal(V)[:, : self.n_outputs])
        return float(g) - shifted + self.constant, float(conjugate) - self.constant

    def _along_shift(self, W: Array) -> float:
        """<W, Z>."""
        return 0.0 if self.shift is None else self.inner_product(W, self.shift)

    def inner_product(self, one: Array, two: Array) -> float:
        """<A, B> of two arrays with a row for each feature, in float64; does not depend on the number of threads."""
        if stored(one).shape != stored(two).shape:  # of two orders
            two = np.asarray(two, order="F" if one.flags.f_contiguous else "C")
        product = partial(respond.inner_product, stored(one), stored(two))
        return float(np.sum(run(product, _pieces(one), self.n_threads)))

    def dual_image(self, dual: Array, V: Array) -> None:
        """Recompute ``V = X^T (c * dual) / (lam n)``, plus the shift, in place."""
        self.pull(dual, V)
        if self.shift is not None:
            V[:, : self.n_outputs] += self.shift

    def pull(self, dual: Array, V: Array) -> None:
        """Recompute ``V = X^T (c * dual) / (lam n)``, without the shift, in place; one pass over the data.

        Threads take ranges of columns, or of features if there are too few columns; the result is the same.
        """
        if self.columns_first and not V.flags.f_contiguous:
            image = self.zeros(V.shape[1])
            self.pull(dual, image)
            V[:] = image
            return
        d, width = self.n_features, max(64, -(-self.n_outputs // self.n_threads))
        edges, pieces = [0, d], ranges(self.n_outputs, width)
        if len(pieces) < self.n_threads:
            edges, pieces = self.feature_edges(self.n_threads), [(0, self.n_outputs)]
        parts = [(lo, hi, first, last) for lo, hi in pieces for first, last in pairwise(edges)]
        run(
            lambda at, _: kernels.dual_image(self.rows, self.sample_weight, dual, self.inv_lam_n, V, *parts[at]),
            ranges(len(parts), 1),
            self.n_threads,
        )
        if self.standard is not None:
            self.standard.pulled(V, kernels.weighted_sums(self.sample_weight, dual) * self.inv_lam_n)

    def feature_edges(self, parts: int) -> list[int]:
        """Bounds of ``parts`` ranges of features with about equally many stored values."""
        if not isinstance(self.rows, CSRRows):
            return [self.n_features * part // parts for part in range(parts + 1)]
        sample = np.sort(self.rows.indices[:: max(1, len(self.rows.indices) // 10_000)])
        inner = [int(sample[len(sample) * part // parts]) if len(sample) else 0 for part in range(1, parts)]
        return [0, *inner, self.n_features]

    def primal(self, V: Array) -> Array:
        """W = grad g*(V), d x K; V itself where the two are equal."""
        if isinstance(self.penalty, L2):
            return V
        W = np.empty_like(V)
        kernels.primal_weights(stored(V), self.penalty, stored(W))
        return W

    def balance(self, dual: Array) -> None:
        """Move ``dual``, in place, to a feasible point with sum_i c_i a_i = 0 (see the module)."""
        wanted, present = np.empty(self.n_outputs), np.empty(self.n_outputs)
        if isinstance(self.targets, ClassTargets):
            kernels.class_masses(self.targets.y, self.sample_weight, dual, wanted, present)
            moves = balancing(wanted, present)
            if moves is not None:
                kernels.balance_classes(self.targets.y, self.sample_weight, dual, *moves)
        elif self.loss.joint:
            kernels.distribution_masses(self.targets, self.sample_weight, dual, wanted, present)
            moves = balancing(wanted, present)
            if moves is not None:
                kernels.balance_distributions(self.targets, dual, *moves)
        else:
            self._balance_columns(dual)

    def _balance_columns(self, dual: Array) -> None:
        weights = np.asarray(self.sample_weight)
        if self.loss.free_dual:
            dual -= (kernels.weighted_sums(weights, dual) / weights.sum(dtype=np.float64)).astype(self.dtype)
            return
        # The domains are intervals that contain 0: scale down the entries of the sign that has the larger sum.
        for k in range(self.n_outputs):
            column = dual[:, k]
            positive = float(np.sum(weights * np.maximum(column, 0), dtype=np.float64))
            negative = float(np.sum(weights * np.maximum(-column, 0), dtype=np.float64))
            if positive > negative:
                column[column > 0] *= negative / positive
            elif negative > positive:
                column[column < 0] *= positive / negative


def stored(W: Array) -> Array:
    """W or its transpose, whichever has contiguous rows: for what is done to each number by itself."""
    return W if W.flags.c_contiguous else W.T


def _pieces(W: Array) -> list[tuple[int, int]]:
    """Ranges of the rows of ``stored(W)``."""
    return ranges(len(stored(W)), _ROWS)


def balancing(wanted: Array, present: Array) -> tuple[Array, Array] | None:
    """How the probabilities of classes change from sums ``present`` to ``wanted``; None if they are equal.

    Two arrays of shape (K,): the fraction of its probability that each class loses, and its share of what is removed.
    """
    lacking = np.maximum(wanted - present, 0.0)
    if not lacking.sum() > 0:
        return None
    remove = np.maximum(1.0 - wanted / np.where(present > 0, present, 1.0), 0.0) * (present > 0)
    return remove, lacking / lacking.sum()


def _length(part: Rows | Targets) -> int:
    """Number of examples in a row view or a target view."""
    arrays = part._asdict()
    return len(arrays["indptr"]) - 1 if "indptr" in arrays else int(next(iter(arrays.values())).shape[0])


def _mean_one(weights: Array | None, n: int) -> Array:
    """Sample weights scaled to mean 1; a ValueError if they are invalid."""
    if weights is None:
        return np.ones(n)
    found = np.asarray(weights, np.float64)
    if found.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), one weight per row, got shape {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError("sample_weight must be finite, got NaN or infinity")
    if found.min(initial=0.0) < 0:
        raise ValueError(f"sample_weight must be non-negative, got {found.min():g}")
    if not found.sum() > 0:
        raise ValueError("sample_weight must have a positive sum, got only zeros: give some rows a positive weight")
    scaled: Array = found / found.mean()
    return scaled
