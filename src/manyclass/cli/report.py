"""``manyclass report``: one HTML page about a model."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, check_output
from manyclass.cli._data import add_model_data_options, read_for_model
from manyclass.cli.score import truth_of, with_targets

if TYPE_CHECKING:
    from manyclass.io import Dataset

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = "MODEL [DATA...] -o FILE.html"
HELP = "one HTML page about a model"
DESCRIPTION = """\
Write one self-contained HTML page: settings, certificate, heaviest features of each class; and, on labeled DATA,
accuracy, F1, P@k, calibration, worst classes, confusions, and examples that went wrong with the reasons."""
EPILOG = """\
examples:
  manyclass report codes.model test.svm.gz -o report.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="what `manyclass fit` wrote")
    parser.add_argument("data", metavar="DATA", nargs="*", help="labeled data that the fit has not seen")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write to")
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    add_model_data_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Write the page."""
    from manyclass import load, write_report
    from manyclass.runtime.memory import human

    check_output("-o", args.output, args.model, args.data)
    model = load(args.model)
    X = y = show = None
    if args.data is not None:
        data = read_for_model(args.data, args, screen, model, scored=True)
        if data.y is None:
            raise CommandError(f"{data.source} has no labels: name their file with --labels, or leave out DATA")
        data = with_targets(data, model.task, model.n_outputs)
        X, y = data.X, data.y
        if model.classes is not None:
            y = truth_of(model, data).y
        if data.layout is not None:
            show = partial(_shown, args, data)
    write_report(model, args.output, X, y, show=show, n_jobs=args.n_jobs)
    screen.say(f"wrote {args.output}: {human(os.path.getsize(args.output))}")
    return 0


def _shown(args: argparse.Namespace, data: Dataset, rows: Sequence[int]) -> list[str]:
    """The texts of some rows of a table, or the columns that the model takes."""
    from manyclass.io._layout import find_names
    from manyclass.io.excerpt import excerpt
    from manyclass.models.shown import named_values

    layout: Any = data.layout
    found = excerpt(args.data, rows, format=data.format, layout=layout, unlabeled=args.unlabeled or "error")
    columns = getattr(data.vectorizer, "columns", None)
    if columns is None:
        place = layout.text_column
        return [str(row[place] if place in row else list(row.values())[int(place)]) for row in found]
    names = list(found[0]) if found else []
    places = {column: find_names(names, column)[0] for column in columns} if found else {}
    return [named_values({column: row[names[place]] for column, place in places.items()}) for row in found]
