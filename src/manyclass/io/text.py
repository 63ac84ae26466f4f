"""Texts to features: scikit-learn's vectorizers, with a state of plain parameters and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted

from ._packed import packed, unpacked

__all__ = ["TextVectorizer"]

#: Words of two characters or more. Given to scikit-learn by name: a stored model must not follow its
#: defaults.
_WORD = r"(?u)\b\w\w+\b"


class TextVectorizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
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
        """Raise a ValueError if a parameter is not what is expected."""
        self._build()

    def _build(self) -> None:
        """scikit-learn's parts, from checked parameters.

        What its TfidfVectorizer does in one, done in two steps: features are brought into order in between, so that the
        very same numbers come out of `fit_transform` and of `transform`.
        """
        self._validate_params()
        if isinstance(self.min_df, bool):
            raise ValueError(f"min_df must be a number of texts or a part of them, got {self.min_df!r}")
        given: Any = self.ngram_range
        ngrams = tuple(given) if isinstance(given, (tuple, list)) else ()
        whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in ngrams)
        if not (len(ngrams) == 2 and whole and 1 <= ngrams[0] <= ngrams[1]):
            raise ValueError(f"ngram_range must be two integers (smallest, largest) from 1 on, got {given!r}")
        if np.dtype(self.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype!r}")
        # Imported here, because it takes longer than all the rest, and readers of other formats do without.
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
            # Signs that alternate would let terms cancel, and leave no count to take the logarithm of.
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
        """The number of columns; 0 before a vocabulary is known."""
        if self.kind == "hashing":
            return int(self.n_features)
        return len(self._terms.vocabulary_) if self.__sklearn_is_fitted__() else 0

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """The term of each column.

        Parameters
        ----------
        input_features : None
            Not used; there for scikit-learn's pipelines.

        Returns
        -------
        ndarray of str of shape (n_columns,)
            In the order of the columns.

        Raises
        ------
        ValueError
            Of kind "hashing", whose columns have no names.
        """
        if self.kind == "hashing":
            raise ValueError("hashed columns have no names: take kind='tfidf'")
        check_is_fitted(self)
        columns = self._terms.vocabulary_
        return np.array(sorted(columns, key=columns.__getitem__), dtype=object)

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> csr_matrix:
        """Learn the vocabulary and its weights, and return the features of the same texts.

        Parameters
        ----------
        texts : iterable of str
            Read once: they need not be in memory all at a time.
        y : None
            Not used; there for scikit-learn's pipelines.

        Returns
        -------
        csr_matrix of shape (n_texts, n_columns)
            float32 or float64, see ``dtype``.

        Raises
        ------
        ValueError
            If no text holds a term.
        """
        self._build()
        if self.kind == "hashing":
            return self.transform(texts)
        counts = self._terms.fit_transform(texts)
        counts.sort_indices()
        return csr_matrix(self._weights.fit_transform(counts))

    def fit(self, texts: Iterable[str], y: Any = None) -> TextVectorizer:
        """Learn the vocabulary and its weights.

        Parameters
        ----------
        texts : iterable of str
            Read once.
        y : None
            Not used; there for scikit-learn's pipelines.

        Returns
        -------
        TextVectorizer
            Itself.
        """
        self._build()
        if self.kind != "hashing":
            self.fit_transform(texts)
        return self

    def transform(self, texts: Iterable[str]) -> csr_matrix:
        """The features of texts.

        Parameters
        ----------
        texts : iterable of str
            Read once.

        Returns
        -------
        csr_matrix of shape (n_texts, n_columns)
            float32 or float64, see ``dtype``.

        Raises
        ------
        NotFittedError
            A ValueError: the vocabulary is not known yet.
        """
        check_is_fitted(self)
        if not hasattr(self, "_terms"):
            self._build()
        counts = self._terms.transform(texts)
        if self.kind == "tfidf":
            return csr_matrix(self._weights.transform(counts, copy=False))
        return csr_matrix(self._weights.fit_transform(counts))

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
        check_is_fitted(self)
        if self.kind == "hashing":
            return self._parameters(), {}
        text, offsets = packed(self.get_feature_names_out())
        return self._parameters(), {"vocabulary": text, "offsets": offsets, "idf": np.array(self._weights.idf_)}

    @classmethod
    def from_state(cls, parameters: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> TextVectorizer:
        """The vectorizer whose `to_state` this is: its features are the same to the last bit.

        Parameters
        ----------
        parameters : mapping
            What `to_state` gave first.
        arrays : mapping of ndarray
            What it gave second.

        Returns
        -------
        TextVectorizer
            Fitted.

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
            raise ValueError(f"the state of the vectorizer lacks {', '.join(sorted(missing))}")
        try:
            terms = unpacked(arrays["vocabulary"], arrays["offsets"])
        except ValueError as error:
            raise ValueError(f"the vocabulary of the vectorizer is damaged: {error}") from error
        idf = arrays["idf"]
        if idf.dtype.kind != "f" or idf.shape != (len(terms),) or not terms or not np.isfinite(idf).all():
            raise ValueError("the vocabulary of the vectorizer is damaged: its arrays do not fit together")
        vocabulary = {term: column for column, term in enumerate(terms)}
        if len(vocabulary) != len(terms):
            raise ValueError("the vocabulary of the vectorizer is damaged: it holds a term twice")
        vectorizer._terms.vocabulary_ = vocabulary
        vectorizer._weights.idf_ = np.array(idf)
        return vectorizer
