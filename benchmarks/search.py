"""The cheapest setting of a peer that reaches an objective: its number of iterations, or its tolerance.

Each setting tried is a full fit, judged off the clock, made once and remembered; none may take longer than a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Found", "Iterations", "Tolerances", "Trial"]


@dataclass(frozen=True)
class Trial:
    """One fit: its objective, its time, the iterations it made, and all else that is known of it."""

    objective: float
    seconds: float
    iterations: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """Where a search ended.

    Attributes
    ----------
    setting : int or float
    reached : bool
        Whether the fit of that setting is at the target.
    trial : Trial, optional
        That fit; None where it was stopped by the budget.
    at_least : float
        Seconds that the target takes with this peer: those of the fit, or a bound where it was not reached.
    """

    setting: float
    reached: bool
    trial: Trial | None
    at_least: float


class Iterations:
    """The least number of iterations, by doubling and bisection; above 32 to within a thirty-second of it.

    Parameters
    ----------
    fit : callable
        ``fit(m)``: the trial with at most m iterations, or None if it was stopped at the budget.
    budget : float
        Seconds. More iterations than would fit into it, by the time of those tried, are not tried.
    """

    knob = "iterations"
    MOST = 4096

    def __init__(self, fit: Callable[[int], Trial | None], budget: float = float("inf")) -> None:
        self._fit, self._budget = fit, budget
        self._trials: dict[int, Trial | None] = {}
        self._end = self.MOST

    def search(self, target: float, near: int | None = None) -> Found:
        """``near`` is a guess: what was found for a similar target, or on similar data."""
        above, below = self._bracket(target, near)
        if below is None:
            trial = self._trials[above] if above else None
            return Found(max(above, 1), False, trial, trial.seconds if trial else self._budget)
        while below - above > max(1, below // 32):
            middle = (above + below) // 2
            above, below = (above, middle) if self._reaches(middle, target) else (middle, below)
        trial = self._trials[below]
        assert trial is not None
        return Found(below, True, trial, trial.seconds)

    def _bracket(self, target: float, near: int | None) -> tuple[int, int | None]:
        """The most iterations known not to reach the target (0: none), the fewest known to reach it (None: none)."""
        m = min(near or 8, self._end)
        step = max(1, m // 16) if near else 8
        if self._reaches(m, target):
            while m > step and self._reaches(m - step, target):
                m, step = m - step, 2 * step
            return max(m - step, 0), m
        above = 0
        while True:
            trial = self._trials[m]
            if trial is None:  # too long: between what was done and this
                self._end = min(self._end, m - 1)
                m = (above + m) // 2
                if m - above <= above // 8 or m == above:
                    return above, None
            else:
                # The time of an iteration only falls with their number: what fits into the budget is not overrated.
                within = 0.95 * self._budget / max(trial.seconds, 1e-9) * m
                above, m = m, int(min(m + step, self._end, max(within, m)))
                step *= 2
                if m <= above:
                    return above, None
            if self._reaches(m, target):
                return above, m

    def _reaches(self, m: int, target: float) -> bool:
        if m not in self._trials:
            trial = self._fit(m)
            self._trials[m] = trial
            if trial is not None and trial.iterations is not None and trial.iterations < m:
                self._end = min(self._end, m)  # it ended by itself: more make no difference
        trial = self._trials[m]
        return trial is not None and trial.objective <= target


class Tolerances:
    """The loosest of a ladder of tolerances, tried from the loosest on.

    Parameters
    ----------
    fit : callable
        ``fit(tol)``: the trial, or None if it was stopped at the budget.
    budget : float
        Seconds.
    """

    knob = "tolerance"
    RUNGS = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)

    def __init__(
        self, fit: Callable[[float], Trial | None], budget: float = float("inf"), rungs: Sequence[float] = RUNGS
    ) -> None:
        self._fit, self._budget, self._rungs = fit, budget, tuple(rungs)
        self._trials: dict[float, Trial | None] = {}

    def search(self, target: float, near: float | None = None) -> Found:
        """``near`` is of no use here: loose tolerances are cheap."""
        trial: Trial | None = None
        for tol in self._rungs:
            if tol not in self._trials:
                self._trials[tol] = self._fit(tol)
            trial = self._trials[tol]
            if trial is None:
                return Found(tol, False, None, self._budget)
            if trial.objective <= target:
                return Found(tol, True, trial, trial.seconds)
        assert trial is not None
        return Found(self._rungs[-1], False, trial, trial.seconds)
