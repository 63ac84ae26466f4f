"""Reads sequences of tokens: matrices, or names and values of features; and sequences of labels."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.rows import check_sparse
from manyclass.objective.problem import Array

__all__ = ["Tokens", "read_label_sequences", "read_names", "read_sequences"]


class Tokens(NamedTuple):
    """The features of all tokens of all sequences.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (N, d)
        One row per token.
    edges : ndarray of int64 of shape (n + 1,)
        The tokens of sequence i are the rows edges[i] .. edges[i + 1] - 1.
    columns : dict of str to int, or None
        The column of each name; None for sequences that are matrices.
    """

    X: Any
    edges: Array
    columns: dict[str, int] | None


def read_sequences(
    X: Any, columns: Mapping[str, int] | None = None, width: int | None = None, *, grow: bool = False, name: str = "X"
) -> Tokens:
    """Check sequences, in the formats that `manyclass.LinearChainCRF` accepts, and join them.

    Parameters
    ----------
    X : list of sequences
        See `manyclass.LinearChainCRF.fit`.
    columns : mapping of str to int, optional
        The columns of the names that are known already; None: none.
    width : int, optional
        The number of columns that matrices must have; None: any, the same for all.
    grow : bool, default=False
        Whether names that are not known get columns of their own; else they are left out.
    name : str, default="X"
        The name of the argument, for errors.

    Returns
    -------
    Tokens
        ``columns`` are those of the names known before and, with ``grow``, of the new ones behind them.

    Raises
    ------
    ValueError
        Naming the sequence that is invalid.
    """
    if isinstance(X, np.ndarray) and X.ndim == 3:
        X = list(X)
    if not isinstance(X, Sequence | np.ndarray) or isinstance(X, str) or sp.issparse(X) or len(X) == 0:
        raise ValueError(
            f"{name} must be a list of sequences, each a list of tokens or a matrix of tokens and features, got "
            f"{type(X).__name__}{' of length 0' if isinstance(X, list | tuple) else ''}: pass [sequence, ...]"
        )
    for i, sequence in enumerate(X):
        if isinstance(sequence, str) or not (sp.issparse(sequence) or hasattr(sequence, "__len__")):
            hint = ": pass list(text) for a sequence of characters" if isinstance(sequence, str) else ""
            raise ValueError(
                f"{name}[{i}] must be a sequence of tokens, got {type(sequence).__name__} {sequence!r:.40}{hint}"
            )
        if (sequence.shape[0] if sp.issparse(sequence) else len(sequence)) == 0:
            raise ValueError(f"every sequence must have at least one token, {name}[{i}] is empty: leave it out")
    if _is_matrix(X[0]):
        if columns is not None:
            raise ValueError(
                f"{name} must have names of features, as in the fit, got matrices: pass lists of tokens, each a dict"
            )
        return _join(X, width, name)
    if width is not None:
        raise ValueError(f"{name} must be matrices with {width} columns, as in the fit, got lists of tokens")
    return read_names(X, columns or {}, grow, name)


def read_label_sequences(y: Any, edges: Array, classes: Array | None = None, name: str = "y") -> tuple[Array, Array]:
    """The sorted classes, and the class number of each token (int64; -1 for labels that are not in ``classes``).

    Parameters
    ----------
    y : list of n sequences of labels
        One label for each token: strings, or integers.
    edges : ndarray of shape (n + 1,)
        The tokens of each sequence, see `Tokens`.
    classes : ndarray, optional
        The known classes, sorted; None: the labels in y.
    name : str, default="y"
        The name of the argument, for errors.

    Raises
    ------
    ValueError
        If the lengths differ from those of the sequences, or the labels are neither all strings nor all integers.
    """
    n = len(edges) - 1
    if isinstance(y, str) or not hasattr(y, "__len__") or len(y) != n:
        got = f"{len(y)}" if hasattr(y, "__len__") else type(y).__name__
        raise ValueError(f"{name} must be a list of {n} sequences of labels, one for each sequence of X, got {got}")
    parts = [_label_array(part) for part in y]
    for i, part in enumerate(parts):
        size = int(edges[i + 1] - edges[i])
        if part.shape != (size,):
            raise ValueError(f"{name}[{i}] must have {size} labels, one for each token, got shape {part.shape}")
    kinds = {"i" if part.dtype.kind in "iub" else part.dtype.kind for part in parts}
    if classes is not None:
        kinds.add("i" if classes.dtype.kind in "iub" else classes.dtype.kind)
    if kinds not in ({"U"}, {"i"}):
        found = sorted({type(label).__name__ for part in parts for label in part.tolist()})
        raise ValueError(f"{name} must have labels that are all strings, or all integers, got {', '.join(found)}")
    labels = np.concatenate(parts)
    if classes is None:
        classes, index = np.unique(labels, return_inverse=True)
        return classes, np.asarray(index, np.int64).reshape(-1)
    place = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return classes, np.where(classes[place] == labels, place, -1).astype(np.int64)


def _label_array(labels: Any) -> Array:
    """The labels of a sequence; an array of objects where NumPy would make texts of the numbers or NaN among them."""
    found = np.asarray(list(labels) if isinstance(labels, str) else labels)
    listed = found.dtype.kind == "U" and isinstance(labels, (list, tuple))
    return np.asarray(labels, object) if listed and not all(isinstance(one, str) for one in labels) else found


def _is_matrix(sequence: Any) -> bool:
    return bool(sp.issparse(sequence)) or (isinstance(sequence, np.ndarray) and sequence.ndim == 2)


def _join(X: Any, width: int | None, name: str) -> Tokens:
    """The vertically stacked matrices."""
    parts: list[Any] = []
    for i, part in enumerate(X):
        check_sparse(part, f"{name}[{i}]")
        part = sp.csr_matrix(part) if sp.issparse(part) else np.asarray(part)
        if part.ndim != 2 or part.dtype.kind not in "biuf":
            raise ValueError(
                f"{name}[{i}] must be a matrix of real numbers, tokens x features, as {name}[0] is, got "
                f"shape {part.shape} of {part.dtype}"
            )
        wanted = parts[0].shape[1] if parts and width is None else width
        if wanted is not None and part.shape[1] != wanted:
            where = "as in the fit" if width is not None else f"as {name}[0] has"
            raise ValueError(f"{name}[{i}] must have {wanted} columns, {where}, got {part.shape[1]}")
        if not np.isfinite(part.data if sp.issparse(part) else part).all():
            raise ValueError(f"{name}[{i}] must be finite, got NaN or infinity")
        parts.append(part)
    edges = np.concatenate([[0], np.cumsum([part.shape[0] for part in parts])]).astype(np.int64)
    joined: Any = (
        sp.csr_matrix(sp.vstack(parts, format="csr"))
        if all(sp.issparse(part) for part in parts)
        else np.vstack([part.toarray() if sp.issparse(part) else part for part in parts])
    )
    joined = joined if joined.dtype in (np.float32, np.float64) else joined.astype(np.float64)
    return Tokens(joined, edges, None)


class _Columns(dict[str, int]):
    """The column of each name; of a new one the next free."""

    def __missing__(self, key: str) -> int:
        if not isinstance(key, str):
            raise TypeError(f"a feature named {key!r:.40}")
        found = self[key] = len(self)
        return found


def read_names(X: Any, known: Mapping[str, int], grow: bool, name: str, unit: str = "token") -> Tokens:
    """As `read_sequences`, for lists of tokens whose features have names; ``unit`` is what errors call a token."""
    columns = _Columns(known)
    indices, values, sizes, ones = array("q"), array("d"), array("q"), array("d", [1.0])
    place: Any = columns.__getitem__ if grow else columns.get
    numbers: Any
    for i, sequence in enumerate(X):
        for t, token in enumerate(sequence):
            try:
                if isinstance(token, Mapping):
                    pairs = list(chain.from_iterable(map(_pair, token.items())))
                    found, numbers = [place(key) for key, _ in pairs], [value for _, value in pairs]
                else:
                    found = [*map(place, (token,) if isinstance(token, str) else token)]
                    numbers = ones * len(found)
                if not grow and None in found:
                    numbers = [value for column, value in zip(found, numbers) if column is not None]
                    found = [column for column in found if column is not None]
            except (TypeError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"{unit} {t} of {name}[{i}] must be a name, a list of names, or a dict of names and numbers, "
                    f"strings or booleans, got {token!r:.60}: {error}"
                ) from error
            indices.extend(found)
            values.extend(numbers)
            sizes.append(len(found))
    if grow and not columns:
        raise ValueError(f"{name} has no features: every {unit} is empty")
    indptr = np.concatenate([[0], np.cumsum(np.frombuffer(sizes, np.int64))])
    data, places = np.frombuffer(values, np.float64), np.frombuffer(indices, np.int64)
    kind = np.int32 if max(len(places), len(columns)) <= np.iinfo(np.int32).max else np.int64
    matrix = sp.csr_matrix((data, places.astype(kind), indptr.astype(kind)), shape=(len(sizes), len(columns)))
    edges = np.concatenate([[0], np.cumsum([len(sequence) for sequence in X])]).astype(np.int64)
    return Tokens(matrix, edges, dict(columns))


def _pair(item: tuple[str, Any]) -> tuple[tuple[str, float], ...]:
    """The name and the value of a feature, nothing for a value of 0; a string value is a part of the name."""
    key, value = item
    if isinstance(value, str):
        return ((f"{key}={value}", 1.0),)
    if not isinstance(value, Real | np.bool_) or not math.isfinite(value):
        raise ValueError(f"{key!r} is {value!r:.40}")
    return ((key, float(value)),) if value else ()
