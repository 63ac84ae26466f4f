"""Least-squares fits measured in a process of their own: features counted in, the test error after each block.

Called through `benchmarks.children`. Estimators and blocks come as dicts, ``{"make": name, parameter: value, ...}``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data, measure

__all__ = ["fit_and_judge", "made_of_all", "make", "spectrum"]

#: Test rows whose features are made at a time.
_ROWS = 2000


def make(described: Any) -> Any:
    """The estimator or block that a dict describes; anything else as it is."""
    if not isinstance(described, dict):
        return described
    import manyclass
    from manyclass import features

    parameters = {name: make(value) for name, value in described.items() if name != "make"}
    home = manyclass if hasattr(manyclass, described["make"]) else features
    return getattr(home, described["make"])(**parameters)


def fit_and_judge(
    source: dict[str, Any],
    estimator: dict[str, Any],
    threads: int,
    *,
    prepare: dict[str, Any] | None = None,
    curve: bool = False,
    scores: bool = False,
    memory: int | None = None,
) -> dict[str, Any]:
    """Fit on training rows; seconds, peak memory, the errors on training and test rows.

    Parameters
    ----------
    source : dict
        A `DataFile`'s arguments.
    estimator : dict
    threads : int
        Of the BLAS, and ``n_jobs`` of the estimator where it has that.
    prepare : dict, optional
        A block made of all rows once, before the fit, on the clock.
    curve : bool
        Of a stagewise fit of one model and one pass: the test error after each block, and the seconds till then.
    scores : bool
        The scores of the test rows, and their classes, for an average with those of other fits.
    memory : int, optional
        Bytes that the process may hold during the fit.
    """
    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    model = make(estimator)
    if "n_jobs" in model.get_params():
        model.set_params(n_jobs=threads)
    X, X_test = rows.X, rows.X_test
    before = measure.resident_memory()
    measure.reset_peak_memory()
    with measure.threads_limited(threads), measure.memory_limit(memory), measure.quiet():
        with measure.Stopwatch() as preparing:
            if prepare is not None:
                X, X_test = _prepared(make(prepare), X, X_test)
        with measure.Stopwatch() as watch:
            model.fit(X, rows.y)
        peak = measure.peak_memory()
        predicted = np.concatenate([model.predict(X_test[b : b + _ROWS]) for b in range(0, len(rows.y_test), _ROWS)])
        found: dict[str, Any] = {
            **rows.facts,
            "prepare_seconds": preparing.seconds,
            "seconds": preparing.seconds + watch.seconds,
            "cpu_seconds": preparing.cpu_seconds + watch.cpu_seconds,
            "memory_before": before,
            "memory_peak": peak,
            "test_error": _error(predicted, rows.y_test),
        }
        if scores:
            pieces = [model.decision_function(X_test[b : b + _ROWS]) for b in range(0, len(rows.y_test), _ROWS)]
            found["scores"] = np.concatenate(pieces).astype(np.float64).round(6).tolist()
            found["truth"] = rows.y_test.tolist()
        if curve:
            found["curve"] = _curve(model, X_test, rows.y_test, preparing.seconds)
    return found


def _prepared(block: Any, X: Any, X_test: Any) -> tuple[Any, Any]:
    block.fit(X)
    made = made_of_all(block, X), made_of_all(block, X_test)
    block.release()
    return made


def made_of_all(block: Any, X: Any) -> Any:
    """All features of all rows: chunks, so that their casts stay small."""
    out: Any = None
    for begin in range(0, X.shape[0], _ROWS):
        part = block.transform(X[begin : begin + _ROWS])
        if out is None:
            out = np.empty((X.shape[0], part.shape[1]), part.dtype)
        out[begin : begin + len(part)] = part
    return out


def _error(predicted: Any, truth: Any) -> float:
    return float(np.mean(predicted != truth))


def _curve(model: Any, X: Any, y: Any, begun: float) -> list[dict[str, Any]]:
    """Stages replayed on test rows, one after the other."""
    stages = model.model_.members[0]
    if model.model_.prepare is not None:
        X = model.model_.prepare.transform(X)
    scores = np.zeros((X.shape[0], stages[0].weights.shape[1]), stages[0].weights.dtype)
    points = []
    for stage, record in zip(stages, model.stage_records_):
        for begin in range(0, len(scores), _ROWS):
            part = scores[begin : begin + _ROWS]
            part += np.asarray(stage.block.transform(X[begin : begin + _ROWS]) @ stage.weights) + stage.intercept
        stage.block.release()
        if stage.calibration is not None:
            scores = stage.calibration(scores)
        predicted = model.classes_[scores.argmax(axis=1)]
        points.append(
            {
                "stage": record.stage,
                "n_features": record.n_features,
                "seconds": begun + record.seconds,
                "loss": record.loss,
                "test_error": _error(predicted, y),
            }
        )
    return points


def spectrum(source: dict[str, Any], features: dict[str, Any] | None = None, most: int = 1000) -> dict[str, Any]:
    """The first ``most`` singular values of the training rows, or of the features that a block makes of them.

    Of dense rows by the eigenvalues of X'X in float64, of sparse ones by subspace iteration from random directions,
    which finds small differences of singular values in a flat spectrum slowly: the last value is a little too small,
    and its ratio to others too large, rather than the other way round.
    """
    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    X = rows.X
    if features is not None:
        block = make(features).fit(X)
        X = made_of_all(block, X)
    k = min(most, min(X.shape) - 1)
    if isinstance(X, np.ndarray):
        gram = np.zeros((X.shape[1], X.shape[1]))
        for begin in range(0, len(X), _ROWS):
            part = X[begin : begin + _ROWS].astype(np.float64)
            gram += part.T @ part
        values = np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1][:k], 0.0))
    else:
        from sklearn.utils.extmath import randomized_svd

        values = randomized_svd(X, k, n_oversamples=k // 4, n_iter=7, random_state=0)[1]
    return {**rows.facts, "d": X.shape[1], "values": values.tolist()}
