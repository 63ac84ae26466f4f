"""Feature blocks: scikit-learn transformers that compute the features of each row independently of other rows.

Stagewise fits use one block after another. A block can be restored from its seed (`to_state`, `from_state`).
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
#: Names in other packages and of the classes -> name, for suggestions.
_SYNONYMS = {"rff": "fourier", "rbf": "fourier", "svd": "pca"} | {
    kind.__name__.lower(): k for k, kind in BLOCKS.items()
}


def make_block(block: Any, name: str = "features", others: tuple[str, ...] = ()) -> Any:
    """Create the feature block of a name, or return a given block.

    Parameters
    ----------
    block : str or FeatureBlock
        A name of `BLOCKS`, optionally followed by ":N" for N features: "fourier", "pca:50". Or a feature block, or any
        transformer of scikit-learn that computes rows independently.
    name : str, default="features"
        The name of the parameter in the message of an error.
    others : tuple of str, default=()
        Names that the caller handles itself, for the message.

    Returns
    -------
    FeatureBlock
        An unfitted block, or the given one.

    Raises
    ------
    ValueError
        If the name is not known, or N is not an integer of at least 1.

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
            f"{name} must be one of {', '.join(map(repr, (*others, *BLOCKS)))}, optionally followed by ':N' for N "
            f"features, or a block of features, got {block!r}{did_you_mean(kind, (*others, *BLOCKS), _SYNONYMS)}"
        )
    if not colon:
        return BLOCKS[kind]()
    if not size.isdecimal() or not int(size):
        raise ValueError(f"{name} must have a number of features of at least 1 after the colon, got {block!r}")
    return BLOCKS[kind]().set_params(n_components=int(size))
