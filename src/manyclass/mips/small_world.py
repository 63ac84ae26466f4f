"""Small-world graph: approximate maximum inner product search by beam search along the edges of a graph."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from manyclass.kernels import small_world as kernels
from manyclass.kernels.rows import make_rows, read_only
from manyclass.kernels.scoring import spread
from manyclass.mips.base import SearchIndex, whole
from manyclass.mips.vectors import ClassVectors
from manyclass.runtime.threads import ranges

__all__ = ["SmallWorldGraph"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Number of classes at which every search starts.
_ENTRIES = 16
#: Number of classes that are inserted between two checks for Ctrl-C.
_SLICE = 256


class SmallWorldGraph(SearchIndex):
    """Approximate search in a navigable small-world graph [1]_ of the class vectors, by inner product [2]_.

    Each class has up to ``degree`` edges to classes whose vectors have large inner products with its own, chosen so
    that they point in different directions. A query is a beam search: it starts at a few fixed classes, follows the
    edges of the best class that it has not expanded yet, and ends when the ``width`` best classes found have all been
    expanded. Scores are exact.

    An insertion searches the graph in the same way. A deletion chooses new edges for the classes that had edges to the
    deleted one [3]_, in one pass over the edges for all classes of a call: many changes in one call cost less than one
    by one. An update is a deletion and an insertion.

    The search works well if classes with large scores for a row are similar to each other. This need not hold: the
    weights of an SVM are sparse, and those of similar classes point in *opposite* directions. Measure `recall` first.

    Memory: ``4 (degree + 1)`` bytes per class and a copy of the vectors.

    Parameters
    ----------
    degree : int, default=16
        Maximum number of edges of a class, >= 2.
    width : int, default=64
        Number of best classes that a query keeps, >= 1: larger values give a better recall and slower queries. May be
        changed between queries.
    build_width : int, default=64
        The same for insertions.
    random_state : int, default=0
        Seed of the order in which `build` inserts the classes, >= 0.

    References
    ----------
    .. [1] Yu. Malkov, A. Ponomarenko, A. Logvinov and V. Krylov, Approximate nearest neighbor algorithm based on
       navigable small world graphs, Information Systems 45, 2014; the choice of edges is that of Yu. Malkov and
       D. Yashunin, Efficient and robust approximate nearest neighbor search using HNSW graphs, TPAMI 2020, Algorithm 4.
    .. [2] S. Morozov and A. Babenko, Non-metric similarity graphs for maximum inner product search, NeurIPS 2018.
    .. [3] A. Singh et al., FreshDiskANN, arXiv:2105.09613, 2021, Algorithm 4.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.mips import SmallWorldGraph
    >>> W = np.random.default_rng(0).standard_normal((20, 500))
    >>> W /= np.linalg.norm(W, axis=0)
    >>> index = SmallWorldGraph().build(W)
    >>> index.delete([1])
    >>> index.query(W[:, [0, 2]].T)[0].ravel().tolist()
    [0, 2]
    """

    kind = "small_world"

    def __init__(self, *, degree: int = 16, width: int = 64, build_width: int = 64, random_state: int = 0) -> None:
        self.degree = whole("degree", degree, 2)
        self.width = whole("width", width, 1)
        self.build_width = whole("build_width", build_width, 1)
        self.random_state = whole("random_state", random_state, 0)

    def _build(self, weights: Any, n_jobs: int | None) -> None:
        self._vectors = ClassVectors.of_columns(weights)
        K = self._vectors.capacity
        self._graph = kernels.Graph(
            np.zeros((K, self.degree), np.int32),
            np.zeros(K, np.int32),
            np.full(_ENTRIES, -1, np.int64),
        )
        rng = np.random.Generator(np.random.PCG64(self.random_state))
        self._connect(np.argsort(rng.random(K), kind="stable"))

    def _connect(self, ids: Array) -> None:
        scratch, width = np.zeros(self._d, self.dtype), min(self.build_width, self._vectors.capacity)
        for begin, end in ranges(len(ids), _SLICE):
            kernels.insert_all(self._vectors.view(), self._graph, ids[begin:end], width, scratch)

    def _own(self) -> None:
        """Make the graph's arrays writable, with a row for each class number."""
        more = len(self._alive) - len(self._graph.degree)
        if more or not self._graph.degree.flags.writeable:
            neighbors, degree, entries = self._graph
            self._graph = kernels.Graph(
                np.concatenate([neighbors, np.zeros((more, neighbors.shape[1]), np.int32)]),
                np.concatenate([degree, np.zeros(more, np.int32)]),
                np.array(entries),
            )

    def _insert(self, ids: Array, vectors: Any) -> None:
        self._open(ids)
        self._own()
        self._vectors.put(ids, vectors)
        self._connect(ids)

    def _update(self, ids: Array, vectors: Any) -> None:
        orphans = self._disconnect(ids)
        self._alive[ids] = True
        self._vectors.put(ids, vectors)
        self._connect(np.concatenate([orphans, ids]))

    def _delete(self, ids: Array) -> None:
        orphans = self._disconnect(ids)
        self._vectors.clear(ids)
        self._connect(orphans)

    def _disconnect(self, ids: Array) -> Array:
        """Remove classes from the graph; returns those that are left without an edge."""
        self._own()
        self._alive[ids] = False
        gone = np.zeros(len(self._alive), bool)
        gone[ids] = True
        entries = self._graph.entries
        kept = entries[(entries >= 0) & ~gone[entries]]
        spare = np.setdiff1d(np.flatnonzero(self._alive), kept)
        entries[:] = np.concatenate([kept, spare, np.full(_ENTRIES, -1)])[:_ENTRIES]
        orphans = np.empty(len(gone), np.int64)
        value = np.empty(self.degree * (self.degree + 1), self.dtype)
        lonely = kernels.repair(self._vectors.view(), self._graph, gone, read_only(self._alive), orphans, value)
        self._graph.degree[ids] = 0
        return orphans[:lonely]

    def _query(self, X: Any, exclude: Array, classes: Array, scores: Array, n_jobs: int | None) -> None:
        vectors, alive = self._vectors.view(), read_only(self._alive)
        graph = kernels.Graph(*map(read_only, self._graph))
        width = min(self.width, self._vectors.capacity)  # kernels allocate it; a file may have any

        def task(begin: int, end: int) -> None:
            part = slice(begin, end)
            rows = make_rows(self._piece(X, begin, end, scores.dtype))
            scratch = np.zeros(self._d, scores.dtype)
            kernels.graph_best(rows, vectors, graph, alive, exclude[part], width, scratch, scores[part], classes[part])

        spread(task, len(classes), n_jobs)

    @property
    def dtype(self) -> np.dtype[Any]:
        self._require_built()
        return self._vectors.dtype

    @property
    def nbytes(self) -> int:
        self._require_built()
        return self._vectors.nbytes + sum(int(array.nbytes) for array in (self._alive, *self._graph))

    def weights(self) -> Any:
        self._require_built()
        rows = self._vectors.rows()
        return rows.T.tocsr() if self._vectors.sparse else np.ascontiguousarray(rows.T)

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        options = {name: int(getattr(self, name)) for name in ("degree", "width", "build_width", "random_state")}
        arrays = {f"vectors.{name}": array for name, array in self._vectors.arrays().items()}
        return options, {**arrays, **self._graph._asdict()}

    def _restore(self, arrays: dict[str, Array]) -> None:
        parts = {name.removeprefix("vectors."): arrays[name] for name in arrays if name.startswith("vectors.")}
        self._vectors = ClassVectors(self._d, parts)
        self._graph = kernels.Graph(*(arrays[name] for name in kernels.Graph._fields))
        K = len(self._alive)
        neighbors, degree, entries = self._graph
        if [numbers.dtype for numbers in self._graph] != [np.int32, np.int32, np.int64]:
            raise ValueError("the graph must have int32 edges and degrees, int64 entries")
        if neighbors.shape != (K, self.degree) or degree.shape != (K,) or self._vectors.capacity != K:
            raise ValueError(f"the graph must have shape {(K, self.degree)}, got {neighbors.shape}")
        if degree.min(initial=0) < 0 or degree.max(initial=0) > self.degree:
            raise ValueError(f"the degrees of the graph must be from 0 to {self.degree}")
        for name, numbers, least in (("edges", neighbors, 0), ("entries", entries, -1)):
            if numbers.min(initial=0) < least or numbers.max(initial=-1) >= K:
                raise ValueError(f"the {name} of the graph must be class numbers below {K}")
