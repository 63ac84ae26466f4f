"""The quadratic upper bound on one log-partition function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.special import logsumexp

from manyclass.solvers.bound.features import FeatureForm
from manyclass.solvers.bound.labels import ORDERS, Labels

__all__ = ["PartitionBound", "partition_bound"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class PartitionBound:
    """The bound log Z(theta + u) <= log_partition + mean . u + u' curvature u / 2, with equality at u = 0.

    Attributes
    ----------
    log_partition : float
        log Z(theta).
    mean : ndarray of shape (D,)
        The gradient of log Z, the expectation of f.
    curvature : ndarray of shape (D, D)
        A positive semidefinite matrix.
    """

    log_partition: float
    mean: Array
    curvature: Array

    def __call__(self, move: Array) -> float:
        """The upper bound on log Z(theta + ``move``)."""
        return float(self.log_partition + self.mean @ move + 0.5 * move @ self.curvature @ move)


def partition_bound(
    features: Array, theta: Array, log_measure: Array | None = None, *, order: str = "ascending"
) -> PartitionBound:
    """The quadratic upper bound on log Z, Z(theta) = sum_y h(y) exp(theta . f(y)), that is tight at ``theta``.

    It is computed in logarithms, so that scores of any size neither overflow nor underflow.

    Parameters
    ----------
    features : ndarray of shape (K, D)
        f(y), one row per label; K >= 1. Finite.
    theta : ndarray of shape (D,)
        The point at which the bound is tight. Finite.
    log_measure : ndarray of shape (K,), optional
        log h(y), less than infinity; minus infinity excludes a label. None: zeros.
    order : {"ascending", "descending", "given"}, default="ascending"
        The order in which the labels are processed: by increasing or decreasing score, or as given. It changes the
        curvature.

    Returns
    -------
    PartitionBound
        The bound.

    Raises
    ------
    ValueError
        If shapes do not match, there is no label with positive measure, a number is not finite, or ``order`` is
        invalid.

    References
    ----------
    Jebara and Choromanska, "Majorization for CRFs and latent likelihoods", NIPS 2012, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import logsumexp
    >>> rng = np.random.default_rng(0)
    >>> f, theta, u = rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=3)
    >>> bound = partition_bound(f, theta)
    >>> bool(np.isclose(bound.log_partition, logsumexp(f @ theta)))
    True
    >>> bool(bound(u) >= logsumexp(f @ (theta + u)))
    True
    """
    F, point = np.asarray(features, np.float64), np.asarray(theta, np.float64)
    if F.ndim != 2 or len(F) == 0:
        raise ValueError(f"features must have shape (K, D) with K >= 1, got {F.shape}: give one row per label")
    if point.shape != F.shape[1:]:
        raise ValueError(
            f"theta must have shape {F.shape[1:]}, one number per column of features, got {point.shape}: check both"
        )
    measure = np.zeros(len(F)) if log_measure is None else np.asarray(log_measure, np.float64)
    if measure.shape != (len(F),):
        raise ValueError(f"log_measure must have shape ({len(F)},), got {measure.shape}: give one number per label")
    if not (np.isfinite(F).all() and np.isfinite(point).all()) or np.isnan(measure).any() or measure.max() == np.inf:
        raise ValueError(
            "features and theta must be finite, and log_measure less than infinity, got NaN or infinity: replace them"
        )
    if measure.max() == -np.inf:
        raise ValueError("log_measure must be finite for at least one label, got only minus infinity: check the labels")
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}: give one of these")
    offsets = np.array([0, len(F)], np.int64)
    form = FeatureForm(F, offsets, np.zeros(1, np.int64), np.ones(1), measure)
    L = form.measured(form.scores(point[:, None], 0, 1), 0, 1)
    labels = Labels(L, offsets, form.scale, order)
    G = np.zeros((F.shape[1], F.shape[1]))
    form.add_gram(labels.blocks(1.0), 0, 1, G)
    form.finish_gram(G)
    return PartitionBound(float(logsumexp(L)), labels.p @ F, G)
