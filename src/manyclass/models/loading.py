"""`save` for fitted estimators and pipelines, and `load` for models of every class."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from manyclass.models.base import Model, restore
from manyclass.models.file import ModelFileError, read_model
from manyclass.models.linear import LinearModel
from manyclass.models.sharded import ShardedModel

__all__ = ["load", "save"]


def _class_of(kind: str) -> type[Model] | None:
    """The class of models of a kind in model files; None if there is no such kind."""
    if kind == "staged":
        from manyclass.models.staged import StagedModel  # imports scikit-learn, which takes two seconds

        return StagedModel
    known: dict[str, type[Model]] = {LinearModel.kind: LinearModel, ShardedModel.kind: ShardedModel}
    return known.get(kind)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write the model of a fitted estimator, or of a pipeline that begins with texts or a table, to a file.

    `load` and the command line read it.

    Parameters
    ----------
    estimator : estimator of this package, or scikit-learn pipeline
        Fitted. The last step of a pipeline must be an estimator of this package; it may have one other step, a
        `manyclass.TextVectorizer`, and the model then predicts texts, or a `manyclass.TableEncoder`, and the model then
        predicts data frames.
    path : path
        The file, written atomically.

    Raises
    ------
    ValueError
        If the estimator is not fitted, or the pipeline has other steps.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import manyclass
    >>> from sklearn.pipeline import make_pipeline
    >>> pipeline = make_pipeline(manyclass.TextVectorizer(), manyclass.LinearClassifier(random_state=0))
    >>> pipeline = pipeline.fit(["lost my card", "card stolen", "pay rent"], ["card", "card", "rent"])
    >>> path = os.path.join(tempfile.mkdtemp(), "tickets.model")
    >>> manyclass.save(pipeline, path)
    >>> manyclass.load(path).predict(["where is my card"])
    array(['card'], dtype='<U4')
    """
    from manyclass.io.encoder import TableEncoder  # imports scikit-learn
    from manyclass.io.text import TextVectorizer

    known = (TextVectorizer, TableEncoder)
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
    last, before = steps[-1], [step for step in steps[:-1] if step is not None and step != "passthrough"]
    if not hasattr(last, "model_") or len(before) > 1 or not all(isinstance(step, known) for step in before):
        raise ValueError(
            "estimator must be a fitted estimator of this package, or a pipeline of a manyclass.TextVectorizer or "
            f"manyclass.TableEncoder and one of them, got {' -> '.join(type(step).__name__ for step in steps)}"
        )
    model: Any = last.model_
    if before:
        model = replace(model, vectorizer=before[0].to_state(), feature_names=None)
    model.save(path)


def load(path: str | os.PathLike[str], mmap: bool = True) -> Model:
    """Read a model of any class: `LinearModel`, `StagedModel`, or the folder of a `ShardedModel`.

    Parameters
    ----------
    path : path
        A file or folder written by ``save`` of a model, or by ``manyclass fit``.
    mmap : bool, default=True
        Whether to memory-map the weights, read-only, see `LinearModel.load`.

    Returns
    -------
    Model
        The model, ready to predict.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ModelFileError
        A ValueError: the file is not a model file, is damaged or truncated, or has a newer format version.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from manyclass import LinearModel, load
    >>> path = os.path.join(tempfile.mkdtemp(), "eye.model")
    >>> LinearModel(np.eye(2), np.zeros(2), classes=None, task="regression").save(path)
    >>> type(load(path)).__name__
    'LinearModel'
    """
    if os.path.isdir(path):
        return ShardedModel.open(path)
    stored = read_model(path, mmap)
    found = _class_of(stored.kind)
    if found is None:
        raise ModelFileError(path, f"the model file is damaged (it contains a model of kind {stored.kind!r})")
    return restore(path, stored, found)
