"""``manyclass fit``: from a file of data to a file of a model."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from manyclass.cli import _ranks, methods
from manyclass.cli._advice import penalty_advice
from manyclass.cli._common import (
    MATPLOTLIB,
    CommandError,
    Screen,
    check_output,
    count,
    has_matplotlib,
    save_figure,
    seconds,
)
from manyclass.cli._data import (
    TASKS,
    add_file_options,
    add_vectorizer_options,
    one_label_a_row,
    read_data,
    read_like,
    vectorizer_options,
)
from manyclass.cli.score import METRICS, evaluate, unseen_sentence, with_targets

if TYPE_CHECKING:
    from manyclass.distributed import Communicator
    from manyclass.io import Dataset
    from manyclass.models.base import Model
    from manyclass.objective.history import History

__all__ = [
    "DESCRIPTION",
    "EPILOG",
    "HELP",
    "USAGE",
    "LOSSES",
    "OPTIONS",
    "SAMPLINGS",
    "SEARCHES",
    "SOLVERS",
    "add_arguments",
    "run",
]

# The names of the library, spelt out so that --help need not import it; a test holds the two together.
LOSSES = ("multinomial", "softmax_hinge", "crammer_singer", "log_loss", "smooth_hinge", "hinge", "squared_hinge")
REGRESSION = ("squared", "huber")
OPTIONS = ("I", "II", "III", "IV", "V")
SAMPLINGS = ("permutation", "uniform", "importance")
SEARCHES = ("exact", "lsh", "graph")
SOLVERS = (
    *("auto", "sdca", "accelerated", "sdca_async", "sdca_active"),
    *("cd", "fista", "lbfgs", "preconditioned_lbfgs", "newton", "cg", "gd", "majorise", "sgd", "asgd", "bound", "bbm"),
)

USAGE = "DATA -o MODEL"
HELP = "train a model on a file"
DESCRIPTION = """\
Minimise  mean loss + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)  until the certified relative duality gap is
at most --tol, and write the model. Ctrl-C ends the training early and keeps the model reached so far."""
EPILOG = """\
examples:
  manyclass fit train.svm.gz -o codes.model --valid test.svm.gz
  manyclass fit train.txt -o tags.model --loss squared_hinge --alpha 1e-5 --n-jobs -1
  manyclass fit tickets.csv -o tickets.model --text-column text --label-column queue --ngrams 1 2
  manyclass fit train.npz -o codes.model --labels codes.txt --plot gap.png --history gap.csv
  manyclass fit codes.svm.gz -o codes.model --method memoir --l1-ratio 1 --set early_stopping=true
  manyclass fit pixels.npz -o digits.model --method stagewise --features fourier:1024 --set n_blocks=20
  mpiexec -n 4 python -m mpi4py -m manyclass fit many.npz -o many.model --method ds_mlr --checkpoint state --resume
  manyclass fit train.store -o codes.blocks --method blocks --max-iter 5 --block-classes 5000

Without --loss it is multinomial for one class a row, log_loss for sets of labels and squared for numbers to predict.
A warning says that --alpha is too large where accuracy (P@1 for sets of labels) is below 0.5 and the mean loss would go
on falling, at half of its mean rate so far or more, if the weights grew.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("data", metavar="DATA", help="labelled data")
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="file to write the model to")
    parser.add_argument("--valid", metavar="FILE", help="labelled data of the same kind to judge the model on")
    parser.add_argument("--valid-labels", metavar="FILE", help="as --labels, for --valid")
    problem = parser.add_argument_group("the problem")
    problem.add_argument("--loss", choices=(*LOSSES, *REGRESSION), help="default: what fits the labels, see below")
    problem.add_argument("--task", choices=TASKS, default="auto", help="what the labels are (default: told from them)")
    problem.add_argument(
        "--alpha",
        type=float,
        metavar="A",
        default=methods.DefaultFloat(1e-4),
        help="strength of the penalty (default: %(default)s)",
    )
    problem.add_argument(
        "--l1-ratio", type=float, metavar="R", default=0.0, help="part of it that is l1 (default: %(default)s)"
    )
    problem.add_argument(
        "--gamma",
        type=float,
        metavar="G",
        default=0.1,
        help="smoothing of crammer_singer and smooth_hinge (default: %(default)s)",
    )
    problem.add_argument(
        "--epsilon", type=float, metavar="E", default=1.35, help="where huber turns linear (default: %(default)s)"
    )
    problem.add_argument("--no-intercept", dest="fit_intercept", action="store_false", help="fit no intercept")
    problem.add_argument("--class-weight", choices=("balanced",), help="weigh rows so that classes count the same")
    run = parser.add_argument_group("the run")
    run.add_argument("--solver", choices=SOLVERS, default="auto", help="default: %(default)s")
    run.add_argument(
        "--option", choices=OPTIONS, default="I", help="dual step of Prox-SDCA (default: I, the exact one)"
    )
    run.add_argument(
        "--sampling", choices=SAMPLINGS, default="permutation", help="rows of an epoch of it (default: %(default)s)"
    )
    run.add_argument(
        "--search",
        choices=SEARCHES,
        default=methods.DefaultStr("exact"),
        help="who finds rivals, for crammer_singer with many classes (default: exact) and --method memoir (auto)",
    )
    run.add_argument(
        "--tol",
        type=float,
        metavar="T",
        default=methods.DefaultFloat(1e-3),
        help="certified relative duality gap to stop at (default: %(default)s)",
    )
    run.add_argument(
        "--max-iter",
        type=int,
        default=methods.DefaultInt(100),
        metavar="N",
        help="most epochs (default: %(default)s; memoir: 8)",
    )
    run.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    run.add_argument("--seed", type=int, metavar="S", default=0, help="of the order of the rows (default: %(default)s)")
    run.add_argument("--dtype", choices=("float32", "float64"), help="of data and weights (default: float32)")
    methods.add_arguments(parser)
    _ranks.add_arguments(parser)
    outputs = parser.add_argument_group("what is written")
    outputs.add_argument(
        "--sparsify", type=float, metavar="THRESHOLD", help="drop weights of this magnitude or less, store the others"
    )
    outputs.add_argument("--history", metavar="FILE.csv", help="objective, gap and time of every evaluation")
    outputs.add_argument("--plot", metavar="FILE.png", help="the gap against time, as a figure")
    parser.add_argument(
        "--n-features", type=int, metavar="N", help="width of the data (default: the largest feature in DATA)"
    )
    parser.add_argument(
        "--extra-features",
        choices=("error", "ignore"),
        default="error",
        help="what to do with features of --valid that DATA does not have (default: %(default)s)",
    )
    add_file_options(parser)
    add_vectorizer_options(parser)
    parser.set_defaults(parser_default=parser.get_default)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Read, train, judge, write; by several processes where a launcher has started them."""
    _, size = _ranks.launched()
    if size == 1:
        return _run(args, screen, None)
    if args.method not in ("ds_mlr", "blocks"):
        raise CommandError(f"{size} processes were started, and --method {args.method} is for one: try --method ds_mlr")
    return _ranks.together(args, screen, _run)


def _run(args: argparse.Namespace, screen: Screen, comm: Communicator | None) -> int:
    from manyclass.kernels.jit import compile_clock

    if args.method == "blocks":
        from manyclass.cli.blocks import fit_on_store

        methods.check(args, args.parser_default)
        return fit_on_store(args, screen, comm)
    for option, path in (("-o", args.output), ("--history", args.history), ("--plot", args.plot)):
        check_output(option, path, args.data, args.valid, args.labels, args.valid_labels)
    if args.plot:
        if not has_matplotlib():
            raise CommandError(f"--plot: {MATPLOTLIB}")
        if os.path.splitext(args.plot)[1].lower() not in ("", ".png", ".pdf", ".svg"):
            raise CommandError(f"--plot {args.plot}: figures are written as .png, .pdf or .svg")
    if args.sparsify is not None and not args.sparsify >= 0:
        raise CommandError(f"--sparsify must be at least 0, got {args.sparsify:g}")
    methods.check(args, args.parser_default)
    if args.method == "sdca":
        _estimator(args, args.loss or "multinomial", screen)._check_parameters()  # before a long file is read

    started, compiled = time.perf_counter(), compile_clock.seconds
    data = (None if comm is None else _ranks.opened(args, screen)) or _read(args, screen)
    loss = args.loss or _fitting_loss(data)
    task = "regression" if loss in REGRESSION else "multilabel" if data.multilabel else "multiclass"
    valid = None
    if args.valid and (comm is None or comm.rank == 0):
        valid = read_like(
            args.valid,
            _without_columns(args),
            screen,
            n_features=data.n_features,
            task=task,
            format=data.format,
            zero_based=data.zero_based,
            vectorizer=data.vectorizer,
            layout=data.layout,
            dtype=args.dtype or "float32",
            labels=args.valid_labels,
        )
        if valid.y is None:
            raise CommandError(f"{args.valid} has no labels: name their file with --valid-labels")
        valid = with_targets(valid, task, data.y.shape[1] if data.y.ndim == 2 else 1)
    if args.method == "sdca":
        estimator = _estimator(args, loss, screen)
        _say_memory(estimator, data, screen)
        aim = f"{loss} to a relative gap of {args.tol:g}"
    else:
        estimator = methods.make(args, data, screen, args.parser_default)
        if comm is not None:
            estimator.set_params(comm=comm)
        loss = aim = args.method
    read_seconds = time.perf_counter() - started - (compile_clock.seconds - compiled)

    by = "" if comm is None else f" on {comm.size} processes"
    screen.say(f"fitting {aim}{by}; Ctrl-C keeps what is reached")
    with warnings.catch_warnings():
        # Told below, with advice that fits the command line.
        warnings.filterwarnings("ignore", message="interrupted")
        rows = data if comm is None else _ranks.shard(data, args, estimator, comm)
        if comm is not None and comm.rank:
            data = rows  # the first process alone keeps the others, to judge on
        estimator.fit(rows.X, rows.y)
    if comm is not None and comm.rank:
        return 0  # the first process judges and writes
    outcome, done = methods.outcome(estimator), methods.iterations(estimator)
    if outcome == "diverged":
        raise CommandError("the objective is no longer a finite number: scale the features, or use --dtype float64")
    if outcome == "interrupted":
        if not done:
            raise KeyboardInterrupt
        screen.warn(f"interrupted after {count(done, _step(estimator))}: the model reached so far is kept")

    model = _completed(estimator.model_, data)
    if args.sparsify is not None:
        model = model.sparsify(args.sparsify)
    model.save(args.output)
    if args.history:
        methods.write_history(estimator, args.history)
    if args.plot:
        _plot(estimator.history_, loss, args)
    try:
        metrics = evaluate(model, data if valid is None else valid, n_jobs=args.n_jobs)
        advice = penalty_advice(estimator, data, metrics, _where(args), args)
    except KeyboardInterrupt:
        screen.warn(f"interrupted: {args.output} is written, its metrics are not known")
        return 0
    if metrics["unseen_labels"]:
        screen.warn(unseen_sentence(args.valid, metrics))
    if advice:
        screen.warn(advice)
    if not screen.quiet:
        _summarise(args, screen, estimator, metrics, read_seconds)
    return 0


def _read(args: argparse.Namespace, screen: Screen) -> Dataset:
    """The data to train on, with targets of the kind that the loss takes."""
    data = read_data(
        args.data,
        args,
        screen,
        task="regression" if args.loss in REGRESSION else args.task,
        labels=args.labels,
        dtype=args.dtype or "float32",
        n_features=args.n_features,
        zero_based=args.zero_based,
        vectorizer=vectorizer_options(args),
    )
    if data.y is None:
        raise CommandError(f"{args.data} has no labels: name their file with --labels")
    if data.multilabel:
        single = one_label_a_row(data) if args.task != "multilabel" else None
        if single is not None:
            screen.say("  every row has one label: taken as classes (--task multilabel takes them as sets)")
            return single
    elif data.y.dtype.kind == "f" and args.loss not in (None, *REGRESSION):
        raise CommandError(
            f"{args.data} has numbers to predict, and --loss {args.loss} takes classes: give --loss squared, or "
            "--task classification if the numbers are names"
        )
    return data


def _without_columns(args: argparse.Namespace) -> argparse.Namespace:
    """The options for --valid: its columns have the names of those that were read from DATA, wherever they stand."""
    return argparse.Namespace(**{**vars(args), "text_column": None, "label_column": None})


def _fitting_loss(data: Dataset) -> str:
    if data.multilabel:
        return "log_loss"
    return "squared" if data.y.dtype.kind == "f" else "multinomial"


def _estimator(args: argparse.Namespace, loss: str, screen: Screen) -> Any:
    """The estimator that the options describe."""
    from manyclass.estimators import LinearClassifier, LinearRegressor

    common: dict[str, Any] = {
        "alpha": args.alpha,
        "l1_ratio": args.l1_ratio,
        "solver": args.solver,
        "option": args.option,
        "sampling": args.sampling,
        "tol": args.tol,
        "max_iter": args.max_iter,
        "fit_intercept": args.fit_intercept,
        "random_state": args.seed,
        "n_jobs": args.n_jobs,
        "dtype": args.dtype,
        "verbose": 0 if screen.quiet else 1,
    }
    if loss in REGRESSION:
        if args.class_weight:
            raise CommandError("--class-weight is for classes, and the loss predicts numbers")
        if type(args.search) is str:  # given: the default is a `methods.DefaultStr`
            raise CommandError("--search finds rivals among classes, and the loss predicts numbers")
        return LinearRegressor(loss, epsilon=args.epsilon, **common)
    return LinearClassifier(loss, gamma=args.gamma, search=str(args.search), class_weight=args.class_weight, **common)


def _say_memory(estimator: Any, data: Dataset, screen: Screen) -> None:
    """What the fit will take besides the data, by the solver's own account (by which the driver may refuse)."""
    from sklearn.base import clone

    from manyclass.runtime.memory import available, human

    problem, _ = clone(estimator)._build(data.X, data.y, None)
    solver = estimator._make_solver(estimator.solver, problem)
    parts = ", ".join(f"{name} {human(size)}" for name, size in solver.nbytes(problem).items())
    there = available()
    screen.say(
        f"solver {solver.name}; memory besides the data: {parts}"
        + ("" if there is None else f"; {human(there)} are available")
    )


def _completed(model: Model, data: Dataset) -> Model:
    """The model with what only the reader of the data knows: names of labels, the vectoriser, facts for predictions."""
    from manyclass.metrics import class_counts

    facts: dict[str, Any] = {
        "source": data.source,
        "format": data.format,
        "zero_based": data.zero_based,
        "rows": data.n_samples,
        "notes": list(data.notes),
        "table": None if data.layout is None else data.layout.to_dict(),
    }
    classes = model.classes
    if classes is not None:
        facts["class_counts"] = class_counts(data.y, None if data.multilabel else classes)
        if data.multilabel and data.label_names is not None:
            classes = data.label_names
    whole: Any = model  # a dataclass, of whatever kind
    completed: Model = replace(
        whole,
        classes=classes,
        vectorizer=None if data.vectorizer is None else data.vectorizer.to_state(),
        record={**model.record, "data": facts},
    )
    return completed


def _step(estimator: Any) -> str:
    """What its iterations are called."""
    return "stage" if hasattr(estimator, "stage_records_") else "epoch"


def _plot(history: History, loss: str, args: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained")
    axes = history.plot(figure.add_subplot(), label=loss)
    axes.axhline(args.tol, color="0.5", linewidth=1, linestyle="--")
    axes.set_title(f"{loss}, alpha = {args.alpha:g}")
    save_figure(figure, args.plot)


def _where(args: argparse.Namespace) -> str:
    """On which data the model is judged."""
    return f"on {os.path.basename(args.valid)}" if args.valid else "on the training data"


def _summarise(
    args: argparse.Namespace, screen: Screen, estimator: Any, metrics: dict[str, Any], read_seconds: float
) -> None:
    from manyclass.kernels.jit import compile_clock
    from manyclass.runtime.memory import human

    where = _where(args)
    facts = {"loss": f"{estimator.loss}, alpha = {args.alpha:g}"} if args.method == "sdca" else {"method": args.method}
    names = ["accuracy", "f1_macro", "r2", "rmse"]
    if estimator.model_.task == "multilabel":
        names[0] = "precision@1"  # few whole sets of labels are ever right
    facts.update((f"{METRICS.get(name, 'P@1')} {where}", f"{metrics[name]:.4f}") for name in names if name in metrics)
    times = {"read": read_seconds, "compile": compile_clock.seconds}
    history = getattr(estimator, "history_", None)
    if history is not None and len(history) and hasattr(estimator, "objective_"):
        facts["objective"] = f"{estimator.objective_:.8g}"
        tol = estimator.tol
        reached = "certified" if estimator.duality_gap_ <= tol else f"certified; {tol:g} was asked for"
        facts["relative gap"] = f"{estimator.duality_gap_:.2e} ({reached})"
        times["solve"] = history.last.seconds
    facts[f"{_step(estimator)}s"] = count(methods.iterations(estimator))
    facts["seconds"] = ", ".join(f"{name} {seconds(spent)}" for name, spent in times.items())
    facts["model"] = f"{args.output}, {human(os.path.getsize(args.output))}"
    screen.facts("", facts)
