"""Kernels of the small-world graph: beam search, insertion, repair after deletions.

Edges are directed; class k has the out-neighbors ``neighbors[k, :degree[k]]``. The similarity of two classes is their
inner product. A mark in ``seen`` says that a class has been scored in the current search.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyclass.kernels.jit import inline, jit
from manyclass.kernels.predict import worse
from manyclass.kernels.search import clear, dot, dot_pair, entries_of, scatter

__all__ = ["Graph", "graph_best", "insert_all", "repair"]

# mypy: disable-error-code="no-untyped-def"


class Graph(NamedTuple):
    """Out-edges (K x M and K), and the classes at which searches start (-1: none)."""

    neighbors: np.ndarray[Any, Any]
    degree: np.ndarray[Any, Any]
    entries: np.ndarray[Any, Any]


@inline
def _rank(value, number, fresh, size, limit, score, k):
    # Insert class k into the list of the best, best first; returns its new length.
    if size == limit and not worse(value[size - 1], number[size - 1], score, k):
        return size
    place = size if size < limit else limit - 1
    while place > 0 and worse(value[place - 1], number[place - 1], score, k):
        value[place] = value[place - 1]
        number[place] = number[place - 1]
        fresh[place] = fresh[place - 1]
        place -= 1
    value[place] = score
    number[place] = k
    fresh[place] = True
    return min(size + 1, limit)


@jit
def beam(vectors, graph, where, x, spread, limit, seen, mark, value, number, fresh):
    """Beam search: the best ``limit`` classes that are reached from the entry classes; returns how many there are."""
    size = 0
    for e in range(graph.entries.shape[0]):
        k = graph.entries[e]
        if k >= 0 and seen[k] != mark:
            seen[k] = mark
            score = dot(vectors, k, where, x, spread)
            size = _rank(value, number, fresh, size, limit, score, k)
    p = 0
    while p < size:
        if not fresh[p]:
            p += 1
            continue
        fresh[p] = False
        u = number[p]
        for a in range(graph.degree[u]):
            k = graph.neighbors[u, a]
            if seen[k] != mark:
                seen[k] = mark
                score = dot(vectors, k, where, x, spread)
                size = _rank(value, number, fresh, size, limit, score, k)
        p = 0
    return size


@jit
def graph_best(rows, vectors, graph, alive, exclude, width, spread, values, numbers):
    """The k best classes that a beam search of this width reaches, for each row.

    ``spread`` is scratch, a zero of the type of ``values`` for each feature.
    """
    outputs = alive.shape[0]
    size = values.shape[1]
    limit = max(width, size + 1)
    value = np.empty(limit, values.dtype)
    number = np.empty(limit, np.int64)
    fresh = np.empty(limit, np.bool_)
    seen = np.zeros(outputs, np.int64)
    for i in range(values.shape[0]):
        where = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
        x = rows.data[rows.indptr[i] : rows.indptr[i + 1]]
        scatter(where, x, spread)
        found = beam(vectors, graph, where, x, spread, limit, seen, i + 1, value, number, fresh)
        if found < limit:
            # Every class that can be reached has been scored: the others are scored one by one.
            for k in range(outputs):
                if alive[k] and seen[k] != i + 1:
                    found = _rank(value, number, fresh, found, limit, dot(vectors, k, where, x, spread), k)
        place = 0
        for a in range(found):
            if place < size and number[a] != exclude[i]:
                values[i, place] = value[a]
                numbers[i, place] = number[a]
                place += 1
        clear(where, spread)


@jit
def choose(vectors, value, number, size, chosen, taken):
    """Choose neighbors for a class from candidates, given the most similar first; returns how many.

    First the candidates that are more similar to the class than to any neighbor chosen before, so that the edges point
    in different directions; then the others, until the class has M neighbors.
    """
    room = chosen.shape[0]
    m = 0
    for a in range(size):
        taken[a] = False
    for a in range(size):
        if m == room:
            break
        near = True
        for b in range(m):
            if dot_pair(vectors, number[a], chosen[b]) > value[a]:
                near = False
                break
        if near:
            chosen[m] = number[a]
            taken[a] = True
            m += 1
    for a in range(size):
        if m == room:
            break
        if not taken[a]:
            chosen[m] = number[a]
            m += 1
    return m


@jit
def _link(vectors, graph, u, v, value, number, fresh, chosen, taken):
    # Add an edge from u to v; if u has M neighbors already, choose again among these and v.
    degree = graph.degree[u]
    room = graph.neighbors.shape[1]
    for a in range(degree):
        if graph.neighbors[u, a] == v:
            return
    if degree < room:
        graph.neighbors[u, degree] = v
        graph.degree[u] = degree + 1
        return
    size = _rank(value, number, fresh, 0, room + 1, dot_pair(vectors, u, v), v)
    for a in range(degree):
        k = graph.neighbors[u, a]
        size = _rank(value, number, fresh, size, room + 1, dot_pair(vectors, u, k), np.int64(k))
    m = choose(vectors, value, number, size, chosen, taken)
    for a in range(m):
        graph.neighbors[u, a] = chosen[a]
    graph.degree[u] = m


@jit
def insert_all(vectors, graph, ids, width, spread):
    """Connect classes that have vectors and no edges, one after the other.

    ``spread`` is scratch, a zero of the type of the vectors for each feature.
    """
    real = spread.dtype
    room = graph.neighbors.shape[1]
    limit = max(width, room + 1)
    value = np.empty(limit, real)
    number = np.empty(limit, np.int64)
    fresh = np.empty(limit, np.bool_)
    near_value = np.empty(room + 1, real)
    near_number = np.empty(room + 1, np.int64)
    chosen = np.empty(room, np.int64)
    linked = np.empty(room, np.int64)
    taken = np.empty(limit, np.bool_)
    seen = np.zeros(graph.degree.shape[0], np.int64)
    for position in range(ids.shape[0]):
        v = ids[position]
        mark = position + 1
        where, x = entries_of(vectors, v)
        scatter(where, x, spread)
        seen[v] = mark
        size = beam(vectors, graph, where, x, spread, limit, seen, mark, value, number, fresh)
        clear(where, spread)
        m = choose(vectors, value, number, size, chosen, taken)
        for a in range(m):
            graph.neighbors[v, a] = chosen[a]
        graph.degree[v] = m
        for a in range(m):
            _link(vectors, graph, chosen[a], v, near_value, near_number, fresh, linked, taken)
        for e in range(graph.entries.shape[0]):
            if graph.entries[e] < 0:
                graph.entries[e] = v
                break


@jit
def repair(vectors, graph, gone, alive, orphans, value):
    """Remove the edges to the classes ``gone`` (a mask), as in Singh et al., FreshDiskANN, 2021, Algorithm 4.

    A class with such an edge chooses again among its other neighbors and those of the removed class. Classes that are
    left without an edge are listed in ``orphans``; returns how many. ``value`` is scratch for M (M + 1) numbers of the
    type of the vectors.
    """
    room = graph.neighbors.shape[1]
    limit = value.shape[0]
    number = np.empty(limit, np.int64)
    fresh = np.empty(limit, np.bool_)
    taken = np.empty(limit, np.bool_)
    chosen = np.empty(room, np.int64)
    seen = np.full(alive.shape[0], -1, np.int64)
    lonely = 0
    for u in range(alive.shape[0]):
        if gone[u] or not alive[u]:
            continue
        hurt = False
        for a in range(graph.degree[u]):
            if gone[graph.neighbors[u, a]]:
                hurt = True
        if not hurt:
            continue
        seen[u] = u
        size = 0
        for a in range(graph.degree[u]):
            k = np.int64(graph.neighbors[u, a])
            if not gone[k]:
                if seen[k] != u:
                    seen[k] = u
                    size = _rank(value, number, fresh, size, limit, dot_pair(vectors, u, k), k)
                continue
            for b in range(graph.degree[k]):
                other = np.int64(graph.neighbors[k, b])
                if not gone[other] and seen[other] != u:
                    seen[other] = u
                    size = _rank(value, number, fresh, size, limit, dot_pair(vectors, u, other), other)
        m = choose(vectors, value, number, size, chosen, taken)
        for a in range(m):
            graph.neighbors[u, a] = chosen[a]
        graph.degree[u] = m
        if m == 0:
            orphans[lonely] = u
            lonely += 1
    return lonely
