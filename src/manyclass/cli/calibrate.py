"""``manyclass calibrate``: a model with probabilities that fit held-out rows."""

from __future__ import annotations

import argparse

from manyclass.cli._common import CommandError, Screen, check_output
from manyclass.cli._data import add_model_data_options, read_for_model
from manyclass.cli.score import truth_of, unseen_sentence, with_targets

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = "MODEL DATA... -o MODEL"
HELP = "give a model of any loss probabilities that fit held-out rows"
DESCRIPTION = """\
Write the model with a link and a temperature T that minimize the log loss on labeled DATA that the fit has not seen,
some hundreds of rows: softmax of scores / T, the normalized sigmoid, or for two classes and label sets the sigmoid. The
order of the classes does not change, unless --bias changes their intercepts."""
EPILOG = """\
examples:
  manyclass calibrate codes.model held.svm.gz -o calibrated.model
  manyclass predict calibrated.model new.svm --proba --top-k 5
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="what `manyclass fit` wrote")
    parser.add_argument("data", metavar="DATA", nargs="+", help="labeled data that the fit has not seen")
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="file to write the model to")
    parser.add_argument(
        "--bias",
        action="store_true",
        help="change the intercepts as well: for classes that are more or less frequent than in the fit",
    )
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    add_model_data_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Calibrate."""
    import numpy as np

    from manyclass import load

    check_output("-o", args.output, args.model, args.data)
    model = load(args.model)
    if model.classes is None:
        raise CommandError(f"{args.model} predicts numbers, which have no probabilities: give a model of classes")
    data = read_for_model(args.data, args, screen, model, scored=True)
    if data.y is None:
        raise CommandError(f"{data.source} has no labels: name their file with --labels")
    truth = truth_of(model, with_targets(data, model.task, model.n_outputs))
    X, y, known = data.X, truth.y, len(model.classes)
    if truth.rows_with_unseen:
        if truth.rows_with_unseen == data.n_samples:
            raise CommandError(
                f"each row of {args.data} has a label that the fit has not seen: give labels like those of the fit"
            )
        unseen = {"unseen_labels": len(truth.classes) - known, "rows_with_unseen_labels": truth.rows_with_unseen}
        screen.warn(unseen_sentence(args.data, unseen, "left out"))
        if model.task == "multilabel":
            rows, y = y[:, known:].getnnz(axis=1) == 0, y[:, :known]
        else:
            rows = np.isin(y, truth.classes[:known])
        X, y = X[rows], y[rows]
    if model.task != "multilabel" and y.dtype != model.classes.dtype:
        y = y.astype(model.classes.dtype)
    made = model.calibrate(X, y, n_jobs=args.n_jobs, bias=args.bias)
    made.save(args.output)
    change = ", other intercepts" if args.bias else ""
    screen.say(f"wrote {args.output}: {made.link} of scores / {made.temperature:.4g}{change}")
    return 0
