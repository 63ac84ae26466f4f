"""MEMOIR by the number of classes, 1 000 to 100 000: time of an example, latency of its five best classes, the file.

Generated text, five rows a class. *Learning*: microseconds a row, the mean of all epochs and that of the last one.
*Prediction*: the median latency of `predict_topk` for one row, and of the model without the estimator's checks; and
through an index, with its recall. *The file*: bytes a weight, and the time to open it.
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
#: Rows a class, words a row, features for each class (never fewer than the first).
_ROWS, _WORDS, _FEATURES = 5, 20, (20_000, 1)
_QUERIES, _EPOCHS = 300, 4


def run(bench: Bench) -> None:
    for K in (300, 1_000) if bench.options.quick else CLASSES:
        for number in range(bench.options.runs):
            bench.say(f"{K} classes ...")
            arguments = {
                "n_classes": K,
                "epochs": bench.options.epochs or _EPOCHS,
                "threads": bench.options.threads,
                "seed": number,
            }
            try:
                for row in children.call("benchmarks.experiments.memoir_scaling:measured", arguments):
                    bench.record(run=number, **row)
            except children.ChildFailed as failure:
                bench.fail(str(failure), n_classes=K, run=number)
    _report(bench)


def measured(n_classes: int, epochs: int, threads: int, seed: int) -> list[dict[str, Any]]:
    """In a child: l2 and l1."""
    from benchmarks.methods import compile_memoir
    from manyclass import CrammerSinger, LinearClassifier, Memoir
    from manyclass.datasets import make_many_classes

    n = _ROWS * n_classes
    d = max(_FEATURES[0], _FEATURES[1] * n_classes)
    X, y = make_many_classes(n + max(n // 10, 1000), d, n_classes, nnz_per_row=_WORDS, random_state=seed)
    rows = []
    for name, options in (("l2", {}), ("l1", {"l1_ratio": 1.0})):
        settings = {"alpha": 1e-6, "random_state": seed, "n_jobs": threads, "max_iter": epochs, **options}
        model = LinearClassifier(CrammerSinger(gamma=0.0), solver=Memoir(), **settings)
        with measure.quiet():  # scikit-learn warns of as many classes as rows
            model.fit(X[:200], y[:200])
        compile_memoir(X[:200])
        model.fit(X[:n], y[:n])
        last, before = model.history_[-1].seconds, model.history_[-2].seconds if epochs > 1 else 0.0
        test = X[n:]
        rows.append(
            {
                "n_classes": n_classes,
                "method": f"memoir {name}",
                "n_features": d,
                "rows": n,
                "nonzeros": int(model.history_.last.info["nonzeros"]),
                "microseconds_a_row": 1e6 * last / (n * len(model.history_)),
                "microseconds_a_row_last": 1e6 * (last - before) / n,
                "accuracy": float(np.mean(model.predict(test) == y[n:])),
                **_latencies(model, test[:_QUERIES]),
                **_file(model),
            }
        )
    return rows


def _latencies(model: Any, X: Any) -> dict[str, float]:
    ones = [X[i] for i in range(X.shape[0])]
    index = model.build_index()
    kept = model.model_
    ways = {
        "estimator": lambda x: model.predict_topk(x, 5),
        "model": lambda x: kept.topk(x, 5),
        "index": lambda x: index.query(x, 5),
    }
    found = {}
    for name, ask in ways.items():
        spent = []
        ask(ones[0])
        for x in ones:
            begun = time.perf_counter()
            ask(x)
            spent.append(time.perf_counter() - begun)
        found[f"top5_ms_{name}"] = 1e3 * median(spent)
    return {**found, "index_recall": index.recall(X, 1)}


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
        *("nonzeros", "accuracy", "microseconds_a_row", "microseconds_a_row_last", "top5_ms_estimator"),
        *("top5_ms_model", "top5_ms_index", "index_recall", "bytes_a_weight", "load_ms"),
    )
    lines = [[*key, *(median(row[name] for row in rows) for name in shown)] for key, rows in groups.items()]
    columns = (
        *("method", "K", "weights", "accuracy", "learning: us a row", "last epoch", "top 5: ms", "model alone"),
        *("index", "its recall@1", "bytes a weight", "open: ms"),
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
                    points = [(k[1], median(r[name] for r in rows)) for k, rows in groups.items() if k[0] == method]
                    ax.plot(*zip(*sorted(points)), marker="o", markersize=3, label=f"{method} {name.split('_')[-1]}")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("classes")
            ax.set_ylabel(label)
            ax.grid(alpha=0.3)
        legend_below(panels[0])
