"""Classes in a hierarchy: accuracy at each level, and probabilities of the nodes above the best classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass.metrics._labels import row_weights, same_length

__all__ = ["level_accuracy", "roll_up"]


def level_accuracy(
    y_true: npt.ArrayLike,
    y_pred: npt.ArrayLike,
    parents: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> npt.NDArray[np.float64]:
    """The fraction of rows whose true and predicted nodes have the same ancestor, at each level of a hierarchy.

    Level 0 are the roots. A node above a level is its own ancestor there: with leaves of different depths, a prediction
    is right at a deep level only if it is right at every level above.

    Parameters
    ----------
    y_true, y_pred : array of int of shape (n,)
        Nodes, numbers from 0 to the length of ``parents`` minus 1. For other labels pass their positions among the
        nodes.
    parents : array of int of shape (n_nodes,)
        The parent of each node, -1 for a root.
    sample_weight : array of shape (n,), optional
        A non-negative weight per row.

    Returns
    -------
    ndarray of shape (n_levels,)
        Accuracies, the roots first; the last one is the accuracy of the nodes themselves. They do not increase.

    Raises
    ------
    ValueError
        If ``parents`` has a number out of range or a cycle, a node is out of range, or lengths differ.

    Examples
    --------
    >>> from manyclass.metrics import level_accuracy
    >>> parents = [-1, -1, 0, 0, 1]  # nodes 2 and 3 below root 0, node 4 below root 1
    >>> level_accuracy([2, 3, 4, 4], [3, 3, 4, 2], parents).tolist()
    [0.75, 0.5]
    """
    above, depth = _checked(parents)
    truth, guess = _nodes("y_true", y_true, len(above)), _nodes("y_pred", y_pred, len(above))
    if truth.ndim != 1 or guess.ndim != 1 or not truth.size:
        raise ValueError(f"y_true and y_pred must be nodes of shape (n,), got {truth.shape} and {guess.shape}")
    same_length("y_true", truth.size, "y_pred", guess.size)
    weights = row_weights(sample_weight, truth.size)
    found = np.empty(int(depth.max()) + 1)
    for level in range(len(found) - 1, -1, -1):
        truth = np.where(depth[truth] > level, above[truth], truth)
        guess = np.where(depth[guess] > level, above[guess], guess)
        found[level] = np.average(truth == guess, weights=weights)
    return found


def roll_up(
    nodes: npt.ArrayLike, probabilities: npt.ArrayLike, parents: npt.ArrayLike, level: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Sum the probabilities of the best classes of each row over their ancestors at one level, best first.

    The sums are lower bounds where the lists do not have all classes, as those of ``predict_topk(X, k, proba=True)``.
    O(n k log k) time and O(n k) memory, independent of the number of nodes.

    Parameters
    ----------
    nodes : array of int of shape (n, k)
        Distinct nodes of each row, numbers from 0 to the length of ``parents`` minus 1.
    probabilities : array of shape (n, k)
        Their probabilities, >= 0.
    parents : array of int of shape (n_nodes,)
        The parent of each node, -1 for a root.
    level : int, default=0
        The level of the ancestors, 0 for the roots. A node above it stands for itself.

    Returns
    -------
    ancestors : ndarray of int of shape (n, k)
        The ancestors of each row, the most probable first, of equal ones the lower number; -1 behind the last.
    sums : ndarray of shape (n, k)
        Their probabilities; 0 behind the last.

    Raises
    ------
    ValueError
        If ``parents`` has a number out of range or a cycle, a node is out of range, ``level`` is negative, or the
        shapes differ.

    Examples
    --------
    >>> from manyclass.metrics import roll_up
    >>> parents = [-1, -1, 0, 0, 1]
    >>> ancestors, sums = roll_up([[4, 2, 3]], [[0.4, 0.35, 0.25]], parents)
    >>> ancestors.tolist(), sums.tolist()
    ([[0, 1, -1]], [[0.6, 0.4, 0.0]])
    """
    above, depth = _checked(parents)
    at = _nodes("nodes", nodes, len(above))
    given = np.asarray(probabilities)
    values = given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)
    if at.ndim != 2 or values.shape != at.shape:
        raise ValueError(f"nodes and probabilities must have one shape (n, k), got {at.shape} and {values.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError("probabilities must be finite and at least 0: pass probabilities, not scores")
    if isinstance(level, bool) or not isinstance(level, (int, np.integer)) or level < 0:
        raise ValueError(f"level must be an integer of at least 0, got {level!r}")
    while at.size and (deep := depth[at] > level).any():
        at = np.where(deep, above[at], at)
    n, k = at.shape
    order = np.argsort(at, axis=1, kind="stable")
    at, values = np.take_along_axis(at, order, 1), np.take_along_axis(values, order, 1)
    # Runs of one ancestor: the place of each among those of its row.
    fresh = np.ones((n, k), bool)
    fresh[:, 1:] = at[:, 1:] != at[:, :-1]
    place = (np.cumsum(fresh, axis=1) - 1, np.arange(n)[:, np.newaxis])
    ancestors, sums = np.full((n, k), -1, np.int64), np.zeros((n, k), values.dtype)
    ancestors[place[1], place[0]] = at
    np.add.at(sums, (np.broadcast_to(place[1], (n, k)), place[0]), values)
    best = np.lexsort((np.where(ancestors < 0, len(above), ancestors), -sums, ancestors < 0), axis=-1)
    return np.take_along_axis(ancestors, best, 1), np.take_along_axis(sums, best, 1)


def _checked(parents: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The parents and the depth of each node, 0 for roots."""
    given = np.asarray(parents)
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iu":
        raise ValueError(f"parents must be integers of shape (n_nodes,), got {given.dtype} of shape {given.shape}")
    above = given.astype(np.int64)
    wrong = np.flatnonzero((above < -1) | (above >= len(above)))
    if len(wrong):
        raise ValueError(
            f"parents has {above[wrong[0]]} for node {wrong[0]}; expected -1 for a root, or 0 to {len(above) - 1}"
        )
    depth = np.where(above < 0, 0, -1)
    for level in range(1, len(above) + 1):
        below = np.flatnonzero(depth < 0)
        below = below[depth[above[below]] == level - 1]
        if not len(below):
            break
        depth[below] = level
    if (depth < 0).any():
        raise ValueError(f"parents has a cycle: node {int(np.argmin(depth))} has no root above it")
    return above, depth


def _nodes(name: str, given: npt.ArrayLike, n_nodes: int) -> npt.NDArray[np.int64]:
    nodes = np.asarray(given)
    if nodes.size and nodes.dtype.kind not in "iu":
        raise ValueError(f"{name} must be node numbers, got {nodes.dtype}: pass positions among the nodes")
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < n_nodes:
        raise ValueError(f"{name} has nodes from {nodes.min()} to {nodes.max()}, expected 0 to {n_nodes - 1}")
    return nodes.astype(np.int64)
