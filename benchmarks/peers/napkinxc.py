"""napkinXC: probabilistic label tree (hierarchical k-means), its default parameters; weights below 0.1 are cut.

``task.options``: others of ``PLT``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Data
from benchmarks.measure import Stopwatch
from benchmarks.peers._common import folder_bytes, missing
from benchmarks.task import Fit, Stop, Task

PACKAGE = "napkinxc"
OBJECTIVES = ("tree",)


def skip_reason() -> str | None:
    return missing("napkinxc", PACKAGE)


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from napkinxc.models import PLT

    # The model lives in files: the folder goes when nobody can predict with it any more.
    folder = tempfile.TemporaryDirectory()
    X = sp.csr_matrix(data.X, dtype=np.float32)
    model = PLT(str(Path(folder.name, "model")), threads=threads, seed=seed, **dict(task.options))
    labels = [[int(label)] for label in data.y]
    with Stopwatch() as watch:
        model.fit(X, labels)

    def predict(rows: Any, kept: Any = folder) -> Any:
        found = model.predict(sp.csr_matrix(rows, dtype=np.float32), top_k=1)
        return np.asarray([row[0] if len(row) else -1 for row in found], np.int64)

    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=predict,
        model_bytes=folder_bytes(Path(folder.name)),
    )
