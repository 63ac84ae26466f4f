"""Generates data similar to text with very many classes: Zipf class sizes, a tree of topics, tf-idf rows.

Every random number is a uniform double of PCG64 and every choice compares such doubles, so that a seed gives the same
labels and the same non-zeros on every machine; the values, computed by logarithms, agree up to rounding.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

__all__ = ["make_many_classes"]

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]

#: Number of words drawn at a time. A change of it changes the data for a given seed, since it orders the draws.
_CHUNK = 1 << 20

#: Shift of the Zipf-Mandelbrot distribution of words, which makes the most frequent words less frequent.
_SHIFT = 2.7


def make_many_classes(
    n_samples: int,
    n_features: int,
    n_classes: int,
    *,
    nnz_per_row: int = 40,
    n_informative: int = 8,
    class_share: float = 0.1,
    topic_share: float = 0.2,
    branching: int = 16,
    class_exponent: float = 1.0,
    feature_exponent: float = 1.0,
    label_noise: float = 0.0,
    random_state: int | None = 0,
    dtype: npt.DTypeLike = np.float32,
) -> tuple[sparse.csr_matrix[Any], IntArray]:
    """Generate a classification problem similar to text: sparse rows, up to millions of classes, most of them rare.

    Classes are the leaves of a tree of topics in which ``branching`` neighbors share a parent. Every class and every
    topic has ``n_informative`` characteristic features ("words"), drawn from all features. A row of class c is a bag of
    words: each is a word of the class with probability ``class_share``, a word of one of its topics (all ancestors with
    equal probability) with ``topic_share``, and else any word by a Zipf-Mandelbrot distribution. Values are tf-idf,
    ``(1 + log tf) (1 + log((1 + n) / (1 + df)))``, and rows are scaled to unit length.

    Memory is O(non-zeros + n_classes n_informative + n_features).

    Parameters
    ----------
    n_samples, n_features, n_classes : int
        Number of rows, features and classes, >= 1.
    nnz_per_row : int, default=40
        Mean number of words drawn for a row; a row has between half and one and a half times as many. Repeated words
        share a non-zero, so that rows have somewhat fewer non-zeros.
    n_informative : int, default=8
        Number of characteristic features of each class and each topic. If ``n_features`` is small compared to
        ``n_classes * n_informative``, classes share words and are harder to distinguish.
    class_share, topic_share : float, default=0.1, 0.2
        The fractions of words that depend on the class and on its topics, in [0, 1]; the others are noise. Smaller
        fractions make the problem harder. Without topics (``n_classes <= branching``) their fraction is noise too.
    branching : int, default=16
        Number of children of a topic, >= 2.
    class_exponent : float, default=1.0
        The class of rank r has a size proportional to ``1 / r ** class_exponent``, >= 0; 0 makes all sizes equal.
        Sizes are not random (largest remainder method); every class has at least one row if there are enough rows.
    feature_exponent : float, default=1.0
        The noise word of rank r has a frequency proportional to ``1 / (r + 2.7) ** feature_exponent``, >= 0.
    label_noise : float, default=0.0
        Fraction of the rows, chosen at random, whose labels are permuted, in [0, 1]. With 1 the labels are independent
        of the rows. Class sizes and ``X`` do not depend on it.
    random_state : int or None, default=0
        Seed; None takes a new one from the operating system.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        Type of the values of ``X``.

    Returns
    -------
    X : scipy.sparse.csr_matrix of shape (n_samples, n_features)
        Rows of unit length, indices sorted and unique, no row empty.
    y : array of shape (n_samples,), int64
        Classes 0 .. n_classes - 1, each at least once if ``n_samples >= n_classes``; neighboring numbers share topics,
        and the number of a class is independent of its size.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    B. Mandelbrot, An informational theory of the statistical structure of language, 1953 (frequencies of words).
    R. Babbar et al., On power law distributions in large-scale taxonomies, SIGKDD Explorations 16(1), 2014
    (class sizes in a tree).

    Examples
    --------
    >>> from manyclass.datasets import make_many_classes
    >>> X, y = make_many_classes(1000, 500, 100, random_state=0)
    >>> X.shape, int(y.max()) + 1
    ((1000, 500), 100)
    """
    value_type = np.dtype(dtype)
    if value_type not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype is {value_type}; expected float32 or float64")
    counts: list[tuple[str, Any, int]] = [
        ("n_samples", n_samples, 1),
        ("n_features", n_features, 1),
        ("n_classes", n_classes, 1),
        ("nnz_per_row", nnz_per_row, 1),
        ("n_informative", n_informative, 1),
        ("branching", branching, 2),
        ("random_state", 0 if random_state is None else random_state, 0),
    ]
    for name, count, least in counts:
        if not isinstance(count, Integral) or count < least:
            raise ValueError(f"{name} is {count!r}; expected an integer of at least {least}")
    for name, share in (
        ("class_share", class_share),
        ("topic_share", topic_share),
        ("label_noise", label_noise),
    ):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} is {share!r}; expected a fraction between 0 and 1")
    if class_share + topic_share > 1:
        raise ValueError(f"class_share + topic_share is {class_share + topic_share}; expected at most 1")
    for name, exponent in (("class_exponent", class_exponent), ("feature_exponent", feature_exponent)):
        if not 0 <= exponent < np.inf:
            raise ValueError(f"{name} is {exponent!r}; expected a finite non-negative number")

    # A random stream for each purpose: class_share, topic_share and label_noise do not affect classes, sizes and
    # lengths.
    seeds = np.random.SeedSequence(random_state).spawn(4)
    for_labels, for_language, for_words, for_noise = (np.random.Generator(np.random.PCG64(s)) for s in seeds)

    sizes = np.empty(n_classes, dtype=np.int64)
    sizes[_shuffled(n_classes, for_labels)] = _class_sizes(n_samples, n_classes, class_exponent)
    y = np.repeat(np.arange(n_classes, dtype=np.int64), sizes)[_shuffled(n_samples, for_labels)]
    lengths = (nnz_per_row + 1) // 2 + _integers(2 * (nnz_per_row // 2) + 1, n_samples, for_labels)
    language = _Language.create(
        n_features,
        n_classes,
        n_informative,
        class_share,
        topic_share,
        branching,
        feature_exponent,
        for_language,
    )
    X = _tf_idf(y, lengths, max(1, _CHUNK // nnz_per_row), language, value_type, for_words)

    noisy = _shuffled(n_samples, for_noise)[: round(label_noise * n_samples)]
    y[noisy] = np.roll(y[noisy], 1)
    return X, y


def _integers(bound: int, size: int | tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Draw integers from 0 to bound - 1, computed from uniform doubles in [0, 1)."""
    return (rng.random(size) * bound).astype(np.int64)


def _shuffled(n: int, rng: np.random.Generator) -> IntArray:
    return np.asarray(np.argsort(rng.random(n), kind="stable"), dtype=np.int64)


def _class_sizes(n_samples: int, n_classes: int, exponent: float) -> IntArray:
    """Return class sizes by rank: one row each if there are enough rows, the others by the power law."""
    least = 1 if n_samples >= n_classes else 0
    left = n_samples - least * n_classes
    law = _power_law(n_classes, 0.0, exponent)
    exact = law * (left / np.cumsum(law)[-1])
    sizes: IntArray = np.floor(exact).astype(np.int64)
    by_remainder = np.argsort(sizes - exact, kind="stable")
    sizes[by_remainder[: left - int(sizes.sum())]] += 1
    sizes += least
    return sizes


def _power_law(n: int, shift: float, exponent: float) -> FloatArray:
    """Return power law frequencies relative to rank 1, so that large exponents do not underflow all of them."""
    return np.asarray(((1.0 + shift) / (np.arange(1, n + 1) + shift)) ** exponent)


class _Language(NamedTuple):
    """The distribution of the words of each class."""

    words: IntArray  # n_nodes x n_informative: of the classes, then of their parents, up to the top topics
    edges: FloatArray  # cumulative probabilities that a word is of the class, its parent, ..., its top topic
    first_node: IntArray  # of each level of the tree
    span: IntArray  # number of classes below a node of each level
    noise: IntArray  # the noise words from common to rare
    noise_up_to: FloatArray  # their cumulative frequencies

    @classmethod
    def create(
        cls,
        n_features: int,
        n_classes: int,
        n_informative: int,
        class_share: float,
        topic_share: float,
        branching: int,
        exponent: float,
        rng: np.random.Generator,
    ) -> _Language:
        nodes = [n_classes]
        while nodes[-1] > branching:
            nodes.append(-(-nodes[-1] // branching))
        depth = len(nodes) - 1
        topics = class_share + topic_share * np.arange(1, depth + 1) / max(depth, 1)
        return cls(
            words=_integers(n_features, (sum(nodes), n_informative), rng),
            edges=np.append(class_share, topics),
            first_node=np.cumsum([0, *nodes[:-1]], dtype=np.int64),
            span=branching ** np.arange(depth + 1, dtype=np.int64),
            noise=_shuffled(n_features, rng),
            noise_up_to=np.cumsum(_power_law(n_features, _SHIFT, exponent)),
        )

    def draw(self, labels: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw a word for each label."""
        level = np.searchsorted(self.edges, rng.random(labels.size), side="right")
        choice = rng.random(labels.size)
        informative = level < self.edges.size
        node = self.first_node[level[informative]] + labels[informative] // self.span[level[informative]]
        drawn = np.empty(labels.size, dtype=np.int64)
        drawn[informative] = self.words[node, (choice[informative] * self.words.shape[1]).astype(np.int64)]
        # A product that is rounded up to the total would give an index after the last word.
        rank = np.searchsorted(self.noise_up_to, choice[~informative] * self.noise_up_to[-1], side="right")
        drawn[~informative] = self.noise[np.minimum(rank, self.noise.size - 1)]
        return drawn


def _tf_idf(
    labels: IntArray,
    lengths: IntArray,
    step: int,
    language: _Language,
    dtype: np.dtype[Any],
    rng: np.random.Generator,
) -> sparse.csr_matrix[Any]:
    """Return the rows: counts of words, ``step`` rows at a time, then their tf-idf values."""
    n_samples, n_features = labels.size, language.noise.size
    index_type = np.int32 if n_features <= np.iinfo(np.int32).max else np.int64
    starts = range(0, n_samples, step)
    indices, values = [], []
    row_nnz = np.empty(n_samples, dtype=np.int64)
    rows_with = np.zeros(n_features, dtype=np.int64)
    for start in starts:
        length = lengths[start : start + step]
        words = language.draw(np.repeat(labels[start : start + step], length), rng)
        # Row and word as one number: after sorting, the words of a row are in order and equal words adjacent.
        key = np.repeat(np.arange(length.size, dtype=np.int64), length) * n_features + words
        key.sort()
        first = np.flatnonzero(np.diff(key, prepend=-1))
        times = np.diff(first, append=key.size)
        row, word = np.divmod(key[first], n_features)
        row_nnz[start : start + step] = np.bincount(row, minlength=length.size)
        rows_with += np.bincount(word, minlength=n_features)
        indices.append(word.astype(index_type))
        values.append((1.0 + np.log(times)).astype(dtype))

    rarity = 1.0 + np.log((1.0 + n_samples) / (1.0 + rows_with))
    for i, start in enumerate(starts):
        nnz = row_nnz[start : start + step]
        value = values[i] * rarity[indices[i]]
        norm = np.sqrt(np.add.reduceat(value * value, np.cumsum(nnz) - nnz))
        values[i] = (value / np.repeat(norm, nnz)).astype(dtype)
    return sparse.csr_matrix(
        (np.concatenate(values), np.concatenate(indices), np.concatenate([[0], np.cumsum(row_nnz)])),
        shape=(n_samples, n_features),
    )
