"""Softmax on dense embeddings to a certified gap of 1e-3, against scikit-learn's lbfgs, newton-cg, newton-cholesky.

The protocol is that of `benchmarks.contest`: a peer's knob is its number of iterations, its objective is judged off the
clock. Generated embeddings (`benchmarks.datasets.embeddings`), MNIST; float32, no intercept, alpha 1e-4, 1e-6 and 1/n.

With ``--device`` (cuda, or cpu to try it) all methods get PyTorch's tensors there: ours, PyTorch's own L-BFGS in
float32 and in TF32, and scikit-learn's lbfgs by its array API dispatch (SCIPY_ARRAY_API=1); with ``--only`` ours on
CuPy's arrays, and on the processor. The table then shows which part of the speed of the device's matrix products a fit
reaches; ``embeddings/imagenet`` has 1 280 000 x 1024 rows and 1000 classes. See `benchmarks.experiments._on_device`.
"""

from __future__ import annotations

from benchmarks import catalog, modules
from benchmarks.bench import Bench
from benchmarks.contest import Contest, report
from benchmarks.experiments import _on_device
from benchmarks.search import Iterations
from benchmarks.task import Task

TOLS = (1e-3,)
ON_PROCESSOR = ("auto", "sklearn_lbfgs", "torch_lbfgs", "sklearn_newton_cg", "sklearn_newton_cholesky")
#: What ``--only`` takes.
ENTRIES = (*catalog.ours(), *modules.names("peers"), *_on_device.METHODS)


def run(bench: Bench) -> None:
    if bench.options.device is not None:
        _on_device.run(bench)
        return
    for name in set(bench.options.only or ()) - {*catalog.ours(), *modules.names("peers")}:
        bench.skip("runs on a device: name it with --device", method=name)
        return
    chosen = bench.methods(*ON_PROCESSOR)
    for source in bench.datasets("mnist", "embeddings/100", "embeddings/1000"):
        data = source.read()
        for alpha in bench.alphas(1e-4, 1e-6, 1.0 / data.n):
            task = Task("multinomial", alpha=alpha, intercept=bench.options.intercept == "yes")
            willing = bench.willing(chosen, task)
            ours, peers = ([m for m in willing if m.ours is who] for who in (True, False))
            Contest(bench, source, data, task, Iterations, ("float32",)).run(ours, peers, TOLS)
    report(bench)
