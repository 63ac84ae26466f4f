"""One class against the rest, hinge, dense rows: against LIBLINEAR, Snap ML and LinearSVC at equal objective.

The protocol is that of `benchmarks.experiments.one_vs_rest`.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.experiments.one_vs_rest import contests


def run(bench: Bench) -> None:
    contests(bench, "hinge", ("liblinear", "snapml", "sklearn_linear_svc"), ("mnist", "covtype"), (1e-4, 1e-5))
