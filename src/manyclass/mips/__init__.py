"""Maximum-inner-product search over the weights of many classes, usable on its own."""

from manyclass.mips.base import SearchIndex
from manyclass.mips.exact import ExactSearch
from manyclass.mips.simple_lsh import SimpleLSH
from manyclass.mips.small_world import SmallWorldGraph

__all__ = ["ExactSearch", "SearchIndex", "SimpleLSH", "SmallWorldGraph"]
