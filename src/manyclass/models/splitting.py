"""Writes models in blocks of classes: block by block, or from a `LinearModel`."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.io.streams import StrPath
from manyclass.models.linear import LinearModel
from manyclass.models.parts import positive
from manyclass.models.sharded import Block, ShardedModel, finish, write_block
from manyclass.runtime.files import FolderWriter
from manyclass.runtime.threads import ranges

__all__ = ["BLOCK_BYTES", "ShardedModelWriter", "block_width", "split_model", "sparsify_model"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Default size of a dense block in bytes.
BLOCK_BYTES = 1 << 28


class ShardedModelWriter(FolderWriter):
    """Writes a model block by block, atomically: a context manager that creates the folder if no error occurs.

    Parameters
    ----------
    path : path
        The folder, which must not exist.
    n_features : int
        Number of features.
    classes, task, link, parameters, record, feature_names, vectorizer, library_version, temperature
        As in `LinearModel`.

    Raises
    ------
    ValueError
        If the path exists, or, at the end, if the number of labels does not match the blocks.
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
        """Write everything but the blocks, and the manifest."""
        if self._dtype is None:
            raise ValueError(f"{self._path}: a model must have at least one block, got none: call add")
        shape = self._n_features, self._blocks[-1].hi
        made = ShardedModel(self._folder, tuple(self._blocks), shape, self._dtype, self._layout, **self._facts)
        finish(self._folder, made)

    def add(self, weights: Any, intercept: Array) -> None:
        """Write the next block of classes.

        Parameters
        ----------
        weights : ndarray or CSR matrix of shape (n_features, width)
            Weights of the classes of the block.
        intercept : ndarray of shape (width,)
            Their intercepts.

        Raises
        ------
        ValueError
            If the number of features, the dtype or the format differs from that of the earlier blocks.
        """
        layout = "sparse" if sp.issparse(weights) else "dense"
        if weights.shape[0] != self._n_features:
            raise ValueError(f"weights must have {self._n_features} features, got {weights.shape[0]}")
        if self._dtype is not None and (weights.dtype, layout) != (self._dtype, self._layout):
            raise ValueError(
                f"weights must be {self._layout} {self._dtype}, as the earlier blocks, got {layout} {weights.dtype}"
            )
        self._dtype, self._layout = np.dtype(weights.dtype), layout
        lo = self._blocks[-1].hi if self._blocks else 0
        self._blocks.append(write_block(self._folder, f"{len(self._blocks):05d}", lo, weights, intercept, self._facts))


def block_width(
    n_features: int, n_outputs: int, dtype: Any, block_classes: int | None = None, block_bytes: int = BLOCK_BYTES
) -> int:
    """Number of classes of a block: ``block_classes``, or as many as fit in ``block_bytes``, in nearly equal blocks."""
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
        The model; its weights may be memory-mapped.
    path : path
        The folder, which must not exist.
    block_classes : int, optional
        Number of classes of a block, >= 1; by default as many as fit in ``block_bytes``.
    block_bytes : int, default=2**28
        Size of a dense block in bytes.

    Raises
    ------
    ValueError
        If the path exists, or the model is not a `LinearModel`.
    """
    if not isinstance(model, LinearModel):
        raise ValueError(f"model must be a LinearModel, got {type(model).__name__}")
    width = block_width(model.n_features, model.n_outputs, model.dtype, block_classes, block_bytes)
    stored: Any = model.weights
    columns = stored.tocsc() if model.is_sparse else stored
    facts = {
        name: getattr(model, name) for name in ("parameters", "record", "feature_names", "vectorizer", "temperature")
    }
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
