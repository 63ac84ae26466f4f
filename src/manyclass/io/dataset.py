"""The data set that every reader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse

from ._csr import row_pointers

if TYPE_CHECKING:
    from .encoder import TableEncoder
    from .tables import TableLayout
    from .text import TextVectorizer

__all__ = ["Dataset", "check_shapes"]

#: Bytes of dense rows that are counted at a time, so that a mapped file is never in memory as a whole.
_PIECE = 1 << 24


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as it was read: features, targets and facts about the file.

    Attributes
    ----------
    X : csr_matrix, ndarray or memmap of shape (n_samples, n_features)
        The features: float32 unless another type was asked for.
    y : ndarray, csr_matrix or None
        The targets: classes (int64 or str, shape (n_samples,)); numbers of a regression (float64, shape (n_samples,)
        or (n_samples, n_outputs)); the 0/1 indicator matrix of a multilabel problem (int8 CSR, shape (n_samples,
        n_labels)); None if the file has none.
    label_names : ndarray of shape (n_labels,) or None
        The label of each column of an indicator matrix, ascending; None for other targets.
    source : str
        The name of the file.
    format : str
        One of ``"svmlight"``, ``"xmc"``, ``"npz"``, ``"npy"``, ``"csv"``, ``"tsv"``, ``"store"``.
    notes : tuple of str
        Notes for the user, for example that feature indices were one-based.
    vectorizer : TextVectorizer, TableEncoder or None
        The fitted vectorizer that computed `X` from the texts of a table, or the encoder that did from its columns.
    zero_based : bool or None
        Whether feature indices of a svmlight file start at 0; None for other formats. Pass it to `read` with the next
        file of the same kind, for which detection may give another answer.
    layout : TableLayout or None
        How a table was read. Pass it to `read` with the next table of the same kind.

    Raises
    ------
    ValueError
        If `y` has another number of rows than `X`, or `label_names` another length than `y` has columns.

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
    vectorizer: TextVectorizer | TableEncoder | None = None
    zero_based: bool | None = None
    layout: TableLayout | None = None

    def __post_init__(self) -> None:
        check_shapes(self.X, self.y, self.label_names)

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
        """Whether `y` is an indicator matrix."""
        return bool(issparse(self.y))

    def summary(self) -> dict[str, Any]:
        """Return the sizes of the data and the kind of targets.

        Returns
        -------
        dict
            ``rows``, ``features``, ``non_zeros``, ``density`` (in [0, 1]), ``bytes`` (of `X` and `y`, in memory or
            mapped), ``empty_rows`` (rows of zeros) and ``targets``: ``"none"``, ``"classes"``, ``"labels"`` or
            ``"numbers"``. For classes and labels also ``classes`` (their number); for labels ``labels_per_row`` (the
            mean) and ``rows_without_label``; for numbers ``outputs``.

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
        with np.errstate(invalid="ignore"):  # signaling NaN in a mapped file
            starts = range(0, self.n_samples, rows)
            pieces = [np.count_nonzero(self.X[begin : begin + rows], axis=1) for begin in starts]
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


def check_shapes(X: Any, y: Any, label_names: npt.NDArray[Any] | None = None) -> None:
    """Raise a ValueError unless X is 2-d, y has as many rows, and each column of y a name, if names are given."""
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2 (rows, features)")
    if y is not None and y.shape[:1] != X.shape[:1]:
        raise ValueError(f"y has shape {y.shape}; expected {X.shape[0]} rows, as X has")
    if label_names is not None and (y is None or y.shape[1:] != label_names.shape):
        raise ValueError(f"label_names has shape {label_names.shape}; expected one name for each column of y")


def _bytes(array: Any) -> int:
    if array is None:
        return 0
    if isinstance(array, csr_matrix):
        return int(array.data.nbytes + array.indices.nbytes + array.indptr.nbytes)
    return int(array.nbytes)
