"""Blocks to states and back, by name; unfitted copies for the next stage."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from sklearn.base import clone

from manyclass.features.base import Array, Block, StateOf

__all__ = ["fresh", "from_state", "to_state"]

T = TypeVar("T")

#: Name of a block in a state -> its module: the only classes that a state can make.
_HOMES = {
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
    """All that is needed to have the features of a fitted block again: a dict for JSON, and arrays.

    Raises
    ------
    ValueError
        If the block is none of this package: it could not be saved without pickle.

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
        raise ValueError(f"block must be one of {', '.join(_HOMES)} to be saved, got {type(block).__name__}")
    return block.to_state()


def from_state(spec: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """The block whose `to_state` this is: its features are the same to the last bit.

    Raises
    ------
    ValueError
        If the state is damaged, or names a block that is not known.
    """
    name = spec.get("block") if isinstance(spec, Mapping) else None
    if not isinstance(name, str) or name not in _HOMES:
        raise ValueError(f"the state must be of one of {', '.join(_HOMES)}, got {name!r:.80}")
    block: type[Block] = getattr(import_module(f"manyclass.features.{_HOMES[name]}"), name)
    return block._from_state(spec, arrays)


def fresh(block: T, seed: int, previous: Any = None, *, size: int | None = None) -> T:
    """An unfitted copy of a block with a seed of its own: the features of the next stage.

    Parameters
    ----------
    block : FeatureBlock
        The pattern; it need not be fitted.
    seed : int
        Of the copy.
    previous : FeatureBlock, optional
        The fitted block of the stage before: a `FeatureSubset` goes on where it ended, and begins a new pass where all
        features have been taken; a `Chain` keeps its fitted first block.
    size : int, optional
        How many features the copy is to make, at most.

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
