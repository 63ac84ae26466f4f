"""Singular values of texts and of random Fourier features of images: how ill-conditioned they are.

Figure 1 (b) of Least squares revisited: the share of the first x of 1000 singular values, for 20 Newsgroups, RCV1, and
MNIST with 3000 random Fourier features (here of 50 principal components, as in `ls_stagewise`). In the paper
first-order methods do well on the texts because their spectrum is flat. It does not give the bandwidth, on which the
spectrum of the features depends: the wider, the fewer directions have nearly all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import children
from benchmarks.bench import Bench
from benchmarks.experiments.ls_stagewise import BLOCKS, COMPONENTS

DATA = ("news20/log_counts", "rcv1/4class", "mnist")
#: Of the features of dense rows; the first is that of `ls_stagewise`.
BANDWIDTHS = (BLOCKS["fourier"]["bandwidth"], 2.0, 5.0, 12.0)
FEATURES = 3000
#: Singular values whose rows are kept.
RANKS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 700, 1000)


def run(bench: Bench) -> None:
    curves = {}
    for source in bench.datasets(*DATA):
        for bandwidth in BANDWIDTHS if source.name == "mnist" else (None,):
            name = source.name if bandwidth is None else f"{source.name}, bandwidth {bandwidth:g}"
            bench.say(f"{name} ...")
            features = None if bandwidth is None else _fourier(bandwidth, 60 if bench.options.quick else FEATURES)
            found = children.call("benchmarks.staged:spectrum", {"source": source.arguments(), "features": features})
            values = curves[name] = found.pop("values")
            for rank in _ranks(values):
                share = sum(values[:rank]) / sum(values)
                bench.record(
                    **found,
                    bandwidth=bandwidth,
                    rank=rank,
                    value=values[rank - 1],
                    share=share,
                    second_over=values[1] / values[rank - 1],
                )
    _report(bench, curves)


def _fourier(bandwidth: float, count: int) -> dict[str, Any]:
    return {
        "make": "Chain",
        "first": {"make": "PrincipalComponents", "n_components": COMPONENTS},
        "second": {**BLOCKS["fourier"], "bandwidth": bandwidth, "n_components": count},
        "random_state": 0,
    }


def _ranks(values: list[float]) -> Iterator[int]:
    yield from (rank for rank in RANKS if rank < len(values))
    yield len(values)


def _report(bench: Bench, curves: dict[str, list[float]]) -> None:
    if not curves:
        return
    lines = [
        [row["data"], row["bandwidth"], row["d"], row["rank"], row["value"], row["share"], row["second_over"]]
        for row in bench.rows
        if row["status"] == "measured"
    ]
    bench.table("Singular values", ("data", "bandwidth", "features", "rank", "value", "share", "2nd over it"), lines)
    with bench.figure() as (ax,):
        for name, values in curves.items():
            sums = [sum(values[:rank]) / sum(values) for rank in range(1, len(values) + 1)]
            ax.plot(range(1, len(values) + 1), sums, label=name)
        ax.set(xlabel="first x singular values", ylabel="their share of the sum", ylim=(0, 1))
        ax.legend(fontsize=7)
        ax.grid(alpha=0.3)
