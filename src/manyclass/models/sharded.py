"""`ShardedModel`: a linear model in blocks of classes, in a folder whose blocks are memory-mapped one after the other.

Layout (format version 1)
-------------------------
A folder with ``manifest.json`` (shape and task of the model, and the name, size, SHA-256 and classes of each block),
``model-NUMBER.safetensors`` (everything but the weights: labels, names, vectorizer, record; see
`manyclass.models.file`) and a file for each block, a model file with the `LinearModel` of its classes.
"""

from __future__ import annotations

import shutil
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass._version import __version__
from manyclass.io.folder import StoreError, read_manifest, verify_files, write_manifest
from manyclass.io.streams import StrPath
from manyclass.io.tensors import Written
from manyclass.kernels.scoring import Scorer
from manyclass.models.blocks import BlockModel
from manyclass.models.file import ModelFileError, read_model, write_model
from manyclass.models.linear import LinearModel
from manyclass.runtime import memory
from manyclass.runtime.files import atomic_folder

__all__ = ["Block", "ShardedModel", "finish", "write_block"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FORMAT, VERSION = "manyclass-sharded-model", 1
#: Fraction of the available address space that memory-mapped blocks may occupy.
_SHARE = 0.25


class Block(NamedTuple):
    """A block of classes on disk."""

    lo: int
    hi: int
    file: Written


@dataclass(frozen=True, eq=False)
class ShardedModel(BlockModel):
    """A linear model whose weights are on disk in blocks of classes.

    Scores, rankings and probabilities equal those of the `LinearModel` with the same weights to the last bit. Blocks
    are memory-mapped when they are needed; how many stay mapped depends on the available address space.

    Parameters
    ----------
    path : Path
        The folder.
    blocks : tuple of Block
        In ascending order of their classes.
    shape : tuple of int
        Number of features and of outputs.
    weight_dtype : dtype
        float32 or float64.
    layout : {"dense", "sparse"}
        Format of the weights.
    classes, task, link, parameters, record, feature_names, vectorizer, library_version, temperature
        As in `LinearModel`.

    See Also
    --------
    manyclass.models.splitting.split_model : Writes a `LinearModel` in blocks of classes.
    manyclass.load : Opens a model.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from manyclass import LinearModel, load
    >>> from manyclass.models.splitting import split_model
    >>> whole = LinearModel(np.eye(4), np.zeros(4), classes=np.array(list("abcd")), task="multiclass")
    >>> path = os.path.join(tempfile.mkdtemp(), "eye.blocks")
    >>> split_model(whole, path, block_classes=3)
    >>> model = load(path)
    >>> len(model.blocks), model.predict(np.eye(4)[::-1]).tolist()
    (2, ['d', 'c', 'b', 'a'])
    """

    path: Path
    blocks: tuple[Block, ...]
    shape: tuple[int, int]
    weight_dtype: np.dtype[Any]
    layout: str
    classes: Array | None
    task: str
    link: str = "identity"
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    record: dict[str, Any] = field(default_factory=dict, repr=False)
    feature_names: Array | None = field(default=None, repr=False)
    vectorizer: tuple[dict[str, Any], dict[str, Array]] | None = field(default=None, repr=False)
    library_version: str = __version__
    temperature: float = 1.0
    _open: OrderedDict[int, LinearModel] = field(default_factory=OrderedDict, repr=False)
    kind = "sharded"

    @classmethod
    def open(cls, path: StrPath) -> ShardedModel:
        """Open a folder, without reading weights.

        Raises
        ------
        OSError
            If the folder does not exist.
        ModelFileError, StoreError
            ValueErrors: the folder does not contain such a model, is damaged, or was written by a newer version.
        """
        folder = Path(path)
        facts = read_manifest(folder, FORMAT, VERSION, "a model in blocks of classes")
        try:
            shape = int(facts["shape"][0]), int(facts["shape"][1])
            blocks = tuple(
                Block(int(entry["classes"][0]), int(entry["classes"][1]), Written(**entry["file"]))
                for entry in facts["blocks"]
            )
            common = Written(**facts["common"])
            dtype, layout = np.dtype(facts["dtype"]), str(facts["layout"])
            ends = [0, *(block.hi for block in blocks)]
            if (
                min(shape) < 1
                or ends[-1] != shape[1]
                or any(b.lo != end or b.hi <= b.lo for b, end in zip(blocks, ends))
            ):
                raise ValueError("its blocks do not cover its classes")
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise StoreError(path, f"its manifest is damaged ({error!r}): write the model again") from error
        verify_files(folder, [common])
        stored = read_model(folder / common.file, mmap=False)
        try:
            return cls(folder, blocks, shape, dtype, layout, **stored.common)
        except ValueError as error:
            raise ModelFileError(folder / common.file, f"the model is damaged ({error}): write it again") from error

    # --- properties -------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> Any:
        """Those of a `LinearModel`; here they are on disk.

        Raises
        ------
        AttributeError
            Always; it names `block` and `assemble`.
        """
        raise AttributeError(
            f"the weights are in blocks of classes in {self.path}, and never whole in memory: of this model, "
            "block(number).weights maps those of some classes, assemble().weights reads all"
        )

    @property
    def intercept(self) -> Array:
        """Intercepts, (n_outputs,), from all blocks."""
        return np.concatenate([self.block(number).intercept for number in range(len(self.blocks))])

    @property
    def nbytes(self) -> int:
        """Size of the blocks on disk in bytes."""
        return sum(block.file.bytes for block in self.blocks)

    def summary(self) -> dict[str, Any]:
        """A description of the model as a dict for JSON. Reads all weights, one block at a time."""
        nonzero, intercept = 0, False
        for number in range(len(self.blocks)):
            block = self.block(number)
            nonzero += block.n_nonzero
            intercept = intercept or bool(np.any(block.intercept))
        layout, size = f"{self.layout}, in {len(self.blocks)} blocks of classes,", self.n_features * self.n_outputs
        return self._described(layout, size, nonzero, intercept, n_blocks=len(self.blocks))

    def verify(self) -> None:
        """Read every file and compare it with its checksum.

        Raises
        ------
        StoreError
            Naming the first block that is missing or does not match its checksum.
        """
        verify_files(self.path, [block.file for block in self.blocks])

    def block(self, number: int) -> LinearModel:
        """The memory-mapped model of one block of classes.

        Raises
        ------
        StoreError
            If its file is missing, or its size or content does not match the manifest.
        """
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        block = self.blocks[number]
        path = self.path / block.file.file
        left = memory.address_space()
        if left is not None:
            # Unmap blocks before mapping another one.
            mapped = sum(self.blocks[other].file.bytes for other in self._open)
            room = _SHARE * (left + mapped)
            while self._open and mapped + block.file.bytes > room:
                mapped -= self.blocks[self._open.popitem(last=False)[0]].file.bytes
        if not path.is_file():
            raise StoreError(path, "the block is missing: copy the model's folder again")
        if path.stat().st_size != block.file.bytes:
            raise StoreError(path, f"has {path.stat().st_size} bytes, expected {block.file.bytes}: copy it again")
        found = LinearModel.load(path)
        if found.weights.shape != (self.n_features, block.hi - block.lo) or found.dtype != self.dtype:
            raise StoreError(
                path,
                f"has weights of shape {found.weights.shape} and {found.dtype}, expected "
                f"{(self.n_features, block.hi - block.lo)} and {self.dtype}, as in the manifest: copy it again",
            )
        self._open[number] = found
        return found

    def _scorers(self) -> Iterator[tuple[int, int, Scorer]]:
        for number, block in enumerate(self.blocks):
            found = self.block(number)
            yield block.lo, block.hi, Scorer(found.weights, found.intercept)
            del found

    # --- conversion -------------------------------------------------------------------------------------------------

    def assemble(self) -> LinearModel:
        """The same model in memory, as a `LinearModel`.

        Raises
        ------
        MemoryError
            If there is not enough memory.
        """
        sparse = self.layout == "sparse"
        size = self.nbytes if sparse else self.n_features * self.n_outputs * self.dtype.itemsize
        there = memory.available()
        if there is not None and size > there:
            raise MemoryError(
                f"the model needs {memory.human(size)} of memory, and {memory.human(there)} are available: use the "
                "ShardedModel itself, which reads one block at a time"
            )
        intercept = np.empty(self.n_outputs, self.dtype)
        weights: Any = None if sparse else np.empty(self.shape, self.dtype)
        pieces = []
        for number, block in enumerate(self.blocks):
            found = self.block(number)
            intercept[block.lo : block.hi] = found.intercept
            if sparse:
                pieces.append(sp.csr_matrix(found.weights))
            else:
                weights[:, block.lo : block.hi] = found.weights
        if sparse:
            weights = sp.csr_matrix(sp.hstack(pieces, format="csr"))
        return LinearModel(weights, intercept, **self.common())

    # --- file -------------------------------------------------------------------------------------------------------

    def save(self, path: StrPath) -> None:
        """Write the model to another folder, including fields changed by `dataclasses.replace`.

        Raises
        ------
        ValueError
            If the path exists already.
        """
        with atomic_folder(path) as folder:
            for block in self.blocks:
                shutil.copyfile(self.path / block.file.file, folder / block.file.file)
            finish(folder, self)

    def update(self, **changes: Any) -> ShardedModel:
        """Change fields of the model (labels, record, parameters, ...) in its folder, without rewriting the weights.

        Raises
        ------
        ValueError
            If a field is invalid; the folder is not changed then.
        """
        changed = replace(self, **changes)
        finish(self.path, changed)
        return changed

    def parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"blocks": len(self.blocks)}, {}


def write_block(folder: Path, name: str, lo: int, weights: Any, intercept: Array, facts: dict[str, Any]) -> Block:
    """Write the block of classes from ``lo`` on to a folder; ``facts`` are the classes, task and link of the model."""
    hi = lo + int(weights.shape[1])
    classes = facts["classes"]
    if classes is not None and facts["task"] != "binary":
        classes = classes[lo:hi]
    model = LinearModel(weights, intercept, classes, facts["task"], facts["link"])
    return Block(lo, hi, write_model(folder / f"block-{name}.safetensors", model))


def finish(folder: Path, model: ShardedModel) -> None:
    """Write everything but the weights to a new file, then the manifest: an interruption keeps the old model intact."""
    before = sorted(folder.glob("model-*.safetensors"))
    common = write_model(folder / f"model-{uuid.uuid4().hex[:8]}.safetensors", model)
    facts = {
        "shape": list(model.shape),
        "dtype": model.dtype.name,
        "layout": model.layout,
        "task": model.task,
        "common": common._asdict(),
        "blocks": [{"classes": [block.lo, block.hi], "file": block.file._asdict()} for block in model.blocks],
    }
    write_manifest(folder, FORMAT, VERSION, facts)
    for stale in before:
        stale.unlink()
