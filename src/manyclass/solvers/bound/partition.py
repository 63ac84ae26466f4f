"""The quadratic bound of one partition function."""

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
    """log Z(theta + u) <= ``log_partition`` + ``mean`` . u + u' ``curvature`` u / 2 for every u, with equality at 0.

    Attributes
    ----------
    log_partition : float
        log Z(theta).
    mean : ndarray of shape (D,)
        The expectation of f, the gradient of log Z.
    curvature : ndarray of shape (D, D)
        Sigma, positive semi-definite.
    """

    log_partition: float
    mean: Array
    curvature: Array

    def __call__(self, move: Array) -> float:
        """The bound of log Z(theta + ``move``)."""
        return float(self.log_partition + self.mean @ move + 0.5 * move @ self.curvature @ move)


def partition_bound(
    features: Array, theta: Array, log_measure: Array | None = None, *, order: str = "ascending"
) -> PartitionBound:
    """Bound Z(theta) = sum_y h(y) exp(theta . f(y)) from above, by a quadratic that touches at ``theta``.

    Computed in logarithms: scores of any size neither overflow nor vanish.

    Parameters
    ----------
    features : ndarray of shape (K, D)
        f(y), a row for each of at least one label.
    theta : ndarray of shape (D,)
        Where the bound touches.
    log_measure : ndarray of shape (K,), optional
        log h(y); minus infinity for labels that cannot be. Zeros by default.
    order : {"ascending", "descending", "given"}
        In which order the labels are taken: by score, lowest or highest first, or as they are.

    Raises
    ------
    ValueError
        If the shapes do not fit, there is no label, or none with a positive measure, a number is not finite, or the
        order is none of these.

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
        raise ValueError(f"features must have a row for each of at least one label, got shape {F.shape}")
    if point.shape != F.shape[1:]:
        raise ValueError(f"theta must have shape {F.shape[1:]}, as the features have columns, got {point.shape}")
    measure = np.zeros(len(F)) if log_measure is None else np.asarray(log_measure, np.float64)
    if measure.shape != (len(F),):
        raise ValueError(f"log_measure must have shape ({len(F)},), one a label, got {measure.shape}")
    if not (np.isfinite(F).all() and np.isfinite(point).all()) or np.isnan(measure).any() or measure.max() == np.inf:
        raise ValueError("features and theta must be finite, and log_measure less than infinity: found NaN or infinity")
    if measure.max() == -np.inf:
        raise ValueError("log_measure must be finite for at least one label: all are minus infinity")
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}")
    offsets = np.array([0, len(F)], np.int64)
    form = FeatureForm(F, offsets, np.zeros(1, np.int64), np.ones(1), measure)
    L = form.measured(form.scores(point[:, None], 0, 1), 0, 1)
    labels = Labels(L, offsets, form.scale, order)
    G = np.zeros((F.shape[1], F.shape[1]))
    form.add_gram(labels.blocks(1.0), 0, 1, G)
    form.finish_gram(G)
    return PartitionBound(float(logsumexp(L)), labels.p @ F, G)
