"""A penalty on the distance to the weights of another model, instead of that to zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.models.linear import LinearModel
from manyclass.models.parts import require_rows
from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.penalties import L1
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.memory import require

__all__ = ["with_prior"]


def with_prior(problem: Problem, prior: Any, classes: Array | None, names: Any) -> Problem:
    """The problem whose l2 penalty is that of ``W - Z``, where Z are the weights of ``prior``.

    Classes that the prior does not have get weights of zero in Z.

    Parameters
    ----------
    problem : Problem
        A problem of one process, with an l2 part in its penalty.
    prior : LinearModel or fitted estimator with one
        The other model. Its features are those of the rows, and its classes are among ``classes``.
    classes : ndarray or None
        The labels of the problem; None for regression.
    names : array-like or None
        The names of the columns of X, compared with those of the prior if both have some.

    Raises
    ------
    TypeError
        If the prior is no linear model.
    ValueError
        If features or classes do not match, the penalty has no l2 part, or the rows are an array that is fitted where
        it is.
    MemoryError
        If its weights, as an array, are more than is available.
    """
    model = getattr(prior, "model_", prior)
    if not isinstance(model, LinearModel):
        raise TypeError(f"prior must be a LinearModel or a fitted estimator that has one, got {type(prior).__name__}")
    require_rows(model.task)
    if isinstance(problem.penalty, L1):
        raise ValueError("prior needs a penalty with an l2 part, got l1_ratio=1: choose l1_ratio < 1")
    if isinstance(problem, ArrayProblem):
        raise ValueError("prior needs rows in an array of NumPy of float32 or float64, or in a CSR matrix: convert X")
    if model.n_features != problem.n_features:
        raise ValueError(
            f"prior has {model.n_features} features, X has {problem.n_features}: make both with the same vectorizer"
        )
    nbytes = 2 * model.n_features * problem.n_outputs * problem.dtype.itemsize
    require({"weights of the prior": nbytes}, "dtype=np.float32, or fewer features (hashing)")
    known = model.feature_names
    if names is not None and known is not None and not np.array_equal(np.asarray(names, str), np.asarray(known, str)):
        raise ValueError("the features of prior have other names than those of X: give the same columns in one order")
    Z = _aligned(model, problem, classes).astype(problem.dtype)
    Z = problem.of_model(Z, np.zeros(problem.n_outputs, problem.dtype))[0]
    return replace(problem, shift=Z, constant=0.5 * float(np.vdot(Z, Z.astype(np.float64))))


def _aligned(model: LinearModel, problem: Problem, classes: Array | None) -> Array:
    """The weights of the prior with a column for each output of the problem."""
    stored: Any = model.weights
    weights: Array = stored.toarray() if sp.issparse(stored) else np.asarray(stored)
    K = problem.n_outputs
    if (classes is None) != (model.classes is None):
        kind = "for regression" if model.classes is None else "a classifier"
        raise ValueError(f"prior is {kind}, which this fit is not: give a model of the same kind")
    if classes is None or model.classes is None:
        if weights.shape[1] != K:
            raise ValueError(f"prior has {weights.shape[1]} targets, y has {K}: give a model with as many")
        return weights
    lacks = ~np.isin(model.classes, classes)
    if lacks.any():
        some = ", ".join(repr(label) for label in model.classes[lacks][:3].tolist())
        raise ValueError(
            f"{np.count_nonzero(lacks)} of the {len(model.classes)} classes of prior are not in y ({some}"
            f"{', ...' if np.count_nonzero(lacks) > 3 else ''}): give rows of them, too, or a prior without them"
        )
    if weights.shape[1] == 1 and len(model.classes) == 2 and K > 1:
        # One score s of two classes. A joint loss depends on differences alone: -s/2 and s/2 have the least norm.
        share = 0.5 if problem.loss.joint else 1.0
        weights = np.concatenate([-share * weights, share * weights], axis=1)
    if K == 1:  # y has two classes; so has the prior
        return weights
    wide = np.zeros((weights.shape[0], K), weights.dtype)
    wide[:, np.searchsorted(classes, model.classes)] = weights
    return wide
