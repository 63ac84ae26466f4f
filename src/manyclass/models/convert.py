"""Linear models from scikit-learn, to scikit-learn, and as ONNX files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass._version import __version__
from manyclass.models.external import read_external
from manyclass.models.linear import LinearModel
from manyclass.runtime.files import atomic_path
from manyclass.runtime.memory import human

__all__ = ["from_sklearn", "to_onnx", "to_sklearn"]

#: An ONNX file is one protobuf message, of less than 2 GiB; a little is for the graph and the labels.
_ONNX_BYTES = 2**31 - 2**24


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


def to_onnx(model: LinearModel, path: str | os.PathLike[str]) -> None:
    """See `LinearModel.to_onnx`."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError(
            "to_onnx needs the package onnx: install it with  python -m pip install 'manyclass[onnx]'"
        ) from error
    size = 4 * model.n_features * model.n_outputs
    if size > _ONNX_BYTES:
        raise ValueError(
            f"an ONNX file has at most 2 GiB, as one protobuf message, and the dense float32 weights of this model are "
            f"{human(size)}: save the model in the format of this package, or fit with fewer features (hashing)"
        )
    stored: Any = model.weights
    weights = np.asarray(stored.toarray() if model.is_sparse else stored, np.float32)
    constants = {"weights": weights, "intercept": np.asarray(model.intercept, np.float32)}
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [("Gemm", ["X", "weights", "intercept"], "scores", {})]
    number = TensorProto.FLOAT
    outputs: list[tuple[str, Any, list[str | int | None]]] = []
    if model.classes is not None:
        labels = model.classes
        kind = {"U": object, "f": np.float64}.get(labels.dtype.kind, np.int64)
        constants["labels"] = labels.astype(kind)
        label_type = {object: TensorProto.STRING, np.float64: TensorProto.DOUBLE}.get(kind, TensorProto.INT64)
        zero = {"threshold": np.array(model.threshold, np.float32)}
        if model.task == "multilabel":
            constants |= zero
            nodes += [("Greater", ["scores", "threshold"], "positive", {}), ("Cast", ["positive"], "label", {"to": 7})]
            outputs.append(("label", TensorProto.INT64, ["n", model.n_outputs]))
        else:
            if model.task == "binary":
                constants |= zero | {"column": np.array([1], np.int64)}
                nodes += [
                    ("Greater", ["scores", "threshold"], "positive", {}),
                    ("Cast", ["positive"], "place_of", {"to": 7}),
                    ("Squeeze", ["place_of", "column"], "place", {}),
                ]
            else:
                nodes.append(("ArgMax", ["scores"], "place", {"axis": 1, "keepdims": 0}))
            nodes.append(("Gather", ["labels", "place"], "label", {}))
            outputs.append(("label", label_type, ["n"]))
    outputs.append(("scores", number, ["n", model.n_outputs]))
    if model.link != "identity":
        constants["temperature"] = np.array(model.temperature, np.float32)
        nodes.append(("Div", ["scores", "temperature"], "logits", {}))
        if model.task == "binary":
            nodes += [
                ("Neg", ["logits"], "negative", {}),
                ("Concat", ["negative", "logits"], "both", {"axis": 1}),
                ("Sigmoid", ["both"], "probabilities", {}),
            ]
        elif model.link == "softmax":
            nodes.append(("Softmax", ["logits"], "probabilities", {"axis": 1}))
        elif model.task == "multilabel":
            nodes.append(("Sigmoid", ["logits"], "probabilities", {}))
        else:  # softmax of log sigmoid(s) = -softplus(-s): does not underflow
            nodes += [
                ("Neg", ["logits"], "negative", {}),
                ("Softplus", ["negative"], "softplus", {}),
                ("Neg", ["softplus"], "logs", {}),
                ("Softmax", ["logs"], "probabilities", {"axis": 1}),
            ]
        outputs.append(("probabilities", number, ["n", 2 if model.task == "binary" else model.n_outputs]))
    graph = helper.make_graph(
        [helper.make_node(operation, inputs, [out], **facts) for operation, inputs, out, facts in nodes],
        "manyclass",
        [helper.make_tensor_value_info("X", number, ["n", model.n_features])],
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, producer_name="manyclass", producer_version=__version__, opset_imports=opset)
    made.ir_version = 8
    with atomic_path(path) as temporary:
        onnx.save(made, os.fspath(temporary))
