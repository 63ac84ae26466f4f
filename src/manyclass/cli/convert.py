"""``manyclass convert``: data from one format to another."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, check_output, count
from manyclass.cli._data import (
    TABLES,
    TASKS,
    add_file_options,
    add_vectorizer_options,
    describe,
    one_label_a_row,
    read_data,
    stored_layout,
    vectorizer_options,
)
from manyclass.cli._folders import describe_store, is_model, is_store

if TYPE_CHECKING:
    from manyclass.io import Dataset

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "TARGETS", "add_arguments", "run"]

TARGETS = ("svmlight", "xmc", "npz", "npy", "store")

USAGE = "DATA...|MODEL -o OUT"
HELP = "write data in another format, or a model in blocks of classes"
DESCRIPTION = """\
Read DATA and write it in another format, which the name of OUT tells unless --to does. Text formats are compressed if
OUT ends in .gz or .zst. Labels of .npz and .npy go to a file beside, OUT's name with .labels. The XMC format numbers
labels from 0 in ascending order. A store is a folder of shards for data larger than memory: text and .npy are brought
there in as much memory as a shard takes. A model is written in blocks of classes (a folder), and such a folder as one
file again."""
EPILOG = """\
examples:
  manyclass convert train.svm.gz -o train.npz
  manyclass convert train.txt -o train.svm.zst
  manyclass convert tickets.csv -o tickets.npz --vectorizer hashing
  manyclass convert train.svm.gz -o train.store --shard-bytes 1000000000
  manyclass convert part-*.svm.gz -o train.store
  manyclass convert test.csv -o test.store --like train.store
  manyclass convert codes.model -o codes.blocks --block-classes 10000
  manyclass convert train.npz -o - --to svmlight | head
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("data", metavar="DATA|MODEL", nargs="+", help="the data, or a model")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="file to write to")
    parser.add_argument("--to", choices=TARGETS, help="format to write (default: told from the name of OUT)")
    parser.add_argument("--task", choices=TASKS, default="auto", help="what the labels are (default: told from them)")
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), help="of the values (default: float32 if that loses nothing)"
    )
    parser.add_argument("--n-features", type=int, metavar="N", help="width of the data (default: the largest feature)")
    parser.add_argument(
        "--like",
        metavar="MODEL|STORE",
        help="tables: features as in that model, or in the row store that it was fitted on",
    )
    folders = parser.add_argument_group("folders")
    folders.add_argument("--shard-rows", type=int, metavar="N", help="store: most rows of a shard")
    folders.add_argument("--shard-bytes", type=int, metavar="N", help="store: bytes of a shard (default: 2**28)")
    folders.add_argument("--block-classes", type=int, metavar="N", help="model: classes of a block")
    folders.add_argument("--block-bytes", type=int, metavar="N", help="model: bytes of a block (default: 2**28)")
    add_file_options(parser)
    add_vectorizer_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Convert."""
    from manyclass.io import detect_format, write

    if is_model(args.data):
        _convert_model(args, screen)
        return 0
    _refuse_options(args, "block_classes", "block_bytes", what="models")
    to = args.to or _target(args.output)
    columns = _columns_like(args)
    if to == "store":
        _convert_to_store(args, screen, columns)
        return 0
    _refuse_options(args, "shard_rows", "shard_bytes", what="stores")
    if args.output != "-":
        check_output("-o", args.output, args.data, args.labels)
    elif to not in ("svmlight", "xmc"):
        raise CommandError("-o - writes text to standard output: --to svmlight or xmc, or give the name of a file")
    format = args.format or detect_format(args.data)
    data = read_data(
        args.data,
        args,
        screen,
        task="multilabel" if to == "xmc" and args.task == "auto" else args.task,
        labels=args.labels,
        # What is written in the file keeps its digits; what is computed from texts has those of a fit.
        dtype=args.dtype or ("float32" if format in TABLES else "float64"),
        n_features=args.n_features,
        zero_based=args.zero_based,
        **columns,
    )
    kept = {"tfidf": "the vocabulary is", "table": "means, categories and vocabulary are"}
    kind = "" if data.vectorizer is None or args.like else data.vectorizer.to_state()[0]["kind"]
    if kind in kept:
        instead = " (not so with --vectorizer hashing)" if kind == "tfidf" else " (not so of a row store)"
        screen.warn(f"{kept[kind]} not kept: other files get other columns{instead}")
    if args.dtype is None:
        data = _narrowed(data)
    data = _shaped(data, to)
    with _on_disk(args.output) as path:
        write(path, data, format=to)  # type: ignore[arg-type]
    screen.say(f"wrote {args.output}: {describe(replace(data, format=to))}")
    return 0


@contextmanager
def _on_disk(path: str) -> Iterator[str]:
    """The file to write; for - one whose content goes to standard output in the end."""
    if path != "-":
        yield path
        return
    with TemporaryDirectory(prefix="manyclass-") as folder:
        draft = os.path.join(folder, "data")
        yield draft
        with open(draft, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _refuse_options(args: argparse.Namespace, *names: str, what: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise CommandError(f"--{name.replace('_', '-')} is for {what}: leave it out")


def _limits(args: argparse.Namespace, *names: str) -> dict[str, int]:
    """The limits that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _columns_like(args: argparse.Namespace) -> dict[str, Any]:
    """How the columns of a table become features: as the options say, or as those of the model or store of --like."""
    from manyclass import load
    from manyclass.io import detect_format
    from manyclass.io.store import RowStore

    options = vectorizer_options(args)
    if args.like is None:
        return {"vectorizer": options}
    if options or (args.format or detect_format(args.data)) not in TABLES:
        raise CommandError(
            "--like is for a table, whose options on texts are those of the other one: leave them out, and --like for "
            "other data, whose features have numbers"
        )
    if is_store(args.like):
        store = RowStore(args.like)
        vectorizer, layout = store.vectorizer, store.table
    else:
        model = load(args.like)
        vectorizer, layout = model.text_vectorizer, stored_layout(model, args.like)
    if vectorizer is None:
        raise CommandError(f"--like {args.like}: its features are not those of a table: leave it out")
    return {"vectorizer": vectorizer, "layout": layout}


def _convert_to_store(args: argparse.Namespace, screen: Screen, columns: dict[str, Any]) -> None:
    """Rows go to the store as they are read."""
    from manyclass.io import detect_format
    from manyclass.io.store import RowStore, RowStoreWriter
    from manyclass.io.store.reading import StoreSpill

    format = args.format or detect_format(args.data)
    texts = format in TABLES
    with RowStoreWriter(args.output, **_limits(args, "shard_rows", "shard_bytes")) as writer:
        spill = StoreSpill(writer, narrow=args.dtype is None)
        data = read_data(
            args.data,
            args,
            screen,
            task=args.task,
            labels=args.labels,
            dtype=args.dtype or ("float32" if texts else "float64"),
            n_features=args.n_features,
            zero_based=args.zero_based,
            spill=spill,
            **columns,
        )
        single = one_label_a_row(data) if args.task != "multilabel" else None
        if args.dtype is None and not spill.used:
            data = _narrowed(data)
        spill.finish(data if single is None else replace(single, X=data.X))
    screen.say(f"wrote {args.output}: {describe_store(RowStore(args.output))}")


def _convert_model(args: argparse.Namespace, screen: Screen) -> None:
    """A model to blocks of classes, or back."""
    from manyclass import load
    from manyclass.models.linear import LinearModel
    from manyclass.models.sharded import ShardedModel
    from manyclass.models.splitting import split_model
    from manyclass.runtime.memory import human

    _refuse_options(args, "to", "shard_rows", "shard_bytes", what="data")
    model = load(args.data)
    if isinstance(model, ShardedModel):
        _refuse_options(args, "block_classes", "block_bytes", what="models that are one file")
        check_output("-o", args.output, args.data)
        whole = model.assemble()
        whole.save(args.output)
        screen.say(f"wrote {args.output}: {human(whole.nbytes)} of weights")
        return
    if not isinstance(model, LinearModel):
        raise CommandError(f"{args.data} is a model in stages, and linear models have blocks of classes: keep its file")
    split_model(model, args.output, **_limits(args, "block_classes", "block_bytes"))
    made = ShardedModel.open(args.output)
    screen.say(f"wrote {args.output}: {count(len(made.blocks), 'block')} of classes, {human(made.nbytes)}")


def _target(path: str) -> str:
    """The format that a name tells, as a writer has one."""
    from manyclass.io import named_format

    known = named_format(path)
    if known not in TARGETS:
        raise CommandError(f"-o {path}: its name does not tell the format: name it with --to ({', '.join(TARGETS)})")
    return known


def _shaped(data: Dataset, to: str) -> Dataset:
    """The data as the format holds it: sparse or dense."""
    from scipy.sparse import csr_matrix, issparse

    from manyclass.runtime.memory import human, require

    X: Any = data.X
    if to == "npz" and not issparse(X):
        return replace(data, X=csr_matrix(X))
    if to == "npy" and issparse(X):
        size = X.shape[0] * X.shape[1] * X.dtype.itemsize
        try:
            require({"dense matrix": size}, "")
        except MemoryError as error:
            raise CommandError(
                f"as a dense matrix the data take {human(size)}, more than there is: .npz, svmlight and xmc stay sparse"
            ) from error
        return replace(data, X=X.toarray())
    return data


def _narrowed(data: Dataset) -> Dataset:
    """The data in float32, if every value is the same there: half the bytes, and the digits it was written with."""
    import numpy as np
    from scipy.sparse import issparse

    if not issparse(data.X) or data.X.dtype == np.float32:
        return data
    with np.errstate(over="ignore"):
        short = data.X.data.astype(np.float32)
    return replace(data, X=data.X.astype(np.float32)) if np.array_equal(short, data.X.data) else data
