"""What the options of ``manyclass fit`` describe: an estimator, its parameters, and those of its loss and its solver.

Names, help and defaults are those that losses, solvers, blocks of features and constructors declare.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, Screen, near_option
from manyclass.cli._declared import Declaration, blocks, losses, solvers
from manyclass.runtime.names import did_you_mean

if TYPE_CHECKING:
    from manyclass.io import Dataset

__all__ = [
    "ESTIMATORS",
    "add_arguments",
    "check_known",
    "complete",
    "given",
    "has_numbers",
    "is_regression",
    "make",
    "placed",
    "settings",
    "solver_class",
    "spelled",
    "unknown_option",
]

#: Name -> classes in `manyclass.estimators` for classes and for numbers to predict, and a line of help.
ESTIMATORS: dict[str, tuple[str, str | None, str]] = {
    "linear": ("LinearClassifier", "LinearRegressor", "any loss, by any solver"),
    "least_squares": ("GeneralizedLeastSquaresClassifier", None, "a link, by steps of least squares"),
    "calibrated": ("CalibratedLeastSquaresClassifier", None, "a link that is learned"),
    "stagewise": ("StagewiseClassifier", "StagewiseRegressor", "blocks of generated features, one after another"),
}
#: Parameters with an option of their own; --set has all others.
_OPTIONS = (
    *("loss", "solver", "alpha", "alphas", "cv", "l1_ratio", "fit_intercept", "class_weight", "standardize"),
    *("tol", "max_iter", "early_stopping", "n_jobs", "dtype", "features", "prepare"),
)
#: Names of parameters in other libraries -> what is meant here.
_ELSEWHERE = {
    "C": "--alpha is 1 / (C * rows), and without --alpha C is 1",
    "penalty": "--l1-ratio 0 is l2, 1 is l1, between them is elastic net",
    "method": "name a solver with --solver, or an --estimator",
    "lambda": "it is --alpha",
    "epochs": "it is --max-iter",
    "threads": "it is --n-jobs",
    "random_state": "it is --seed",
    "patience": "it is --early-stopping N",
    "n_iter_no_change": "it is --early-stopping N",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the problem and of the run: what is not given is not there, and left to the library."""
    problem = parser.add_argument_group("the problem", argument_default=argparse.SUPPRESS)
    problem.add_argument("--estimator", choices=tuple(ESTIMATORS), default="linear", help="see below (default: linear)")
    problem.add_argument("--loss", metavar="NAME", help="see below (default: what fits the labels)")
    problem.add_argument(
        "--alpha",
        type=_alpha,
        metavar="A",
        help="strength of the penalty; auto: chosen on held-out rows (default: 1/n)",
    )
    problem.add_argument(
        "--alphas", type=_numbers, metavar="A,A,...", help="choose of these: by --valid, or without it by --cv folds"
    )
    problem.add_argument("--cv", type=int, metavar="N", help="folds that choose of --alphas (default: 5)")
    problem.add_argument("--l1-ratio", type=float, metavar="R", help="part of the penalty that is l1")
    problem.add_argument(
        "--intercept",
        dest="fit_intercept",
        action=argparse.BooleanOptionalAction,
        help="fit an intercept, free of penalty (default: yes, but for 1000 classes or more of sparse rows)",
    )
    problem.add_argument("--class-weight", choices=("balanced",), help="weigh rows so that classes count the same")
    problem.add_argument("--standardize", action="store_true", help="penalize the weights of columns of variance 1")
    problem.add_argument("--features", metavar="KIND:N", help="N features made of each row, see below")
    problem.add_argument("--prepare", metavar="KIND:N", help="stagewise: made once, before all blocks: pca:50, say")
    problem.add_argument(
        "--images",
        type=_sides,
        metavar="H,W,C",
        help="rows are images of this height, width and number of channels: --estimator stagewise with the settings of "
        "StagewiseClassifier.for_images",
    )
    run = parser.add_argument_group("the run", argument_default=argparse.SUPPRESS)
    run.add_argument("--solver", metavar="NAME", help="see below")
    run.add_argument("--tol", type=float, metavar="T", help="certified relative duality gap to stop at")
    run.add_argument("--max-iter", type=int, metavar="N", help="most epochs (default: the solver's, 8 to 1000)")
    run.add_argument(
        "--early-stopping",
        type=int,
        metavar="N",
        help="stop after N epochs without a better score on --valid (without --valid: on a tenth of DATA, held out); "
        "keeps the best model; stagewise, calibrated: N blocks or rounds",
    )
    run.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    run.add_argument("--seed", type=int, metavar="S", default=0, help="of all that is random (default: 0)")
    run.add_argument("--dtype", choices=("float32", "float64"), help="of data and weights (default: float32)")
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter: solver.option=II of the solver, loss.gamma=0.5 of the loss, n_blocks=20 of the "
        "estimator; may be repeated",
    )


def _alpha(text: str) -> float | str:
    return text if text == "auto" else float(text)


def _numbers(text: str) -> list[float]:
    found = [float(part) for part in text.split(",")]
    if not all(number > 0 for number in found):
        raise ValueError
    return found


def _sides(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(","))
    if len(found) != 3 or min(found) < 1:
        raise ValueError
    return found


# As argparse names them in an error.
_alpha.__name__, _numbers.__name__, _sides.__name__ = "number", "list of positive numbers", "height, width and channels"


# --- help -----------------------------------------------------------------------------------------------------------


def complete(parser: argparse.ArgumentParser) -> None:
    """Add to the help what only the library knows: the choices, their parameters and defaults."""
    defaults = Declaration("manyclass.estimators", "LinearClassifier").parameters
    for action in parser._actions:
        default = defaults.get(action.dest)
        if action.help and "(default" not in action.help and default is not None and default is not False:
            action.help += f" (default: {default})"
    parts = [
        _listing("losses (--loss NAME, --set loss.PARAMETER=VALUE)", losses()),
        _listing("solvers (--solver NAME, --set solver.PARAMETER=VALUE; --solver auto chooses)", solvers()),
        ["estimators (--estimator NAME, --set PARAMETER=VALUE)"],
    ]
    for name, (_, _, summary) in ESTIMATORS.items():
        own = {key: value for key, value in _of_estimator(name).items() if key not in (*_OPTIONS, *_NOT_SET)}
        parts[-1] += _entry(name, summary, own)
    kinds = ", ".join(f"{name} ({block.kind})" for name, block in blocks().items())
    parts.append(textwrap.wrap(f"features: {kinds}", 118))
    parser.epilog = "\n\n".join([str(parser.epilog).rstrip(), *("\n".join(part) for part in parts)])


def _listing(title: str, known: Mapping[str, Declaration]) -> list[str]:
    return [title, *(line for name, part in known.items() for line in _entry(name, part.summary, part.parameters))]


def _entry(name: str, summary: str, parameters: Mapping[str, Any]) -> list[str]:
    shown = ", ".join(f"{key}={_text(value)}" for key, value in parameters.items() if key != "comm")
    return [
        *textwrap.wrap(summary, 118, initial_indent=f"  {name:<26}", subsequent_indent=_PAD, break_on_hyphens=False),
        *textwrap.wrap(shown, 118, initial_indent=_PAD, subsequent_indent=_PAD, break_on_hyphens=False),
    ]


def _text(value: Any) -> str:
    """A value as --set takes it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


_PAD = " " * 28
#: Parameters of constructors that are no business of the command line.
_NOT_SET = ("random_state", "verbose", "warm_start")


def _of_estimator(name: str) -> dict[str, Any]:
    """The parameters of an estimator and their defaults."""
    return Declaration("manyclass.estimators", ESTIMATORS[name][0]).parameters


# --- what was given -------------------------------------------------------------------------------------------------


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters that options or --set name; ``loss__gamma`` is a parameter of the loss."""
    found = {name: getattr(args, name) for name in _OPTIONS if name in args}
    for name, value in settings(args.set).items():
        if name in found:
            raise CommandError(f"--set {name} and --{name.replace('_', '-')} are the same: give one of them")
        found[name] = value
    return found


def settings(texts: list[str]) -> dict[str, Any]:
    """The parameters that --set names."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise CommandError(f"--set takes NAME=VALUE, got {text!r}")
        found[name.replace(".", "__").replace("-", "_")] = _value(value)
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


def is_regression(parameters: Mapping[str, Any]) -> bool:
    """Whether the loss asked for predicts numbers."""
    from manyclass.objective.losses import REGRESSION

    return parameters.get("loss") in REGRESSION


def has_numbers(data: Dataset) -> bool:
    """Whether the data have numbers to predict."""
    return data.y is not None and not data.multilabel and data.y.dtype.kind == "f"


def solver_class(parameters: Mapping[str, Any]) -> Any:
    """The class of the solver that is asked for by name; None if there is none, or it is not known."""
    from manyclass.solvers import SOLVERS

    return SOLVERS.get(parameters.get("solver", "auto"))


# --- the estimator --------------------------------------------------------------------------------------------------


def make(args: argparse.Namespace, screen: Screen, data: Dataset | None = None) -> Any:
    """The estimator that the options describe, its parameters checked.

    Before a long file is read, ``data`` is None: then classes are to be predicted unless the loss says otherwise.
    """
    parameters = given(args)
    numbers = is_regression(parameters) or (data is not None and has_numbers(data))
    if "images" in args:
        parameters = {**_for_images(args, numbers), **parameters}
    if args.estimator == "linear":
        _choose_loss(parameters, data, screen)
    kind = _class(args, parameters, numbers)
    if args.estimator in ("calibrated", "stagewise") and "early_stopping" in args:
        parameters = {**parameters, "early_stopping": True, "patience": args.early_stopping}
    parameters = {"random_state": args.seed, "verbose": 0 if screen.quiet else 1, **parameters}
    owned: dict[str, dict[str, Any]] = {}
    for name in [name for name in parameters if "__" in name]:
        owner, _, rest = name.partition("__")
        owned.setdefault(owner, {})[rest] = parameters.pop(name)
    try:
        estimator = kind(**parameters)
    except TypeError as error:
        raise CommandError(f"--estimator {args.estimator}: {error}") from error
    for owner, values in {"loss": {}, "solver": {}, **owned}.items():
        part = _part(owner, parameters.get(owner), values)
        if values:
            known = [name for name in part.get_params(deep=False) if name not in getattr(part, "local", ())]
            check_known(f"--set {owner}.", known, values)
            setattr(estimator, owner, part.set_params(**values))
    estimator._check_parameters()
    return estimator


def _for_images(args: argparse.Namespace, numbers: bool) -> dict[str, Any]:
    """The settings for images, and --estimator stagewise, which they are of."""
    from manyclass.estimators.images import image_settings

    if args.estimator not in ("linear", "stagewise") or numbers:
        what = "numbers to predict" if numbers else f"--estimator {args.estimator}"
        raise CommandError(f"--images is for --estimator stagewise and classes, got {what}: leave one of them out")
    args.estimator = "stagewise"
    return image_settings(args.images)


def _class(args: argparse.Namespace, parameters: dict[str, Any], numbers: bool) -> Any:
    """The class of the estimator."""
    from manyclass import estimators

    for_classes, for_numbers, _ = ESTIMATORS[args.estimator]
    name = for_numbers if numbers else for_classes
    if name is None:
        raise CommandError(
            f"--estimator {args.estimator} takes classes, and {args.data} has numbers to predict: take linear or "
            "stagewise, or --task classification if the numbers are names"
        )
    if numbers and "class_weight" in parameters:
        raise CommandError("--class-weight is for classes, and numbers are to be predicted: leave it out")
    if args.estimator == "linear" and "alphas" in parameters:
        if "alpha" in parameters:
            raise CommandError("--alpha is one strength, --alphas are those to choose from: give one of them")
        if args.valid and "cv" not in parameters:
            parameters["alpha"] = max(parameters.pop("alphas"))  # `fit` goes through the others
        else:
            name += "CV"
    elif "cv" in parameters:
        raise CommandError("--cv chooses one of --alphas with --estimator linear: give these as well")
    return getattr(estimators, name)


def _choose_loss(parameters: dict[str, Any], data: Dataset | None, screen: Screen) -> None:
    """The loss where none is asked for: what the solver minimizes, or what fits the labels."""
    if "loss" in parameters:
        return
    if parameters.get("solver") == "memoir":
        parameters["loss"] = "crammer_singer"
        parameters.setdefault("loss__gamma", 0)
        if data is not None:
            screen.say("  solver memoir without --loss: crammer_singer with gamma=0")
    elif data is not None and data.multilabel:
        parameters["loss"] = "log_loss"


def _part(owner: str, value: Any, values: Mapping[str, Any]) -> Any:
    """The loss, the solver or the block of features that a name stands for."""
    from manyclass.features import make_block
    from manyclass.objective.component import resolve
    from manyclass.objective.losses import CLASSIFICATION, REGRESSION
    from manyclass.solvers import SOLVERS

    known: dict[str, Any] = {"loss": {**CLASSIFICATION, **REGRESSION}, "solver": SOLVERS}
    if owner not in (*known, "features", "prepare"):
        setting = next(iter(values))
        raise CommandError(f"--set {owner}.{setting}: {owner} has no parameters: loss, solver, features, prepare have")
    if value in (None, "auto"):
        if values:
            setting = next(iter(values))
            names = [name for name, cls in known.get(owner, {}).items() if setting in signature(cls).parameters]
            having = f", one of {', '.join(names)}" if names else ""
            raise CommandError(f"--set {owner}.{setting} needs the {owner} that has it: give --{owner} as well{having}")
        return None
    return resolve(owner, value, known[owner]) if owner in known else make_block(value, owner)


def placed(solver: Any, **local: Any) -> Any:
    """The solver that a name stands for, told where to run and to write."""
    return _part("solver", solver, {}).set_params(**local)


def check_known(prefix: str, known: Iterable[str], values: Iterable[str]) -> None:
    """Refuse the name of a parameter that does not exist, with those that do."""
    for name in values:
        if name not in known:
            there = ", ".join(known)
            raise CommandError(
                f"{prefix}{name}: no such parameter{did_you_mean(name, known) or '.'} "
                + (f"There are {there}" if there else "There are none: leave it out")
            )


def unknown_option(word: str, parser: argparse.ArgumentParser) -> str:
    """What was meant by an option that ``fit`` does not have, as the end of a sentence."""
    name = word.lstrip("-").partition("=")[0].replace("-", "_")
    if name in _ELSEWHERE:
        return f": {_ELSEWHERE[name]}"
    for owner, known in (("loss", losses()), ("solver", solvers())):
        having = [key for key, part in known.items() if name in part.parameters]
        if having:
            return f": it is a parameter of {owner} {', '.join(having)}: --set {owner}.{name}=VALUE"
    for key in ESTIMATORS:
        if name in _of_estimator(key):
            return f": it is a parameter of --estimator {key}: --set {name}=VALUE"
    return near_option(word, parser)


def spelled(part: Any) -> str:
    """A loss or a solver as the command line names it."""
    if isinstance(part, str):
        return part
    defaults = Declaration(type(part).__module__, type(part).__name__).parameters
    changed = {name: value for name, value in part.get_params(deep=False).items() if value != defaults.get(name, value)}
    shown = ", ".join(f"{name}={value}" for name, value in changed.items())
    return f"{part.name} ({shown})" if shown else str(part.name)
