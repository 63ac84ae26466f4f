"""``manyclass explain``: the features that decide the prediction of each row."""

from __future__ import annotations

import argparse
import json
import sys

from manyclass.cli._common import CommandError, Screen, pieces
from manyclass.cli._data import add_model_data_options, read_for_model

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = "MODEL DATA..."
HELP = "the features that decide each prediction"
DESCRIPTION = """\
Write one line for each row of DATA: its label, the runner-up, by how much its score is larger, and the features that
contribute most to this difference, with tabs between. A contribution is the value of a feature times the difference of
its weights for the two labels."""
EPILOG = """\
examples:
  manyclass explain tickets.model new.csv --top 5
  manyclass explain codes.model new.svm --json > why.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="what `manyclass fit` wrote")
    parser.add_argument("data", metavar="DATA", nargs="+", help="data of the same kind as those of the fit")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="features of a row (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="a JSON object on each line")
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    add_model_data_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Explain."""
    from manyclass import LinearModel, load

    if args.top < 1:
        raise CommandError(f"--top must be at least 1, got {args.top}")
    model = load(args.model)
    if not isinstance(model, LinearModel):
        raise CommandError(f"{args.model} is no linear model in one file: explain is for those")
    X = read_for_model(args.data, args, screen, model, scored=False).X
    for rows in pieces(X.shape[0], model.n_outputs):
        for found in model.explain(X[rows], args.top, n_jobs=args.n_jobs):
            parts = list(zip(found.features.tolist(), found.contributions.tolist()))
            label, rival = (str(name) if name is not None else None for name in (found.label, found.rival))
            if args.json:
                facts = {"label": label, "rival": rival, "margin": found.margin, "features": dict(parts)}
                facts |= {"rest": found.rest, "intercept": found.intercept}
                sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
            else:
                words = [f"{name}:{value:+.4g}" for name, value in parts]
                cells = [label or "", rival or "", f"{found.margin:.4g}", *words]
                sys.stdout.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")
    return 0
