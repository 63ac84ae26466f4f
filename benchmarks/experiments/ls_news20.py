"""Table 2 of Least squares revisited: 20 Newsgroups, batches of 500 words ordered by gradient, two passes, lambda 30.

The paper's features and split (log counts, words that occur three times; 15 000 posts drawn at random to train on); the
order is found anew for each pass. Beside it LIBLINEAR, Vowpal Wabbit, scikit-learn's LinearSVC and softmax regression.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.experiments import _stagewise_text

SETTING = {
    "features": {"make": "FeatureSubset", "order": "gradient", "reorder": "pass"},
    "block_size": 500,
    "passes": 2,
}
LAMBDA = 30.0
PAPER = {"stagewise": 11.7, "vowpal_wabbit": 12.4, "liblinear": 13.8}


def run(bench: Bench) -> None:
    _stagewise_text.run(bench, "news20/log_counts", SETTING, LAMBDA, PAPER)
