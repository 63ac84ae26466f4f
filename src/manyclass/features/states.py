"""Saves and restores the state of fitted blocks; makes unfitted copies for the next stage."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from sklearn.base import clone

from manyclass.features.base import Array, Block, StateOf

__all__ = ["fresh", "from_state", "to_state"]

T = TypeVar("T")

#: Name of a block in a state -> its module; `from_state` creates no other classes.
_MODULES = {
    "Chain": "chain",
    "FeatureSubset": "subset",
    "KMeansPatches": "patches",
    "Nystrom": "nystrom",
    "PrincipalComponents": "components",
    "RandomFourier": "fourier",
    "RandomLogits": "projections",
    "RandomPatches": "patches",
    "RandomPolynomial": "projections",
}


def to_state(block: Any) -> StateOf:
    """Return the state of a fitted block: a dict for JSON, and arrays.

    Raises
    ------
    ValueError
        If the block is not of this package, because it could not be saved without pickle.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.features import RandomFourier
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> block = RandomFourier(4, random_state=0).fit(X)
    >>> again = from_state(*to_state(block))
    >>> bool((again.transform(X) == block.transform(X)).all())
    True
    """
    if not isinstance(block, Block):
        raise ValueError(f"block must be one of {', '.join(_MODULES)} to be saved, got {type(block).__name__}")
    return block.to_state()


def from_state(spec: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """Return the fitted block of a state; its features are exactly the same.

    Raises
    ------
    ValueError
        If the state is damaged or is of an unknown block.
    """
    name = spec.get("block") if isinstance(spec, Mapping) else None
    if not isinstance(name, str) or name not in _MODULES:
        raise ValueError(f"the state must be of one of {', '.join(_MODULES)}, got {name!r:.80}")
    block: type[Block] = getattr(import_module(f"manyclass.features.{_MODULES[name]}"), name)
    return block._from_state(spec, arrays)


def fresh(block: T, seed: int, previous: Any = None, *, size: int | None = None) -> T:
    """Return an unfitted copy of a block with another seed, for the next stage.

    Parameters
    ----------
    block : FeatureBlock
        The block to copy, fitted or not.
    seed : int
        The seed of the copy.
    previous : FeatureBlock, default=None
        The fitted block of the stage before. A `FeatureSubset` continues after its features, and starts again once all
        have been used; a `Chain` keeps its fitted first block.
    size : int, default=None
        The maximum number of features of the copy.

    Returns
    -------
    FeatureBlock
        The copy.

    Examples
    --------
    >>> from manyclass.features import RandomFourier
    >>> fresh(RandomFourier(100), 7, size=30)
    RandomFourier(n_components=30, random_state=7)
    """
    copy: Any = clone(block)
    if not isinstance(copy, Block):
        if "random_state" in copy.get_params():
            copy.set_params(random_state=seed)
        return copy  # type: ignore[no-any-return]
    copy._reseed(seed)
    if size is not None:
        copy._resize(size)
    if previous is not None:
        copy._after(previous)
    return copy
