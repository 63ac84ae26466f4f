"""MEMOIR with classes that come later: what the old classes lose, and what the new ones reach.

A tenth of the classes, drawn at random, is left out of a fit and comes afterwards, by ``partial_fit`` in ten batches,
each with all rows of a tenth of them: alone, with rows made from the weights of the others (rehearsal, the default), or
with as many rows of old classes besides; and the model before, and a fit of all rows. Accuracy on the test rows of the
old and of the new classes.
"""

from __future__ import annotations

import copy
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import children, data, measure
from benchmarks.bench import Bench

#: What is done with the new rows.
ENTRIES = ("before", "alone", "rehearsed", "mixed", "fit")
DATA = ("bible_verses/chapter", "icd10cm/4")
_SHARE, _BATCHES, _ALPHA = 0.1, 10, 1e-6


def run(bench: Bench) -> None:
    for source in bench.datasets(*DATA):
        for number in range(bench.options.runs):
            bench.say(f"{source.name}, run {number} ...")
            arguments = {
                "source": source.arguments(),
                "ways": list(bench.options.only or ENTRIES),
                "epochs": bench.options.epochs,
                "threads": bench.options.threads,
                "seed": number,
            }
            try:
                found = children.call("benchmarks.experiments.memoir_new_classes:trace", arguments)
            except children.ChildFailed as failure:
                bench.fail(str(failure), data=source.name, run=number)
                continue
            for row in found:
                bench.record(run=number, **row)
    _report(bench)


def trace(source: dict[str, Any], ways: list[str], epochs: int | None, threads: int, seed: int) -> list[dict[str, Any]]:
    """In a child: each way from the same fit of the old classes."""
    from manyclass import CrammerSinger, LinearClassifier, Memoir

    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    rng = np.random.default_rng(seed)
    classes = rng.permutation(rows.n_classes)
    later = classes[: max(2, round(_SHARE * rows.n_classes))]
    new, new_test = np.isin(rows.y, later), np.isin(rows.y_test, later)
    model = LinearClassifier(
        CrammerSinger(gamma=0.0),
        alpha=_ALPHA,
        solver=Memoir(),
        max_iter=epochs,
        random_state=seed,
        n_jobs=threads,
    )
    old = np.flatnonzero(~new)
    batches = [np.flatnonzero(np.isin(rows.y, part)) for part in np.array_split(later, min(_BATCHES, len(later)))]
    found = []
    with measure.threads_limited(threads), measure.quiet():
        fitted = model.fit(rows.X[old], rows.y[old])
        for way in ways:
            stream = copy.deepcopy(fitted)
            stream.set_params(solver=Memoir(rehearsal=way != "alone"))
            begun = time.perf_counter()
            if way == "fit":
                stream.fit(rows.X, rows.y)
            elif way != "before":
                for batch in batches:
                    beside = rng.choice(old, len(batch) if way == "mixed" else 0)
                    some = rng.permutation(np.concatenate([batch, beside]))
                    stream.partial_fit(rows.X[some], rows.y[some])
            seconds = time.perf_counter() - begun
            right = stream.predict(rows.X_test) == rows.y_test
            found.append(
                {
                    **rows.facts,
                    "method": way,
                    "new_classes": len(later),
                    "new_rows": int(new.sum()),
                    "seconds": seconds,
                    "accuracy_old": float(right[~new_test].mean()),
                    "accuracy_new": float(right[new_test].mean()),
                    "accuracy": float(right.mean()),
                }
            )
    return found


def _report(bench: Bench) -> None:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            groups.setdefault((row["data"], row["method"]), []).append(row)
    shown = ("accuracy_old", "accuracy_new", "accuracy", "seconds")
    lines = [[*key, *(median(row[name] for row in rows) for name in shown)] for key, rows in groups.items()]
    bench.table("Medians of the runs", ("data", "the new rows", "old classes", "new classes", "all", "seconds"), lines)
