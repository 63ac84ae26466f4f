"""The objective of a log-linear model for solvers that need values and gradients alone."""

from __future__ import annotations

from manyclass.objective.problem import Array
from manyclass.solvers.bound.steps import Steps
from manyclass.solvers.primal.on_values import Smooth

__all__ = ["FormObjective"]


class FormObjective(Smooth):
    """P of `Steps` as a `Smooth` objective.

    Parameters
    ----------
    steps : Steps
        Features, labels and penalty.
    curvature : float
        Mean squared norm of the rows of features.
    """

    curvature = 0.0

    def __init__(self, steps: Steps, curvature: float) -> None:
        self._steps, self.shape, self.lam = steps, steps.form.shape, steps.lam
        self.curvature = curvature

    def value(self, point: Array, gradient: Array) -> float:
        """P at a point, whose ``gradient`` is written."""
        scores = self._steps.scores(point)
        gradient[:] = self._steps.gradient(point, scores)
        return self._steps.value(point, scores)
