"""Probabilities of some classes without those of all: the normalizer of each row, from tiles of scores."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy.special import log_expit

__all__ = ["Normalizer"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Normalizer:
    """The sum of ``exp(u_k - max u)`` of each row, in float64, as tiles of its scores are added.

    u are the scores divided by the temperature, or the logarithms of their sigmoids for the link "sigmoid": the
    probabilities are those of `manyclass.objective.links`.

    Parameters
    ----------
    n : int
        Number of rows.
    link : {"softmax", "sigmoid"}
        The link of a model of one class per row.
    temperature : float
        That of the model.
    """

    def __init__(self, n: int, link: str, temperature: float) -> None:
        self._link, self._temperature = link, temperature
        self._top = np.full(n, -np.inf)
        self._total = np.zeros(n)

    def _exponents(self, scores: Array) -> Array:
        scores = scores / self._temperature if self._temperature != 1 else scores
        return log_expit(scores) if self._link == "sigmoid" else scores

    def add(self, first: int, last: int, scores: Array) -> None:
        """Add the scores of some classes of the rows first .. last - 1."""
        u = self._exponents(scores)
        top = u.max(axis=1)
        if not np.isfinite(top).all():
            raise ValueError(
                "scores must have a finite maximum in each row, got NaN or infinity: check the data and the weights "
                "for NaN and infinity"
            )
        rows = slice(first, last)
        with np.errstate(over="ignore"):
            sums = np.exp(u - top[:, None]).sum(axis=1, dtype=np.float64)
            highest = np.maximum(self._top[rows], top)
            self._total[rows] = self._total[rows] * np.exp(self._top[rows] - highest) + sums * np.exp(top - highest)
        self._top[rows] = highest

    def probabilities(self, scores: Array) -> Array:
        """The probabilities of classes with these scores, (n, k)."""
        top, total = self._top.astype(scores.dtype), self._total.astype(scores.dtype)
        found: Array = np.exp(self._exponents(scores) - top[:, None]) / total[:, None]
        return found
