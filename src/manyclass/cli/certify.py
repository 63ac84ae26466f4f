"""``manyclass certify``: how far a model is from the minimum of its objective on given data."""

from __future__ import annotations

import argparse

from manyclass.cli._common import CommandError, Screen
from manyclass.cli._data import add_model_data_options, read_for_model
from manyclass.cli.score import truth_of, with_targets

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = "MODEL DATA..."
HELP = "how far a model is from the minimum of its objective"
DESCRIPTION = """\
The objective of a model on the data of its fit, a lower bound on the minimum of this objective (a dual objective, which
some epochs make sharp), and their relative difference: how much better any other weights could be at the most."""
EPILOG = """\
examples:
  manyclass certify codes.model train.svm.gz
  manyclass certify codes.model train.svm.gz --refine 0 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="what `manyclass fit` wrote")
    parser.add_argument("data", metavar="DATA", nargs="+", help="the data of the fit")
    parser.add_argument(
        "--alpha", type=float, metavar="ALPHA", help="strength of the penalty (default: that of the fit)"
    )
    parser.add_argument(
        "--refine", type=int, default=100, metavar="N", help="epochs that sharpen the bound (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    add_model_data_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Certify the model."""
    from manyclass import certify, load

    model = load(args.model)
    data = read_for_model(args.data, args, screen, model, scored=True)
    if data.y is None:
        raise CommandError(f"{data.source} has no labels: name their file with --labels")
    data = with_targets(data, model.task, model.n_outputs)
    y = data.y
    if model.classes is not None:
        truth = truth_of(model, data)
        if truth.rows_with_unseen:
            raise CommandError(f"{args.data} has labels that the fit has not seen: give the data of the fit")
        y = truth.y
        if model.task != "multilabel" and y.dtype != model.classes.dtype:
            y = y.astype(model.classes.dtype)
    found = certify(model, data.X, y, alpha=args.alpha, refine=args.refine, n_jobs=args.n_jobs)
    if args.json:
        screen.json(found.to_dict())
        return 0
    facts = {
        "relative gap": f"{found.relative_gap:.2e}",
        "objective": f"{found.primal:.8g}",
        "its minimum": f"{found.dual:.8g} to {found.best:.8g}",
        "loss": found.loss,
        "alpha": f"{found.alpha:g}" + (f", l1_ratio {found.l1_ratio:g}" if found.l1_ratio else ""),
    }
    screen.facts(f"{args.model} on {args.data}", facts)
    return 0
