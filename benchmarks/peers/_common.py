"""What several peers need."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.measure import Stopwatch, quiet
from benchmarks.task import Fit

__all__ = ["extrapolate", "folder_bytes", "missing", "sklearn_fit"]


def missing(module: str, package: str) -> str | None:
    """Why a peer is skipped whose module is not installed."""
    return None if find_spec(module) else f"the package is not installed: pip install {package}"


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def extrapolate(watches: list[Stopwatch], once: Stopwatch, n_classes: int, weights: Any) -> Fit:
    """Of some classes fitted one by one, the time that all take: what is done once, and K times the mean.

    ``standard_error`` is that of the estimate: the classes were drawn at random, without replacement.
    """
    each = np.array([watch.seconds for watch in watches])
    spread = float(each.std(ddof=1)) if len(each) > 1 else 0.0
    left = (1.0 - len(each) / n_classes) / len(each)
    return Fit(
        seconds=once.seconds + n_classes * float(each.mean()),
        cpu_seconds=once.cpu_seconds + n_classes * float(np.mean([watch.cpu_seconds for watch in watches])),
        predict=_nobody,
        weights=weights,
        intercept=np.zeros(len(watches)),
        estimate={
            "measured_seconds": once.seconds + float(each.sum()),
            "measured_classes": len(watches),
            "standard_error": n_classes * spread * max(left, 0.0) ** 0.5,
        },
    )


def _nobody(X: Any) -> Any:
    raise ValueError("some of the classes cannot predict for all of them")


def sklearn_fit(model: Any, data: Data) -> Fit:
    """A fit of an estimator of scikit-learn's kind, or of one of those per class in a OneVsRestClassifier."""
    with quiet(), Stopwatch() as watch:
        model.fit(data.X, data.y)
    parts = getattr(model, "estimators_", [model])
    weights = np.vstack([np.asarray(part.coef_).reshape(-1, data.X.shape[1]) for part in parts]).T
    # np.broadcast_to: an estimator without an intercept may say 0.0 for all classes.
    intercept = np.concatenate(
        [np.broadcast_to(part.intercept_, part.coef_.reshape(-1, data.X.shape[1]).shape[:1]) for part in parts]
    )
    iterations = [int(np.max(part.n_iter_)) for part in parts if hasattr(part, "n_iter_")]
    return Fit(
        seconds=watch.seconds,
        cpu_seconds=watch.cpu_seconds,
        predict=model.predict,
        weights=weights,
        intercept=np.asarray(intercept, np.float64),
        model_bytes=int(weights.nbytes + intercept.nbytes),
        iterations=max(iterations, default=None),
    )
