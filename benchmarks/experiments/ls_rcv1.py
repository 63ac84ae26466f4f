"""RCV1 with four classes: two batches of 2000 words ordered by gradient, beside LIBLINEAR and Vowpal Wabbit.

The order is found anew for each batch, as in table 2 of Least squares revisited. The paper has 665 000 stories to train
on; here there are some ten thousand, of fewer words, so that its errors are no goal here: its ranks are.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.experiments import _stagewise_text

SETTING = {
    "features": {"make": "FeatureSubset", "order": "gradient", "reorder": "block"},
    "block_size": 2000,
    "n_blocks": 2,
}
LAMBDA = 1.0
PAPER = {"stagewise": 2.77, "vowpal_wabbit": 2.75, "liblinear": 2.73}


def run(bench: Bench) -> None:
    _stagewise_text.run(bench, "rcv1/4class", SETTING, LAMBDA, PAPER)
