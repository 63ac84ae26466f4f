"""How good predictions are, in time and memory that do not grow with rows times classes.

`log_loss` judges probabilities, the functions ``..._at_k`` and `rank_distribution` a ranking, `report` everything that
applies. Accuracy and F1 are scikit-learn's (`sklearn.metrics.accuracy_score`, `f1_score`), which need no such array.
Its `log_loss` makes one of the labels, and its `ndcg_score` and `top_k_accuracy_score` ask for all scores.
"""

from manyclass.metrics.log_loss import log_loss
from manyclass.metrics.propensity import class_counts, inverse_propensity
from manyclass.metrics.ranking import ndcg_at_k, precision_at_k, psndcg_at_k, psp_at_k
from manyclass.metrics.ranks import RankDistribution, rank_distribution
from manyclass.metrics.summary import report

__all__ = [
    "RankDistribution",
    "class_counts",
    "inverse_propensity",
    "log_loss",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "rank_distribution",
    "report",
]
