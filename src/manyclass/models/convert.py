"""Linear models from scikit-learn and to scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass._version import __version__
from manyclass.models.external import read_external
from manyclass.models.linear import LinearModel
from manyclass.models.parts import require_rows

__all__ = ["from_sklearn", "to_sklearn"]


def from_sklearn(estimator: Any) -> LinearModel:
    """See `LinearModel.from_sklearn`."""
    if not hasattr(estimator, "get_params"):
        raise ValueError(f"estimator must be a linear estimator of scikit-learn, got {type(estimator).__name__}")
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
    last, before = steps[-1], [step for step in steps[:-1] if step is not None and step != "passthrough"]
    if len(before) > 1 or not all(hasattr(step, "to_state") for step in before):
        raise ValueError(
            "estimator must be a linear estimator, or a pipeline of a manyclass.TextVectorizer or "
            f"manyclass.TableEncoder and one, got {' -> '.join(type(step).__name__ for step in steps)}"
        )
    found = read_external(last)
    classes, K = found.classes, found.weights.shape[1]
    sets = str(getattr(getattr(last, "_label_binarizer", None), "y_type_", "")).startswith("multilabel")
    task = "regression" if classes is None else "multilabel" if sets else "binary" if K == 1 else "multiclass"
    names = None if before else getattr(last, "feature_names_in_", None)
    loss = found.loss
    return LinearModel(
        found.weights,
        np.zeros(K) if found.intercept is None else found.intercept,
        None if classes is None else np.asarray(classes),
        task,
        found.probability,
        # alpha depends on the number of rows, which the estimator does not say.
        parameters={
            "estimator": type(last).__name__,
            "loss": None if loss is None else loss.name,
            **({} if loss is None else {f"loss__{name}": value for name, value in loss.get_params().items()}),
            "l1_ratio": found.l1_ratio,
        },
        feature_names=None if names is None else np.asarray(names, dtype=str),
        vectorizer=before[0].to_state() if before else None,
        library_version=__version__,
    )


def to_sklearn(model: LinearModel) -> Any:
    """See `LinearModel.to_sklearn`."""
    from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    require_rows(model.task)
    if model.task == "multilabel":
        raise ValueError(
            "scikit-learn has no linear estimator whose weights for label sets can be set: fit "
            "OneVsRestClassifier(LinearSVC()) there, or use this model"
        )
    scale = 1.0 / model.temperature if model.link != "identity" else 1.0
    stored: Any = model.weights
    coef = sp.csr_matrix(stored.T) * scale if model.is_sparse else np.ascontiguousarray(stored.T) * scale
    intercept = np.array(model.intercept) * scale
    if model.task == "regression":
        made: Any = Ridge()
        if model.n_outputs == 1:
            coef, intercept = (coef if model.is_sparse else coef[0]), intercept[0]
    elif model.link == "identity":
        made = LinearSVC()
    elif model.link == "sigmoid" and model.task == "multiclass":
        made = SGDClassifier(loss="log_loss")  # whose probabilities are normalized sigmoids
        made.loss_function_ = None
    else:
        made = LogisticRegression()
    made.coef_, made.intercept_, made.n_features_in_ = coef, intercept, model.n_features
    if model.classes is not None:
        made.classes_ = model.classes
    if model.feature_names is not None:
        made.feature_names_in_ = model.feature_names.astype(object)
    vectorizer = model.text_vectorizer
    return made if vectorizer is None else make_pipeline(vectorizer, made)
