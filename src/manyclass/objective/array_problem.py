"""The problem for dense rows that are read some at a time: arrays of any library, or of half precision.

The rows stay where they are, and as they are. A pass converts a block of them to the type of the computation,
multiplies it by the weights, and adds to the sums that a batch solver needs; no array of n rows is made. Blocks of
NumPy's are computed by the kernels, those of other libraries by functions of the array API standard alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from manyclass.kernels import respond
from manyclass.kernels.sdca import balance_classes, class_masses, weighted_sums
from manyclass.kernels.targets import ClassTargets, RealTargets, SignTargets, SoftTargets, Targets, of_rows
from manyclass.objective.array_losses import ARRAY_LOSSES
from manyclass.objective.losses import LogisticLoss, MultinomialLoss
from manyclass.objective.problem import Array, Certificate, Problem, balancing
from manyclass.objective.respond import responder
from manyclass.runtime.arrays import (
    as_type,
    detached,
    entries,
    has_short_products,
    in_parts,
    is_foreign,
    namespace,
    place,
    products,
    to_numpy,
    widest,
    with_entries,
)
from manyclass.runtime.threads import ranges, run

__all__ = ["ArrayProblem", "ArrayRows", "Descent"]

#: Numbers of a block: of NumPy's rows, which stay in the cache between two products; on another processor; on a device
#: that has many (products of an H100 in TF32: 190 TFLOP/s of 9 500 rows, 280 of 32 000; in float32 40 and 49).
_CACHED, _ON_PROCESSOR, _ON_DEVICE = 1 << 20, 1 << 21, 1 << 27
#: Arrays of the size of the scores of a block that the losses need.
_ARRAYS = 4
#: Rows from which some tell of the objective along a direction, every so many of them, fewest that tell, and numbers of
#: these and their scores on a processor.
_LEAST, _EVERY, _TELLING, _TOLD = 1 << 13, 16, 1 << 9, 1 << 25
#: Rows per task of the losses of a block.
_ROWS = 512


class ArrayRows(NamedTuple):
    """Dense rows of any library and any type of numbers, an n x d array."""

    x: Any


class Descent(NamedTuple):
    """What a pass over the rows finds at weights W, b.

    Attributes
    ----------
    losses : float
        The weighted sum of the losses.
    image : array of shape (d, K)
        ``X' (c * a)`` with the negative gradients a of the losses, of the widest type of the device.
    sums : array of shape (K,)
        ``sum_i c_i a_i``; 0 without an intercept.
    spread : float
        The weighted sum over the rows of the mean of p (1 - p) over the outputs; NaN for a loss without probabilities.
    """

    losses: float
    image: Any
    sums: Any
    spread: float


class Masses(NamedTuple):
    """Sums over the rows by which a dual point is balanced: of the wanted and the present, or of both signs."""

    first: Array
    second: Array


class Blocks(Protocol):
    """The losses of a block, the rows begin to end - 1; S and A are (m, K) arrays, which may be overwritten."""

    def respond(self, S: Any, begin: int, end: int) -> tuple[Any, Any]:
        """The negative gradients of the losses at scores S, and the weighted sum of the losses."""

    def spread(self, A: Any, begin: int, end: int) -> Any:
        """The weighted sum of the mean of p (1 - p), from a = y - p."""

    def weighted(self, A: Any, begin: int, end: int) -> Any:
        """c * a."""

    def masses(self, A: Any, begin: int, end: int) -> Masses:
        """The sums of the block by which the dual point is balanced."""

    def balanced(self, A: Any, moves: Any, begin: int, end: int) -> Any:
        """The balanced dual vectors."""

    def conjugate(self, A: Any, begin: int, end: int) -> Any:
        """The weighted sum of ``phi*(-a)``."""


@dataclass(frozen=True)
class ArrayProblem(Problem):
    """A `Problem` whose rows are an `ArrayRows`: with an l2 penalty, a smooth loss of `ARRAY_LOSSES`, and no shift.

    Weights and gradients of its solvers are arrays of the library of the rows, on their device, of ``dtype``; `model`
    gives NumPy's. Targets and sample weights are given as NumPy arrays, and copied to the device once.

    See `Problem` for parameters and errors.
    """

    # --- the rows ---------------------------------------------------------------------------------------------------

    @property
    def x(self) -> Any:
        """The rows, an array of shape (n, d)."""
        rows: Any = self.rows
        return rows.x

    @cached_property
    def foreign(self) -> bool:
        """Whether the rows are an array of another library than NumPy."""
        return is_foreign(self.x)

    @cached_property
    def wide(self) -> str:
        """The type of sums: float64 where the device has it."""
        return widest(self.x, self.dtype.name)

    def block(self, begin: int, end: int) -> Any:
        """The rows begin to end - 1, converted to ``dtype``."""
        part = self.x[begin:end, :]
        return as_type(detached(part), self.dtype.name) if self.foreign else np.asarray(part, self.dtype)

    def pieces(self) -> list[tuple[int, int]]:
        """Ranges of rows that are computed at a time."""
        if not self.foreign:
            return ranges(self.n_samples, max(64, _CACHED // max(1, self.n_features)))
        return ranges(self.n_samples, max(256, (_ON_DEVICE if self._on_device else _ON_PROCESSOR) // self._size))

    @property
    def _on_device(self) -> bool:
        return self.foreign and not str(getattr(self.x, "device", "cpu")).lower().startswith("cpu")

    @property
    def _size(self) -> int:
        """Numbers that a row of a block takes, with its scores."""
        return self.n_features + _ARRAYS * self.n_outputs

    def _row_norms(self) -> Array:
        found = np.empty(self.n_samples, self.dtype)
        for begin, end in self.pieces():
            part = self.block(begin, end)
            with np.errstate(over="ignore"):  # told by the caller
                if self.foreign:
                    found[begin:end] = to_numpy(namespace(part).sum(part * part, axis=1))
                else:
                    np.einsum("ij,ij->i", part, part, out=found[begin:end])
        return found

    def _only_zeros(self) -> bool:
        return not any(bool(np.any(to_numpy(self.block(*piece)))) for piece in self.pieces())

    def feature_squares(self) -> Array:
        """See `Problem.feature_squares`."""
        step = max(1, self.n_samples // 1000)
        part = to_numpy(as_type(detached(self.x[::step, :]), self.dtype.name) if self.foreign else self.x[::step])
        return np.asarray(np.mean(np.square(part.astype(np.float64)), axis=0))

    def picked(self, rows: Array) -> Any:
        """A copy of some rows, where they are and as they are."""
        if not self.foreign:
            return self.x[rows]
        return namespace(self.x).take(detached(self.x), place(rows, self.x, "int64"), axis=0)

    def taken(self, rows: Array) -> Array:
        """A NumPy copy of some rows, of ``dtype``."""
        found = self.picked(rows)
        return to_numpy(as_type(found, self.dtype.name)) if self.foreign else np.asarray(found, self.dtype)

    # --- arrays of the size of the weights --------------------------------------------------------------------------

    def blank(self, shape: tuple[int, ...]) -> Any:
        """An array of zeros of ``dtype`` where the rows are."""
        return self.there(np.zeros(shape, self.dtype))

    def there(self, array: Array) -> Any:
        """A NumPy array where the rows are, of ``dtype``."""
        return place(array, self.x, self.dtype.name) if self.foreign else np.array(array, self.dtype)

    def model(self, W: Any, bias: Any) -> tuple[Array, Array]:
        """The weights and the intercept as NumPy arrays."""
        return to_numpy(W), to_numpy(bias)

    def of_model(self, W: Any, bias: Any) -> tuple[Any, Any]:
        """The inverse of `model`."""
        return self.there(np.asarray(W)), self.there(np.asarray(bias))

    def inner_product(self, one: Any, two: Any) -> float:
        """<A, B>: products of the entries in their own type, summed in the widest."""
        if not self.foreign:
            return super().inner_product(one, two)
        xp = namespace(one)
        return float(xp.sum(one * two, dtype=getattr(xp, self.wide)))

    def penalty_value(self, W: Any) -> float:
        """g(W) = ||W||^2 / 2."""
        return 0.5 * self.inner_product(W, W)

    # --- passes over the rows ---------------------------------------------------------------------------------------

    @cached_property
    def _blocks(self) -> Blocks:
        return _OfLibrary(self) if self.foreign else _OfNumpy(self)

    def _responses(self, parts: tuple[Any, ...], bias: Any) -> Iterator[tuple[int, int, Any, Any, Any]]:
        """First row, last row + 1, rows, negative gradients of the losses, and sum of the losses, by blocks.

        The weights are the sum of ``parts``.
        """
        for begin, end in self.pieces():
            part = self.block(begin, end)
            scores = part @ parts[0]
            for other in parts[1:]:
                scores += part @ other
            if self.intercept:
                scores += bias
            yield begin, end, part, *self._blocks.respond(scores, begin, end)

    def responses(self, W: Any, bias: Any) -> Iterator[tuple[int, int, Any]]:
        """First row, last row + 1, and negative gradients of the losses at W, b, by blocks; one pass over the rows."""
        for begin, end, _, A, _ in self._responses((W,), bias):
            yield begin, end, A

    @cached_property
    def has_short_products(self) -> bool:
        """Whether `products` of the rows can be in less than float32."""
        return self.foreign and self.dtype == np.float32 and has_short_products(self.x)

    def descend(self, W: Any, bias: Any, *, short: bool = False) -> Descent:
        """Losses and their gradients at W, b, of the library and type of `blank`; one pass over the rows.

        With ``short`` by products in less than float32, see `has_short_products`. The weights are then given in two
        parts: their rounding, the same for all rows, would move the optimum further than a gap of 1e-3 on MNIST at
        alpha 1e-6. That of rows moves the data, that of gradients is random from row to row.
        """
        with products(self.x, short=short):
            return self._descended(in_parts(W) if short else (W,), bias)

    def _descended(self, parts: tuple[Any, ...], bias: Any) -> Descent:
        losses: Any = 0.0
        spread: Any = 0.0
        image: Any = 0.0
        sums: Any = 0.0
        curved = isinstance(self.loss, MultinomialLoss | LogisticLoss)
        for begin, end, part, A, lost in self._responses(parts, bias):
            losses = lost + losses
            if curved:
                spread = self._blocks.spread(A, begin, end) + spread
            weighted = self._blocks.weighted(A, begin, end)
            image = self._widened(part.T @ weighted) + image
            if self.intercept:
                sums = self._widened(self._summed(weighted)) + sums
        return Descent(float(losses), image, sums, float(spread) if curved else float("nan"))

    def _widened(self, array: Any) -> Any:
        return as_type(array, self.wide) if self.foreign else array.astype(np.float64)

    def _summed(self, array: Any) -> Any:
        """The sums of the columns; on a device in their own type, in which an Nvidia GPU takes a fifth of the time."""
        return namespace(array).sum(array, axis=0) if self.foreign else array.sum(axis=0, dtype=np.float64)

    def value(self, W: Any, bias: Any) -> float:
        """P(W, b). One pass over the rows."""
        losses: Any = 0.0
        with products(self.x, short=False):
            for *_, lost in self._responses((W,), bias):
                losses = lost + losses
        return self.objective(float(losses), self.penalty_value(W))

    def certified(self, W: Any, bias: Any) -> Certificate:
        """P at W, b, and D at the negative gradients of the losses there, balanced for an intercept.

        Two passes over the rows with an intercept, one without: the dual variables are not kept, but computed again.
        """
        with products(self.x, short=False):
            return self._certified(W, bias)

    @cached_property
    def _some(self) -> ArrayProblem | None:
        """The problem of some of the rows, evenly spaced; None: there are too few."""
        n = self.n_samples
        every = max(_EVERY, -(-n * self._size // (_ON_DEVICE if self._on_device else _TOLD)))
        rows = np.arange(0, n, every)
        weights = np.asarray(self.sample_weight)[rows]
        if n < _LEAST or len(rows) < _TELLING or not weights.any():
            return None
        some = ArrayRows(self.x[::every, :])
        return replace(self, rows=some, targets=of_rows(self.targets, rows), sample_weight=weights)  # type: ignore[arg-type]

    def changes_along(self, W: Any, bias: Any, move: Any, shift: Any) -> Callable[[float], tuple[float, float]] | None:
        """How the mean loss bends along a direction, by some of the rows; None: there are too few rows.

        See `manyclass.solvers.primal.dense.changes_along`. Every sixteenth row tells, or fewer: these and their scores
        are at most 2^25 numbers, on a device those of a block.
        """
        part = self._some
        if part is None:
            return None
        n, block = part.n_samples, part.block(0, part.n_samples)
        S, moves = block @ W, block @ move
        if self.intercept:
            S += bias
            moves += shift

        def at(t: float) -> tuple[float, float]:
            A, losses = part._blocks.respond(S + t * moves, 0, n)
            return float(losses) / n, -self.inner_product(part._blocks.weighted(A, 0, n), moves) / n

        loss, slope = at(0.0)

        def change(t: float) -> tuple[float, float]:
            later, steeper = at(t)
            return later - loss - t * slope, steeper - slope

        return change

    def _certified(self, W: Any, bias: Any) -> Certificate:
        moves: Any = None
        if self.intercept:
            parts = [self._blocks.masses(A, begin, end) for begin, end, _, A, _ in self._responses((W,), bias)]
            moves = self._moves(*(np.sum(np.asarray(part, np.float64), axis=0) for part in zip(*parts)))
        losses: Any = 0.0
        conjugates: Any = 0.0
        image: Any = 0.0
        for begin, end, part, A, lost in self._responses((W,), bias):
            losses = lost + losses
            if moves is not None:
                A = self._blocks.balanced(A, moves, begin, end)
            conjugates = self._blocks.conjugate(A, begin, end) + conjugates
            image = self._widened(part.T @ self._blocks.weighted(A, begin, end)) + image
        # Half of the square of the dual image V, which is ``image`` / (lam n).
        penalty = 0.5 * self.inv_lam_n**2 * self.inner_product(image, image)
        return self.bounds(
            primal=self.objective(float(losses), self.penalty_value(W)),
            dual=-float(conjugates) / self.n_samples - self.lam * penalty,
        )

    def _moves(self, first: Array, second: Array) -> tuple[Array, Array] | None:
        """How dual vectors are balanced, from the sums of `Masses` over all rows; None: they are.

        Joint losses: see `balancing`. Losses with a free dual: what is subtracted from each column. Others: by what the
        positive and the negative entries of each column are multiplied.
        """
        if isinstance(self.targets, ClassTargets):
            return balancing(first, second)
        if self.loss.free_dual:
            mean = (first - second) / float(np.sum(np.asarray(self.sample_weight), dtype=np.float64))
            return mean, mean
        least = np.minimum(first, second)
        shares = (least / np.where(part > 0, part, 1.0) * (part > 0) for part in (first, second))
        return next(shares), next(shares)


def sliced(targets: Targets, begin: int, end: int) -> Targets:
    """The targets of the rows begin to end - 1."""
    if isinstance(targets, SignTargets):
        return SignTargets(targets.indptr[begin : end + 1], targets.indices, targets.n_outputs)
    assert not isinstance(targets, SoftTargets)  # whose rows are in float32 or float64
    return type(targets)(targets.y[begin:end], targets.n_outputs)


class _OfNumpy:
    """Blocks of NumPy arrays, by the kernels."""

    def __init__(self, problem: ArrayProblem) -> None:
        self._problem = problem
        self._weights = np.asarray(problem.sample_weight)
        self._flat = bool(np.all(self._weights == 1))
        self._respond = responder(problem.loss, problem.targets)

    def _run(self, kernel: Any, A: Array, begin: int, end: int) -> float:
        problem = self._problem
        given = sliced(problem.targets, begin, end), self._weights[begin:end], problem.loss, A
        return float(sum(run(lambda b, e: kernel(*given, b, e), ranges(end - begin, _ROWS), problem.n_threads)))

    def respond(self, S: Array, begin: int, end: int) -> tuple[Array, float]:
        losses = self._run(self._respond, S, begin, end)
        return S, losses

    def spread(self, A: Array, begin: int, end: int) -> float:
        sizes, squares = np.abs(A).sum(axis=1), np.einsum("ik,ik->i", A, A)
        spread = np.maximum((sizes - squares) / self._problem.n_outputs, 1e-6)
        return float(np.dot(self._weights[begin:end].astype(np.float64), spread))

    def weighted(self, A: Array, begin: int, end: int) -> Array:
        return A if self._flat else self._weights[begin:end, None] * A

    def masses(self, A: Array, begin: int, end: int) -> Masses:
        problem, weights = self._problem, self._weights[begin:end]
        if isinstance(problem.targets, ClassTargets):
            found = Masses(np.empty(problem.n_outputs), np.empty(problem.n_outputs))
            class_masses(problem.targets.y[begin:end], weights, A, *found)
            return found
        return Masses(weighted_sums(weights, np.maximum(A, 0)), weighted_sums(weights, np.maximum(-A, 0)))

    def balanced(self, A: Array, moves: Any, begin: int, end: int) -> Array:
        problem = self._problem
        if isinstance(problem.targets, ClassTargets):
            balance_classes(problem.targets.y[begin:end], self._weights[begin:end], A, *moves)
            return A
        first, second = (move.astype(A.dtype) for move in moves)
        return np.asarray(A - first if problem.loss.free_dual else A * np.where(A > 0, first, second))

    def conjugate(self, A: Array, begin: int, end: int) -> float:
        return self._run(respond.conjugate_rows, A, begin, end)


class _OfLibrary:
    """Blocks of another library's arrays, by functions of the array API standard."""

    def __init__(self, problem: ArrayProblem) -> None:
        self._problem, self._xp = problem, namespace(problem.x)
        self._loss = ARRAY_LOSSES[type(problem.loss)]
        self._wide = getattr(self._xp, problem.wide)
        weights = np.asarray(problem.sample_weight)
        self._flat = bool(np.all(weights == 1))
        self._weights = problem.there(weights)
        targets = problem.targets
        self._numbers: Any = None
        #: One number for each row: its class, or with one column for two classes 0 for the second and -1 for the first.
        if isinstance(targets, ClassTargets):
            self._numbers = place(targets.y, problem.x, "int64")
        elif isinstance(targets, SignTargets) and np.all(np.diff(targets.indptr) == 1) and targets.n_outputs > 1:
            self._numbers = place(targets.indices, problem.x, "int64")
        elif isinstance(targets, SignTargets) and targets.n_outputs == 1:
            self._numbers = place(np.diff(targets.indptr) - 1, problem.x, "int64")
        elif isinstance(targets, RealTargets):
            self._reals = problem.there(targets.y)
        self._outputs = self._xp.arange(problem.n_outputs, dtype=self._xp.int64, device=problem.x.device)[None, :]

    def _targets(self, begin: int, end: int, dtype: Any) -> Any:
        """See `manyclass.objective.array_losses`."""
        xp, targets = self._xp, self._problem.targets
        if isinstance(targets, RealTargets):
            return xp.astype(self._reals[begin:end, :], dtype)
        if isinstance(targets, ClassTargets):
            return self._numbers[begin:end]
        if self._numbers is not None:
            return 2 * xp.astype(self._numbers[begin:end, None] == self._outputs, dtype) - 1
        assert isinstance(targets, SignTargets)
        signs = np.full((end - begin, targets.n_outputs), -1, np.int8)
        indptr = targets.indptr[begin : end + 1]
        rows = np.repeat(np.arange(end - begin), np.diff(indptr))
        signs[rows, targets.indices[indptr[0] : indptr[-1]]] = 1
        return xp.astype(place(signs, self._problem.x), dtype)

    def _sum(self, values: Any, begin: int, end: int) -> Any:
        """The weighted sum of a value for each row."""
        values = self._xp.astype(values, self._wide)
        return self._xp.sum(values if self._flat else values * self._xp.astype(self._weights[begin:end], self._wide))

    def respond(self, S: Any, begin: int, end: int) -> tuple[Any, Any]:
        targets = self._targets(begin, end, S.dtype)
        losses, A = self._loss.respond(self._xp, self._wide, self._problem.loss, S, targets)
        return A, self._sum(losses, begin, end)

    def spread(self, A: Any, begin: int, end: int) -> Any:
        problem, norm = self._problem, self._xp.linalg.vector_norm
        if isinstance(problem.targets, ClassTargets):  # the other entries sum to minus that of the row's class
            sizes = 2 * entries(A, self._numbers[begin:end])[:, 0]
        else:
            sizes = norm(A, axis=1, ord=1)
        found = (sizes - norm(A, axis=1) ** 2) / problem.n_outputs
        return self._sum(self._xp.where(found > 1e-6, found, self._xp.full_like(found, 1e-6)), begin, end)

    def weighted(self, A: Any, begin: int, end: int) -> Any:
        return A if self._flat else self._weights[begin:end, None] * A

    def _sums(self, A: Any, begin: int, end: int) -> Array:
        return to_numpy(self._xp.sum(self.weighted(A, begin, end), axis=0, dtype=self._wide)).astype(np.float64)

    def masses(self, A: Any, begin: int, end: int) -> Masses:
        xp, zero, targets = self._xp, self._xp.zeros_like(A), self._problem.targets
        if not isinstance(targets, ClassTargets):
            parts = xp.where(A > 0, A, zero), xp.where(A < 0, -A, zero)
            return Masses(*(self._sums(part, begin, end) for part in parts))
        weights = np.asarray(self._problem.sample_weight)[begin:end]
        wanted = np.bincount(targets.y[begin:end], weights=weights, minlength=targets.n_outputs)
        return Masses(wanted, self._sums(self._present(A, begin, end), begin, end))

    def _present(self, A: Any, begin: int, end: int) -> Any:
        """p, of a = y - p."""
        numbers = self._numbers[begin:end]
        return with_entries(-A, numbers, 1 - entries(A, numbers))

    def balanced(self, A: Any, moves: Any, begin: int, end: int) -> Any:
        xp = self._xp
        first, second = (place(move, A, self._problem.dtype.name)[None, :] for move in moves)
        if not isinstance(self._problem.targets, ClassTargets):
            return A - first if self._problem.loss.free_dual else xp.where(A > 0, A * first, A * second)
        p, numbers = self._present(A, begin, end), self._numbers[begin:end]
        taken = xp.sum(first * p, axis=1, keepdims=True)
        rivals = with_entries(p * (first - 1) - taken * second, numbers, xp.zeros_like(taken))
        return with_entries(rivals, numbers, -xp.sum(rivals, axis=1, keepdims=True))

    def conjugate(self, A: Any, begin: int, end: int) -> Any:
        # In its own type: the rounding of a row is below what the certificate resolves.
        conjugates = self._loss.conjugate(self._xp, self._problem.loss, A, self._targets(begin, end, A.dtype))
        return self._sum(conjugates, begin, end)
