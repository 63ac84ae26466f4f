"""`StagewiseClassifier()` on dense rows, beside the best settings known for each data set.

``default`` has no parameters. ``fourier`` was the default before: ten linear blocks of 512 random Fourier features.
``tuned`` are blocks whose bandwidth, alpha and number were chosen for the data set on held-out training rows, ``svc``
is scikit-learn's SVC with bandwidth and C chosen likewise (not for CIFAR-10, which would take an hour). Rows are
float32 pixels, without the shape of the image, or standardized columns. Each fit has a process of its own, ended after
the budget; kernels are loaded by a small fit before. ``twice``, which runs if asked for, is the default with twice as
many blocks. With ``--device`` rows are PyTorch's tensors there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import children, data, devices, measure
from benchmarks.bench import Bench, DataFile

_FOURIER = {"features": {"make": "RandomFourier", "bandwidth": 0.8}, "prepare": "pca:50", "alpha": 1e-5}
#: Data set -> bandwidth, alpha, size and number of blocks of ``tuned``, or all its settings; bandwidth and C of SVC.
TUNED: dict[str, tuple[Any, tuple[float, float] | None]] = {
    "uci/letter": ((0.25, 6e-6, 2048, 5), (0.25, 10.0)),
    "uci/pendigits": ((0.5, 1e-5, 1024, 2), (0.25, 3.0)),
    "uci/optdigits": ((1.0, 3e-5, 1024, 4), (1.0, 4.0)),
    "usps": ((0.5, 1e-5, 2048, 2), (0.5, 15.0)),
    "clef": ((0.7, 1e-5, 1024, 8), (1.0, 15.0)),
    "covtype": ((1 / 16, 6e-6, 2048, 5), (1 / 32, 10.0)),
    "mnist": (_FOURIER | {"block_size": 2048, "n_blocks": 35}, (0.25, 10.0)),
    "cifar10": ((0.5, 5e-6, 2048, 8), None),
}
ENTRIES = ("default", "fourier", "tuned", "svc", "twice")
#: Rows whose scores are computed at a time.
_ROWS = 2000


def run(bench: Bench) -> None:
    for source in bench.datasets(*TUNED):
        for number in range(bench.options.runs):
            for method in bench.options.only or ENTRIES[:-1]:
                if method == "svc" and bench.options.device is not None:
                    bench.skip("has no fit on a device", data=source.name, method=method)
                    continue
                tuned, svc = TUNED.get(source.name, (None, None))
                if {"tuned": tuned, "svc": svc}.get(method, True) is None:
                    bench.skip("no settings are known", data=source.name, method=method)
                else:
                    _measure(bench, source, method, number)
    _report(bench)


def _measure(bench: Bench, source: DataFile, method: str, number: int) -> None:
    what = {"data": source.name, "method": method, "run": number}
    arguments = {
        "source": source.arguments(),
        "method": method,
        "budget": bench.options.budget,
        "threads": bench.options.threads,
        "seed": number,
        "device": bench.options.device,
    }
    try:
        facts = children.call("benchmarks.experiments.ls_default:fit", arguments)
    except children.TimedOut:
        bench.fail(f"stopped after {bench.options.budget:g} s", **what, seconds=bench.options.budget)
    except children.ChildFailed as failure:
        bench.fail(str(failure), **what)
    else:
        bench.record(**{**what, **facts})
        bench.say(f"{source.name:16} {method:8} {100 * facts['test_error']:6.2f} % {facts['seconds']:8.2f} s")


def fit(
    source: dict[str, Any], method: str, budget: float, threads: int, seed: int, device: str | None = None
) -> dict[str, Any]:
    """One fit, in this process: for `benchmarks.children`."""
    from manyclass.runtime.arrays import to_numpy

    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"]).cast("float32")
    where: dict[str, Any] = {}
    X, y, X_test = rows.X, rows.y, rows.X_test
    if device is not None:
        import torch

        torch.set_num_threads(threads)
        X, y, X_test = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (X, y, X_test))
        where = devices.device_facts(device)
    model = _make(source["name"], method, rows, seed)
    if method != "svc":  # loads the kernels
        few = slice(None, None, max(1, rows.n // 300))
        with measure.quiet():
            _make(source["name"], method, rows, seed).fit(X[few], y[few])
    before = measure.resident_memory()
    measure.reset_peak_memory()
    with measure.threads_limited(threads), measure.time_limit(budget):
        with measure.quiet(), measure.Stopwatch() as watch:
            model.fit(X, y)
        peak = measure.peak_memory()
        with measure.Stopwatch() as later:
            parts = [to_numpy(model.predict(X_test[b : b + _ROWS])) for b in range(0, len(X_test), _ROWS)]
    facts = {
        **rows.facts,
        **where,
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "predict_seconds": later.seconds,
        "memory_before": before,
        "memory_peak": peak,
        "test_error": float(np.mean(np.concatenate(parts) != rows.y_test)),
    }
    if method != "svc":
        block = model.features_
        facts |= {"alpha": model.alpha_, "bandwidth": block.bandwidth, "stages": model.n_stages_[0]}
        facts |= {"block_size": int(model.model_.members[0][0].block.n_features_out_)}
    return facts


def _make(name: str, method: str, rows: data.Data, seed: int) -> Any:
    from manyclass import StagewiseClassifier
    from manyclass.features import Nystrom, PrincipalComponents

    settings, svc = TUNED.get(name, (None, None))
    if method == "default":
        return StagewiseClassifier(random_state=seed)
    if method == "twice":
        from manyclass.estimators.dense import BLOCK_SIZE, n_blocks

        return StagewiseClassifier(n_blocks=2 * n_blocks(rows.n, BLOCK_SIZE), random_state=seed)
    if method == "fourier":
        return StagewiseClassifier("fourier", random_state=seed)
    if method == "svc":
        from sklearn.svm import SVC

        assert svc is not None
        scale = Nystrom(1, bandwidth=svc[0], random_state=0).fit(rows.X).scale_
        return SVC(C=svc[1], gamma=1 / scale, cache_size=1000)
    if isinstance(settings, dict):
        from benchmarks.staged import make

        parameters = {key: make(value) for key, value in settings.items()}
    else:
        bandwidth, alpha, size, n_blocks = settings
        parameters = {"features": Nystrom(bandwidth=bandwidth, centers="residual"), "alpha": alpha}
        parameters |= {"block_size": size, "n_blocks": n_blocks}
        parameters |= {"prepare": PrincipalComponents(100)} if name == "cifar10" and rows.X.shape[1] > 100 else {}
    return StagewiseClassifier(**parameters, update="calibrated", random_state=seed)


def _report(bench: Bench) -> None:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            found.setdefault((row["data"], row["method"]), []).append(row)
    lines = []
    for name in dict.fromkeys(name for name, _ in found):
        line = [name]
        for method in ENTRIES:
            rows = found.get((name, method), [])
            error = measure.spread_text([100 * row["test_error"] for row in rows]) if rows else ""
            line += [error, measure.spread_text([row["seconds"] for row in rows]) if rows else ""]
        lines.append(line)
    columns = [text for method in ENTRIES for text in (f"{method} %", "s")]
    bench.table("Dense rows: test error and seconds of training", ["data", *columns], lines)
