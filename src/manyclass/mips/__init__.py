"""Maximum inner product search (MIPS) over the weights of many classes, usable on its own."""

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

#: Name -> index. Choices, help and error messages are generated from this list.
INDEXES: dict[str, type[SearchIndex]] = {"exact": ExactSearch, "lsh": SimpleLSH, "graph": SmallWorldGraph}
#: Values of a solver's parameter ``search``; with "exact" the solver scores its current weights itself, without an
#: index.
PROPOSERS = tuple(INDEXES)


def make_index(kind: str | SearchIndex) -> SearchIndex:
    """A new index with default options for a name, or a copy of an index.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    if isinstance(kind, SearchIndex):
        return copy.deepcopy(kind)
    if kind not in INDEXES:
        raise ValueError(f"search must be one of {', '.join(map(repr, INDEXES))} or a SearchIndex, got {kind!r}")
    return INDEXES[kind]()


def proposer(search: str | SearchIndex) -> SearchIndex | None:
    """The index that a solver uses for its parameter ``search``; None for "exact", its own search."""
    return None if isinstance(search, str) and search == "exact" else make_index(search)
