"""The base class of feature blocks: transformers of independent rows, with a state that needs no pickle."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from manyclass.kernels.rows import check_sparse
from manyclass.runtime.threads import ranges

__all__ = ["Array", "Block", "FeatureBlock", "projection", "row_chunks", "sample_rows", "working_dtype"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
StateOf: TypeAlias = tuple[dict[str, Any], dict[str, Array]]

_COUNT = Interval(Integral, 1, None, closed="left")
_ABOVE_0 = Interval(Real, 0, None, closed="neither")

#: How many numbers of a random matrix are kept in a state, to check that the same matrix is drawn again.
_PROBE = 8
#: How many numbers of X a fit reads at a time.
_CHUNK = 2**22


@runtime_checkable
class FeatureBlock(Protocol):
    """The interface of a feature block that a stagewise fit uses; the blocks of this package derive from `Block`.

    ``transform`` of a row must not depend on the other rows, because callers transform chunks of rows.
    """

    @property
    def n_features_out_(self) -> int:
        """The number of features of a fitted block."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit to X; ``y`` has labels, or residuals of shape (n_samples, n_outputs)."""

    def transform(self, X: Any) -> Any:
        """Return the features of rows, float32 or float64 as X: an array, or CSR for a subset of sparse X."""

    def release(self) -> None:
        """Free the memory of arrays that can be drawn again from the seed."""

    def to_state(self) -> StateOf:
        """Return the fitted state for `manyclass.features.from_state`: a dict for JSON, and arrays."""


class Block(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of all blocks: checks of parameters and input, random matrices from a seed, the fitted state.

    A subclass declares the constraints of its parameters and the names of its fitted attributes (``_numbers``,
    ``_arrays``) and defines ``_transform``; ``_fit`` if it learns from X; ``n_features_out_`` if that is not
    ``n_components``.

    Random matrices are drawn as float32 by ``np.random.Generator(np.random.PCG64(seed))``, converted to the type of X
    and kept until `release`. They are in neither the state nor a pickle: the state has the seed and a few of the drawn
    numbers. PCG64 gives the same bits everywhere, but a later NumPy may compute other normal numbers from them: a state
    is refused if its numbers are not drawn again.
    """

    #: Fitted attributes that are numbers for JSON, and those that are arrays.
    _numbers: ClassVar[tuple[str, ...]] = ()
    _arrays: ClassVar[tuple[str, ...]] = ()

    #: Constraints of the parameters that blocks have, in scikit-learn's notation.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{key: [_COUNT] for key in ("n_components", "n_filters", "patch", "stride", "pool", "n_patches", "n_sample")},
        **{key: [Interval(Integral, 0, None, closed="left")] for key in ("n_odd", "start")},
        **{key: [_ABOVE_0] for key in ("scale", "bandwidth", "power")},
        **{key: [Interval(Real, 0, None, closed="left")] for key in ("constant", "threshold")},
        "random_state": ["random_state"],
    }

    n_components: Any
    random_state: Any
    n_features_in_: int

    # --- scikit-learn's interface -----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit the block to X, which is not copied.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Finite numbers; may be memory-mapped. The check that they are finite reads all of X; a caller that has
            checked may fit within ``sklearn.config_context(assume_finite=True)``.
        y : array of shape (n_samples,) or (n_samples, n_outputs), default=None
            Labels or residuals, used only by `FeatureSubset` with ``order="gradient"``.

        Returns
        -------
        FeatureBlock
            The fitted block itself.

        Raises
        ------
        ValueError
            If a parameter or X is invalid.
        """
        self._check_parameters()
        check_sparse(X)
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric")
        self._begin()
        self._fit(_regular(X), y)
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of rows.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the columns of the X of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out_)
            float32 for float32 and for small integers (images), else float64.

        Raises
        ------
        ValueError
            If X has another number of columns than in the fit.
        """
        check_is_fitted(self)
        check_sparse(X)
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=False)
        return self._transform(_regular(X))

    @property
    def n_features_out_(self) -> int:
        """The number of features of a fitted block."""
        return int(self.n_components)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_") and hasattr(self, "_drawn")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise a ValueError for an invalid parameter."""
        for name, value in self.get_params(deep=False).items():
            # scikit-learn would accept True as 1.
            if isinstance(value, bool) and "boolean" not in self._parameter_constraints.get(name, ["boolean"]):
                raise ValueError(f"{name} must be a number, got {value!r}")
        self._validate_params()

    def _fit(self, X: Any, y: Any) -> None:
        """Learn from checked rows; by default nothing."""

    @abstractmethod
    def _transform(self, X: Any) -> Any:
        """Return the features of checked rows."""

    def _reseed(self, seed: int) -> None:
        """Set the seed, if the block has one."""
        if "random_state" in self.get_params(deep=False):
            self.set_params(random_state=seed)

    def _resize(self, size: int) -> None:
        """Set the parameter for the number of features, so that there are at most ``size``."""
        self.set_params(n_components=size)

    def _after(self, previous: Any) -> None:
        """Copy what a block needs from the fitted block of the stage before."""

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the arrays of a state must have, given its numbers."""
        return {}

    # --- random matrices --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Discard an earlier fit, and choose the seed of this one."""
        self._drawn: dict[str, Any] = {}
        self._probe: list[float] | None = None
        if hasattr(self, "random_state"):
            self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))

    def _generator(self, stream: int = 0) -> np.random.Generator:
        """Return a generator of this block's seed; its streams are independent."""
        return np.random.Generator(np.random.PCG64([self.seed_, stream]))

    def _draw(self, dtype: Any, make: Callable[[np.random.Generator], tuple[Array, ...]]) -> tuple[Array, ...]:
        """Return the random arrays that ``make`` draws, converted to ``dtype`` and kept until `release`."""
        dtype = np.dtype(dtype)
        if dtype.name not in self._drawn:
            drawn = make(self._generator())
            numbers_drawn = drawn[0].ravel()
            probe = numbers_drawn[:: max(1, numbers_drawn.size // _PROBE)][:_PROBE].tolist()
            if self._probe is None:
                self._probe = probe
            elif not np.allclose(probe, self._probe, rtol=1e-5, atol=1e-6):
                raise ValueError(
                    f"NumPy {np.__version__} draws other random numbers for the seed of this {type(self).__name__} "
                    "than the version that fitted it: install that version, or fit again"
                )
            self._drawn[dtype.name] = tuple(part.astype(dtype, copy=False) for part in drawn)
        arrays: tuple[Array, ...] = self._drawn[dtype.name]
        return arrays

    def release(self) -> None:
        """Free the memory of the random matrices; the next `transform` draws them again."""
        if hasattr(self, "_drawn"):
            self._drawn.clear()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_drawn": {}} if "_drawn" in state else state

    # --- the state --------------------------------------------------------------------------------------------------

    def to_state(self) -> StateOf:
        """Return the fitted state, with the seed in place of random matrices; it restores exactly the same features.

        Returns
        -------
        spec : dict
            Parameters and fitted numbers, for JSON.
        arrays : dict of ndarray
            The fitted arrays.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the block is not fitted.
        """
        check_is_fitted(self)
        parameters = {name: _plain(name, value) for name, value in self._own_parameters().items()}
        if hasattr(self, "seed_"):
            parameters["random_state"] = self.seed_
        fitted = {name: getattr(self, name) for name in (*self._numbers, "n_features_in_")}
        if hasattr(self, "seed_"):
            fitted |= {"seed_": self.seed_, "_probe": self._probe}
        spec = {"block": type(self).__name__, "parameters": parameters, "fitted": fitted}
        return spec, {name: getattr(self, name) for name in self._arrays}

    def _own_parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = self.get_params(deep=False)
        return parameters

    @classmethod
    def _from_state(cls, spec: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
        """Return the block of a state whose class is this one."""
        parameters, fitted = spec.get("parameters"), spec.get("fitted")
        if not isinstance(parameters, dict) or not isinstance(fitted, dict):
            raise ValueError(
                f"the state of {cls.__name__} is damaged: it must have dicts of parameters and of fitted numbers"
            )
        try:
            block = cls(**{name: _as_tuples(value) for name, value in parameters.items()})
        except TypeError as error:
            raise ValueError(f"the parameters of {cls.__name__} are damaged: {error}") from error
        block._check_parameters()
        expected = {*cls._numbers, "n_features_in_", *(("seed_", "_probe") if hasattr(block, "random_state") else ())}
        if set(fitted) != expected:
            raise ValueError(
                f"the state of {cls.__name__} is damaged: expected {', '.join(sorted(expected))}, got "
                f"{', '.join(sorted(fitted))}"
            )
        _check_fitted(cls.__name__, fitted)
        block._begin()
        for name, value in fitted.items():
            setattr(block, name, _as_tuples(value))
        for name, shape in block._state_shapes().items():
            array = arrays.get(name)
            if array is None or array.shape != shape or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
                found = "nothing" if array is None else f"an array of {array.dtype} and shape {array.shape}"
                raise ValueError(
                    f"the state of {cls.__name__} is damaged: {name} must hold finite numbers of shape {shape}, got "
                    f"{found}"
                )
            setattr(block, name, array)
        return block


def projection(block: Any, W: Array) -> Callable[[Any], Array] | None:
    """Return a function of X for ``block.transform(X) @ W`` without the features, if the block has one; else None."""
    make = getattr(block, "projection", None)  # only Nystrom has one
    found: Callable[[Any], Array] | None = None if make is None else make(W)
    return found


def working_dtype(X: Any) -> Any:
    """Return the type of the features of X: float32 if it represents all numbers of the type of X, else float64.

    Examples
    --------
    >>> [working_dtype(np.zeros(1, kind)).name for kind in (np.float32, np.uint8, np.float64, np.int64)]
    ['float32', 'float32', 'float64', 'float64']
    """
    return np.result_type(X.dtype, np.float32)


def sample_rows(X: Any, size: int, rng: np.random.Generator) -> Array | Any:
    """Draw at most ``size`` rows without replacement, in their order; the others are not read."""
    n = X.shape[0]
    if n <= size:
        return X
    return X[np.sort(rng.choice(n, size, replace=False))]


def _regular(X: Any) -> Any:
    """X, the arrays of a CSR matrix contiguous and its indices of one type, as compiled code of scikit-learn needs."""
    if not sp.issparse(X):
        return X
    arrays = (X.data, X.indices, X.indptr)
    if X.indices.dtype == X.indptr.dtype and all(array.flags.c_contiguous for array in arrays):
        return X
    return sp.csr_matrix(tuple(np.ascontiguousarray(array) for array in arrays), shape=X.shape, copy=False)


def row_chunks(X: Any, rows: int | None = None) -> list[tuple[int, int]]:
    """Return the ranges of rows in which a fit reads X."""
    return ranges(X.shape[0], rows or max(1, _CHUNK // max(1, X.shape[1])))


def check_odd(n_odd: int, X: Any) -> None:
    """Raise a ValueError unless X has more than ``n_odd`` features."""
    if n_odd >= X.shape[1]:
        raise ValueError(f"n_odd must be less than the {X.shape[1]} features of X, got {n_odd}")


def squared_norms(X: Any) -> Array:
    """Return the squared Euclidean length of each row, in float64."""
    if sp.issparse(X):
        squares: Array = np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel()
        return squares
    lengths: Array = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return lengths


def dense_rows(X: Any, dtype: Any) -> Any:
    """Return rows in ``dtype``, dense ones as a plain NumPy array; copied only if needed."""
    return X.astype(dtype, copy=False) if sp.issparse(X) else np.asarray(X, dtype)


def times(X: Any, W: Array) -> Array:
    """Return X @ W as a dense array, in the type of W."""
    product: Array = np.asarray(dense_rows(X, W.dtype) @ W)
    return product


def _plain(name: str, value: Any) -> Any:
    """Return a parameter as a value for JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(name, part) for part in value]
    if name == "random_state":
        return None
    raise ValueError(f"{name} must be a number, a text or a tuple of them to be saved, got {value!r:.80}")


def _as_tuples(value: Any) -> Any:
    """Convert lists, to which JSON converts tuples, back to tuples."""
    return tuple(_as_tuples(part) for part in value) if isinstance(value, list) else value


def _check_fitted(name: str, fitted: Mapping[str, Any]) -> None:
    for key, value in fitted.items():
        parts = value if key == "_probe" and isinstance(value, list | tuple) else [value]
        if value is None and key == "_probe":
            continue
        for part in parts:
            if isinstance(part, bool) or not isinstance(part, int | float) or not math.isfinite(part):
                raise ValueError(f"the state of {name} is damaged: {key} must hold finite numbers, got {value!r:.80}")
    if fitted["n_features_in_"] not in _COUNT:
        raise ValueError(
            f"the state of {name} is damaged: n_features_in_ must be at least 1, got {fitted['n_features_in_']}"
        )
