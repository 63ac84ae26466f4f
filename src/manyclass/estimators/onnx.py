"""Converters of estimators for skl2onnx, for pipelines with steps of scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from manyclass.estimators.classifier import LinearClassifier
from manyclass.estimators.cross_validation import LinearClassifierCV, LinearRegressorCV
from manyclass.estimators.regressor import LinearRegressor
from manyclass.models.linear import LinearModel
from manyclass.models.onnx import Graph, add_model, check_size

__all__ = ["register"]

#: From this version on, operators are as in the nodes of `add_model`.
_OPSET = 13


def register() -> None:
    """Make skl2onnx convert LinearClassifier, LinearRegressor and their CV forms, alone and in pipelines.

    Outputs are those of scikit-learn's linear estimators there, with the options ``zipmap``, ``nocl``, ``raw_scores``
    and ``output_class_labels``; without probabilities the scores take their place. Another call changes nothing.

    Raises
    ------
    ImportError
        If the package skl2onnx is not installed.

    Examples
    --------
    >>> from manyclass.estimators.onnx import register
    >>> register()  # doctest: +SKIP
    >>> made = skl2onnx.to_onnx(make_pipeline(StandardScaler(), LinearClassifier()).fit(X, y), X[:1])  # doctest: +SKIP
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError(
            "register needs the package skl2onnx: install it with  python -m pip install skl2onnx"
        ) from error
    options = {
        "zipmap": [True, False, "columns"],
        "nocl": [True, False],
        "raw_scores": [True, False],
        "output_class_labels": [False, True],
    }
    for kind in (LinearClassifier, LinearClassifierCV):
        update_registered_converter(kind, f"Manyclass{kind.__name__}", _class_outputs, _convert, options=options)
    for real in (LinearRegressor, LinearRegressorCV):
        update_registered_converter(real, f"Manyclass{real.__name__}", _real_outputs, _convert)


def _linear(operator: Any) -> LinearModel:
    model = operator.raw_operator.model_
    if not isinstance(model, LinearModel):
        raise ValueError(f"skl2onnx converts estimators with a LinearModel, and this one has a {type(model).__name__}")
    check_size(model)
    if model.classes is not None and model.classes.dtype.kind == "f":  # whole numbers, as fit demands
        return replace(model, classes=model.classes.astype(np.int64))
    return model


def _class_outputs(operator: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    model, n = _linear(operator), operator.inputs[0].get_first_dimension()
    classes: Any = model.classes
    if model.task == "multilabel":
        operator.outputs[0].set_type(Int64TensorType([n, model.n_outputs]))
    else:
        operator.outputs[0].set_type((StringTensorType if classes.dtype.kind == "U" else Int64TensorType)([n]))
    operator.outputs[1].set_type(FloatTensorType([n, len(classes)]))


def _real_outputs(operator: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType

    n = operator.inputs[0].get_first_dimension()
    operator.outputs[0].set_type(FloatTensorType([n, _linear(operator).n_outputs]))


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from onnx import TensorProto, helper

    if container.target_opset < _OPSET:
        raise ValueError(f"target_opset must be at least {_OPSET}, got {container.target_opset}")
    model, graph = _linear(operator), Graph()
    if model.classes is not None and container.get_options(operator.raw_operator, {"raw_scores": False})["raw_scores"]:
        model = replace(model, link="identity", temperature=1.0)
    outputs = add_model(graph, model, graph.add("Cast", ["input"], "rows", to=TensorProto.FLOAT))
    if model.task == "binary" and "probabilities" not in outputs:  # a score for each class, as elsewhere in skl2onnx
        graph.add("Neg", ["scores"], "negative_scores")
        outputs = ["label", graph.add("Concat", ["negative_scores", "scores"], "both_scores", axis=1)]
    last = outputs[-1] if model.classes is not None else "scores"
    names: dict[str, str] = {"input": operator.inputs[0].full_name, last: operator.outputs[-1].full_name}
    if model.classes is not None:
        names["label"] = operator.outputs[0].full_name

    def name(own: str) -> str:
        if own not in names:
            names[own] = scope.get_unique_variable_name(own)
        return names[own]

    for own, array in graph.constants.items():
        kind = TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)
        values = array.ravel() if array.dtype != object else [text.encode() for text in array.ravel()]
        container.add_initializer(name(own), kind, list(array.shape), values)
    for operation, inputs, out, domain, facts in graph.nodes:
        container.add_node(
            operation,
            [name(own) for own in inputs],
            [name(out)],
            op_domain=domain,
            name=scope.get_unique_operator_name(operation),
            **facts,
        )
