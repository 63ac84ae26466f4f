"""``manyclass info``: what a model or a file of data is."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from manyclass.cli._advice import facts_of, facts_of_store
from manyclass.cli._common import CommandError, Screen, count, duration, sentence
from manyclass.cli._data import (
    TASKS,
    add_column_options,
    add_file_options,
    comma_separated,
    read_data,
    stored_layout,
)
from manyclass.cli._folders import format_of, is_model, is_store, size_of, store_facts, store_table
from manyclass.report.advice import advise

if TYPE_CHECKING:
    from manyclass.io import Dataset
    from manyclass.io.store import RowStore
    from manyclass.models.base import Model
    from manyclass.report.advice import Advice

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = "MODEL|DATA"
HELP = "what a model or a file of data is, and whether it is intact"
DESCRIPTION = """\
Tell what a file is: its shape, its classes and how it was made. --verify reads a model, an index, a row store or a
checkpoint and compares it with its checksums: exit code 1, and one line with the file, the array and what to do, where
something has changed."""
EPILOG = """\
examples:
  manyclass info codes.model
  manyclass info train.svm.gz --json
  manyclass info train.store --verify
  manyclass info tickets.csv --text-column body --choose
  manyclass info train.store --processes 4
"""

_DAMAGED = 1
#: Format -> what it is, besides models, row stores and data.
_KEPT = {
    "manyclass-index": "index",
    "manyclass-run": "checkpoint",
    "manyclass-checkpoint": "checkpoint",
    "manyclass-training": "checkpoint",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("file", metavar="MODEL|DATA", help="the file")
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--task", choices=TASKS, default="auto", help="what the labels are (default: told from them)")
    parser.add_argument("--verify", action="store_true", help="read all of it and compare it with its checksums")
    parser.add_argument(
        "--choose",
        action="store_true",
        help="data: the loss, the solver and the alpha that suit it, with memory, time and reasons",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="row store: the memory that each of N processes of a fit with --solver ds_mlr needs",
    )
    add_file_options(parser)
    add_column_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Describe the file."""
    stored = is_store(args.file) and format_of(args.file) not in _KEPT
    if args.choose and not stored and (is_store(args.file) or is_model(args.file)):
        raise CommandError(f"--choose needs labeled rows; {args.file} is a folder or a model: name the data")
    if args.processes is not None and (args.processes < 1 or not stored):
        raise CommandError(
            f"--processes is a number of processes, at least 1, for a row store; got {args.processes} for {args.file}: "
            "write the data as a store first, with manyclass convert DATA -o NAME.store"
        )
    ours = (isinstance(args.file, str) and os.path.isdir(args.file)) or is_model(args.file)
    if args.verify:
        if not ours:
            raise CommandError(f"--verify is for models, indexes, row stores and checkpoints; {args.file} is data")
        from manyclass.io import verify
        from manyclass.io.tensors import FileError

        try:
            verify(args.file)
        except FileError as error:
            screen.fail(sentence(error, args))
            return _DAMAGED
    format = format_of(args.file) if ours else None
    if format in _KEPT:
        _describe_kept(args, screen, _KEPT[format])
        return 0
    if is_store(args.file):
        _describe_store(args, screen)
        return 0
    if ours:
        from manyclass import load

        model = load(args.file)
        facts = {"file": args.file, "file_bytes": size_of(args.file), "kind": "model", **model.summary()}
        facts["verified"] = args.verify
        if args.json:
            screen.json(facts)
        else:
            screen.facts(args.file, _model_rows(model, facts))
        return 0
    data = read_data(
        args.file, args, Screen(quiet=True), task=args.task, labels=args.labels, zero_based=args.zero_based
    )
    facts = {
        "file": str(args.file),
        "file_bytes": size_of(args.file),
        "kind": "data",
        "format": data.format,
        "dtype": data.X.dtype.name,
        **data.summary(),
        **_class_sizes(data),
        "notes": list(data.notes),
    }
    advice = advise(facts_of(data)) if args.choose else None
    if args.json:
        screen.json(facts if advice is None else {**facts, "advice": asdict(advice)})
        return 0
    screen.facts(str(args.file), _data_rows(facts))
    if advice is not None:
        screen.facts("what suits it", _advice_rows(advice, args))
    return 0


#: The options of reading that a fit needs as well.
_READING = (
    *("format", "labels", "label_separator", "unlabeled", "delimiter"),
    *("text_column", "label_column", "number_columns", "category_columns", "ignore_columns"),
)


def _advice_rows(advice: Advice, args: argparse.Namespace) -> dict[str, str]:
    from manyclass.runtime.memory import human

    reasons = advice.reasons
    rows = {
        "loss": f"{advice.loss}: {reasons['loss']}",
        "solver": f"{advice.solver}: {reasons['solver']}",
        "alpha": f"{advice.alpha}: {reasons['alpha']}",
    }
    if "intercept" in reasons:
        rows["intercept"] = reasons["intercept"]
    rows["memory"] = f"about {human(advice.nbytes)} besides the data"
    rows["time"] = f"about {duration(advice.seconds)} a fit on one core, to a factor of five; --alpha auto is several"
    rows["in Python"] = advice.call
    given = {f"--{name.replace('_', '-')}": getattr(args, name, None) for name in _READING}
    words: list[str] = []
    for option, value in given.items():
        if option == "--text-column" and isinstance(value, list):
            words += [word for name in value for word in (option, name)]
        elif value is not None:
            words += [option, value if isinstance(value, str) else comma_separated(value)]
    rows["here"] = f"{shlex.join(['manyclass', 'fit', str(args.file), *words])} {advice.options} -o MODEL"
    for place, other in enumerate(advice.alternatives, 1):
        rows["or" if place == 1 else f"or {place}"] = other
    return rows


def _describe_kept(args: argparse.Namespace, screen: Screen, kind: str) -> None:
    """What an index or a checkpoint is."""
    facts: dict[str, Any] = {"file": args.file, "file_bytes": size_of(args.file), "kind": kind}
    if kind == "index":
        from manyclass.mips import SearchIndex

        index = SearchIndex.load(args.file)
        facts |= {"search": index.kind, "features": index.n_features, "classes": index.n_classes}
        facts |= {"dtype": index.dtype.name}
    else:
        from manyclass.optimize.checkpoint import describe

        facts |= describe(args.file)
    facts["verified"] = args.verify
    if args.json:
        screen.json(facts)
        return
    rows = {name.replace("_", " "): str(value) for name, value in facts.items() if name not in ("file", "file_bytes")}
    screen.facts(args.file, {**rows, "verified": "every checksum as it was written" if args.verify else "no"})


def _describe_store(args: argparse.Namespace, screen: Screen) -> None:
    """What a row store is, as far as its manifest tells, and what a fit on it takes."""
    from manyclass.io.store import RowStore

    store = RowStore(args.file)
    facts = store_facts(store)
    advice = advise(facts_of_store(store)) if args.choose else None
    each = None if args.processes is None else _of_each(args, store)
    if args.json:
        found = {"file": args.file, "kind": "store", **facts, "verified": args.verify}
        found |= {} if advice is None else {"advice": asdict(advice)}
        screen.json(found | ({} if each is None else {"processes": args.processes, "bytes_of_each": each}))
        return
    screen.facts(args.file, store_table(store, facts, args.verify))
    if advice is not None:
        screen.facts("what suits it", _advice_rows(advice, args))
    if each is not None:
        from manyclass.runtime.memory import human

        rows = {name: human(size) for name, size in each.items()}
        scores = rows.pop(_SCORES)
        rows["together, at most"] = human(sum(each.values()) - each[_SCORES])
        rows[_SCORES] = f"{scores}, where there is room: the fit is faster"
        rows["Python and compiled code"] = "some hundred MiB besides"
        screen.facts(f"memory of each of {args.processes} processes, --solver ds_mlr", rows)


#: What a process keeps besides what it needs.
_SCORES = "kept scores"


def _of_each(args: argparse.Namespace, store: RowStore) -> dict[str, int]:
    """Bytes by purpose that each process of a fit with DS-MLR needs; the scores that it may keep are the last."""
    from manyclass import DSMLR
    from manyclass.cli._ranks import job_size
    from manyclass.io.survey import survey

    if store.kind != "classes":
        raise CommandError(f"--processes: ds_mlr takes one class a row, and {args.file} has others: leave it out")
    found = survey(args.file, "store")
    assert found is not None
    size = job_size(found, None, 4, args.processes)
    each: dict[str, int] = DSMLR().process_nbytes(args.processes, *size)
    return {**each, _SCORES: 2 * -(-found.rows // args.processes) * found.classes * 4}


def _model_rows(model: Model, facts: dict[str, Any]) -> dict[str, str]:
    from manyclass.runtime.memory import human

    parameters, record = facts["parameters"], facts["record"]
    rows = {
        "kind": f"model, {facts['task']}, by manyclass {facts['library_version']}",
        "file": human(facts["file_bytes"]) + (", every checksum as it was written" if facts["verified"] else ""),
        "features": count(facts["n_features"]),
    }
    if model.classes is not None:
        shown = ", ".join(str(label) for label in model.classes[:5].tolist())
        more = ", ..." if len(model.classes) > 5 else ""
        rows["classes"] = f"{count(len(model.classes))} ({shown}{more})"
    else:
        rows["outputs"] = count(facts["n_outputs"])
    rows["weights"] = (
        f"{facts['layout']} {facts['dtype']}, {human(facts['nbytes'])}, {count(facts['n_nonzero'])} not zero "
        f"({facts['density']:.2%})"
    )
    if "n_stages" in facts:
        made = f" of {', '.join(facts['blocks'])}" if facts["blocks"] else ""
        rows["stages"] = (
            f"{count(facts['n_stages'])} in {count(facts['n_members'], 'model')}, {facts['n_calibrated']} calibrated; "
            f"{count(facts['n_block_features'], 'feature')}{made}"
        )
    rows["intercept"] = "yes" if facts["has_intercept"] else "no"
    rows["probabilities"] = {"identity": "none"}.get(facts["link"], facts["link"])
    if facts["vectorizer"] is not None:
        rows.update(_columns(facts["vectorizer"]))
    if parameters:
        # The parameters of a loss or a solver are in its text already.
        own = {name: value for name, value in parameters.items() if "__" not in name and value is not None}
        rows["parameters"] = ", ".join(f"{name}={value}" for name, value in own.items())
    if "outcome" in record:
        by = f" of {record['solver']}" if "solver" in record else ""
        steps = count(len(record["stages"]), "stage") if "stages" in record else count(record.get("n_iter", 0), "epoch")
        rows["training"] = f"{record['outcome']} after {steps}{by}"
        if record.get("relative_gap") is not None:
            rows["training"] += (
                f", objective {record['objective']:.8g}, certified relative gap {record['relative_gap']:.2e}"
            )
    source = record.get("data", {})
    if source:
        rows["trained on"] = f"{source.get('source')} ({source.get('format')}), {count(source.get('rows', 0), 'row')}"
    table = stored_layout(model, facts["file"])
    if table is not None:
        labels = "" if table.label_column is None else f", labels in {table.label_column!r}"
        header = "a header" if table.header else "no header"
        texts = "" if table.text_column is None else f", texts in column {table.text_column!r}"
        rows["table"] = f"{header}{texts}{labels}, {table.delimiter!r} between fields"
    return rows


def _columns(state: dict[str, Any]) -> dict[str, str]:
    """What the vectorizer of texts, or the encoder of a table, reads."""
    if state.get("kind") != "table":
        return {"texts": ", ".join(f"{name} {value}" for name, value in state.items())}
    rows = {
        kind: f"{count(len(state[kind]), 'column')}, {', '.join(state[kind][:10])}{', ...' * (len(state[kind]) > 10)}"
        for kind in ("numbers", "categories", "texts")
        if state[kind]
    }
    if state["vectorizers"]:
        rows["texts"] += "; " + _columns(state["vectorizers"][0])["texts"]
    return rows


def _class_sizes(data: Dataset) -> dict[str, Any]:
    """How many rows the classes have."""
    import numpy as np

    if data.y is None or data.y.dtype.kind == "f":
        return {}
    if data.multilabel:
        sizes = np.bincount(data.y.indices, minlength=data.y.shape[1])
    else:
        sizes = np.unique(data.y, return_counts=True)[1]
    if not sizes.size:
        return {}
    return {
        "largest_class": int(sizes.max()),
        "median_class": float(np.median(sizes)),
        "smallest_class": int(sizes.min()),
        "classes_with_one_row": int(np.count_nonzero(sizes == 1)),
        "classes_without_row": int(np.count_nonzero(sizes == 0)),
    }


def _data_rows(facts: dict[str, Any]) -> dict[str, str]:
    from manyclass.runtime.memory import human

    rows = {
        "kind": f"data, {facts['format']}",
        "file": human(facts["file_bytes"]),
        "rows": count(facts["rows"]),
        "features": count(facts["features"]),
        "non-zeros": f"{count(facts['non_zeros'])} ({facts['density']:.3%})",
        "non-zeros a row": f"{facts['non_zeros'] / max(facts['rows'], 1):.1f}",
        "empty rows": count(facts["empty_rows"]),
        "in memory": f"{human(facts['bytes'])} as {facts['dtype']}",
        "labels": {
            "none": "none",
            "classes": f"one a row, of {count(facts.get('classes', 0), 'class')}",
            "labels": f"{facts.get('labels_per_row', 0):.2f} a row, of {count(facts.get('classes', 0))}",
            "numbers": f"numbers to predict, {count(facts.get('outputs', 0), 'output')}",
        }[facts["targets"]],
    }
    if facts.get("rows_without_label"):
        rows["rows without label"] = count(facts["rows_without_label"])
    if "largest_class" in facts:
        rows["rows of a class"] = (
            f"{count(facts['smallest_class'])} to {count(facts['largest_class'])}, median {facts['median_class']:g}; "
            f"{count(facts['classes_with_one_row'], 'class')} with one row"
        )
    rows.update({"note" if place == 0 else f"note {place + 1}": note for place, note in enumerate(facts["notes"])})
    return rows
