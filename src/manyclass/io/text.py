"""Texts to features: scikit-learn's vectorisers, with a state of plain parameters and arrays."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

__all__ = ["TextVectorizer"]

#: Words of two characters or more. Given to scikit-learn by name: a stored model must not follow its
#: defaults.
_WORD = r"(?u)\b\w\w+\b"


class TextVectorizer:
    """Turn texts into rows of features, each row of Euclidean length 1 (or 0 where a text has no known term).

    Parameters
    ----------
    kind : {"tfidf", "hashing"}
        ``"tfidf"`` learns a vocabulary and weighs each term by its inverse document frequency; ``"hashing"``
        learns nothing, and counts terms in ``n_features`` columns that a hash function assigns.
    analyzer : {"word", "char", "char_wb"}
        What terms are made of: words of two characters or more, characters, or characters within words.
    ngram_range : (int, int)
        Smallest and largest number of words or characters in a term.
    lowercase : bool
        Whether texts are put into lower case first.
    min_df : int or float
        ``"tfidf"``: leave terms out that occur in fewer texts (int), or in a smaller part of them (float).
    sublinear_tf : bool
        Whether a term that occurs c times counts 1 + log(c) times.
    n_features : int
        ``"hashing"``: the number of columns.
    dtype : float32 or float64
        The type of the features.

    Raises
    ------
    ValueError
        If a parameter is none of these.

    Examples
    --------
    >>> vectorizer = TextVectorizer()
    >>> X = vectorizer.fit_transform(["red fish", "blue fish"])
    >>> X.shape, X.dtype
    ((2, 3), dtype('float32'))
    >>> again = TextVectorizer.from_state(*vectorizer.to_state())
    >>> bool((again.transform(["one fish"]) != vectorizer.transform(["one fish"])).nnz)
    False
    """

    def __init__(
        self,
        kind: Literal["tfidf", "hashing"] = "tfidf",
        *,
        analyzer: Literal["word", "char", "char_wb"] = "word",
        ngram_range: tuple[int, int] = (1, 1),
        lowercase: bool = True,
        min_df: int | float = 1,
        sublinear_tf: bool = True,
        n_features: int = 2**20,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        _check("kind", kind, kind in ("tfidf", "hashing"), "'tfidf' or 'hashing'")
        _check("analyzer", analyzer, analyzer in ("word", "char", "char_wb"), "'word', 'char' or 'char_wb'")
        ngrams = tuple(ngram_range) if isinstance(ngram_range, (tuple, list)) else ()
        fits = len(ngrams) == 2 and all(_is_integer(n) for n in ngrams) and 1 <= ngrams[0] <= ngrams[1]
        _check("ngram_range", ngram_range, fits, "two integers (smallest, largest) from 1 on")
        fits = min_df >= 1 if _is_integer(min_df) else _is_real(min_df) and 0 <= min_df <= 1
        _check("min_df", min_df, fits, "an integer from 1 on, or a float in [0, 1]")
        _check("n_features", n_features, _is_integer(n_features) and 1 <= n_features < 2**31, "an integer in [1, 2^31)")
        # Imported here, because it takes longer than all the rest, and readers of other formats do without.
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer

        self.kind = kind
        self.analyzer = analyzer
        self.ngram_range = ngrams
        self.lowercase = bool(lowercase)
        self.min_df = min_df
        self.sublinear_tf = bool(sublinear_tf)
        self.dtype = np.dtype(dtype)
        _check("dtype", dtype, self.dtype in (np.dtype(np.float32), np.dtype(np.float64)), "float32 or float64")
        self._columns = n_features
        common = {
            "analyzer": analyzer,
            "ngram_range": ngrams,
            "lowercase": self.lowercase,
            "token_pattern": _WORD if analyzer == "word" else None,
            "dtype": self.dtype.type,
        }
        # What scikit-learn's TfidfVectorizer does in one, done in two steps: features are brought into order in
        # between, so that the very same numbers come out of `fit_transform` and of `transform`.
        if kind == "tfidf":
            self._terms: Any = CountVectorizer(min_df=min_df, **common)
        else:
            # Signs that alternate would let terms cancel, and leave no count to take the logarithm of.
            self._terms = HashingVectorizer(n_features=n_features, alternate_sign=False, norm=None, **common)
        self._weights = TfidfTransformer(use_idf=kind == "tfidf", sublinear_tf=sublinear_tf)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._parameters().items())
        return f"TextVectorizer({given})"

    @property
    def fitted(self) -> bool:
        """Whether `transform` can be used: always, for ``"hashing"``."""
        return self.kind == "hashing" or hasattr(self._terms, "vocabulary_")

    @property
    def n_features(self) -> int:
        """The number of columns; 0 before a vocabulary is known."""
        if self.kind == "hashing":
            return self._columns
        return len(self._terms.vocabulary_) if self.fitted else 0

    def fit_transform(self, texts: Iterable[str]) -> csr_matrix:
        """Learn the vocabulary and its weights, and return the features of the same texts.

        Parameters
        ----------
        texts : iterable of str
            Read once: they need not be in memory all at a time.

        Returns
        -------
        csr_matrix of shape (n_texts, n_features)

        Raises
        ------
        ValueError
            If no text holds a term.
        """
        if self.kind == "hashing":
            return self.transform(texts)
        counts = self._terms.fit_transform(texts)
        counts.sort_indices()
        return csr_matrix(self._weights.fit_transform(counts))

    def fit(self, texts: Iterable[str]) -> TextVectorizer:
        """Learn the vocabulary and its weights."""
        self.fit_transform(texts)
        return self

    def transform(self, texts: Iterable[str]) -> csr_matrix:
        """The features of texts, of shape (n_texts, n_features).

        Raises
        ------
        ValueError
            If the vocabulary is not known yet.
        """
        if not self.fitted:
            raise ValueError("the vectorizer has no vocabulary yet: fit it first")
        counts = self._terms.transform(texts)
        if self.kind == "tfidf":
            return csr_matrix(self._weights.transform(counts, copy=False))
        return csr_matrix(self._weights.fit_transform(counts))

    def _parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "kind": self.kind,
            "analyzer": self.analyzer,
            "ngram_range": list(self.ngram_range),
            "lowercase": self.lowercase,
            "sublinear_tf": self.sublinear_tf,
            "dtype": self.dtype.name,
        }
        if self.kind == "hashing":
            parameters["n_features"] = self._columns
        else:
            parameters["min_df"] = self.min_df
        return parameters

    def to_state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """All that has to be stored to have the same features again.

        Returns
        -------
        parameters : dict
            Strings, numbers and lists, fit for JSON.
        arrays : dict of ndarray
            For ``"tfidf"``: ``vocabulary`` (the terms by column, UTF-8, one behind the other, uint8),
            ``offsets`` (their bounds, int64, one more than there are terms) and ``idf`` (their weights). Else
            empty.

        Raises
        ------
        ValueError
            If the vocabulary is not known yet.
        """
        if not self.fitted:
            raise ValueError("the vectorizer has no vocabulary yet: fit it first")
        if self.kind == "hashing":
            return self._parameters(), {}
        columns = self._terms.vocabulary_
        terms = [term.encode("utf-8", "surrogatepass") for term in sorted(columns, key=columns.__getitem__)]
        offsets = np.zeros(len(terms) + 1, dtype=np.int64)
        np.cumsum([len(term) for term in terms], out=offsets[1:])
        arrays: dict[str, npt.NDArray[Any]] = {
            "vocabulary": np.frombuffer(b"".join(terms), dtype=np.uint8),
            "offsets": offsets,
            "idf": np.array(self._weights.idf_),
        }
        return self._parameters(), arrays

    @classmethod
    def from_state(cls, parameters: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> TextVectorizer:
        """The vectoriser whose `to_state` this is: its features are the same to the last bit.

        Raises
        ------
        ValueError
            If the state is damaged.
        """
        try:
            vectorizer = cls(**parameters)
        except TypeError as error:
            raise ValueError(f"the parameters of the vectorizer are damaged ({error})") from error
        if vectorizer.kind == "hashing":
            return vectorizer
        missing = {"vocabulary", "offsets", "idf"} - set(arrays)
        if missing:
            raise ValueError(f"the state of the vectorizer lacks {', '.join(sorted(missing))}")
        buffer, offsets, idf = arrays["vocabulary"], arrays["offsets"], arrays["idf"]
        if (
            buffer.dtype != np.uint8
            or offsets.dtype.kind not in "iu"
            or idf.dtype.kind != "f"
            or (buffer.ndim, offsets.ndim, idf.ndim) != (1, 1, 1)
            or offsets.size != idf.size + 1
            or idf.size == 0
            or offsets[0] != 0
            or offsets[-1] != buffer.size
            or np.any(offsets[1:] < offsets[:-1])
            or not np.isfinite(idf).all()
        ):
            raise ValueError("the vocabulary of the vectorizer is damaged: its arrays do not fit together")
        raw = buffer.tobytes()
        bounds = offsets.tolist()
        terms = [raw[i:j].decode("utf-8", "surrogatepass") for i, j in zip(bounds, bounds[1:])]
        vocabulary = {term: column for column, term in enumerate(terms)}
        if len(vocabulary) != len(terms):
            raise ValueError("the vocabulary of the vectorizer is damaged: it holds a term twice")
        vectorizer._terms.vocabulary_ = vocabulary
        vectorizer._weights.idf_ = np.array(idf)
        return vectorizer


def _is_integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check(name: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise ValueError(f"{name} is {value!r}; expected {expected}")
