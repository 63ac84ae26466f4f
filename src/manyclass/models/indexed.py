"""Indexes of the weights of a linear model, and rankings by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.models.base import Model
from manyclass.models.parts import require_rows
from manyclass.runtime.arrays import is_foreign, to_numpy

if TYPE_CHECKING:
    from manyclass.mips import SearchIndex

__all__ = ["IndexedModel"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Rows whose scores by an index are compared with those of the model.
_CHECKED = 8


class IndexedModel(Model):
    """A model whose weights can be indexed: an array or a CSR matrix, a column for each class."""

    weights: Any
    intercept: Array

    def build_index(self, kind: str | SearchIndex = "exact", n_jobs: int | None = None) -> SearchIndex:
        """Build an index of the weights for `topk`; ``index.save(path)`` writes it, beside the model.

        Parameters
        ----------
        kind : {"exact", "lsh", "graph"} or SearchIndex, default="exact"
            `manyclass.mips.ExactSearch`, `SimpleLSH`, `SmallWorldGraph`, or an index with options.
        n_jobs : int, optional
            Threads; None is 1, -1 all cores.

        Returns
        -------
        SearchIndex
            An index of a copy of the weights. If the model has an intercept, it is the weight of one more feature, the
            last one, which is 1 in all rows: `topk` appends it, ``index.query`` and ``index.recall`` take rows that
            have it.

        Raises
        ------
        ValueError
            If the classes do not have a column of weights each, or ``kind`` is unknown.

        Examples
        --------
        >>> import numpy as np
        >>> from manyclass import LinearModel
        >>> model = LinearModel(np.eye(3), np.zeros(3), np.array(["a", "b", "c"]), "multiclass")
        >>> model.topk(np.array([[3.0, 1.0, 2.0]]), 2, index=model.build_index())[0].tolist()
        [['a', 'c']]
        """
        from manyclass.mips import make_index

        require_rows(self.task)
        if self.task == "binary":
            raise ValueError("two classes share one column of weights: use topk, or predict_topk, without an index")
        weights, intercept = self.weights, self.intercept[None, :]
        if intercept.any():
            sparse = sp.issparse(weights)
            weights = sp.vstack([weights, intercept], format="csr") if sparse else np.vstack([weights, intercept])
        return make_index(kind).build(weights, n_jobs=n_jobs)

    def topk(
        self,
        X: Any,
        k: int,
        n_jobs: int | None = None,
        *,
        candidates: Any = None,
        index: SearchIndex | None = None,
    ) -> tuple[Array, Array]:
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
        index : SearchIndex, optional
            An index from `build_index`, or one that was saved and loaded, which is searched instead of scoring all
            classes. Not with candidates; the result is NumPy arrays.

        Returns
        -------
        labels : ndarray of shape (n, k)
            Classes.
        scores : ndarray of shape (n, k)
            Their scores. For a binary model with score s: s for ``classes[1]`` and -s for ``classes[0]``.

        Raises
        ------
        ValueError
            If k is out of range, the model has no classes, or a candidate is none of them, see `scores`; if the index
            is of other weights: its shape, or its scores of the first rows, are not those of the model.

        Examples
        --------
        >>> import numpy as np
        >>> from manyclass import LinearModel
        >>> model = LinearModel(np.eye(3), np.zeros(3), np.array(["a", "b", "c"]), "multiclass")
        >>> model.topk(np.array([[3.0, 1.0, 2.0]]), 2, candidates=["b", "c"])[0].tolist()
        [['c', 'b']]
        """
        if index is None:
            return super().topk(X, k, n_jobs, candidates=candidates)
        if candidates is not None:
            raise ValueError("candidates are scored without an index: leave out candidates or index")
        if self.classes is None:
            raise ValueError("a regression model has no classes to rank: use predict or scores")
        X = to_numpy(X) if is_foreign(X) else self.rows(X)
        width, has_intercept = int(np.shape(X)[1]), bool(self.intercept.any())
        if index.n_features != width + has_intercept or (len(index.ids) and index.ids[-1] >= len(self.intercept)):
            more = " (and one for the intercept)" if has_intercept else ""
            raise ValueError(
                f"index has {index.n_features} features and classes up to {index.ids[-1:]}, the model has "
                f"{width} features{more} and {len(self.classes)} classes: build the index from this model by "
                "build_index()"
            )
        rows = X
        if has_intercept:
            ones = np.ones((X.shape[0], 1), X.dtype)
            rows = sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])
        numbers, scores = index.query(rows, k, n_jobs=n_jobs)
        labels: Array = np.asarray(self.classes[numbers])
        if X.shape[0]:
            own = super().topk(X[:_CHECKED], k, candidates=labels[:_CHECKED])[1]
            if not np.allclose(own, scores[:_CHECKED], rtol=1e-3, atol=1e-4 * float(np.abs(own).max())):
                raise ValueError(
                    "index gives other scores than the model: its weights are not those of this model, which may have "
                    "changed since then; build the index again by build_index()"
                )
        return labels, scores
