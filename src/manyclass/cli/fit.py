"""``manyclass fit``: from a file of data to a file of a model."""

from __future__ import annotations

import argparse
import copy
import os
import time
import warnings
from typing import TYPE_CHECKING, Any

from manyclass.cli import _estimators, _fitted, _ranks
from manyclass.cli._advice import cost_of, penalty_advice
from manyclass.cli._common import (
    MATPLOTLIB,
    CommandError,
    Screen,
    check_output,
    count,
    has_matplotlib,
)
from manyclass.cli._data import (
    TASKS,
    add_file_options,
    add_vectorizer_options,
    one_label_a_row,
    read_data,
    read_like,
    stored_layout,
    vectorizer_options,
)
from manyclass.cli._estimators import (
    complete,
    has_numbers,
    is_regression,
    make,
    placed,
    solver_class,
    spelled,
    unknown_option,
)
from manyclass.cli._folders import describe_store, is_store
from manyclass.cli.score import METRICS, evaluate, unseen_sentence, with_targets
from manyclass.runtime.files import special

if TYPE_CHECKING:
    from manyclass.distributed import Communicator
    from manyclass.io import Dataset

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "complete", "run", "unknown_option"]

USAGE = "DATA... -o MODEL"
HELP = "train a model on a file"
DESCRIPTION = """\
Minimize  mean loss + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)  until the certified relative duality gap is
at most --tol, and write the model. Ctrl-C or SIGTERM ends the training early and keeps the model reached so far."""
EPILOG = """\
examples:
  manyclass fit train.svm.gz -o codes.model --valid test.svm.gz
  manyclass fit train.txt -o tags.model --loss squared_hinge --alpha auto --n-jobs -1
  manyclass fit tickets.csv -o tickets.model --text-column text --label-column queue --ngrams 1 2
  manyclass fit day-*.parquet -o tickets.model --text-column text --label-column queue
  manyclass fit people.csv -o people.model --label-column income --ignore-columns name
  manyclass fit tickets.csv -o tickets.model --text-column text --number-columns age --category-columns product,country
  manyclass fit train.npz -o codes.model --labels codes.txt --plot gap.png --history gap.csv
  manyclass fit codes.svm.gz -o codes.model --loss crammer_singer --set loss.gamma=0.5 --alphas 1e-4,1e-5,1e-6 --cv 3
  manyclass fit codes.svm.gz -o codes.model --solver memoir --l1-ratio 1 --valid test.svm.gz --early-stopping 2
  manyclass fit pixels.npz -o digits.model --estimator stagewise --features fourier:1024 --set n_blocks=20
  manyclass fit many.npz -o many.model --checkpoint many.state --resume
  mpiexec -n 4 python -m mpi4py -m manyclass fit many.npz -o many.model --solver ds_mlr --checkpoint state --resume
  manyclass fit train.store -o codes.blocks --solver out_of_core --max-iter 5 --set solver.block_classes=5000

Without --loss it is multinomial for one class a row, log_loss for sets of labels and squared for numbers to predict.
A warning says that --alpha is too large where accuracy (P@1 for sets of labels) is below 0.5 and the mean loss would go
on falling, at half of its mean rate so far or more, if the weights grew.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("data", metavar="DATA", nargs="+", help="labeled data")
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="file to write the model to")
    parser.add_argument("--valid", metavar="FILE", help="labeled data of the same kind to judge the model on")
    parser.add_argument("--valid-labels", metavar="FILE", help="as --labels, for --valid")
    parser.add_argument("--task", choices=TASKS, default="auto", help="what the labels are (default: told from them)")
    _estimators.add_arguments(parser)
    parser.add_argument(
        "--prior", metavar="MODEL", help="penalize the distance to the weights of this model, instead of that to zero"
    )
    kept = parser.add_argument_group("a state on disk")
    kept.add_argument(
        "--checkpoint",
        metavar="PATH",
        help="keep the state of the run there: a file; with --solver ds_mlr and out_of_core a folder all hosts share",
    )
    kept.add_argument(
        "--checkpoint-seconds",
        type=float,
        metavar="S",
        default=60.0,
        help="least time between two writes (default: 60)",
    )
    kept.add_argument("--resume", action="store_true", help="go on from what --checkpoint keeps, if there is anything")
    _ranks.add_arguments(parser)
    outputs = parser.add_argument_group("what is written")
    outputs.add_argument(
        "--sparsify", type=float, metavar="THRESHOLD", help="drop weights of this magnitude or less, store the others"
    )
    outputs.add_argument("--history", metavar="FILE.csv", help="objective, gap and time of every evaluation")
    outputs.add_argument(
        "--plot", metavar="FILE.png", help="the gap against time, and the scores that alpha was chosen by"
    )
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


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Read, train, judge, write; by several processes where a launcher has started them."""
    _ranks.refuse_unknown()
    _, size = _ranks.launched()
    if size == 1:
        return _run(args, screen, None)
    solver = solver_class(_estimators.given(args))
    if not (solver and solver.distributed):
        raise CommandError(
            f"{size} processes were started, and this fit is for one: try --solver ds_mlr, sdca_dp for "
            "Crammer-Singer, or out_of_core on a store"
        )
    if "alphas" in args or "cv" in args:
        raise CommandError(f"{size} processes were started, and --alphas and --cv are for one: give an --alpha")
    if solver.partitions_rows and not _stays_on_disk(args):
        if args.sparsify is not None:
            raise CommandError(
                "--sparsify is not for several processes, each of which writes its classes: leave it out "
                "(manyclass.models.splitting.sparsify_model writes a sparse copy of the model)"
            )
        if os.path.exists(args.output):
            raise CommandError(f"-o {args.output} exists: several processes write a folder, give it a new name")
    return _ranks.together(args, screen, _run)


def _run(args: argparse.Namespace, screen: Screen, comm: Communicator | None) -> int:
    from manyclass.kernels.jit import compile_clock
    from manyclass.models.loading import load
    from manyclass.models.partitioned import PartitionedModel

    _check(args, screen)
    if _stays_on_disk(args):
        return _fit_store(args, screen, comm)
    started, compiled = time.perf_counter(), compile_clock.seconds
    solver = solver_class(_estimators.given(args))
    apart = comm if comm is not None and solver is not None and solver.partitions_rows else None
    if apart is not None:
        blank = make(args, Screen(quiet=True))
        blank.solver = placed(blank.solver, comm=apart)
        _ranks.refuse_size(args, blank, apart, screen)
    prior = _prior(args)
    data = _read(args, screen, apart, prior)
    estimator = make(args, screen, data)
    if comm is not None:
        estimator.solver = placed(estimator.solver, comm=comm)
    valid = _read_valid(args, screen, estimator, data) if args.valid and (comm is None or comm.rank == 0) else None
    if comm is None:
        for line in cost_of(estimator, data):
            screen.say(line)
    read_seconds = time.perf_counter() - started - (compile_clock.seconds - compiled)

    by = "" if comm is None else f" on {comm.size} processes"
    screen.say(f"fitting {_aim(args, estimator)}{by}; {_kept_by(args)}")
    with warnings.catch_warnings():
        # Told below, with advice that fits the command line.
        warnings.filterwarnings("ignore", message="interrupted")
        if comm is not None and comm.rank:
            warnings.simplefilter("ignore")  # the first process says the same
        chosen = _by_validation(args, screen, estimator, data, valid)
        if chosen is None:
            near = {} if prior is None else {"prior": prior}
            chosen = estimator.fit(data.X, data.y, **near, **_kept(args), **_held_out(args, valid))
        estimator = chosen
    outcome, done = _fitted.outcome(estimator), _fitted.iterations(estimator)
    if outcome == "diverged":
        raise CommandError("the objective is no longer a finite number: scale the features, or use --dtype float64")
    if outcome == "interrupted":
        if not done:
            raise KeyboardInterrupt
        if comm is None or comm.rank == 0:
            screen.warn(f"interrupted after {count(done, _fitted.step(estimator))}: the model reached so far is kept")

    model = estimator.model_ = _fitted.completed(estimator, data, apart)
    if args.sparsify is not None:
        model = estimator.model_ = model.sparsify(args.sparsify)
    if isinstance(model, PartitionedModel) or comm is None or comm.rank == 0:
        estimator.save(args.output)  # and remove the checkpoint of a finished fit
    if apart is not None:
        apart.barrier()
        model = estimator.model_ = load(args.output)
    metrics = None if apart is None or args.valid else _ranks.judged(model, data, apart, estimator.n_jobs)
    if comm is not None and comm.rank:
        return 0  # the first process tells
    if args.history:
        _fitted.write_history(estimator, args.history)
    if args.plot:
        _fitted.plot(estimator, args)
    try:
        if metrics is None:
            metrics = evaluate(model, data if valid is None else valid, n_jobs=estimator.n_jobs)
        advice = penalty_advice(estimator, data, metrics, _fitted.where(args))
    except KeyboardInterrupt:
        screen.warn(f"interrupted: {args.output} is written, its metrics are not known")
        return 0
    if metrics["unseen_labels"]:
        screen.warn(unseen_sentence(args.valid, metrics))
    if advice:
        screen.warn(advice)
    if not screen.quiet:
        deviance = _fitted.explained(args, estimator, data) if comm is None else float("nan")
        _fitted.summarize(args, screen, estimator, metrics, read_seconds, deviance)
    return 0


def _fit_store(args: argparse.Namespace, screen: Screen, comm: Communicator | None) -> int:
    """Train on a row store that stays on disk; the solver writes the model itself."""
    from manyclass.io.store import RowStore

    store = RowStore(args.data)
    screen.say(f"opened {args.data}: {describe_store(store)}")
    estimator = make(args, screen)
    estimator.solver = placed(estimator.solver, comm=comm, path=args.output)
    judged = args.valid and (comm is None or comm.rank == 0)
    valid = _read_valid(args, screen, estimator, store.dataset(end=1)) if judged else None
    screen.say(f"fitting {_aim(args, estimator)}; {_kept_by(args)}")
    estimator.fit(store, **_kept(args), **_held_out(args, valid))
    if comm is not None and comm.rank:
        return 0
    if args.history:
        _fitted.write_history(estimator, args.history)
    if args.plot:
        _fitted.plot(estimator, args)
    metrics: dict[str, Any] = {}
    if valid is not None:
        try:
            metrics = evaluate(estimator.model_, valid, n_jobs=estimator.n_jobs)
        except KeyboardInterrupt:
            screen.warn(f"interrupted: {args.output} is written, its metrics are not known")
            return 0
        if metrics["unseen_labels"]:
            screen.warn(unseen_sentence(args.valid, metrics))
    if not screen.quiet:
        _fitted.summarize(args, screen, estimator, metrics, 0.0)
    return 0


def _prior(args: argparse.Namespace) -> Any:
    """The model of --prior, if one is given."""
    if args.prior is None:
        return None
    from manyclass import load
    from manyclass.models.linear import LinearModel

    model = load(args.prior)
    if not isinstance(model, LinearModel):
        raise CommandError(f"--prior takes a linear model in one file, and {args.prior} is a {type(model).__name__}")
    return model


def _kept(args: argparse.Namespace) -> dict[str, Any]:
    """What ``fit`` is told of the state on disk."""
    if args.checkpoint is None:
        return {}
    return {"checkpoint": args.checkpoint, "checkpoint_seconds": args.checkpoint_seconds}


def _held_out(args: argparse.Namespace, valid: Dataset | None) -> dict[str, Any]:
    """What ``fit`` is given of --valid: the rows that --early-stopping judges on."""
    if valid is None or "early_stopping" not in _estimators.given(args):
        return {}
    return {"X_val": valid.X, "y_val": valid.y}


# --- before the fit -------------------------------------------------------------------------------------------------


def _check(args: argparse.Namespace, screen: Screen) -> None:
    """Refuse what cannot be done, before a long file is read."""
    solver = solver_class(_estimators.given(args))
    outputs = {"-o": args.output, "--history": args.history, "--plot": args.plot}
    if _stays_on_disk(args):
        del outputs["-o"]  # a folder, which the solver looks after
        _check_store(args, solver.name)
    for option, path in outputs.items():
        check_output(option, path, args.data, args.valid, args.labels, args.valid_labels)
    if args.plot:
        if not has_matplotlib():
            raise CommandError(f"--plot: {MATPLOTLIB}")
        if os.path.splitext(args.plot)[1].lower() not in ("", ".png", ".pdf", ".svg"):
            raise CommandError(f"--plot {args.plot}: figures are written as .png, .pdf or .svg")
        if args.estimator in ("calibrated", "stagewise") or not (solver is None or solver.certified):
            name = args.estimator if solver is None else solver.name
            raise CommandError(f"--plot shows a certified gap, and {name} has none: see --history")
    if args.sparsify is not None and not args.sparsify >= 0:
        raise CommandError(f"--sparsify must be at least 0, got {args.sparsify:g}")
    if args.prior is not None:
        if args.estimator != "linear" or "alphas" in args or "cv" in args:
            raise CommandError("--prior is for --estimator linear at one --alpha: leave it out")
        if vectorizer_options(args) or args.n_features is not None:
            raise CommandError(
                "--prior makes features as its model does: leave out the options on texts, and --n-features"
            )
        if solver is not None and solver.distributed:
            raise CommandError(
                f"--prior is not for --solver {solver.name}, of several processes: leave one of them out"
            )
    make(args, screen)
    _check_checkpoint(args, screen, solver is not None and solver.distributed)


#: Options that have no meaning for rows that stay on disk.
_IN_MEMORY = ("sparsify", "labels", "n_features", "alphas", "cv", "prior")


def _stays_on_disk(args: argparse.Namespace) -> bool:
    """Whether the solver asked for fits a row store as it is."""
    from manyclass.solvers import StoreSolver

    solver = solver_class(_estimators.given(args))
    return args.estimator == "linear" and solver is not None and issubclass(solver, StoreSolver)


def _check_store(args: argparse.Namespace, solver: str) -> None:
    """Refuse data and options that a solver of row stores does not take."""
    if not is_store(args.data):
        raise CommandError(
            f"--solver {solver} is for row stores: write {args.data} as one with  manyclass convert {args.data} "
            "-o NAME.store"
        )
    for name in _IN_MEMORY:
        if getattr(args, name, None) is not None:
            raise CommandError(f"--{name.replace('_', '-')} is not for --solver {solver}: leave it out")


def _check_checkpoint(args: argparse.Namespace, screen: Screen, folder: bool) -> None:
    """Say where a run goes on; refuse to write over the state of another."""
    path = args.checkpoint
    if path is None:
        if args.resume:
            raise CommandError("--resume goes on from a checkpoint: name it with --checkpoint")
        return
    if args.estimator != "linear" or "cv" in args or "alphas" in args:
        raise CommandError("--checkpoint keeps a fit of --estimator linear at one --alpha: leave it out")
    if not args.checkpoint_seconds >= 0:
        raise CommandError(f"--checkpoint-seconds must be at least 0, got {args.checkpoint_seconds:g}")
    if not folder:
        check_output("--checkpoint", path, args.data, args.output)
    elif kind := special(path):
        raise CommandError(f"--checkpoint {path} is {kind}: give the name of a folder")
    epoch = _kept_epoch(path)
    if epoch is None:
        if args.resume:
            screen.say(f"--resume: nothing is kept in {path} yet, the fit starts afresh")
    elif not args.resume:
        raise CommandError(f"--checkpoint {path} keeps the state of a run: go on from it with --resume, or remove it")
    else:
        screen.say(f"going on after epoch {epoch} from {path}")


def _kept_epoch(path: str) -> int | None:
    """The epoch that a checkpoint was written after; None if there is none."""
    import json

    from safetensors import SafetensorError, safe_open

    manifest = os.path.join(path, "manifest.json")
    try:
        if os.path.isdir(path):
            with open(manifest, encoding="utf-8") as file:
                return int(json.load(file)["epoch"])
        if not os.path.exists(path):
            return None
        with safe_open(path, framework="numpy") as stored:
            return int(stored.get_tensor("state.iteration"))
    except FileNotFoundError:
        return None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"--checkpoint {path} is not the state of a run: remove it to start afresh") from error


def _read(args: argparse.Namespace, screen: Screen, comm: Communicator | None = None, prior: Any = None) -> Dataset:
    """The data to train on, with targets of the kind that the loss takes; with ``comm`` the rows of this process.

    Features are numbered as those of ``prior`` are.
    """
    asked = _estimators.given(args)
    like: dict[str, Any] = {"vectorizer": vectorizer_options(args), "n_features": args.n_features}
    if prior is not None:
        like = {"n_features": prior.n_features}
        if prior.text_vectorizer is not None:
            like = {"vectorizer": prior.text_vectorizer, "layout": stored_layout(prior, args.prior)}
    data = read_data(
        args.data,
        args,
        screen,
        task="regression" if is_regression(asked) else args.task,
        labels=args.labels,
        dtype=asked.get("dtype", "float32"),
        zero_based=args.zero_based,
        comm=comm,
        **like,
    )
    if data.y is None:
        raise CommandError(
            f"{args.data} has no labels: name their file with --labels"
            + (", or their column with --label-column" if data.layout is not None else "")
        )
    if data.multilabel:
        single = one_label_a_row(data) if args.task != "multilabel" else None
        if single is not None:
            screen.say("  every row has one label: taken as classes (--task multilabel takes them as sets)")
            return single
    elif has_numbers(data) and "loss" in asked and not is_regression(asked):
        raise CommandError(
            f"{args.data} has numbers to predict, and --loss {asked['loss']} takes classes: give --loss squared, or "
            "--task classification if the numbers are names"
        )
    return data


#: Options on columns, which those of --valid have by the layout and the encoder of the fit.
_COLUMNS = ("text_column", "label_column", "number_columns", "category_columns", "ignore_columns")


def _read_valid(args: argparse.Namespace, screen: Screen, estimator: Any, data: Dataset) -> Dataset:
    """The data of --valid, read as those of the fit were; its columns have their names, wherever they stand."""
    task = "regression" if has_numbers(data) else "multilabel" if data.multilabel else "multiclass"
    valid = read_like(
        args.valid,
        argparse.Namespace(**{**vars(args), **dict.fromkeys(_COLUMNS)}),
        screen,
        n_features=data.n_features,
        task=task,
        format=data.format,
        zero_based=data.zero_based,
        vectorizer=data.vectorizer,
        layout=data.layout,
        dtype=estimator.dtype or "float32",
        labels=args.valid_labels,
    )
    if valid.y is None:
        raise CommandError(f"{args.valid} has no labels: name their file with --valid-labels")
    return with_targets(valid, task, data.y.shape[1] if data.y.ndim == 2 else 1)


def _aim(args: argparse.Namespace, estimator: Any) -> str:
    """What is to be fitted, in a few words."""
    if args.estimator != "linear":
        return str(args.estimator)
    solver = solver_class(_estimators.given(args))
    loss = spelled(estimator.loss)
    return f"{loss} to a relative gap of {estimator.tol:g}" if solver is None or solver.certified else loss


def _kept_by(args: argparse.Namespace) -> str:
    """What remains of a fit that does not come to its end."""
    kept = "Ctrl-C keeps what is reached"
    where = args.checkpoint
    return kept if where is None else f"{kept}, and after a failure the same command with --resume goes on from {where}"


# --- the fit --------------------------------------------------------------------------------------------------------


def _by_validation(
    args: argparse.Namespace, screen: Screen, estimator: Any, data: Dataset, valid: Dataset | None
) -> Any:
    """The estimator fitted at that of --alphas which is best on --valid; None if this is not what is asked for."""
    alphas = _estimators.given(args).get("alphas")
    if valid is None or alphas is None or hasattr(estimator, "alphas"):
        return None
    best, estimator.warm_start = None, True
    scores: dict[float, float] = {}
    ranked = sorted(set(alphas), reverse=True)
    name = "precision@1" if data.multilabel else "r2" if has_numbers(data) else "accuracy"
    for alpha in ranked:
        estimator.set_params(alpha=alpha).fit(data.X, data.y, **_held_out(args, valid))
        metrics = evaluate(estimator.model_, valid, n_jobs=estimator.n_jobs)
        screen.say(f"alpha = {alpha:g}: {METRICS.get(name, 'P@1')} {metrics[name]:.4f} {_fitted.where(args)}")
        if metrics[name] > max(scores.values(), default=float("-inf")):
            best = copy.copy(estimator)
        scores[alpha] = metrics[name]
        if _fitted.outcome(estimator) == "interrupted":
            break
    if best is None:
        return None
    best.validation_scores_ = scores
    if best.alpha == ranked[-1] and len(ranked) > 1:
        screen.warn(f"the smallest of --alphas, {best.alpha:g}, is the best of them: a smaller one may be better")
    return best
