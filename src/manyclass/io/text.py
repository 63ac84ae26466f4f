"""Converts texts to features with scikit-learn's vectorizers; the fitted state is parameters and arrays."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyclass.runtime.threads import ranges

from ._packed import packed, unpacked

__all__ = ["TextVectorizer"]

#: Words of two characters or more: scikit-learn's default, fixed here so that stored models do not change with it.
_WORD = r"(?u)\b\w\w+\b"
#: Number of texts that are weighted at a time.
_PIECE = 1 << 16


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The texts, each of which must be one."""
    if isinstance(texts, str) or hasattr(texts, "columns"):
        got, remedy = ("one text", "[text]") if isinstance(texts, str) else ("a data frame", "one column of it")
        raise ValueError(f"texts must be an iterable of texts, got {got}: pass {remedy}")
    return map(_text, count(), texts)


def _text(number: int, text: Any) -> str:
    if not isinstance(text, (str, bytes)):
        raise ValueError(
            f"text {number} must be a string, got {text!r}: leave missing texts out, or replace them by ''"
        )
    return text  # type: ignore[return-value]  # bytes are decoded


class TextVectorizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Convert texts to sparse rows of Euclidean length 1 (or 0 for a text without a known term).

    Parameters
    ----------
    kind : {"tfidf", "hashing"}, default="tfidf"
        ``"tfidf"`` learns a vocabulary and multiplies counts by the inverse document frequency of each term;
        ``"hashing"`` learns nothing and counts terms in ``n_features`` columns assigned by a hash function.
    analyzer : {"word", "char", "char_wb"}, default="word"
        Whether terms are n-grams of words of two characters or more, of characters, or of characters within words.
    ngram_range : (int, int), default=(1, 1)
        Smallest and largest n of the n-grams, >= 1.
    lowercase : bool, default=True
        Whether texts are converted to lower case first.
    min_df : int or float, default=1
        For ``"tfidf"``: leave out terms that occur in fewer texts (int >= 1), or in a smaller fraction of the texts
        (float in [0, 1]).
    sublinear_tf : bool, default=True
        Whether a count c becomes 1 + log(c).
    n_features : int, default=2**20
        For ``"hashing"``: the number of columns, from 1 to 2**31 - 1.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type of the features.

    Raises
    ------
    ValueError
        If a parameter is invalid; raised by `fit`.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kind": [StrOptions({"tfidf", "hashing"})],
        "analyzer": [StrOptions({"word", "char", "char_wb"})],
        "lowercase": ["boolean"],
        "min_df": [Interval(Integral, 1, None, closed="left"), Interval(RealNotInt, 0, 1, closed="both")],
        "sublinear_tf": ["boolean"],
        "n_features": [Interval(Integral, 1, 2**31 - 1, closed="both")],
    }

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
        self.kind = kind
        self.analyzer = analyzer
        self.ngram_range = ngram_range
        self.lowercase = lowercase
        self.min_df = min_df
        self.sublinear_tf = sublinear_tf
        self.n_features = n_features
        self.dtype = dtype

    def check(self) -> None:
        """Raise a ValueError if a parameter is invalid."""
        self._build()

    def _build(self) -> None:
        """Check the parameters, and create scikit-learn's vectorizer and weighting.

        Not its TfidfVectorizer: indices are sorted between both steps, so that `fit_transform` and `transform` give
        exactly the same numbers.
        """
        self._validate_params()
        if isinstance(self.min_df, bool):
            raise ValueError(f"min_df must be a number of texts or a fraction of them, got {self.min_df!r}")
        given: Any = self.ngram_range
        ngrams = tuple(given) if isinstance(given, (tuple, list)) else ()
        whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in ngrams)
        if not (len(ngrams) == 2 and whole and 1 <= ngrams[0] <= ngrams[1]):
            raise ValueError(f"ngram_range must be two integers (smallest, largest) of at least 1, got {given!r}")
        if np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype!r}")
        # Imported here, because this import is slow and other formats do not need it.
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer

        common = {
            "analyzer": self.analyzer,
            "ngram_range": ngrams,
            "lowercase": bool(self.lowercase),
            "token_pattern": _WORD if self.analyzer == "word" else None,
            "dtype": np.dtype(self.dtype).type,
        }
        if self.kind == "tfidf":
            self._terms: Any = CountVectorizer(min_df=self.min_df, **common)
        else:
            # No alternating signs: terms could cancel, and a logarithm needs positive counts.
            self._terms = HashingVectorizer(n_features=self.n_features, alternate_sign=False, norm=None, **common)
        self._weights: Any = TfidfTransformer(use_idf=self.kind == "tfidf", sublinear_tf=bool(self.sublinear_tf))

    def __sklearn_is_fitted__(self) -> bool:
        return self.kind == "hashing" or hasattr(getattr(self, "_terms", None), "vocabulary_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    @property
    def n_columns(self) -> int:
        """The number of columns; 0 before a vocabulary is learned."""
        if self.kind == "hashing":
            return int(self.n_features)
        return len(self._terms.vocabulary_) if self.__sklearn_is_fitted__() else 0

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return the term of each column.

        Parameters
        ----------
        input_features : None
            Ignored; for compatibility with scikit-learn's pipelines.

        Returns
        -------
        ndarray of str of shape (n_columns,)
            Terms in the order of the columns.

        Raises
        ------
        ValueError
            For kind "hashing", whose columns have no names.
        """
        if self.kind == "hashing":
            raise ValueError("kind is 'hashing', whose columns have no names; expected kind='tfidf'")
        check_is_fitted(self)
        columns = self._terms.vocabulary_
        return np.array(sorted(columns, key=columns.__getitem__), dtype=object)

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> csr_matrix:
        """Learn the vocabulary and the inverse document frequencies, and return the features of the same texts.

        Parameters
        ----------
        texts : iterable of str
            Iterated once: they need not all be in memory.
        y : None
            Ignored; for compatibility with scikit-learn's pipelines.

        Returns
        -------
        csr_matrix of shape (n_texts, n_columns)
            The features, of type ``dtype``.

        Raises
        ------
        ValueError
            If no text has a term, or a text is missing or none.
        """
        self._build()
        if self.kind == "hashing":
            return self.transform(texts)
        counts = self._terms.fit_transform(_checked(texts))
        counts.sort_indices()
        self._weights.fit(counts)
        return self._weighted(counts)

    def fit(self, texts: Iterable[str], y: Any = None) -> TextVectorizer:
        """Learn the vocabulary and the inverse document frequencies.

        Parameters
        ----------
        texts : iterable of str
            Iterated once.
        y : None
            Ignored; for compatibility with scikit-learn's pipelines.

        Returns
        -------
        TextVectorizer
            The fitted vectorizer itself.
        """
        self._build()
        if self.kind != "hashing":
            self.fit_transform(texts)
        return self

    def transform(self, texts: Iterable[str]) -> csr_matrix:
        """Return the features of texts.

        Parameters
        ----------
        texts : iterable of str
            Iterated once.

        Returns
        -------
        csr_matrix of shape (n_texts, n_columns)
            The features, of type ``dtype``.

        Raises
        ------
        NotFittedError
            If the vectorizer is not fitted; a ValueError.
        ValueError
            If a text is missing or none.
        """
        check_is_fitted(self)
        if not hasattr(self, "_terms"):
            self._build()
        texts = _checked(texts)
        return self._weighted(self._counts(texts) if self.kind == "tfidf" else self._terms.transform(texts))

    def _counts(self, texts: Iterable[str]) -> csr_matrix:
        """How often each term of the vocabulary occurs in each text.

        CountVectorizer does the same, but for one text its checks take more time than its work.
        """
        analyze, column_of = self._terms.build_analyzer(), self._terms.vocabulary_.get
        indices, data, indptr = array("i"), array("i"), array("q", [0])
        for text in texts:
            found = Counter(map(column_of, analyze(text)))
            found.pop(None, None)
            columns = sorted(found)
            indices.extend(columns)
            data.extend(map(found.__getitem__, columns))
            indptr.append(len(indices))
        pointers = np.array(indptr, np.int64 if len(indices) > np.iinfo(np.int32).max else np.int32)
        counts = np.array(data, self.dtype)
        return csr_matrix(
            (counts, np.array(indices, pointers.dtype), pointers), shape=(len(pointers) - 1, self.n_columns)
        )

    def _weighted(self, counts: csr_matrix) -> csr_matrix:
        """Turn counts into features, in place: as TfidfTransformer to the last bit, without its checks."""
        values, n = counts.data, counts.shape[0]
        if self.sublinear_tf:
            np.log(values, out=values)
            values += 1.0
        if self.kind == "tfidf":
            values *= self._weights.idf_[counts.indices]
        for begin, end in ranges(n, _PIECE):  # so that temporary arrays stay small
            pointers = counts.indptr[begin : end + 1]
            part = values[pointers[0] : pointers[-1]]
            rows = np.repeat(np.arange(end - begin), np.diff(pointers))
            # Added one after the other in float64, as scikit-learn does.
            lengths = np.sqrt(np.bincount(rows, weights=part * part, minlength=end - begin))
            lengths[lengths == 0] = 1.0
            part /= lengths[rows]
        return counts

    def _parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "kind": self.kind,
            "analyzer": self.analyzer,
            "ngram_range": list(self.ngram_range),
            "lowercase": bool(self.lowercase),
            "sublinear_tf": bool(self.sublinear_tf),
            "dtype": np.dtype(self.dtype).name,
        }
        if self.kind == "hashing":
            parameters["n_features"] = self.n_features
        else:
            parameters["min_df"] = self.min_df
        return parameters

    def to_state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the fitted state, from which `from_state` creates a vectorizer with the same features.

        Returns
        -------
        parameters : dict
            Strings, numbers and lists, for JSON.
        arrays : dict of ndarray
            For ``"tfidf"``: ``vocabulary`` (the terms in the order of the columns, concatenated as UTF-8, uint8),
            ``offsets`` (int64, one more than there are terms) and ``idf`` (inverse document frequencies). Else empty.

        Raises
        ------
        NotFittedError
            If the vectorizer is not fitted; a ValueError.
        """
        check_is_fitted(self)
        if self.kind == "hashing":
            return self._parameters(), {}
        text, offsets = packed(self.get_feature_names_out())
        return self._parameters(), {"vocabulary": text, "offsets": offsets, "idf": np.array(self._weights.idf_)}

    @classmethod
    def from_state(cls, parameters: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> TextVectorizer:
        """Return the fitted vectorizer of a state; its features are exactly the same.

        Parameters
        ----------
        parameters : mapping
            The first result of `to_state`.
        arrays : mapping of ndarray
            The second result of `to_state`.

        Returns
        -------
        TextVectorizer
            The fitted vectorizer.

        Raises
        ------
        ValueError
            If the state is damaged.
        """
        try:
            vectorizer = cls(**parameters)
            vectorizer.set_params(ngram_range=tuple(vectorizer.ngram_range), dtype=np.dtype(vectorizer.dtype).type)
            vectorizer._build()
        except (TypeError, ValueError) as error:
            raise ValueError(f"the parameters of the vectorizer are damaged ({error})") from error
        if vectorizer.kind == "hashing":
            return vectorizer
        missing = {"vocabulary", "offsets", "idf"} - set(arrays)
        if missing:
            raise ValueError(
                f"the state of the vectorizer lacks {', '.join(sorted(missing))}: pass both results of to_state"
            )
        try:
            terms = unpacked(arrays["vocabulary"], arrays["offsets"])
        except ValueError as error:
            raise ValueError(f"the vocabulary of the vectorizer is damaged: {error}") from error
        idf = arrays["idf"]
        if idf.dtype.kind != "f" or idf.shape != (len(terms),) or not terms or not np.isfinite(idf).all():
            raise ValueError(
                "the vocabulary of the vectorizer is damaged: idf must have one finite number for each term"
            )
        vocabulary = {term: column for column, term in enumerate(terms)}
        if len(vocabulary) != len(terms):
            raise ValueError("the vocabulary of the vectorizer is damaged: a term occurs twice")
        vectorizer._terms.vocabulary_ = vocabulary
        vectorizer._weights.idf_ = np.array(idf)
        return vectorizer
