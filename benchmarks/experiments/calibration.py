"""Probabilities: log loss, calibration error and time of `calibrate`, beside CalibratedClassifierCV of scikit-learn.

Four fifths of the training rows are for the fit, one fifth (drawn class by class, seeded) for the calibration; test
rows judge. ``own``: the probabilities of the loss itself. ``calibrate``: link and temperature on the held-out rows.
``temperature`` and ``sigmoid``: CalibratedClassifierCV of the same fitted model and rows, through FrozenEstimator.
``temperature_cv`` and ``sigmoid_cv``: the same with five folds of all training rows and a fit on all of them
(ensemble=False). ``bias``: `calibrate` with an intercept for each class as well. Seconds are processor time, of the
calibration alone, and with the fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.data import Data
from benchmarks.measure import quiet, spread_text, threads_limited

LOSSES = ("multinomial", "crammer_singer", "squared_hinge", "hinge", "log_loss")
ALPHA = 1e-4
MAX_ITER = 30
#: Scores of all test rows and classes are held at once.
MOST = 2e8


def run(bench: Bench) -> None:
    for source in bench.datasets("digits", "intents", "intents/clinc150", "news20"):
        data = source.read()
        if len(data.y_test) * data.n_classes > MOST:
            bench.skip("more scores than memory", data=source.name)
            continue
        for alpha in bench.alphas(ALPHA):
            for number in range(bench.options.runs):
                for loss in LOSSES:
                    with threads_limited(bench.options.threads), quiet():
                        _case(bench, data, loss, alpha, number)
    _report(bench)


def _case(bench: Bench, data: Data, loss: str, alpha: float, number: int) -> None:
    from sklearn.base import clone
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import train_test_split

    from manyclass import LinearClassifier

    estimator = LinearClassifier(loss, alpha=alpha, max_iter=MAX_ITER, random_state=number)
    X, X_held, y, y_held = train_test_split(data.X, data.y, test_size=0.2, random_state=number, stratify=data.y)
    clone(estimator).set_params(max_iter=1).fit(X, y)  # compiles
    fitted, fit_seconds = _timed(lambda: clone(estimator).fit(X, y))
    fitted.model_.calibrate(X_held[:50], y_held[:50], bias=True)  # compiles
    X_test = data.X_test

    def wrapped(method: str) -> Any:
        peer = CalibratedClassifierCV(FrozenEstimator(fitted), method=method)
        return peer.fit(X_held, y_held).predict_proba

    def crossed(method: str) -> Any:
        peer = CalibratedClassifierCV(clone(estimator), method=method, cv=5, ensemble=False)
        return peer.fit(data.X, data.y).predict_proba

    ways: dict[str, Callable[[], Any]] = {
        "calibrate": lambda: fitted.model_.calibrate(X_held, y_held).probabilities,
        "temperature": lambda: wrapped("temperature"),
        "sigmoid": lambda: wrapped("sigmoid"),
        "bias": lambda: fitted.model_.calibrate(X_held, y_held, bias=True).probabilities,
        "temperature_cv": lambda: crossed("temperature"),
        "sigmoid_cv": lambda: crossed("sigmoid"),
    }
    if hasattr(fitted, "predict_proba"):
        ways = {"own": lambda: fitted.predict_proba, **ways}
    for way, calibrate in ways.items():
        proba, seconds = _timed(calibrate)
        total = seconds if way.endswith("_cv") else fit_seconds + seconds
        bench.record(
            **data.facts,
            objective_name=loss,
            alpha=alpha,
            max_iter=MAX_ITER,
            run=number,
            way=way,
            n_held_out=len(y_held),
            calibration_cpu_seconds=None if way.endswith("_cv") else seconds,
            total_cpu_seconds=total,
            **_judge(proba(X_test), fitted.classes_, data.y_test),
        )


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return work(), time.process_time() - begun


def _judge(proba: Any, classes: Any, y: Any) -> dict[str, float]:
    known = np.isin(y, classes)  # the log loss of another label is not defined
    proba, y = proba[known], y[known]
    own = proba[np.arange(len(y)), np.searchsorted(classes, y)].astype(np.float64)
    correct, confidence = classes[proba.argmax(axis=1)] == y, proba.max(axis=1)
    place = np.minimum((confidence * 15).astype(int), 14)
    distance = np.abs(np.bincount(place, correct - confidence, 15))
    return {
        "log_loss": float(-np.log(np.maximum(own, 1e-12)).mean()),
        "calibration_error": float(distance.sum() / len(y)),
        "accuracy": float(correct.mean()),
    }


def _report(bench: Bench) -> None:
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            groups.setdefault((row["data"], row["objective_name"]), {}).setdefault(row["way"], []).append(row)
    lines = []
    for key, ways in groups.items():
        for way, rows in ways.items():
            seconds = [row["calibration_cpu_seconds"] for row in rows]
            lines.append(
                [
                    *key,
                    way,
                    *(spread_text([row[name] for row in rows]) for name in ("log_loss", "calibration_error")),
                    None if None in seconds else spread_text(seconds),
                    spread_text([row["total_cpu_seconds"] for row in rows]),
                ]
            )
    columns = ("data", "loss", "way", "log loss", "calibration error", "calibration CPU s", "with the fit")
    bench.table("Probabilities on test rows: median [least, most]", columns, lines)
