"""`BlockModel`, the base class of linear models whose weights are in blocks of classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.scoring import Scorer
from manyclass.models.base import Model
from manyclass.models.candidates import Candidates
from manyclass.models.elsewhere import of_any_library
from manyclass.models.normalizer import Normalizer

__all__ = ["BlockModel"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

B = TypeVar("B", bound="BlockModel")


class BlockModel(Model):
    """A linear model whose blocks of classes are used one after the other; the weights are never whole in memory."""

    shape: tuple[int, int]
    weight_dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        self.check()

    @abstractmethod
    def _scorers(self) -> Iterator[tuple[int, int, Scorer]]:
        """First class, last class + 1, and scorer of each block, in the order of the classes."""

    @property
    def n_features(self) -> int:
        return self.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.weight_dtype

    def common(self) -> dict[str, Any]:
        """The fields of all models, for the constructor."""
        names = ("classes", "task", "link", "parameters", "record", "feature_names", "vectorizer", "library_version")
        return {name: getattr(self, name) for name in (*names, "temperature")}

    @classmethod
    def from_parts(cls: type[B], common: dict[str, Any], described: dict[str, Any], arrays: dict[str, Any]) -> B:
        raise ValueError("the file is a part of a model in blocks of classes: open its folder")

    def sparsify(self: B, threshold: float = 0.0) -> B:
        """Not supported: use `manyclass.models.splitting.sparsify_model`, which writes another model.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            "sparsify is not for a model in blocks of classes: save it, and write a sparse one with "
            "manyclass.models.splitting.sparsify_model(model, path)"
        )

    # --- prediction -------------------------------------------------------------------------------------------------

    @of_any_library
    def scores(self, X: Any, n_jobs: int | None = None) -> Array:
        """``X @ weights + intercept``, one block after the other: see `LinearModel.scores`."""
        out: Array | None = None
        for lo, hi, scorer in self._scorers():
            part = scorer.scores(X, n_jobs)
            if out is None:
                out = np.empty((X.shape[0], self.n_outputs), part.dtype)
            out[:, lo:hi] = part
        return np.empty((X.shape[0], 0)) if out is None else out

    def _best(
        self,
        X: Any,
        k: int,
        n_jobs: int | None,
        candidates: Candidates | None = None,
        normalizer: Normalizer | None = None,
    ) -> tuple[Array, Array]:
        numbers, values = np.empty((X.shape[0], 0), np.int64), np.empty((X.shape[0], 0), self.dtype)
        each = None if normalizer is None else normalizer.add
        for lo, hi, scorer in self._scorers():
            size = min(k, hi - lo)
            if candidates is None:
                found, best = scorer.best(X, size, n_jobs, each=each)
            else:
                found, best = scorer.best_of(X, size, n_jobs, *candidates.within(lo, hi))
            values = np.concatenate([values.astype(best.dtype, copy=False), best], axis=1)
            numbers = np.concatenate([numbers, np.where(found < hi - lo, found + lo, found)], axis=1)
            # NaN sorts after all numbers; of equal scores the lower index comes first.
            order = np.lexsort((numbers, -values), axis=-1)[:, :k]
            numbers, values = np.take_along_axis(numbers, order, 1), np.take_along_axis(values, order, 1)
        return numbers, values

    def _positive(self, X: Any, n_jobs: int | None) -> sp.csr_matrix[Any]:
        parts = [scorer.positive(X, n_jobs) for _, _, scorer in self._scorers()]
        return sp.csr_matrix(sp.hstack(parts, format="csr"), dtype=np.int8)
