"""What ``manyclass fit`` makes of a fitted estimator: the model to write, its history, a figure, a summary."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from manyclass.cli._common import Screen, count, save_figure, seconds, write_csv
from manyclass.cli._estimators import spelled
from manyclass.cli._folders import size_of
from manyclass.cli.score import METRICS

if TYPE_CHECKING:
    from manyclass.distributed import Communicator
    from manyclass.io import Dataset
    from manyclass.models.base import Model
    from manyclass.objective.history import History

__all__ = ["completed", "explained", "iterations", "outcome", "plot", "step", "summarize", "where", "write_history"]


def outcome(estimator: Any) -> str:
    """How the fit ended."""
    history = getattr(estimator, "history_", None)
    return str(estimator.outcome_ if history is None else history.outcome)


def iterations(estimator: Any) -> int:
    """Epochs, steps or stages."""
    return int(estimator.n_iter_ if hasattr(estimator, "n_iter_") else sum(estimator.n_stages_))


def explained(args: argparse.Namespace, estimator: Any, data: Dataset) -> float:
    """The fraction of the deviance that the model explains on all rows of the fit; NaN where there is none."""
    from sklearn.base import clone

    from manyclass.estimators.deviance import deviance_explained
    from manyclass.models.linear import LinearModel

    held_out = bool(estimator.history_.validation) if args.estimator == "linear" else True
    if held_out or args.sparsify is not None or not isinstance(estimator.model_, LinearModel):
        return float("nan")
    folds = hasattr(estimator, "mean_scores_")
    plain = estimator._estimator(estimator.l1_ratio_) if folds else clone(estimator)
    return deviance_explained(estimator, plain._build(data.X, data.y, None)[0])


def step(estimator: Any) -> str:
    """What its iterations are called."""
    return "stage" if hasattr(estimator, "stage_records_") else "epoch"


def completed(estimator: Any, data: Dataset, comm: Communicator | None = None) -> Model:
    """The model with what only the reader of the data knows: names of labels, the vectorizer, facts for predictions.

    With ``comm``, the data are the rows of this process.
    """
    from manyclass.metrics import class_counts

    model = estimator.model_
    facts: dict[str, Any] = {
        "source": data.source,
        "format": data.format,
        "zero_based": data.zero_based,
        "rows": data.n_samples if comm is None else int(comm.allreduce(data.n_samples)),
        "notes": list(data.notes),
        "table": None if data.layout is None else data.layout.to_dict(),
    }
    classes = model.classes
    if classes is not None:
        counts = class_counts(data.y, None if data.multilabel else classes)
        facts["class_counts"] = counts if comm is None else comm.allreduce(counts)
        if data.multilabel and data.label_names is not None:
            classes = data.label_names
    found: Model = replace(
        model,
        classes=classes,
        vectorizer=None if data.vectorizer is None else data.vectorizer.to_state(),
        record={**model.record, "data": facts},
    )
    return found


def write_history(estimator: Any, path: str) -> None:
    """The evaluations of a fit, or its stages, as CSV."""
    history = getattr(estimator, "history_", None)
    if history is not None:
        history.to_csv(path)
        return
    rows = [record.to_dict() for record in estimator.stage_records_]
    write_csv(path, list(rows[0]) if rows else ["number"], [list(row.values()) for row in rows])


def plot(estimator: Any, args: argparse.Namespace) -> None:
    """Draw the gap of a certified fit."""
    from matplotlib.figure import Figure

    history: History = estimator.history_
    name = spelled(estimator.loss) if args.estimator == "linear" else args.estimator
    chosen = hasattr(estimator, "validation_scores_") or hasattr(estimator, "mean_scores_")
    figure = Figure(figsize=(6.4, 8.4 if chosen else 4.2), dpi=150, layout="constrained")
    axes, *below = figure.subplots(1 + chosen, squeeze=False)[:, 0]
    history.plot(axes, label=name)
    axes.axhline(estimator.tol, color="0.5", linewidth=1, linestyle="--")
    axes.set_title(f"{name}, alpha = {estimator.alpha_:g}")
    for other in below:
        estimator.plot(other)
    save_figure(figure, args.plot)


def where(args: argparse.Namespace) -> str:
    """On which data the model is judged."""
    return f"on {os.path.basename(args.valid)}" if args.valid else "on the training data"


def _strength(estimator: Any) -> str:
    """The alpha of a fit, and where it is from."""
    end = ""
    if hasattr(estimator, "validation_scores_"):
        end = f", the best of {len(estimator.validation_scores_)}"
    elif hasattr(estimator, "mean_scores_"):
        end = f", the best of {estimator.mean_scores_.size}"
    elif estimator.alpha is None:
        end = " = 1 / rows (--alpha auto chooses one)"
    return f"alpha = {estimator.alpha_:g}{end}"


def summarize(
    args: argparse.Namespace,
    screen: Screen,
    estimator: Any,
    metrics: dict[str, Any],
    read_seconds: float,
    deviance: float = float("nan"),
) -> None:
    """Tell how the fit went, and how good its model is; ``deviance`` is the fraction that it explains."""
    from manyclass.kernels.jit import compile_clock
    from manyclass.runtime.memory import human

    facts = {"estimator": args.estimator}
    if args.estimator == "linear":
        facts = {"loss": f"{spelled(estimator.loss)}, {_strength(estimator)}", "solver": estimator.solver_}
    names = ["accuracy", "f1_macro", "r2", "rmse"]
    if estimator.model_.task == "multilabel":
        names[0] = "precision@1"  # few whole sets of labels are ever right
    facts.update(
        (f"{METRICS.get(name, 'P@1')} {where(args)}", f"{metrics[name]:.4f}") for name in names if name in metrics
    )
    if deviance == deviance:
        facts["deviance explained"] = f"{deviance:.4f} on the training data"
    times = {"read": read_seconds, "compile": compile_clock.seconds}
    history = getattr(estimator, "history_", None)
    if history is not None and len(history):
        gap, tol = getattr(estimator, "duality_gap_", float("nan")), estimator.tol
        if gap == gap:
            facts["objective"] = f"{estimator.objective_:.8g}"
            reached = "certified" if gap <= tol else f"certified; {tol:g} was asked for"
            facts["relative gap"] = f"{gap:.2e} ({reached})"
        times["solve"] = history.last.seconds
        if history.validation:
            facts["best held-out score"] = f"{history.best.score:.4f}, after epoch {history.best.iteration}"
    facts[f"{step(estimator)}s"] = count(iterations(estimator))
    facts["seconds"] = ", ".join(f"{name} {seconds(spent)}" for name, spent in times.items())
    facts["model"] = f"{args.output}, {human(size_of(args.output))}"
    screen.facts("", facts)
