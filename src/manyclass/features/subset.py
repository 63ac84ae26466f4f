"""A subset of the original features, block after block until all have been taken."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import type_of_target

from manyclass.features.base import (
    Array,
    Block,
    dense_rows,
    row_chunks,
    working_dtype,
)

__all__ = ["FeatureSubset", "gradient_norms"]


class FeatureSubset(Block):
    """Some of the features of X, as they are: sparse X stays sparse.

    Parameters
    ----------
    n_components : int
        How many features; fewer where fewer are left.
    order : {"random", "frequency", "gradient"}
        Which come first: in random order; those that are not zero in the most rows; those with the longest gradient,
        which is X_j'R for feature j and residuals R (Agarwal et al., Least squares revisited, appendix A.2.2).
    start : int
        How many features of that order are left out: the next block starts where the one before has ended.
        `manyclass.features.fresh` counts, and starts again where all have been taken.
    reorder : {"block", "pass"}
        Whether features that are left are ordered anew for each block by the gradient at its residuals, or once for
        all blocks of a pass.
    random_state : int, RandomState or None
        Of the random order.

    Attributes
    ----------
    indices_ : ndarray of shape (n_features_out_,)
        The features taken, ascending.
    order_ : ndarray of shape (n_features_in_,)
        All features, those of earlier blocks of the pass first.
    exhausted_ : bool
        Whether no feature is left: the pass ends with this block.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0, 2, 1], [0, 3, 0]])
    >>> FeatureSubset(2, order="frequency").fit_transform(X)
    array([[2., 1.],
           [3., 0.]])
    """

    _arrays: ClassVar[tuple[str, ...]] = ("indices_",)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Block._parameter_constraints,
        "order": [StrOptions({"random", "frequency", "gradient"})],
        "reorder": [StrOptions({"block", "pass"})],
    }

    def __init__(
        self,
        n_components: int = 512,
        *,
        order: str = "random",
        start: int = 0,
        reorder: str = "block",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.order = order
        self.start = start
        self.reorder = reorder
        self.random_state = random_state

    @property
    def n_features_out_(self) -> int:
        """How many features a row keeps."""
        return len(self.indices_)

    def _after(self, previous: Any) -> None:
        if not isinstance(previous, FeatureSubset) or previous.order != self.order:
            return
        if previous.exhausted_:
            self.set_params(start=0)
        else:
            self.set_params(start=previous.start + previous.n_features_out_)
            self._order = previous.order_

    def _fit(self, X: Any, y: Any) -> None:
        start, d = int(self.start), X.shape[1]
        if start >= d:
            raise ValueError(f"start must be less than the {d} features of X, got {start}: none would be left")
        known = getattr(self, "_order", None)
        if known is not None and len(known) != d:
            raise ValueError(f"X must have the {len(known)} features of the block before this one, got {d}")
        if known is None:
            order = self._ordered(X, y, np.arange(d))
        elif self.order == "gradient" and self.reorder == "block":
            order = np.concatenate([known[:start], self._ordered(X, y, known[start:])])
        else:
            order = known
        self.order_ = order
        self.indices_ = np.sort(order[start : start + int(self.n_components)])

    def _ordered(self, X: Any, y: Any, features: Array) -> Array:
        """``features``, the first first; the lower number of those that are equal."""
        if self.order == "random":
            shuffled: Array = self._generator().permutation(features)
            return shuffled
        features = np.sort(features)
        if self.order == "gradient":
            if y is None:
                raise ValueError("y must be given for order='gradient': labels, or residuals (n_samples, n_outputs)")
            first = gradient_norms(X, y)
        else:
            first = _frequencies(X)
        best: Array = features[np.argsort(-first[features], kind="stable")]
        return best

    @property
    def exhausted_(self) -> bool:
        """Whether no feature is left for another block."""
        return bool(int(self.start) + self.n_features_out_ >= self.n_features_in_)

    def _transform(self, X: Any) -> Any:
        chosen = X[:, self.indices_]
        return dense_rows(chosen, working_dtype(X))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the features taken.

        Parameters
        ----------
        input_features : array of str of shape (n_features,), optional
            Names of the features of X; by default those of the fit, or x0, x1, ...

        Returns
        -------
        ndarray of str of shape (n_features_out_,)
            In the order of the columns.
        """
        from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[self.indices_]

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that is needed to have the same features again: their numbers."""
        spec, arrays = super().to_state()
        # The rest of the order belongs to the fit; as many are taken as there are.
        spec["parameters"]["n_components"] = self.n_features_out_
        return spec, arrays

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"indices_": (int(self.n_components),)}

    @classmethod
    def _from_state(cls, spec: Any, arrays: Any) -> Any:
        block = super()._from_state(spec, arrays)
        indices = block.indices_
        if (
            indices.dtype.kind != "i"
            or indices[0] < 0
            or indices[-1] >= block.n_features_in_
            or (np.diff(indices) <= 0).any()
        ):
            raise ValueError("the state of FeatureSubset is damaged: indices_ must ascend, within the features of X")
        return block

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "indices_")


def gradient_norms(X: Any, y: Any) -> Array:
    """The length of X_j'R for each feature j: how fast the squared error falls with its weights.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
    y : array of shape (n_samples,) or (n_samples, n_outputs)
        Labels, whose residuals are their indicators less the part of each class; or residuals.

    Returns
    -------
    ndarray of float64, of shape (n_features,)

    Raises
    ------
    ValueError
        If y has another number of rows than X.
    """
    residuals = _residuals(np.asarray(y))
    if residuals.shape[0] != X.shape[0]:
        raise ValueError(f"y must have the {X.shape[0]} rows of X, got {residuals.shape[0]}")
    gradient = np.zeros((X.shape[1], residuals.shape[1]))
    dtype = working_dtype(X)
    for begin, end in row_chunks(X):
        gradient += dense_rows(X[begin:end], dtype).T @ residuals[begin:end].astype(dtype, copy=False)
    lengths: Array = np.sqrt((gradient**2).sum(axis=1))
    return lengths


def _residuals(y: Array) -> Array:
    if y.ndim == 2:
        return y
    if y.ndim != 1:
        raise ValueError(f"y must have one or two dimensions, got shape {y.shape}")
    if type_of_target(y) not in ("binary", "multiclass"):
        centerd: Array = y[:, None] - y.mean()
        return centerd
    classes, codes = np.unique(y, return_inverse=True)
    indicators: Array = np.eye(len(classes), dtype=np.float32)[codes]
    indicators -= indicators.mean(axis=0)
    return indicators


def _frequencies(X: Any) -> Array:
    counts = np.zeros(X.shape[1], np.int64)
    for begin, end in row_chunks(X):
        part = X[begin:end]
        if sp.issparse(part):
            counts += np.bincount(part.indices[part.data != 0], minlength=X.shape[1])
        else:
            counts += np.count_nonzero(part, axis=0)
    return counts
