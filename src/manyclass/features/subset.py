"""Subsets of the original features, one block after another until all have been used."""

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
    """A subset of the features of X, unchanged; sparse X stays sparse.

    Parameters
    ----------
    n_components : int >= 1, default=512
        The number of features; fewer if fewer are left.
    order : {"random", "frequency", "gradient"}, default="random"
        The order of features: random; by decreasing number of rows in which they are not zero; or by decreasing norm of
        the gradient X_j'R of feature j for residuals R (Agarwal et al., Least squares revisited, appendix A.2.2).
    start : int, default=0
        The number of features in that order to skip, at least 0 and less than the features of X. A stagewise fit sets
        it to the number of features used before.
    reorder : {"block", "pass"}, default="block"
        With ``order="gradient"``: whether the features that are left are ordered again for each block, or once for all
        blocks until all features have been used.
    random_state : int, RandomState or None, default=None
        The seed of the random order.

    Attributes
    ----------
    indices_ : ndarray of shape (n_features_out_,)
        The features of this block, ascending.
    order_ : ndarray of shape (n_features_in_,)
        All features, in the order of the blocks.
    exhausted_ : bool
        Whether this block has the last features.

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
        """The number of features of a fitted block."""
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
            raise ValueError(f"start must be less than the {d} features of X, got {start}")
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
        """Return ``features`` in order, ties by ascending index."""
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
        """Whether this block has the last features."""
        return bool(int(self.start) + self.n_features_out_ >= self.n_features_in_)

    def _transform(self, X: Any) -> Any:
        chosen = X[:, self.indices_]
        return dense_rows(chosen, working_dtype(X))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the features of this block.

        Parameters
        ----------
        input_features : array of str of shape (n_features,), default=None
            Names of the features of X; by default those of the fit, or x0, x1, ...

        Returns
        -------
        ndarray of str of shape (n_features_out_,)
            The names in the order of the columns.
        """
        from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[self.indices_]

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the fitted state: the indices of the features."""
        spec, arrays = super().to_state()
        # The state has the features of this block alone, of which there may be fewer than n_components.
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
            or (indices[1:] <= indices[:-1]).any()  # a difference of damaged indices may overflow
        ):
            raise ValueError("the state of FeatureSubset is damaged: indices_ must be ascending feature indices")
        return block

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "indices_")


def gradient_norms(X: Any, y: Any) -> Array:
    """Return the norm of X_j'R for each feature j, the gradient of the squared error for its weights.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_samples, n_features)
        The features.
    y : array of shape (n_samples,) or (n_samples, n_outputs)
        Labels, of which the residuals are the indicators minus the class frequencies; or residuals R.

    Returns
    -------
    ndarray of float64 of shape (n_features,)
        The norms.

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
        centered: Array = y[:, None] - y.mean()
        return centered
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
