"""The base class of blocks of features of the Gaussian kernel, and the choice of its scale."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils._param_validation import StrOptions

from manyclass.features.base import Block, check_odd, sample_rows

__all__ = ["GaussianBlock", "median_squared_distance"]

#: Number of rows for the median of pairwise distances: half a million pairs.
_SAMPLE = 1000
#: Scales of the kernel are below this and above its inverse: their roots divide random weights, which are float32.
_SCALES = 1e66


class GaussianBlock(Block):
    """A block of features of the kernel exp(-||x - x'||^2 / s); see its subclasses for the parameters."""

    _numbers: ClassVar[tuple[str, ...]] = ("scale_",)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Block._parameter_constraints,
        "scale": [*Block._parameter_constraints["scale"], StrOptions({"median"})],
    }

    def __init__(
        self,
        n_components: int = 512,
        *,
        scale: Any = "median",
        bandwidth: float = 1.0,
        n_odd: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.scale = scale
        self.bandwidth = bandwidth
        self.n_odd = n_odd
        self.random_state = random_state

    def _fit_scale(self, X: Any) -> None:
        check_odd(self.n_odd, X)
        if self.scale == "median":
            self.scale_ = float(self.bandwidth) * median_squared_distance(X, self._generator(1))
        else:
            self.scale_ = float(self.scale)
        if not 1.0 / _SCALES < self.scale_ < _SCALES:
            raise ValueError(
                f"the scale of the kernel is {self.scale_:.1e}, and random weights are float32: scale the features, so "
                f"that squared distances of rows are between {1.0 / _SCALES:.0e} and {_SCALES:.0e}"
            )


def median_squared_distance(X: Any, rng: np.random.Generator) -> float:
    """Return the median squared distance between pairs of rows of a sample, a heuristic for the scale of the kernel.

    If more than half of the pairs are equal rows, it is the mean; if all are, it is 1.
    """
    rows = sample_rows(X, _SAMPLE, rng)
    squared = euclidean_distances(rows, squared=True)[np.triu_indices(rows.shape[0], 1)]
    if not squared.size:
        return 1.0
    # By rounding, the computed distance of equal rows is not exactly 0.
    middle, mean = float(np.median(squared)), float(squared.mean(dtype=np.float64))
    tiny = 1e-6 * float(squared.max())
    return middle if middle > tiny else mean if mean > 0.0 else 1.0
