"""Model files: a file of named arrays (see `manyclass.io.tensors`) with a description in its header.

Besides format, version and ``library_version`` (of the library that fitted the model) the header contains

    kind             "linear" or "staged"
    task, link       as in `LinearModel`
    temperature      as there; left out where it is 1
    shape            [n_features, n_outputs] of the weights
    vectorizer       the state in `LinearModel.vectorizer` without its arrays, or null
    parameters, record
    parts            for a staged model: the states of its feature blocks and calibrations without their arrays

The arrays are ``weights`` (an array or a CSR matrix), ``intercept``, optionally ``classes`` and ``feature_names``, and
``vectorizer.NAME``; a staged model has ``stage.NAME`` in place of weights and intercept.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from manyclass.io.tensors import FileError, Kind, TensorFile, Written, write_arrays

__all__ = ["MODEL", "ModelFileError", "Stored", "read_model", "write_model"]


class ModelFileError(FileError):
    """A file is not a model file, or is damaged.

    Examples
    --------
    >>> print(ModelFileError("m.model", "not a model file"))
    m.model: not a model file
    """


MODEL = Kind(
    "manyclass-model",
    1,
    "model file",
    "give a file that LinearModel.save or `manyclass fit` wrote",
    "copy it again from where it was saved, or save the model again",
    ModelFileError,
    {
        "kind": str, "task": str, "link": str, "shape": list, "vectorizer": (dict, type(None)), "parameters": dict,
        "record": dict, "parts": dict,
    },
)  # fmt: skip


class Stored(NamedTuple):
    """The content of a file: the kind of the model, the fields of all models, and those of its kind."""

    kind: str
    common: dict[str, Any]
    described: dict[str, Any]
    arrays: dict[str, Any]


def write_model(path: str | os.PathLike[str], model: Any) -> Written:
    """Write ``model`` to a file, atomically.

    Raises
    ------
    ValueError
        If the model has labels or arrays of a type that files do not support; nothing is written then.
    """
    described, arrays = model.parts()
    arrays = dict(arrays)
    if model.classes is not None:
        arrays["classes"] = model.classes
    if model.feature_names is not None:
        arrays["feature_names"] = model.feature_names
    specification, state = model.vectorizer or (None, {})
    arrays.update({f"vectorizer.{name}": array for name, array in state.items()})
    facts = {name: getattr(model, name) for name in ("kind", "task", "link", "parameters", "record", "library_version")}
    if model.temperature != 1:
        facts["temperature"] = model.temperature
    facts |= {"shape": [model.n_features, model.n_outputs], "vectorizer": specification, "parts": described}
    return write_arrays(path, MODEL, arrays, facts)


def read_model(path: str | os.PathLike[str], mmap: bool) -> Stored:
    """Read a model file. It is checked as `TensorFile` says: weights that are mapped from a large file are not.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ModelFileError
        If the file is not a model file, has a newer format version, or is damaged.
    """
    with TensorFile(path, MODEL) as file:
        described = file.facts
        shape = tuple(described["shape"])
        if len(shape) != 2 or any(type(size) is not int or not 1 <= size < 2**63 for size in shape):
            raise file.damaged(f"the weights have shape {described['shape']}")
        arrays = {}
        for name in file.names:
            mapped = mmap and name.rpartition(".")[2] == "weights"
            array = arrays[name] = file.read(name, mmap=mapped, shape=shape)
            if name == "weights" and array.shape != shape:
                raise file.damaged(f"the weights have shape {array.shape}, expected {shape}")
    specification = described["vectorizer"]
    state = {name.removeprefix("vectorizer."): arrays.pop(name) for name in [*arrays] if name.startswith("vectorizer.")}
    common = {
        "classes": arrays.pop("classes", None),
        "feature_names": arrays.pop("feature_names", None),
        "vectorizer": None if specification is None else (specification, state),
        "temperature": described.get("temperature", 1.0),
        **{name: described[name] for name in ("task", "link", "parameters", "record", "library_version")},
    }
    return Stored(described["kind"], common, {**described["parts"], "shape": described["shape"]}, arrays)
