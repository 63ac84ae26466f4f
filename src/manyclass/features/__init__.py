"""Blocks of features, made on the fly: scikit-learn transformers that work row by row.

Stagewise fits take one block after another; each can be had again from its seed (`to_state`, `from_state`).
"""

from __future__ import annotations

from typing import Any

from manyclass.features.base import Block, FeatureBlock
from manyclass.features.chain import Chain, Transformer
from manyclass.features.components import PrincipalComponents
from manyclass.features.fourier import RandomFourier
from manyclass.features.nystrom import Nystrom
from manyclass.features.patches import KMeansPatches, RandomPatches
from manyclass.features.projections import RandomLogits, RandomPolynomial
from manyclass.features.states import fresh, from_state, to_state
from manyclass.features.subset import FeatureSubset
from manyclass.runtime.names import did_you_mean

__all__ = [
    "BLOCKS",
    "Block",
    "Chain",
    "FeatureBlock",
    "FeatureSubset",
    "KMeansPatches",
    "Nystrom",
    "PrincipalComponents",
    "RandomFourier",
    "RandomLogits",
    "RandomPatches",
    "RandomPolynomial",
    "Transformer",
    "fresh",
    "from_state",
    "make_block",
    "to_state",
]

#: Name -> block, for estimators and the command line.
BLOCKS: dict[str, type[Block]] = {
    "fourier": RandomFourier,
    "logits": RandomLogits,
    "nystrom": Nystrom,
    "polynomial": RandomPolynomial,
    "subset": FeatureSubset,
    "pca": PrincipalComponents,
}
#: What they are called elsewhere.
_SYNONYMS = {"rff": "fourier", "rbf": "fourier", "svd": "pca"} | {
    kind.__name__.lower(): k for k, kind in BLOCKS.items()
}


def make_block(block: Any, name: str = "features") -> Any:
    """The block of features that a text stands for, or the block itself.

    Parameters
    ----------
    block : str or FeatureBlock
        A name of `BLOCKS`, with ":N" behind it for N features: "fourier", "pca:50". Or a block of features, or any
        transformer of scikit-learn that works row by row.
    name : str, default="features"
        Of the parameter, for the error.

    Returns
    -------
    FeatureBlock
        Unfitted, where it is made of a text.

    Raises
    ------
    ValueError
        If the name is not known (with the nearest that is), or N is not an integer of at least 1.

    Examples
    --------
    >>> make_block("pca:20")
    PrincipalComponents(n_components=20)
    """
    if not isinstance(block, str):
        return block
    kind, colon, size = block.partition(":")
    if kind not in BLOCKS:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, BLOCKS))}, with ':N' behind it for N features, or a block of "
            f"features, got {block!r}{did_you_mean(kind, BLOCKS, _SYNONYMS)}"
        )
    if not colon:
        return BLOCKS[kind]()
    if not size.isdecimal() or not int(size):
        raise ValueError(f"{name} must have a number of features of at least 1 after the colon, got {block!r}")
    return BLOCKS[kind]().set_params(n_components=int(size))
