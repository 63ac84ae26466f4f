"""Vowpal Wabbit's ways with many classes: text files, its binary cache, as many passes as asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.measure import Stopwatch
from benchmarks.task import Fit, Stop, Task

__all__ = ["PACKAGE", "fit", "lines"]

PACKAGE = "vowpalwabbit"
#: Its passes over the data where the task does not say: one is its own default, and learns little.
PASSES = 10
#: Most bits of its hashed weights, 16 bytes each: 1 GiB. More collide.
MOST_BITS = 26


def fit(reduction: str, data: Data, task: Task, stop: Stop, *, seed: int, first: int, prediction: str = "") -> Fit:
    """``first`` is the number of the first class; ``prediction`` are options for it. ``task.options``:
    learning_rate, bits."""
    from vowpalwabbit import Workspace

    told = dict(task.options)
    bits = told.get("bits", min(MOST_BITS, int(np.ceil(np.log2(data.X.shape[1] * data.n_classes))) + 1))
    rate = told.get("learning_rate")
    passes = stop.max_iter or PASSES
    common = "--loss_function logistic --quiet"
    with tempfile.TemporaryDirectory() as name:
        train, model = Path(name, "train.vw"), Path(name, "model.vw")
        # In its own text format, written off the clock; passes after the first read its binary cache.
        order = np.random.default_rng(seed).permutation(data.n)
        train.write_text("".join(lines(data.X[order], data.y[order] + first)))
        options = f"--{reduction} {data.n_classes} {common} -b {bits} --passes {passes} --holdout_off"
        if rate is not None:
            options += f" -l {rate}"
        with Stopwatch() as watch:
            learner = Workspace(f"{options} -d {train} -c -k -f {model}")
            learner.finish()
        kept = model.read_bytes()

    def predict(X: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.vw")
            path.write_bytes(kept)
            reader = Workspace(f"-i {path} -t {common} {prediction}")
            answers = [reader.predict(line) for line in lines(X, None)]
            reader.finish()
        best = [(a[0] if len(a) else first - 1) if isinstance(a, list) else a for a in answers]
        return np.asarray(best, np.int64) - first

    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=predict,
        model_bytes=len(kept),
        iterations=passes,
    )


def lines(X: Any, y: Any) -> Any:
    """Rows as VW reads them."""
    import scipy.sparse as sp

    rows = sp.csr_matrix(X)
    for i in range(rows.shape[0]):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        words = " ".join(f"{j}:{v:.7g}" for j, v in zip(rows.indices[part].tolist(), rows.data[part].tolist()))
        yield f"{'' if y is None else y[i]} | {words}\n"
