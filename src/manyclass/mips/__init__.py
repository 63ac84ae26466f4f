"""Maximum inner product search over the weights of many classes, usable on its own."""

from __future__ import annotations

import copy

from manyclass.mips.base import SearchIndex
from manyclass.mips.exact import ExactSearch
from manyclass.mips.simple_lsh import SimpleLSH
from manyclass.mips.small_world import SmallWorldGraph

__all__ = [
    "INDEXES",
    "PROPOSERS",
    "ExactSearch",
    "SearchIndex",
    "SimpleLSH",
    "SmallWorldGraph",
    "make_index",
    "proposer",
]

#: Name -> index. The one list from which choices, help and refusals are made.
INDEXES: dict[str, type[SearchIndex]] = {"exact": ExactSearch, "lsh": SimpleLSH, "graph": SmallWorldGraph}
#: Names that a solver takes for what proposes rivals; "exact" is its own search of the live weights, without an index.
PROPOSERS = tuple(INDEXES)


def make_index(kind: str | SearchIndex) -> SearchIndex:
    """A new index of this name, or a copy of one.

    Raises
    ------
    ValueError
        If no index has this name.
    """
    if isinstance(kind, SearchIndex):
        return copy.deepcopy(kind)
    if kind not in INDEXES:
        raise ValueError(f"search must be one of {', '.join(map(repr, INDEXES))} or a SearchIndex, got {kind!r}")
    return INDEXES[kind]()


def proposer(search: str | SearchIndex) -> SearchIndex | None:
    """The index that proposes rivals to a solver; None for its own exact search ("exact")."""
    return None if isinstance(search, str) and search == "exact" else make_index(search)
