"""`python tests/killing.py NAME MOMENTS` kills a process at random moments of what it writes, and says what is left.

Each operation is repeated without end by a forked process, alternating between two contents, until SIGKILL ends it.
What is there then must be the old or the new content, whole, and the next write removes what the killed one left
behind. Writes the counts as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from manyclass import DSMLR, LinearClassifier, LinearModel, OutOfCore, load
from manyclass.cli.main import main as command
from manyclass.io import Dataset, read, verify, write
from manyclass.io.store import RowStore, write_store
from manyclass.mips import ExactSearch, SearchIndex
from manyclass.models.splitting import split_model

N, D, K = 400, 30, 12
#: Bytes of the model that "save" writes; the session `nox -s kills` writes 1 GiB.
MODEL_BYTES = int(os.environ.get("MANYCLASS_KILLED_BYTES", 1 << 22))


class Operation(NamedTuple):
    """What is killed: ``step(folder, number)`` is repeated; ``check(folder)`` names what it finds, or raises."""

    prepare: Callable[[Path], None]
    step: Callable[[Path, int], Any]
    check: Callable[[Path], str]


def rows(factor: float = 1.0) -> tuple[Any, Any]:
    """Rows whose classes overlap, so that a fit takes some iterations."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((K, D))
    y = rng.integers(0, K, N)
    X = centers[y] + 1.5 * rng.standard_normal((N, D))
    return sp.csr_matrix(factor * X * (np.abs(X) > 1)), y


def one_of(value: Any, *expected: Any) -> str:
    """Which of the contents it is."""
    for name, content in zip(("old", "new"), expected):
        if np.array_equal(value, content):
            return name
    raise AssertionError(f"neither old nor new: {value!r:.200}")


# --- models, indexes, data, stores ------------------------------------------------------------------------------------


def model(number: int, columns: int = max(1, MODEL_BYTES // (8 * 1024))) -> LinearModel:
    weights = np.full((1024, columns), 1.0 + number % 2)
    return LinearModel(weights, np.zeros(columns), None, "regression")


def save_check(folder: Path) -> str:
    verify(folder / "m")
    weights = load(folder / "m").weights
    return one_of([weights.min(), weights.max()], [1.0, 1.0], [2.0, 2.0])


def index_step(folder: Path, number: int) -> None:
    ExactSearch(prune=False).build(np.full((300, 1000), 1.0 + number % 2)).save(folder / "m")


def index_check(folder: Path) -> str:
    verify(folder / "m")
    return one_of(np.unique(SearchIndex.load(folder / "m").weights()), [1.0], [2.0])


def convert_prepare(folder: Path) -> None:
    for number in range(2):
        X, y = rows(1.0 + number)
        write(folder / f"{number}.svm", Dataset(X, y))
    convert_step(folder, 0)


def convert_step(folder: Path, number: int) -> None:
    if command(["convert", str(folder / f"{number % 2}.svm"), "-o", str(folder / "m.svm.gz"), "--quiet"]):
        raise AssertionError("convert failed")


def convert_check(folder: Path) -> str:
    found = read(folder / "m.svm.gz")
    return one_of(found.X.toarray(), *(read(folder / f"{number}.svm").X.toarray() for number in range(2)))


def store_step(folder: Path, number: int) -> None:
    place = len([*folder.glob("s*")])
    write_store(folder / f"s{place:06d}", *rows(), shard_rows=100)


def store_check(folder: Path) -> str:
    for path in folder.glob("s*"):
        verify(path)
        if RowStore(path).shape != (N, D):
            raise AssertionError(f"{path} is not whole")
    return "whole"


def blocks_prepare(folder: Path) -> None:
    X = np.ones((D, 2000))
    split_model(
        LinearModel(X, np.zeros(2000), None, "regression", record={"number": 0}), folder / "m", block_classes=500
    )


def blocks_step(folder: Path, number: int) -> None:
    load(folder / "m").update(record={"number": number % 2})


def blocks_check(folder: Path) -> str:
    verify(folder / "m")
    return one_of(load(folder / "m").record["number"], 0, 1)


# --- fits -------------------------------------------------------------------------------------------------------------


def search_prepare(folder: Path) -> None:
    write(folder / "data.svm", Dataset(*rows()))
    search_step(folder, 0)


def search_step(folder: Path, number: int) -> None:
    """A path of three alphas on two folds, and the fit with the best of them."""
    words = ["fit", str(folder / "data.svm"), "-o", str(folder / "m"), "--alphas", "1e-1,1e-2,1e-3", "--cv", "2"]
    words += ["--history", str(folder / "h.csv"), "--quiet", "--loss", ("hinge", "squared_hinge")[number % 2]]
    if command(words):
        raise AssertionError("fit failed")


def search_check(folder: Path) -> str:
    verify(folder / "m")
    return one_of(load(folder / "m").parameters["loss"].lower().startswith("sq"), False, True)


def fit(folder: Path, solver: str, iterations: int, checkpoint: bool = True) -> Any:
    """A fit that goes on from the checkpoint."""
    kept = folder / "state" if checkpoint else None
    if solver == "out_of_core":
        path = folder / f"blocks-{os.getpid()}-{time.monotonic_ns()}"
        made: Any = OutOfCore(path, block_classes=5, certificate="end")
        data: tuple[Any, ...] = (RowStore(folder / "store"),)
    else:
        made, data = DSMLR(n_workers=2) if solver == "ds_mlr" else solver, rows()
    estimator = LinearClassifier(
        solver=made, alpha=1e-4, tol=1e-14, max_iter=iterations, random_state=0, dtype=np.float64
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(*data, checkpoint=kept, checkpoint_seconds=0.0)


def fit_check(folder: Path) -> str:
    kept = folder / "state"
    if not kept.exists() or (kept.is_dir() and not (kept / "manifest.json").exists()):
        return "none yet"
    from manyclass.optimize.checkpoint import describe

    verify(kept)
    return f"{describe(kept)['epoch']:04d}"


def fits(solver: str) -> Operation:
    def prepare(folder: Path) -> None:
        write_store(folder / "store", *rows(), shard_rows=100)

    def step(folder: Path, number: int) -> None:
        if number < 0:  # compiles, without a checkpoint
            fit(folder, solver, 2, checkpoint=False)
        else:
            fit(folder, solver, 10_000)

    return Operation(prepare, step, fit_check)


OPERATIONS: dict[str, Operation] = {
    "save": Operation(lambda folder: model(0).save(folder / "m"), lambda f, n: model(n).save(f / "m"), save_check),
    "index": Operation(lambda folder: index_step(folder, 0), index_step, index_check),
    "convert": Operation(convert_prepare, convert_step, convert_check),
    "store": Operation(lambda folder: None, store_step, store_check),
    "blocks": Operation(blocks_prepare, blocks_step, blocks_check),
    "search": Operation(search_prepare, search_step, search_check),
    **{f"fit-{solver}": fits(solver) for solver in ("sdca", "lbfgs", "ds_mlr", "out_of_core")},
}


def run(name: str, moments: int, folder: Path) -> dict[str, Any]:
    """Kill an operation at so many random moments; what was found, and how often."""
    operation, chance = OPERATIONS[name], random.Random(0)
    operation.prepare(folder)
    operation.step(folder, -1)
    begun = time.monotonic()
    operation.step(folder, -1)
    # Of a fit, the time of two iterations; of others, that of a write.
    limit = min(6.0, 3 * (time.monotonic() - begun) + 0.02) + 0.5 * name.startswith("fit-")
    found: list[str] = []
    left = 0
    for _ in range(moments):
        child = os.fork()
        if child == 0:
            try:
                for number in range(1 << 30):
                    operation.step(folder, number)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        time.sleep(chance.uniform(0, limit))
        os.kill(child, signal.SIGKILL)
        if os.WTERMSIG(os.waitpid(child, 0)[1]) != signal.SIGKILL:
            raise AssertionError("the process ended by itself")
        found.append(operation.check(folder))
        left += len([*folder.rglob(".*.tmp")])
    told = {"name": name, "killed": moments, "temporaries": left, "limit": round(limit, 3)}
    if name.startswith("fit-"):
        if found != sorted(found, key=lambda epoch: -1 if epoch == "none yet" else int(epoch)):
            raise AssertionError(f"a checkpoint went back: {found}")
        last = 0 if found[-1] == "none yet" else int(found[-1])
        solver = name.removeprefix("fit-")
        resumed, whole = (fit(folder, solver, last + 5, checkpoint=kept) for kept in (True, False))
        same = np.array_equal(_weights(resumed), _weights(whole))
        told |= {"resumed from": last, "iterations": [resumed.n_iter_, whole.n_iter_], "same bits": bool(same)}
    else:
        operation.step(folder, 1)
        told |= {"found": {what: found.count(what) for what in sorted({*found})}}
    told["left after the next write"] = len([*folder.rglob(".*.tmp")])
    return told


def _weights(estimator: Any) -> Any:
    model = estimator.model_
    return model.weights if isinstance(model, LinearModel) else model.assemble().weights


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]), Path(where))) + "\n")
