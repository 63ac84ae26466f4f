"""One class against the rest, squared hinge: against LIBLINEAR and LinearSVC, dual and primal, at equal objective.

The protocol is that of `benchmarks.contest`; the peers' tolerance is turned. With many classes the peers, which solve
one problem after the other, are timed on classes drawn at random (seeded; --classes) and their time is scaled to all,
with its standard error; what they do once for all classes is counted once. Ours is always the whole fit with all
classes. The objective is then the sum over the drawn classes, for everyone.
"""

from __future__ import annotations

import numpy as np

from benchmarks.bench import Bench
from benchmarks.contest import Contest, report
from benchmarks.data import Data
from benchmarks.search import Tolerances
from benchmarks.task import Task

TOLS = (1e-2, 1e-3)
#: (classes a data set has at least, how many of them are drawn)
SAMPLES = ((5000, 25), (200, 50))


def run(bench: Bench) -> None:
    peers = ("liblinear", "liblinear_primal", "sklearn_linear_svc", "sklearn_linear_svc_primal")
    contests(bench, "squared_hinge", peers, ("news20", "icd10cm/3", "icd10cm"), (1e-4, 1e-5))


def contests(
    bench: Bench, loss: str, peers: tuple[str, ...], datasets: tuple[str, ...], alphas: tuple[float, ...]
) -> None:
    """Ours against ``peers`` for a loss of one class against the rest; ``datasets`` and ``alphas`` are the defaults."""
    chosen = bench.methods("auto", *peers)
    for source in bench.datasets(*datasets):
        data = source.read()
        classes = _sample(bench, data)
        if classes is not None:
            bench.say(f"{source.name}: peers are estimated from {len(classes)} of {data.n_classes} classes")
        for alpha in bench.alphas(*alphas):
            task = Task(loss, alpha=alpha)
            willing = bench.willing(chosen, task)
            ours, others = ([m for m in willing if m.ours is who] for who in (True, False))
            Contest(bench, source, data, task, Tolerances, classes=classes).run(ours, others, TOLS)
    report(bench)


def _sample(bench: Bench, data: Data) -> list[int] | None:
    """The classes that the peers are timed on; None: all of them."""
    wanted = bench.options.classes or next((some for many, some in SAMPLES if data.n_classes >= many), data.n_classes)
    if wanted >= data.n_classes:
        return None
    drawn = np.random.default_rng(0).choice(data.n_classes, wanted, replace=False)
    return [int(k) for k in np.sort(drawn)]
