"""What every reader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse

from ._csr import row_pointers

if TYPE_CHECKING:
    from .tables import TableLayout
    from .text import TextVectorizer

__all__ = ["Dataset"]

#: Dense rows are looked at in pieces of about this many bytes, so that a mapped file is never in memory as a
#: whole.
_PIECE = 1 << 24


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows, their targets, and what is worth knowing of the file they came from.

    Attributes
    ----------
    X : csr_matrix of shape (n_samples, n_features), or ndarray or memmap of that shape
        The features: float32 unless another type was asked for.
    y : ndarray or csr_matrix or None
        The targets: classes (int64 or str, shape (n_samples,)); numbers to predict (float64, shape
        (n_samples,) or (n_samples, n_outputs)); the 0/1 indicator of a multi-label problem (int8 CSR, shape
        (n_samples, n_labels)); None if the file has none.
    label_names : ndarray of shape (n_labels,) or None
        For an indicator: the label that each of its columns stands for, in ascending order; else None.
    source : str
        The name of the file.
    format : str
        One of ``"svmlight"``, ``"xmc"``, ``"npz"``, ``"npy"``, ``"csv"``, ``"tsv"``, ``"store"``.
    notes : tuple of str
        Sentences worth telling the user, for example that feature indices were one-based.
    vectorizer : TextVectorizer or None
        What turned the texts of a table into `X`.
    zero_based : bool or None
        Whether the file counts features from 0; None where the format leaves no choice. Give it to `read`
        with the next file of the same kind, where detection may go another way.
    layout : TableLayout or None
        How a table was read. Give it to `read` with the next table of the same kind.

    Raises
    ------
    ValueError
        If `X` and `y` differ in their number of rows, or `label_names` in that of the columns of `y`.

    Examples
    --------
    >>> import numpy as np
    >>> data = Dataset(np.eye(2, dtype=np.float32), np.array(["cat", "dog"]))
    >>> data.n_samples, data.n_features, data.summary()["classes"]
    (2, 2, 2)
    """

    X: Any
    y: Any = None
    label_names: npt.NDArray[Any] | None = None
    source: str = ""
    format: str = ""
    notes: tuple[str, ...] = ()
    vectorizer: TextVectorizer | None = None
    zero_based: bool | None = None
    layout: TableLayout | None = None

    def __post_init__(self) -> None:
        if self.X.ndim != 2:
            raise ValueError(f"X has {self.X.ndim} dimensions; expected 2 (rows, features)")
        if self.y is not None and self.y.shape[0] != self.n_samples:
            raise ValueError(f"y has {self.y.shape[0]} rows; expected {self.n_samples}, as X has")
        if self.label_names is not None and (self.y is None or self.y.shape[1:] != self.label_names.shape):
            raise ValueError(f"label_names has shape {self.label_names.shape}; expected one name for each column of y")

    @property
    def n_samples(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return int(self.X.shape[1])

    @property
    def multilabel(self) -> bool:
        """Whether `y` is an indicator."""
        return bool(issparse(self.y))

    def summary(self) -> dict[str, Any]:
        """Facts about the data.

        Returns
        -------
        dict
            ``rows``, ``features``, ``non_zeros``, ``density`` (in [0, 1]), ``bytes`` (of `X` and `y`, in
            memory or mapped), ``empty_rows`` (without a non-zero) and ``targets``: ``"none"``, ``"classes"``,
            ``"labels"`` or ``"numbers"``. With classes or labels ``classes`` (for labels: columns), with
            labels ``labels_per_row`` (the mean) and ``rows_without_label``, with numbers ``outputs``.

        Examples
        --------
        >>> from scipy.sparse import csr_matrix
        >>> Dataset(csr_matrix([[0, 1], [0, 0]])).summary()["empty_rows"]
        1
        """
        per_row = self._non_zeros_per_row()
        non_zeros = int(per_row.sum())
        cells = self.n_samples * self.n_features
        facts: dict[str, Any] = {
            "rows": self.n_samples,
            "features": self.n_features,
            "non_zeros": non_zeros,
            "density": non_zeros / cells if cells else 0.0,
            "bytes": _bytes(self.X) + _bytes(self.y),
            "empty_rows": int(np.count_nonzero(per_row == 0)),
        }
        if self.y is None:
            facts["targets"] = "none"
        elif self.multilabel:
            labels = np.diff(self.y.indptr)
            facts.update(
                targets="labels",
                classes=int(self.y.shape[1]),
                labels_per_row=float(labels.mean()) if labels.size else 0.0,
                rows_without_label=int(np.count_nonzero(labels == 0)),
            )
        elif self.y.dtype.kind == "f":
            facts.update(targets="numbers", outputs=1 if self.y.ndim == 1 else int(self.y.shape[1]))
        else:
            facts.update(targets="classes", classes=int(np.unique(self.y).size))
        return facts

    def _non_zeros_per_row(self) -> npt.NDArray[Any]:
        if issparse(self.X):
            if self.X.data.all():
                lengths: npt.NDArray[Any] = np.diff(self.X.indptr)
                return lengths
            stored: npt.NDArray[Any] = np.diff(row_pointers(self.X.data != 0)[self.X.indptr])
            return stored
        rows = max(_PIECE // max(self.n_features * self.X.dtype.itemsize, 1), 1)
        pieces = [np.count_nonzero(self.X[begin : begin + rows], axis=1) for begin in range(0, self.n_samples, rows)]
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


def _bytes(array: Any) -> int:
    if array is None:
        return 0
    if isinstance(array, csr_matrix):
        return int(array.data.nbytes + array.indices.nbytes + array.indptr.nbytes)
    return int(array.nbytes)
