"""Maximum-inner-product search over the weights of many classes, usable on its own."""

from manyclass.search.base import SearchIndex
from manyclass.search.exact import ExactSearch
from manyclass.search.simple_lsh import SimpleLSH
from manyclass.search.small_world import SmallWorldGraph

__all__ = ["ExactSearch", "SearchIndex", "SimpleLSH", "SmallWorldGraph"]
