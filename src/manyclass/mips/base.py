"""`SearchIndex`, the base class of all indexes for maximum inner product search: interface, checks, files."""

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
    """Base class of indexes for maximum inner product search: the classes with the largest ``x.w_k`` of a row x.

    The constructor takes the options, `build` the weights. The number of a class is the number of its column in the
    weights; classes with larger numbers can be inserted and classes can be deleted, which does not change other
    numbers. Several threads may query an index at the same time, but a change (`insert`, `update`, `delete`) must not
    run concurrently with anything else. Every result is determined by the options, the weights and the changes; it does
    not depend on the number of threads.

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

    #: Name of the class in index files.
    kind: ClassVar[str]

    _alive: Array  # for each class number, whether the index contains the class
    _d: int  # n_features

    # --- building and changing --------------------------------------------------------------------------------------

    def build(self: Index, weights: Any, *, n_jobs: int | None = None) -> Index:
        """Index the columns of ``weights``, in place of what the index contained before.

        Parameters
        ----------
        weights : ndarray or sparse matrix of shape (n_features, n_classes)
            float32 or float64, finite.
        n_jobs : int, default=None
            Number of threads: None means 1, -1 all cores. Some indexes use one thread only. Does not change the result.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the weights have another type or shape, or are not finite.
        """
        weights = _checked_weights(weights)
        if weights.shape[0] >= 2**31:
            raise ValueError(f"weights must have fewer than {2**31} features, got {weights.shape[0]}")
        self._d = int(weights.shape[0])
        self._alive = np.ones(weights.shape[1], bool)
        self._build(weights, n_jobs)
        return self

    def insert(self, ids: Any, vectors: Any) -> None:
        """Add classes to the index.

        Parameters
        ----------
        ids : array-like of int, shape (m,)
            Distinct class numbers that the index does not contain. All numbers up to the largest take memory.
        vectors : ndarray or CSR matrix of shape (m, n_features)
            One row per class.

        Raises
        ------
        ValueError
            If the index already contains a class, or the shape or the values of an argument are invalid; the index is
            then unchanged.
        """
        ids, vectors = self._checked_change(ids, vectors)
        taken = ids[ids < len(self._alive)]
        taken = taken[self._alive[taken]]
        if len(taken):
            raise ValueError(f"ids has {taken[0]}, which the index already contains: use update, or delete it first")
        self._insert(ids, vectors)

    def update(self, ids: Any, vectors: Any) -> None:
        """Replace the vectors of classes in the index; parameters as in `insert`.

        Raises
        ------
        ValueError
            If a class is not in the index, or the shape or the values of an argument are invalid; the index is then
            unchanged.
        """
        ids, vectors = self._checked_change(ids, vectors)
        self._require_held(ids)
        self._update(ids, vectors)

    def delete(self, ids: Any) -> None:
        """Remove classes from the index; they can be inserted again.

        Parameters
        ----------
        ids : array-like of int, shape (m,)
            Distinct class numbers.

        Raises
        ------
        ValueError
            If a class is not in the index, which is then unchanged.
        """
        self._require_built()
        ids = _checked_ids(ids)
        self._require_held(ids)
        self._delete(ids)

    # --- queries ----------------------------------------------------------------------------------------------------

    def query(self, X: Any, k: int = 1, exclude: Any = None, *, n_jobs: int | None = None) -> tuple[Array, Array]:
        """The k classes with the largest inner products with each row.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n, n_features)
            Rows, finite.
        k : int, default=1
            From 1 to the number of classes in the index, minus one if ``exclude`` names any.
        exclude : array-like of int, shape (n,), optional
            For each row, a class that is not returned (the true one, during training), or -1.
        n_jobs : int, default=None
            Number of threads: None means 1, -1 all cores. Does not change the result.

        Returns
        -------
        classes : ndarray of shape (n, k), int64
            Class numbers in descending order of their scores; of equal scores the lower number first.
        scores : ndarray of shape (n, k)
            Their exact inner products with the row, in the wider of the dtypes of X and of the weights.

        Raises
        ------
        ValueError
            If X has the wrong number of features, NaN or infinity, or k is out of range.
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
        """The fraction of the classes returned by `query` that are among the true k best; parameters as in `query`.

        Classes are compared by their scores, so that any of several classes with equal scores counts. This runs an
        exact search over the weights, with its memory and time.

        Returns
        -------
        float
            Between 0 and 1; NaN if X has no rows.
        """
        _, found = self.query(X, k, exclude, n_jobs=n_jobs)
        weights, dead = self.weights(), np.flatnonzero(~self._alive)
        scorer = Scorer(weights, np.zeros(weights.shape[1], weights.dtype))
        out = None if exclude is None else _checked_exclude(exclude, X.shape[0])
        _, best = scorer.best(X, k, n_jobs, exclude=out, closed=dead if len(dead) else None)
        if not len(found):
            return float("nan")
        # Inner products are summed in another order: allow for rounding errors.
        slack = 100 * float(np.finfo(found.dtype).eps) * np.abs(best).max(axis=1, keepdims=True)
        return float(np.mean(found >= best[:, -1:] - slack))

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of features of the class vectors."""
        self._require_built()
        return self._d

    @property
    def n_classes(self) -> int:
        """Number of classes in the index."""
        self._require_built()
        return int(np.count_nonzero(self._alive))

    @property
    def ids(self) -> Array:
        """The numbers of the classes in the index, ascending."""
        self._require_built()
        return np.flatnonzero(self._alive)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the class vectors: float32 or float64."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of the index in bytes, with the vectors."""

    @abstractmethod
    def weights(self) -> Any:
        """The indexed vectors as columns: an array or a CSR matrix, (n_features, largest number + 1)."""

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to one safetensors file, atomically.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        FileNotFoundError
            If the folder of the file does not exist.
        """
        self._require_built()
        options, arrays = self._state()
        arrays = {"alive": self._alive, **arrays}
        write_arrays(path, INDEX, arrays, {"kind": self.kind, "n_features": self._d, "options": options})

    @classmethod
    def load(cls: type[Index], path: str | os.PathLike[str]) -> Index:
        """Open the index in a file. Its arrays are memory-mapped, and copied at the first change.

        ``SearchIndex.load`` opens an index of any class, the method of a subclass only one of that subclass.

        Parameters
        ----------
        path : path
            A file that `save` wrote.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If it does not contain an index, contains one of another class, or is damaged.
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
            if index._d < 1 or index._alive.dtype != bool or index._alive.ndim != 1:
                raise ValueError(f"{index._d} features, alive of type {index._alive.dtype}")
            index._restore(arrays)
            if index.dtype not in (np.float32, np.float64):
                raise ValueError(f"its vectors are {index.dtype}, expected float32 or float64")
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise file.damaged(str(error)) from error
        return index

    # --- implemented by subclasses ----------------------------------------------------------------------------------

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
        """The arguments of the constructor, and the arrays to save."""

    @abstractmethod
    def _restore(self, arrays: dict[str, Array]) -> None:
        """Use the arrays of `_state`; raise a ValueError or a KeyError if they are inconsistent."""

    # --- checks -----------------------------------------------------------------------------------------------------

    def _require_built(self) -> None:
        if not hasattr(self, "_alive"):
            raise ValueError(f"this {type(self).__name__} has not been built: call build(weights) first")

    def _require_held(self, ids: Array) -> None:
        held = ids < len(self._alive)
        held[held] = self._alive[ids[held]]
        if not held.all():
            raise ValueError(f"ids has {ids[~held][0]}, which the index does not contain: insert it first")

    def _checked_rows(self, X: Any, name: str = "X") -> np.dtype[Any]:
        """The dtype of the scores of rows; a ValueError if the rows are invalid."""
        self._require_built()
        dtype = check_rows(X, name)
        if X.shape[1] != self._d:
            raise ValueError(f"{name} must have {self._d} features, those of the index, got {X.shape[1]}")
        fault = row_fault(make_rows(X), 0, int(X.shape[0]), self._d)
        if fault:
            raise ValueError(f"{name} has {fault}")
        return np.result_type(dtype, self.dtype)

    def _piece(self, X: Any, begin: int, end: int, dtype: np.dtype[Any]) -> Any:
        """The rows begin .. end - 1 as a CSR matrix of this dtype with int32 indices, the only input of the kernels."""
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
            raise ValueError(f"vectors must have one row for each of the {len(ids)} ids, got {vectors.shape[0]} rows")
        return ids, vectors

    def _open(self, ids: Array) -> None:
        """Mark the classes ``ids`` as contained in the index, extending ``_alive`` to the largest of them."""
        beyond = int(ids.max(initial=-1)) + 1 - len(self._alive)
        self._alive = np.append(self._alive, np.zeros(max(beyond, 0), bool))
        self._alive[ids] = True


def whole(name: str, value: Any, least: int) -> int:
    """``value`` as an int if it is an integer from ``least`` to 2^63 - 1; else a ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if int(value) >= 2**63:
        raise ValueError(f"{name} must be an integer below 2^63, got {value!r}")
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
            "weights must be float32 or float64 of shape (n_features, n_classes), both at least 1, got "
            f"{weights.dtype} of shape {weights.shape}"
        )
    if sparse:
        check_sparse(weights, "weights")
        weights = weights.tocsr()
        if len(weights.data) != weights.indptr[-1]:  # room behind the last row, which SciPy allows
            weights = weights.copy()
            weights.prune()
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
        raise ValueError(f"ids must be between 0 and {2**31 - 2}, got {ids.min()} to {ids.max()}")
    if len(np.unique(ids)) != len(ids):
        values, counts = np.unique(ids, return_counts=True)
        raise ValueError(f"ids must be distinct, got {values[counts > 1][0]} more than once: pass each class once")
    return ids


def _checked_exclude(given: Any, n: int) -> Array:
    exclude: Array = np.asarray(given)
    if exclude.shape != (n,) or (n and exclude.dtype.kind not in "iu"):
        raise ValueError(
            f"exclude must be {n} integers, one for each row of X, got {exclude.dtype} of shape {exclude.shape}"
        )
    exclude = exclude.astype(np.int64)
    if n and exclude.min() < -1:
        raise ValueError(f"exclude must contain class numbers, or -1 for none, got {exclude.min()}")
    return exclude
