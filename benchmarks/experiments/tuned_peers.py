"""Every peer tuned as its own documentation advises, on held-out rows: LIBLINEAR's C; Vowpal Wabbit's rate and bits.

As `many_classes_table`, with larger grids: the default, every setting on four fifths of the training rows judged on the
others, then the best of them on all rows; ``search_seconds`` is the time of the search. The six LIBLINEAR variants of
Figure 2 of Least squares revisited: L2-regularized logistic regression; squared hinge, dual and primal; hinge;
Crammer-Singer; L1-regularized squared hinge. Ours have the same grid of C.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.experiments.many_classes_table import Setting, compare
from benchmarks.task import Stop, Task

#: C of LIBLINEAR's guide, in steps of four about its default, which comes first.
_C = (1.0, 1 / 64, 1 / 16, 1 / 4, 4.0, 16.0, 64.0)
#: Vowpal Wabbit's own defaults, and what its wiki says to try; bits: those of its default, where weights may collide.
_RATES, _PASSES, _BITS = (0.5, 0.1, 2.0, 8.0), (10, 30), 18


def _strengths(objective: str, stop: Stop | None = None, l1_ratio: float = 0.0) -> list[Setting]:
    return [(Task(objective, alpha=0.0, l1_ratio=l1_ratio, options=(("C", C),)), stop or Stop()) for C in _C]


def _rates() -> list[Setting]:
    found = [
        (Task("tree", options=(("learning_rate", rate),)), Stop(max_iter=passes))
        for passes in _PASSES
        for rate in _RATES
    ]
    return [*found, *((Task("tree", options=(("learning_rate", rate), ("bits", _BITS))), Stop()) for rate in _RATES)]


_CERTIFIED = Stop(tol=1e-3, max_iter=300)
SETTINGS: dict[str, dict[str, list[Setting]]] = {
    "auto": {name: _strengths(name, _CERTIFIED) for name in ("multinomial", "crammer_singer", "squared_hinge")},
    "liblinear": {name: _strengths(name) for name in ("log_loss", "squared_hinge", "hinge", "crammer_singer")},
    "liblinear_primal": {"squared_hinge": _strengths("squared_hinge")},
    "liblinear_l1": {"squared_hinge, l1": _strengths("squared_hinge", l1_ratio=1.0)},
    "vw_oaa": {"one-against-all": _rates()},
}
DATA = ("news20/log_counts", "rcv1/4class", "mnist")


def run(bench: Bench) -> None:
    tried = 2 if bench.options.quick else None
    compare(bench, {name: {e: s[:tried] for e, s in entries.items()} for name, entries in SETTINGS.items()}, DATA)
