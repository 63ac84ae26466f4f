"""Metrics of predictions, in time and memory that do not grow with rows times classes.

`log_loss` is for probabilities, the functions ``..._at_k`` and `rank_distribution` are for rankings, `level_accuracy`
and `roll_up` for hierarchies of classes, and `report` computes all metrics that apply. For accuracy and F1 use
scikit-learn's (`sklearn.metrics.accuracy_score`, `f1_score`).
scikit-learn's `log_loss` needs an n x K indicator, and its `ndcg_score` and `top_k_accuracy_score` need all scores.

Modules are imported when their names are first used: loading a model needs one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyclass.runtime.lazy import on_first_use

if TYPE_CHECKING:  # "as": re-exported for type checkers
    from manyclass.metrics._log_loss import log_loss as log_loss
    from manyclass.metrics.calibration import (
        Reliability as Reliability,
        expected_calibration_error as expected_calibration_error,
        reliability as reliability,
    )
    from manyclass.metrics.hierarchy import level_accuracy as level_accuracy, roll_up as roll_up
    from manyclass.metrics.propensity import class_counts as class_counts, inverse_propensity as inverse_propensity
    from manyclass.metrics.ranking import (
        ndcg_at_k as ndcg_at_k,
        precision_at_k as precision_at_k,
        psndcg_at_k as psndcg_at_k,
        psp_at_k as psp_at_k,
    )
    from manyclass.metrics.ranks import RankDistribution as RankDistribution, rank_distribution as rank_distribution
    from manyclass.metrics.summary import report as report

#: Public name -> its module.
_MODULES = {
    **dict.fromkeys(("Reliability", "expected_calibration_error", "reliability"), "calibration"),
    **dict.fromkeys(("level_accuracy", "roll_up"), "hierarchy"),
    "log_loss": "_log_loss",
    **dict.fromkeys(("class_counts", "inverse_propensity"), "propensity"),
    **dict.fromkeys(("ndcg_at_k", "precision_at_k", "psndcg_at_k", "psp_at_k"), "ranking"),
    **dict.fromkeys(("RankDistribution", "rank_distribution"), "ranks"),
    "report": "summary",
}

__all__ = list(_MODULES)

__getattr__, __dir__ = on_first_use(
    __name__, {name: f"manyclass.metrics.{module}" for name, module in _MODULES.items()}
)
