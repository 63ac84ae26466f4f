"""`Model`, the base class of models: predictions, rankings and probabilities from scores; saving and loading."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from manyclass.models.candidates import Candidates, read_candidates, sorter
from manyclass.models.elsewhere import of_any_library
from manyclass.models.file import ModelFileError, Stored, read_model, write_model
from manyclass.models.normalizer import Normalizer
from manyclass.models.parts import (
    NO_PROBABILITIES,
    check_feature_names,
    check_meaning,
    frame_rows,
    kind_of_rows,
    plain,
    plain_vectorizer,
    positive,
    require_rows,
    type_name,
)
from manyclass.objective.links import LINKS, normalized_sigmoid, sigmoid

if TYPE_CHECKING:
    from manyclass.io.encoder import TableEncoder
    from manyclass.io.text import TextVectorizer

__all__ = ["Model", "restore"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

M = TypeVar("M", bound="Model")


class Model(ABC):
    """Base class of models that compute one score for each output.

    See Also
    --------
    LinearModel : Scores ``X @ weights + intercept``.
    StagedModel : Sums of linear models on generated features.
    """

    #: Name of the class in model files.
    kind: ClassVar[str]
    #: Decision threshold of a multilabel or binary model: a class is predicted if its score is larger.
    threshold: float = 0.0

    task: str
    link: str
    temperature: float
    classes: Array | None
    parameters: dict[str, Any]
    record: dict[str, Any]
    feature_names: Array | None
    vectorizer: tuple[dict[str, Any], dict[str, Array]] | None
    library_version: str

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of scores per row."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights."""

    @property
    def gives_probabilities(self) -> bool:
        """Whether the model has probabilities: by a link of its scores, or scores that are probabilities."""
        return self.link != "identity"

    @abstractmethod
    def scores(self, X: Any, n_jobs: int | None = None) -> Array:
        """Scores of the rows, (n, n_outputs)."""

    @abstractmethod
    def _best(
        self,
        X: Any,
        k: int,
        n_jobs: int | None,
        candidates: Candidates | None = None,
        normalizer: Normalizer | None = None,
    ) -> tuple[Array, Array]:
        """Indices and scores of the k best outputs of each row, best first; of equal scores the lower index first.

        Among the candidates, if there are any. The scores of all outputs are added to ``normalizer``, tile by tile.
        """

    @abstractmethod
    def _positive(self, X: Any, n_jobs: int | None) -> sp.csr_matrix[Any]:
        """The outputs with scores above the threshold, as a sparse int8 indicator matrix (n, n_outputs)."""

    @abstractmethod
    def sparsify(self: M, threshold: float = 0.0) -> M:
        """The same model with sparse weights, without those of magnitude ``threshold`` or less."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """A description of the model as a dict for JSON."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of the weights in bytes."""

    @abstractmethod
    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The content of the file besides the fields of all models: a dict for JSON, and a dict of arrays."""

    @classmethod
    @abstractmethod
    def from_parts(cls: type[M], common: dict[str, Any], described: dict[str, Any], arrays: dict[str, Any]) -> M:
        """The model with these `parts`; ``common`` are the fields of all models."""

    # --- the fields of all models -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Check these fields, and convert those that files contain as JSON; dataclasses call this when created."""
        check_meaning(self.task, self.link, self.classes, self.n_outputs, self.temperature)
        check_feature_names(self.feature_names, self.n_features)
        if not isinstance(self.library_version, str):
            raise ValueError(f"library_version must be a string, got {self.library_version!r}")
        settle = object.__setattr__
        settle(self, "parameters", plain("parameters", self.parameters))
        settle(self, "record", plain("record", self.record))
        if self.vectorizer is not None:
            settle(self, "vectorizer", plain_vectorizer(self.vectorizer))

    def _described(self, layout: str, n_weights: int, n_nonzero: int, intercept: bool, **own: Any) -> dict[str, Any]:
        """The summary, with the facts of ``own`` after the layout."""
        classes = self.classes
        return {
            "task": self.task,
            "link": self.link,
            "temperature": self.temperature,
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "n_classes": None if classes is None else len(classes),
            "class_type": None if classes is None else type_name(classes),
            "dtype": self.dtype.name,
            "layout": layout,
            **own,
            "n_nonzero": n_nonzero,
            "density": n_nonzero / n_weights,
            "nbytes": self.nbytes,
            "has_intercept": intercept,
            "has_feature_names": self.feature_names is not None,
            "vectorizer": None if self.vectorizer is None else self.vectorizer[0],
            "library_version": self.library_version,
            "parameters": self.parameters,
            "record": self.record,
        }

    # --- texts and tables -------------------------------------------------------------------------------------------

    @property
    def text_vectorizer(self) -> TextVectorizer | TableEncoder | None:
        """The vectorizer that turns texts, or the encoder that turns tables, into rows; None for other models."""
        if self.vectorizer is None:
            return None
        made = self.__dict__.get("_text_vectorizer")
        if made is None:
            from manyclass.io.encoder import restore_vectorizer  # imports scikit-learn

            made = restore_vectorizer(*self.vectorizer)
            object.__setattr__(self, "_text_vectorizer", made)
        return made

    def rows(self, X: Any) -> Any:
        """Turn texts or a table into rows of features, as in the fit; other input is returned unchanged.

        Parameters
        ----------
        X : list or array of str, data frame, dict of columns, list of dicts, or rows
            Texts, a table for a model of tables, or rows of features.

        Returns
        -------
        rows
            A CSR matrix or an array of shape (n, n_features) for texts, tables and data frames; X itself otherwise.

        Raises
        ------
        ValueError
            If X contains texts or dicts and the model was not fitted on such, or X is a single string or dict; if a
            data frame has other columns than that of the fit, or columns that are not numbers; if the model is one of
            sequences.
        """
        require_rows(self.task)
        if isinstance(X, str):
            raise ValueError("X must be a list of texts, got one text: pass [text]")
        given = kind_of_rows(X)
        vectorizer: Any = self.text_vectorizer if given else None
        if vectorizer is not None and (given == "texts" or hasattr(vectorizer, "columns")):
            return vectorizer.transform(X)
        if given in ("texts", "dicts"):
            raise ValueError(f"X must be rows of features, got {given}, and this model was not fitted on {given}")
        return frame_rows(X, self.feature_names) if given == "frame" and hasattr(X, "to_numpy") else X

    def names(self) -> Array | None:
        """The names of the features: those of the fit, the terms of texts, or those of a `TableEncoder`.

        Returns
        -------
        ndarray of str of shape (n_features,), or None
            None where the features have no names.
        """
        if self.feature_names is not None:
            return self.feature_names
        vectorizer = self.text_vectorizer
        hashed = getattr(vectorizer, "kind", "") == "hashing"
        return None if vectorizer is None or hashed else vectorizer.get_feature_names_out()

    # --- prediction -------------------------------------------------------------------------------------------------

    @of_any_library
    def decision_function(self, X: Any, n_jobs: int | None = None) -> Array:
        """Scores, in the shape of scikit-learn's ``decision_function``.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts or a table for a model of such, see `rows`.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            Shape (n,) for a binary model: the score of ``classes[1]``.

        Raises
        ------
        ValueError
            See `scores`.
        """
        scores = self.scores(self.rows(X), n_jobs)
        return scores[:, 0] if self.task == "binary" else scores

    @of_any_library
    def predict(self, X: Any, n_jobs: int | None = None, *, dense: bool = False) -> Any:
        """The class with the largest score of each row, the first class of `topk`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts or a table for a model of such, see `rows`.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.
        dense : bool, default=False
            Whether to return the indicator matrix of a multilabel model as an array.

        Returns
        -------
        ndarray of shape (n,)
            Labels; for a binary model ``classes[1]`` where the score is positive; for regression the scores, of shape
            (n,) if there is one output and (n, n_outputs) otherwise.
        scipy.sparse.csr_matrix or ndarray of shape (n, n_classes)
            For a multilabel model: int8, 1 where the score is above the decision threshold.

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

    @of_any_library
    def topk(self, X: Any, k: int, n_jobs: int | None = None, *, candidates: Any = None) -> tuple[Array, Array]:
        """The k classes with the largest scores of each row, best first; of equal scores the lower index first.

        Memory does not grow with n x n_classes: each thread computes one tile of scores at a time.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts or a table for a model of such, see `rows`.
        k : int
            From 1 to the number of classes, or of the candidates of a row.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.
        candidates : array of shape (m,), array of shape (n, m), list of n lists, or sparse matrix, optional
            Labels among which each row is ranked: the same for all rows; for each row; or those with a non-zero in an
            indicator of shape (n, n_classes). Only their scores are computed; they agree with those of all classes up
            to rounding. By default all classes.

        Returns
        -------
        labels : ndarray of shape (n, k)
            Classes.
        scores : ndarray of shape (n, k)
            Their scores. For a binary model with score s: s for ``classes[1]`` and -s for ``classes[0]``.

        Raises
        ------
        ValueError
            If k is out of range, the model has no classes, or a candidate is none of them; see `scores`.

        Examples
        --------
        >>> import numpy as np
        >>> from manyclass import LinearModel
        >>> model = LinearModel(np.eye(3), np.zeros(3), np.array(["a", "b", "c"]), "multiclass")
        >>> model.topk(np.array([[3.0, 1.0, 2.0]]), 2, candidates=["b", "c"])[0].tolist()
        [['c', 'b']]
        """
        if self.classes is None:
            raise ValueError("a regression model has no classes to rank: use predict or scores")
        if positive("k", k) > len(self.classes):
            raise ValueError(f"k must be at most {len(self.classes)}, the number of classes of this model, got {k}")
        X = self.rows(X)
        chosen = None
        if candidates is not None:
            chosen = read_candidates(candidates, self.classes, sorter(self), np.shape(X)[0], k)
        if self.task != "binary":
            columns, best = self._best(X, k, n_jobs, chosen)
            return self.classes[columns], best
        score = self._best(X, 1, n_jobs)[1]
        first = (score > 0).astype(np.intp)
        margin = np.abs(score)
        labels, scores = self.classes[np.hstack([first, 1 - first])], np.hstack([margin, -margin])
        if chosen is not None and k == 1:
            # The better class where it is a candidate, else the other one.
            out = ~np.take_along_axis(np.broadcast_to(chosen.mask(0, len(first), 2), (len(first), 2)), first, 1)
            return np.where(out, labels[:, 1:], labels[:, :1]), np.where(out, scores[:, 1:], scores[:, :1])
        return labels[:, :k], scores[:, :k]

    @of_any_library
    def probabilities(self, X: Any, n_jobs: int | None = None) -> Array:
        """Probabilities of the classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts or a table for a model of such, see `rows`.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Rows sum to one, except for a multilabel model, whose labels have independent probabilities. One-vs-rest
            sigmoids of a multiclass model are divided by their sum.

        Raises
        ------
        ValueError
            If the link is identity; see `scores`.
        """
        if not self.gives_probabilities:
            raise ValueError(NO_PROBABILITIES)
        scores = self.scores(self.rows(X), n_jobs)
        if self.temperature != 1:
            scores /= self.temperature
        if self.task == "binary":
            # sigmoid(-s) rather than 1 - sigmoid(s), which cancels for small probabilities.
            return sigmoid(np.hstack([-scores, scores]))
        link = normalized_sigmoid if self.link == "sigmoid" and self.task == "multiclass" else LINKS[self.link]
        return np.asarray(link(scores, out=scores))

    @of_any_library
    def topk_probabilities(self, X: Any, k: int, n_jobs: int | None = None) -> tuple[Array, Array]:
        """The k best classes of each row and their probabilities, in the order of `topk`.

        Memory does not grow with n x n_classes.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts or a table for a model of such, see `rows`.
        k : int
            From 1 to the number of classes.
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
        if not self.gives_probabilities:
            raise ValueError(NO_PROBABILITIES)
        X = self.rows(X)
        if self.task != "multiclass" or self.classes is None:
            labels, scores = self.topk(X, k, n_jobs)
            return labels, sigmoid(scores / self.temperature if self.temperature != 1 else scores)
        if positive("k", k) > len(self.classes):
            raise ValueError(f"k must be at most {len(self.classes)}, the number of classes of this model, got {k}")
        normalizer = Normalizer(int(X.shape[0]), self.link, self.temperature)
        columns, scores = self._best(X, k, n_jobs, normalizer=normalizer)
        return self.classes[columns], normalizer.probabilities(scores)

    def calibrate(
        self: M,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        n_jobs: int | None = None,
        *,
        bias: bool = False,
        cv: None = None,
    ) -> M:
        """The same model with probabilities that fit the given rows: a link of scores / T.

        The link is softmax or the normalized sigmoid for one class per row, else the sigmoid. It and the temperature
        T > 0 minimize the log loss. The order of the classes does not change. Rows of the fit would give too confident
        probabilities: pass others.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows that were not used in the fit; some hundreds are enough.
        y : array of shape (n,), or indicator of shape (n, n_classes) for a multilabel model
            Their labels.
        sample_weight : array of shape (n,), optional
            Weights of the rows, >= 0.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.
        bias : bool, default=False
            Whether the intercept of each class is found as well, with T, so that the log loss plus half the squares of
            the changes over T is smallest: for classes that are more or less frequent than among the rows of the fit.
            Predictions change. For a linear model in one file.
        cv : None
            For estimators, which can be fitted again: see their ``calibrate``.

        Returns
        -------
        Model
            A new model with another ``link`` and ``temperature``, and with ``bias`` another intercept; this one is not
            changed.

        Raises
        ------
        ValueError
            If it is a regression model, y has labels that the model does not know, ``cv`` is given, or ``bias`` is
            asked of a model that is not linear or in blocks.

        References
        ----------
        Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.
        """
        if cv is not None:
            raise ValueError(
                f"cv={cv!r} fits models to folds, and this model has no estimator to fit: call calibrate(X, y, cv=...) "
                "of the fitted estimator, or calibrate this model on held-out rows without cv"
            )
        return self._calibrated_by([(self, X)], y, sample_weight, n_jobs, bias=bias)

    def _calibrated_by(
        self: M,
        sources: Iterable[tuple[Model, Any]],
        y: Any,
        sample_weight: Any = None,
        n_jobs: int | None = None,
        *,
        bias: bool = False,
    ) -> M:
        """As `calibrate`, by the scores of other models with the same classes: pairs of a model and of its rows."""
        from manyclass.models.temperature import Held  # imports this module

        if bias:
            self._shifted(np.zeros(self.n_outputs))  # a model that has none refuses before any work
        held = Held(self, sources, y, sample_weight, n_jobs)
        link, temperature = held.link()
        changed: Any = {"link": link, "temperature": temperature}
        if bias:
            changed["temperature"], shifts = held.shifts(link, temperature)
            changed["intercept"] = self._shifted(shifts)
        found: M = replace(self, **changed)  # type: ignore[type-var]
        return found

    def _shifted(self, shifts: Array) -> Array:
        """The intercept plus ``shifts``."""
        raise ValueError(f"bias=True changes the intercept of a LinearModel, and this is a {type(self).__name__}")

    # --- file -------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # Without the copy of the weights on a device.
        return {name: value for name, value in self.__dict__.items() if name != "_placed"}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, atomically and without a copy of the weights.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        ValueError
            If the labels or the vectorizer's arrays are neither numbers nor strings.
        OSError
            If the file cannot be written.
        """
        write_model(path, self)

    @classmethod
    def load(cls: type[M], path: str | os.PathLike[str], mmap: bool = True) -> M:
        """Read a model of this class; `manyclass.load` reads models of every class.

        Parameters
        ----------
        path : path
            A file written by `save`.
        mmap : bool, default=True
            Whether to memory-map the weights, read-only: the file is opened at once, and processes share the pages. The
            file may be replaced (as `save` does) while the model is in use, but not changed in place.

        Returns
        -------
        Model
            An instance of this class.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ModelFileError
            A ValueError: the file is not a model file, is damaged or truncated, has a newer format version, or contains
            a model of another class.
        """
        return restore(path, read_model(path, mmap), cls)


def restore(path: str | os.PathLike[str], stored: Stored, cls: type[M]) -> M:
    if stored.kind != cls.kind:
        raise ModelFileError(path, f"it contains a model of kind {stored.kind!r}: read it with manyclass.load")
    try:
        return cls.from_parts(stored.common, stored.described, stored.arrays)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelFileError(path, f"the model file is damaged ({error}): save the model again") from error
