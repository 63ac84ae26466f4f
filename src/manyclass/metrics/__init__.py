"""How good predictions are, in time and memory that do not grow with rows times classes.

`accuracy`, `f1` and `log_loss` judge one prediction per row, the functions ``..._at_k`` and
`rank_distribution` a ranking, `report` everything that applies.
"""

from manyclass.metrics.classification import accuracy, f1, log_loss
from manyclass.metrics.propensity import class_counts, inverse_propensity
from manyclass.metrics.ranking import ndcg_at_k, precision_at_k, psndcg_at_k, psp_at_k
from manyclass.metrics.ranks import RankDistribution, rank_distribution
from manyclass.metrics.summary import report

__all__ = [
    "RankDistribution",
    "accuracy",
    "class_counts",
    "f1",
    "inverse_propensity",
    "log_loss",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "rank_distribution",
    "report",
]
