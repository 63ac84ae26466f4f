"""What all indexes for maximum-inner-product search share: the protocol, its checks, its file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from manyclass.io.tensors import FileError, Kind, TensorFile, write_arrays
from manyclass.kernels.rows import check_sparse, csr_fault, make_rows
from manyclass.kernels.scoring import Scorer, check_rows, row_fault

__all__ = ["INDEX", "SearchIndex", "whole"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Index = TypeVar("Index", bound="SearchIndex")


INDEX = Kind(
    "manyclass-index",
    1,
    "search index",
    "give a file that save() of an index wrote",
    "save the index again",
    FileError,
    {"kind": str, "n_features": int, "options": dict},
)


class SearchIndex(ABC):
    """Maximum-inner-product search: for a row x, the classes k with the largest ``x . w_k``.

    An index is made with its options and then built from weights. Classes have numbers, those of the columns of the
    weights; numbers may be added beyond the last one and taken away, and are never moved. A query changes nothing, so
    that threads may query one index at a time; a change (`insert`, `update`, `delete`) must be alone. Every result is
    a function of the options, the weights and the changes: not of threads, not of the clock.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.mips import ExactSearch
    >>> W = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])  # 2 features, 3 classes
    >>> index = ExactSearch().build(W)
    >>> classes, scores = index.query(np.array([[1.0, 0.5]]), k=2)
    >>> classes.tolist(), scores.tolist()
    ([[2, 0]], [[3.0, 1.0]])
    >>> index.query(np.array([[1.0, 0.5]]), exclude=[2])[0].tolist()
    [[0]]
    """

    #: The name in files.
    kind: ClassVar[str]

    _alive: Array  # of each class number up to the last
    _d: int  # n_features

    # --- building and changing --------------------------------------------------------------------------------------

    def build(self: Index, weights: Any, *, n_jobs: int | None = None) -> Index:
        """Index the columns of ``weights``; what the index held before is gone.

        Parameters
        ----------
        weights : ndarray or sparse matrix of shape (n_features, n_classes)
            float32 or float64, finite.
        n_jobs : int, optional
            Threads, for the indexes that can use them; the result does not depend on it.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the weights are not finite numbers in such a shape.
        """
        weights = _checked_weights(weights)
        if weights.shape[0] >= 2**31:
            raise ValueError(f"weights has {weights.shape[0]} features; expected fewer than {2**31}")
        self._d = int(weights.shape[0])
        self._alive = np.ones(weights.shape[1], bool)
        self._build(weights, n_jobs)
        return self

    def insert(self, ids: Any, vectors: Any) -> None:
        """Add classes.

        Parameters
        ----------
        ids : array-like of int, shape (m,)
            Numbers that no class of the index has, each once; the numbers up to the largest take memory.
        vectors : ndarray or CSR matrix of shape (m, n_features)
            One row a class.

        Raises
        ------
        ValueError
            If a number is taken, or the vectors do not fit. The index is then as it was.
        """
        ids, vectors = self._checked_change(ids, vectors)
        taken = ids[ids < len(self._alive)]
        taken = taken[self._alive[taken]]
        if len(taken):
            raise ValueError(f"ids has {taken[0]}, which the index already holds: update it, or delete it first")
        self._insert(ids, vectors)

    def update(self, ids: Any, vectors: Any) -> None:
        """Give classes of the index new vectors; parameters as for `insert`.

        Raises
        ------
        ValueError
            If a class is not in the index, or the vectors do not fit. The index is then as it was.
        """
        ids, vectors = self._checked_change(ids, vectors)
        self._require_held(ids)
        self._update(ids, vectors)

    def delete(self, ids: Any) -> None:
        """Take classes out of the index: they are not returned again until they are inserted again.

        Raises
        ------
        ValueError
            If a class is not in the index. The index is then as it was.
        """
        self._require_built()
        ids = _checked_ids(ids)
        self._require_held(ids)
        self._delete(ids)

    # --- asking -----------------------------------------------------------------------------------------------------

    def query(self, X: Any, k: int = 1, exclude: Any = None, *, n_jobs: int | None = None) -> tuple[Array, Array]:
        """The k best classes of each row.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n, n_features)
        k : int
            At least 1, at most the number of classes, less one where some are excluded.
        exclude : array-like of int, shape (n,), optional
            For each row a class that is not to be returned (the true one, while training), or -1.
        n_jobs : int, optional
            Threads; the result does not depend on it.

        Returns
        -------
        classes : ndarray of shape (n, k), int64
            The best first; of equal scores the lower number first.
        scores : ndarray of shape (n, k)
            Their exact inner products with the row, in the wider of the dtypes of X and of the weights.

        Raises
        ------
        ValueError
            If X does not fit, has NaN or infinity, or there are fewer than k classes.
        """
        dtype = self._checked_rows(X)
        n = int(X.shape[0])
        banned = np.full(n, -1, np.int64)
        if exclude is not None:
            banned = _checked_exclude(exclude, n)
        most = self.n_classes - (1 if len(banned) and banned.max() >= 0 else 0)
        wanted: Any = k
        if isinstance(wanted, bool) or not isinstance(wanted, Integral) or not 1 <= int(wanted) <= most:
            raise ValueError(
                f"k must be an integer from 1 to {most}, the classes that the index can return, got {k!r}"
                + ("" if most else ": insert classes first")
            )
        classes, scores = np.empty((n, int(k)), np.int64), np.empty((n, int(k)), dtype)
        if n:
            self._query(X, banned, classes, scores, n_jobs)
        return classes, scores

    def recall(self, X: Any, k: int = 1, exclude: Any = None, *, n_jobs: int | None = None) -> float:
        """The measured recall: of the classes that `query` returns, the fraction that are among the k best.

        Judged by scores, so that a class as good as the k-th best counts, whichever of equals was returned. Makes an
        exact search of the weights for the purpose: its memory, and the time of an exact query.

        Returns
        -------
        float
            Between 0 and 1; NaN without rows.
        """
        _, found = self.query(X, k, exclude, n_jobs=n_jobs)
        weights, dead = self.weights(), np.flatnonzero(~self._alive)
        scorer = Scorer(weights, np.zeros(weights.shape[1], weights.dtype))
        out = None if exclude is None else _checked_exclude(exclude, X.shape[0])
        _, best = scorer.best(X, k, n_jobs, exclude=out, closed=dead if len(dead) else None)
        if not len(found):
            return float("nan")
        # Inner products are summed in another order: their last digits do not count.
        slack = 100 * float(np.finfo(found.dtype).eps) * np.abs(best).max(axis=1, keepdims=True)
        return float(np.mean(found >= best[:, -1:] - slack))

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Length of the vectors."""
        self._require_built()
        return self._d

    @property
    def n_classes(self) -> int:
        """Number of classes that the index holds."""
        self._require_built()
        return int(np.count_nonzero(self._alive))

    @property
    def ids(self) -> Array:
        """The numbers of the classes that the index holds, ascending."""
        self._require_built()
        return np.flatnonzero(self._alive)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Of the vectors: float32 or float64."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the index takes, with the vectors."""

    @abstractmethod
    def weights(self) -> Any:
        """The indexed vectors as columns: an array or a CSR matrix, (n_features, largest number + 1)."""

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to one safetensors file; at no time is a part of it seen under its name.

        Raises
        ------
        FileNotFoundError
            If the folder does not exist.
        """
        self._require_built()
        options, arrays = self._state()
        arrays = {"alive": self._alive, **arrays}
        write_arrays(path, INDEX, arrays, {"kind": self.kind, "n_features": self._d, "options": options})

    @classmethod
    def load(cls: type[Index], path: str | os.PathLike[str]) -> Index:
        """The index in a file, its arrays mapped: read when they are used, and copied at the first change.

        ``SearchIndex.load`` takes an index of any kind, ``ExactSearch.load`` and so on one of theirs.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If it holds no index, one of another kind, or is damaged.
        """
        with TensorFile(path, INDEX) as file:
            described = file.facts
            arrays = {name: file.read(name, mmap=True) for name in file.names}
        homes = {home.kind: home for home in _kinds(cls)}
        if described["kind"] not in homes:
            expected = " or ".join(map(repr, sorted(homes)))
            raise file.error(f"an index of kind {described['kind']!r}, expected {expected}")
        try:
            index: Index = homes[described["kind"]](**described["options"])
            index._d = int(described["n_features"])
            index._alive = np.array(arrays.pop("alive"))
            index._restore(arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise file.damaged(str(error)) from error
        return index

    # --- what a kind of index says ----------------------------------------------------------------------------------

    @abstractmethod
    def _build(self, weights: Any, n_jobs: int | None) -> None: ...

    @abstractmethod
    def _insert(self, ids: Array, vectors: Any) -> None: ...

    @abstractmethod
    def _update(self, ids: Array, vectors: Any) -> None: ...

    @abstractmethod
    def _delete(self, ids: Array) -> None: ...

    @abstractmethod
    def _query(self, X: Any, exclude: Array, classes: Array, scores: Array, n_jobs: int | None) -> None: ...

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Options, as the constructor takes them, and arrays."""

    @abstractmethod
    def _restore(self, arrays: dict[str, Array]) -> None:
        """Take the arrays of `_state`, and raise a ValueError or a KeyError if they do not fit each other."""

    # --- checks -----------------------------------------------------------------------------------------------------

    def _require_built(self) -> None:
        if not hasattr(self, "_alive"):
            raise ValueError(f"this {type(self).__name__} holds nothing yet: call build(weights) first")

    def _require_held(self, ids: Array) -> None:
        held = ids < len(self._alive)
        held[held] = self._alive[ids[held]]
        if not held.all():
            raise ValueError(f"ids has {ids[~held][0]}, which the index does not hold: insert it first")

    def _checked_rows(self, X: Any, name: str = "X") -> np.dtype[Any]:
        """The dtype of the scores of valid rows."""
        self._require_built()
        dtype = check_rows(X, name)
        if X.shape[1] != self._d:
            raise ValueError(f"{name} has {X.shape[1]} features, and the index was built with {self._d}")
        fault = row_fault(make_rows(X), 0, int(X.shape[0]), self._d)
        if fault:
            raise ValueError(f"{name} has {fault}")
        return np.result_type(dtype, self.dtype)

    def _piece(self, X: Any, begin: int, end: int, dtype: np.dtype[Any]) -> Any:
        """The rows begin .. end - 1 as a CSR matrix of that dtype, with int32 indices: what search kernels are compiled
        for, whatever the rows are held in."""
        piece = sp.csr_matrix(X[begin:end], dtype=dtype)
        piece.indices = piece.indices.astype(np.int32, copy=False)
        piece.indptr = piece.indptr.astype(np.int32, copy=False)
        return piece

    def _checked_change(self, ids: Any, vectors: Any) -> tuple[Array, Any]:
        self._require_built()
        ids = _checked_ids(ids)
        if sp.issparse(vectors):
            check_sparse(vectors, "vectors")
            vectors = vectors.tocsr()
        self._checked_rows(vectors, "vectors")
        if vectors.shape[0] != len(ids):
            raise ValueError(f"vectors has {vectors.shape[0]} rows for {len(ids)} ids: give one row a class")
        return ids, vectors

    def _open(self, ids: Array) -> None:
        """Have ``_alive`` reach to the largest of the ids, and say that all of them live."""
        beyond = int(ids.max(initial=-1)) + 1 - len(self._alive)
        self._alive = np.append(self._alive, np.zeros(max(beyond, 0), bool))
        self._alive[ids] = True


def whole(name: str, value: Any, least: int) -> int:
    """An option that is an integer of at least ``least``; a ValueError that says what else it is."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def _kinds(cls: Any) -> list[Any]:
    return [home for child in cls.__subclasses__() for home in _kinds(child)] or [cls]


def _checked_weights(weights: Any) -> Any:
    """Valid weights: a C-contiguous array, or a CSR matrix with sorted indices, none twice."""
    sparse = sp.issparse(weights)
    if not sparse and not isinstance(weights, np.ndarray):
        raise ValueError(f"weights must be an array or a sparse matrix, got {type(weights).__name__}")
    if weights.ndim != 2 or 0 in weights.shape or weights.dtype not in (np.float32, np.float64):
        raise ValueError(
            "weights must be float32 or float64 of shape (n_features, n_classes), neither of them 0, got "
            f"{weights.dtype} of shape {weights.shape}"
        )
    if sparse:
        check_sparse(weights, "weights")
        weights = weights.tocsr()
        fault = csr_fault(weights.data, weights.indices, weights.indptr, weights.shape)
        if fault:
            raise ValueError(f"weights must be a valid CSR matrix: {fault}")
        if not weights.has_canonical_format:
            weights = weights.copy()
            weights.sum_duplicates()
    else:
        weights = np.ascontiguousarray(weights)
    fault = row_fault(make_rows(weights), 0, weights.shape[0], weights.shape[1])
    if fault:
        raise ValueError(f"weights has {fault}")
    return weights


def _checked_ids(given: Any) -> Array:
    ids: Array = np.asarray(given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(f"ids must be a vector of integers, got {ids.dtype} of shape {ids.shape}")
    ids = ids.astype(np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= 2**31 - 1):
        raise ValueError(f"ids run from {ids.min()} to {ids.max()}; expected 0 to {2**31 - 2}")
    if len(np.unique(ids)) != len(ids):
        raise ValueError("ids has a number twice: give each class once")
    return ids


def _checked_exclude(given: Any, n: int) -> Array:
    exclude: Array = np.asarray(given)
    if exclude.shape != (n,) or (n and exclude.dtype.kind not in "iu"):
        raise ValueError(
            f"exclude must be {n} integers, one for each row of X, got {exclude.dtype} of shape {exclude.shape}"
        )
    exclude = exclude.astype(np.int64)
    if n and exclude.min() < -1:
        raise ValueError(f"exclude has {exclude.min()}; expected class numbers, or -1 for none")
    return exclude
