"""What every feature block is: a transformer that works row by row, with a state that needs no pickle."""

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

#: Numbers of a random matrix that are kept in a state, to see whether the same matrix came again.
_PROBE = 8
#: Numbers in a chunk of rows that a fit reads at a time.
_CHUNK = 2**22


@runtime_checkable
class FeatureBlock(Protocol):
    """A block of features, made from rows: what a stagewise fit asks of one.

    Row by row: ``transform`` of some rows does not depend on the other rows, so that a caller streams chunks. Blocks of
    this package are `Block`; anything that has these is one.
    """

    @property
    def n_features_out_(self) -> int:
        """How many features a row gets, once fitted."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn what the features need of X; ``y`` holds labels, or residuals of shape (n_samples, n_outputs)."""

    def transform(self, X: Any) -> Any:
        """The features of rows, float32 or float64 following X: an array, or CSR for a subset of sparse X."""

    def release(self) -> None:
        """Drop what can be made again from the seed."""

    def to_state(self) -> StateOf:
        """What JSON can hold, and arrays: all that `manyclass.features.from_state` needs."""


class Block(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """The part that all blocks share: checks of parameters and input, random matrices from a seed, the state.

    A block of its own defines ``_transform``, and ``n_features_out_`` if that is not ``n_components``; ``_fit`` where
    there is something to learn; declares its parameters; names what a fit leaves; may draw random matrices.

    Random matrices are drawn as float32 by ``np.random.Generator(np.random.PCG64(seed))``, used in the type of X, kept
    while the block is in use, and are part of neither the state nor a pickle: the state holds the seed, and a few of
    the numbers drawn. NumPy draws the same bits on every platform, but reserves the right to turn them into normal
    numbers in another way in a later version: where the numbers drawn are not those of the state, it is refused.
    """

    #: Attributes of a fitted block that JSON can hold, and those that are arrays.
    _numbers: ClassVar[tuple[str, ...]] = ()
    _arrays: ClassVar[tuple[str, ...]] = ()

    #: Constraints of the parameters, as scikit-learn declares them: of the names that several blocks have, too.
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

    # --- scikit-learn's face ----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn what the features need of X; X is read once at most, and never copied.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            May be memory-mapped. Its numbers are checked to be finite, which reads all of it; a caller that has done so
            fits within ``sklearn.config_context(assume_finite=True)``.
        y : array of shape (n_samples,) or (n_samples, n_outputs), optional
            Labels or residuals: read by `FeatureSubset` with ``order="gradient"`` alone.

        Returns
        -------
        FeatureBlock
            Itself.

        Raises
        ------
        ValueError
            If a parameter or X is not what is expected.
        """
        self._check_parameters()
        check_sparse(X)
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric")
        self._begin()
        self._fit(X, y)
        return self

    def transform(self, X: Any) -> Any:
        """The features of rows.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the fit, in their order.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out_)
            float32 for float32 and for small integers (images), else float64.

        Raises
        ------
        ValueError
            If X has another number of features than in the fit.
        """
        check_is_fitted(self)
        check_sparse(X)
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=False)
        return self._transform(X)

    @property
    def n_features_out_(self) -> int:
        """How many features a row gets, once fitted."""
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

    # --- what a block defines ---------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise a ValueError for a parameter that is not what is expected."""
        for name, value in self.get_params(deep=False).items():
            # scikit-learn takes True for 1.
            if isinstance(value, bool) and "boolean" not in self._parameter_constraints.get(name, ["boolean"]):
                raise ValueError(f"{name} must be a number, got {value!r}")
        self._validate_params()

    def _fit(self, X: Any, y: Any) -> None:
        """Learn what the features need of checked rows; nothing, where there is nothing to learn."""

    @abstractmethod
    def _transform(self, X: Any) -> Any:
        """The features of checked rows."""

    def _reseed(self, seed: int) -> None:
        """Another seed, where there is one."""
        if "random_state" in self.get_params(deep=False):
            self.set_params(random_state=seed)

    def _resize(self, size: int) -> None:
        """Change the parameter that says how many features there are, so that they become ``size`` at most."""
        self.set_params(n_components=size)

    def _after(self, previous: Any) -> None:
        """Take over from the fitted block of the stage before what the next one is to know."""

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes that the arrays of a state must have, given its numbers."""
        return {}

    # --- random matrices --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Forget an earlier fit; a seed for this one."""
        self._drawn: dict[str, Any] = {}
        self._probe: list[float] | None = None
        if hasattr(self, "random_state"):
            self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))

    def _generator(self, stream: int = 0) -> np.random.Generator:
        """Random numbers of this block's seed; other streams are independent."""
        return np.random.Generator(np.random.PCG64([self.seed_, stream]))

    def _draw(self, dtype: Any, make: Callable[[np.random.Generator], tuple[Array, ...]]) -> tuple[Array, ...]:
        """The random arrays ``make`` draws, in ``dtype``: drawn once, kept until `release`."""
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
                    "than the version that fitted it: use that version, or fit again"
                )
            self._drawn[dtype.name] = tuple(part.astype(dtype, copy=False) for part in drawn)
        arrays: tuple[Array, ...] = self._drawn[dtype.name]
        return arrays

    def release(self) -> None:
        """Drop the random matrices; the next `transform` draws them again."""
        if hasattr(self, "_drawn"):
            self._drawn.clear()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_drawn": {}} if "_drawn" in state else state

    # --- the state --------------------------------------------------------------------------------------------------

    def to_state(self) -> StateOf:
        """All that is needed to have the same features again, bit for bit: the seed in place of random matrices.

        Returns
        -------
        spec : dict
            For JSON.
        arrays : dict of ndarray

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
        """The block of a state, whose name has been looked up."""
        parameters, fitted = spec.get("parameters"), spec.get("fitted")
        if not isinstance(parameters, dict) or not isinstance(fitted, dict):
            raise ValueError(f"the state of {cls.__name__} is damaged: it has no parameters or nothing fitted")
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
    """What makes ``block.transform(X) @ W`` of rows, if the block knows a way that does not make the features."""
    make = getattr(block, "projection", None)  # few have one
    found: Callable[[Any], Array] | None = None if make is None else make(W)
    return found


def working_dtype(X: Any) -> Any:
    """The type of features made from X: float32 where that holds all its numbers, else float64.

    Examples
    --------
    >>> [working_dtype(np.zeros(1, kind)).name for kind in (np.float32, np.uint8, np.float64, np.int64)]
    ['float32', 'float32', 'float64', 'float64']
    """
    return np.result_type(X.dtype, np.float32)


def sample_rows(X: Any, size: int, rng: np.random.Generator) -> Array | Any:
    """At most ``size`` rows drawn without replacement, in their order; only these are read."""
    n = X.shape[0]
    if n <= size:
        return X
    return X[np.sort(rng.choice(n, size, replace=False))]


def row_chunks(X: Any, rows: int | None = None) -> list[tuple[int, int]]:
    """The ranges of rows in which a fit reads X."""
    return ranges(X.shape[0], rows or max(1, _CHUNK // max(1, X.shape[1])))


def check_odd(n_odd: int, X: Any) -> None:
    """Raise a ValueError unless some features of X are left that a mirror image does not change."""
    if n_odd >= X.shape[1]:
        raise ValueError(f"n_odd must be less than the {X.shape[1]} features of X, got {n_odd}")


def squared_norms(X: Any) -> Array:
    """Squared Euclidean length of each row, in float64."""
    if sp.issparse(X):
        squares: Array = np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel()
        return squares
    lengths: Array = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return lengths


def dense_rows(X: Any, dtype: Any) -> Any:
    """Rows in ``dtype``, dense ones as an array of NumPy's own type; not copied where they are that."""
    return X.astype(dtype, copy=False) if sp.issparse(X) else np.asarray(X, dtype)


def times(X: Any, W: Array) -> Array:
    """X @ W in the type of W, dense."""
    product: Array = np.asarray(dense_rows(X, W.dtype) @ W)
    return product


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON holds it."""
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
    """Lists, which JSON makes of tuples, as tuples again."""
    return tuple(_as_tuples(part) for part in value) if isinstance(value, list) else value


def _check_fitted(name: str, fitted: Mapping[str, Any]) -> None:
    for key, value in fitted.items():
        parts = value if isinstance(value, list | tuple) else [value]
        if value is None and key == "_probe":
            continue
        for part in parts:
            if isinstance(part, bool) or not isinstance(part, int | float) or not math.isfinite(part):
                raise ValueError(f"the state of {name} is damaged: {key} must hold finite numbers, got {value!r:.80}")
    if fitted["n_features_in_"] not in _COUNT:
        raise ValueError(f"the state of {name} is damaged: n_features_in_ is {fitted['n_features_in_']}")
