"""Blocks of features, made on the fly: scikit-learn transformers that work row by row.

Stagewise fits take one block after another; each can be had again from its seed (`to_state`, `from_state`).
"""

from manyclass.features.base import Block, FeatureBlock
from manyclass.features.fourier import RandomFourier
from manyclass.features.states import fresh, from_state, to_state

__all__ = ["Block", "FeatureBlock", "RandomFourier", "fresh", "from_state", "to_state"]
