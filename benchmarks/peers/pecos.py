"""PECOS XR-Linear (libpecos): label tree of linear models, its default parameters; in an environment of its own.

``task.options``: others of ``XLinearModel.train``.

It wants NumPy < 2 and torch, which need not be in the environment of everything else: MANYCLASS_PECOS_PYTHON names
the Python interpreter of one that has ``torch``, ``numpy<2`` and ``libpecos``.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Data
from benchmarks.measure import Stopwatch
from benchmarks.peers._common import folder_bytes, missing
from benchmarks.task import Fit, Stop, Task

PACKAGE = "libpecos"
OBJECTIVES = ("tree",)


def python() -> str | None:
    return os.environ.get("MANYCLASS_PECOS_PYTHON") or None


def skip_reason() -> str | None:
    if platform.system() != "Linux":
        return f"there is no libpecos for {platform.system()}"
    if missing("pecos", PACKAGE) is None:
        return None
    interpreter = python()
    if interpreter is None:
        return "its own environment is not there: set MANYCLASS_PECOS_PYTHON to a Python that has libpecos"
    if shutil.which(interpreter) is None:
        return "MANYCLASS_PECOS_PYTHON does not name a Python interpreter"
    return _cannot_import(interpreter)


@cache
def _cannot_import(interpreter: str) -> str | None:
    done = subprocess.run([interpreter, "-c", "import pecos.xmc.xlinear"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"its environment cannot import it: {done.stderr.strip().splitlines()[-1]}"


def fit(data: Data, task: Task, stop: Stop, *, threads: int = 1, seed: int = 0) -> Fit:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X = _sorted(data.X)
    Y = sp.csr_matrix((np.ones(data.n, np.float32), data.y, np.arange(data.n + 1)))
    with Stopwatch() as watch:
        labels = LabelEmbeddingFactory.create(Y, X, method="pifa")
        tree = Indexer.gen(labels, indexer_type="hierarchicalkmeans", threads=threads, seed=seed)
        model = XLinearModel.train(X, Y, C=tree, threads=threads, **dict(task.options))
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        size = folder_bytes(Path(folder))

    def predict(rows: Any) -> Any:
        found = model.predict(_sorted(rows), only_topk=1, threads=threads).tocsr()
        best = np.full(found.shape[0], -1, np.int64)
        has = np.diff(found.indptr) > 0
        best[has] = found.indices[found.indptr[:-1][has]]
        return best

    return Fit(seconds=watch.seconds, cpu_seconds=watch.cpu_seconds, predict=predict, model_bytes=size)


def _sorted(X: Any) -> Any:
    rows = sp.csr_matrix(X, dtype=np.float32)
    rows.sort_indices()
    return rows
