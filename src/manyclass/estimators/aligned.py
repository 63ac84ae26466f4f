"""Extends a model that was fitted on some of the classes to all classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.models.linear import LinearModel
from manyclass.objective.problem import Array

__all__ = ["align"]


def align(model: LinearModel, classes: Array) -> LinearModel:
    """A model with a column for each of ``classes`` that predicts as ``model``, which may have fewer classes.

    The added classes have a score below all others, and probability zero.

    Parameters
    ----------
    model : LinearModel
        A model of task "multiclass" or "binary".
    classes : ndarray of shape (n_classes,)
        Sorted labels that include the classes of ``model``.
    """
    if model.classes is None or len(model.classes) == len(classes):
        return model
    weights: Any = model.weights
    intercept = model.intercept
    if model.task == "binary":  # one score s: the sigmoids of -s and s sum to one
        weights = (sp.hstack if model.is_sparse else np.hstack)([-weights, weights])
        intercept = np.concatenate([-intercept, intercept])
    columns = np.searchsorted(classes, model.classes)
    K = len(classes)
    if sp.issparse(weights):
        wide: Any = sp.csr_matrix(weights)
        wide = sp.csr_matrix((wide.data, columns[wide.indices], wide.indptr), shape=(model.n_features, K))
    else:
        wide = np.zeros((model.n_features, K), model.dtype)
        wide[:, columns] = weights
    # Half of the most negative number, so that differences to it are finite.
    bias = np.full(K, np.finfo(model.dtype).min / 2, model.dtype)
    bias[columns] = intercept
    return replace(model, weights=wide, intercept=bias, classes=classes, task="multiclass")
