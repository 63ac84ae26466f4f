"""Linear models as ONNX files."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np

from manyclass._version import __version__
from manyclass.models.linear import LinearModel
from manyclass.models.parts import require_rows
from manyclass.runtime.files import atomic_path
from manyclass.runtime.memory import human

__all__ = ["Graph", "add_model", "check_size", "to_onnx"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: An ONNX file is one protobuf message, of less than 2 GiB; a little is for the graph and the labels.
_ONNX_BYTES = 2**31 - 2**24


class Graph:
    """Nodes as (operation, inputs, output, domain, attributes), and constants by name."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], str, str, dict[str, Any]]] = []
        self.constants: dict[str, Array] = {}

    def constant(self, name: str, array: Any) -> str:
        """Add a constant; returns its name."""
        self.constants[name] = np.asarray(array)
        return name

    def add(self, operation: str, inputs: list[str], out: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        self.nodes.append((operation, inputs, out, domain, attributes))
        return out


def check_size(model: LinearModel) -> None:
    """Raise a ValueError if the weights do not fit into an ONNX file."""
    size = 4 * model.n_features * model.n_outputs
    if size > _ONNX_BYTES:
        raise ValueError(
            f"an ONNX file has at most 2 GiB, as one protobuf message, and the dense float32 weights of this model are "
            f"{human(size)}: save the model in the format of this package, or fit with fewer features (hashing)"
        )


def add_model(graph: Graph, model: LinearModel, rows: str) -> list[str]:
    """Add nodes from ``rows`` to "label" (not for regression), "scores" and, if there are any, "probabilities".

    Returns the names of these outputs.
    """
    require_rows(model.task)
    add, constant = graph.add, graph.constant
    stored: Any = model.weights
    constant("weights", np.asarray(stored.toarray() if model.is_sparse else stored, np.float32))
    constant("intercept", np.asarray(model.intercept, np.float32))
    add("Gemm", [rows, "weights", "intercept"], "scores")
    outputs = ["scores"]
    if model.classes is not None:
        outputs.insert(0, "label")
        if model.task != "multiclass":
            add("Greater", ["scores", constant("threshold", np.float32(model.threshold))], "positive")
        if model.task == "multilabel":
            add("Cast", ["positive"], "label", to=7)
        else:
            constant("labels", model.classes.astype(_label_type(model)))
            if model.task == "binary":
                add("Cast", ["positive"], "place_of", to=7)
                add("Squeeze", ["place_of", constant("column", np.array([1], np.int64))], "place")
            else:
                add("ArgMax", ["scores"], "place", axis=1, keepdims=0)
            add("Gather", ["labels", "place"], "label")
    if model.link == "identity":
        return outputs
    add("Div", ["scores", constant("temperature", np.float32(model.temperature))], "logits")
    if model.task == "binary":
        add("Neg", ["logits"], "negative")
        add("Concat", ["negative", "logits"], "both", axis=1)
        add("Sigmoid", ["both"], "probabilities")
    elif model.link == "softmax":
        add("Softmax", ["logits"], "probabilities", axis=1)
    elif model.task == "multilabel":
        add("Sigmoid", ["logits"], "probabilities")
    else:  # softmax of log sigmoid(s) = -softplus(-s): does not underflow
        add("Neg", ["logits"], "negative")
        add("Softplus", ["negative"], "softplus")
        add("Neg", ["softplus"], "logs")
        add("Softmax", ["logs"], "probabilities", axis=1)
    return [*outputs, "probabilities"]


def _label_type(model: LinearModel) -> Any:
    """The type of the labels in an ONNX file; object is that of strings."""
    if model.classes is None or model.task == "multilabel":
        return np.int64
    return {"U": object, "f": np.float64}.get(model.classes.dtype.kind, np.int64)


def to_onnx(model: LinearModel, path: str | os.PathLike[str], texts: bool | None) -> None:
    """See `LinearModel.to_onnx`."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError(
            "to_onnx needs the package onnx: install it with  python -m pip install 'manyclass[onnx]'"
        ) from error
    check_size(model)
    graph, rows, opset, own = Graph(), "X", 17, []
    if texts or (texts is None and model.vectorizer is not None):
        from manyclass.models.onnx_text import add_features

        if model.text_vectorizer is None:
            raise ValueError("texts is True, and this model was not fitted on texts: leave texts=None")
        # Operators on strings are of opset 20, the tokenizer is onnxruntime's.
        rows, opset = add_features(graph, model.text_vectorizer, "X"), 20
        own = [helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    names = add_model(graph, model, rows)
    label_type = {object: TensorProto.STRING, np.float64: TensorProto.DOUBLE}.get(_label_type(model), TensorProto.INT64)
    types = {"label": label_type, "scores": TensorProto.FLOAT, "probabilities": TensorProto.FLOAT}
    each: list[Any] = ["n", model.n_outputs]
    shapes: dict[str, list[Any]] = {
        "label": each if model.task == "multilabel" else ["n"],
        "scores": each,
        "probabilities": ["n", 2] if model.task == "binary" else each,
    }
    given = (
        helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", model.n_features])
        if rows == "X"
        else helper.make_tensor_value_info("X", TensorProto.STRING, ["n"])
    )
    made = helper.make_model(
        helper.make_graph(
            [
                helper.make_node(operation, inputs, [out], domain=domain, **facts)
                for operation, inputs, out, domain, facts in graph.nodes
            ],
            "manyclass",
            [given],
            [helper.make_tensor_value_info(name, types[name], shapes[name]) for name in names],
            [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
        ),
        producer_name="manyclass",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", opset), *own],
    )
    made.ir_version = 8 if opset == 17 else 9
    with atomic_path(path) as temporary:
        onnx.save(made, os.fspath(temporary))
