"""SimpleLSH: locality-sensitive hashing for inner products."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import norm as sparse_norm

from manyclass.kernels import simple_lsh as kernels
from manyclass.kernels.rows import make_rows, read_only
from manyclass.kernels.scoring import Scorer, spread
from manyclass.mips.base import SearchIndex, whole
from manyclass.mips.vectors import ClassVectors
from manyclass.runtime.threads import ranges

__all__ = ["Hyperplanes", "SimpleLSH", "packed"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Number of rows hashed at a time.
_ROWS = 4096


class Hyperplanes:
    """The random hyperplanes of `SimpleLSH`.

    Parameters
    ----------
    normals : ndarray of shape (width, bits), float32
        Their normals, for the features or for those to which features are hashed.
    last : ndarray of shape (bits,), float32
        The normals' entries for the number by which a class vector is extended.
    places : ndarray of shape (d,), int32, optional
        Feature j is hashed to abs(places[j]) - 1, with the sign of places[j]. None: features are not hashed.
    """

    def __init__(self, normals: Array, last: Array, places: Array | None = None) -> None:
        self.normals, self.last, self.places = normals, last, places
        self._hashing: Any = None
        if places is not None:
            parts = np.sign(places).astype(np.float32), np.abs(places) - 1, np.arange(len(places) + 1)
            self._hashing = sp.csr_matrix(parts, shape=(len(places), len(normals)))

    @classmethod
    def draw(cls, d: int, bits: int, hashed_features: int | None, seed: int) -> Hyperplanes:
        """Random hyperplanes for vectors of d features."""
        rng = np.random.Generator(np.random.PCG64(seed))
        normals: Array = rng.standard_normal((d if hashed_features is None else hashed_features, bits), np.float32)
        last: Array = rng.standard_normal(bits, np.float32)
        if hashed_features is None:
            return cls(normals, last)
        where = rng.integers(1, hashed_features + 1, d, np.int32)
        return cls(normals, last, where * rng.choice(np.array([-1, 1], np.int32), d))

    def hashed(self, X: Any) -> Any:
        """CSR rows, hashed if features are."""
        return X if self._hashing is None else sp.csr_matrix(X @ self._hashing, dtype=X.dtype)

    def sides(self, X: Any, n_jobs: int | None = None) -> Array:
        """Inner products of CSR rows with the normals, (n, bits)."""
        return Scorer(self.normals, np.zeros_like(self.last)).scores(self.hashed(X), n_jobs)

    def row_codes(self, X: Any, n_jobs: int | None = None) -> Array:
        """The codes of CSR rows, (n, bits / 64), uint64."""
        return packed(self.sides(X, n_jobs))

    def class_codes(self, sides: Array, norms: Array, bound: float) -> Array:
        """The codes of class vectors with these `sides` and norms, of which ``bound`` is an upper bound."""
        scale = bound or 1.0
        rest = np.sqrt(np.maximum(0.0, 1.0 - (norms / scale) ** 2))
        return packed(sides / scale + rest[:, None] * self.last)

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        hashing = () if self.places is None else (self.places, self._hashing.data, self._hashing.indices)
        return sum(int(array.nbytes) for array in (self.normals, self.last, *hashing))


class SimpleLSH(SearchIndex):
    """Approximate search by random binary codes (locality-sensitive hashing), with exact scores of the candidates.

    A class vector w is scaled by an upper bound U on all norms, and extended to a unit vector
    ``[w / U, sqrt(1 - ||w||^2 / U^2)]``; a row x is extended by 0 [1]_. Each bit of a code tells the side of a random
    hyperplane. The bits of a class and of a row agree with probability ``1 - theta / pi``, where
    ``cos theta = x . w / (||x|| U)``: the larger the inner product, the closer the codes. A query computes the Hamming
    distances to all codes (a few machine instructions per class), and scores the nearest ``candidates`` classes
    exactly.

    U is ``slack`` times the largest norm when the index is built. While all norms stay below U, a change recomputes
    only the codes of the changed classes; a longer vector increases U, and the codes of all classes are recomputed.

    Memory: ``bits`` numbers per feature for the hyperplanes, ``bits / 8`` bytes per class for the codes, and a copy of
    the vectors. With ``hashed_features`` codes are those of hashed vectors [2]_: each feature is added, with a random
    sign, to one of so many features, which leaves inner products unbiased; the hyperplanes then take ``bits`` numbers
    for each of these. Candidates are scored with the vectors themselves.

    All codes are compared, so that no other order of probing buckets of codes (multi-probe) finds more with the same
    candidates.

    Parameters
    ----------
    bits : int, default=256
        Length of a code, a multiple of 64.
    candidates : int, default=256
        Number of classes that are scored for a row, >= 1; at least k are. May be changed between queries.
    slack : float, default=1.25
        U divided by the largest norm, >= 1.
    hashed_features : int, optional
        Number of features to which those of the vectors are hashed for the codes, >= 1. None: they are not hashed.
    random_state : int, default=0
        Seed of the hyperplanes and of the hashing, >= 0.

    Attributes
    ----------
    norm_bound_ : float
        U.
    codes_ : ndarray of shape (largest class number + 1, bits / 64), uint64
        The codes of the classes.

    References
    ----------
    .. [1] B. Neyshabur and N. Srebro, On symmetric and asymmetric LSHs for inner product search, ICML 2015.
    .. [2] K. Weinberger, A. Dasgupta, J. Langford, A. Smola and J. Attenberg, Feature hashing for large scale multitask
       learning, ICML 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from manyclass.mips import SimpleLSH
    >>> W = np.random.default_rng(0).standard_normal((20, 500))
    >>> W /= np.linalg.norm(W, axis=0)
    >>> index = SimpleLSH(candidates=100).build(W)
    >>> index.query(W[:, :3].T)[0].ravel().tolist()
    [0, 1, 2]
    """

    kind = "simple_lsh"

    def __init__(
        self,
        *,
        bits: int = 256,
        candidates: int = 256,
        slack: float = 1.25,
        hashed_features: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.bits = whole("bits", bits, 64)
        if self.bits % 64:
            raise ValueError(f"bits must be a multiple of 64, got {bits!r}")
        self.candidates = whole("candidates", candidates, 1)
        number: Any = slack
        if isinstance(number, bool) or not isinstance(number, Real) or not 1 <= float(number) < np.inf:
            raise ValueError(f"slack must be a number of at least 1, got {slack!r}")
        self.slack = float(number)
        self.hashed_features = None if hashed_features is None else whole("hashed_features", hashed_features, 1)
        self.random_state = whole("random_state", random_state, 0)

    def _build(self, weights: Any, n_jobs: int | None) -> None:
        self._vectors = ClassVectors.of_columns(weights)
        self._planes = self.hyperplanes(self._d)
        self.norm_bound_ = 0.0
        self.codes_: Array = np.zeros((self._vectors.capacity, self.bits // 64), np.uint64)
        self._hash(np.arange(len(self._alive)), n_jobs)

    def _insert(self, ids: Array, vectors: Any) -> None:
        self._open(ids)
        self._update(ids, vectors)

    def _update(self, ids: Array, vectors: Any) -> None:
        self._vectors.put(ids, vectors)
        more = self._vectors.capacity - len(self.codes_)
        if more or not self.codes_.flags.writeable:
            self.codes_ = np.concatenate([self.codes_, np.zeros((more, self.codes_.shape[1]), np.uint64)])
        self._hash(ids, None)

    def _delete(self, ids: Array) -> None:
        self._alive[ids] = False
        self._vectors.clear(ids)

    def _hash(self, ids: Array, n_jobs: int | None) -> None:
        """Compute the codes of the classes ``ids``, or of all classes if one of ``ids`` has a norm above the bound."""
        norms = self._norms(ids)
        longest = float(norms.max(initial=0.0))
        if longest > self.norm_bound_ or self.norm_bound_ == 0:
            # If all vectors are zero, any positive bound will do.
            self.norm_bound_ = self.slack * longest
            ids = np.arange(self._vectors.capacity)
            norms = self._norms(ids)
        for begin, end in ranges(len(ids), _ROWS):
            part = slice(begin, end)
            piece = self._piece(self._vectors.rows(ids[part]), 0, end - begin, self.dtype)
            sides = self._planes.sides(piece, n_jobs)
            self.codes_[ids[part]] = self._planes.class_codes(sides, norms[part], self.norm_bound_)

    def _norms(self, ids: Array) -> Array:
        """Euclidean norms of the vectors of classes, as they are hashed."""
        if self.hashed_features is None:
            return self._vectors.norms(ids)
        norms = np.empty(len(ids))
        for begin, end in ranges(len(ids), _ROWS):
            piece = self._planes.hashed(self._piece(self._vectors.rows(ids[begin:end]), 0, end - begin, self.dtype))
            norms[begin:end] = sparse_norm(piece, axis=1)
        return norms

    def hyperplanes(self, d: int) -> Hyperplanes:
        """The hyperplanes for vectors of d features."""
        return Hyperplanes.draw(d, self.bits, self.hashed_features, self.random_state)

    def encode(self, X: Any, *, n_jobs: int | None = None) -> Array:
        """The codes of the rows of X, as in a query: (n, bits / 64), uint64.

        Raises
        ------
        ValueError
            If X is invalid, see `query`.
        """
        dtype = self._checked_rows(X)
        codes = np.empty((X.shape[0], self.bits // 64), np.uint64)
        for begin, end in ranges(len(codes), _ROWS):
            codes[begin:end] = self._planes.row_codes(self._piece(X, begin, end, dtype), n_jobs)
        return codes

    def _query(self, X: Any, exclude: Array, classes: Array, scores: Array, n_jobs: int | None) -> None:
        vectors, codes, alive = self._vectors.view(), read_only(self.codes_), read_only(self._alive)
        candidates = max(self.candidates, classes.shape[1])

        def task(begin: int, end: int) -> None:
            part = slice(begin, end)
            piece = self._piece(X, begin, end, scores.dtype)
            asked, scratch = self._planes.row_codes(piece), np.zeros(self._d, scores.dtype)
            kernels.hamming_best(
                make_rows(piece),
                asked,
                vectors,
                codes,
                alive,
                exclude[part],
                candidates,
                scratch,
                scores[part],
                classes[part],
            )

        spread(task, len(classes), n_jobs)

    @property
    def dtype(self) -> np.dtype[Any]:
        self._require_built()
        return self._vectors.dtype

    @property
    def nbytes(self) -> int:
        self._require_built()
        return self._vectors.nbytes + self._planes.nbytes + int(self._alive.nbytes) + int(self.codes_.nbytes)

    def weights(self) -> Any:
        self._require_built()
        rows = self._vectors.rows()
        return rows.T.tocsr() if self._vectors.sparse else np.ascontiguousarray(rows.T)

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        options = {
            name: getattr(self, name) for name in ("bits", "candidates", "slack", "hashed_features", "random_state")
        }
        arrays = {f"vectors.{name}": array for name, array in self._vectors.arrays().items()}
        arrays |= {"planes": self._planes.normals, "last": self._planes.last, "codes": self.codes_}
        if self._planes.places is not None:
            arrays["hashing"] = self._planes.places
        return options, arrays | {"norm_bound": np.array([self.norm_bound_])}

    def _restore(self, arrays: dict[str, Array]) -> None:
        parts = {name.removeprefix("vectors."): arrays[name] for name in arrays if name.startswith("vectors.")}
        self._vectors = ClassVectors(self._d, parts)
        normals, last, self.codes_ = (arrays[name] for name in ("planes", "last", "codes"))
        self.norm_bound_ = float(arrays["norm_bound"][0])
        if self.codes_.dtype != np.uint64 or normals.dtype.kind != "f" or last.dtype.kind != "f":
            raise ValueError(f"codes are {self.codes_.dtype}, expected uint64")
        shapes = [array.shape for array in (normals, last, self.codes_)]
        K, width = len(self._alive), self.hashed_features or self._d
        if shapes != [(width, self.bits), (self.bits,), (K, self.bits // 64)] or self._vectors.capacity != K:
            raise ValueError(f"hyperplanes and codes have shapes {shapes}, which do not match {K} classes")
        places = None if self.hashed_features is None else arrays["hashing"]
        if places is not None:
            if places.dtype != np.int32 or places.shape != (self._d,):
                raise ValueError(f"the hashing is {places.dtype} of shape {places.shape}, expected int32 of {self._d}")
            if not ((places != 0) & (np.abs(places.astype(np.int64)) <= width)).all():
                raise ValueError(f"the hashing must be to {width} features")
        self._planes = Hyperplanes(normals, last, places)


def packed(sides: Array) -> Array:
    """The signs of numbers as bits, packed into 64-bit words."""
    return np.packbits(sides >= 0, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)
