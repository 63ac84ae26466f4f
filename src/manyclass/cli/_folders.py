"""Folders and several files on the command line: row stores, models in blocks of classes, files read as one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, count

if TYPE_CHECKING:
    from manyclass.io.store import RowStore, RowView

__all__ = [
    "describe_store",
    "format_of",
    "gather",
    "is_model",
    "is_store",
    "most_rows",
    "refuse_other_features",
    "size_of",
    "store_facts",
    "store_rows",
    "store_table",
]

#: Bytes of rows of a store that are predicted at a time.
_ROWS_BYTES = 1 << 27


def gather(args: argparse.Namespace) -> None:
    """Put what is to be read in place of folders, patterns and lists of files; other paths stay as they are."""
    from manyclass.io.formats import joined

    for name in ("data", "valid", "file"):
        given = getattr(args, name, None)
        if isinstance(given, list):
            if "-" in given and len(given) > 1:
                raise CommandError("- is standard input, and is read alone: name files, or pipe all of them")
            given = given if len(given) > 1 else next(iter(given), None)
        if hasattr(args, name):
            setattr(args, name, None if given is None else joined(given))


def format_of(path: str) -> str | None:
    """The format of a file or folder of this package, such as "manyclass-index"; None of anything else."""
    from manyclass.io.folder import ANY, folder_format
    from manyclass.io.tensors import FileError, TensorFile

    if os.path.isdir(path):
        return folder_format(path)
    if not is_model(path):
        return None
    try:
        with TensorFile(path, ANY) as file:
            return str(file.facts["format"])
    except FileError:
        return None


def is_model(path: str) -> bool:
    """Whether this is a model: a folder of blocks, or a file that starts as a safetensors file does."""
    if isinstance(path, os.PathLike):  # several files
        return False
    if os.path.isdir(path):
        from manyclass.io.store import folder_format

        return folder_format(path) == "manyclass-sharded-model"
    with open(path, "rb") as file:
        start = file.read(9)
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") < 1 << 32


def is_store(path: str) -> bool:
    """Whether this is to be opened as a row store: any folder that is no model."""
    return isinstance(path, str) and os.path.isdir(path) and not is_model(path)


def size_of(path: str) -> int:
    """Bytes of a file, or of the files in a folder."""
    from manyclass.io._joined import Joined

    if isinstance(path, Joined):
        return sum(path.sizes())
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(file.stat().st_size for file in Path(path).iterdir() if file.is_file())


def refuse_other_features(path: str, own: Any, vectorizer: Any) -> None:
    """Refuse a store whose ``own`` vectorizer gives its features other meanings than ``vectorizer`` does.

    Rows without a vectorizer may have been made by any program: they are taken as they are.
    """
    import numpy as np

    if own is None or vectorizer is None:
        return
    (told, arrays), (expected, others) = own.to_state(), vectorizer.to_state()
    same = told == expected and arrays.keys() == others.keys()
    if not same or not all(np.array_equal(arrays[name], others[name]) for name in arrays):
        raise CommandError(
            f"{path} has the features of its own table, and the model those of the table of its fit: give the table "
            "itself as DATA, or write the store again with manyclass convert TABLE --like, and the model or the store "
            "of the fit"
        )


def store_rows(path: str, n_features: int, vectorizer: Any) -> RowView:
    """The rows of a store, none of which is read yet, as wide as a model needs them."""
    from manyclass.io.store import RowStore

    store = RowStore(path)
    refuse_other_features(path, store.vectorizer, vectorizer)
    if store.shape[1] > n_features:
        raise CommandError(
            f"{path} has {count(store.shape[1], 'feature')}, the model {count(n_features)}: write the store again with "
            f"--n-features {n_features}"
        )
    store.fit_width(n_features)
    return store.rows()


def most_rows(X: Any) -> int:
    """Rows that are taken at a time: of a store as many as are not much in memory."""
    store = getattr(X, "store", None)
    if store is None:
        return 1 << 16
    each = store.n_stored / max(1, len(store)) * (store.dtype.itemsize + store.index_dtype.itemsize)
    return int(max(1, min(1 << 16, _ROWS_BYTES // max(1, each))))


def store_facts(store: RowStore) -> dict[str, Any]:
    """What the manifest of a store says."""
    n, d = store.shape
    return {
        "format": "store",
        "rows": n,
        "features": d,
        "layout": store.layout,
        "dtype": store.dtype.name,
        "index_dtype": store.index_dtype.name,
        "stored": store.n_stored,
        "density": store.n_stored / (n * d) if n and d else 0.0,
        "targets": store.kind,
        "outputs": store.n_outputs,
        "shards": store.n_shards,
        "bytes": store.nbytes,
        "weighted": store.weighted,
        "source": store.source,
        "source_format": store.source_format,
        "notes": list(store.notes),
    }


def store_table(store: RowStore, facts: dict[str, Any], verified: bool) -> dict[str, str]:
    """The same for people."""
    from manyclass.runtime.memory import human

    targets = {
        "none": "none",
        "classes": f"one a row, of {count(store.n_outputs, 'class')}",
        "labels": f"sets, of {count(store.n_outputs, 'label')}",
        "numbers": f"numbers to predict, {count(store.n_outputs, 'output')}",
    }[store.kind]
    rows = {
        "kind": f"row store, {store.layout}",
        "files": f"{human(store.nbytes)} in {count(store.n_shards, 'shard')}"
        + (", every checksum as it was written" if verified else ""),
        "rows": count(facts["rows"]),
        "features": count(facts["features"]),
        "stored values": f"{count(facts['stored'])} ({facts['density']:.3%}) of {facts['dtype']}",
        "labels": targets,
    }
    if store.source:
        rows["made from"] = f"{store.source} ({store.source_format})"
    rows.update({"note" if place == 0 else f"note {place + 1}": note for place, note in enumerate(facts["notes"])})
    return rows


def describe_store(store: RowStore) -> str:
    """The store in half a line."""
    from manyclass.runtime.memory import human

    parts = [count(store.shape[0], "row"), count(store.shape[1], "feature"), f"{count(store.n_stored)} stored values"]
    if store.kind != "none":
        nouns = {"classes": "class", "labels": "label", "numbers": "output"}
        parts.append(count(store.n_outputs, nouns[store.kind]))
    return f"{', '.join(parts)}, {human(store.nbytes)} in {count(store.n_shards, 'shard')}"
