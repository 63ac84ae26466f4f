"""Singular values of texts and of random Fourier features of images: how ill-conditioned they are.

Figure 1 (b) of Least squares revisited: the share of the first x of 1000 singular values, for 20 Newsgroups, RCV1, and
MNIST with 3000 random Fourier features (here of 50 principal components, as in `ls_stagewise`). In the paper
first-order methods do well on the texts because their spectrum is flat.
"""

from __future__ import annotations

from typing import Any

from benchmarks import children
from benchmarks.bench import Bench
from benchmarks.experiments.ls_stagewise import BLOCKS, COMPONENTS

#: Data set -> the features that are made of its rows.
DATA: dict[str, dict[str, Any] | None] = {
    "news20/log_counts": None,
    "rcv1/4class": None,
    "mnist": {
        "make": "Chain",
        "first": {"make": "PrincipalComponents", "n_components": COMPONENTS},
        "second": {**BLOCKS["fourier"], "n_components": 3000},
        "random_state": 0,
    },
}
#: Singular values whose rows are kept.
RANKS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 700, 1000)


def run(bench: Bench) -> None:
    curves = {}
    for source in bench.datasets(*DATA):
        features = DATA.get(source.name)
        if features is not None and bench.options.quick:
            features = {**features, "second": {**features["second"], "n_components": 60}}
        bench.say(f"{source.name} ...")
        found = children.call("benchmarks.staged:spectrum", {"source": source.arguments(), "features": features})
        values = curves[source.name] = found.pop("values")
        for rank in (*(rank for rank in RANKS if rank < len(values)), len(values)):
            share = sum(values[:rank]) / sum(values)
            bench.record(
                **found, rank=rank, value=values[rank - 1], share=share, second_over=values[1] / values[rank - 1]
            )
    _report(bench, curves)


def _report(bench: Bench, curves: dict[str, list[float]]) -> None:
    if not curves:
        return
    lines = [
        [row["data"], row["d"], row["rank"], row["value"], row["share"], row["second_over"]]
        for row in bench.rows
        if row["status"] == "measured"
    ]
    bench.table("Singular values", ("data", "features", "rank", "value", "share", "2nd over it"), lines)
    with bench.figure() as (ax,):
        for name, values in curves.items():
            sums = [sum(values[:rank]) / sum(values) for rank in range(1, len(values) + 1)]
            ax.plot(range(1, len(values) + 1), sums, label=name)
        ax.set(xlabel="first x singular values", ylabel="their share of the sum", ylim=(0, 1))
        ax.legend(fontsize=7)
        ax.grid(alpha=0.3)
