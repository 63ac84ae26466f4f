"""Writing models in blocks of classes: block by block, or from a model that is one file."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.io.streams import StrPath
from manyclass.models.base import positive
from manyclass.models.file import write_model
from manyclass.models.linear import LinearModel
from manyclass.models.sharded import Block, ShardedModel, finish
from manyclass.runtime.files import FolderWriter
from manyclass.runtime.threads import ranges

__all__ = ["BLOCK_BYTES", "ShardedModelWriter", "block_width", "split_model", "sparsify_model"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Bytes of a dense block, where nobody says otherwise.
BLOCK_BYTES = 1 << 28


class ShardedModelWriter(FolderWriter):
    """Writes a model block by block. A context manager: the folder takes its name when the block ends without an error.

    Parameters
    ----------
    path : path
        The folder; there must be nothing under that name.
    n_features : int
    classes, task, link, parameters, record, feature_names, vectorizer, library_version
        As in `LinearModel`.

    Raises
    ------
    ValueError
        If there is something under that name, or, at the end, if blocks and labels do not fit.
    """

    def __init__(
        self,
        path: StrPath,
        n_features: int,
        *,
        classes: Array | None,
        task: str,
        link: str = "identity",
        **facts: Any,
    ) -> None:
        super().__init__(path)
        self._n_features = n_features
        self._facts: dict[str, Any] = {"classes": classes, "task": task, "link": link, **facts}
        self._blocks: list[Block] = []
        self._dtype: np.dtype[Any] | None = None
        self._layout = ""

    def finish(self) -> None:
        """Write what belongs to no block, and the manifest."""
        if self._dtype is None:
            raise ValueError(f"{self._path}: there is no block to write")
        shape = self._n_features, self._blocks[-1].hi
        made = ShardedModel(self._folder, tuple(self._blocks), shape, self._dtype, self._layout, **self._facts)
        finish(self._folder, made)

    def add(self, weights: Any, intercept: Array) -> None:
        """Write the next block of classes.

        Parameters
        ----------
        weights : ndarray or CSR matrix of shape (n_features, width)
        intercept : ndarray of shape (width,)

        Raises
        ------
        ValueError
            If it does not fit the blocks before.
        """
        layout = "sparse" if sp.issparse(weights) else "dense"
        if weights.shape[0] != self._n_features:
            raise ValueError(f"the block has {weights.shape[0]} features; expected {self._n_features}")
        if self._dtype is not None and (weights.dtype, layout) != (self._dtype, self._layout):
            raise ValueError(f"the block is {layout} {weights.dtype}; those before {self._layout} {self._dtype}")
        self._dtype, self._layout = np.dtype(weights.dtype), layout
        lo = self._blocks[-1].hi if self._blocks else 0
        hi = lo + int(weights.shape[1])
        path = self._folder / f"block-{len(self._blocks):05d}.safetensors"
        task = self._facts["task"]
        classes = self._facts["classes"]
        if classes is not None and task != "binary":
            classes = classes[lo:hi]
        model = LinearModel(weights, intercept, classes, task, self._facts["link"])
        self._blocks.append(Block(lo, hi, write_model(path, model)))


def block_width(
    n_features: int, n_outputs: int, dtype: Any, block_classes: int | None = None, block_bytes: int = BLOCK_BYTES
) -> int:
    """Classes of a block: as asked for, or as many as fit in so many bytes; blocks of nearly equal width."""
    if block_classes is not None:
        return min(positive("block_classes", block_classes), n_outputs)
    fit = max(1, positive("block_bytes", block_bytes) // max(1, n_features * int(np.dtype(dtype).itemsize)))
    blocks = -(-n_outputs // fit)
    return -(-n_outputs // blocks)


def split_model(
    model: LinearModel, path: StrPath, *, block_classes: int | None = None, block_bytes: int = BLOCK_BYTES
) -> None:
    """Write a model in blocks of classes, with the same predictions to the last bit.

    Parameters
    ----------
    model : LinearModel
        May be mapped.
    path : path
        The folder to make.
    block_classes : int, optional
        Classes of a block; by default as many as fit in ``block_bytes``.
    block_bytes : int
        Bytes of a dense block.

    Raises
    ------
    ValueError
        If there is something under that name, or the model is in stages.
    """
    if not isinstance(model, LinearModel):
        raise ValueError(f"model must be a LinearModel, got {type(model).__name__}: only that has blocks of classes")
    width = block_width(model.n_features, model.n_outputs, model.dtype, block_classes, block_bytes)
    stored: Any = model.weights
    columns = stored.tocsc() if model.is_sparse else stored
    facts = {name: getattr(model, name) for name in ("parameters", "record", "feature_names", "vectorizer")}
    with ShardedModelWriter(
        path,
        model.n_features,
        classes=model.classes,
        task=model.task,
        link=model.link,
        library_version=model.library_version,
        **facts,
    ) as writer:
        for lo, hi in ranges(model.n_outputs, width):
            part = columns[:, lo:hi]
            weights = sp.csr_matrix(part) if model.is_sparse else np.ascontiguousarray(part)
            writer.add(weights, np.ascontiguousarray(model.intercept[lo:hi]))


def sparsify_model(model: ShardedModel, path: StrPath, threshold: float = 0.0) -> None:
    """Write a model in blocks of classes to another folder, without weights of magnitude ``threshold`` or less."""
    with ShardedModelWriter(path, model.n_features, **model.common()) as writer:
        for number in range(len(model.blocks)):
            block = model.block(number).sparsify(threshold)
            writer.add(block.weights, block.intercept)
