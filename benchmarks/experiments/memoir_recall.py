"""MEMOIR's thesis: accuracy and macro-F1 against time, by how often the search for rivals misses (the recall).

A fit for each way to search, each with an l2 and an l1 penalty; after each epoch, off the clock, its weights are judged
on the test rows. *Recall* is the fraction of 256 rows of an epoch, of those with a positive hinge loss, whose rival
scores as high as the best one, *margin error* the mean of the loss that is missed. Ways to search: exactly; in a few of
the blocks of 16 classes that can hold the rival; by codes (SimpleLSH), where the nearest codes are a few or many of the
classes, so that any number of buckets is probed; by a small-world graph; and all of it with the settings of the paper
(batch 100 sqrt(K), eta0 0.1, step 0.02, lambda 1 = alpha * batch).

Of a data set 30 000 rows are taken, or five for each class where that is more: a graph of all takes hours. A fit ends
after the epoch in which its time (--budget) is up.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import children, data, measure, scores
from benchmarks.bench import Bench
from benchmarks.figures import legend_below, log_seconds

#: Ways to search: the index (none: exact) and its options; blocks-number, lsh-bits-candidates, graph-degree-width.
SEARCHES: dict[str, tuple[str, dict[str, int]]] = {
    "exact": ("exact", {}),
    "blocks-64": ("blocks", {"search": 64}),
    "blocks-16": ("blocks", {"search": 16}),
    "blocks-4": ("blocks", {"search": 4}),
    "blocks-1": ("blocks", {"search": 1}),
    "lsh-64-16": ("lsh", {"bits": 64, "candidates": 16}),
    "lsh-64-64": ("lsh", {"bits": 64, "candidates": 64}),
    "lsh-64-256": ("lsh", {"bits": 64, "candidates": 256}),
    "lsh-256-64": ("lsh", {"bits": 256, "candidates": 64}),
    "graph-8-16": ("graph", {"degree": 8, "width": 16, "build_width": 16}),
}
#: For --only.
ENTRIES = tuple(SEARCHES)
PENALTIES = {"l2": 0.0, "l1": 1.0}
#: Step sizes, batches and alpha: ours, and the paper's.
SETTINGS = ("ours", "paper")
#: A thousand and ten thousand classes; a hundred thousand with --data generated/100k.
DATA = ("bible_verses/chapter", "icd10cm/4")
_EPOCHS, _ALPHA = 4, 1e-6
_ROWS = 30_000
#: The paper's lambda, alpha * batch: 1 for l2; for l1, whose first step truncates by a tenth of it, from Figure 1.
_LAMBDA = (1.0, 1e-5)


def run(bench: Bench) -> None:
    for source in bench.datasets(*DATA):
        for settings in SETTINGS:
            for penalty, l1_ratio in PENALTIES.items():
                for search in bench.options.only or SEARCHES:
                    for number in range(bench.options.runs):
                        what = {"settings": settings, "penalty": penalty, "search": search, "run": number}
                        bench.say(f"{source.name} {settings} {penalty} {search} ...")
                        arguments = {
                            "source": source.arguments(),
                            "settings": settings,
                            "l1_ratio": l1_ratio,
                            "search": search,
                            "epochs": bench.options.epochs or _EPOCHS,
                            "threads": bench.options.threads,
                            "seed": number,
                            "budget": bench.options.budget,
                        }
                        try:
                            points = children.call("benchmarks.experiments.memoir_recall:trace", arguments)
                        except children.ChildFailed as failure:
                            bench.fail(str(failure), data=source.name, **what)
                            continue
                        for point in points:
                            bench.record(**what, **point)
    _report(bench)


def trace(
    source: dict[str, Any],
    settings: str,
    l1_ratio: float,
    search: str,
    epochs: int,
    threads: int,
    seed: int,
    budget: float | None,
) -> list[dict[str, Any]]:
    """In a child: the epochs of one fit, each judged on the test rows; those that the budget, in seconds, leaves."""
    from manyclass import CrammerSinger, LinearClassifier, Memoir
    from manyclass.kernels.scoring import Scorer
    from manyclass.mips import INDEXES

    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    rows = data.sample(rows, max(_ROWS, 5 * rows.n_classes))
    kind, options = SEARCHES[search]
    own: dict[str, Any] = {"search": INDEXES[kind](**options) if kind in ("lsh", "graph") else kind}
    if kind == "blocks":
        own = dict(options)
    alpha = _ALPHA
    if settings == "paper":
        batch = min(rows.n, round(100 * math.sqrt(rows.n_classes)))
        own |= {"batch_size": batch, "eta0": 0.1, "eta_step": 0.02, "truncation": "touched"}
        alpha = _LAMBDA[l1_ratio > 0] / batch
    model = LinearClassifier(
        CrammerSinger(gamma=0.0),
        alpha=alpha,
        l1_ratio=l1_ratio,
        solver=Memoir(**own),
        random_state=seed,
        n_jobs=threads,
    )
    judged: list[dict[str, float]] = []

    def judge(progress: Any) -> bool:
        found, _ = Scorer(*progress.weights()).best(rows.X_test, 1, threads)
        judged.append(scores.quality(rows.y_test, found[:, 0]))
        return budget is not None and progress.seconds > budget

    with measure.threads_limited(threads), measure.quiet():
        few = data.shrink(rows, 200)
        model.set_params(max_iter=1).fit(few.X, few.y)  # compiles
        model.set_params(max_iter=epochs).fit(rows.X, rows.y, callback=judge)
    return [
        {
            **rows.facts,
            "alpha": alpha,
            "batch_size": model.solver._batch(rows.n_classes),
            "iterations": record.iteration,
            "seconds": record.seconds,
            "search_recall": record.info["recall"],
            "margin_error": record.info["margin_error"],
            "update_rate": record.info["update_rate"],
            "nonzeros": int(record.info["nonzeros"]),
            "held_bytes": int(record.info["nbytes"]),
            "last": record is model.history_.last,
            **quality,
        }
        for record, quality in zip(model.history_, judged)
    ]


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            key = tuple(row[name] for name in ("data", "settings", "penalty", "search"))
            groups.setdefault(key, []).append(row)
    shown = ("iterations", "seconds", "search_recall", "margin_error", "accuracy", "macro_f1", "nonzeros")
    lines = [
        [*key, *(median(row[name] for row in rows if row["last"]) for name in shown)] for key, rows in groups.items()
    ]
    columns = ("data", "settings", "penalty", "search", "epochs", "fit s", "recall", "margin error")
    bench.table("At the end: medians of the runs", (*columns, "accuracy", "macro-F1", "weights"), lines)
    if not lines:
        return
    panels = list(dict.fromkeys(key[:3] for key in groups))
    with bench.figure(len(panels)) as axes:
        for ax, panel in zip(axes, panels):
            for key, rows in groups.items():
                if key[:3] == panel:
                    first = [row for row in rows if row["run"] == rows[0]["run"]]
                    points = [(row["seconds"], row["accuracy"]) for row in first]
                    ax.plot(*zip(*points), marker="o", markersize=3, label=key[3])
            log_seconds(ax, "training time (s)")
            ax.set_title(", ".join(panel), fontsize=8)
            ax.set_ylabel("accuracy")
            ax.grid(alpha=0.3)
        legend_below(axes[0])
