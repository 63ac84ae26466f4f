"""Blocks of features, made on the fly: scikit-learn transformers that work row by row.

Stagewise fits take one block after another; each can be had again from its seed (`to_state`, `from_state`).
"""

from manyclass.features.base import Block, FeatureBlock
from manyclass.features.chain import Chain, Transformer
from manyclass.features.components import PrincipalComponents
from manyclass.features.fourier import RandomFourier
from manyclass.features.nystrom import Nystrom
from manyclass.features.patches import KMeansPatches, RandomPatches
from manyclass.features.projections import RandomLogits, RandomPolynomial
from manyclass.features.states import fresh, from_state, to_state
from manyclass.features.subset import FeatureSubset

__all__ = [
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
    "to_state",
]
