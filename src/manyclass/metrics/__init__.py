"""Metrics of predictions, in time and memory that do not grow with rows times classes.

`log_loss` is for probabilities, the functions ``..._at_k`` and `rank_distribution` are for rankings, `level_accuracy`
and `roll_up` for hierarchies of classes, and `report` computes all metrics that apply. For accuracy and F1 use
scikit-learn's (`sklearn.metrics.accuracy_score`, `f1_score`).
scikit-learn's `log_loss` needs an n x K indicator, and its `ndcg_score` and `top_k_accuracy_score` need all scores.
"""

from manyclass.metrics.calibration import Reliability, expected_calibration_error, reliability
from manyclass.metrics.hierarchy import level_accuracy, roll_up
from manyclass.metrics.log_loss import log_loss
from manyclass.metrics.propensity import class_counts, inverse_propensity
from manyclass.metrics.ranking import ndcg_at_k, precision_at_k, psndcg_at_k, psp_at_k
from manyclass.metrics.ranks import RankDistribution, rank_distribution
from manyclass.metrics.summary import report

__all__ = [
    "RankDistribution",
    "Reliability",
    "class_counts",
    "expected_calibration_error",
    "inverse_propensity",
    "level_accuracy",
    "log_loss",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "rank_distribution",
    "reliability",
    "report",
    "roll_up",
]
