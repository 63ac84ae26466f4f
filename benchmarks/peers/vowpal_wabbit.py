"""Vowpal Wabbit: online logistic regression one-against-all (oaa), ten passes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.measure import Stopwatch
from benchmarks.peers._common import missing
from benchmarks.peers._vowpal import lines
from benchmarks.task import Fit, Stop, Task

PACKAGE = "vowpalwabbit"
OBJECTIVES = ("log_loss",)


def skip_reason() -> str | None:
    return missing("vowpalwabbit", PACKAGE)


def refuses(task: Task) -> str | None:
    return "its l1 and l2 act on online steps: no elastic net to compare" if task.l1_ratio else None


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from vowpalwabbit import Workspace

    bits = int(np.ceil(np.log2(data.X.shape[1] * data.n_classes))) + 1
    with tempfile.TemporaryDirectory() as name:
        train, model = Path(name, "train.vw"), Path(name, "model.vw")
        # In its own text format, written off the clock; passes after the first read its binary cache.
        order = np.random.default_rng(seed).permutation(data.n)
        train.write_text("".join(lines(data.X[order], data.y[order] + 1)))
        options = (
            f"--oaa {data.n_classes} --loss_function logistic --l2 {task.alpha} -b {bits} "
            f"--passes {stop.max_iter or 10} --holdout_off --quiet{'' if task.intercept else ' --noconstant'}"
        )
        with Stopwatch() as watch:
            learner = Workspace(f"{options} -d {train} -c -k -f {model}")
            learner.finish()
        size = model.stat().st_size
        kept = model.read_bytes()

    def predict(X: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.vw")
            path.write_bytes(kept)
            reader = Workspace(f"-i {path} -t --quiet")
            answers = [reader.predict(line) for line in lines(X, None)]
            reader.finish()
        return np.asarray(answers, np.int64) - 1

    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=predict,
        model_bytes=size,
        iterations=stop.max_iter or 10,
    )
