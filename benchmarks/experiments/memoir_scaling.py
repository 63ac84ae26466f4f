"""Growth with the number of classes, 1 000 to 100 000: time of an example, memory, latency of its five best classes.

Generated text, five rows a class, 2 000 000 at most (``--classes 1000000``). MEMOIR with both penalties, and Crammer
and Singer's loss as the documentation advises it for very many classes: alpha 0.1 / n, seven iterations.
*Learning*: microseconds a row, the mean of all epochs and that of the last one; most bytes the process held, and what
it held before. *Prediction*: the median latency of `predict_topk` for one row, of the model without the estimator's
checks, and of one of 300 rows that it is given together (one thread); for MEMOIR also through an index, with its
recall. *The file*: bytes a weight, and the time to open it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import children, measure
from benchmarks.bench import Bench
from benchmarks.figures import legend_below

CLASSES = (1_000, 3_000, 10_000, 30_000, 100_000)
#: What ``--only`` takes.
ENTRIES = ("memoir_l2", "memoir_l1", "brief")
#: Rows a class and most rows, words a row, features for each class (never fewer than the first).
_ROWS, _MOST, _WORDS, _FEATURES = 5, 2_000_000, 20, (20_000, 1)
#: Rows of the test, in parts of those for learning, and most of them.
_TEST, _MOST_TESTED = 10, 50_000
_QUERIES, _EPOCHS = 300, 4


def run(bench: Bench) -> None:
    chosen = (bench.options.classes,) if bench.options.classes else (300, 1_000) if bench.options.quick else CLASSES
    for K in chosen:
        for number in range(bench.options.runs):
            for method in bench.options.only or ENTRIES:
                bench.say(f"{K} classes, {method} ...")
                arguments = {
                    "method": method,
                    "n_classes": K,
                    "epochs": bench.options.epochs,
                    "threads": bench.options.threads,
                    "seed": number,
                }
                try:
                    bench.record(
                        run=number, **children.call("benchmarks.experiments.memoir_scaling:measured", arguments)
                    )
                except children.ChildFailed as failure:
                    bench.fail(str(failure), n_classes=K, method=_NAMES[method], run=number)
    _report(bench)


#: What rows of earlier versions call them.
_NAMES = {"memoir_l2": "memoir l2", "memoir_l1": "memoir l1", "brief": "crammer_singer brief"}


def measured(method: str, n_classes: int, epochs: int | None, threads: int, seed: int) -> dict[str, Any]:
    """In a child."""
    from benchmarks.methods import compile_memoir
    from manyclass import CrammerSinger, LinearClassifier, Memoir
    from manyclass.datasets import make_many_classes

    n = min(_ROWS * n_classes, _MOST)
    d = max(_FEATURES[0], _FEATURES[1] * n_classes)
    tested = min(max(n // _TEST, 1000), _MOST_TESTED)
    X, y = make_many_classes(n + tested, d, n_classes, nnz_per_row=_WORDS, random_state=seed)
    test, y_test = X[n:], y[n:]
    X, y = X[:n], y[:n]
    settings: dict[str, Any] = {"random_state": seed, "n_jobs": threads}
    if method == "brief":
        model = LinearClassifier("crammer_singer", alpha=0.1 / n, max_iter=epochs or 7, **settings)
    else:
        settings.update(alpha=1e-6, max_iter=epochs or _EPOCHS, l1_ratio=float(method == "memoir_l1"))
        model = LinearClassifier(CrammerSinger(gamma=0.0), solver=Memoir(), **settings)
    with measure.quiet():  # scikit-learn warns of as many classes as rows
        model.fit(X[:200], y[:200])
    compile_memoir(X[:200])
    before = measure.resident_memory()
    measure.reset_peak_memory()
    with measure.quiet():  # seven iterations reach no gap
        model.fit(X, y)
    peak = measure.peak_memory()
    steps = [step.seconds for step in model.history_]
    return {
        "n_classes": n_classes,
        "method": _NAMES[method],
        "n_features": d,
        "rows": n,
        "epochs": model.n_iter_,
        "seconds": model.history_.last.seconds,
        "compile_seconds": model.history_.compile_seconds,
        "memory_before": before,
        "memory_peak": peak,
        "nonzeros": int(model.model_.weights.count_nonzero() if model.model_.is_sparse else model.coef_.size),
        "microseconds_a_row": 1e6 * steps[-1] / (n * model.n_iter_),
        "microseconds_a_row_last": 1e6 * (steps[-1] - steps[-2]) / n if len(steps) == model.n_iter_ > 1 else None,
        "accuracy": float(np.mean(model.predict(test) == y_test)),
        **_latencies(model, test[:_QUERIES], index=method != "brief"),
        **_file(model),
    }


def _latencies(model: Any, X: Any, *, index: bool) -> dict[str, float]:
    ones = [X[i] for i in range(X.shape[0])]
    kept = model.model_
    ways = {
        "estimator": lambda x: model.predict_topk(x, 5),
        "model": lambda x: kept.topk(x, 5),
    }
    built = model.build_index() if index else None
    if built is not None:
        ways["index"] = lambda x: built.query(x, 5)
    found = {}
    for name, ask in ways.items():
        spent = []
        ask(ones[0])
        for x in ones:
            begun = time.perf_counter()
            ask(x)
            spent.append(time.perf_counter() - begun)
        found[f"top5_ms_{name}"] = 1e3 * median(spent)
    spent = []
    for _ in range(5):
        begun = time.perf_counter()
        kept.topk(X, 5)
        spent.append((time.perf_counter() - begun) / len(ones))
    found["top5_ms_batch"] = 1e3 * median(spent)
    return found if built is None else {**found, "index_recall": built.recall(X, 1)}


def _file(model: Any) -> dict[str, float]:
    from manyclass import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m")
        model.save(path)
        spent = []
        for _ in range(5):
            begun = time.perf_counter()
            loaded = load(path)
            spent.append(time.perf_counter() - begun)
        weights: Any = loaded.weights
        stored = weights.nnz if sp.issparse(weights) else weights.size
        size = path.stat().st_size
    return {"load_ms": 1e3 * median(spent), "file_bytes": size, "bytes_a_weight": size / max(stored, 1)}


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            groups.setdefault((row["method"], row["n_classes"]), []).append(row)
    shown = (
        *("nonzeros", "accuracy", "seconds", "memory_peak", "microseconds_a_row", "microseconds_a_row_last"),
        *("top5_ms_estimator", "top5_ms_model", "top5_ms_batch", "top5_ms_index", "index_recall"),
        *("bytes_a_weight", "load_ms"),
    )
    lines = [[*key, *(_median(rows, name) for name in shown)] for key, rows in groups.items()]
    columns = (
        *("method", "K", "weights", "accuracy", "s", "bytes held", "learning: us a row", "last epoch"),
        *("top 5: ms", "model alone", "300 rows, each", "index", "its recall@1", "bytes a weight", "open: ms"),
    )
    bench.table("Medians of the runs", columns, lines)
    if not lines:
        return
    with bench.figure(2) as panels:
        for ax, names, label in (
            (panels[0], ("microseconds_a_row",), "learning: microseconds a row"),
            (panels[1], ("top5_ms_estimator", "top5_ms_index"), "top 5 of one row (ms)"),
        ):
            for method in dict.fromkeys(key[0] for key in groups):
                for name in names:
                    points = [(k[1], _median(rows, name)) for k, rows in groups.items() if k[0] == method]
                    known = sorted(point for point in points if point[1] is not None)
                    if known:
                        ax.plot(*zip(*known), marker="o", markersize=3, label=f"{method} {name.split('_')[-1]}")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("classes")
            ax.set_ylabel(label)
            ax.grid(alpha=0.3)
        legend_below(panels[0])


def _median(rows: list[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return median(values) if values else None
