"""``manyclass score``: how good a model is on labeled data."""

from __future__ import annotations

import argparse
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from manyclass.cli._common import CommandError, Screen, count, pieces
from manyclass.cli._data import add_model_data_options, one_label_a_row, read_for_model
from manyclass.cli._folders import most_rows
from manyclass.cli._hierarchy import Hierarchy, read_hierarchy

if TYPE_CHECKING:
    import numpy as np

    from manyclass.io import Dataset
    from manyclass.models.base import Model

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = [
    "DESCRIPTION",
    "EPILOG",
    "HELP",
    "METRICS",
    "USAGE",
    "add_arguments",
    "evaluate",
    "rank_shares",
    "run",
    "truth_of",
    "unseen_sentence",
    "with_targets",
]

USAGE = "MODEL DATA..."
HELP = "metrics of a model on labeled data"
DESCRIPTION = """\
Accuracy, F1 (macro, micro, weighted), and of the best K classes precision, nDCG and their propensity-scored forms; for
one label a row also where in the ranking of all classes it stands. For regression R2 and root mean squared error."""
EPILOG = """\
examples:
  manyclass score codes.model test.svm.gz
  manyclass score codes.model test.svm.gz --top-k 10 --json > metrics.json
  manyclass score codes.model test.svm.gz --train train.svm.gz --propensity 0.5 0.4 --hierarchy parents.tsv
"""

#: Lists of these lengths are judged, up to --top-k, which is one of them.
_KS = (1, 3, 5, 10, 50, 100)
#: Ranks at which the distribution is shown.
_RANKS = (1, 2, 5, 10, 20, 50, 100, 1000, 10_000, 100_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="what `manyclass fit` wrote")
    parser.add_argument("data", metavar="DATA", nargs="+", help="labeled data")
    parser.add_argument("--top-k", type=int, default=5, metavar="K", help="longest list judged (default: %(default)s)")
    parser.add_argument(
        "--propensity",
        type=float,
        nargs=2,
        metavar=("A", "B"),
        help="parameters of the propensity-scored metrics (default: 0.55 1.5)",
    )
    parser.add_argument(
        "--train",
        metavar="DATA",
        help="training data, whose labels are counted for the propensities (default: the counts in the model)",
    )
    parser.add_argument(
        "--hierarchy",
        metavar="FILE",
        help="accuracy at each level of a hierarchy; each line of FILE has a label, a tab and its parent (empty: a "
        "root), or line i, from 0, has the number of the parent of node i (-1: a root)",
    )
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads; -1: all cores (default: 1)")
    add_model_data_options(parser)


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Score the model."""
    from manyclass import load
    from manyclass.runtime.threads import resolve_n_jobs

    resolve_n_jobs(args.n_jobs)
    if args.top_k < 1:
        raise CommandError(f"--top-k must be at least 1, got {args.top_k}")
    model = load(args.model)
    if args.propensity is not None:
        _check_propensity(model, *args.propensity, counted=args.train is not None)
    hierarchy = None if args.hierarchy is None else read_hierarchy(args.hierarchy, model)
    data = read_for_model(args.data, args, screen, model, scored=True)
    counts = None
    if args.train is not None:
        apart = argparse.Namespace(**{**vars(args), "labels": None})  # --labels are those of DATA
        counts = _label_counts(model, read_for_model(args.train, apart, screen, model, scored=True))
    metrics = evaluate(
        model,
        data,
        top_k=args.top_k,
        n_jobs=args.n_jobs,
        propensity=args.propensity or (0.55, 1.5),
        counts=counts,
        hierarchy=hierarchy,
    )
    if metrics["unseen_labels"]:
        screen.warn(unseen_sentence(args.data, metrics))
    shares = rank_shares(model, data, n_jobs=args.n_jobs) if model.task == "multiclass" else None
    if args.json:
        screen.json({**metrics, **({} if shares is None else {"rank_distribution": shares})})
        return 0
    names = {**METRICS, "accuracy": "accuracy (whole sets)"} if model.task == "multilabel" else METRICS
    _show(screen, f"{args.model} on {args.data}", names, metrics, shares)
    return 0


class _Truth(NamedTuple):
    """The labels of a data set and the classes of a model, in one type."""

    y: Any  # (n,) labels, or an indicator whose first columns are the classes of the model
    classes: Array  # those of the model, then labels that only the data have
    rows_with_unseen: int


class _Counts(NamedTuple):
    """The number of training rows of each label, which is written as text, and of all rows."""

    of_label: dict[str, int]
    rows: int


def _check_propensity(model: Model, A: float, B: float, *, counted: bool) -> None:
    """A CommandError unless the parameters are valid, and the labels ``counted`` in training data, or by the model."""
    from manyclass.metrics import inverse_propensity

    if not counted and _counts_of(model) is None:
        raise CommandError(
            "--propensity needs the class counts of three training rows or more; the model has none: give --train DATA"
        )
    if not (isfinite(A) and isfinite(B)):
        raise CommandError(f"--propensity {A:g} {B:g}: both must be finite")
    try:
        inverse_propensity([1.0], 3, A=A, B=B)
    except ValueError as error:
        raise CommandError(f"--propensity {A:g} {B:g}: {error}") from None


def _counts_of(model: Model) -> _Counts | None:
    """The counts in the record of a model; propensities are defined from three training rows on."""
    facts = model.record.get("data", {})
    counts, rows = facts.get("class_counts"), facts.get("rows", 0)
    if counts is None or rows < 3 or model.classes is None:
        return None
    return _Counts(dict(zip(map(str, model.classes.tolist()), counts)), rows)


def _label_counts(model: Model, data: Dataset) -> _Counts:
    """The counts in training data."""
    from manyclass.metrics import class_counts

    if data.y is None or model.task == "regression" or data.n_samples < 3:
        raise CommandError(f"--train {data.source}: expected three rows or more with labels, and a model of classes")
    truth = truth_of(model, with_targets(data, model.task, model.n_outputs))
    counts = class_counts(truth.y, truth.classes)
    return _Counts(dict(zip(map(str, truth.classes.tolist()), counts.tolist())), data.n_samples)


def evaluate(
    model: Model,
    data: Dataset,
    *,
    top_k: int = 5,
    n_jobs: int | None = None,
    propensity: tuple[float, float] = (0.55, 1.5),
    counts: _Counts | None = None,
    hierarchy: Hierarchy | None = None,
) -> dict[str, Any]:
    """All metrics of a model on labeled data, by name.

    Raises
    ------
    CommandError
        If the data have no labels, or labels of another kind than the model predicts.
    """
    if data.y is None:
        raise CommandError(f"{data.source} has no labels: name their file with --labels")
    data = with_targets(data, model.task, model.n_outputs)
    if model.task == "regression":
        return _regression(model, data, n_jobs)
    import numpy as np
    from scipy.sparse import csr_matrix

    from manyclass.metrics import report

    truth = truth_of(model, data)
    n_classes = len(model.classes) if model.classes is not None else 0
    k = min(top_k, n_classes)
    # Rows of a store are mapped as they are taken.
    parts = [model.topk(data.X[rows], k, n_jobs)[0] for rows in pieces(data.n_samples, k, most_rows(data.X))]
    lists = np.concatenate(parts) if parts else model.topk(data.X, k, n_jobs)[0]
    if truth.classes.dtype.kind == "U":
        lists = lists.astype(np.str_)
    predicted = None
    if model.task == "multilabel":
        found = model.predict(data.X, n_jobs)
        predicted = csr_matrix((found.data, found.indices, found.indptr), shape=(data.n_samples, len(truth.classes)))
    options: dict[str, Any] = {}
    counts = counts or _counts_of(model)
    if counts is not None:
        there = np.array([counts.of_label.get(str(label), 0) for label in truth.classes.tolist()])
        options = {"train_counts": there, "n_train": counts.rows, "A": propensity[0], "B": propensity[1]}
    metrics: dict[str, Any] = report(
        truth.y,
        predicted,
        lists,
        ks=sorted({k, *(short for short in _KS if short < k)}),
        classes=truth.classes,
        **options,
    )
    if hierarchy is not None:
        metrics["level_accuracy"] = hierarchy.accuracies(truth.y, lists[:, 0])
    metrics["n_samples"] = data.n_samples
    metrics["unseen_labels"] = len(truth.classes) - n_classes
    metrics["rows_with_unseen_labels"] = truth.rows_with_unseen
    return metrics


def unseen_sentence(path: str, metrics: dict[str, Any], then: str = "counted as errors") -> str:
    """What to say of labels that the model cannot predict, and of what is done ``then``."""
    return (
        f"{count(metrics['unseen_labels'], 'label')} of {path} never seen in training, on "
        f"{count(metrics['rows_with_unseen_labels'], 'row')}: {then}"
    )


def _regression(model: Model, data: Dataset, n_jobs: int | None) -> dict[str, Any]:
    import numpy as np
    from sklearn.metrics import r2_score

    truth = np.asarray(data.y, np.float64).reshape(data.n_samples, -1)
    predicted = model.scores(data.X, n_jobs)
    error = float(np.sqrt(np.mean((predicted - truth) ** 2)))
    r2 = float(r2_score(truth, predicted)) if data.n_samples > 1 else float("nan")
    return {"n_samples": data.n_samples, "r2": r2, "rmse": error, "unseen_labels": 0, "rows_with_unseen_labels": 0}


def with_targets(data: Dataset, task: str, n_outputs: int) -> Dataset:
    """The labeled data with targets of the kind that a model of this task predicts.

    Raises
    ------
    CommandError
        If they are of another kind.
    """
    numbers = not data.multilabel and data.y.dtype.kind == "f"
    if task == "regression":
        there = data.y.shape[1] if data.y.ndim == 2 else 1
        if not numbers or there != n_outputs:
            found = count(there, "number") if numbers else "labels"
            raise CommandError(
                f"{data.source} has {found} a row; the model predicts {count(n_outputs, 'number')}: give as many"
            )
        return data
    if numbers:
        raise CommandError(f"{data.source} has numbers to predict; the model predicts classes: give classes as labels")
    if task == "multilabel":
        if not data.multilabel:
            raise CommandError(
                f"{data.source} has one label a row; the model predicts sets of labels: give a 0/1 matrix"
            )
        return data
    if not data.multilabel:
        return data
    single = one_label_a_row(data)
    if single is None:
        raise CommandError(
            f"{data.source} has rows without or with several labels; the model predicts one a row: leave these rows out"
        )
    return single


def truth_of(model: Model, data: Dataset) -> _Truth:
    """Labels as the model names them: integers where both are, else as texts."""
    import numpy as np

    classes = np.asarray(model.classes)
    if not data.multilabel:
        y, classes = _same_type(data.y, classes)
        unseen = np.setdiff1d(y, classes)
        return _Truth(y, np.concatenate([classes, unseen]), int(np.isin(y, unseen).sum()))
    occurring = np.unique(data.y.indices)  # a header may promise more labels
    names = occurring if data.label_names is None else data.label_names[occurring]
    names, classes = _same_type(names, classes)
    return _align(data, occurring, names, classes)


def _align(data: Dataset, occurring: Array, names: Array, classes: Array) -> _Truth:
    """The indicator with its columns in the order of the classes, those of unseen labels behind."""
    import numpy as np
    from scipy.sparse import csr_matrix

    place = {label: column for column, label in enumerate(classes.tolist())}
    target = np.full(data.y.shape[1], -1, dtype=np.int64)
    unseen = []
    for column, name in zip(occurring.tolist(), names.tolist()):
        if name not in place:
            place[name] = len(place)
            unseen.append(name)
        target[column] = place[name]
    columns = target[data.y.indices]
    y = csr_matrix((data.y.data, columns, data.y.indptr), shape=(data.n_samples, len(place)))
    y.sort_indices()
    rows = np.repeat(np.arange(data.n_samples), np.diff(data.y.indptr))
    everything = np.concatenate([classes, np.array(unseen, dtype=names.dtype)])
    return _Truth(y, everything, int(np.unique(rows[columns >= len(classes)]).size))


def _same_type(a: Array, b: Array) -> tuple[Array, Array]:
    """Both as texts, if one is: a file whose labels all look like numbers is read as numbers."""
    import numpy as np

    if "U" in (a.dtype.kind, b.dtype.kind):
        return a.astype(np.str_), b.astype(np.str_)
    return a, b


def rank_shares(model: Model, data: Dataset, *, n_jobs: int | None = None) -> dict[str, float]:
    """The share of rows whose label is among the best r of all classes, for some ranks r; and the median rank.

    Ties count against the label.
    """
    from manyclass.metrics import RankDistribution, rank_distribution

    truth = truth_of(model, with_targets(data, model.task, model.n_outputs))
    K = model.n_outputs
    ranks: RankDistribution | None = None
    for rows in pieces(data.n_samples, K):
        scores = model.scores(data.X[rows], n_jobs)
        part = rank_distribution(truth.y[rows], scores=scores, classes=truth.classes[:K])
        ranks = part if ranks is None else ranks + part
    if ranks is None:
        return {}
    shares = {str(rank): ranks.recall_at(rank) for rank in _RANKS if rank < K}
    return {**shares, "median": ranks.median, "mean_reciprocal": ranks.mean_reciprocal_rank}


#: The names of single numbers.
METRICS = {
    "accuracy": "accuracy",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "f1_weighted": "weighted F1",
    "r2": "R2",
    "rmse": "root mean squared error",
}
_AT_K = {"precision": "P@k", "ndcg": "nDCG@k", "recall": "recall@k", "psp": "PSP@k", "psndcg": "PSnDCG@k"}


def _show(
    screen: Screen, title: str, names: dict[str, str], metrics: dict[str, Any], shares: dict[str, float] | None
) -> None:
    facts = {"rows": count(metrics["n_samples"])}
    facts.update((label, f"{metrics[name]:.4f}") for name, label in names.items() if name in metrics)
    if metrics["unseen_labels"]:
        facts["labels not seen in training"] = (
            f"{count(metrics['unseen_labels'])}, on {count(metrics['rows_with_unseen_labels'], 'row')}"
        )
    screen.facts(title, facts)
    ks = [int(name.partition("@")[2]) for name in metrics if name.startswith("precision@")]
    columns = [name for name in _AT_K if f"{name}@{ks[0]}" in metrics] if ks else []
    if columns:
        rows = [[str(k), *(f"{metrics[f'{name}@{k}']:.4f}" for name in columns)] for k in ks]
        screen.table("the best k classes", ["k", *(_AT_K[name] for name in columns)], rows)
    if "level_accuracy" in metrics:
        rows = [[str(level), f"{value:.4f}"] for level, value in enumerate(metrics["level_accuracy"])]
        screen.table("levels of the hierarchy", ["level", "accuracy"], rows)
    if shares:
        rows = [[f"{int(rank):,}", f"{share:.4f}"] for rank, share in shares.items() if rank.isdecimal()]
        screen.table("rank of the true class among all", ["up to", "share of rows"], rows)
        screen.facts(
            "", {"median rank": f"{shares['median']:g}", "mean reciprocal": f"{shares['mean_reciprocal']:.4f}"}
        )
