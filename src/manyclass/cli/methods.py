"""The methods of ``manyclass fit`` besides SDCA: their options, and the estimators these make."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from manyclass.cli import _ranks
from manyclass.cli._common import CommandError, Screen

if TYPE_CHECKING:
    from manyclass.io import Dataset

__all__ = [
    "METHODS",
    "DefaultFloat",
    "DefaultInt",
    "DefaultStr",
    "add_arguments",
    "check",
    "iterations",
    "make",
    "outcome",
    "settings",
    "write_history",
]

# The names of the library, spelt out so that --help need not import it; a test holds the two together.
METHODS = ("sdca", "bound", "ds_mlr", "least_squares", "calibrated", "stagewise", "memoir", "blocks")
#: Name in --features and --prepare -> class in `manyclass.features`.
BLOCKS = {
    "fourier": "RandomFourier",
    "logits": "RandomLogits",
    "nystrom": "Nystrom",
    "polynomial": "RandomPolynomial",
    "subset": "FeatureSubset",
    "pca": "PrincipalComponents",
}
#: Options of the command line that every estimator may have, and their names there.
_SHARED = {
    "alpha": "alpha",
    "l1_ratio": "l1_ratio",
    "tol": "tol",
    "max_iter": "max_iter",
    "fit_intercept": "fit_intercept",
    "class_weight": "class_weight",
    "n_jobs": "n_jobs",
    "dtype": "dtype",
    "search": "search",
    **{name: name for name in _ranks.OPTIONS},
}
#: Options that belong to SDCA alone, and those that other methods have as well.
_OWN = ("loss", "l1_ratio", "search", "gamma", "epsilon", "solver", "option", "sampling")
_MEMOIR = ("l1_ratio", "search")


class DefaultFloat(float):
    """The default of an option, which other methods have another of: to be told from the same number when given."""


class DefaultInt(int):
    """See `DefaultFloat`."""


class DefaultStr(str):
    """See `DefaultFloat`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that choose a method and set its parameters."""
    group = parser.add_argument_group("other methods")
    group.add_argument(
        "--method",
        choices=METHODS,
        default="sdca",
        help="sdca (default); bound: softmax regression by bound majorisation; ds_mlr: softmax regression on workers "
        "that share out rows and classes; least_squares, calibrated, stagewise; memoir: the multi-class SVM with very "
        "many classes, in little memory; blocks: softmax regression on a store, rows and weights larger than memory",
    )
    group.add_argument(
        "--features", metavar="KIND:N", help=f"N features made of each row: {', '.join(BLOCKS)} (least squares methods)"
    )
    group.add_argument("--prepare", metavar="KIND:N", help="made once, before all blocks (stagewise): pca:50, say")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter of the method's estimator, as its documentation names it; may be repeated",
    )


def check(args: argparse.Namespace, parser_default: Any) -> None:
    """Refuse options that belong to another method, before a long file is read.

    Parameters
    ----------
    args : Namespace
    parser_default : callable
        Name of an option -> what it is when it is not given.
    """
    if args.method == "ds_mlr":
        _ranks.check(args)
    else:
        for name in (*_ranks.OPTIONS, "resume"):
            shared = args.method == "blocks" and name == "block_classes"
            if not shared and getattr(args, name) != parser_default(name):
                raise CommandError(f"--{name.replace('_', '-')} is for --method ds_mlr, got --method {args.method}")
    if args.method == "sdca":
        for name in ("features", "prepare", "set"):
            if getattr(args, name):
                raise CommandError(f"--{name} is for other methods than sdca: choose one with --method")
        return
    for name in _OWN:
        if name in _MEMOIR and args.method == "memoir":
            continue
        if getattr(args, name) != parser_default(name):
            raise CommandError(f"--{name.replace('_', '-')} is for --method sdca, got --method {args.method}")
    if args.method == "blocks":
        for name in ("features", "prepare", "plot", "class_weight", "sparsify", "valid", "labels", "n_features"):
            if getattr(args, name) != parser_default(name):
                raise CommandError(f"--{name.replace('_', '-')} is not for --method blocks: leave it out")
        return
    if args.plot and args.method in ("calibrated", "stagewise", "memoir"):
        raise CommandError(f"--plot shows a certified gap, and {args.method} has none: see --history")
    # Now, not after hours of reading.
    _features(args)


def make(args: argparse.Namespace, data: Dataset, screen: Screen, parser_default: Any) -> Any:
    """The estimator that the options describe, its parameters checked."""
    estimator = _class(args, data)()
    known = estimator.get_params(deep=False)
    given = {
        name: getattr(args, option)
        for option, name in _SHARED.items()
        if getattr(args, option) != parser_default(option)
        or type(getattr(args, option)) is not type(parser_default(option))
    }
    given.update(_features(args))
    given.update(settings(args.set))
    for name in given:
        if name not in known:
            raise CommandError(f"--method {args.method} has no parameter {name!r}; it has {', '.join(sorted(known))}")
    given.setdefault("random_state", args.seed)
    given.setdefault("verbose", 0 if screen.quiet else 1)
    estimator.set_params(**{name: value for name, value in given.items() if name in known})
    estimator._check_parameters()
    return estimator


def _class(args: argparse.Namespace, data: Dataset) -> Any:
    from manyclass import estimators

    numbers = data.y is not None and not data.multilabel and data.y.dtype.kind == "f"
    if numbers and args.method != "stagewise":
        raise CommandError(
            f"--method {args.method} takes classes, and {args.data} has numbers to predict: take --method sdca or "
            "stagewise, or --task classification if the numbers are names"
        )
    name = {
        "bound": "BoundMajorizationClassifier",
        "ds_mlr": "DSMLRClassifier",
        "least_squares": "LeastSquaresClassifier",
        "calibrated": "CalibratedLeastSquaresClassifier",
        "stagewise": "StagewiseRegressor" if numbers else "StagewiseClassifier",
        "memoir": "MemoirClassifier",
    }[args.method]
    return getattr(estimators, name)


def _features(args: argparse.Namespace) -> dict[str, Any]:
    return {name: _block(f"--{name}", getattr(args, name)) for name in ("features", "prepare") if getattr(args, name)}


def _block(option: str, text: str) -> Any:
    """A block of features, of its kind and number."""
    from manyclass import features

    kind, _, number = text.partition(":")
    if kind not in BLOCKS or not number.isdecimal() or not int(number):
        raise CommandError(
            f"{option} must be KIND:N with a kind of {', '.join(BLOCKS)} and a number of features, got {text!r}"
        )
    return getattr(features, BLOCKS[kind])(int(number))


def settings(texts: list[str]) -> dict[str, Any]:
    """The parameters that --set names."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise CommandError(f"--set takes NAME=VALUE, got {text!r}")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    """A number, true, false, none, a list of values with commas between, or the text itself."""
    if "," in text:
        return [_value(part) for part in text.split(",")]
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


# --- what a fit leaves ----------------------------------------------------------------------------------------------


def outcome(estimator: Any) -> str:
    """How the fit ended."""
    return str(estimator.outcome_ if hasattr(estimator, "outcome_") else estimator.history_.outcome)


def iterations(estimator: Any) -> int:
    """Epochs, steps or stages."""
    return int(estimator.n_iter_ if hasattr(estimator, "n_iter_") else sum(estimator.n_stages_))


def write_history(estimator: Any, path: str) -> None:
    """The evaluations of a fit, or its stages, as CSV."""
    import csv

    from manyclass.runtime.files import atomic_path

    records = estimator.stage_records_ if hasattr(estimator, "stage_records_") else estimator.history_
    if not isinstance(records, list):
        records.to_csv(path)
        return
    rows = [record.to_dict() for record in records]
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["number"])
        writer.writeheader()
        writer.writerows(rows)
