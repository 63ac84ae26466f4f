"""What every model offers: predictions from its scores, and a file. A model says how it scores, and what it holds."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from manyclass.models.file import ModelFileError, Stored, read_model, write_model
from manyclass.objective.links import LINKS, normalized_sigmoid, sigmoid

if TYPE_CHECKING:
    from manyclass.io.text import TextVectorizer

__all__ = ["Model", "positive", "restore"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

M = TypeVar("M", bound="Model")


class Model(ABC):
    """Predictions, rankings, probabilities and the file of a model with one score for each of its outputs."""

    #: The name of its kind in files.
    kind: ClassVar[str]
    #: What a score of a multilabel or binary model must exceed to speak for the class.
    threshold: float = 0.0

    task: str
    link: str
    classes: Array | None
    parameters: dict[str, Any]
    record: dict[str, Any]
    feature_names: Array | None
    vectorizer: tuple[dict[str, Any], dict[str, Array]] | None
    library_version: str

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features of the rows it takes."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of scores of a row."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights."""

    @abstractmethod
    def scores(self, X: Any, n_jobs: int | None = None) -> Array:
        """Scores of the rows, (n, n_outputs)."""

    @abstractmethod
    def _best(self, X: Any, k: int, n_jobs: int | None) -> tuple[Array, Array]:
        """Numbers and scores of the k best outputs of each row, best first; of equal ones the lower number first."""

    @abstractmethod
    def _positive(self, X: Any, n_jobs: int | None) -> sp.csr_matrix[Any]:
        """Where the scores exceed the threshold, an int8 indicator (n, n_outputs)."""

    @abstractmethod
    def sparsify(self: M, threshold: float = 0.0) -> M:
        """The same model with sparse weights, without those of magnitude ``threshold`` or less."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """The facts of the model, for people and for JSON."""

    @abstractmethod
    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the file keeps of it besides what all models have: what JSON can hold, and arrays by name."""

    @classmethod
    @abstractmethod
    def from_parts(cls: type[M], common: dict[str, Any], described: dict[str, Any], arrays: dict[str, Any]) -> M:
        """The model that `parts` took apart; ``common`` are the fields that all models have."""

    # --- texts ------------------------------------------------------------------------------------------------------

    @property
    def text_vectorizer(self) -> TextVectorizer | None:
        """What turns texts into the rows of this model, if it was fitted on texts."""
        if self.vectorizer is None:
            return None
        made = self.__dict__.get("_text_vectorizer")
        if made is None:
            from manyclass.io.text import TextVectorizer  # imports scikit-learn

            made = TextVectorizer.from_state(*self.vectorizer)
            object.__setattr__(self, "_text_vectorizer", made)
        return made

    def rows(self, X: Any) -> Any:
        """X as the model takes it: of a model of texts, strings become rows of features; all else passes.

        Parameters
        ----------
        X : list or array of str, or rows
            What is to be predicted.

        Returns
        -------
        rows
            CSR of shape (n, n_features) for texts; X itself otherwise.

        Raises
        ------
        ValueError
            If X holds texts and the model was not fitted on texts, or X is one text and no list of them.
        """
        if isinstance(X, str):
            raise ValueError("X is one text: pass a list of texts, [text]")
        if not _holds_texts(X):
            return X
        vectorizer = self.text_vectorizer
        if vectorizer is None:
            raise ValueError("X holds texts, and this model was not fitted on texts: pass rows of features")
        return vectorizer.transform(X)

    def names(self) -> Array | None:
        """The names of the features: those of the fit, or the terms of texts.

        Returns
        -------
        ndarray of str of shape (n_features,), or None
            None where the features have no names.
        """
        if self.feature_names is not None:
            return self.feature_names
        vectorizer = self.text_vectorizer
        return None if vectorizer is None or vectorizer.kind == "hashing" else vectorizer.get_feature_names_out()

    # --- prediction -------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any, n_jobs: int | None = None) -> Array:
        """Scores as scikit-learn wants them.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts for a model of texts.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            For a binary model (n,), positive for ``classes[1]``.

        Raises
        ------
        ValueError
            See `scores`.
        """
        scores = self.scores(self.rows(X), n_jobs)
        return scores[:, 0] if self.task == "binary" else scores

    def predict(self, X: Any, n_jobs: int | None = None, *, dense: bool = False) -> Any:
        """The best class of each row; what `topk` ranks first.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts for a model of texts.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.
        dense : bool, default=False
            Give the indicator of a multilabel model as an array.

        Returns
        -------
        ndarray of shape (n,)
            Labels; of a binary model ``classes[1]`` where the score is positive; for regression the scores, of shape
            (n,) if there is one output and (n, n_outputs) otherwise.
        scipy.sparse.csr_matrix or ndarray of shape (n, n_classes)
            For a multilabel model: int8, 1 where the score is positive.

        Raises
        ------
        ValueError
            See `scores`.
        """
        X = self.rows(X)
        if self.task == "multilabel":
            indicator = self._positive(X, n_jobs)
            return indicator.toarray() if dense else indicator
        if self.classes is None:
            scores = self.scores(X, n_jobs)
            return scores[:, 0] if self.n_outputs == 1 else scores
        return self.topk(X, 1, n_jobs)[0][:, 0]

    def topk(self, X: Any, k: int, n_jobs: int | None = None) -> tuple[Array, Array]:
        """The k best classes of each row and their scores, best first; of equal ones the lower class number first.

        Never holds an n x n_classes array: one tile of scores for each thread.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts for a model of texts.
        k : int
            1 to the number of classes.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        labels : ndarray of shape (n, k)
            Classes.
        scores : ndarray of shape (n, k)
            Of a binary model with score s: s for ``classes[1]`` and -s for ``classes[0]``, its margins for and against.

        Raises
        ------
        ValueError
            If k is out of range or the model has no classes; see `scores`.
        """
        if self.classes is None:
            raise ValueError("a regression model has no classes to rank: use predict or scores")
        if positive("k", k) > len(self.classes):
            raise ValueError(f"k must be at most {len(self.classes)}, the number of classes of this model, got {k}")
        X = self.rows(X)
        if self.task != "binary":
            columns, best = self._best(X, k, n_jobs)
            return self.classes[columns], best
        score = self._best(X, 1, n_jobs)[1]
        first = (score > 0).astype(np.intp)
        margin = np.abs(score)
        return self.classes[np.hstack([first, 1 - first])[:, :k]], np.hstack([margin, -margin])[:, :k]

    def probabilities(self, X: Any, n_jobs: int | None = None) -> Array:
        """Probabilities of the classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts for a model of texts.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Rows sum to one, except those of a multilabel model, in which every class has a probability of its own.
            One-vs-rest sigmoids of a multiclass model are divided by their sum.

        Raises
        ------
        ValueError
            If the link is identity; see `scores`.
        """
        if self.link == "identity":
            raise ValueError(
                "this model has no probabilities (its link is 'identity'): fit a loss that has them, such as "
                "multinomial or log_loss, or use scores"
            )
        scores = self.scores(self.rows(X), n_jobs)
        if self.task == "binary":
            # sigmoid(-s) rather than 1 - sigmoid(s): a small probability keeps its digits.
            return sigmoid(np.hstack([-scores, scores]))
        link = normalized_sigmoid if self.link == "sigmoid" and self.task == "multiclass" else LINKS[self.link]
        return np.asarray(link(scores, out=scores))

    def topk_probabilities(self, X: Any, k: int, n_jobs: int | None = None) -> tuple[Array, Array]:
        """The k best classes of each row and their probabilities, in the order of `topk`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts for a model of texts.
        k : int
            1 to the number of classes.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        labels : ndarray of shape (n, k)
            Classes.
        probabilities : ndarray of shape (n, k)
            Their probabilities.

        Raises
        ------
        ValueError
            See `topk` and `probabilities`.
        """
        X = self.rows(X)
        labels, _ = self.topk(X, k, n_jobs)
        classes = np.asarray(self.classes)
        order = np.argsort(classes, kind="stable")
        columns = order[np.searchsorted(classes[order], labels)]
        return labels, np.take_along_axis(self.probabilities(X, n_jobs), columns, axis=1)

    # --- file -------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file (see `manyclass.models.file`), whole or not at all. No weight is copied.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        ValueError
            If labels or arrays of the vectorizer are neither numbers nor strings.
        OSError
            If the file cannot be written.
        """
        write_model(path, self)

    @classmethod
    def load(cls: type[M], path: str | os.PathLike[str], mmap: bool = True) -> M:
        """Read a model of this kind; `manyclass.load` reads those of every kind.

        Parameters
        ----------
        path : path
            What `save` wrote.
        mmap : bool, default=True
            Map the weights into memory, read-only: opening takes no time, and processes share the pages. The file may
            be replaced (as `save` does) while the model is in use, but not changed in place.

        Returns
        -------
        Model
            Of this class.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ModelFileError
            A ValueError: it is no model file, is damaged or cut short, has a newer format version, or holds a model of
            another kind.
        """
        return restore(path, read_model(path, mmap), cls)


def restore(path: str | os.PathLike[str], stored: Stored, cls: type[M]) -> M:
    if stored.kind != cls.kind:
        raise ModelFileError(path, f"it holds a model of kind {stored.kind!r}: read it with manyclass.load")
    try:
        return cls.from_parts(stored.common, stored.described, stored.arrays)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelFileError(path, f"the model file is damaged ({error}): save the model again") from error


def _holds_texts(X: Any) -> bool:
    """Whether X is a list or a vector of strings."""
    if hasattr(X, "to_numpy") and getattr(X, "ndim", 2) == 1:
        X = X.to_numpy()
    if isinstance(X, np.ndarray):
        return X.ndim == 1 and X.size > 0 and X.dtype.kind in "UO" and isinstance(X[0], str)
    return isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], str)


def positive(name: str, value: Any) -> int:
    """``value``, if it is an integer of at least 1."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    return number
