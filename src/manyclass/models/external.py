"""Linear models of other libraries: their weights and, where the model says it, the objective that they minimize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight

from manyclass.kernels.rows import check_sparse
from manyclass.models.base import Model
from manyclass.models.linear import LinearModel
from manyclass.models.parts import require_rows
from manyclass.objective.losses import (
    CLASSIFICATION,
    REGRESSION,
    CrammerSinger,
    Hinge,
    Huber,
    LogLoss,
    Loss,
    Multinomial,
    Squared,
    SquaredHinge,
)

__all__ = ["External", "read_external"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class External:
    """A linear model with scores ``X @ weights + intercept``, and what is known of its objective.

    Attributes
    ----------
    weights : ndarray or CSR matrix of shape (d, K)
        Weights.
    intercept : ndarray of shape (K,) or None
        None if the model has none.
    classes : ndarray or None
        Labels; two for one column. None for regression, or if they are not known.
    loss : Loss or None
        None if the model does not say.
    alpha : callable or None
        The strength of the penalty on the mean loss, from the number of rows and the sum of their weights.
    l1_ratio : float or None
        Fraction of the penalty that is l1; None if the model does not say.
    class_weight : dict, "balanced" or None
        Weights of the classes.
    balances_weights : bool
        Whether class_weight="balanced" counts rows by their weights.
    intercept_scaling : float or None
        The value of a constant feature whose penalized weight gives the intercept; None if it is not penalized.
    probability : {"softmax", "sigmoid", "identity"}
        The function from scores to probabilities.
    """

    weights: Any
    intercept: Array | None = None
    classes: Array | None = None
    loss: Loss | None = None
    alpha: Callable[[int, float], float] | None = None
    l1_ratio: float | None = 0.0
    class_weight: Any = None
    balances_weights: bool = False
    intercept_scaling: float | None = None
    probability: str = "identity"


def read_external(model: Any) -> External:
    """The weights and the objective of a linear model.

    Parameters
    ----------
    model : object
        A `LinearModel` or an estimator with one, a linear estimator of scikit-learn, a ``torch.nn.Linear``, an array
        ``coef`` of shape (K, d) or (d,), or a tuple ``(coef, intercept)``.

    Raises
    ------
    ValueError
        If it is none of these, is not fitted, or its objective is not the one of this package (the message says why).
    """
    fitted = getattr(model, "model_", model)
    if isinstance(fitted, Model):
        found = _own(fitted)
        # Of an estimator that chose it.
        return replace(found, l1_ratio=getattr(model, "l1_ratio_", found.l1_ratio))
    if hasattr(model, "in_features") and hasattr(model, "weight"):
        bias = getattr(model, "bias", None)
        return _arrays(_numpy(model.weight), None if bias is None else _numpy(bias))
    if isinstance(model, np.ndarray) or sp.issparse(model):
        return _arrays(model, None)
    if isinstance(model, tuple) and len(model) == 2:
        return _arrays(*model)
    names = [cls.__name__ for cls in type(model).__mro__ if cls.__module__.startswith("sklearn.")]
    for name in names:
        if name in _READERS and not names[0].startswith("MultiTask"):
            if not hasattr(model, "coef_"):
                raise ValueError(f"model must be fitted, got {model!r}: call fit first")
            return _READERS[name](model)
    raise ValueError(
        "model must be a linear model: a model or an estimator of this package, one of scikit-learn "
        f"({', '.join(_READERS)}), a torch.nn.Linear, or (coef, intercept); got {type(model).__name__}"
    )


def _numpy(tensor: Any) -> Array:
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)


def _arrays(coef: Any, intercept: Any, **facts: Any) -> External:
    """From ``coef`` of shape (K, d) or (d,), as scikit-learn and PyTorch have it."""
    if sp.issparse(coef):
        check_sparse(coef, "coef")
        weights: Any = sp.csr_matrix(coef.T, dtype=np.float64)
        values = weights.data
    else:
        values = np.asarray(coef, np.float64)
        if values.ndim not in (1, 2) or not values.size:
            raise ValueError(f"coef must have shape (n_outputs, n_features) or (n_features,), got {values.shape}")
        weights = np.ascontiguousarray(np.atleast_2d(values).T)
    K = weights.shape[1]
    bias = None if intercept is None else np.ravel(intercept)
    if bias is not None and bias.size not in (1, K):
        raise ValueError(f"intercept must have {K} numbers, one for each row of coef, got {bias.size}")
    bias = None if bias is None else np.array(np.broadcast_to(bias, (K,)), np.float64)
    if not np.isfinite(values).all() or (bias is not None and not np.isfinite(bias).all()):
        raise ValueError("coef and intercept must be finite, got NaN or infinity")
    return External(weights, bias, **facts)


# --- models of this package -----------------------------------------------------------------------------------------


def _own(model: Any) -> External:
    if not isinstance(model, LinearModel):
        raise ValueError(f"model must be a LinearModel, whose weights are in memory, got a {type(model).__name__}")
    require_rows(model.task)
    known = model.parameters
    if known.get("standardize"):
        raise ValueError(
            "the model was fitted with standardize=True, whose penalty is not that of its weights for X: its gap is "
            "duality_gap_ of the fit, record['relative_gap'] of the model"
        )
    if model.record.get("prior"):
        raise ValueError(
            "the model was fitted with a prior, whose penalty is the distance to that model: its gap is duality_gap_ "
            "of the fit, record['relative_gap'] of the model"
        )
    alpha, ratio = known.get("alpha"), known.get("l1_ratio", 0.0)
    return External(
        model.weights,
        model.intercept if np.any(model.intercept) or known.get("fit_intercept") is True else None,
        model.classes,
        _named_loss(known),
        (lambda n, total: float(alpha)) if isinstance(alpha, int | float) else None,
        float(ratio) if isinstance(ratio, int | float) else None,
        known.get("class_weight"),
        probability=model.link,
    )


def _named_loss(known: dict[str, Any]) -> Loss | None:
    """The loss in the parameters of a model: a name, or the text of an object and its parameters."""
    said = str(known.get("loss"))
    for name, cls in {**CLASSIFICATION, **REGRESSION}.items():
        if said == name or said.partition("(")[0] == cls.__name__:
            given = {key.removeprefix("loss__"): value for key, value in known.items() if key.startswith("loss__")}
            # Costs of many classes are not in the file.
            return None if any(isinstance(value, str) for value in given.values()) else cls(**given)
    return None


# --- scikit-learn ---------------------------------------------------------------------------------------------------

#: Whether LogisticRegression and LinearSVC do (from scikit-learn 1.7 on).
_BALANCES_WEIGHTS = "sample_weight" in signature(compute_class_weight).parameters


def _of(model: Any, loss: Loss, alpha: Callable[[int, float], float], **facts: Any) -> External:
    if getattr(model, "positive", False):
        raise ValueError(f"{type(model).__name__}(positive=True) has constraints, which this objective has not")
    intercept = model.intercept_ if getattr(model, "fit_intercept", True) else None
    return _arrays(model.coef_, intercept, classes=getattr(model, "classes_", None), loss=loss, alpha=alpha, **facts)


def _one(name: str, value: Any) -> float:
    """A number that may have been chosen for each output."""
    found = np.unique(np.asarray(value, np.float64))
    if len(found) != 1:
        raise ValueError(f"{name} must be one number for all outputs, got {value!r}: certify each output by itself")
    return float(found[0])


def _penalized(model: Any, C: float) -> float:
    """C, if there is a penalty."""
    if getattr(model, "penalty", "l2") in (None, "none") or not np.isfinite(C):
        raise ValueError(
            f"{type(model).__name__} was fitted without a penalty, and there is no duality gap without one: fit with a "
            "finite C, or pass alpha"
        )
    return C


def _one_vs_rest(model: Any) -> None:
    """Weights of classes apply to the positive class of each column alone there: no weights of rows."""
    if model.class_weight is not None and len(model.classes_) > 2:
        raise ValueError(
            f"{type(model).__name__} weighs the positive class of each one-vs-rest problem by itself with class_weight="
            f"{model.class_weight!r}: certify the column of a class as a model of two classes, with sample_weight"
        )


def _logistic(model: Any) -> External:
    ratio = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 0.0))
    ratio = {"l1": 1.0, "l2": 0.0}.get(getattr(model, "penalty", ""), ratio)
    C = _penalized(model, _one("C", model.C_ if hasattr(model, "C_") else model.C))
    classes = len(model.classes_)
    ovr = classes > 2 and (model.solver == "liblinear" or getattr(model, "multi_class", "auto") == "ovr")
    if classes == 2 and getattr(model, "multi_class", "auto") == "multinomial":
        raise ValueError("multi_class='multinomial' with two classes penalizes half of the coefficients: leave it out")
    if ovr:
        _one_vs_rest(model)
    return _of(
        model,
        LogLoss() if ovr or classes == 2 else Multinomial(),
        lambda n, total: 1.0 / (C * total),
        l1_ratio=0.0 if all(value is None for value in np.ravel(ratio)) else _one("l1_ratio", ratio),
        class_weight=model.class_weight,
        balances_weights=_BALANCES_WEIGHTS,
        intercept_scaling=float(model.intercept_scaling) if model.solver == "liblinear" else None,
        probability="sigmoid" if ovr or classes == 2 else "softmax",
    )


def _linear_svc(model: Any) -> External:
    C, joint = _penalized(model, float(model.C)), model.multi_class == "crammer_singer"
    # Two classes of Crammer and Singer: the columns w and -w, of which coef_ is the difference 2w.
    half = 0.5 if joint and len(model.classes_) == 2 else 1.0
    if not joint:
        _one_vs_rest(model)
    return _of(
        model,
        CrammerSinger(gamma=0.0) if joint else {"hinge": Hinge, "squared_hinge": SquaredHinge}[model.loss](),
        lambda n, total: half / (C * total),
        l1_ratio=1.0 if model.penalty == "l1" and not joint else 0.0,
        class_weight=model.class_weight,
        balances_weights=_BALANCES_WEIGHTS,
        intercept_scaling=float(model.intercept_scaling),
    )


def _ridge(model: Any) -> External:
    alpha = _one("alpha", getattr(model, "alpha_", getattr(model, "alpha", None)))
    weights = getattr(model, "class_weight", None)
    return _of(model, Squared(), lambda n, total: alpha / total, class_weight=weights)


def _elastic_net(model: Any) -> External:
    alpha = _one("alpha", getattr(model, "alpha_", getattr(model, "alpha", None)))
    lasso = any(cls.__name__ in ("Lasso", "LassoCV") for cls in type(model).__mro__)
    ratio = 1.0 if lasso else float(getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 0.5)))
    return _of(model, Squared(), lambda n, total: alpha, l1_ratio=ratio)


def _sgd(model: Any) -> External:
    losses: dict[str, Any] = {
        "hinge": Hinge,
        "squared_hinge": SquaredHinge,
        "log_loss": LogLoss,
        "squared_error": Squared,
        "huber": lambda: Huber(epsilon=model.epsilon),
    }
    if model.loss not in losses:
        raise ValueError(f"loss {model.loss!r} is not one of this package ({', '.join(losses)}): certify another model")
    if hasattr(model, "classes_"):
        _one_vs_rest(model)
    if model.penalty is None:
        _penalized(model, np.inf)
    ratio = {"l2": 0.0, "l1": 1.0}.get(model.penalty, float(model.l1_ratio))
    alpha = float(model.alpha)
    return _of(
        model,
        losses[model.loss](),
        # Sample weights are not scaled to mean 1 there.
        lambda n, total: alpha * n / total,
        l1_ratio=ratio,
        class_weight=getattr(model, "class_weight", None),
        probability="sigmoid" if model.loss == "log_loss" else "identity",
    )


_READERS: dict[str, Callable[[Any], External]] = {
    "LogisticRegression": _logistic,
    "LinearSVC": _linear_svc,
    "RidgeClassifier": _ridge,
    "RidgeClassifierCV": _ridge,
    "SGDClassifier": _sgd,
    "SGDRegressor": _sgd,
    "Ridge": _ridge,
    "RidgeCV": _ridge,
    "ElasticNet": _elastic_net,
    "LassoCV": _elastic_net,
    "ElasticNetCV": _elastic_net,
}
