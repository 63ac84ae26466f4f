"""Rivals proposed by an index, which follows the weights of MEMOIR while these change."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import make_rows, read_only
from manyclass.kernels.simple_lsh import hamming_best
from manyclass.mips import SearchIndex, SimpleLSH
from manyclass.mips.simple_lsh import packed
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.memoir.weights import Weights, part

__all__ = ["CodeProposals", "IndexProposals", "Proposals", "proposals"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Proposals(Protocol):
    """A search for rivals that may miss the best one. U are the present weights, unscaled."""

    #: ||u_k||^2 of the classes, which `Weights.add` keeps up; empty if they are not needed.
    squares: Array

    def build(self, U: Weights, n_threads: int) -> None:
        """Begin with these weights."""

    def grow(self, U: Weights) -> None:
        """Add the classes that U has and this has not."""

    def rivals(self, U: Weights, batch: Any, y: Array, n_threads: int) -> Array:
        """A class other than y for each row of a batch, int32."""

    def follow(self, U: Weights, y: Array, rivals: Array, moves: Array) -> None:
        """Call this after ``u_y += move x``, ``u_r -= move x`` for each row of the batch of the last `rivals`."""

    def tidy(self, U: Weights, n_threads: int) -> None:
        """Bring the state, after an epoch, into the form that `build` restores."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""


def proposals(index: SearchIndex, exact: bool = False) -> Proposals:
    """The search by an index, which is built anew; ``exact``: whether it must know every change of the weights."""
    return CodeProposals(index) if isinstance(index, SimpleLSH) and not exact else IndexProposals(index)


class IndexProposals:
    """Any index, with vectors of its own, of which those of the changed classes are replaced after each batch."""

    squares = np.empty(0)

    def __init__(self, index: SearchIndex) -> None:
        self._index = index

    def build(self, U: Weights, n_threads: int) -> None:
        self._index.build(U.export(), n_jobs=n_threads)

    def grow(self, U: Weights) -> None:
        more = np.arange(self._index.n_classes, U.n_classes)
        self._index.insert(more, U.vectors(more))

    def rivals(self, U: Weights, batch: Any, y: Array, n_threads: int) -> Array:
        found, _ = self._index.query(batch, 1, exclude=y, n_jobs=n_threads)
        return found[:, 0].astype(np.int32)

    def follow(self, U: Weights, y: Array, rivals: Array, moves: Array) -> None:
        ids = np.unique(np.concatenate([y[moves > 0], rivals[moves > 0]]))
        if len(ids):
            self._index.update(ids, U.vectors(ids))

    def tidy(self, U: Weights, n_threads: int) -> None:
        pass  # to build a graph takes a search for each class

    @property
    def nbytes(self) -> int:
        return self._index.nbytes


class CodeProposals:
    """The codes of a `SimpleLSH` without its vectors: candidates are scored with the present weights.

    A step adds a row to the vectors of two classes, and so the row's products with the normals of the hyperplanes to
    theirs: a code costs as much as the row has values, not as its class has weights. A delayed truncation is in the
    codes at the end of an epoch.
    """

    def __init__(self, index: SimpleLSH) -> None:
        self._index = index
        self.squares = np.empty(0)

    def build(self, U: Weights, n_threads: int) -> None:
        W = U.export()
        self._planes = self._index.hyperplanes(W.shape[0])
        vectors = sp.csr_matrix(W.T)
        self.squares = np.asarray(vectors.multiply(vectors).sum(axis=1, dtype=np.float64)).ravel()
        self._sides = self._planes.sides(vectors, n_threads).astype(np.float32, copy=False)
        self._code_all()

    def _code_all(self) -> None:
        longest = float(self.squares.max(initial=0.0)) ** 0.5
        self._bound = self._index.slack * longest
        self._codes = self._planes.class_codes(self._sides, np.sqrt(self.squares), self._bound)

    def grow(self, U: Weights) -> None:
        more = U.n_classes - len(self.squares)
        self.squares = np.append(self.squares, np.zeros(more))
        self._sides = np.concatenate([self._sides, np.zeros((more, self._sides.shape[1]), np.float32)])
        self._code_all()

    def rivals(self, U: Weights, batch: Any, y: Array, n_threads: int) -> Array:
        self._of_batch = self._planes.sides(batch, n_threads)
        rows, asked, n = make_rows(batch), packed(self._of_batch), len(y)
        scores, found = np.empty((n, 1), U.dtype), np.empty((n, 1), np.int64)
        codes, alive, own = read_only(self._codes), np.ones(len(self._codes), bool), y.astype(np.int64)

        def task(begin: int, end: int) -> None:
            some, asks = slice(begin, end), part(rows, begin, end)
            spread, candidates = np.zeros(batch.shape[1], U.dtype), self._index.candidates
            hamming_best(
                asks, asked[some], U.view(), codes, alive, own[some], candidates, spread, scores[some], found[some]
            )

        run(task, ranges(n, max(1, -(-n // n_threads))), n_threads)
        return found[:, 0].astype(np.int32)

    def follow(self, U: Weights, y: Array, rivals: Array, moves: Array) -> None:
        moved = np.flatnonzero(moves)
        change = (moves[moved, None] * self._of_batch[moved]).astype(np.float32)
        np.add.at(self._sides, y[moved], change)
        np.subtract.at(self._sides, rivals[moved], change)
        np.maximum(self.squares, 0.0, out=self.squares)  # of rounding
        ids = np.unique(np.concatenate([y[moved], rivals[moved]]))
        if float(self.squares[ids].max(initial=0.0)) ** 0.5 > self._bound:
            self._code_all()
        elif len(ids):
            self._codes[ids] = self._planes.class_codes(self._sides[ids], np.sqrt(self.squares[ids]), self._bound)

    def tidy(self, U: Weights, n_threads: int) -> None:
        self.build(U, n_threads)

    @property
    def nbytes(self) -> int:
        arrays = (self.squares, self._sides, self._codes)
        return self._planes.nbytes + sum(int(array.nbytes) for array in arrays)
