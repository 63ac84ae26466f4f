"""`LinearModel`, the result of a fit: weights, intercept and classes.

It works without its estimator: it scores rows, ranks classes, gives probabilities, and is saved to and loaded from one
file (memory-mapped).
"""

from __future__ import annotations

import numbers
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass._version import __version__
from manyclass.kernels.mixed import MixedWeights, make_mixed
from manyclass.kernels.scoring import Scorer
from manyclass.models.candidates import Candidates
from manyclass.models.elsewhere import of_any_library
from manyclass.models.file import ModelFileError
from manyclass.models.indexed import IndexedModel
from manyclass.models.normalizer import Normalizer
from manyclass.models.parts import check_weights, positive, require_rows, to_csr, type_name
from manyclass.runtime.threads import resolve_n_jobs

if TYPE_CHECKING:
    from manyclass.models.explain import Explanation

__all__ = ["LinearModel", "ModelFileError"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: From so many classes on, and once so many rows have been asked for, frequent features get dense rows of 8-bit
#: weights: they are added by vectorized loops, and take at most a quarter of the memory of the sparse weights.
_MANY, _ASKED = 4096, 64


@dataclass(frozen=True, eq=False)
class LinearModel(IndexedModel):
    """A linear model with scores ``X @ weights + intercept``.

    Parameters
    ----------
    weights : ndarray or scipy.sparse CSR matrix of shape (n_features, n_outputs)
        float32 or float64; an array must be in C order (the weights of a feature contiguous), and may be a read-only
        memory map. Not copied.
    intercept : ndarray of shape (n_outputs,)
        Intercepts, of the dtype of the weights.
    classes : ndarray of shape (n_classes,), or None
        Labels: one per column, two for the one column of a binary model, None for regression.
    task : {"multiclass", "binary", "multilabel", "regression", "sequence"}
        A binary model predicts ``classes[1]`` where its score is positive; a multilabel model predicts each class whose
        score is positive. A sequence model has the weights of a `LinearChainCRF` and no predictions of its own.
    link : {"identity", "softmax", "sigmoid"}, default="identity"
        The function from scores to probabilities; a model with identity has none. softmax is for multiclass only.
    parameters : dict, optional
        Parameters of the fit, as JSON.
    record : dict, optional
        Training record (history, properties of the data), as JSON.
    feature_names : ndarray of str of shape (n_features,), optional
        Names of the columns of X.
    vectorizer : tuple of dict and dict of ndarray, optional
        The state of the text vectorizer that makes the features: a dict for JSON, and arrays by name.
    library_version : str, optional
        Version of the library that fitted the model; the current one by default.
    temperature : float, default=1.0
        The scores are divided by it before the link, see `calibrate`.

    Raises
    ------
    ValueError
        If an argument is invalid or inconsistent with the others.

    Examples
    --------
    >>> import numpy as np
    >>> model = LinearModel(
    ...     weights=np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]]),
    ...     intercept=np.zeros(3),
    ...     classes=np.array(["ham", "spam", "unsure"]),
    ...     task="multiclass",
    ...     link="softmax",
    ... )
    >>> X = np.array([[1.0, 1.0], [-3.0, 1.0]])
    >>> model.predict(X)
    array(['spam', 'unsure'], dtype='<U6')
    >>> labels, scores = model.topk(X, k=2)
    >>> labels.tolist(), scores.tolist()
    ([['spam', 'ham'], ['unsure', 'spam']], [[2.0, 1.0], [3.0, 2.0]])
    """

    weights: Array | sp.csr_matrix[Any]
    intercept: Array
    classes: Array | None
    task: str
    link: str = "identity"
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    record: dict[str, Any] = field(default_factory=dict, repr=False)
    feature_names: Array | None = field(default=None, repr=False)
    vectorizer: tuple[dict[str, Any], dict[str, Array]] | None = field(default=None, repr=False)
    library_version: str = __version__
    temperature: float = 1.0
    kind = "linear"

    def __post_init__(self) -> None:
        check_weights(self.weights, self.intercept)
        self.check()
        # For a strided array, such as a column of a solver's array, kernels would be compiled separately.
        object.__setattr__(self, "intercept", np.ascontiguousarray(self.intercept))

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of features, rows of the weights."""
        return int(self.weights.shape[0])

    @property
    def n_outputs(self) -> int:
        """Number of scores per row, columns of the weights."""
        return int(self.weights.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights and the intercept."""
        return np.dtype(self.weights.dtype)

    @property
    def is_sparse(self) -> bool:
        """Whether the weights are stored sparsely."""
        return bool(sp.issparse(self.weights))

    @property
    def nbytes(self) -> int:
        """Size of weights and intercept in bytes."""
        weights: Any = self.weights
        parts = (weights.data, weights.indices, weights.indptr) if self.is_sparse else (weights,)
        return sum(int(part.nbytes) for part in (*parts, self.intercept))

    @property
    def n_nonzero(self) -> int:
        """Number of non-zero weights. Reads all weights."""
        return int(np.count_nonzero(self.weights.data if self.is_sparse else self.weights))

    def summary(self) -> dict[str, Any]:
        """A description of the model as a dict for JSON. Reads all weights.

        Returns
        -------
        dict
            Task, shape, number of classes, bytes, number of non-zero weights and more.

        Examples
        --------
        >>> import numpy as np
        >>> model = LinearModel(np.eye(2), np.zeros(2), classes=None, task="regression")
        >>> model.summary()["n_nonzero"], model.summary()["layout"]
        (2, 'dense')
        """
        layout, size = "sparse" if self.is_sparse else "dense", self.n_features * self.n_outputs
        return self._described(layout, size, self.n_nonzero, bool(np.any(self.intercept)))

    def top_features(self, label: Any, k: int = 10) -> tuple[Array, Array]:
        """The features with the largest weights for a class.

        Parameters
        ----------
        label : label
            A class; for regression the index of an output, from 0.
        k : int, default=10
            Number of features, >= 1; all of them if the model has fewer.

        Returns
        -------
        features : ndarray of shape (min(k, n_features),)
            Names of the features, or their indices if the model has no names.
        weights : ndarray of the same shape
            Their weights, largest first; for ``classes[0]`` of a binary model, the negated weights.

        Raises
        ------
        ValueError
            If the model has no such class, or k is not a positive integer.
        """
        k = positive("k", k)
        column, sign = self._column_of(label)
        stored: Any = self.weights
        weights = sign * (stored[:, [column]].toarray()[:, 0] if self.is_sparse else np.asarray(stored[:, column]))
        best = np.argsort(-weights, kind="stable")[:k]
        names = self.names()
        return best if names is None else names[best], weights[best]

    def explain(self, X: Any, top: int = 10, labels: Any = None, n_jobs: int | None = None) -> list[Explanation]:
        """Why each row gets its class: the features that contribute most to its lead over the best other class.

        A contribution is the value of a feature times the difference of its weights. Nothing is densified.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, n_features), or list of str
            Rows with the features of the fit, in their order; texts for a model of texts.
        top : int, default=10
            Number of features per row, >= 1.
        labels : sequence of n classes, optional
            The classes to explain; None: the predicted ones. The other class is the best one besides.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        list of Explanation
            For each row class, rival, features and contributions.

        Raises
        ------
        ValueError
            If a label is not a class of the model; see `scores`.

        Examples
        --------
        >>> import numpy as np
        >>> weights = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]])
        >>> model = LinearModel(weights, np.zeros(3), np.array(["ham", "spam", "unsure"]), "multiclass")
        >>> print(model.explain(np.array([[1.0, 3.0]]), top=2)[0])
        spam against ham: 5 = 1 +6, 0 -1, rest +0
        """
        from manyclass.models.explain import explain  # imports this module

        found: list[Explanation] = explain(self, X, top, labels, n_jobs)
        return found

    def _column_of(self, label: Any) -> tuple[int, int]:
        """The column of a class, and the sign of its weights there (-1 for ``classes[0]`` of a binary model)."""
        if self.classes is None:
            column = label if isinstance(label, int | np.integer) else -1
            if not 0 <= column < self.n_outputs:
                raise ValueError(f"label must be the index of an output, 0 to {self.n_outputs - 1}, got {label!r}")
            return int(column), 1
        textual = self.classes.dtype.kind == "U"
        found = np.flatnonzero(self.classes == label) if isinstance(label, str) or not textual else np.empty(0)
        if not len(found):
            raise ValueError(
                f"label {label!r} is not a class of this model: it has {len(self.classes)} of type "
                f"{type_name(self.classes)}, the first is {self.classes[:1].tolist()[0]!r}"
            )
        if self.task == "binary":
            return 0, 1 if found[0] else -1
        return int(found[0]), 1

    # --- prediction -------------------------------------------------------------------------------------------------

    @of_any_library
    def scores(self, X: Any, n_jobs: int | None = None) -> Array:
        """``X @ weights + intercept``.

        Parameters
        ----------
        X : ndarray or scipy.sparse CSR matrix of shape (n, n_features)
            Finite real numbers. Arrays of any memory order, memory maps, read-only data, 32- and 64-bit indices,
            unsorted and duplicate entries are accepted. X is neither copied nor densified.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores. Does not change the result.

        Returns
        -------
        ndarray of shape (n, n_outputs)
            Scores, of the dtype that NumPy gives to products of X and the weights.

        Raises
        ------
        ValueError
            If X is not an array or a CSR matrix, has the wrong number of features, or has NaN or infinity; if the model
            is one of sequences.
        """
        require_rows(self.task)
        return Scorer(self.weights, self.intercept).scores(X, n_jobs)

    def _best(
        self,
        X: Any,
        k: int,
        n_jobs: int | None,
        candidates: Candidates | None = None,
        normalizer: Normalizer | None = None,
    ) -> tuple[Array, Array]:
        scorer = Scorer(self.weights, self.intercept)
        if candidates is not None:
            return scorer.best_of(X, k, n_jobs, *candidates)
        if normalizer is None and sp.issparse(X):
            mixed = self._mixed_weights(int(X.shape[0]), resolve_n_jobs(n_jobs))
            if mixed is not None:
                return scorer.best_mixed(X, k, n_jobs, mixed)
        return scorer.best(X, k, n_jobs, each=None if normalizer is None else normalizer.add)

    def _mixed_weights(self, n: int, n_threads: int) -> MixedWeights | None:
        """The sparse weights with coarse rows for the most frequent features, once the rows asked for are worth it."""
        if not self.is_sparse or self.n_outputs < _MANY:
            return None
        asked = self.__dict__.get("_asked", 0) + n
        object.__setattr__(self, "_asked", asked)
        if asked >= _ASKED and "_mixed" not in self.__dict__:
            W: Any = self.weights
            mixed = make_mixed(W, full=False, least=0, n_threads=n_threads) if W.has_canonical_format else None
            object.__setattr__(self, "_mixed", mixed)
        return self.__dict__.get("_mixed")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_mixed", "_asked", "_placed")}

    def _positive(self, X: Any, n_jobs: int | None) -> sp.csr_matrix[Any]:
        return Scorer(self.weights, self.intercept).positive(X, n_jobs)

    # --- conversion -------------------------------------------------------------------------------------------------

    def sparsify(self, threshold: float = 0.0) -> LinearModel:
        """The same model with sparse weights, without those of magnitude ``threshold`` or less.

        Parameters
        ----------
        threshold : float, default=0.0
            A finite number >= 0. With 0 the predictions do not change.

        Returns
        -------
        LinearModel
            A new model; this one is not changed.

        Raises
        ------
        ValueError
            If the threshold is negative or not finite.
        """
        given: Any = threshold
        bound = float(given) if isinstance(given, numbers.Real) else np.nan
        if not 0 <= bound < np.inf:
            raise ValueError(f"threshold must be a finite number of at least 0, got {threshold!r}")
        weights: Any = self.weights
        if not self.is_sparse:
            return replace(self, weights=to_csr(weights, bound))
        weights = weights.copy()
        weights.sum_duplicates()
        weights.data[np.abs(weights.data) <= bound] = 0
        weights.eliminate_zeros()
        return replace(self, weights=weights)

    def densify(self) -> LinearModel:
        """The same model with its weights in an array.

        Returns
        -------
        LinearModel
            The model itself if its weights are an array already.
        """
        weights: Any = self.weights
        return replace(self, weights=weights.toarray()) if self.is_sparse else self

    def _shifted(self, shifts: Array) -> Array:
        return (self.intercept + shifts).astype(self.dtype)

    def astype(self, dtype: Any) -> LinearModel:
        """The same model with weights and intercept of another dtype.

        Parameters
        ----------
        dtype : {numpy.float32, numpy.float64}
            The dtype.

        Returns
        -------
        LinearModel
            The model itself if it has this dtype already.

        Raises
        ------
        ValueError
            If the dtype is not float32 or float64.
        """
        wanted = np.dtype(dtype)
        if wanted not in (np.float32, np.float64):
            raise ValueError(f"dtype must be float32 or float64, got {wanted}")
        if wanted == self.dtype:
            return self
        weights = self.weights.astype(wanted) if self.is_sparse else np.array(self.weights, wanted, order="C")
        return replace(self, weights=weights, intercept=self.intercept.astype(wanted))

    @classmethod
    def from_sklearn(cls, estimator: Any) -> LinearModel:
        """The model of a fitted linear estimator of scikit-learn, with the same predictions and probabilities.

        Parameters
        ----------
        estimator : estimator
            LogisticRegression, LinearSVC, RidgeClassifier, SGDClassifier, Ridge, Lasso, ElasticNet, SGDRegressor or one
            of their CV forms; or a pipeline of a `manyclass.TextVectorizer` and one of these.

        Returns
        -------
        LinearModel
            A model that can be saved, served, explained and calibrated.

        Raises
        ------
        ValueError
            If it is another estimator, or not fitted.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> estimator = LogisticRegression(max_iter=1000).fit(X, y)
        >>> bool((LinearModel.from_sklearn(estimator).predict(X) == estimator.predict(X)).all())
        True
        """
        from manyclass.models.convert import from_sklearn  # imports this module

        return from_sklearn(estimator)

    def to_sklearn(self) -> Any:
        """A fitted estimator of scikit-learn with the same predictions, scores and probabilities.

        It is a LogisticRegression (softmax, or sigmoid for two classes), an SGDClassifier (normalized sigmoids), a
        LinearSVC (no probabilities) or a Ridge, with the default parameters; for a model of texts, a pipeline. The
        scores of a calibrated model are divided by its temperature.

        Returns
        -------
        estimator
            It needs this package only if the model is one of texts.

        Raises
        ------
        ValueError
            If it is a model of label sets.
        """
        from manyclass.models.convert import to_sklearn  # imports this module

        return to_sklearn(self)

    def to_onnx(self, path: str | os.PathLike[str], *, texts: bool | None = None) -> None:
        """Write the model as an ONNX file, with dense float32 weights.

        Its outputs are ``label`` (not for regression; 0/1 for each class of label sets), ``scores``, and
        ``probabilities`` if the model has them.

        Parameters
        ----------
        path : path
            The file, written atomically.
        texts : bool, optional
            Whether the input ``X`` are at least one text, strings of shape (n,): opset 20 and the Tokenizer of
            onnxruntime. Otherwise it is float32 of shape (n, n_features), opset 17; `rows` turns texts into it. By
            default texts, if the model was fitted on texts.

        Raises
        ------
        ImportError
            If the package onnx is not installed.
        ValueError
            If the weights are larger than an ONNX file can be, 2 GiB, or the features of texts are n-grams of
            characters or hashed, which ONNX has no operators for.
        """
        from manyclass.models.onnx import to_onnx  # imports this module

        to_onnx(self, path, texts)

    # --- file -------------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {"weights": self.weights, "intercept": self.intercept}

    @classmethod
    def from_parts(
        cls: type[LinearModel], common: dict[str, Any], described: dict[str, Any], arrays: dict[str, Any]
    ) -> LinearModel:
        return cls(**arrays, **common)
