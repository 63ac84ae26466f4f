"""``manyclass warmup``: compiles the kernels that later fits use."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manyclass.cli._common import Screen, count, seconds

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "USAGE", "add_arguments", "run"]

USAGE = ""
HELP = "compile what later fits use, for images and servers"
DESCRIPTION = """\
Fit a tiny generated problem, with an intercept, by each loss on each kind of rows, and predict with the model: the
kernels that this compiles are kept on disk, and later fits find them there. With the default solver, classifiers are
also fitted by the solvers that it takes for weak penalties, and those of joint losses with hundreds of classes (Crammer
and Singer's with thousands), for which other kernels are used. They are for the processor of this machine;
NUMBA_CACHE_DIR names another folder for them. Those of other versions of the package are removed from it."""
EPILOG = """\
examples:
  manyclass warmup
  manyclass warmup --dtype float32 float64
  manyclass warmup --loss crammer_singer --solver sdca_active --rows sparse
"""

_LOSSES = ("multinomial", "crammer_singer", "squared_hinge", "squared")
_ROWS = ("dense", "sparse")
_DTYPES = ("float32", "float64")
_SAMPLES, _FEATURES, _CLASSES = 120, 10, 3
#: Classes for which the default solver takes active sets, and for which a model predicts from coarse weights first.
_MANY, _VERY_MANY = 400, 4096
#: Features of these problems.
_WORDS = 4000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "--loss",
        nargs="+",
        metavar="NAME",
        default=list(_LOSSES),
        help=f"of `manyclass fit --help` (default: {' '.join(_LOSSES)})",
    )
    parser.add_argument("--solver", metavar="NAME", default="auto", help="of `manyclass fit --help` (default: auto)")
    parser.add_argument("--rows", nargs="+", choices=_ROWS, default=list(_ROWS), help="default: dense and sparse")
    parser.add_argument("--dtype", nargs="+", choices=_DTYPES, default=["float32"], help="default: float32")


def run(args: argparse.Namespace, screen: Screen) -> int:
    """Fit and predict by every combination."""
    from manyclass.kernels.jit import compile_clock
    from manyclass.runtime.memory import human

    started, compiled, spent = time.perf_counter(), compile_clock.kernels, compile_clock.seconds
    for dtype in args.dtype:
        for rows in args.rows:
            for loss in args.loss:
                for kind, solver, classes in _fits(loss, args.solver, rows):
                    screen.say(f"{loss}, {rows} {dtype}{kind}")
                    _fit(loss, solver, rows, dtype, classes)
    times = {"compile": compile_clock.seconds - spent, "in all": time.perf_counter() - started}
    facts = {
        "compiled": count(compile_clock.kernels - compiled, "kernel"),
        "seconds": ", ".join(f"{name} {seconds(value)}" for name, value in times.items()),
        "removed": f"{human(sum(map(_sweep, _caches())))} of other versions",
    }
    screen.facts("", facts)
    return 0


def _fits(loss: str, solver: str, rows: str) -> Iterator[tuple[str, Any, int]]:
    """What a fit is called, its solver and number of classes, for each fit by a loss."""
    from manyclass.objective.losses import CLASSIFICATION
    from manyclass.solvers import AcceleratedSDCA, ActiveSetSDCA, PreconditionedLBFGS

    yield "", solver, _CLASSES
    if solver != "auto" or loss not in CLASSIFICATION:
        return
    # What `manyclass.optimize.choice` takes for ill-conditioned problems.
    yield ", weak penalty", AcceleratedSDCA(), _CLASSES
    if rows == "dense" and loss in ("multinomial", "log_loss", "squared_hinge"):
        yield ", weak penalty, few features", PreconditionedLBFGS(), _CLASSES
    if CLASSIFICATION[loss].joint:
        yield ", many classes", "auto", _MANY
    if loss == "crammer_singer" and rows == "sparse":
        yield ", very many classes", ActiveSetSDCA(storage="sparse"), _VERY_MANY


def _caches() -> set[tuple[Path, Path]]:
    """The folders of machine code, each with the folder of its sources."""
    from manyclass.kernels.jit import _PackageCache

    modules = [module for name, module in sys.modules.items() if name.startswith("manyclass.")]
    found = {getattr(value, "_cache", None) for module in modules for value in vars(module).values() if callable(value)}
    caches = [cache for cache in found if isinstance(cache, _PackageCache)]
    return {(Path(cache.cache_path), Path(cache._py_func.__code__.co_filename).parent) for cache in caches}


def _sweep(folders: tuple[Path, Path]) -> int:
    """Remove the machine code of other sources, for this version of Python; returns its bytes."""
    from manyclass.kernels.jit import _CacheFile, source_stamp

    cache, sources = folders
    tag, size = f".py{sys.version_info[0]}{sys.version_info[1]}", 0
    ours = list(cache.glob(f"*{tag}*.nb[ci]"))
    for index in (file for file in ours if file.suffix == ".nbi"):
        # The index of other sources counts as empty.
        kept = {*_CacheFile(str(cache), index.stem, source_stamp(sources), sources)._load_index().values()}
        stale = [file for file in ours if file.name.startswith(f"{index.stem}.") and file.name not in kept]
        for file in stale if not kept else [file for file in stale if file != index]:
            size += file.stat().st_size
            file.unlink(missing_ok=True)
    return size


def _fit(loss: str, solver: Any, rows: str, dtype: str, classes: int = _CLASSES) -> None:
    import warnings

    import numpy as np
    from scipy.sparse import csr_matrix
    from sklearn.exceptions import ConvergenceWarning

    from manyclass.datasets import make_many_classes
    from manyclass.estimators import LinearClassifier, LinearRegressor
    from manyclass.objective.losses import REGRESSION

    X: Any
    most = {}
    if classes > _CLASSES:  # each has few of the features, as in texts; a few iterations will do
        X, y = make_many_classes(3 * classes, _WORDS, classes, random_state=0, dtype=np.dtype(dtype).type)
        X, most = X if rows == "sparse" else X.toarray(), {"max_iter": 3}
    else:
        rng = np.random.default_rng(0)
        X = rng.random((_SAMPLES, _FEATURES)).astype(dtype) * (rng.random((_SAMPLES, _FEATURES)) < 0.5)
        X, y = csr_matrix(X) if rows == "sparse" else X, np.arange(_SAMPLES) % classes
    kind: Any = LinearRegressor if loss in REGRESSION else LinearClassifier
    if kind is LinearRegressor:
        y = y.astype(dtype)
    model = kind(loss, solver=solver, fit_intercept=True, random_state=0, **most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes")  # scikit-learn's, of few rows per class
        model.fit(X, y)
    model.predict(X[:_SAMPLES])
    if hasattr(model, "predict_proba"):
        model.predict_proba(X[:_SAMPLES])
