"""Softmax on dense embeddings to a certified gap of 1e-3, against scikit-learn's lbfgs, newton-cg, newton-cholesky.

The protocol is that of `benchmarks.contest`: a peer's knob is its number of iterations, its objective is judged off the
clock. Generated embeddings (`benchmarks.datasets.embeddings`), MNIST; float32, no intercept, alpha 1e-4, 1e-6 and 1/n.

With ``--device`` (cuda, or cpu to try it) all methods get PyTorch's tensors there: ours, PyTorch's own L-BFGS, and
scikit-learn's lbfgs by its array API dispatch (SCIPY_ARRAY_API=1). The table then shows which part of the speed of the
device's matrix products the passes of ours reach; ``--data embeddings/imagenet`` has 1 280 000 x 1024 rows and 1000
classes.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.contest import Contest, report
from benchmarks.measure import spread_text
from benchmarks.search import Iterations
from benchmarks.task import Task

TOLS = (1e-3,)
ON_PROCESSOR = ("auto", "sklearn_lbfgs", "torch_lbfgs", "sklearn_newton_cg", "sklearn_newton_cholesky")
ON_DEVICE = ("on_device", "torch_lbfgs", "sklearn_array_lbfgs")


def run(bench: Bench) -> None:
    device = bench.options.device
    chosen = bench.methods(*(ON_PROCESSOR if device is None else ON_DEVICE))
    options = () if device is None else (("device", device),)
    for source in bench.datasets("mnist", "embeddings/100", "embeddings/1000"):
        data = source.read()
        for alpha in bench.alphas(1e-4, 1e-6, 1.0 / data.n):
            task = Task("multinomial", alpha=alpha, intercept=bench.options.intercept == "yes", options=options)
            willing = bench.willing(chosen, task)
            ours, peers = ([m for m in willing if m.ours is who] for who in (True, False))
            Contest(bench, source, data, task, Iterations, ("float32",)).run(ours, peers, TOLS)
    report(bench)
    if device is not None:
        _speed(bench)


def _speed(bench: Bench) -> None:
    """The table of operations per second, of our fits and of the device."""
    cases: dict[tuple[str, float], list[dict[str, float]]] = {}
    for row in bench.rows:
        if row["status"] == "measured" and row["method"] == "on_device":
            cases.setdefault((row["data"], row["alpha"]), []).append(row)
    names = ("gflops", "peak_gflops", "peak_share")
    lines = [
        [f"{data} {alpha:g}", rows[0]["device"], *(spread_text([row[name] for row in rows]) for name in names)]
        for (data, alpha), rows in cases.items()
    ]
    columns = ("case", "device", "GFLOP/s of the fit", "of products alone", "fraction")
    if lines:
        bench.table("Speed of the passes over the rows", columns, lines)
